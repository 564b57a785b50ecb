//! What a checkpoint holds: how long every projection is, and the state, as lines of JSON.

use serde::{Deserialize, Serialize};

use std::collections::BTreeSet;

use super::{Error, Extent, Extents};
use crate::journal;
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

/// The body of a checkpoint. `state` is what [`Snapshot::write`] made.
pub fn checkpoint_body(marks: &Marks, state: &[u8]) -> Result<Vec<u8>, Error> {
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
