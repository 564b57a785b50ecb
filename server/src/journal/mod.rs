//! The daemon-wide write-ahead log: the truth.
//!
//! Narrow on purpose: append atomic entries at the next sequence, read from the start, checkpoint.
//! Payloads are opaque here. `docs/journal-format.md` is the format; [`frame`] mirrors it.
//!
//! What must hold, whatever happens:
//! - An entry is acknowledged only after the `fdatasync` of its record returned.
//! - What a scan returns is a prefix of what was appended, without half entries, and holds all
//!   that was acknowledged.
//! - A torn tail and damage are told apart, and damage is never passed over.
//! - After a failed write or sync nothing is acknowledged any more by this process.

pub mod checkpoint;
pub mod disk;
pub mod frame;
mod handle;
mod reader;
mod repair;
#[cfg(test)]
mod tests;
mod writer;

#[cfg(any(test, feature = "sim"))]
pub use disk::{Crash, Fault, SimDisk};
pub use disk::{Disk, DiskFile, OsDisk};
#[cfg(any(test, feature = "sim"))]
pub use handle::Stepper;
pub use handle::{Completion, Journal, Status, delete_segments};
pub use reader::{End, Scan, first_sequence, scan};
pub use repair::repair;
pub use writer::{Pending, Writer};

use std::io;

/// The folder of the segments, below the home.
pub const DIR: &str = "journal";

/// Sizes that a journal works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Largest size of a segment, in bytes. A new journal starts smaller and doubles.
    pub segment_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20 }
    }
}

/// Why the journal cannot go on.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The disk failed. Final: the process must end, and recovery decides what is true.
    #[error("{what} failed: {error}")]
    Io {
        /// What was done, and to which file.
        what: String,
        /// What the disk said.
        error: std::sync::Arc<io::Error>,
    },
    /// The disk is full. Not final: space may come back.
    #[error("the disk is full: no room for the next journal segment")]
    Full,
    /// Acknowledged data is damaged.
    #[error("{file} is damaged at byte {offset}: {problem}")]
    Corrupt {
        /// The segment, relative to the home.
        file: String,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        problem: String,
    },
    /// Written by a version that this one does not know.
    #[error("{file} has format version {version}, and this daemon reads up to {}", frame::VERSION)]
    Version {
        /// The segment, relative to the home.
        file: String,
        /// Its version.
        version: u32,
    },
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            _ => Self::Io { what, error: std::sync::Arc::new(error) },
        }
    }
}

/// The path of a segment, relative to the home.
pub fn segment_path(number: u64) -> String {
    format!("{DIR}/{number:08}.wal")
}

/// The number of a segment by its file name.
fn segment_number(name: &str) -> Option<u64> {
    name.strip_suffix(".wal").filter(|digits| digits.len() >= 8)?.parse().ok()
}

/// The numbers of the segments there are, in order.
fn segments(disk: &dyn Disk) -> Result<Vec<u64>, Error> {
    let names = disk.list(DIR).map_err(Error::io("listing the journal"))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}
