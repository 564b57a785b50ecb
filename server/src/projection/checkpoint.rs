//! What a checkpoint holds: how long every projection is, and the state, as lines of JSON.
//!
//! Written in phases that cannot be skipped: what it stands for is synced first ([`Cut::sync`]),
//! then it is written, and only then do segments go ([`Synced::write`]).

use serde::{Deserialize, Serialize};

use std::collections::BTreeSet;

use super::{BOOT_PATH, Error, Extent, Extents};
use crate::journal::{self, Disk, checkpoint};
use crate::model::{SessionId, Snapshot, State};

/// How the line of an extent starts; the others are lines of the state.
const PREFIX: &[u8] = br#"{"projection":"#;

#[derive(Serialize, Deserialize)]
struct ExtentLine {
    /// The session; null for the daemon's own log.
    projection: Option<SessionId>,
    events: u64,
    transcript: u64,
    /// Whether `session.json` may not be as it should be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    record_behind: bool,
}

/// How far the projections are at a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// How long the files are.
    pub extents: Extents,
    /// Sessions whose records were not written yet.
    pub records_behind: BTreeSet<SessionId>,
}

/// A body that does not read back although its checksum held.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {error}")]
pub struct BadBody {
    line: usize,
    error: serde_json::Error,
}

/// How the projections stand at a checkpoint, and what of them has to be synced for it.
pub struct Cut {
    pub(super) marks: Marks,
    pub(super) files: Vec<String>,
    pub(super) dirs: Vec<String>,
}

/// A cut whose files are on the disk.
pub struct Synced(Marks);

impl Cut {
    /// Syncs the files.
    ///
    /// # Errors
    ///
    /// Final: the kernel may have dropped what it was to write, and no later sync would tell. The
    /// process must write no checkpoint any more; the next start mends the files from the journal.
    pub fn sync(self, disk: &dyn Disk) -> Result<Synced, Error> {
        let synced = disk.sync_many(&self.files, &self.dirs);
        if synced.is_err() {
            // Their lengths say nothing any more, so the next start has to look into them.
            let _ = disk.remove(BOOT_PATH);
        }
        synced.map_err(journal::Error::io("syncing projections"))?;
        Ok(Synced(self.marks))
    }
}

impl Synced {
    /// Writes the checkpoint at a sequence and deletes the segments that it makes needless, but
    /// for the one that is being filled. `state` is what [`Snapshot::write`] made.
    pub fn write(
        self,
        disk: &dyn Disk,
        sequence: u64,
        state: &[u8],
        segment: u64,
    ) -> Result<(), Error> {
        let body = body(&self.0, state)?;
        checkpoint::write(disk, sequence, &body)?;
        journal::delete_segments(disk, segment, sequence)?;
        Ok(())
    }
}

fn body(marks: &Marks, state: &[u8]) -> Result<Vec<u8>, Error> {
    let mut body = Vec::with_capacity(state.len() + marks.extents.len() * 100);
    for (session, extent) in &marks.extents {
        let Extent { events, transcript } = *extent;
        let record_behind = session.is_some_and(|id| marks.records_behind.contains(&id));
        let line = ExtentLine { projection: *session, events, transcript, record_behind };
        serde_json::to_writer(&mut body, &line)
            .map_err(|error| journal::Error::io("writing the checkpoint")(error.into()))?;
        body.push(b'\n');
    }
    body.extend_from_slice(state);
    Ok(body)
}

/// Reads the body of a checkpoint.
pub fn read_body(body: &[u8]) -> Result<(State, Marks), BadBody> {
    let (mut state, mut marks) = (State::default(), Marks::default());
    for (number, line) in (1..).zip(body.split(|byte| *byte == b'\n')) {
        let bad = |error| BadBody { line: number, error };
        if line.is_empty() {
            continue;
        }
        if line.starts_with(PREFIX) {
            let line: ExtentLine = serde_json::from_slice(line).map_err(bad)?;
            let extent = Extent { events: line.events, transcript: line.transcript };
            marks.extents.insert(line.projection, extent);
            marks.records_behind.extend(line.projection.filter(|_| line.record_behind));
        } else {
            Snapshot::read_line(&mut state, line).map_err(bad)?;
        }
    }
    Ok((state, marks))
}
