//! How Claude Code is started, and what is said to it.
//!
//! Its session has the id of ours, so that one of which a turn was cut off is found again: whether
//! there is one says the file in which it keeps it. One that is begun anew has an id that no file
//! there has.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::models::Asking;
use super::protocol::{Answer, MessageState, Stream};
use super::requests::{self, Control};
use crate::model::{SessionId, TurnId};
use crate::provider::activity::{Activity, Decision, Event, RequestId, TurnOver};
use crate::provider::cli::told::Told;
use crate::provider::cli::{
    About, Cli, Command, Config, Dialogue, Listing, MAX_ARGUMENT, Start, Step, Telling, make, read,
};
use crate::provider::meter::Totals;
use crate::provider::registry::Kind;

static ABOUT: About = About {
    kind: "claude-code",
    description: "Claude Code, Anthropic's agent for the command line",
    programs: &["claude"],
    install: "npm install -g @anthropic-ai/claude-code, or see https://code.claude.com",
    key: "ANTHROPIC_API_KEY",
    logins: &[".claude/.credentials.json"],
    endpoints: &["https://api.anthropic.com", "https://console.anthropic.com"],
};

/// Its tools, but for those that a model would take for Substrat's.
const TOOLS: &[&str] = &[
    "Bash",
    "BashOutput",
    "KillShell",
    "Read",
    "Edit",
    "Write",
    "Glob",
    "Grep",
    "NotebookEdit",
    "WebFetch",
    "WebSearch",
    "TodoWrite",
];

/// Claude Code is there without being configured, and once.
pub const KIND: Kind = Kind {
    name: ABOUT.kind,
    read: |section| {
        let (config, keys): (Config, Keys) = read(section, &ABOUT)?;
        let (config, tools) = (Arc::new(config), keys.tools);
        Ok(Box::new(move |settings| {
            make(Box::new(ClaudeCode { tools: tools.clone() }), config.clone(), settings)
        }))
    },
    presets: &[(ABOUT.kind, "")],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    tools: Option<Vec<String>>,
}

struct ClaudeCode {
    /// Names of the tools that it is to have.
    tools: Option<Vec<String>>,
}

/// What is kept of a session.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    session_id: String,
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
}

impl Cli for ClaudeCode {
    fn needs_key(&self, _: &Config) -> bool {
        true
    }

    fn max_instructions(&self) -> usize {
        MAX_ARGUMENT
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn command(&self, config: &Config, start: &Start<'_>) -> Command {
        let (mut command, id) = (Command::default(), session_id(start));
        let servers = json!({"mcpServers": {"substrat": {
            "type": "stdio",
            "command": start.at.bridge,
            "args": ["mcp"],
            "env": start.at.bridge_env().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
            "alwaysLoad": true,
        }}})
        .to_string();
        let tools = match &self.tools {
            Some(tools) => tools.join(","),
            None => TOOLS.join(","),
        };
        let resumes = !start.kept.is_null() || has_session(start.home, &id);
        let mut add = |words: &[&str]| {
            command.args.extend(words.iter().map(|word| (*word).to_owned()));
        };
        add(&["-p", "--output-format", "stream-json", "--verbose"]);
        add(&["--input-format", "stream-json", "--include-partial-messages"]);
        add(&[if resumes { "--resume" } else { "--session-id" }, &id]);
        add(&["--mcp-config", &servers, "--strict-mcp-config", "--setting-sources="]);
        add(&["--tools", &tools, "--allowedTools", "mcp__substrat"]);
        add(&["--permission-mode", "default", "--permission-prompt-tool", "stdio"]);
        if !start.instructions.is_empty() {
            add(&["--append-system-prompt", start.instructions]);
        }
        if let Some(model) = start.model {
            add(&["--model", model]);
        }
        configure(&mut command, config);
        command
    }

    fn models(&self, config: &Config, _: &str, _: &'static str) -> Listing {
        let mut command = Command::default();
        let args = ["-p", "--output-format", "stream-json", "--verbose", "--input-format"];
        command.args.extend(args.map(str::to_owned));
        let args = ["stream-json", "--strict-mcp-config", "--setting-sources="];
        command.args.extend(args.map(str::to_owned));
        configure(&mut command, config);
        Listing { command, telling: Telling::Asked(Box::new(Asking::default())) }
    }

    fn dialogue(&self, _: &Config, start: &Start<'_>) -> Box<dyn Dialogue> {
        let kept = Kept::of(start.kept);
        Box::new(Talk {
            session: session_id(start),
            told: Told::to_program(start.instructions, kept.holds),
            stream: Stream::new(kept.totals),
            message: String::new(),
            asked: 0,
            tracked: false,
            started: false,
        })
    }
}

/// Gives it what is configured, and the variables that it has whatever it is started for.
fn configure(command: &mut Command, config: &Config) {
    command.args.extend(config.args.iter().cloned());
    if let Some(url) = &config.base_url {
        command.set("ANTHROPIC_BASE_URL", url);
    }
    for name in [
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_TELEMETRY",
        "DISABLE_ERROR_REPORTING",
        "DISABLE_AUTOUPDATER",
    ] {
        command.set(name, "1");
    }
    // What goes on in the background outlives its turn, and would begin turns by itself.
    command.set("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1");
    // What fails is tried again from here, with an eye on the turn.
    command.set("CLAUDE_CODE_MAX_RETRIES", "1");
    command.set("ENABLE_TOOL_SEARCH", "false");
}

/// The id of its session: that of before, or ours. One that is begun anew has another, since what
/// is left of an old one is in its way.
fn session_id(start: &Start<'_>) -> String {
    match Kept::of(start.kept).session_id {
        id if !id.is_empty() => id,
        _ if start.anew == 0 => uuid(start.session, 0),
        _ => {
            let mut ids = (start.anew..).map(|anew| uuid(start.session, anew));
            let free = ids.find(|id| !has_session(start.home, id));
            free.unwrap_or_else(|| uuid(start.session, start.anew))
        }
    }
}

/// An id as Claude Code wants it.
fn uuid(session: SessionId, anew: u32) -> String {
    let hex = session.to_string();
    let part = |from, to| hex.get(from..to).unwrap_or_default();
    let first = u32::from_str_radix(part(0, 8), 16).unwrap_or_default().wrapping_add(anew);
    let rest = [part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-");
    format!("{first:08x}-{rest}")
}

/// Whether there is a session of this id in a home.
fn has_session(home: &Path, id: &str) -> bool {
    let name = format!("{id}.jsonl");
    let projects = home.join(".claude/projects").read_dir().into_iter().flatten().flatten();
    projects.take(1000).any(|project| project.path().join(&name).is_file())
}

/// A dialogue with a process.
struct Talk {
    session: String,
    told: Told,
    stream: Stream,
    /// The message of the running turn.
    message: String,
    /// How many requests were made.
    asked: u64,
    /// Whether the process tells where messages are.
    tracked: bool,
    /// Whether the message was taken.
    started: bool,
}

impl Talk {
    fn steps(&mut self, events: Vec<Event<Answer>>) -> Vec<Step> {
        let mut steps = Vec::new();
        for event in events {
            steps.push(match event {
                Event::Activity(activity) => Event::Activity(activity),
                Event::Write(line) => Event::Write(line),
                // Of a turn before, of which it says more than once that it is over.
                Event::Over(TurnOver::Completed { .. } | TurnOver::Cancelled)
                    if self.tracked && !self.started =>
                {
                    Event::Activity(Activity::Alive)
                }
                Event::Over(over) => {
                    self.told.over(&over);
                    Event::Over(over)
                }
                Event::Answer(Answer::Message { uuid, state }) => {
                    self.tracked = true;
                    self.started |= uuid == self.message && state != MessageState::Queued;
                    Event::Activity(Activity::Alive)
                }
                Event::Answer(Answer::Control { .. }) => Event::Activity(Activity::Alive),
            });
        }
        steps
    }
}

impl Dialogue for Talk {
    fn start(&mut self, turn: TurnId, prompt: &str) -> Vec<Step> {
        self.asked += 1;
        // Attempts at a turn are messages of their own.
        let turn: String =
            turn.to_string().bytes().filter(u8::is_ascii_hexdigit).map(char::from).collect();
        self.message =
            format!("00000000-0000-4000-{:04x}-{turn:0>12.12}", 0x8000 | (self.asked & 0x0fff));
        self.started = false;
        vec![Event::Write(requests::user(&self.message, &self.told.prompt(prompt)))]
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
        self.asked += 1;
        Some(requests::control(&format!("substrat-{}", self.asked), Control::Interrupt))
    }

    fn answer(&mut self, request: &RequestId, decision: &Decision) -> Option<String> {
        self.stream.answer(request, decision)
    }

    fn kept(&self) -> Value {
        // Until it has said something, there is nothing that could be resumed.
        if self.stream.session().is_none() {
            return Value::Null;
        }
        let (session_id, totals) = (self.session.clone(), self.stream.totals());
        let kept = Kept { session_id, totals, holds: self.told.kept() };
        serde_json::to_value(kept).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::provider::acp;
    use crate::provider::cli::Places;
    use crate::provider::registry::{Common, Section};

    #[test]
    fn it_is_given_the_same_variables_by_itself_and_by_its_adapter() {
        let (name, table) = (ABOUT.kind.into(), toml::Table::new());
        let section = Section { name, kind: ABOUT.kind, common: Common::default(), table };
        let (config, keys): (Config, Keys) = read(&section, &ABOUT).unwrap();
        let [home, workspace, bridge, socket] = [const { String::new() }; 4];
        let at = Places { home, workspace, bridge, socket };
        let start = Start {
            session: SessionId::from_u128(7),
            model: None,
            instructions: "",
            prompt: "",
            kept: &Value::Null,
            anew: 0,
            home: Path::new("/nowhere"),
            at: &at,
            sandboxed: true,
            version: "",
        };
        let given = ClaudeCode { tools: keys.tools }.command(&config, &start).env;
        assert_eq!(given["CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"], "1");
        let mut presets = acp::KIND.presets.iter();
        let (_, preset) = presets.find(|(name, _)| *name == "claude-acp").unwrap();
        let preset: toml::Table = preset.parse().unwrap();
        let variables = preset["env"].as_table().unwrap().iter();
        let variables: BTreeMap<String, String> = variables
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
            .collect();
        assert_eq!(given, variables);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "makes what Claude Code leaves")]
    fn a_session_is_found_again_unless_it_is_begun_anew() {
        let home = tempfile::tempdir().unwrap();
        let project = home.path().join(".claude/projects/-workspace");
        std::fs::create_dir_all(&project).unwrap();
        let [at_home, workspace, bridge, socket] = [const { String::new() }; 4];
        let at = Places { home: at_home, workspace, bridge, socket };
        let (kept, session) = (Value::Null, SessionId::from_u128(7));
        let id = |anew: u32| {
            let start = Start {
                session,
                model: None,
                instructions: "",
                prompt: "",
                kept: &kept,
                anew,
                home: home.path(),
                at: &at,
                sandboxed: true,
                version: "",
            };
            session_id(&start)
        };
        let mut ids = vec![id(0)];
        assert_eq!(id(0), ids[0]);
        for _ in 0..3 {
            let left = ids.last().unwrap();
            std::fs::write(project.join(format!("{left}.jsonl")), "").unwrap();
            assert_eq!(id(0), ids[0], "it is resumed");
            let next = id(1);
            assert!(!ids.contains(&next), "{next}");
            ids.push(next);
        }
    }
}
