//! Putting an import on the disk, so that it counts as a whole or not at all.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use super::Error;
use crate::journal::{self, Disk, DiskFile, Pending, Writer, checkpoint};
use crate::model::{Commit, Entry, Event, SessionId, Snapshot, State, Timestamp};
use crate::projection::{DIR, Projector};

/// Where the folders of the sessions are made, until they count.
const STAGED: &str = "agents.import";
/// What the old folders are called afterwards.
const KEPT: &str = "python-agents";
/// What a person can read of an import, relative to the home.
pub const REPORT_PATH: &str = "import-report.txt";
/// Bytes that may wait to be written.
const MAX_PENDING: usize = 16 << 20;

/// The name that the folder of the old sessions gets.
pub(super) fn free_name(disk: &dyn Disk) -> Result<String, journal::Error> {
    let names = disk.list("").map_err(journal::Error::io("listing the home"))?;
    let mut all =
        std::iter::once(KEPT.to_owned()).chain((2_u64..).map(|number| format!("{KEPT}-{number}")));
    Ok(all.find(|name| !names.contains(name)).unwrap_or_else(|| KEPT.to_owned()))
}

/// Ends an import that counts already: the new folders take the place of the old ones, which are
/// kept. One that does not count yet is removed.
pub fn finish(disk: &dyn Disk) -> Result<(), Error> {
    let names = disk.list("").map_err(journal::Error::io("listing the home"))?;
    let is_there = |wanted: &str| names.iter().any(|name| name == wanted);
    if !is_there(STAGED) {
        return Ok(());
    }
    let sync = || disk.sync_dir("").map_err(journal::Error::io("syncing the home"));
    if matches!(checkpoint::read(disk)?, checkpoint::Found::Nothing) {
        let failed = || journal::Error::io("removing an unfinished import");
        // The journal was empty when it began.
        disk.remove_dir(journal::DIR).map_err(failed())?;
        disk.create_dir(journal::DIR).map_err(failed())?;
        sync()?;
        disk.remove_dir(STAGED).map_err(failed())?;
        return Ok(sync()?);
    }
    // The checkpoint comes before all else, then each name before the next.
    sync()?;
    if is_there(DIR) {
        let kept = free_name(disk)?;
        disk.rename(DIR, &kept).map_err(journal::Error::io("keeping the old agents"))?;
        sync()?;
    }
    disk.rename(STAGED, DIR).map_err(journal::Error::io("naming the new agents"))?;
    Ok(sync()?)
}

/// Numbers events, applies them, and writes the logs.
pub(super) struct Store {
    disk: Arc<dyn Disk>,
    state: State,
    projector: Projector,
    commit: Commit,
    /// Lines for the journal, and the sequence of the first.
    lines: Vec<u8>,
    first: u64,
}

impl Store {
    pub(super) fn begin(disk: &Arc<dyn Disk>, max_open: usize) -> Result<Self, Error> {
        let failed = || journal::Error::io("making the folder of an import");
        disk.remove_dir(STAGED).map_err(failed())?;
        disk.create_dir(STAGED).map_err(failed())?;
        // So that what is made from here on is known for an unfinished import.
        disk.sync_dir("").map_err(failed())?;
        let staged: Arc<dyn Disk> = Arc::new(Staged(disk.clone()));
        Ok(Self {
            disk: disk.clone(),
            state: State::default(),
            projector: Projector::new(staged, Default::default(), max_open),
            commit: Commit::default(),
            lines: Vec::new(),
            first: 0,
        })
    }

    /// As [`Store::push`], for the last events: the journal, which must not end before the
    /// checkpoint, begins with them.
    pub(super) fn push_last(
        &mut self,
        at: Timestamp,
        event: impl Into<Event>,
    ) -> Result<(), Error> {
        let entry = Entry { seq: self.state.seq() + 1, session: None, at, event: event.into() };
        if self.lines.is_empty() {
            self.first = entry.seq;
        }
        entry.encode(&mut self.lines);
        self.push(None, at, entry.event)
    }

    pub(super) fn push(
        &mut self,
        session: Option<SessionId>,
        at: Timestamp,
        event: Event,
    ) -> Result<(), Error> {
        let entry = Entry { seq: self.state.seq() + 1, session, at, event };
        let mut line = Vec::new();
        entry.encode(&mut line);
        self.state.apply(&entry);
        self.commit.push(&self.state, entry, line.into());
        if self.commit.lines.len() >= 1024 {
            self.hand_over(MAX_PENDING)?;
        }
        Ok(())
    }

    fn hand_over(&mut self, limit: usize) -> Result<(), Error> {
        self.projector.push(&std::mem::take(&mut self.commit));
        if self.projector.pending_bytes() > limit {
            self.projector.flush()?;
        }
        Ok(())
    }

    /// Begins the journal with the last events.
    fn begin_journal(&self, options: journal::Options) -> Result<(), Error> {
        let mut scan = journal::scan::<Error>(&*self.disk, 0, |_| Ok(()))?;
        scan.next_sequence = self.first;
        let mut writer = Writer::open(self.disk.clone(), options, &scan)?;
        let mut pending = Pending::default();
        let count = self.state.seq() + 1 - self.first;
        if !pending.push(self.first, &self.lines, count as u32) {
            let error = io::ErrorKind::FileTooLarge.into();
            return Err(journal::Error::io("beginning the journal")(error).into());
        }
        while let Some(plan) = writer.needs(&pending) {
            writer.adopt(plan.prepare()?);
        }
        Ok(writer.commit(&mut pending)?)
    }

    /// Makes all of it durable, and lets it count.
    pub(super) fn commit(mut self, options: journal::Options, report: &str) -> Result<(), Error> {
        self.hand_over(0)?;
        while self.projector.flush_record()? {}
        let failed = || journal::Error::io(format!("writing {REPORT_PATH}"));
        let file = self.disk.create(REPORT_PATH).map_err(failed())?;
        file.write_at(report.as_bytes(), 0).and_then(|()| file.sync()).map_err(failed())?;
        let cut = self.projector.cut()?;
        let synced = cut.sync(&Staged(self.disk.clone()))?;
        self.disk.sync_dir("").map_err(journal::Error::io("syncing the home"))?;
        self.begin_journal(options)?;
        let mut state = Vec::new();
        Snapshot::write(&self.state, &mut state)
            .map_err(|error| journal::Error::io("writing the state")(error.into()))?;
        synced.write(&*self.disk, self.state.seq(), &state, 0)?;
        Ok(())
    }
}

/// The disk with the folder of the sessions elsewhere.
struct Staged(Arc<dyn Disk>);

fn staged(path: &str) -> Cow<'_, str> {
    match path.strip_prefix(DIR) {
        Some("") => STAGED.into(),
        Some(rest) if rest.starts_with('/') => format!("{STAGED}{rest}").into(),
        _ => path.into(),
    }
}

impl Disk for Staged {
    fn open(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.0.open(&staged(path))
    }

    fn create(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.0.create(&staged(path))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(&staged(from), &staged(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.0.remove(&staged(path))
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.0.create_dir(&staged(path))
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.0.remove_dir(&staged(path))
    }

    fn size(&self, path: &str) -> io::Result<u64> {
        self.0.size(&staged(path))
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.0.list(&staged(path))
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.0.sync_dir(&staged(path))
    }

    fn sync_many(&self, files: &[String], dirs: &[String]) -> io::Result<()> {
        let all = |paths: &[String]| -> Vec<String> {
            paths.iter().map(|path| staged(path).into_owned()).collect()
        };
        self.0.sync_many(&all(files), &all(dirs))
    }
}
