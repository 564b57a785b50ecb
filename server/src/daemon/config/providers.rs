//! The sections on providers: `[providers.NAME]`.

use std::collections::BTreeMap;

use substrat_proto::v1;
use toml::{Table, Value};

use super::{Config, ConfigError};
use crate::provider::registry::{Plan, Problem, Providers, read_sections, written};

/// The table that holds them.
pub(super) const TABLE: &str = "providers";
/// What the names of their keys start with.
pub(super) const PREFIX: &str = "providers.";
/// Keys whose values may be such as are not to be shown.
const HIDDEN: &[&str] = &["env", "headers"];
/// What is wrong where a section is no table.
const NO_TABLE: &str = "name a key of it, such as kind";

/// Sections as they were given, with where each of their keys comes from.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sections {
    tables: BTreeMap<String, Table>,
    /// By the name of a section, and the keys below it as they are written; empty for itself.
    sources: BTreeMap<String, BTreeMap<String, String>>,
}

impl Sections {
    /// Takes those of a file. Their keys stay as they are: dots in quotes split nothing.
    pub(super) fn read(&mut self, sections: &Table, source: &str) -> Result<(), ConfigError> {
        for (name, section) in sections {
            let Value::Table(section) = section else {
                return Err(ConfigError::BadSection {
                    source_name: source.to_owned(),
                    key: format!("{PREFIX}{}", written(name)),
                    problem: NO_TABLE.to_owned(),
                });
            };
            let sources = self.sources.entry(name.clone()).or_default();
            let places = section.keys().map(|key| written(key)).chain([String::new()]);
            sources.extend(places.map(|place| (place, source.to_owned())));
            self.tables.entry(name.clone()).or_default().extend(section.clone());
        }
        Ok(())
    }

    /// Takes a key as a flag names it: `NAME.KEY`, or deeper.
    pub(super) fn set(&mut self, path: &str, value: Value, source: &str) -> Result<(), String> {
        let path = split(path);
        let [name, parents @ .., key] = &*path else { return Err(NO_TABLE.to_owned()) };
        let mut table = self.tables.entry(name.clone()).or_default();
        let mut place = String::new();
        for parent in parents.iter().filter(|parent| !parent.is_empty()) {
            let inner = table.entry(parent.as_str()).or_insert_with(|| Value::Table(Table::new()));
            let parent = written(parent);
            table = inner.as_table_mut().ok_or_else(|| format!("{parent} has no keys"))?;
            place = format!("{place}{parent}.");
        }
        place.push_str(&written(key));
        table.insert(key.clone(), value);
        self.sources.entry(name.clone()).or_default().insert(place, source.to_owned());
        Ok(())
    }

    /// Where a key comes from: it or what it holds, or else what holds it, or else its section.
    fn source(&self, name: &str, key: &str) -> String {
        let given = || self.sources.get(name).into_iter().flatten();
        let found = given().find(|(place, _)| holds(key, place));
        // The last of those that hold it is the one that is nearest to it.
        let found = found.or_else(|| given().rfind(|(place, _)| holds(place, key)));
        let found = found.or_else(|| given().next());
        found.map_or_else(|| "default".to_owned(), |(_, source)| source.clone())
    }
}

/// Whether a place in a section is another one, or has it in it.
fn holds(outer: &str, inner: &str) -> bool {
    let rest = inner.strip_prefix(outer);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The keys of a path. Dots in quotes are part of a key, as in TOML.
fn split(path: &str) -> Vec<String> {
    let quoted = if path.contains(['"', '\'']) { split_quoted(path) } else { None };
    quoted.unwrap_or_else(|| path.split('.').map(str::to_owned).collect())
}

fn split_quoted(path: &str) -> Option<Vec<String>> {
    let mut table: Table = format!("{path} = 0").parse().ok()?;
    let mut keys = Vec::new();
    while let Some((key, value)) = table.into_iter().next() {
        keys.push(key);
        let Value::Table(inner) = value else { break };
        table = inner;
    }
    Some(keys)
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
                key: format!("{PREFIX}{}{dot}{key}", written(&name)),
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
            key: format!("{PREFIX}{}.{}", written(name), written(key)),
            value: if HIDDEN.contains(&&**key) { names(value) } else { value.to_string() },
            source: sections.source(name, &written(key)),
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
    let names: Vec<String> = names.map(|name| format!("{} = …", written(name))).collect();
    format!("{{ {} }}", names.join(", "))
}
