//! The keys of command-line agents.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Table;

use super::About;
use crate::launcher::egress::Endpoint;
use crate::provider::Failure;
use crate::provider::registry::{Problem, Section, written};
use crate::provider::secret::{KeyKeys, KeySource, Secret};

/// Variables of which it is known that they hold no key.
const NO_KEYS: &[&str] = &["CLAUDE_CODE_EXECUTABLE", "CODEX_PATH", "INITIAL_AGENT_MODE"];
/// Keys that every kind has.
const KEYS: &[&str] = &[
    "program",
    "args",
    "model",
    "base_url",
    "key_env",
    "key_file",
    "key_command",
    "key_as",
    "login",
    "logins",
    "files",
    "env",
    "binds",
    "endpoints",
];

/// Keys that every kind has.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(in crate::provider) struct Keys {
    program: Option<String>,
    args: Vec<String>,
    model: Option<String>,
    base_url: Option<String>,
    key_env: Option<String>,
    key_file: Option<PathBuf>,
    key_command: Option<Vec<String>>,
    key_as: Option<String>,
    login: Option<bool>,
    logins: Option<Vec<String>>,
    env: BTreeMap<String, String>,
    files: BTreeMap<String, String>,
    binds: Vec<PathBuf>,
    endpoints: Option<Vec<String>>,
}

/// A command-line agent as it is configured.
#[derive(Debug)]
pub(in crate::provider) struct Config {
    pub(super) name: Arc<str>,
    /// Its program: a name, or an absolute path.
    pub(super) program: Option<String>,
    /// What stands after all other arguments.
    pub(in crate::provider) args: Vec<String>,
    /// The model of an agent that names none.
    pub(in crate::provider) model: Option<String>,
    /// Where its model is asked, if not where it asks by itself.
    pub(in crate::provider) base_url: Option<String>,
    /// Whether that leads to another's server, which is shown nothing that was not named for it.
    is_elsewhere: bool,
    key: Option<KeySource>,
    /// The variable in which it takes the key; empty if there is none.
    pub(in crate::provider) key_as: String,
    /// Whether the user's own login is shown.
    login: Option<bool>,
    /// The files of that, by their paths from a home.
    pub(super) logins: Vec<String>,
    /// Files that are written into its home.
    pub(super) files: BTreeMap<String, String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) binds: Vec<PathBuf>,
    pub(super) endpoints: Vec<Endpoint>,
}

/// Reads a section: what every kind has, and the keys of this one.
pub(in crate::provider) fn read<T: DeserializeOwned>(
    section: &Section,
    about: &'static About,
) -> Result<(Config, T), Problem> {
    let (common, own): (Table, Table) =
        section.table.clone().into_iter().partition(|(key, _)| KEYS.contains(&&**key));
    let part = |table| Section { table, name: section.name.clone(), ..section.clone() };
    let keys: Keys = part(common).read()?;
    let known = |problem: Problem| problem.with_keys("every command-line agent", KEYS);
    let own: T = part(own).read().map_err(known)?;
    Ok((config(section, keys, about)?, own))
}

fn config(section: &Section, keys: Keys, about: &'static About) -> Result<Config, Problem> {
    let given =
        KeyKeys { key_env: keys.key_env, key_file: keys.key_file, key_command: keys.key_command };
    let key = match &given {
        KeyKeys { key_env: None, key_file: None, key_command: None } => None,
        given => {
            let source = given.source(KeySource::None);
            Some(source.map_err(|problem| Problem::new("key_env", problem))?)
        }
    };
    let key_as = keys.key_as.unwrap_or_else(|| about.key.to_owned());
    if key.as_ref().is_some_and(|key| *key != KeySource::None) && key_as.is_empty() {
        let problem = "say with key_as which variable it takes the key in";
        return Err(Problem::new("key_as", problem));
    }
    let of_home = keys.files.keys().chain(keys.logins.iter().flatten());
    let strays = |path: &&String| {
        path.is_empty() || path.split('/').any(|part| matches!(part, "" | "." | ".."))
    };
    if let Some(path) = { of_home }.find(strays) {
        return Err(Problem::new("files", format!("{path:?} is no path below a home")));
    }
    if let Some(path) = keys.binds.iter().find(|path| !path.is_absolute()) {
        return Err(Problem::new("binds", format!("{} is no absolute path", path.display())));
    }
    if keys.program.as_deref() == Some("") {
        return Err(Problem::new("program", "it names no program"));
    }
    let base = keys.base_url.as_deref();
    if let Some(base) = base {
        let url = reqwest::Url::parse(base);
        if !url.is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) {
            return Err(Problem::new("base_url", "an address like https://host/path fits"));
        }
    }
    let is_elsewhere = base.is_some_and(|base| !is_own(base, about));
    // Where its model is asked elsewhere, it need reach no other place.
    let usual: Vec<String> = match base {
        Some(base) => vec![origin(base)],
        None => about.endpoints.iter().map(|text| (*text).to_owned()).collect(),
    };
    let endpoints = keys.endpoints.unwrap_or_default().into_iter().chain(usual);
    let endpoints = endpoints.map(|text| text.parse::<Endpoint>());
    let endpoints = endpoints
        .collect::<Result<Vec<_>, _>>()
        .map_err(|problem| Problem::new("endpoints", problem.to_string()))?;
    Ok(Config {
        name: section.name.clone(),
        program: keys.program,
        args: keys.args,
        model: keys.model,
        base_url: keys.base_url,
        is_elsewhere,
        key,
        key_as,
        login: keys.login,
        logins: keys
            .logins
            .unwrap_or_else(|| about.logins.iter().map(|path| (*path).to_owned()).collect()),
        files: keys.files,
        env: keys.env,
        binds: keys.binds,
        endpoints,
    })
}

/// Whether an address leads to a server of the maker.
fn is_own(base: &str, about: &About) -> bool {
    let Ok(target) = origin(base).parse::<Endpoint>() else { return false };
    let own = about.endpoints.iter().filter_map(|own| own.parse::<Endpoint>().ok());
    { own }.any(|own| own.covers(&target))
}

/// Scheme, host and port of an address.
fn origin(url: &str) -> String {
    let path = url.find("://").and_then(|at| url[at + 3..].find('/').map(|end| at + 3 + end));
    url[..path.unwrap_or(url.len())].to_owned()
}

impl Config {
    /// Where its key comes from: as configured, or else the usual variable of the daemon if it has
    /// that, and speaks to its maker's server.
    pub(super) fn key_source(&self) -> KeySource {
        let usual = || {
            let name = Some(&self.key_as).filter(|name| {
                !self.is_elsewhere
                    && !name.is_empty()
                    && std::env::var_os(name).is_some_and(|key| !key.is_empty())
            });
            name.map_or(KeySource::None, |name| KeySource::Env(name.clone()))
        };
        self.key.clone().unwrap_or_else(usual)
    }

    /// Whether the user's own login is shown: by default where there is no key, and no other server
    /// that would get it.
    pub(super) fn shows_login(&self) -> bool {
        self.login.unwrap_or_else(|| !self.has_key() && !self.is_elsewhere)
    }

    /// Whether it is given a key.
    pub(in crate::provider) fn has_key(&self) -> bool {
        self.key_source() != KeySource::None
    }

    /// Whether it may have a key that is not known to be one: in a variable that is no switch and
    /// not known to hold something else, or a file that is none of settings.
    pub(super) fn may_have_other_key(&self) -> bool {
        let holds_none = |(name, value): (&String, &String)| {
            matches!(value.as_str(), "" | "true" | "false" | "1" | "0")
                || NO_KEYS.contains(&name.as_str())
        };
        let is_settings = |path: &String| path.ends_with("settings.json");
        !self.env.iter().all(holds_none) || !self.files.keys().all(is_settings)
    }

    /// What to do where it has neither key nor login.
    pub(super) fn no_key(&self) -> String {
        let name = written(&self.name);
        let log_in = match (self.login, self.is_elsewhere) {
            (None, false) => ", or log in with it outside",
            _ => "",
        };
        format!(
            "it has neither a key nor a login: name a key in [providers.{name}] with key_env, \
             key_file or key_command{log_in}"
        )
    }

    /// Where its key or its login comes from, and what to do where that was refused. The files of
    /// the login that it is shown are given by their paths from a home.
    pub(super) fn refused(&self, logins: &[&str]) -> String {
        let next = |which: &str| {
            let name = written(&self.name);
            format!("name {which} in [providers.{name}] with key_env, key_file or key_command")
        };
        let files: Vec<String> = logins.iter().map(|path| format!("~/{path}")).collect();
        let files = files.join(" and ");
        match (self.key_source(), files.as_str()) {
            (KeySource::None, "") if self.may_have_other_key() => {
                let next = next("a key");
                format!("no key is given to it but what its env and files hold: {next}")
            }
            (KeySource::None, "") => self.no_key(),
            (KeySource::None, files) => {
                let next = next("a key");
                format!("it has your login, {files}: log in with it outside again, or {next}")
            }
            (key, "") => {
                let next = next("another");
                format!("its key comes from {key}: look whether that is good, or {next}")
            }
            (key, files) => {
                let next = next("another key");
                format!(
                    "its key comes from {key}, and it is shown your login, {files}: look whether \
                     they are good, or {next}"
                )
            }
        }
    }

    /// Whether its program is named.
    pub(in crate::provider) fn names_program(&self) -> bool {
        self.program.is_some()
    }

    /// Its key.
    pub(super) async fn secret(&self) -> Result<Option<Secret>, Failure> {
        let found = self.key_source().resolve().await;
        found.map_err(|no_key| no_key.into_failure(&self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::registry::Common;

    static ABOUT: About = About {
        kind: "x",
        description: "",
        programs: &["x"],
        install: "",
        // Is there wherever tests run.
        key: "PATH",
        logins: &[".x/login"],
        endpoints: &["https://api.maker.test", "https://*.maker.test"],
    };

    fn config(text: &str) -> Config {
        let (name, table) = ("x".into(), text.parse().unwrap());
        let section = Section { name, kind: "x", common: Common::default(), table };
        read::<Table>(&section, &ABOUT).unwrap().0
    }

    #[test]
    fn what_nobody_named_is_shown_to_the_makers_server_alone() {
        let shown = |text: &str| (config(text).has_key(), config(text).shows_login());
        assert_eq!(shown(""), (true, false));
        assert_eq!(shown("base_url = \"https://api.maker.test/v1\""), (true, false));
        assert_eq!(shown("base_url = \"https://eu.maker.test\""), (true, false));
        for other in ["https://maker.test.other", "http://api.maker.test", "http://127.0.0.1:1/v1"]
        {
            let base = format!("base_url = {other:?}");
            assert_eq!(shown(&base), (false, false), "{other}");
            assert_eq!(shown(&format!("{base}\nkey_env = \"PATH\"")), (true, false), "{other}");
            assert_eq!(shown(&format!("{base}\nlogin = true")), (false, true), "{other}");
        }
        assert_eq!(shown("key_env = \"\""), (false, true));
    }

    #[tokio::test]
    async fn what_a_key_command_complains_with_is_in_no_turn() {
        let script = "echo token sk-12345678 has expired >&2; exit 1";
        let config = config(&format!("key_command = [\"sh\", \"-c\", {script:?}]"));
        let failure = config.secret().await.unwrap_err();
        assert!(!failure.message.contains("sk-12345678"), "{failure}");
        assert!(failure.message.contains("substratctl provider check x shows"), "{failure}");
    }

    #[test]
    fn a_variable_that_is_known_to_hold_no_key_is_none() {
        let may_have = |env: &str| config(&format!("env = {{{env}}}")).may_have_other_key();
        assert!(!may_have("X = \"1\", CODEX_PATH = \"/bin/codex\", INITIAL_AGENT_MODE = \"auto\""));
        assert!(may_have("X_TOKEN = \"abc\""));
    }

    #[test]
    fn a_refusal_names_where_the_key_comes_from_or_the_login() {
        let told = |text: &str, logins: &[&str]| config(text).refused(logins);
        let next = "in [providers.x] with key_env, key_file or key_command";
        let of_key = |key: &str| {
            format!("its key comes from {key}: look whether that is good, or name another {next}")
        };
        assert_eq!(told("", &[]), of_key("the variable PATH of the daemon"));
        assert_eq!(told("key_file = \"/a/key\"", &[]), of_key("the file /a/key"));
        let command = "key_command = [\"pass\", \"show\", \"key\"]";
        assert_eq!(told(command, &[]), of_key("the command pass"), "its arguments may be secret");
        let both = told("login = true", &[".x/login"]);
        assert!(both.contains("the daemon, and it is shown your login, ~/.x/login: "), "{both}");
        let login = "it has your login, ~/.x/login: log in with it outside again, or name a key";
        assert_eq!(told("key_env = \"\"", &[".x/login"]), format!("{login} {next}"));
        assert_eq!(told("key_env = \"\"", &[]), config("").no_key());
        let other = told("key_env = \"\"\nenv = {X_TOKEN = \"abc\"}", &[]);
        assert!(other.starts_with("no key is given to it but what its env and"), "{other}");
        assert!(!other.contains("abc"), "{other}");
    }

    #[test]
    fn its_section_is_named_as_it_stands_in_a_file() {
        let no_key = |name: &str| Config { name: name.into(), ..config("") }.no_key();
        assert!(no_key("my-cli").contains("a key in [providers.my-cli] with"));
        assert!(no_key("my.cli").contains("a key in [providers.\"my.cli\"] with"));
    }
}
