//! What a checkpoint holds: how long every projection is, and the state, as lines of JSON.

use serde::{Deserialize, Serialize};

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
}

/// A body that does not read back although its checksum held.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {error}")]
pub struct BadBody {
    line: usize,
    error: serde_json::Error,
}

/// The body of a checkpoint. `state` is what [`Snapshot::write`] made.
pub fn checkpoint_body(extents: &Extents, state: &[u8]) -> Result<Vec<u8>, Error> {
    let mut body = Vec::with_capacity(state.len() + extents.len() * 100);
    for (session, extent) in extents {
        let Extent { events, transcript } = *extent;
        let line = ExtentLine { projection: *session, events, transcript };
        serde_json::to_writer(&mut body, &line)
            .map_err(|error| journal::Error::io("writing the checkpoint")(error.into()))?;
        body.push(b'\n');
    }
    body.extend_from_slice(state);
    Ok(body)
}

/// Reads the body of a checkpoint.
pub fn read_body(body: &[u8]) -> Result<(State, Extents), BadBody> {
    let (mut state, mut extents) = (State::default(), Extents::new());
    for (number, line) in (1..).zip(body.split(|byte| *byte == b'\n')) {
        let bad = |error| BadBody { line: number, error };
        if line.is_empty() {
            continue;
        }
        if line.starts_with(PREFIX) {
            let line: ExtentLine = serde_json::from_slice(line).map_err(bad)?;
            let extent = Extent { events: line.events, transcript: line.transcript };
            extents.insert(line.projection, extent);
        } else {
            Snapshot::read_line(&mut state, line).map_err(bad)?;
        }
    }
    Ok((state, extents))
}
