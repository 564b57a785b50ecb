//! The one task that owns the state, and everything that acts on its behalf.
//!
//! ```text
//!  Handle ─commands, reads─► driver ─► Core ──batch──► journal
//!    ▲                         │  ▲                       │ durable
//!    │◄── replies, answers ────┤  └─────── outcomes ──┐   │
//!    │◄── Feed (events) ───────┤◄─────────────────────┼───┘
//!    │                         └─ effects ─► runners ─┘
//!    └◄── Outputs (deltas of running turns) ◄── │
//! ```
//!
//! [`Core`] decides and stages without I/O or time of its own; the simulated world drives it as
//! the daemon's driver does. Whatever a batch leads to (replies, publication, effects) is released
//! when it is durable, in order.

mod additions;
mod answers;
mod attempts;
mod attendance;
mod by_agent;
mod calls;
mod clock;
mod core;
mod driver;
mod effects;
mod feed;
mod handle;
mod history;
mod output;
mod permission;
mod pulse;
mod runner;
mod shell;
mod spending;
mod telling;
#[cfg(test)]
mod tests;
mod turn_io;

use std::io;
use std::sync::Arc;

pub use self::core::{Core, Record, Release, Staged, Tell};
pub use attendance::Attending;
pub use clock::{Clock, RandomIds, now};
pub use driver::{Ended, Engine, Fatal};
pub use feed::{Behind, Feed};
pub use handle::{Answer, CallEnd, CallError, Draining, Handle, Refusal, Waiting};
pub use output::{Item, Mark, Outputs, TurnOutput, Unread};
pub use shell::{LaunchedShells, Met, NoShells, Ran, Shells, remove_shell, sweep_shells};

use crate::model::{AgentId, Commit, Entry, SessionId};
use crate::provider::Registry;

/// Where the engine hands over what became durable.
pub trait Sink: Send {
    /// Takes a commit, in order.
    fn commit(&mut self, commit: &Arc<Commit>);
    /// Removes what lies outside the log of a session that was deleted. Called once nothing of it
    /// runs any more.
    fn removal(&self, session: SessionId) -> Removal;
    /// Takes the state at the last sequence that was handed over, for a checkpoint.
    fn checkpoint(&mut self, sequence: u64, state: Vec<u8>, done: Option<CheckpointDone>);
    /// Bytes that were handed over and are not written yet.
    fn backlog(&self) -> u64;
}

/// Removes something. It blocks, and tells the log of the daemon what it cannot remove.
pub type Removal = Box<dyn FnOnce() + Send>;

/// Told when a checkpoint is written, or why it is not.
pub type CheckpointDone = tokio::sync::oneshot::Sender<Result<(), String>>;

/// A log and the sequences that it spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The session; none for the daemon's own log.
    pub session: Option<SessionId>,
    /// Its agent.
    pub agent: Option<AgentId>,
    /// Sequence of its first event.
    pub first: u64,
    /// Sequence of its last event.
    pub last: u64,
}

/// Events that are not in memory any more. Calls block.
pub trait Archive: Send + Sync {
    /// Waits until everything that is durable can be read.
    fn settled(&self) -> futures_util::future::BoxFuture<'_, ()>;
    /// The events of several logs from `from` on and below `end`, in order.
    fn read(&self, spans: &[Span], from: u64, end: u64) -> io::Result<Vec<Entry>>;
    /// Hands out the events of a session's log from `from` on, in order, until told to stop.
    fn scan(
        &self,
        session: SessionId,
        from: u64,
        each: &mut dyn FnMut(Entry) -> bool,
    ) -> io::Result<()>;
    /// The last events of a session's log, in order.
    fn tail(&self, session: SessionId, count: usize) -> io::Result<Vec<Entry>>;
    /// The events of a session's log below `end`, in order: the last ones, as far as about `bytes`
    /// of lines reach back, and at least one if there is any.
    fn before(&self, session: SessionId, end: u64, bytes: usize) -> io::Result<Vec<Entry>>;
    /// Whole lines of a transcript from a byte on, at most about `limit` bytes, and the byte
    /// after them.
    fn transcript(&self, session: SessionId, from: u64, limit: usize) -> io::Result<(String, u64)>;
}

/// Opens and closes the socket on which a live session's processes call its tools.
pub trait ToolSockets: Send + Sync {
    /// Opens the socket of an agent.
    fn open(&self, agent: AgentId, session: SessionId, handle: Handle) -> io::Result<ToolSocket>;
}

/// A tool socket that is open until this is dropped.
pub struct ToolSocket {
    /// Where it is.
    pub path: std::path::PathBuf,
    /// Closes it when dropped.
    pub guard: SocketGuard,
}

/// Closes a tool socket when it is dropped.
pub type SocketGuard = Box<dyn std::any::Any + Send>;

/// Sizes and times that the engine works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of journal after which a checkpoint is written.
    pub checkpoint_bytes: u64,
    /// Bytes that may wait to be committed and projected before commands wait.
    pub max_backlog: u64,
    /// How long running turns may go on after the daemon was told to stop.
    pub drain: std::time::Duration,
    /// Largest journal record that a command may need, in bytes.
    pub max_record: usize,
    /// Bytes of a conversation that a turn is given at most.
    pub history_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            checkpoint_bytes: 32 << 20,
            max_backlog: 64 << 20,
            drain: std::time::Duration::from_secs(30),
            max_record: 8 << 20,
            history_bytes: 2 << 20,
        }
    }
}

/// What the engine works with, beside its state.
pub struct Parts {
    /// The journal.
    pub journal: crate::journal::Journal,
    /// Where durable events go.
    pub sink: Box<dyn Sink>,
    /// The providers.
    pub providers: Registry,
    /// Files of workspaces.
    pub files: crate::workspace::Files,
    /// Shells of agents.
    pub shells: Arc<dyn Shells>,
    /// Tool sockets.
    pub sockets: Arc<dyn ToolSockets>,
    /// Sizes and times.
    pub limits: Limits,
    /// The time; [`now`] outside of simulations.
    pub clock: Clock,
}
