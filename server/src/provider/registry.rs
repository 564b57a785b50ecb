//! Which providers there are: those of the build, and those that the configuration names.
//!
//! A section `[providers.NAME]` makes a provider `NAME` of a kind. Some are there without one:
//! the presets of [`KINDS`]. A section of the same name takes the place of a preset, key by key.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use toml::{Table, Value};

use super::{KINDS, Provider};
use crate::launcher::Launcher;
use crate::model::{Name, Rejection};

/// A kind of provider.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Reads a section: what makes the provider then, or what is wrong with the section.
    pub read: fn(&Section) -> Result<Make, Problem>,
    /// Sections that are there without being configured: a name, and TOML.
    pub presets: &'static [(&'static str, &'static str)],
}

/// Makes a provider.
pub type Make = Box<dyn Fn(&Settings) -> Arc<dyn Provider> + Send + Sync>;

/// What providers are made with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What starts processes.
    pub launcher: Launcher,
    /// The folder in which providers keep what belongs to sessions.
    pub folder: PathBuf,
    /// `substratctl`, the way from a process to its agent's tools.
    pub bridge: PathBuf,
    /// Limits of scripts.
    pub scripted: super::scripted::Settings,
    /// Bounds of programs.
    pub program: super::program::Settings,
}

/// A section of the configuration.
#[derive(Debug, Clone)]
pub struct Section {
    /// Name of the provider.
    pub name: Arc<str>,
    /// Its kind.
    pub kind: &'static str,
    /// What holds for every provider.
    pub common: Common,
    /// The keys of its kind.
    pub table: Table,
}

/// The keys of a kind that has none of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// What is wrong with a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key, as [`written`] has it; empty for the section as a whole.
    pub key: String,
    /// What is wrong.
    pub problem: String,
}

impl Problem {
    /// What is wrong with a key.
    pub fn new(key: &str, problem: impl Into<String>) -> Self {
        Self { key: key.to_owned(), problem: problem.into() }
    }

    /// With keys that are known, if a key is not.
    pub fn with_keys(mut self, whose: &str, keys: &[&str]) -> Self {
        if self.problem.starts_with("unknown field") {
            self.problem += &format!("; {whose} may have {}", keys.join(", "));
        }
        self
    }
}

/// Keys of every section.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Common {
    /// Its kind; the name of the section if it is that of a kind.
    #[serde(default)]
    pub kind: Option<String>,
    /// Live instances at most; none for the default of all.
    #[serde(default)]
    pub slots: Option<u32>,
    /// Providers that are tried, in this order, for a turn that this one could not run.
    #[serde(default)]
    pub fallback: Vec<String>,
    /// Attempts at a turn at most, the first included.
    #[serde(default = "attempts")]
    pub attempts: u32,
    /// What is answered when it asks whether it may use a tool.
    #[serde(default)]
    pub permissions: Permissions,
    /// The same, where nobody is there to answer.
    #[serde(default)]
    pub unattended: Unattended,
    /// Seconds without a sign of life after which an attempt is ended; 0 for none. The usual time
    /// for what gives signs of life, and none for what need not, if it is not set.
    #[serde(default)]
    pub stall_seconds: Option<u64>,
    /// The same, while a tool of its own runs.
    #[serde(default)]
    pub tool_stall_seconds: Option<u64>,
}

/// What is answered when a backend asks whether it may use a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permissions {
    /// Whoever is attached is asked.
    #[default]
    Ask,
    /// Yes.
    Allow,
    /// No.
    Deny,
}

/// What is answered when nobody is there to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unattended {
    /// Yes where the agent's processes are kept in a sandbox, and no otherwise.
    #[default]
    Sandbox,
    /// Yes.
    Allow,
    /// No.
    Deny,
    /// Nothing: the question stays open until somebody answers it.
    Wait,
}

const COMMON: &[&str] = &[
    "kind",
    "slots",
    "fallback",
    "attempts",
    "permissions",
    "unattended",
    "stall_seconds",
    "tool_stall_seconds",
];

/// Those that say where a key comes from, of which a section has one.
const KEY_KEYS: &[&str] = &["key_env", "key_file", "key_command"];

/// Longest time without a sign of life that can be set, in seconds.
const MAX_STALL: u64 = 7 * 86_400;
/// The usual times without one, in seconds: outside of tools of its own, and within one.
const STALL: u64 = 300;
const TOOL_STALL: u64 = 3600;

fn attempts() -> u32 {
    4
}

impl Default for Common {
    fn default() -> Self {
        Self {
            kind: None,
            slots: None,
            fallback: Vec::new(),
            attempts: attempts(),
            permissions: Permissions::default(),
            unattended: Unattended::default(),
            stall_seconds: None,
            tool_stall_seconds: None,
        }
    }
}

impl Common {
    fn check(&self) -> Result<(), Problem> {
        if self.slots == Some(0) {
            return Err(Problem::new("slots", "a number from 1 on fits"));
        }
        if !(1..=20).contains(&self.attempts) {
            return Err(Problem::new("attempts", "a number from 1 to 20 fits"));
        }
        for (key, seconds) in
            [("stall_seconds", self.stall_seconds), ("tool_stall_seconds", self.tool_stall_seconds)]
        {
            if seconds.is_some_and(|seconds| seconds > MAX_STALL) {
                let problem = format!("a number from 0 (for never) to {MAX_STALL} fits");
                return Err(Problem::new(key, problem));
            }
        }
        Ok(())
    }

    /// How long an attempt may go on without a sign of life, outside of tools of its own and within
    /// one; none for as long as it likes. `pulse` is whether it gives any by itself.
    pub fn patience(&self, pulse: bool) -> (Option<Duration>, Option<Duration>) {
        let allowed = |set: Option<u64>, usual| {
            let seconds = set.or_else(|| pulse.then_some(usual));
            seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs)
        };
        (allowed(self.stall_seconds, STALL), allowed(self.tool_stall_seconds, TOOL_STALL))
    }
}

impl Section {
    /// Reads the keys of its kind.
    ///
    /// # Errors
    ///
    /// Which key is unknown, or does not fit.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        read(self.table.clone())
    }
}

fn read<T: DeserializeOwned>(table: Table) -> Result<T, Problem> {
    serde_path_to_error::deserialize(Value::Table(table)).map_err(|error| {
        let key = place(error.path());
        Problem { key, problem: error.into_inner().message().replace('\n', ", ") }
    })
}

/// A place in a section: `prices."vendor/model-1.5".input`, or `args[0]`; empty for all of it.
fn place(path: &serde_path_to_error::Path) -> String {
    let mut text = String::new();
    for segment in path {
        if !text.is_empty() && !matches!(segment, Segment::Seq { .. }) {
            text.push('.');
        }
        match segment {
            Segment::Map { key } | Segment::Enum { variant: key } => text.push_str(&written(key)),
            other => text.push_str(&other.to_string()),
        }
    }
    text
}

/// A key as it stands in a file: in quotes where a dot, or another character, asks for them.
pub fn written(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !key.is_empty() && key.chars().all(is_bare) { key.to_owned() } else { format!("{key:?}") }
}

/// A provider with what holds for it.
#[derive(Clone)]
pub struct Entry {
    /// The provider.
    pub provider: Arc<dyn Provider>,
    /// What holds for it.
    pub common: Common,
    /// Its section as a whole, by which a change is known.
    section: Table,
    /// Its kind; none in a test.
    kind: Option<&'static str>,
    /// The kind that it had before the configuration was last read with another.
    pub was: Option<&'static str>,
}

impl Entry {
    /// A provider with what holds for it, and no section.
    pub fn of(provider: Arc<dyn Provider>, common: Common) -> Self {
        Self { provider, common, section: Table::new(), kind: None, was: None }
    }

    /// Whether both are one provider with the same section.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.provider, &other.provider)
    }
}

/// Providers by name.
pub type Providers = BTreeMap<Arc<str>, Entry>;

/// Sections that were read: what there is to be made.
pub struct Plan(BTreeMap<Arc<str>, Planned>);

struct Planned {
    make: Make,
    common: Common,
    section: Table,
    kind: &'static str,
}

/// Reads the sections of a configuration, by name.
///
/// # Errors
///
/// The name of a section with what is wrong in it.
pub fn read_sections(sections: &BTreeMap<String, Table>) -> Result<Plan, (String, Problem)> {
    let mut all: BTreeMap<String, Table> = BTreeMap::new();
    for (name, preset) in KINDS.iter().flat_map(|kind| kind.presets) {
        all.insert((*name).to_owned(), preset.parse().unwrap_or_default());
    }
    for (name, given) in sections {
        let section = all.entry(name.clone()).or_default();
        let kind = |table: &Table| table.get("kind").cloned();
        if kind(given).is_some_and(|given| Some(given) != kind(section)) {
            // What a preset of another kind says does not hold for it.
            section.clear();
        }
        let names_key = KEY_KEYS.iter().any(|key| given.contains_key(*key));
        let base = |table: &Table| table.get("base_url").cloned();
        if names_key || base(given).is_some_and(|given| Some(given) != base(section)) {
            // The preset's key is for the preset's server.
            KEY_KEYS.iter().for_each(|key| drop(section.remove(*key)));
        }
        section.extend(given.clone());
    }
    let mut planned = BTreeMap::new();
    for (name, table) in all {
        let one = plan(&name, table).map_err(|problem| (name.clone(), problem))?;
        planned.insert(name.into(), one);
    }
    let plan = Plan(planned);
    plan.check_fallbacks()?;
    Ok(plan)
}

fn plan(name: &str, section: Table) -> Result<Planned, Problem> {
    if let Err(Rejection::NameInvalid { problem, .. }) = Name::parse(name) {
        return Err(Problem::new("", problem.replacen("it ", "its name ", 1)));
    }
    let (common, table): (Table, Table) =
        section.clone().into_iter().partition(|(key, _)| COMMON.contains(&&**key));
    let common: Common = read(common)?;
    common.check()?;
    let named = common.kind.as_deref().unwrap_or(name);
    let kind = KINDS.iter().find(|kind| kind.name == named).ok_or_else(|| {
        let known: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
        let problem = match &common.kind {
            Some(kind) => format!("there is no kind {kind:?}"),
            None => "it names no kind".to_owned(),
        };
        Problem::new("kind", format!("{problem}; one of these fits: {}", known.join(", ")))
    })?;
    let of = Section { name: name.into(), kind: kind.name, common: common.clone(), table };
    let make = (kind.read)(&of).map_err(|problem| problem.with_keys("every section", COMMON))?;
    Ok(Planned { make, common, section, kind: kind.name })
}

impl Plan {
    /// Makes the providers. Those that `before` has with the same section are kept as they are,
    /// and their sessions with them.
    pub fn make(&self, settings: &Settings, before: &Providers) -> Providers {
        let make = |(name, planned): (&Arc<str>, &Planned)| {
            let kept = before.get(name).filter(|entry| entry.section == planned.section).cloned();
            let entry = kept.unwrap_or_else(|| Entry {
                provider: (planned.make)(settings),
                common: planned.common.clone(),
                section: planned.section.clone(),
                kind: Some(planned.kind),
                was: before.get(name).and_then(|entry| {
                    entry.kind.filter(|kind| *kind != planned.kind).or(entry.was)
                }),
            });
            (name.clone(), entry)
        };
        self.0.iter().map(make).collect()
    }

    fn check_fallbacks(&self) -> Result<(), (String, Problem)> {
        for (name, planned) in &self.0 {
            for fallback in &planned.common.fallback {
                let (provider, _) = split_fallback(fallback);
                let problem = match provider {
                    same if *same == **name => format!(
                        "a provider cannot stand in for itself; give another model of it a section \
                         of its own, such as [providers.other] with kind = {:?}",
                        planned.kind
                    ),
                    known if self.0.contains_key(known) => continue,
                    unknown => format!("there is no provider {unknown:?}"),
                };
                return Err((name.to_string(), Problem::new("fallback", problem)));
            }
        }
        Ok(())
    }
}

/// The provider and the model of a fallback, which is `PROVIDER` or `PROVIDER:MODEL`.
pub fn split_fallback(text: &str) -> (&str, Option<&str>) {
    match text.split_once(':') {
        Some((provider, model)) => (provider, Some(model).filter(|model| !model.is_empty())),
        None => (text, None),
    }
}

/// The providers that there are now. Clones are the same registry.
#[derive(Clone, Default)]
pub struct Registry {
    now: Arc<RwLock<Arc<Providers>>>,
}

impl Registry {
    /// A registry of these.
    pub fn new(providers: Providers) -> Self {
        let registry = Self::default();
        registry.replace(providers);
        registry
    }

    /// A registry of providers with the usual settings.
    pub fn of(providers: impl IntoIterator<Item = Arc<dyn Provider>>) -> Self {
        let entries = providers.into_iter().map(|provider| {
            let entry = Entry::of(provider, Common::default());
            (entry.provider.info().name, entry)
        });
        Self::new(entries.collect())
    }

    /// Those that there are now.
    pub fn all(&self) -> Arc<Providers> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Option<Entry> {
        self.all().get(name).cloned()
    }

    /// Has others from now on. Sessions that are open keep theirs until their turn is over.
    pub fn replace(&self, providers: Providers) {
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(providers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_need_not_give_signs_of_life_is_ended_where_that_is_asked_for() {
        let patience = |text: &str, pulse| {
            let common: Common = toml::from_str(text).unwrap();
            let (alone, in_tool) = common.patience(pulse);
            (alone.map(|alone| alone.as_secs()), in_tool.map(|in_tool| in_tool.as_secs()))
        };
        assert_eq!(patience("", true), (Some(300), Some(3600)));
        assert_eq!(patience("", false), (None, None));
        assert_eq!(patience("stall_seconds = 60", false), (Some(60), None));
        assert_eq!(patience("stall_seconds = 0", true), (None, Some(3600)));
    }

    #[test]
    fn the_key_of_a_preset_is_for_its_server_and_gives_way_to_another() {
        let key = |name: &str, given: &str| {
            let sections = BTreeMap::from([(name.to_owned(), given.parse().unwrap())]);
            let plan =
                read_sections(&sections).map_err(|(name, problem)| format!("{name}: {problem:?}"));
            plan.unwrap().0[name].section.get("key_env").and_then(Value::as_str).map(str::to_owned)
        };
        let named = Some("OPENROUTER_API_KEY".to_owned());
        assert_eq!(key("openrouter", "model = \"m\""), named);
        assert_eq!(key("openrouter", "base_url = \"https://openrouter.ai/api/v1\""), named);
        assert_eq!(key("openrouter", "base_url = \"https://other/v1\""), None);
        assert_eq!(key("openrouter", "key_file = \"/key\""), None);
        let mine = "base_url = \"https://other/v1\"\nkey_env = \"MINE\"";
        assert_eq!(key("openrouter", mine), Some("MINE".to_owned()));
        assert_eq!(key("ollama", "model = \"m\""), Some(String::new()));
        assert_eq!(key("ollama", "base_url = \"http://127.0.0.1:1/v1\""), None);
    }
}
