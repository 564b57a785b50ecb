//! The configuration: built-in values < `config.toml` < environment < flags. Unknown keys are
//! errors.
#![allow(clippy::disallowed_methods, reason = "reads the configuration file")]

mod error;
mod providers;
mod sandbox;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use substrat_proto::v1;
use toml::Value;

pub use self::error::ConfigError;
use self::providers::Sections;
use crate::engine;
use crate::journal;
use crate::launcher::Launcher;
use crate::launcher::egress::Endpoint;
use crate::model::{Policy, ProviderPolicy, Resume};
use crate::provider::registry::{self, Providers};
use crate::provider::{program, scripted};
use crate::service::DEFAULT_PROVIDER;

/// The settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    values: BTreeMap<&'static str, (Value, String)>,
    sections: Sections,
    path: PathBuf,
}

/// What fits a key.
#[derive(Clone, Copy)]
enum Fits {
    Number {
        least: i64,
        most: i64,
    },
    Word(&'static [&'static str]),
    Switch,
    Numbers,
    /// Texts, each of which a check lets pass or says what is wrong with; and one that fits.
    Texts {
        check: fn(&str) -> Result<(), String>,
        example: &'static str,
    },
    Paths,
}

struct Key {
    name: &'static str,
    default: fn() -> Value,
    fits: Fits,
    description: &'static str,
}

const fn number(least: i64, most: i64) -> Fits {
    Fits::Number { least, most }
}

const KEYS: &[Key] = &[
    Key {
        name: "allow_users",
        default: || Value::Array(Vec::new()),
        fits: Fits::Numbers,
        description: "user ids that may use the API beside the owner",
    },
    Key {
        name: "attach.silence_seconds",
        default: || Value::Integer(15),
        fits: number(1, 3600),
        description: "after how long a silent attached client is dropped; it is to send a \
                      heartbeat every 5",
    },
    Key {
        name: "autostart",
        default: || Value::Boolean(false),
        fits: Fits::Switch,
        description: "whether substratctl starts the daemon when it does not run",
    },
    Key {
        name: "drain_seconds",
        default: || Value::Integer(30),
        fits: number(0, 86_400),
        description: "how long running turns may go on when the daemon stops",
    },
    Key {
        name: "journal.checkpoint_mib",
        default: || Value::Integer(32),
        fits: number(1, 65_536),
        description: "journal after which a checkpoint is written",
    },
    Key {
        name: "journal.segment_mib",
        default: || Value::Integer(64),
        fits: number(1, 1024),
        description: "largest size of a journal segment",
    },
    Key {
        name: "limits.agents",
        default: || Value::Integer(100_000),
        fits: number(1, 10_000_000),
        description: "live agents at most",
    },
    Key {
        name: "limits.depth",
        default: || Value::Integer(32),
        fits: number(1, 1000),
        description: "agents from a root to a leaf at most",
    },
    Key {
        name: "limits.history_bytes",
        default: || Value::Integer(2 << 20),
        fits: number(1024, 1 << 30),
        description: "conversation that a turn is given, newest turns first",
    },
    Key {
        name: "limits.inbox_bytes",
        default: || Value::Integer(16 << 20),
        fits: number(1, 1 << 30),
        description: "bytes of text from which on an inbox takes no more messages",
    },
    Key {
        name: "limits.inbox_messages",
        default: || Value::Integer(1000),
        fits: number(1, 1_000_000),
        description: "messages in an agent's inbox at most",
    },
    Key {
        name: "limits.message_bytes",
        default: || Value::Integer(1 << 20),
        fits: number(1024, 3 << 20),
        description: "longest message, and longest instructions",
    },
    Key {
        name: "limits.reminders",
        default: || Value::Integer(100),
        fits: number(1, 10_000),
        description: "reminders of an agent at most",
    },
    Key {
        name: "limits.subscriptions",
        default: || Value::Integer(100),
        fits: number(1, 10_000),
        description: "subscriptions of an agent at most",
    },
    Key {
        name: "limits.user_inbox_messages",
        default: || Value::Integer(10_000),
        fits: number(1, 1_000_000),
        description: "messages in USER's inbox at most",
    },
    Key {
        name: "limits.waiting",
        default: || Value::Integer(1024),
        fits: number(1, 16_384),
        description: "turns blocked on an answer at once; a further one goes on without",
    },
    Key {
        name: "log.level",
        default: || Value::String("info".into()),
        fits: Fits::Word(&["error", "warn", "info", "debug", "trace"]),
        description: "what the daemon logs",
    },
    Key {
        name: "multicast.timeout_seconds",
        default: || Value::Integer(600),
        fits: number(1, 31_536_000),
        description: "how long answers to a broadcast are collected that names no time",
    },
    Key {
        name: "program.turn_seconds",
        default: || Value::Integer(3600),
        fits: number(0, 31_536_000),
        description: "how long a turn of a program may take; 0 for any time",
    },
    Key {
        name: "requests.retention_seconds",
        default: || Value::Integer(86_400),
        fits: number(60, 31_536_000),
        description: "how long a repeated request id returns the first answer",
    },
    Key {
        name: "resume",
        default: || Value::String("roots".into()),
        fits: Fits::Word(&["roots", "all", "none"]),
        description: "which agents are told after a crash",
    },
    Key {
        name: "sandbox.endpoints",
        default: || Value::Array(Vec::new()),
        fits: Fits::Texts { check: check_endpoint, example: "https://api.example.com" },
        description: "what programs in a sandbox without network still reach, through a proxy",
    },
    Key {
        name: "scripted.max_elements",
        default: || Value::Integer(100_000),
        fits: number(100, 1_000_000),
        description: "elements of a script's largest array or map",
    },
    Key {
        name: "scripted.max_heap_mib",
        default: || Value::Integer(64),
        fits: number(1, 65_536),
        description: "memory that a turn of a script may hold",
    },
    Key {
        name: "scripted.max_memory_bytes",
        default: || Value::Integer(256 << 10),
        fits: number(1024, 2 << 20),
        description: "what a script may remember from turn to turn",
    },
    Key {
        name: "scripted.max_operations",
        default: || Value::Integer(50_000_000),
        fits: number(1000, i64::MAX),
        description: "operations of one turn of a script",
    },
    Key {
        name: "scripted.max_string_bytes",
        default: || Value::Integer(4 << 20),
        fits: number(1024, 1 << 30),
        description: "a script's longest string",
    },
    Key {
        name: "scripted.tool_socket",
        default: || Value::Boolean(false),
        fits: Fits::Switch,
        description: "open a tool socket for live scripted sessions",
    },
    Key {
        name: "slots.default",
        default: || Value::Integer(4),
        fits: number(1, 100_000),
        description: "live instances of a provider that has no setting of its own",
    },
    Key {
        name: "slots.program",
        default: || Value::Integer(16),
        fits: number(1, 100_000),
        description: "live programs",
    },
    Key {
        name: "slots.scripted",
        default: || Value::Integer(256),
        fits: number(1, 100_000),
        description: "live scripted instances",
    },
];

/// How the name of an environment variable for a key starts.
const ENV_PREFIX: &str = "SUBSTRAT_";
/// Variables with that start that are no keys.
const OTHER_VARIABLES: [&str; 4] =
    ["SUBSTRAT_HOME", "SUBSTRAT_SOCKET", "SUBSTRAT_TOOL_SOCKET", "SUBSTRAT_DAEMON"];

fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let start = error.span().map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let problem = error.message().replace('\n', ", ");
    ConfigError::Syntax { path: path.to_owned(), line, column, problem }
}

fn check_endpoint(text: &str) -> Result<(), String> {
    text.parse::<Endpoint>().map(drop).map_err(|error| error.to_string())
}

/// Every key.
fn keys() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().chain(sandbox::KEYS)
}

fn find(name: &str) -> Option<&'static Key> {
    keys().find(|key| key.name == name)
}

fn did_you_mean(name: &str) -> String {
    if name.starts_with(providers::PREFIX) {
        return "; in quotes it is one key: write a section [providers.NAME]".to_owned();
    }
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let similar = keys().find(|key| last(key.name) == last(name) || key.name.contains(name));
    similar.map_or_else(
        || "; \"substratctl config show\" lists the keys".to_owned(),
        |key| format!("; did you mean {:?}?", key.name),
    )
}

impl Config {
    /// The configuration of a home, with what environment and flags (`key=value`) say.
    pub fn load(
        home: &Path,
        environment: impl Iterator<Item = (String, String)>,
        flags: &[String],
    ) -> Result<Self, ConfigError> {
        let path = home.join("config.toml");
        let defaults = keys().map(|key| (key.name, ((key.default)(), "default".to_owned())));
        let (values, sections) = (defaults.collect(), Sections::default());
        let mut config = Self { values, sections, path: path.clone() };
        config.read_file(&path)?;
        for (name, value) in environment {
            let is_key = name.starts_with(ENV_PREFIX) && !OTHER_VARIABLES.contains(&&*name);
            if is_key {
                let key = keys().find(|key| variable(key.name) == name);
                let Some(key) = key else {
                    let source_name = "environment".to_owned();
                    return Err(ConfigError::UnknownKey { source_name, key: name });
                };
                config.set(key.name, from_text(&value), &name)?;
            }
        }
        for flag in flags {
            let (key, value) = flag.split_once('=').unwrap_or((flag, ""));
            config.set(key.trim(), from_text(value.trim()), "--set")?;
        }
        config.plan()?;
        Ok(config)
    }

    fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(ConfigError::Unreadable { path: path.to_owned(), error }),
        };
        let table: toml::Table = text.parse().map_err(|error| syntax(path, &text, &error))?;
        self.read_table("", &table, &path.display().to_string())
    }

    fn read_table(
        &mut self,
        prefix: &str,
        table: &toml::Table,
        source_name: &str,
    ) -> Result<(), ConfigError> {
        for (name, value) in table {
            let key = format!("{prefix}{name}");
            match value {
                Value::Table(sections) if key == providers::TABLE => {
                    self.sections.read(sections, source_name)?;
                }
                Value::Table(inner) => {
                    self.read_table(&format!("{key}."), inner, source_name)?;
                }
                value => self.set_key(&key, value.clone(), source_name)?,
            }
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: Value, source_name: &str) -> Result<(), ConfigError> {
        if let Some(path) = name.strip_prefix(providers::PREFIX) {
            let (source_name, key) = (source_name.to_owned(), name.to_owned());
            return self
                .sections
                .set(path, value, &source_name)
                .map_err(|problem| ConfigError::BadSection { source_name, key, problem });
        }
        self.set_key(name, value, source_name)
    }

    /// Takes one of the keys that do not belong to a provider.
    fn set_key(&mut self, name: &str, value: Value, source_name: &str) -> Result<(), ConfigError> {
        let Some(key) = find(name) else {
            let (source_name, key) = (source_name.to_owned(), name.to_owned());
            return Err(ConfigError::UnknownKey { source_name, key });
        };
        if let Err(problem) = key.fits.check(&value) {
            return Err(ConfigError::BadValue {
                source_name: source_name.to_owned(),
                key: name.to_owned(),
                value: value.to_string(),
                problem,
            });
        }
        self.values.insert(key.name, (value, source_name.to_owned()));
        Ok(())
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name).map(|(value, _)| value)
    }

    fn number(&self, name: &str) -> u64 {
        let value = self.value(name).and_then(Value::as_integer).unwrap_or_default();
        u64::try_from(value).unwrap_or_default()
    }

    fn size(&self, name: &str) -> usize {
        usize::try_from(self.number(name)).unwrap_or(usize::MAX)
    }

    fn word(&self, name: &str) -> &str {
        self.value(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// The settings with where they come from, as the API gives them.
    pub fn show(&self) -> v1::GetConfigResponse {
        let values = self.values.iter().map(|(name, (value, source))| v1::ConfigValue {
            key: (*name).to_owned(),
            value: value.to_string(),
            source: source.clone(),
            description: find(name).map(|key| key.description).unwrap_or_default().to_owned(),
        });
        let values = values.chain(self.show_sections()).collect();
        v1::GetConfigResponse { path: self.path.display().to_string(), values }
    }

    /// What the daemon logs.
    pub fn log_level(&self) -> &str {
        self.word("log.level")
    }

    /// User ids that may use the API beside the owner.
    pub fn allowed_users(&self) -> Vec<u32> {
        let users = self.value("allow_users").and_then(Value::as_array).into_iter().flatten();
        users.filter_map(|id| u32::try_from(id.as_integer()?).ok()).collect()
    }

    /// What programs in a sandbox without network still reach.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let texts = self.value("sandbox.endpoints").and_then(Value::as_array).into_iter().flatten();
        texts.filter_map(|text| text.as_str()?.parse().ok()).collect()
    }

    /// Threads that may be blocked at once: by running scripts, by those that wait for an answer,
    /// and by work on files.
    pub fn blocking_threads(&self) -> usize {
        self.size("slots.scripted") + self.size("limits.waiting") + 64
    }

    /// After how long a silent client of an attached stream is taken for dead.
    pub fn attach_silence(&self) -> Duration {
        Duration::from_secs(self.number("attach.silence_seconds"))
    }

    /// What providers are made with.
    pub fn providers(&self, launcher: Launcher, folder: PathBuf) -> registry::Settings {
        let seconds = self.number("program.turn_seconds");
        let turn = (seconds > 0).then(|| Duration::from_secs(seconds));
        let program = program::Settings { turn };
        let bridge = std::env::current_exe().unwrap_or_default().with_file_name("substratctl");
        registry::Settings { launcher, folder, bridge, scripted: self.scripted(), program }
    }

    /// Limits of scripts.
    pub fn scripted(&self) -> scripted::Settings {
        scripted::Settings {
            max_operations: self.number("scripted.max_operations"),
            max_string: self.size("scripted.max_string_bytes"),
            max_elements: self.size("scripted.max_elements"),
            max_heap: self.size("scripted.max_heap_mib") << 20,
            max_memory: self.size("scripted.max_memory_bytes"),
            tool_socket: self
                .value("scripted.tool_socket")
                .and_then(Value::as_bool)
                .unwrap_or_default(),
        }
    }

    /// Sizes of the journal.
    pub fn journal(&self) -> journal::Options {
        journal::Options { segment_bytes: self.number("journal.segment_mib") << 20 }
    }

    /// Sizes and times of the engine.
    pub fn limits(&self) -> engine::Limits {
        engine::Limits {
            checkpoint_bytes: self.number("journal.checkpoint_mib") << 20,
            drain: Duration::from_secs(self.number("drain_seconds")),
            history_bytes: self.size("limits.history_bytes"),
            ..engine::Limits::default()
        }
    }

    /// What the core may do.
    pub fn policy(&self, providers: &Providers) -> Policy {
        let slots = self.provider_slots(providers);
        let providers = providers.iter().map(|(name, entry)| {
            let slots = slots.get(&**name).copied().unwrap_or(1);
            let call_limit = entry.provider.info().call_limit;
            (name.clone(), ProviderPolicy { slots, call_limit })
        });
        Policy {
            providers: providers.collect(),
            default_provider: DEFAULT_PROVIDER.into(),
            max_text: self.size("limits.message_bytes"),
            max_inbox: self.size("limits.inbox_messages"),
            max_user_inbox: self.size("limits.user_inbox_messages"),
            max_inbox_bytes: self.size("limits.inbox_bytes"),
            max_agents: self.size("limits.agents"),
            max_depth: self.size("limits.depth"),
            max_waiting: self.size("limits.waiting"),
            max_reminders: self.size("limits.reminders"),
            max_subscriptions: self.size("limits.subscriptions"),
            multicast_timeout: Duration::from_secs(self.number("multicast.timeout_seconds")),
            max_setbacks: 3,
            resume: match self.word("resume") {
                "all" => Resume::All,
                "none" => Resume::None,
                _ => Resume::Roots,
            },
            request_retention: Duration::from_secs(self.number("requests.retention_seconds")),
            draining: false,
        }
    }
}

impl Fits {
    fn check(self, value: &Value) -> Result<(), String> {
        let fits = match (self, value) {
            (Self::Number { least, most }, Value::Integer(number)) => {
                (least..=most).contains(number)
            }
            (Self::Word(words), Value::String(word)) => words.contains(&word.as_str()),
            (Self::Switch, Value::Boolean(_)) => true,
            (Self::Numbers, Value::Array(values)) => {
                let fits = |n: i64| u32::try_from(n).is_ok();
                values.iter().all(|value| value.as_integer().is_some_and(fits))
            }
            (Self::Texts { check, .. }, Value::Array(values))
                if values.iter().all(Value::is_str) =>
            {
                for text in values.iter().filter_map(Value::as_str) {
                    check(text).map_err(|problem| format!("{text:?}: {problem}"))?;
                }
                true
            }
            (Self::Paths, Value::Array(values)) => sandbox::are_paths(values),
            _ => false,
        };
        if fits {
            return Ok(());
        }
        Err(match self {
            Self::Number { least, most: i64::MAX } => format!("a number from {least} on fits"),
            Self::Number { least, most } => format!("a number from {least} to {most} fits"),
            Self::Word(words) => format!("one of these fits: {}", words.join(", ")),
            Self::Switch => "true or false fits".to_owned(),
            Self::Numbers => "a list of numbers fits, such as [1000]".to_owned(),
            Self::Texts { example, .. } => format!("a list of texts fits, such as [{example:?}]"),
            Self::Paths => {
                "a list of absolute paths fits, such as [\"/opt\"], outside of /dev, /proc, /sys, \
                 /tmp and what else a sandbox has of its own"
                    .to_owned()
            }
        })
    }
}

/// The environment variable of a key: `slots.default` is `SUBSTRAT_SLOTS_DEFAULT`.
fn variable(name: &str) -> String {
    format!("{ENV_PREFIX}{}", name.to_ascii_uppercase().replace('.', "_"))
}

/// The variables of the environment. A name that is no text is no setting; a value that is none
/// fits no key.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
    })
}

/// A value as a person types it: TOML, or else text.
fn from_text(text: &str) -> Value {
    let table: Result<toml::Table, _> = format!("value = {text}").parse();
    let value = table.ok().and_then(|mut table| table.remove("value"));
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}
