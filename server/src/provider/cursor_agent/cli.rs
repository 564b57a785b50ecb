//! How cursor-agent is started, and what is said to it: a process for each turn.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::models;
use super::protocol::{Answer, Stream};
use crate::model::TurnId;
use crate::provider::activity::{Activity, Decision, Event, RequestId, TurnOver};
use crate::provider::cli::{
    About, Cli, Command, Config, Dialogue, Listing, MAX_ARGUMENT, Start, Step, Telling, make, read,
    told,
};
use crate::provider::failure::{Failed, FailureKind};
use crate::provider::registry::Kind;

static ABOUT: About = About {
    kind: "cursor-agent",
    description: "Cursor's agent for the command line",
    programs: &["cursor-agent", "agent"],
    install: "see https://cursor.com/cli",
    key: "CURSOR_API_KEY",
    logins: &[".config/cursor/auth.json"],
    endpoints: &["https://*.cursor.sh", "https://*.cursor.com"],
};

/// Begins a chat, and goes on with it: its id is known before anything is said in it.
pub(super) const NEW_CHAT: &str = r#"
words=$1
shift
case $words in
1)
    chat=$("$1" create-chat </dev/null) || exit
    program=$1
    shift
    exec "$program" --resume "$chat" "$@"
    ;;
*)
    chat=$("$1" "$2" create-chat </dev/null) || exit
    interpreter=$1 program=$2
    shift 2
    exec "$interpreter" "$program" --resume "$chat" "$@"
    ;;
esac
"#;

/// Goes on with a chat.
pub(super) const GO_ON: &str = r#"
shift
exec "$@"
"#;

/// Where the rule lies in the session's home, from which it is copied into the workspace.
const RULE: &str = ".cursor/substrat.mdc";

/// Makes the instructions a rule of the workspace, before anything else. By the process, since it
/// may do no more there than its agent; under another name first, since an agent may have left
/// something there that is not to be written to. The prompt has the instructions, too, so nothing
/// depends on it.
pub(super) const WRITE_RULE: &str = r#"
rule=.cursor/rules/substrat.mdc
new=$rule.$$
if ! {
    mkdir -p .cursor/rules && rm -f "$new" &&
    cp "$HOME/.cursor/substrat.mdc" "$new" && mv -fT "$new" "$rule"
}; then
    rm -f "$new"
    echo "the instructions are not a rule: $rule could not be written" >&2
fi
"#;

/// cursor-agent is there without being configured, and once.
pub const KIND: Kind = Kind {
    name: ABOUT.kind,
    read: |section| {
        let (config, keys): (Config, Keys) = read(section, &ABOUT)?;
        let config = Arc::new(config);
        Ok(Box::new(move |settings| make(Box::new(CursorAgent { keys }), config.clone(), settings)))
    },
    presets: &[(ABOUT.kind, "")],
};

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    /// Whether it may run commands: it cannot ask. By default in a sandbox.
    force: Option<bool>,
    /// Whether the instructions are a rule of the workspace, too.
    #[serde(default)]
    rule: bool,
}

struct CursorAgent {
    keys: Keys,
}

/// What is kept of a session. Sessions of homes that were imported have the same name for it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    session_id: String,
    /// The mark of the instructions that the chat holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    told: Option<String>,
}

impl Kept {
    fn of(value: &Value) -> Option<Self> {
        let kept: Self = serde_json::from_value(value.clone()).ok()?;
        Some(kept).filter(|kept| !kept.session_id.is_empty())
    }
}

/// The prompt as it is given. It says what the agent is to be, unless the chat holds that: there is
/// no other place for it which belongs to one agent.
pub(super) fn prompt(start: &Start<'_>) -> String {
    let told = Kept::of(start.kept).and_then(|kept| kept.told);
    told::prompt(told.as_deref(), start.instructions, start.prompt)
}

/// The instructions as a rule that always holds.
fn rule(instructions: &str) -> String {
    format!(
        "---\ndescription: Instructions of this agent\nalwaysApply: true\n---\n\n{instructions}\n"
    )
}

/// Says where its servers are, if elsewhere.
fn ask_at(command: &mut Command, config: &Config) {
    if let Some(url) = &config.base_url {
        command.set("CURSOR_API_BASE_URL", url);
    }
}

impl Cli for CursorAgent {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn is_single(&self) -> bool {
        true
    }

    fn needs_key(&self, _: &Config) -> bool {
        true
    }

    fn models(&self, config: &Config, _: &str, _: &'static str) -> Listing {
        let mut command = Command { args: vec!["models".to_owned()], ..Command::default() };
        ask_at(&mut command, config);
        Listing { command, telling: Telling::Written(models::read) }
    }

    fn command(&self, config: &Config, start: &Start<'_>) -> Command {
        let mut command = Command::default();
        let mut add = |words: &[&str]| {
            command.args.extend(words.iter().map(|word| (*word).to_owned()));
        };
        add(&["-p", "--output-format", "stream-json", "--stream-partial-output"]);
        add(&["--trust", "--approve-mcps"]);
        if self.keys.force.unwrap_or(start.sandboxed) {
            add(&["--force"]);
        }
        add(&["--workspace", &start.at.workspace]);
        if let Some(model) = start.model {
            add(&["--model", model]);
        }
        let kept = Kept::of(start.kept);
        if let Some(kept) = &kept {
            add(&["--resume", &kept.session_id]);
        }
        let begin = if kept.is_some() { GO_ON } else { NEW_CHAT };
        if self.keys.rule {
            command.files.push((RULE.to_owned(), rule(start.instructions)));
            command.script = Some(format!("{WRITE_RULE}{begin}"));
        } else if kept.is_none() {
            command.script = Some(begin.to_owned());
        }
        command.args.extend(config.args.iter().cloned());
        let prompt = prompt(start);
        // A longer one comes over stdin.
        if prompt.len() <= MAX_ARGUMENT {
            // What begins with a dash would be an option.
            let space = if prompt.starts_with('-') { " " } else { "" };
            command.args.push(format!("{space}{prompt}"));
        }
        let env: std::collections::BTreeMap<_, _> = start.at.bridge_env().into_iter().collect();
        let servers = json!({"mcpServers": {"substrat": {
            "command": start.at.bridge, "args": ["mcp"], "env": env,
        }}});
        command.files.push((".cursor/mcp.json".to_owned(), servers.to_string()));
        ask_at(&mut command, config);
        command
    }

    fn dialogue(&self, _: &Config, start: &Start<'_>) -> Box<dyn Dialogue> {
        Box::new(Talk::new(start))
    }
}

/// A dialogue with a process.
pub(super) struct Talk {
    stream: Stream,
    /// The chat that is to be gone on with.
    wanted: Option<String>,
    over_stdin: Option<String>,
    /// The mark of the instructions that hold in this turn.
    tells: String,
    /// The mark of those that the chat holds for certain: of a turn that failed it may know nothing.
    told: Option<String>,
}

impl Talk {
    pub(super) fn new(start: &Start<'_>) -> Self {
        let prompt = prompt(start);
        let (wanted, told) = Kept::of(start.kept).map(|kept| (kept.session_id, kept.told)).unzip();
        Self {
            stream: Stream::default(),
            wanted,
            over_stdin: (prompt.len() > MAX_ARGUMENT).then_some(prompt),
            tells: told::mark(start.instructions),
            told: told.flatten(),
        }
    }

    fn steps(&mut self, events: Vec<Event<Answer>>) -> Vec<Step> {
        let mut steps = Vec::new();
        for event in events {
            match (event, &self.wanted) {
                (Event::Activity(Activity::Session(id)), Some(wanted)) if id != *wanted => {
                    // It does not say so, and begins another one.
                    let gone = format!("it does not know the chat {wanted}");
                    let failed = Failed::new(FailureKind::Gone, gone);
                    steps.push(Event::Over(TurnOver::Failed(failed)));
                    self.told = None;
                    return steps;
                }
                (event @ Event::Over(TurnOver::Completed { .. }), _) => {
                    self.told = Some(self.tells.clone());
                    steps.push(event);
                }
                (event, _) => steps.push(event),
            }
        }
        steps
    }
}

impl Dialogue for Talk {
    fn start(&mut self, _: TurnId, _: &str) -> Vec<Step> {
        self.over_stdin.take().map(Event::Write).into_iter().collect()
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
        let kept = self
            .stream
            .session()
            .map(|id| Kept { session_id: id.to_owned(), told: self.told.clone() });
        kept.and_then(|kept| serde_json::to_value(kept).ok()).unwrap_or_default()
    }
}
