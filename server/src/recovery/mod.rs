//! From what a disk holds to a daemon that can serve, in phases that cannot be skipped: each
//! consumes the one before.
//!
//! ```text
//! scan ─► Scanned ─replay─► Replayed ─reconcile─► Recovered
//!  reads only        │ cuts a torn tail,   │ writes what the end of the
//!                    │ mends projections   │ daemon before left open
//! ```

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::journal::{self, Disk, End, Pending, Scan, Writer, checkpoint};
use crate::model::{
    BadLine, Commit, Context, DaemonStarted, Effect, Entry, Event, Reconciliation, SessionId,
    State, Transaction, reconcile, settle,
};
use crate::projection::{self, Extents, Projector};

/// Why a daemon cannot start from what the disk holds. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// Projections cannot be used where they are needed.
    #[error(transparent)]
    Projection(#[from] projection::Error),
    /// An event of the journal does not read back.
    #[error("event {sequence} of the journal cannot be read: {error}")]
    Event {
        /// Its sequence.
        sequence: u64,
        /// What is wrong.
        error: BadLine,
    },
    /// There are agents, but neither a journal nor a checkpoint.
    #[error("the journal is missing, but there are logs of agents")]
    JournalMissing,
}

/// What recovery found and did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// Whether the daemon before stopped cleanly, or there was none.
    pub clean: bool,
    /// Sequence of the checkpoint; 0 when there was none that could be used.
    pub checkpoint: u64,
    /// Events applied after it.
    pub replayed: u64,
    /// Why the state was made anew from the logs of all agents, if it was.
    pub rebuilt: Option<String>,
    /// Bytes cut off a torn tail.
    pub torn_bytes: u64,
    /// Projections that were completed or mended.
    pub repaired_projections: u32,
    /// Turns that were interrupted.
    pub interrupted_turns: u32,
    /// Tool calls whose outcome is unknown.
    pub orphaned_calls: u32,
    /// Messages that went back to their inboxes.
    pub returned_messages: u32,
    /// Damaged folders and logs that were set aside, relative to the home.
    pub quarantined: Vec<String>,
}

/// Settings of a recovery.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Those of the journal.
    pub journal: journal::Options,
    /// Most files of projections that are kept open.
    pub max_open_files: usize,
}

/// The disk was read, and nothing written. The journal is whole but for a torn tail.
pub struct Scanned {
    disk: Arc<dyn Disk>,
    options: Options,
    start: Start,
    scan: Scan,
}

/// Where the fold starts from.
enum Start {
    /// Nothing, or the beginning of the journal.
    Beginning,
    Checkpoint(checkpoint::Checkpoint),
    /// The logs of all agents, up to the journal's first event.
    Logs {
        journal_first: u64,
        why: String,
    },
}

/// Reads what is there. Writes nothing.
///
/// # Errors
///
/// Damage to what was acknowledged, with file and offset.
pub fn scan(disk: Arc<dyn Disk>, options: Options) -> Result<Scanned, Error> {
    let first = journal::first_sequence(&*disk)?;
    let found = checkpoint::read(&*disk)?;
    let (start, after) = match (found, first) {
        (checkpoint::Found::Valid(checkpoint), _) => {
            let after = checkpoint.sequence;
            (Start::Checkpoint(checkpoint), after)
        }
        (checkpoint::Found::Nothing, None) if has_logs(&*disk)? => {
            return Err(Error::JournalMissing);
        }
        (checkpoint::Found::Unusable(_), None) => return Err(Error::JournalMissing),
        (_, None | Some(1)) => (Start::Beginning, 0),
        (found, Some(journal_first)) => {
            let why = match found {
                checkpoint::Found::Unusable(why) => format!("the checkpoint is unusable: {why}"),
                _ => "the checkpoint is missing".to_owned(),
            };
            (Start::Logs { journal_first, why }, journal_first - 1)
        }
    };
    let scan = journal::scan::<Error>(&*disk, after, |_| Ok(()))?;
    Ok(Scanned { disk, options, start, scan })
}

fn has_logs(disk: &dyn Disk) -> Result<bool, journal::Error> {
    match disk.list(projection::DIR) {
        Ok(names) => Ok(!names.is_empty()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(journal::Error::io("listing agents")(error)),
    }
}

impl Scanned {
    /// Whether the journal ends with a torn write.
    pub fn is_torn(&self) -> bool {
        self.scan.end != End::Clean
    }

    /// Cuts off a torn tail, applies every event, and brings projections up to date.
    pub fn replay(self) -> Result<Replayed, Error> {
        let Self { disk, options, start, mut scan } = self;
        let mut report = Report::default();
        if let End::Torn { segment, offset, bytes } = scan.end {
            report.torn_bytes = bytes;
            let file = journal::segment_path(segment);
            tracing::warn!(file, offset, bytes, "cutting off a write that was never acknowledged");
        }
        checkpoint::tidy(&*disk)?;
        journal::repair(&*disk, &mut scan)?;
        let (state, extents) = load(&*disk, start, &mut report)?;
        let after = state.seq();
        let mut replay = Replay {
            state,
            projector: Projector::new(disk.clone(), extents, options.max_open_files),
            commit: Commit::default(),
            bytes: 0,
            touched: BTreeSet::new(),
        };
        journal::scan::<Error>(&*disk, after, |entry| replay.take(entry.bytes))?;
        let (state, projector) = replay.finish()?;
        report.replayed = state.seq() - after;
        report.repaired_projections = projector.repaired() as u32;
        report.quarantined.extend(projector.quarantined().iter().cloned());
        report.clean = state.is_clean();
        let writer = Writer::open(disk, options.journal, &scan)?;
        Ok(Replayed { state, projector, writer, report })
    }
}

/// The state that the fold starts from, and how long the projections are at it.
fn load(disk: &dyn Disk, start: Start, report: &mut Report) -> Result<(State, Extents), Error> {
    let (first, why) = match start {
        Start::Beginning => return Ok(Default::default()),
        Start::Logs { journal_first, why } => (journal_first, why),
        Start::Checkpoint(checkpoint) => match projection::read_body(checkpoint.body()) {
            Ok(loaded) => {
                report.checkpoint = checkpoint.sequence;
                return Ok(loaded);
            }
            // Its checksum holds, so another version wrote it.
            Err(error) => {
                (checkpoint.sequence + 1, format!("the checkpoint does not read: {error}"))
            }
        },
    };
    tracing::warn!(why, "making the state anew from the logs of all agents");
    report.rebuilt = Some(why);
    let rebuilt = projection::rebuild(disk, Some(first))?;
    report.quarantined.extend(rebuilt.damaged);
    Ok((rebuilt.state, rebuilt.extents))
}

/// Bytes of events that are applied before projections are written.
const WINDOW: usize = 16 << 20;

struct Replay {
    state: State,
    projector: Projector,
    commit: Commit,
    bytes: usize,
    touched: BTreeSet<Option<SessionId>>,
}

impl Replay {
    /// Applies the lines of a journal entry.
    fn take(&mut self, lines: &[u8]) -> Result<(), Error> {
        let text = bytes::Bytes::copy_from_slice(lines);
        let mut start = 0;
        while let Some(length) = lines[start..].iter().position(|byte| *byte == b'\n') {
            let line = text.slice(start..=start + length);
            start += length + 1;
            let entry = Entry::decode(&line)
                .map_err(|error| Error::Event { sequence: self.state.seq() + 1, error })?;
            self.state.apply(&entry);
            self.touched.insert(entry.session);
            self.commit.push(&self.state, entry, line);
        }
        self.bytes += lines.len();
        if self.bytes >= WINDOW {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.projector.push(&std::mem::take(&mut self.commit));
        self.bytes = 0;
        Ok(self.projector.flush()?)
    }

    fn finish(mut self) -> Result<(State, Projector), Error> {
        self.flush()?;
        self.touched
            .retain(|session| session.is_none_or(|session| self.state.agent_of(session).is_some()));
        self.projector.cut_left_overs(&self.touched)?;
        Ok((self.state, self.projector))
    }
}

/// Everything acknowledged is applied, and the projections hold it.
pub struct Replayed {
    state: State,
    projector: Projector,
    writer: Writer,
    report: Report,
}

/// A daemon can serve from here.
pub struct Recovered {
    /// The state.
    pub state: State,
    /// What is to be done in the world because of what was found.
    pub effects: Vec<Effect>,
    /// The journal, ready to append.
    pub writer: Writer,
    /// The projections, up to date.
    pub projector: Projector,
    /// What was found and done.
    pub report: Report,
}

impl Replayed {
    /// The state as the journal has it.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Puts right what the end of the daemon before left open, and makes that durable.
    pub fn reconcile(self, cx: &mut Context<'_>, version: &str) -> Result<Recovered, Error> {
        let Self { mut state, mut projector, mut writer, mut report } = self;
        let Reconciliation { mut events, interrupted_turns, orphaned_calls, returned_messages } =
            reconcile(&state, cx);
        (report.interrupted_turns, report.orphaned_calls) = (interrupted_turns, orphaned_calls);
        report.returned_messages = returned_messages;
        events.push((None, Event::from(DaemonStarted { version: version.to_owned() })));
        let first = state.seq() + 1;
        let Transaction { entries, effects, .. } = settle(&mut state, cx, events);
        let mut lines = Vec::new();
        let mut commit = Commit::default();
        let count = entries.len() as u32;
        for entry in entries {
            let start = lines.len();
            entry.encode(&mut lines);
            let text = bytes::Bytes::copy_from_slice(&lines[start..]);
            commit.push(&state, entry, text);
        }
        let mut pending = Pending::default();
        if !pending.push(first, &lines, count) {
            let error = std::io::ErrorKind::FileTooLarge.into();
            return Err(journal::Error::io("recording the recovery")(error).into());
        }
        while let Some(plan) = writer.needs(&pending) {
            writer.adopt(plan.prepare()?);
        }
        writer.commit(&mut pending)?;
        projector.push(&commit);
        projector.flush()?;
        Ok(Recovered { state, effects, writer, projector, report })
    }
}
