//! From what a disk holds to a daemon that can serve, in phases that cannot be skipped: each
//! consumes the one before.
//!
//! ```text
//! scan ─► Scanned ─replay─► Replayed ─reconcile─► Recovered
//!  reads only        │ cuts a torn tail,   │ writes what the end of the
//!                    │ applies the rest    │ daemon before left open
//! ```

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};

use crate::journal::{self, Disk, End, Pending, Scan, Writer, checkpoint};
use crate::model::{
    BadLine, Commit, Context, DaemonStarted, Draft, Effect, Entry, Event, Leftover, Reconciliation,
    SessionId, State, Transaction, effect, reconcile, settle,
};
use crate::projection::{self, Marks, Projector};

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
    /// A log has what the journal does not have any more, although the journal is written first.
    #[error(
        "the journal ends at event {last}, but {file} holds event {sequence}: \
         acknowledged events are missing from the journal"
    )]
    JournalBehind {
        /// Sequence of the last event in the journal.
        last: u64,
        /// The log, relative to the home.
        file: String,
        /// Sequence of an event in it.
        sequence: u64,
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
    /// Turns that were interrupted.
    pub interrupted_turns: u32,
    /// Tool calls whose outcome is unknown.
    pub orphaned_calls: u32,
    /// Messages that went back to their inboxes.
    pub returned_messages: u32,
    /// Damaged logs that were set aside while the state was made anew, relative to the home.
    pub quarantined: Vec<String>,
}

/// Settings of a recovery.
#[derive(Debug, Clone)]
pub struct Options {
    /// Those of the journal.
    pub journal: journal::Options,
    /// Most files of projections that are kept open.
    pub max_open_files: usize,
    /// What tells this run of the machine from others; empty if that is not known.
    pub boot: String,
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

    /// Cuts off a torn tail, and applies every event.
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
        let (state, marks) = load(&*disk, start, &mut report)?;
        let after = state.seq();
        let mut projector = Projector::new(disk.clone(), marks.extents, options.max_open_files);
        projector.begin_recovery(&options.boot);
        let replayed = replay(&scan, &*disk, state, projector, marks.records_behind)?;
        let Folded { state, projector, removals } = replayed;
        if let Some((file, sequence)) = projector.ahead_of(state.seq())? {
            return Err(Error::JournalBehind { last: state.seq(), file, sequence });
        }
        report.replayed = state.seq() - after;
        report.clean = state.is_clean();
        let writer = Writer::open(disk, options.journal, &scan)?;
        Ok(Replayed { state, projector, writer, report, told: Vec::new(), removals })
    }
}

/// The state that the fold starts from, and how long the projections are at it.
fn load(disk: &dyn Disk, start: Start, report: &mut Report) -> Result<(State, Marks), Error> {
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
    let records_behind = rebuilt.state.agents().map(|agent| agent.session.id).collect();
    Ok((rebuilt.state, Marks { extents: rebuilt.extents, records_behind }))
}

/// Bytes of lines that are handed to the projections at once.
const WINDOW: usize = 1 << 20;
/// Windows that may wait for the projections.
const WINDOWS: usize = 4;
/// Bytes that may be missing from projections before they are written.
const MAX_PENDING: usize = 16 << 20;

/// Applies the events after the state's, and hands them to the projections on another thread.
fn replay(
    scan: &Scan,
    disk: &dyn Disk,
    state: State,
    projector: Projector,
    records: BTreeSet<SessionId>,
) -> Result<Folded, Error> {
    std::thread::scope(|threads| {
        let (windows, queue) = mpsc::sync_channel::<Commit>(WINDOWS);
        let projections = threads.spawn(move || take_windows(projector, &queue));
        let (commit, removals) = (Commit::default(), Vec::new());
        let mut replay = Replay { state, commit, bytes: 0, windows, records, removals };
        let after = replay.state.seq();
        let replayed = scan.replay::<Error>(disk, after, |entry| replay.take(entry.bytes));
        replay.hand_over();
        let Replay { state, records, windows, removals, .. } = replay;
        drop(windows);
        let projector = match projections.join() {
            Ok(projector) => projector,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        replayed?;
        let mut projector = projector?;
        let records = records.iter().filter_map(|session| state.agent_of(*session));
        projector.check_records(records.map(|agent| agent.session.record()));
        Ok(Folded { state, projector, removals })
    })
}

fn take_windows(
    mut projector: Projector,
    queue: &mpsc::Receiver<Commit>,
) -> Result<Projector, projection::Error> {
    let mut failed = None;
    for commit in queue {
        if failed.is_none() {
            projector.push(&commit);
            if projector.pending_bytes() > MAX_PENDING {
                failed = projector.flush().err();
            }
        }
    }
    failed.map_or(Ok(projector), Err)
}

struct Replay {
    state: State,
    commit: Commit,
    bytes: usize,
    windows: mpsc::SyncSender<Commit>,
    /// Sessions whose records may not be as they should be.
    records: BTreeSet<SessionId>,
    removals: Vec<Effect>,
}

/// What came of a replay.
struct Folded {
    state: State,
    projector: Projector,
    /// What deletions ask for once more: a kill may have come before it was done.
    removals: Vec<Effect>,
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
            self.removals.extend(removal(&self.state, &entry));
            self.commit.push(&self.state, entry, line);
        }
        self.bytes += lines.len();
        if self.bytes >= WINDOW {
            self.hand_over();
        }
        Ok(())
    }

    fn hand_over(&mut self) {
        let mut commit = std::mem::take(&mut self.commit);
        self.records.extend(std::mem::take(&mut commit.sessions).into_keys());
        self.bytes = 0;
        // A thread that is gone tells why when it is joined.
        let _ = self.windows.send(commit);
    }
}

/// What the deletion of a workspace asks for in the world. The folder of one that lies in that of
/// another may since be somebody else's of the same name; the others are named by their workspace.
fn removal(state: &State, entry: &Entry) -> Option<Effect> {
    let Event::WorkspaceDeleted(data) = &entry.event else { return None };
    let lies_alone = data.root.split('/').count() == 2;
    lies_alone.then(|| effect(state, entry)).flatten()
}

/// Everything acknowledged is applied. The projections know what they miss.
pub struct Replayed {
    state: State,
    projector: Projector,
    writer: Writer,
    report: Report,
    /// What is to be told first.
    told: Vec<Draft>,
    removals: Vec<Effect>,
}

/// A daemon can serve from here.
pub struct Recovered {
    /// The state.
    pub state: State,
    /// What is to be done in the world because of what was found.
    pub effects: Vec<Effect>,
    /// The journal, ready to append.
    pub writer: Writer,
    /// The projections, still to be brought up to date with [`Projector::end_recovery`].
    pub projector: Projector,
    /// What was found and done.
    pub report: Report,
}

impl Replayed {
    /// The state as the journal has it.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Has the ends of processes told that the daemon before left.
    #[must_use]
    pub fn telling(mut self, leftovers: &[Leftover]) -> Self {
        self.told.extend(leftovers.iter().filter_map(|left| left.told(&self.state)));
        self
    }

    /// Puts right what the end of the daemon before left open, and makes that durable.
    pub fn reconcile(self, cx: &mut Context<'_>, version: &str) -> Result<Recovered, Error> {
        let Self { mut state, mut projector, mut writer, mut report, told, mut removals } = self;
        let mut events = told;
        let Reconciliation { events: found, interrupted_turns, orphaned_calls, returned_messages } =
            reconcile(&state, cx);
        (report.interrupted_turns, report.orphaned_calls) = (interrupted_turns, orphaned_calls);
        report.returned_messages = returned_messages;
        events.extend(found);
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
        removals.extend(effects);
        let effects = removals;
        Ok(Recovered { state, effects, writer, projector, report })
    }
}
