//! The sections on providers: `[providers.NAME]`.

use std::collections::BTreeMap;

use substrat_proto::v1;
use toml::{Table, Value};

use super::{Config, ConfigError};
use crate::provider::registry::{Plan, Problem, Providers, read_sections};

/// What the names of their keys start with.
pub(super) const PREFIX: &str = "providers.";
/// Keys whose values may be such as are not to be shown.
const HIDDEN: &[&str] = &["env", "headers"];

/// Sections as they were given, with where each of their keys comes from.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sections {
    tables: BTreeMap<String, Table>,
    sources: BTreeMap<String, String>,
}

impl Sections {
    /// Takes a key as the file, or a flag, names it: `NAME.KEY`, or deeper.
    pub(super) fn set(&mut self, path: &str, value: Value, source: &str) -> Result<(), String> {
        let (name, keys) = path.split_once('.').ok_or("name a key of it, such as kind")?;
        let mut table = self.tables.entry(name.to_owned()).or_default();
        let (parents, key) = keys.rsplit_once('.').map_or(("", keys), |(p, key)| (p, key));
        for parent in parents.split('.').filter(|parent| !parent.is_empty()) {
            let inner = table.entry(parent).or_insert_with(|| Value::Table(Table::new()));
            table = inner.as_table_mut().ok_or_else(|| format!("{parent} has no keys"))?;
        }
        table.insert(key.to_owned(), value);
        self.sources.insert(path.to_owned(), source.to_owned());
        Ok(())
    }

    /// Has a section, even if no key of it was given.
    pub(super) fn open(&mut self, name: &str, source: &str) {
        self.tables.entry(name.to_owned()).or_default();
        self.sources.insert(name.to_owned(), source.to_owned());
    }

    fn source(&self, name: &str, key: &str) -> String {
        let first = key.split(['.', '[']).next().unwrap_or_default();
        let below = format!("{name}.{first}");
        let found = self.sources.iter().find(|(path, _)| path.starts_with(&below));
        let found = found.or_else(|| self.sources.iter().find(|(path, _)| path.starts_with(name)));
        found.map_or_else(|| "default".to_owned(), |(_, source)| source.clone())
    }
}

impl Config {
    /// Reads the sections on providers.
    ///
    /// # Errors
    ///
    /// [`ConfigError::BadSection`].
    pub fn plan(&self) -> Result<Plan, ConfigError> {
        let sections = &self.sections;
        read_sections(&sections.tables).map_err(|(name, Problem { key, problem })| {
            let dot = if key.is_empty() { "" } else { "." };
            ConfigError::BadSection {
                source_name: sections.source(&name, &key),
                key: format!("{PREFIX}{name}{dot}{key}"),
                problem,
            }
        })
    }

    /// The keys that have other values in another configuration: those that are in force at once
    /// when it is read again, and those that are not before the next start. Providers are not
    /// among them.
    pub(in crate::daemon) fn differences(&self, other: &Self) -> (Vec<String>, Vec<String>) {
        let differs = |name: &&&str| self.value(name) != other.value(name);
        let names = self.values.keys().filter(differs).map(|name| (*name).to_owned());
        names.partition(|name| is_live(name))
    }

    /// What is in force when another was read: what is not live stays as it is.
    pub(in crate::daemon) fn with_live(mut self, other: Self) -> Self {
        let live = other.values.into_iter().filter(|(name, _)| is_live(name));
        self.values.extend(live);
        self.sections = other.sections;
        self
    }

    /// What was given of the sections, as the API gives it.
    pub(super) fn show_sections(&self) -> Vec<v1::ConfigValue> {
        let sections = &self.sections;
        let tables = sections.tables.iter();
        let rows = tables.flat_map(|(name, table)| table.iter().map(move |row| (name, row)));
        let shown = rows.map(|(name, (key, value))| v1::ConfigValue {
            key: format!("{PREFIX}{name}.{key}"),
            value: if HIDDEN.contains(&&**key) { names(value) } else { value.to_string() },
            source: sections.source(name, key),
            description: "of a provider; see docs/providers.md".to_owned(),
        });
        shown.collect()
    }

    /// Live instances of each provider at most.
    pub(in crate::daemon) fn provider_slots(
        &self,
        providers: &Providers,
    ) -> BTreeMap<String, usize> {
        let default = self.size("slots.default");
        let slots = providers.iter().map(|(name, entry)| {
            let named = entry.common.slots.map(|slots| slots as usize);
            let keyed = super::find(&format!("slots.{name}")).map(|key| self.size(key.name));
            (name.to_string(), named.or(keyed).unwrap_or(default))
        });
        slots.collect()
    }
}

/// Whether a key is in force at once when the configuration is read again: what the core is told
/// with every command.
fn is_live(name: &str) -> bool {
    const LIVE: &[&str] = &["limits.", "slots.", "multicast.", "requests.", "resume"];
    // The threads for them are there from the start.
    const FIXED: &[&str] = &["slots.scripted", "limits.waiting", "limits.history_bytes"];
    LIVE.iter().any(|start| name.starts_with(start)) && !FIXED.contains(&name)
}

/// A table without its values.
fn names(value: &Value) -> String {
    let names = value.as_table().into_iter().flat_map(Table::keys);
    let names: Vec<String> = names.map(|name| format!("{name} = …")).collect();
    format!("{{ {} }}", names.join(", "))
}
