//! The provider of a command-line agent.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::ask::{Heard, Unheard, complaint, hear};
use super::install::{self, Installed};
use super::session::Session;
use super::{About, Cli, Config};
use crate::launcher::{Bind, Exit, HOME, Launch, Launcher, WORKSPACE};
use crate::model::{Access, FailureClass};
use crate::provider::failure::{Failed, FailureKind};
use crate::provider::registry::{Settings, written};
use crate::provider::{
    Capabilities, Failure, Health, Info, Instance, Model, Objection, Provider, Spec,
};

/// Longest time that a tool call may block: some CLIs give one up after 60 s.
const CALL_LIMIT: Duration = Duration::from_secs(45);
/// How long a CLI may take to say its version.
const VERSION: Duration = Duration::from_secs(20);
/// How long it may take for that where all providers are looked at.
const GLANCE: Duration = Duration::from_secs(5);
/// Most bytes that it may take for that.
const MAX_VERSION: usize = 4 << 10;
/// Bytes of its last words that are told where it fails.
const MAX_WORDS: usize = 1 << 10;

/// What a program said of its version.
#[derive(Debug, Clone)]
struct Asked {
    program: PathBuf,
    /// How old the program was.
    changed: SystemTime,
    /// The version, or why it does not tell.
    version: Result<String, String>,
}

/// What a provider and its sessions share.
pub(super) struct Inner {
    pub(super) cli: Box<dyn Cli>,
    pub(super) config: Arc<Config>,
    pub(super) launcher: Launcher,
    /// Where homes of sessions lie.
    pub(super) folder: PathBuf,
    pub(super) bridge: PathBuf,
    version: Mutex<Option<Asked>>,
}

/// Makes the provider of a CLI.
pub(in crate::provider) fn make(
    cli: Box<dyn Cli>,
    config: Arc<Config>,
    settings: &Settings,
) -> Arc<dyn Provider> {
    let (launcher, folder) = (settings.launcher.clone(), settings.folder.clone());
    let (bridge, version) = (settings.bridge.clone(), Mutex::default());
    let inner = Inner { cli, config, launcher, folder, bridge, version };
    Arc::new(CommandLine(Arc::new(inner)))
}

impl Inner {
    /// What it is. Where the kind stands for many, its program says which.
    fn description(&self) -> String {
        let (about, program) = (self.cli.about(), self.config.program.as_deref());
        let name = program.and_then(|program| program.rsplit('/').next());
        match name.filter(|_| about.programs.is_empty()) {
            Some(name) => format!("{name}, {}", about.description),
            None => about.description.to_owned(),
        }
    }

    /// Finds its program.
    pub(super) fn find(&self) -> Result<Installed, Failure> {
        let shown = |path: &Path| self.launcher.shows(path);
        install::find(self.cli.about(), self.config.program.as_deref(), shown)
            .map_err(|problem| Failure::new(FailureClass::ProviderGone, problem))
    }

    /// The files of the user's login that are there: by their paths from a home, and where they
    /// lie.
    pub(super) fn logins(&self) -> Vec<(&str, PathBuf)> {
        let Some(home) = std::env::home_dir() else { return Vec::new() };
        let logins = self.config.logins.iter();
        let real = |path| Some((String::as_str(path), home.join(path).canonicalize().ok()?));
        logins.filter_map(real).filter(|(_, path)| path.is_file()).collect()
    }

    /// What to do where it has neither the key nor the login that it needs.
    pub(super) fn lacks_key(&self) -> Option<String> {
        let config = &self.config;
        let has_login = config.shows_login() && !self.logins().is_empty();
        let none = !config.has_key() && !has_login && !config.may_have_other_key();
        (none && self.cli.needs_key(config)).then(|| config.no_key())
    }

    /// A failure, with what to do where its key was refused, or where a program or its model is
    /// missing.
    pub(super) fn advised(&self, mut failed: Failed) -> Failed {
        let Self { cli, config, .. } = self;
        let (name, section) = (&config.name, written(&config.name));
        let next = match failed.kind {
            FailureKind::Auth => {
                let logins = if config.shows_login() { self.logins() } else { Vec::new() };
                let logins: Vec<&str> = logins.iter().map(|(path, _)| *path).collect();
                config.refused(&logins)
            }
            FailureKind::Missing => {
                let variables = cli.program_variables().iter();
                let mut named = variables.filter_map(|name| Some((*name, config.env.get(*name)?)));
                let named = named.find(|(_, path)| failed.message.contains(path.as_str()));
                let named = named.map(|(name, path)| (name, path.as_str()));
                install::again(config.program.as_deref(), named, &section)
            }
            FailureKind::NotFound => format!(
                "look at the model and at base_url in [providers.{section}]; \
                 substratctl provider models {name} lists its models"
            ),
            _ => return failed,
        };
        failed.message = format!("{}; {next}", failed.message.trim_end_matches('.'));
        failed
    }

    /// What is wrong with the other programs that it is told to run, and what to do.
    async fn lacks_other(&self, installed: &Installed) -> Option<String> {
        let (config, sandboxed) = (&self.config, self.launcher.confines().await);
        let holds = |bind: &Path, path: &Path| {
            path.starts_with(bind) || bind.canonicalize().is_ok_and(|real| path.starts_with(real))
        };
        let shown = |path: &Path| {
            let mut binds = installed.binds.iter().chain(&config.binds);
            !sandboxed || self.launcher.shows(path) || binds.any(|bind| holds(bind, path))
        };
        // What is there in a session alone, or is looked for on the `PATH` there, is not seen here.
        let is_elsewhere = |path: &Path| {
            let is_inside = [HOME, WORKSPACE].iter().any(|own| path.starts_with(own));
            !path.is_absolute() || (sandboxed && is_inside)
        };
        self.cli.program_variables().iter().find_map(|&variable| {
            let path = Path::new(config.env.get(variable)?);
            if is_elsewhere(path) {
                return None;
            }
            install::problem_of_named((variable, path), &written(&config.name), shown)
        })
    }

    /// What the program says its version is. It is asked once, and where it did not tell, again if
    /// `anew` says so: then it has its whole time. One that was only slow is asked again anyway,
    /// since the next start may not be from a cold disk.
    async fn version(&self, installed: &Installed, anew: bool) -> Result<String, String> {
        let changed = installed.program.metadata().and_then(|found| found.modified());
        let changed = changed.map_err(|error| error.to_string())?;
        let known = || self.version.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = known().clone();
        let as_it_is = |asked: &Asked| {
            asked.program == installed.program
                && asked.changed == changed
                && (asked.version.is_ok() || !anew)
        };
        if let Some(asked) = asked.filter(as_it_is) {
            return asked.version;
        }
        let patience = if anew { VERSION } else { GLANCE };
        let version = match self.ask_version(installed, patience).await {
            Ok(heard) => version_in(&heard, installed, self.cli.about().kind),
            Err(Unheard::NotRun(problem)) => Err(problem),
            Err(Unheard::Late(after)) => {
                let late = format!("no answer to --version in {} s", after.as_secs());
                if !anew {
                    let (name, whole) = (&self.config.name, VERSION.as_secs());
                    return Err(format!(
                        "{late}; substratctl provider check {name} waits for {whole} s"
                    ));
                }
                Err(late)
            }
        };
        let program = installed.program.clone();
        *known() = Some(Asked { program, changed, version: version.clone() });
        version
    }

    /// Asks in an empty sandbox, since some leave files in their home whatever they are asked.
    async fn ask_version(
        &self,
        installed: &Installed,
        patience: Duration,
    ) -> Result<Heard, Unheard> {
        let bind = |path: &PathBuf| Bind {
            host: path.clone(),
            at: path.to_string_lossy().into_owned(),
            access: Access::ReadOnly,
            follows_links: false,
        };
        let launch = Launch {
            argv: installed.argv().into_iter().chain(["--version".to_owned()]).collect(),
            binds: installed.binds.iter().chain(&self.config.binds).map(bind).collect(),
            ..Launch::default()
        };
        hear(&self.launcher, launch, MAX_VERSION, patience).await
    }
}

/// The version in what a program of a kind said when it was asked for it, or why it told none.
fn version_in(heard: &Heard, installed: &Installed, kind: &str) -> Result<String, String> {
    match heard.exit {
        Exit::Code(0) => {
            let said = heard.said.trim().lines().next().map(str::to_owned);
            // An adapter may take no options, and end when nobody speaks to it.
            Ok(said.or_else(|| installed.package_version()).unwrap_or_default())
        }
        exit => {
            let words = heard.complained.trim();
            let words = &words[words.ceil_char_boundary(words.len().saturating_sub(MAX_WORDS))..];
            let why = complaint(exit, words, FailureKind::Killed).message;
            Err(format!("--version came to {why}; docs/{kind}.md says how it is installed"))
        }
    }
}

/// The provider.
struct CommandLine(Arc<Inner>);

impl CommandLine {
    fn about(&self) -> &'static About {
        self.0.cli.about()
    }
}

impl Provider for CommandLine {
    fn info(&self) -> Info {
        let about = self.about();
        Info {
            name: self.0.config.name.clone(),
            kind: about.kind,
            description: self.0.description(),
            capabilities: Capabilities {
                keeps_history: true,
                resumes: true,
                native_tools: true,
                tool_socket: true,
                processes: true,
                pulse: self.0.cli.has_pulse(),
                steering: self.0.cli.can_steer(),
            },
            call_limit: Some(CALL_LIMIT),
        }
    }

    fn examine(&self, ask: bool) -> BoxFuture<'_, Health> {
        async move {
            let config = &self.0.config;
            let installed = match self.0.find() {
                Ok(installed) => installed,
                Err(no) => return Health { problem: Some(no.message), ..Health::default() },
            };
            let key = config.key_source();
            let logins = if config.shows_login() { self.0.logins() } else { Vec::new() };
            let mut facts = vec![("program".to_owned(), installed.program.display().to_string())];
            facts.push(("key".to_owned(), key.to_string()));
            let of_login = logins.iter();
            facts.extend(of_login.map(|(_, at)| ("login".to_owned(), at.display().to_string())));
            facts.extend(config.base_url.iter().map(|url| ("server".to_owned(), url.clone())));
            facts.extend(config.model.iter().map(|model| ("model".to_owned(), model.clone())));
            let (version, failed) = match self.0.version(&installed, ask).await {
                Ok(version) => (version, None),
                Err(problem) => (String::new(), Some(problem)),
            };
            let no_bridge = (!self.0.bridge.is_file()).then(|| {
                format!("{} is missing: install it beside the daemon", self.0.bridge.display())
            });
            let no_other = self.0.lacks_other(&installed).await;
            let mut problem = failed.or(no_bridge).or(no_other);
            if problem.is_none() {
                problem = key.is_there().await.err().or_else(|| self.0.lacks_key());
            }
            if problem.is_none() && ask {
                problem = match key.resolve().await {
                    Ok(key) => self.0.misfits(&installed, key.as_ref()).await,
                    Err(no_key) => Some(no_key.told_by_check()),
                };
            }
            Health { version, problem, facts }
        }
        .boxed()
    }

    fn models(&self) -> BoxFuture<'_, Result<Vec<Model>, Failure>> {
        self.0.clone().models().boxed()
    }

    fn check(&self, instructions: &str, model: Option<&str>) -> Result<(), Objection> {
        let most = self.0.cli.max_instructions();
        if instructions.len() > most {
            let problem = format!(
                "it can be given {most} bytes of instructions at most; put the rest into a file of its workspace"
            );
            return Err(Objection::Instructions(problem));
        }
        match model {
            Some(model) if model.trim().is_empty() || model.starts_with('-') => {
                Err(Objection::Model(format!("{model:?} is no name of a model")))
            }
            _ => Ok(()),
        }
    }

    fn open(&self, spec: Spec) -> BoxFuture<'_, Result<Box<dyn Instance>, Failure>> {
        let session = Session::new(self.0.clone(), spec);
        async { Ok(Box::new(session) as Box<dyn Instance>) }.boxed()
    }
}
