//! The configuration in force, and reading it again.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use substrat_proto::v1;

use super::config::{Config, ConfigError, environment};
use crate::engine::Handle;
use crate::launcher::Launcher;
use crate::provider::Registry;
use crate::provider::registry::{Providers, Settings};
use crate::service::Configuration;

/// What is in force, and what it was read with.
pub(super) struct Live {
    home: PathBuf,
    flags: Vec<String>,
    config: RwLock<Config>,
    settings: Settings,
    registry: Registry,
    engine: OnceLock<Handle>,
    /// Held while it is read again.
    reloading: Mutex<()>,
}

impl Live {
    pub(super) fn new(
        home: &Path,
        flags: &[String],
        config: Config,
        launcher: &Launcher,
    ) -> Result<Self, ConfigError> {
        let settings = config.providers(launcher.clone(), home.join("providers"));
        let made = config.plan()?.make(&settings, &Providers::new());
        Ok(Self {
            home: home.to_owned(),
            flags: flags.to_vec(),
            config: RwLock::new(config),
            settings,
            registry: Registry::new(made),
            engine: OnceLock::new(),
            reloading: Mutex::default(),
        })
    }

    /// The providers in force.
    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Has an engine told of what changes.
    pub(super) fn tell(&self, engine: Handle) {
        // There is one engine, told once.
        let _ = self.engine.set(engine);
    }

    fn config(&self) -> Config {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads it again. Nothing has changed when it cannot be used.
    pub(super) fn again(&self) -> Result<v1::ReloadConfigResponse, ConfigError> {
        let _alone = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let config = Config::load(&self.home, environment(), &self.flags)?;
        let before = self.registry.all();
        let made = config.plan()?.make(&self.settings, &before);
        let mut changes = changes(&before, &made);
        let old = self.config();
        (changes.changed_keys, changes.restart_keys) = old.differences(&config);
        let config = old.with_live(config);
        let policy = config.policy(&made);
        self.registry.replace(made);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        if let Some(engine) = self.engine.get() {
            engine.set_policy(policy);
        }
        tracing::info!(
            added = ?changes.added_providers,
            changed = ?changes.changed_providers,
            removed = ?changes.removed_providers,
            keys = ?changes.changed_keys,
            restart = ?changes.restart_keys,
            "read the configuration again"
        );
        Ok(changes)
    }
}

fn changes(before: &Providers, after: &Providers) -> v1::ReloadConfigResponse {
    let names = |keep: &dyn Fn(&str) -> bool, of: &Providers| {
        of.keys().filter(|name| keep(name)).map(ToString::to_string).collect()
    };
    let is_other = |name: &str| match (before.get(name), after.get(name)) {
        (Some(one), Some(other)) => !one.is_same(other),
        _ => false,
    };
    v1::ReloadConfigResponse {
        added_providers: names(&|name| !before.contains_key(name), after),
        changed_providers: names(&is_other, after),
        removed_providers: names(&|name| !after.contains_key(name), before),
        ..Default::default()
    }
}

impl Configuration for Live {
    fn show(&self) -> v1::GetConfigResponse {
        self.config().show()
    }

    fn slots(&self, provider: &str) -> usize {
        let slots = self.config().provider_slots(&self.registry.all());
        slots.get(provider).copied().unwrap_or_default()
    }

    fn reload(&self) -> BoxFuture<'_, Result<v1::ReloadConfigResponse, String>> {
        async { self.again().map_err(|error| error.to_string()) }.boxed()
    }
}
