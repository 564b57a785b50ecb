//! Command-line agents of other makers.
//!
//! ```text
//!  turn ─► Session ─► Running ─── stdin ──► CLI ─── substratctl mcp ──► tool socket
//!             │          ▲                   │
//!         Dialogue ◄─────┴────── stdout ─────┘
//! ```
//!
//! A [`Cli`] says how one is found, started and configured, and a [`Dialogue`] what is said to its
//! process; neither speaks to a process or writes anything itself. `Session` keeps one process for a live session, in
//! the sandbox of its agent's workspace, with a home of its own that is kept as long as the
//! session. `turn` runs one turn on it. Whatever the process does, it is the turn that fails.

mod ask;
mod config;
mod home;
mod install;
mod kept;
mod provider;
mod refusals;
mod session;
pub(super) mod told;
mod turn;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

pub(super) use self::config::{Config, read};
pub(crate) use self::home::{remove, sweep};
pub(crate) use self::kept::{is_of_agent, nothing};
pub(super) use self::provider::make;
use super::Model;
use super::activity::{Decision, Event, RequestId};
use super::failure::Failed;
use crate::model::{SessionId, TurnId};

/// The version of this daemon.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What is the same for every process of a CLI.
#[derive(Debug)]
pub(super) struct About {
    /// The kind of provider.
    pub(super) kind: &'static str,
    /// What it is, in a sentence.
    pub(super) description: &'static str,
    /// Names of its program, the first that is there counts.
    pub(super) programs: &'static [&'static str],
    /// How it is installed, for who has not.
    pub(super) install: &'static str,
    /// The variable in which it takes a key; empty if there is none.
    pub(super) key: &'static str,
    /// Files of the user's home with which it is logged in, by their paths from there. They are
    /// shown where no key is configured.
    pub(super) logins: &'static [&'static str],
    /// What it must reach, as the proxy's list has it.
    pub(super) endpoints: &'static [&'static str],
}

/// Where things lie, as a process sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Places {
    /// Its home.
    pub(super) home: String,
    /// Where it works.
    pub(super) workspace: String,
    /// `substratctl`, which is the agent's MCP server when it is called with `mcp`.
    pub(super) bridge: String,
    /// The agent's tool socket, which the bridge is to be told of.
    pub(super) socket: String,
}

impl Places {
    /// The variables that the bridge needs.
    pub(super) fn bridge_env(&self) -> [(&'static str, &str); 1] {
        [("SUBSTRAT_TOOL_SOCKET", &self.socket)]
    }
}

/// What a process is started for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start<'a> {
    /// The session.
    pub(super) session: SessionId,
    /// Model; none for the CLI's default.
    pub(super) model: Option<&'a str>,
    /// What the agent is told to be.
    pub(super) instructions: &'a str,
    /// The prompt, for a process that runs one turn.
    pub(super) prompt: &'a str,
    /// What a dialogue before kept.
    pub(super) kept: &'a Value,
    /// How often the session was begun anew: what lies in its home is not to be gone on with then.
    pub(super) anew: u32,
    /// Where its home lies on the host.
    pub(super) home: &'a Path,
    /// Where things lie.
    pub(super) at: &'a Places,
    /// Whether the daemon's sandbox is around it.
    pub(super) sandboxed: bool,
    /// Version of this daemon.
    pub(super) version: &'static str,
}

/// How a process is started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Command {
    /// A script of the shell that runs it. It is given the number of words that the program has
    /// (what interprets it is one), and then all words of the command.
    pub(super) script: Option<String>,
    /// What stands after it.
    pub(super) args: Vec<String>,
    /// Variables.
    pub(super) env: BTreeMap<String, String>,
    /// Files of its home that are written before, by their paths from there.
    pub(super) files: Vec<(String, String)>,
}

impl Command {
    /// Sets a variable.
    pub(super) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.env.insert(name.to_owned(), value.into());
    }
}

/// How a program lists its models.
pub(super) struct Listing {
    /// The command. A script has no place in it.
    pub(super) command: Command,
    /// How it tells them.
    pub(super) telling: Telling,
}

/// How a program tells its models.
pub(super) enum Telling {
    /// It writes them, and ends. The models of what it wrote.
    Written(fn(&str) -> Vec<Model>),
    /// It is asked for them.
    Asked(Box<dyn Asking>),
}

/// What is said to a program and what it says until its models are known, without I/O.
pub(super) trait Asking: Send {
    /// The first lines.
    fn begin(&mut self) -> String;
    /// What a line came to.
    ///
    /// # Errors
    ///
    /// Why it tells no models.
    fn read(&mut self, line: &str) -> Result<Asked, Failed>;
}

/// What came of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// They are not known yet. What is said next, which may be nothing.
    Next(String),
    /// The models.
    Models(Vec<Model>),
}

/// A command-line agent.
pub(super) trait Cli: Send + Sync + 'static {
    /// What is the same for all its processes.
    fn about(&self) -> &'static About;
    /// Whether a process runs one turn, of which the prompt is all that it reads.
    fn is_single(&self) -> bool {
        false
    }
    /// Whether it shows that it lives while its model works.
    fn has_pulse(&self) -> bool {
        true
    }
    /// Whether a turn that runs takes messages.
    fn can_steer(&self) -> bool {
        false
    }
    /// Whether it does nothing without a key or a login, as it is configured.
    fn needs_key(&self, _config: &Config) -> bool {
        false
    }
    /// Variables, such as those of `env`, that name another program for it to run.
    fn program_variables(&self) -> &'static [&'static str] {
        &[]
    }
    /// Bytes of the longest instructions that it can be given.
    fn max_instructions(&self) -> usize {
        usize::MAX
    }
    /// How it lists its models, for the version of this daemon that is given. It has no workspace
    /// then, but a home, of which the path is given as it sees it.
    fn models(&self, config: &Config, home: &str, version: &'static str) -> Listing;
    /// How a process is started.
    fn command(&self, config: &Config, start: &Start<'_>) -> Command;
    /// What is said to it.
    fn dialogue(&self, config: &Config, start: &Start<'_>) -> Box<dyn Dialogue>;
}

/// Something that happens in a dialogue. Nothing is answered outside of turns.
pub(super) type Step = Event<std::convert::Infallible>;

/// Bytes of the longest text that fits into an argument, with room to spare.
pub(super) const MAX_ARGUMENT: usize = 96 << 10;

/// What is said to a process and what it says, without I/O.
pub(super) trait Dialogue: Send + Sync {
    /// Begins a turn, as soon as the process can take one.
    fn start(&mut self, turn: TurnId, prompt: &str) -> Vec<Step>;
    /// What a line says.
    fn read(&mut self, line: &str) -> Vec<Step>;
    /// The output ended while a turn ran.
    fn end(&mut self) -> Vec<Step>;
    /// What ends the running turn, if there are words for that.
    fn interrupt(&mut self) -> Option<String>;
    /// What adds to the running turn. None if it takes nothing, or nothing yet.
    fn add(&mut self, _text: &str) -> Option<String> {
        None
    }
    /// The line that answers a question. None if it is not open.
    fn answer(&mut self, request: &RequestId, decision: &Decision) -> Option<String>;
    /// What a dialogue of the same session is to know later. Null if there is nothing.
    fn kept(&self) -> Value;
    /// Whether the process can take another turn. One that failed before is of no use, and one in
    /// which something of a turn goes on that is over ends with that turn.
    fn is_ready(&self) -> bool {
        true
    }
    /// Whether its session is open, for protocols that say so. A process that ends before may lack
    /// a program that it runs.
    fn has_session(&self) -> bool {
        true
    }
    /// After how much silence it wants to be told of that.
    fn quiet(&self) -> Option<Duration> {
        None
    }
    /// It was silent for so long.
    fn was_quiet(&mut self) -> Vec<Step> {
        Vec::new()
    }
}
