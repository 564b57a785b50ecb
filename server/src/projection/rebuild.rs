//! Making the state anew from the logs of all agents, where there is no usable checkpoint.

use std::collections::{BTreeMap, BTreeSet};

use super::log::each_line;
use super::{DIR, Error, Extents, session_dir};
use crate::journal::{self, Disk};
use crate::model::{Commit, Entry, Event, SessionId, State};

/// What the logs came to.
pub struct Rebuild {
    /// The state at the last event of the logs, or of their part without gaps.
    pub state: State,
    /// How long the files are at that point. Transcripts were written anew.
    pub extents: Extents,
    /// Damaged logs as they were set aside, relative to the home. Their agents are what the lines
    /// before the damage made them.
    pub damaged: Vec<String>,
}

/// Events that are merged at once.
const WINDOW: u64 = 16_384;

/// Folds all logs, in the order of their sequences.
///
/// `journal_first` is the first sequence that the journal holds, if it holds any: the logs must
/// reach up to it without a gap.
///
/// # Errors
///
/// [`Error::Damaged`] where an event is in no log although none was deleted.
pub fn rebuild(disk: &dyn Disk, journal_first: Option<u64>) -> Result<Rebuild, Error> {
    let logs = Logs::find(disk)?;
    let mut state = State::default();
    let mut extents = Extents::new();
    let mut transcripts: BTreeMap<SessionId, u64> = BTreeMap::new();
    let mut missing = 0;
    let mut from = 1;
    let end = journal_first.unwrap_or(u64::MAX);
    while from < end {
        let window = logs.read(disk, from, end.min(from.saturating_add(WINDOW)))?;
        if window.is_empty() {
            match logs.next_after(disk, from)? {
                Some(next) if next < end => {
                    missing += next - from;
                    from = next;
                    continue;
                }
                _ => break,
            }
        }
        let mut commit = Commit::default();
        for (entry, line) in window {
            missing += entry.seq - from;
            from = entry.seq + 1;
            let extent = extents.entry(entry.session).or_default();
            extent.events += line.len() as u64;
            state.apply(&entry);
            commit.push(&state, entry, line.into());
        }
        write_transcripts(disk, &mut transcripts, &commit)?;
    }
    for (session, length) in transcripts {
        extents.entry(Some(session)).or_default().transcript = length;
    }
    if let Some(first) = journal_first {
        missing += first.saturating_sub(from);
    }
    let deleted = logs.deleted;
    if missing > deleted && logs.damaged.is_empty() {
        let problem = format!("{} events are in no log and not in the journal", missing - deleted);
        return Err(Error::Damaged { file: DIR.to_owned(), problem });
    }
    Ok(Rebuild { state, extents, damaged: logs.damaged })
}

fn write_transcripts(
    disk: &dyn Disk,
    lengths: &mut BTreeMap<SessionId, u64>,
    commit: &Commit,
) -> Result<(), Error> {
    let mut texts: BTreeMap<SessionId, String> = BTreeMap::new();
    for (session, text) in &commit.transcript {
        texts.entry(*session).or_default().push_str(text);
    }
    for (session, text) in texts {
        let path = super::transcript_path(session);
        let failed = || journal::Error::io(format!("writing {path}"));
        let at = lengths.entry(session).or_insert(0);
        let file = if *at == 0 { disk.create(&path) } else { disk.open(&path) };
        file.map_err(failed())?.write_at(text.as_bytes(), *at).map_err(failed())?;
        *at += text.len() as u64;
    }
    Ok(())
}

/// Keeps a damaged log under another name; the lines before the damage, `end` bytes, go on.
fn set_aside(disk: &dyn Disk, session: Option<SessionId>, end: u64) -> Result<String, Error> {
    let path = super::events_path(session);
    let failed = || journal::Error::io(format!("setting {path} aside"));
    let mut bytes = journal::disk::read_all(disk, &path).map_err(failed())?;
    bytes.truncate(usize::try_from(end).unwrap_or(usize::MAX));
    let dir = session.map_or_else(String::new, session_dir);
    let names = disk.list(&dir).map_err(failed())?;
    let taken = names.iter().filter(|name| name.starts_with("events.jsonl.damaged")).count();
    let aside = format!("{path}.damaged-{}", taken + 1);
    disk.rename(&path, &aside).map_err(failed())?;
    let file = disk.create(&path).map_err(failed())?;
    file.write_at(&bytes, 0).map_err(failed())?;
    file.sync().map_err(failed())?;
    disk.sync_dir(&dir).map_err(failed())?;
    Ok(aside)
}

struct Logs {
    spans: BTreeMap<Option<SessionId>, (u64, u64)>,
    /// Logs that were set aside.
    damaged: Vec<String>,
    /// Events of sessions that were deleted with their logs.
    deleted: u64,
}

impl Logs {
    fn find(disk: &dyn Disk) -> Result<Self, Error> {
        let names = match disk.list(DIR) {
            Ok(names) => names,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(journal::Error::io("listing agents")(error).into()),
        };
        let sessions = names.iter().filter_map(|name| name.parse().ok()).map(Some);
        let mut logs = Self { spans: BTreeMap::new(), damaged: Vec::new(), deleted: 0 };
        let all: BTreeSet<Option<SessionId>> = sessions.chain([None]).collect();
        for session in all {
            logs.look_at(disk, session)?;
        }
        Ok(logs)
    }

    /// Notes what a log spans, and whether it is whole.
    fn look_at(&mut self, disk: &dyn Disk, session: Option<SessionId>) -> Result<(), Error> {
        let (mut first, mut last, mut whole) = (0, 0, true);
        let mut deleted = 0;
        let end = each_line(disk, session, |line| match Entry::decode(line) {
            Ok(entry) if entry.seq > last && entry.session == session => {
                if first == 0 {
                    first = entry.seq;
                }
                last = entry.seq;
                if let Event::SessionDeleted(data) = &entry.event {
                    deleted += data.events;
                }
                true
            }
            _ => {
                whole = false;
                false
            }
        })
        .map_err(journal::Error::io("reading a log"))?;
        self.deleted += deleted;
        if !whole {
            self.damaged.push(set_aside(disk, session, end)?);
        }
        if first > 0 {
            self.spans.insert(session, (first, last));
        }
        Ok(())
    }

    /// The events from `from` on and below `end`, in order.
    fn read(&self, disk: &dyn Disk, from: u64, end: u64) -> Result<Vec<(Entry, Vec<u8>)>, Error> {
        let spans: Vec<super::Span> = self
            .spans
            .iter()
            .map(|(session, (first, last))| super::Span {
                session: *session,
                first: *first,
                last: *last,
            })
            .collect();
        super::read_merged(disk, &spans, from, end)
            .map_err(|error| journal::Error::io("reading the logs")(error).into())
    }

    /// The first sequence at or after `from` that some log has.
    fn next_after(&self, disk: &dyn Disk, from: u64) -> Result<Option<u64>, Error> {
        let mut next = None;
        for (session, (_, last)) in &self.spans {
            if *last < from {
                continue;
            }
            each_line(disk, *session, |line| match Entry::decode(line) {
                Ok(entry) if entry.seq < from => true,
                Ok(entry) => {
                    next = Some(next.map_or(entry.seq, |found: u64| found.min(entry.seq)));
                    false
                }
                Err(_) => false,
            })
            .map_err(journal::Error::io("reading a log"))?;
        }
        Ok(next)
    }
}
