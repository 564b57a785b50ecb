//! The keys of models behind an API.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use reqwest::Url;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::anthropic::Anthropic;
use super::http::{Server, parse_base, parse_headers};
use super::openai::{MaxTokensAs, OpenAi};
use super::{Api, Dialect};
use crate::model::{FailureClass, Usage};
use crate::provider::Failure;
use crate::provider::failure::{Failed, FailureKind};
use crate::provider::registry::{Kind, Make, Problem, Section, written};
use crate::provider::secret::{KeyKeys, KeySource, NoKey, Secret, Secrets};

/// The own server of a kind, and the variable of the key for it.
type Own = (&'static str, &'static str);

const OF_ANTHROPIC: Own = ("https://api.anthropic.com", "ANTHROPIC_API_KEY");
const OF_OPENAI: Own = ("https://api.openai.com/v1", "OPENAI_API_KEY");

/// Anthropic's Messages API.
pub const ANTHROPIC: Kind = Kind {
    name: "anthropic",
    read: |section| read(section, anthropic, OF_ANTHROPIC),
    presets: &[("anthropic", "")],
};

/// OpenAI's chat completions, and whatever speaks them.
pub const OPENAI: Kind = Kind {
    name: "openai",
    read: |section| read(section, openai, OF_OPENAI),
    presets: &[
        ("openai", ""),
        (
            "openrouter",
            "kind = \"openai\"\nbase_url = \"https://openrouter.ai/api/v1\"\n\
             key_env = \"OPENROUTER_API_KEY\"",
        ),
        ("ollama", "kind = \"openai\"\nbase_url = \"http://127.0.0.1:11434/v1\"\nkey_env = \"\""),
    ],
};

/// The keys that say where a key comes from.
const KEY_KEYS: &str = "key_env, key_file or key_command";

/// The keys of a section.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    base_url: Option<String>,
    key_env: Option<String>,
    key_file: Option<PathBuf>,
    key_command: Option<Vec<String>>,
    model: Option<String>,
    max_tokens: Option<u64>,
    max_tokens_as: Option<MaxTokensAs>,
    max_steps: Option<u32>,
    stream_usage: Option<bool>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    extra: toml::Table,
    #[serde(default)]
    prices: BTreeMap<String, Price>,
}

/// What a million tokens of a model cost, in US dollars.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Price {
    #[serde(default)]
    input: f64,
    #[serde(default)]
    output: f64,
    #[serde(default)]
    cache_read: f64,
    #[serde(default)]
    cache_write: f64,
}

/// A model behind an API, as it is configured.
pub(super) struct Config {
    pub(super) name: Arc<str>,
    pub(super) kind: &'static str,
    pub(super) dialect: Arc<dyn Dialect>,
    pub(super) server: Server,
    pub(super) key: KeySource,
    /// The model of an agent that names none.
    pub(super) model: Option<String>,
    pub(super) max_tokens: Option<u64>,
    /// How often a model is asked in a turn at most.
    pub(super) max_steps: u32,
    pub(super) extra: Map<String, Value>,
    prices: BTreeMap<String, Price>,
}

/// Where the API is, and where the key for it comes from. A key that nobody named is shown to the
/// kind's own server alone.
fn place(keys: &Keys, (base, key): Own) -> Result<(Url, KeySource), Problem> {
    let parsed = |url| parse_base(url).map_err(|problem| Problem::new("base_url", problem));
    let own = parsed(base)?;
    let base = keys.base_url.as_deref().map(parsed).transpose()?.unwrap_or_else(|| own.clone());
    let usual = match base.origin() == own.origin() {
        true => KeySource::Env(key.to_owned()),
        false => KeySource::None,
    };
    let given = KeyKeys {
        key_env: keys.key_env.clone(),
        key_file: keys.key_file.clone(),
        key_command: keys.key_command.clone(),
    };
    let key = given.source(usual).map_err(|problem| Problem::new("key_env", problem))?;
    Ok((base, key))
}

fn anthropic(keys: &Keys) -> Result<Arc<dyn Dialect>, Problem> {
    let given =
        [keys.stream_usage.map(|_| "stream_usage"), keys.max_tokens_as.map(|_| "max_tokens_as")];
    match given.into_iter().flatten().next() {
        Some(key) => Err(Problem::new(key, "only the kind openai has it: leave it out")),
        None => Ok(Arc::new(Anthropic)),
    }
}

fn openai(keys: &Keys) -> Result<Arc<dyn Dialect>, Problem> {
    let stream_usage = keys.stream_usage.unwrap_or(true);
    Ok(Arc::new(OpenAi { stream_usage, max_tokens_as: keys.max_tokens_as.unwrap_or_default() }))
}

fn read(
    section: &Section,
    dialect: impl Fn(&Keys) -> Result<Arc<dyn Dialect>, Problem>,
    own: Own,
) -> Result<Make, Problem> {
    let keys: Keys = section.read()?;
    let dialect = dialect(&keys)?;
    let (base, key) = place(&keys, own)?;
    let always = dialect.headers().iter();
    let mut headers: BTreeMap<String, String> =
        always.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    headers.extend(keys.headers);
    let headers = parse_headers(&headers).map_err(|problem| Problem::new("headers", problem))?;
    let server = Server::new(base, headers).map_err(|problem| Problem::new("", problem))?;
    if keys.max_steps == Some(0) || keys.max_tokens == Some(0) {
        return Err(Problem::new("", "max_steps and max_tokens fit from 1 on"));
    }
    let extra = match serde_json::to_value(&keys.extra) {
        Ok(Value::Object(extra)) => extra,
        _ => return Err(Problem::new("extra", "it holds what JSON cannot hold")),
    };
    let config = Arc::new(Config {
        name: section.name.clone(),
        kind: section.kind,
        dialect,
        server,
        key,
        model: keys.model,
        max_tokens: keys.max_tokens,
        max_steps: keys.max_steps.unwrap_or(200),
        extra,
        prices: keys.prices,
    });
    Ok(Box::new(move |_| Arc::new(Api { config: config.clone() })))
}

impl Config {
    pub(super) fn description(&self) -> String {
        format!("models behind {}", self.server.base().host_str().unwrap_or("a server"))
    }

    /// The key, and what is not to be told with it.
    pub(super) async fn key(&self) -> Result<(Option<Secret>, Secrets), Failure> {
        self.find_key().await.map_err(|no_key| no_key.into_failure(&self.name))
    }

    /// The same, for a check.
    pub(super) async fn find_key(&self) -> Result<(Option<Secret>, Secrets), NoKey> {
        let key = self.key.resolve().await?;
        let mut secrets = Secrets::default();
        if let Some(key) = &key {
            secrets.add(key);
        }
        Ok((key, secrets))
    }

    /// A failure of a request, with what to do where the server refuses the key, or has no such
    /// model or page.
    pub(super) fn explained(&self, mut failure: Failure) -> Failure {
        let (name, section) = (&self.name, written(&self.name));
        let next = match (failure.class, &self.key) {
            (FailureClass::Auth, KeySource::None) => {
                format!("no key is given to it: name one in [providers.{section}] with {KEY_KEYS}")
            }
            (FailureClass::Auth, key) => format!(
                "its key comes from {key}: look whether that is good, or name another in \
                 [providers.{section}] with {KEY_KEYS}"
            ),
            (FailureClass::ProviderGone, _) => format!(
                "look at the model and at base_url in [providers.{section}]; \
                 substratctl provider models {name} lists its models"
            ),
            _ => return failure,
        };
        failure.message = format!("{}; {next}", failure.message);
        failure
    }

    /// The failure that an answer is which was cut.
    pub(super) fn cut_off(&self) -> Failure {
        let message = format!(
            "the answer was cut off at its greatest length: raise max_tokens in [providers.{}], as \
             far as the model allows",
            written(&self.name)
        );
        Failed::new(FailureKind::Limit, message).into()
    }

    /// What was used costs, in millionths of a US dollar; 0 where the configuration names no
    /// price. A price whose name ends with `*` is for all models that begin so.
    pub(super) fn cost(&self, model: &str, usage: Usage) -> u64 {
        let fits = |name: &&String| match name.strip_suffix('*') {
            Some(start) => model.starts_with(start),
            None => *name == model,
        };
        let named = self.prices.keys().filter(fits).max_by_key(|name| name.len());
        let Some(price) = named.and_then(|name| self.prices.get(name)) else { return 0 };
        // Dollars for a million are millionths of a dollar for one.
        let cost = usage.input_tokens as f64 * price.input
            + usage.output_tokens as f64 * price.output
            + usage.cache_read_tokens as f64 * price.cache_read
            + usage.cache_write_tokens as f64 * price.cache_write;
        cost.max(0.0).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: &Kind, section: &str) -> KeySource {
        let own = if kind.name == "openai" { OF_OPENAI } else { OF_ANTHROPIC };
        let keys: Keys = toml::from_str(section).unwrap();
        let (_, key) = place(&keys, own).unwrap();
        key
    }

    #[test]
    fn a_key_that_nobody_named_goes_to_the_own_server_alone() {
        let openai = KeySource::Env("OPENAI_API_KEY".into());
        for (section, wanted) in [
            ("", openai.clone()),
            ("base_url = \"https://api.openai.com/v2\"", openai.clone()),
            ("base_url = \"http://api.openai.com/v1\"", KeySource::None),
            ("base_url = \"https://api.openai.com.other/v1\"", KeySource::None),
            ("base_url = \"http://127.0.0.1:8000/v1\"", KeySource::None),
            ("base_url = \"https://other/v1\"\nkey_env = \"OPENAI_API_KEY\"", openai),
            ("base_url = \"https://other/v1\"\nkey_env = \"\"", KeySource::None),
        ] {
            assert_eq!(key(&OPENAI, section), wanted, "{section}");
        }
        assert_eq!(key(&ANTHROPIC, ""), KeySource::Env("ANTHROPIC_API_KEY".into()));
        assert_eq!(key(&ANTHROPIC, "base_url = \"https://other\""), KeySource::None);
    }

    #[test]
    fn what_servers_of_chat_completions_differ_in_is_no_key_of_another_kind() {
        let keys = |section: &str| toml::from_str::<Keys>(section).unwrap();
        for section in ["stream_usage = true", "max_tokens_as = \"max_completion_tokens\""] {
            assert!(openai(&keys(section)).is_ok());
            assert!(anthropic(&keys(section)).is_err(), "{section}");
        }
        assert!(anthropic(&keys("max_tokens = 9")).is_ok());
        assert!(toml::from_str::<Keys>("max_tokens_as = \"x\"").is_err());
    }
}
