//! Agents of the Agent Client Protocol, by their command lines.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::models::Asking;
use super::protocol::{Answer, Client};
use super::reading::{self, NO_SESSION};
use super::requests::{McpServer, Open};
use crate::model::TurnId;
use crate::provider::Model;
use crate::provider::activity::{Activity, Decision, Event, RequestId, TurnOver, text};
use crate::provider::cli::told::Told;
use crate::provider::cli::{
    About, Cli, Command, Config, Dialogue, Listing, Start, Step, Telling, make, read,
};
use crate::provider::failure::{Failed, FailureKind};
use crate::provider::meter::Totals;
use crate::provider::registry::{Kind, Problem, Section};

static ABOUT: About = About {
    kind: "acp",
    description: "an agent of the Agent Client Protocol",
    programs: &[],
    install: "install it, or name its path with program in its section of config.toml",
    key: "",
    logins: &[],
    endpoints: &[],
};

/// Variables in which adapters are told of another CLI than the one that came with them.
const OTHER_CLI: &[&str] = &["CLAUDE_CODE_EXECUTABLE", "CODEX_PATH"];

/// Most models that are named where one is not known.
const MAX_NAMED: usize = 10;

/// How long an agent that tells a session's history may be silent before it is taken to be done.
const QUIET: Duration = Duration::from_secs(2);

const GEMINI: &str = r#"
kind = "acp"
program = "gemini"
args = ["--acp"]
key_as = "GEMINI_API_KEY"
logins = [".gemini/oauth_creds.json", ".gemini/google_accounts.json"]
endpoints = [
    "https://generativelanguage.googleapis.com",
    "https://cloudcode-pa.googleapis.com",
    "https://oauth2.googleapis.com",
]
[env]
GEMINI_CLI_TRUST_WORKSPACE = "true"
GEMINI_CLI_NO_RELAUNCH = "true"
[files]
".gemini/settings.json" = '''{"privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false},"general":{"enableAutoUpdate":false,"maxAttempts":2}}'''
"#;

const OPENCODE: &str = r#"
kind = "acp"
program = "opencode"
args = ["acp"]
logins = [".local/share/opencode/auth.json", ".config/opencode/opencode.json"]
# It has a server of its own on this address, which no proxy leads to.
[env]
NO_PROXY = "127.0.0.1"
no_proxy = "127.0.0.1"
OPENCODE_DISABLE_AUTOUPDATE = "1"
OPENCODE_DISABLE_LSP_DOWNLOAD = "1"
"#;

const GOOSE: &str = r#"
kind = "acp"
program = "goose"
args = ["acp"]
logins = [".config/goose/config.yaml", ".config/goose/secrets.yaml"]
"#;

/// Claude Code by its adapter, with what Claude Code itself is given.
const CLAUDE: &str = r#"
kind = "acp"
program = "claude-agent-acp"
key_as = "ANTHROPIC_API_KEY"
logins = [".claude/.credentials.json"]
endpoints = ["https://api.anthropic.com", "https://console.anthropic.com"]
[env]
CLAUDE_CODE_DISABLE_BACKGROUND_TASKS = "1"
CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC = "1"
CLAUDE_CODE_MAX_RETRIES = "1"
DISABLE_AUTOUPDATER = "1"
DISABLE_ERROR_REPORTING = "1"
DISABLE_TELEMETRY = "1"
ENABLE_TOOL_SEARCH = "false"
"#;

/// Of its modes this is the one that needs no sandbox of its own, which cannot be set up in ours.
const CODEX: &str = r#"
kind = "acp"
program = "codex-acp"
key_as = "OPENAI_API_KEY"
key_auth = "api-key"
logins = [".codex/auth.json"]
endpoints = ["https://api.openai.com", "https://chatgpt.com", "https://auth.openai.com"]
[env]
INITIAL_AGENT_MODE = "agent-full-access"
NO_BROWSER = "1"
"#;

/// Agents that are known are there without being configured.
pub const KIND: Kind = Kind {
    name: ABOUT.kind,
    read: |section| {
        let (config, acp) = parts(section)?;
        let config = Arc::new(config);
        Ok(Box::new(move |settings| make(Box::new(acp.clone()), config.clone(), settings)))
    },
    presets: &[
        ("gemini", GEMINI),
        ("opencode", OPENCODE),
        ("goose", GOOSE),
        ("claude-acp", CLAUDE),
        ("codex-acp", CODEX),
    ],
};

/// What a section makes.
pub(super) fn parts(section: &Section) -> Result<(Config, Acp), Problem> {
    let (config, keys): (Config, Keys) = read(section, &ABOUT)?;
    if config.base_url.is_some() {
        let problem =
            "give the agent's own variable for it with env, and the address with endpoints";
        return Err(Problem::new("base_url", problem));
    }
    if !config.names_program() {
        return Err(Problem::new("program", "name the agent's program"));
    }
    let program = section.table.get("program").and_then(toml::Value::as_str).unwrap_or_default();
    let is_codex = program.rsplit('/').next() == Some("codex-acp");
    Ok((config, Acp { keys, is_codex }))
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    /// How it is authenticated, by its name for that; empty for not at all.
    auth: Option<String>,
    /// The same for one that is given a key, where `auth` says nothing.
    key_auth: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Acp {
    keys: Keys,
    /// Whether it is Codex's adapter.
    is_codex: bool,
}

impl Acp {
    fn auth(&self, config: &Config) -> Option<String> {
        let by_key = || self.keys.key_auth.clone().filter(|_| config.has_key());
        self.keys.auth.clone().or_else(by_key).filter(|method| !method.is_empty())
    }

    /// How it is started, whatever for.
    fn started(&self, config: &Config) -> Command {
        let mut command = Command { args: config.args.clone(), ..Command::default() };
        if self.is_codex {
            // A key would be kept in the home, or in a login that is linked there, and used when it
            // is not given any more.
            let store = if config.has_key() { "ephemeral" } else { "file" };
            // It keeps its variables in the home, too, goes on by itself for a goal, and has agents
            // of its own.
            let settings = format!(
                "cli_auth_credentials_store = {store:?}\n\n\
                 [features]\ngoals = false\nshell_snapshot = false\n\n\
                 [agents]\nmax_depth = 0\n"
            );
            command.files.push((".codex/config.toml".to_owned(), settings));
        }
        command
    }
}

/// What is kept of a session.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    session_id: String,
    #[serde(default)]
    totals: Totals,
    /// Whether it was told what it is to be, in states of before `holds`.
    #[serde(default, skip_serializing)]
    told: bool,
    /// The mark of the instructions that the conversation holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holds: Option<String>,
}

impl Cli for Acp {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    // One that has neither a variable for a key nor a login may need none.
    fn needs_key(&self, config: &Config) -> bool {
        !config.key_as.is_empty()
    }

    fn program_variables(&self) -> &'static [&'static str] {
        OTHER_CLI
    }

    fn models(&self, config: &Config, home: &str, version: &'static str) -> Listing {
        let asking = Asking::new(self.auth(config), home.to_owned(), version);
        Listing { command: self.started(config), telling: Telling::Asked(Box::new(asking)) }
    }

    fn command(&self, config: &Config, _: &Start<'_>) -> Command {
        self.started(config)
    }

    fn dialogue(&self, config: &Config, start: &Start<'_>) -> Box<dyn Dialogue> {
        let kept: Kept = serde_json::from_value(start.kept.clone()).unwrap_or_default();
        let env = start.at.bridge_env().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Box::new(Talk {
            client: Client::new(kept.totals),
            auth: self.auth(config),
            told: match kept.told {
                true => Told::to_program(start.instructions, kept.holds),
                false => Told::in_prompts(start.instructions, kept.holds),
            },
            session: Some(kept.session_id).filter(|id| !id.is_empty()),
            model: start.model.map(str::to_owned),
            models: Vec::new(),
            cwd: start.at.workspace.clone(),
            servers: vec![McpServer::Stdio {
                name: "substrat".to_owned(),
                command: start.at.bridge.clone(),
                args: vec!["mcp".to_owned()],
                env: env.into(),
            }],
            version: start.version,
            begun: false,
            is_open: false,
            prompt: None,
            is_asked: false,
            unheard: None,
        })
    }
}

/// A dialogue with an agent.
struct Talk {
    client: Client,
    auth: Option<String>,
    told: Told,
    /// The session that is to be gone on with.
    session: Option<String>,
    model: Option<String>,
    /// The models that the session offers.
    models: Vec<Model>,
    cwd: String,
    servers: Vec<McpServer>,
    version: &'static str,
    /// Whether it was spoken to.
    begun: bool,
    /// Whether the session is open, and has the model that it is to have.
    is_open: bool,
    /// What waits for the session.
    prompt: Option<String>,
    /// Whether it was given a prompt.
    is_asked: bool,
    /// The name of a new session of which nothing was heard since its first prompt. It may hold
    /// nothing yet, so that it is not to be gone on with: it would know nothing of the log.
    unheard: Option<String>,
}

impl Talk {
    fn steps(&mut self, events: Vec<Event<Answer>>) -> Vec<Step> {
        let mut steps = Vec::new();
        for event in events {
            match event {
                Event::Activity(Activity::Session(id)) if self.session.is_none() => {
                    self.unheard = Some(id);
                }
                Event::Activity(activity) => steps.push(Event::Activity(activity)),
                Event::Write(line) => steps.push(Event::Write(line)),
                Event::Over(over) => steps.push(Event::Over(self.over(over))),
                Event::Answer(answer) => match self.answered(answer) {
                    Ok(line) => steps.extend(line.map(Event::Write)),
                    Err(failed) => steps.push(Event::Over(TurnOver::Failed(failed))),
                },
            }
        }
        steps.extend(self.prompted());
        steps
    }

    /// Takes the end of a turn.
    fn over(&mut self, over: TurnOver) -> TurnOver {
        self.told.over(&over);
        match over {
            TurnOver::Failed(mut failed)
                if matches!(failed.kind, FailureKind::Killed | FailureKind::Missing) =>
            {
                // It has no session any more. Another process goes on with it.
                self.is_open = false;
                if reading::says(&failed.message, &[NO_SESSION]) {
                    // Nothing was done with the prompt, which is given to that one.
                    failed.kind = FailureKind::Unclear;
                }
                TurnOver::Failed(failed)
            }
            over => over,
        }
    }

    fn answered(&mut self, answer: Answer) -> Result<Option<String>, Failed> {
        match answer {
            Answer::Ready(ready) => {
                ready?;
                match self.auth.clone() {
                    Some(method) => self.client.authenticate(&method).map(Some),
                    None => self.open().map(Some),
                }
            }
            Answer::Authenticated(done) => {
                done?;
                self.open().map(Some)
            }
            Answer::Opened(opened) => {
                let opened = opened?;
                let Some(model) = self.model.clone() else {
                    self.is_open = true;
                    return Ok(None);
                };
                self.choose(&opened, &model).map(Some)
            }
            Answer::Done("session/set_config_option" | "session/set_model", done) => {
                done.map_err(|failed| self.unknown_model(failed))?;
                self.is_open = true;
                Ok(None)
            }
            Answer::Done(..) => Ok(None),
        }
    }

    fn open(&mut self) -> Result<String, Failed> {
        let (can_load, can_resume) = (self.client.agent().can_load, self.client.agent().can_resume);
        let open = match &self.session {
            None => Open::New,
            Some(id) if can_resume => Open::Resume(id),
            Some(id) if can_load => Open::Load(id),
            Some(_) => {
                let gone = "it cannot go on with a session of before";
                return Err(Failed::new(FailureKind::Gone, gone));
            }
        };
        Ok(self.client.open(open, &self.cwd, &self.servers))
    }

    /// Has the session use a model, by what the agent says it can be told.
    fn choose(&mut self, opened: &Value, model: &str) -> Result<String, Failed> {
        self.models = reading::models(opened);
        let line = match reading::model_setting(opened) {
            Some(setting) => self.client.set_option(text(setting, "id"), model),
            None if opened["models"].is_object() => self.client.set_model(model),
            None => None,
        };
        line.ok_or_else(|| {
            let problem = "it offers no choice of models; name the model in args or env";
            Failed::new(FailureKind::Misconfigured, problem)
        })
    }

    /// What it means that the session did not take the model.
    fn unknown_model(&self, failed: Failed) -> Failed {
        use FailureKind::{Gone, InvalidRequest, NotFound, Other, Unclear};
        if !matches!(failed.kind, Gone | InvalidRequest | NotFound | Other | Unclear) {
            return failed;
        }
        let model = self.model.as_deref().unwrap_or_default();
        let mut problem = format!("it does not know the model {model:?} ({})", failed.message);
        let named: Vec<&str> = self.models.iter().take(MAX_NAMED).map(|model| &*model.id).collect();
        if !named.is_empty() {
            problem += &format!("; it offers {}", named.join(", "));
        }
        match self.models.len() - named.len() {
            0 => {}
            more => problem += &format!(" and {more} more"),
        }
        Failed::new(FailureKind::Misconfigured, problem)
    }

    /// The prompt, once it can be taken.
    fn prompted(&mut self) -> Option<Step> {
        if !self.is_open || !self.client.is_settled() {
            return None;
        }
        let prompt = self.prompt.take()?;
        let line = self.client.prompt(&prompt)?;
        self.is_asked = true;
        Some(Event::Write(line))
    }
}

impl Dialogue for Talk {
    fn start(&mut self, _: TurnId, prompt: &str) -> Vec<Step> {
        // The protocol has no other place for instructions.
        self.prompt = Some(self.told.prompt(prompt));
        if std::mem::replace(&mut self.begun, true) {
            return self.prompted().into_iter().collect();
        }
        vec![Event::Write(self.client.initialize(self.version))]
    }

    fn read(&mut self, line: &str) -> Vec<Step> {
        let heard = self.unheard.take_if(|_| self.is_asked).map(Activity::Session);
        let events = self.client.read(line);
        let steps = self.steps(events);
        heard.map(Event::Activity).into_iter().chain(steps).collect()
    }

    fn end(&mut self) -> Vec<Step> {
        let events = self.client.end();
        self.steps(events)
    }

    fn interrupt(&mut self) -> Option<String> {
        self.prompt = None;
        self.client.cancel()
    }

    fn answer(&mut self, request: &RequestId, decision: &Decision) -> Option<String> {
        self.client.answer(request, decision)
    }

    fn kept(&self) -> Value {
        let session = self.client.session().filter(|_| self.unheard.is_none());
        let Some(session) = session else { return Value::Null };
        let (session_id, totals) = (session.to_owned(), self.client.totals());
        let kept = Kept { session_id, totals, told: false, holds: self.told.kept() };
        serde_json::to_value(kept).unwrap_or_default()
    }

    fn is_ready(&self) -> bool {
        self.is_open && !self.client.left_tools()
    }

    fn has_session(&self) -> bool {
        self.client.session().is_some()
    }

    fn quiet(&self) -> Option<Duration> {
        (self.is_open && self.prompt.is_some()).then_some(QUIET)
    }

    fn was_quiet(&mut self) -> Vec<Step> {
        self.client.settle();
        let told = Event::Activity(Activity::Alive);
        self.prompted().into_iter().chain([told]).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn talk(session: Option<&str>) -> Talk {
        Talk {
            client: Client::new(Totals::default()),
            auth: None,
            told: Told::in_prompts("", None),
            session: session.map(str::to_owned),
            model: None,
            models: Vec::new(),
            cwd: "/ws".to_owned(),
            servers: Vec::new(),
            version: "0.1.0",
            begun: false,
            is_open: false,
            prompt: None,
            is_asked: false,
            unheard: None,
        }
    }

    fn says(talk: &mut Talk, line: &Value) -> Vec<Step> {
        talk.read(&line.to_string())
    }

    fn names_session(steps: &[Step]) -> bool {
        steps.iter().any(|step| matches!(step, Event::Activity(Activity::Session(_))))
    }

    /// One whose session is open, without the prompt that it was to be given if it is cancelled.
    fn opened(session: Option<&str>, cancels: bool) -> (Talk, bool) {
        let (mut talk, mut told) = (talk(session), false);
        talk.start(TurnId::from_u64(1), "hello");
        let agent = json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true}});
        told |= names_session(&says(&mut talk, &json!({"id": 0, "result": agent})));
        if cancels {
            talk.interrupt();
        }
        told |= names_session(&says(&mut talk, &json!({"id": 1, "result": {"sessionId": "s"}})));
        (talk, told)
    }

    #[test]
    fn a_session_that_was_given_no_prompt_is_not_gone_on_with() {
        let (talk, told) = opened(None, true);
        assert_eq!((talk.kept(), told), (Value::Null, false));
    }

    #[test]
    fn a_new_session_is_gone_on_with_once_something_is_heard_of_its_prompt() {
        let (mut talk, told) = opened(None, false);
        assert_eq!((talk.kept(), told), (Value::Null, false));
        let update = json!({"sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": "hi"}});
        let params = json!({"sessionId": "s", "update": update});
        let steps = says(&mut talk, &json!({"method": "session/update", "params": params}));
        assert_eq!(steps.first(), Some(&Event::Activity(Activity::Session("s".to_owned()))));
        assert_eq!(talk.kept()["session_id"], "s");
    }

    #[test]
    fn a_session_that_is_gone_on_with_is_kept_whatever_comes() {
        let (talk, told) = opened(Some("s"), true);
        assert_eq!((&talk.kept()["session_id"], told), (&json!("s"), true));
    }
}
