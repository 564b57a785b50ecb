//! Files derived from the journal, for people and tools: for each session `events.jsonl`,
//! `transcript.txt` and `session.json`, and an `events.jsonl` of the daemon's own.
//!
//! They are appended to without a sync, in sequence order. A checkpoint syncs them and notes how
//! long they were; what a crash does to them after that is mended from the journal by the same
//! [`Projector::push`] that wrote them: it compares what is there with what should be, and
//! replaces what differs.

mod checkpoint;
mod log;
mod projector;
mod rebuild;
#[cfg(test)]
mod tests;
mod worker;

pub use checkpoint::{BadBody, Cut, Marks, Synced, read_body};
pub use log::{Span, read_before, read_merged, read_tail, read_transcript, scan};
pub use projector::{Extent, Extents, Projector};
pub use rebuild::{Rebuild, rebuild};
pub use worker::{Done, Mended, Worker, WorkerStatus};

use crate::journal;
use crate::model::SessionId;

/// The folder of the sessions, below the home.
pub const DIR: &str = "agents";

/// The run of the machine in which projections were last known to be right, relative to the home.
const BOOT_PATH: &str = "boot";

/// Why projections cannot go on.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] journal::Error),
    /// A log is damaged.
    #[error("{file} is damaged: {problem}")]
    Damaged {
        /// The log, relative to the home.
        file: String,
        /// What is wrong.
        problem: String,
    },
}

impl Error {
    /// Whether it may go away by itself: the disk is full, or too many files are open.
    fn may_pass(&self) -> bool {
        match self {
            Self::Disk(journal::Error::Full) => true,
            Self::Disk(journal::Error::Io { error, .. }) => {
                let errno = rustix::io::Errno::from_io_error(error);
                matches!(errno, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE))
            }
            _ => false,
        }
    }
}

/// The folder of a session, relative to the home.
pub fn session_dir(session: SessionId) -> String {
    format!("{DIR}/{session}")
}

/// The event log of a session or of the daemon, relative to the home.
pub fn events_path(session: Option<SessionId>) -> String {
    match session {
        Some(session) => format!("{DIR}/{session}/events.jsonl"),
        None => "events.jsonl".to_owned(),
    }
}

/// The transcript of a session, relative to the home.
pub fn transcript_path(session: SessionId) -> String {
    format!("{DIR}/{session}/transcript.txt")
}
