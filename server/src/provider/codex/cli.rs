//! How Codex is started, and what is said to it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::app_server::{Answer, Call, Client, Thread};
use super::exec;
use super::models::Asking;
use crate::model::TurnId;
use crate::provider::activity::{Activity, Decision, Event, RequestId, TurnOver};
use crate::provider::cli::told::Told;
use crate::provider::cli::{
    About, Cli, Command, Config, Dialogue, Listing, MAX_ARGUMENT, Start, Step, Telling, make, read,
};
use crate::provider::meter::Totals;
use crate::provider::registry::Kind;

static ABOUT: About = About {
    kind: "codex",
    description: "Codex, OpenAI's agent for the command line",
    programs: &["codex"],
    install: "npm install -g @openai/codex, or see https://developers.openai.com/codex/cli",
    key: "OPENAI_API_KEY",
    logins: &[".codex/auth.json"],
    endpoints: &["https://api.openai.com", "https://chatgpt.com", "https://auth.openai.com"],
};

/// Codex is there without being configured, and once.
pub const KIND: Kind = Kind {
    name: ABOUT.kind,
    read: |section| {
        let (config, keys): (Config, Keys) = read(section, &ABOUT)?;
        let config = Arc::new(config);
        Ok(Box::new(move |settings| {
            let transport = keys.transport;
            make(Box::new(Codex { transport }), config.clone(), settings)
        }))
    },
    presets: &[(ABOUT.kind, "")],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default)]
    transport: Transport,
}

/// The command of its server for one session.
const APP_SERVER: &str = "app-server";

/// How it is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Transport {
    /// One process for a session, which streams and asks.
    #[default]
    AppServer,
    /// One process for a turn, which does neither.
    Exec,
}

struct Codex {
    transport: Transport,
}

/// What is kept of a session.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    thread_id: String,
    #[serde(default)]
    totals: Totals,
    /// The mark of the instructions that the conversation holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holds: Option<String>,
}

impl Kept {
    fn of(value: &Value) -> Self {
        serde_json::from_value(value.clone()).unwrap_or_default()
    }

    fn thread(&self) -> Option<String> {
        Some(self.thread_id.clone()).filter(|id| !id.is_empty())
    }
}

/// A setting on the command line: a name and a value of TOML.
fn setting(name: &str, value: impl Into<toml::Value>) -> [String; 2] {
    ["-c".to_owned(), format!("{name}={}", value.into())]
}

/// Settings of its own MCP server for an agent's tools.
fn servers(start: &Start<'_>) -> toml::Value {
    let env = start.at.bridge_env().map(|(name, value)| (name.to_owned(), value.into()));
    toml::Value::Table(
        [
            ("command".to_owned(), start.at.bridge.as_str().into()),
            ("args".to_owned(), toml::Value::Array(vec!["mcp".into()])),
            ("env".to_owned(), toml::Value::Table(env.into_iter().collect())),
            ("default_tools_approval_mode".to_owned(), "approve".into()),
            ("tool_timeout_sec".to_owned(), 120.into()),
        ]
        .into_iter()
        .collect(),
    )
}

/// Its own sandbox, within the daemon's or without.
fn sandbox(start: &Start<'_>) -> &'static str {
    if start.sandboxed { "danger-full-access" } else { "workspace-write" }
}

/// How it is started, whatever for.
fn started(config: &Config) -> Command {
    let mut command = Command::default();
    let args = &mut command.args;
    args.extend(setting("analytics.enabled", false));
    args.extend(setting("check_for_update_on_startup", false));
    args.extend(["--disable", "plugins", "--disable", "apps"].map(str::to_owned));
    // With a goal it begins turns that nobody asked for. `--disable` of what a version does not
    // know ends it; such a setting it only warns of.
    args.extend(setting("features.goals", false));
    // Its own agents have no turn that could be told, counted and ended.
    args.extend(setting("agents.max_depth", 0));
    // With it the variables of its shell, the key too, would be written into its home.
    args.extend(setting("features.shell_snapshot", false));
    if config.has_key() || config.base_url.is_some() {
        let base = config.base_url.as_deref().unwrap_or("https://api.openai.com/v1");
        let name = "model_providers.substrat";
        args.extend(setting("model_provider", "substrat"));
        args.extend(setting(&format!("{name}.name"), "substrat"));
        args.extend(setting(&format!("{name}.base_url"), base));
        args.extend(setting(&format!("{name}.wire_api"), "responses"));
        if config.has_key() {
            args.extend(setting(&format!("{name}.env_key"), config.key_as.as_str()));
        }
        // What fails is tried again from here, with an eye on the turn: it waits in silence, for as
        // long as a server asks it to.
        args.extend(setting(&format!("{name}.request_max_retries"), 0));
        args.extend(setting(&format!("{name}.stream_max_retries"), 0));
    }
    args.extend(config.args.iter().cloned());
    command
}

impl Cli for Codex {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn is_single(&self) -> bool {
        self.transport == Transport::Exec
    }

    fn has_pulse(&self) -> bool {
        !self.is_single()
    }

    fn can_steer(&self) -> bool {
        !self.is_single()
    }

    fn needs_key(&self, config: &Config) -> bool {
        // A server of one's own may want none.
        config.base_url.is_none()
    }

    fn max_instructions(&self) -> usize {
        if self.is_single() { MAX_ARGUMENT } else { usize::MAX }
    }

    // Its app-server tells them, whatever its turns are run by.
    fn models(&self, config: &Config, _: &str, version: &'static str) -> Listing {
        let mut command = started(config);
        command.args.push(APP_SERVER.to_owned());
        Listing { command, telling: Telling::Asked(Box::new(Asking::new(version))) }
    }

    fn command(&self, config: &Config, start: &Start<'_>) -> Command {
        let mut command = started(config);
        let args = &mut command.args;
        match self.transport {
            Transport::AppServer => args.push(APP_SERVER.to_owned()),
            Transport::Exec => {
                args.extend(setting("approval_policy", "never"));
                args.extend(setting("mcp_servers.substrat", servers(start)));
                if !start.instructions.is_empty() {
                    args.extend(setting("developer_instructions", start.instructions));
                }
                let usual = ["exec", "--json", "--skip-git-repo-check", "-s", sandbox(start)];
                args.extend(usual.map(str::to_owned));
                if let Some(model) = start.model {
                    args.extend(["-m".to_owned(), model.to_owned()]);
                }
                if let Some(thread) = Kept::of(start.kept).thread() {
                    args.extend(["resume".to_owned(), thread]);
                }
                // The prompt comes over stdin, where it may be long.
                args.push("-".to_owned());
            }
        }
        command
    }

    fn dialogue(&self, _: &Config, start: &Start<'_>) -> Box<dyn Dialogue> {
        let kept = Kept::of(start.kept);
        let told = Told::to_program(start.instructions, kept.holds.clone());
        match self.transport {
            Transport::AppServer => Box::new(Talk {
                client: Client::new(kept.totals),
                resume: kept.thread(),
                model: start.model.map(str::to_owned),
                instructions: start.instructions.to_owned(),
                told,
                cwd: start.at.workspace.clone(),
                sandbox: sandbox(start),
                config: json!({"mcp_servers.substrat": servers(start)}),
                version: start.version,
                begun: false,
                prompt: None,
            }),
            Transport::Exec => {
                let (stream, thread) = (exec::Stream::new(kept.totals), kept.thread_id);
                Box::new(Single { stream, thread, told })
            }
        }
    }
}

/// A dialogue with an app-server.
struct Talk {
    client: Client,
    resume: Option<String>,
    model: Option<String>,
    instructions: String,
    told: Told,
    cwd: String,
    sandbox: &'static str,
    config: Value,
    version: &'static str,
    /// Whether it was spoken to.
    begun: bool,
    /// What waits for the thread.
    prompt: Option<String>,
}

impl Talk {
    fn steps(&mut self, events: Vec<Event<Answer>>) -> Vec<Step> {
        let mut steps = Vec::new();
        for event in events {
            match event {
                Event::Activity(activity) => steps.push(Event::Activity(activity)),
                Event::Write(line) => steps.push(Event::Write(line)),
                Event::Over(over) => {
                    self.told.over(&over);
                    steps.push(Event::Over(over));
                }
                Event::Answer(answer) => steps.extend(self.answered(answer)),
            }
        }
        steps
    }

    fn answered(&mut self, answer: Answer) -> Option<Step> {
        match (answer.call, answer.outcome) {
            (Call::Initialize, Ok(_)) => {
                let thread = Thread {
                    resume: self.resume.as_deref(),
                    model: self.model.as_deref(),
                    cwd: &self.cwd,
                    approval: "untrusted",
                    sandbox: self.sandbox,
                    instructions: Some(&*self.instructions).filter(|text| !text.is_empty()),
                    config: self.config.clone(),
                };
                Some(Event::Write(self.client.open(&thread)))
            }
            (Call::Thread, Ok(_)) => {
                let prompt = self.prompt.take()?;
                self.client.start(&prompt).map(Event::Write)
            }
            (Call::Initialize | Call::Thread, Err(failed)) => {
                Some(Event::Over(TurnOver::Failed(failed)))
            }
            (Call::Steer, outcome) => {
                let outcome = outcome.map(drop).map_err(|failed| failed.message);
                Some(Event::Activity(Activity::Added(outcome)))
            }
            // The turn says itself what became of it.
            (Call::Turn | Call::Interrupt | Call::Models | Call::Other, _) => None,
        }
    }
}

impl Dialogue for Talk {
    fn start(&mut self, _: TurnId, prompt: &str) -> Vec<Step> {
        let prompt = self.told.prompt(prompt);
        if let Some(line) = self.client.start(&prompt) {
            return vec![Event::Write(line)];
        }
        self.prompt = Some(prompt);
        if std::mem::replace(&mut self.begun, true) {
            return Vec::new();
        }
        vec![Event::Write(self.client.initialize(self.version))]
    }

    fn read(&mut self, line: &str) -> Vec<Step> {
        let events = self.client.read(line);
        self.steps(events)
    }

    fn end(&mut self) -> Vec<Step> {
        let events = self.client.end();
        self.steps(events)
    }

    fn interrupt(&mut self) -> Option<String> {
        self.client.interrupt()
    }

    fn add(&mut self, text: &str) -> Option<String> {
        self.client.steer(text)
    }

    fn is_ready(&self) -> bool {
        self.client.thread().is_some() && !self.client.is_broken() && !self.client.left_tools()
    }

    fn answer(&mut self, request: &RequestId, decision: &Decision) -> Option<String> {
        self.client.answer(request, decision)
    }

    fn kept(&self) -> Value {
        let Some(thread) = self.client.thread() else { return Value::Null };
        let (thread_id, totals) = (thread.to_owned(), self.client.totals());
        let kept = Kept { thread_id, totals, holds: self.told.kept() };
        serde_json::to_value(kept).unwrap_or_default()
    }
}

/// A dialogue with a process that runs one turn.
struct Single {
    stream: exec::Stream,
    thread: String,
    told: Told,
}

impl Single {
    fn steps(&mut self, events: Vec<Event<exec::Answer>>) -> Vec<Step> {
        for event in &events {
            match event {
                Event::Activity(Activity::Session(id)) => self.thread.clone_from(id),
                Event::Over(over) => self.told.over(over),
                _ => {}
            }
        }
        events
    }
}

impl Dialogue for Single {
    fn start(&mut self, _: TurnId, prompt: &str) -> Vec<Step> {
        vec![Event::Write(self.told.prompt(prompt))]
    }

    fn read(&mut self, line: &str) -> Vec<Step> {
        let events = self.stream.read(line);
        self.steps(events)
    }

    fn end(&mut self) -> Vec<Step> {
        let events = self.stream.end();
        self.steps(events)
    }

    fn interrupt(&mut self) -> Option<String> {
        None
    }

    fn answer(&mut self, _: &RequestId, _: &Decision) -> Option<String> {
        None
    }

    fn kept(&self) -> Value {
        if self.thread.is_empty() {
            return Value::Null;
        }
        let (thread_id, totals) = (self.thread.clone(), self.stream.totals());
        let kept = Kept { thread_id, totals, holds: self.told.kept() };
        serde_json::to_value(kept).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::model::SessionId;
    use crate::provider::cli::Places;
    use crate::provider::registry::{Common, Section};

    /// The arguments that a section makes.
    fn args(section: &str) -> Vec<String> {
        let (name, table) = (ABOUT.kind.into(), section.parse().unwrap());
        let section = Section { name, kind: ABOUT.kind, common: Common::default(), table };
        let (config, keys): (Config, Keys) = read(&section, &ABOUT).unwrap();
        let [home, workspace, bridge, socket] = [const { String::new() }; 4];
        let at = Places { home, workspace, bridge, socket };
        let start = Start {
            session: SessionId::from_u128(1),
            model: None,
            instructions: "",
            prompt: "",
            kept: &Value::Null,
            anew: 0,
            home: Path::new("/"),
            at: &at,
            sandboxed: true,
            version: "",
        };
        Codex { transport: keys.transport }.command(&config, &start).args
    }

    #[test]
    fn what_is_turned_off_is_so_in_both_ways_and_can_be_turned_on() {
        for transport in ["app-server", "exec"] {
            let own = format!(
                "transport = {transport:?}\nargs = [\"-c\", \"features.shell_snapshot=true\"]"
            );
            let args = args(&own);
            let place = |word: &str| args.iter().position(|arg| arg == word).unwrap();
            for off in
                ["features.goals=false", "features.shell_snapshot=false", "agents.max_depth=0"]
            {
                assert_eq!(args[place(off) - 1], "-c", "{args:?}");
                assert!(place(off) < place(transport), "{args:?}");
            }
            // Of two that say of one thing what it is, the last counts.
            let (off, on) = ("features.shell_snapshot=false", "features.shell_snapshot=true");
            assert!(place(off) < place(on) && place(on) < place(transport), "{args:?}");
        }
    }
}
