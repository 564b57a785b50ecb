//! Backends that can run turns.
//!
//! Adding one is a file or folder here and a line in [`KINDS`].

pub mod acp;
pub mod activity;
pub mod api;
pub mod claude_code;
mod cli;
pub mod codex;
pub mod cursor_agent;
pub mod failure;
#[cfg(test)]
mod fixtures;
mod hiding;
pub mod history;
pub mod jsonrpc;
pub mod lines;
pub mod meter;
mod process;
pub mod program;
pub mod progress;
pub mod registry;
pub mod retry;
pub mod scripted;
pub mod secret;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use self::activity::{Activity, Decision, PermissionOption};
pub(crate) use self::cli::{is_of_agent, nothing};
pub(crate) use self::cli::{remove as remove_home, sweep as sweep_homes};
use self::history::History;
pub use self::registry::{Kind, Registry};
use self::secret::Secrets;
use crate::model::{
    Blob, FailureClass, Json, LimitKind, Message, MessageId, Name, Saved, SessionId, ToolSpec,
    TurnId, Usage, World,
};

/// What a piece of output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputKind {
    /// Text of the answer.
    Text,
    /// Thinking aloud.
    Thinking,
}

/// What a provider can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Whether it keeps the conversation itself.
    pub keeps_history: bool,
    /// Whether it is a command-line agent, which goes on with a session that it named. What one
    /// saved is nothing to others, and not to be gone on with once they ran a turn.
    pub resumes: bool,
    /// Whether it has tools of its own.
    pub native_tools: bool,
    /// Whether its processes call Substrat's tools over the agent's tool socket.
    pub tool_socket: bool,
    /// Whether it starts processes, in the sandboxes of agents.
    pub processes: bool,
    /// Whether it gives signs of life as long as its turn goes on: it tells what it does as it does
    /// it, and [`TurnIo::alive`] where there is nothing to tell. Its silence ends an attempt, and
    /// that of others that start processes only where the configuration says after how long.
    pub pulse: bool,
    /// Whether a turn that runs takes messages: [`TurnIo::addition`].
    pub steering: bool,
}

/// What is known of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Its name.
    pub name: Arc<str>,
    /// Its kind.
    pub kind: &'static str,
    /// What it is, in a sentence.
    pub description: String,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Longest time that one of its tool calls may block.
    pub call_limit: Option<Duration>,
}

/// What a session is opened with.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The session.
    pub session: SessionId,
    /// Model; none for the default.
    pub model: Option<Arc<str>>,
    /// What the agent is told to be.
    pub instructions: Arc<str>,
    /// What to resume from.
    pub saved: Option<Blob>,
    /// Whether what its provider has of the session by itself is not to be gone on with: it stands in
    /// for another one, and is told what it is to know.
    pub anew: bool,
    /// The agent's tool socket, for a provider whose processes call tools there.
    pub tool_socket: Option<PathBuf>,
}

/// What a turn is run with.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// The text.
    pub text: Arc<str>,
    /// The messages in it.
    pub messages: Arc<[Message]>,
    /// Name of the agent.
    pub agent: Name,
    /// The turn.
    pub turn: TurnId,
    /// What the agent sees; none if it has no workspace.
    pub world: Option<World>,
    /// The tools that it is offered.
    pub tools: Arc<[&'static ToolSpec]>,
}

/// What a provider has against an agent that is to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Objection {
    /// Its instructions are none that can be followed.
    Instructions(String),
    /// Its model is missing, or is none.
    Model(String),
}

/// Why a turn or a session failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Its class, which decides what may be tried next.
    pub class: FailureClass,
    /// What happened.
    pub message: String,
    /// How long the backend asked to be left alone.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure of a class.
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), retry_after: None }
    }

    /// A failure that is not going to pass.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(FailureClass::Permanent, message)
    }
}

/// How a turn ended that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// With an answer.
    Completed {
        /// The final text.
        response: String,
        /// What the session would be resumed from now.
        saved: Saved,
    },
    /// Because it was asked to.
    Cancelled,
}

/// A question of a backend: whether a tool may be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The tool call that it is about, if known: that of its [`Activity::ToolStarted`].
    pub call: Option<String>,
    /// The tool, by the backend's name for it.
    pub tool: String,
    /// Its arguments.
    pub input: Json,
    /// What may be answered.
    pub options: Vec<PermissionOption>,
}

/// A message that a running turn is to take in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    /// The message.
    pub message: MessageId,
    /// Its text.
    pub text: Arc<str>,
}

/// What a running turn can reach.
pub trait TurnIo: Send + Sync {
    /// Streams a piece of output.
    fn emit(&self, kind: OutputKind, text: &str);
    /// Tells what the backend does. Questions are asked, not told.
    fn tell(&self, activity: Activity);
    /// Asks whether the backend may do something. Who does not wait for the answer any more has
    /// withdrawn the question.
    fn ask(&self, question: Question) -> BoxFuture<'_, Decision>;
    /// Keeps what the session is to be resumed from, however the turn ends.
    fn save(&self, state: Blob);
    /// Tells that the backend lives, where there is nothing else to tell.
    fn alive(&self) {}
    /// Has keys that the backend knows taken out of the calls of tools that are made for it, however
    /// they come in.
    fn conceal(&self, _secrets: &Secrets) {}
    /// Waits for a message that is to be taken in while the turn runs. One that is not taken in
    /// comes with the next turn.
    fn addition(&self) -> BoxFuture<'_, Addition> {
        std::future::pending().boxed()
    }
    /// Tells that the backend took a message in.
    fn taken_in(&self, _addition: Addition) {}
    /// Calls a tool of the agent. The error is for the model to read.
    fn call_tool<'a>(&'a self, tool: &'a str, args: Json) -> BoxFuture<'a, Result<Json, String>>;
    /// Tells what was used since the last report, as soon as the provider knows it. What is told
    /// counts however the turn ends.
    fn report_usage(&self, usage: Usage);
    /// Tells what a process wrote to its standard error: the end of it, and how many bytes it was.
    fn report_stderr(&self, text: &str, bytes: u64);
    /// Tells that a process ended: how (`exit 3`, `signal 9 (SIGKILL)`), and why if it was ended.
    fn report_exit(&self, pid: u32, status: &str, reason: Option<&str>);
    /// Tells that a process met a limit of the agent's workspace.
    fn report_limit(&self, kind: LimitKind, detail: &str);
    /// Tells that a process of the turn runs without a sandbox.
    fn report_unsandboxed(&self, reason: &str);
    /// How long a process has between two steps towards its end: less while the daemon stops. Looked
    /// at with each step, between turns too.
    fn patience(&self) -> Duration;
    /// The conversation of the agent's session up to this turn, valid for every model.
    fn history(&self) -> BoxFuture<'_, Result<History, Failure>>;
    /// Is cancelled when the turn is to end, or this attempt at it.
    fn cancelled(&self) -> &CancellationToken;
}

/// What was found when it was looked whether a provider can run here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Health {
    /// Version of the backend; empty when unknown.
    pub version: String,
    /// Why it cannot run here, and what to do; none if it can.
    pub problem: Option<String>,
    /// What else was found, such as where its program lies, as names and values.
    pub facts: Vec<(String, String)>,
}

/// A model that a provider offers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    /// Its name, as given to an agent.
    pub id: String,
    /// What it is called, if that is something else.
    pub label: String,
    /// Tokens of a conversation that it takes; 0 when unknown.
    pub context_tokens: u64,
}

/// A backend.
pub trait Provider: Send + Sync {
    /// What is known of it.
    fn info(&self) -> Info;
    /// Looks whether it can run here: for what it needs on the machine. Whether a server elsewhere
    /// answers, and a command prints a key, is looked at only if `ask` says so: what is told then is
    /// for the eyes of who asked, and kept nowhere. Takes seconds at most.
    fn examine(&self, ask: bool) -> BoxFuture<'_, Health>;
    /// The models that it offers.
    fn models(&self) -> BoxFuture<'_, Result<Vec<Model>, Failure>> {
        let name = self.info().name;
        let known = format!("{name} does not tell its models");
        std::future::ready(Err(Failure::permanent(known))).boxed()
    }
    /// Checks instructions and model before an agent is created with them.
    fn check(&self, instructions: &str, model: Option<&str>) -> Result<(), Objection>;
    /// Opens a session.
    fn open(&self, spec: Spec) -> BoxFuture<'_, Result<Box<dyn Instance>, Failure>>;
}

/// A live session of a backend: one at a time for a session.
pub trait Instance: Send {
    /// Runs a turn to its end.
    fn turn<'a>(
        &'a mut self,
        prompt: Prompt,
        io: Arc<dyn TurnIo>,
    ) -> BoxFuture<'a, Result<Ended, Failure>>;
    /// If it keeps the conversation itself, and has nothing of it: how many bytes of what was said
    /// before it is told, the newest.
    fn lacks(&self) -> Option<usize> {
        None
    }
    /// Whether the turn failed for what was said before it, of which it has nothing any more: told
    /// less of that, it may do the same turn.
    fn may_do_anew(&self) -> bool {
        false
    }
    /// Gives what the session can be resumed from, and ends.
    fn suspend(self: Box<Self>) -> BoxFuture<'static, Result<Saved, Failure>>;
    /// Ends at once, and tells of what ends with it. A turn that ran was dropped before. What has
    /// nothing to tell is just dropped.
    fn close(self: Box<Self>, _reason: &'static str) -> BoxFuture<'static, ()> {
        drop(self);
        Box::pin(std::future::ready(()))
    }
}

/// The kinds of this build.
pub const KINDS: &[Kind] = &[
    acp::KIND,
    api::ANTHROPIC,
    api::OPENAI,
    claude_code::KIND,
    codex::KIND,
    cursor_agent::KIND,
    program::KIND,
    scripted::KIND,
];
