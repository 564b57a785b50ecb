//! The checkpoint: the state at a sequence, after which older segments can go.
//!
//! One JSON line that says what follows, then the body as it was given:
//!
//! ```text
//! {"format":"substrat-checkpoint","version":1,"sequence":42,"bytes":1234,"crc32":"0badf00d"}
//! ```

use serde::{Deserialize, Serialize};

use super::disk::read_all;
use super::{Disk, Error};

/// The file, relative to the home.
pub const PATH: &str = "checkpoint";
const TEMPORARY: &str = "checkpoint.tmp";
const FORMAT: &str = "substrat-checkpoint";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Head {
    format: String,
    version: u32,
    sequence: u64,
    bytes: u64,
    crc32: String,
}

/// A checkpoint that was read.
pub struct Checkpoint {
    /// The sequence that the body holds the state at.
    pub sequence: u64,
    bytes: Vec<u8>,
    start: usize,
}

impl Checkpoint {
    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// What is on the disk.
pub enum Found {
    /// No checkpoint.
    Nothing,
    /// One that is whole.
    Valid(Checkpoint),
    /// One that cannot be used, and why.
    Unusable(String),
}

/// Replaces the checkpoint. When this returns, the new one is durable.
///
/// What the body stands for (the projections) was synced before.
pub fn write(disk: &dyn Disk, sequence: u64, body: &[u8]) -> Result<(), Error> {
    let failed = || Error::io("writing the checkpoint");
    let head = Head {
        format: FORMAT.into(),
        version: VERSION,
        sequence,
        bytes: body.len() as u64,
        crc32: checksum(sequence, body),
    };
    let mut line = serde_json::to_vec(&head).map_err(|error| failed()(error.into()))?;
    line.push(b'\n');
    let file = disk.create(TEMPORARY).map_err(failed())?;
    let written = file
        .write_at(&line, 0)
        .and_then(|()| file.write_at(body, line.len() as u64))
        .and_then(|()| file.sync());
    if let Err(error) = written {
        // The old checkpoint holds; a start removes what is left of this one.
        let _ = disk.remove(TEMPORARY);
        return Err(failed()(error));
    }
    disk.rename(TEMPORARY, PATH).map_err(failed())?;
    disk.sync_dir("").map_err(failed())
}

/// Reads the checkpoint, if there is one.
pub fn read(disk: &dyn Disk) -> Result<Found, Error> {
    let bytes = match read_all(disk, PATH) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(Error::io("reading the checkpoint")(error)),
    };
    let unusable = |why: &str| Ok(Found::Unusable(why.to_owned()));
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return unusable("its first line is not whole");
    };
    let Ok(head) = serde_json::from_slice::<Head>(&bytes[..end]) else {
        return unusable("its first line is damaged");
    };
    if head.format != FORMAT || head.version != VERSION {
        return unusable("it was written by another version");
    }
    let body = &bytes[end + 1..];
    if body.len() as u64 != head.bytes || checksum(head.sequence, body) != head.crc32 {
        return unusable("its contents are damaged");
    }
    Ok(Found::Valid(Checkpoint { sequence: head.sequence, start: end + 1, bytes }))
}

/// CRC-32 of the sequence (little-endian) and the body, as eight hex digits.
fn checksum(sequence: u64, body: &[u8]) -> String {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&sequence.to_le_bytes());
    hasher.update(body);
    format!("{:08x}", hasher.finalize())
}

/// Removes what an interrupted write left.
pub fn tidy(disk: &dyn Disk) -> Result<(), Error> {
    match disk.remove(TEMPORARY) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("removing checkpoint.tmp")(error))
        }
        _ => Ok(()),
    }
}
