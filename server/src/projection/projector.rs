//! Appending to projections, live and in recovery.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap};
use serde::{Deserialize, Serialize};

use super::{BOOT_PATH, Cut, DIR, Error, Marks, events_path, session_dir, transcript_path};
use crate::journal::{self, Disk, DiskFile};
use crate::model::{Commit, SessionId, SessionRecord};

/// How long the files of one log are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Extent {
    /// Bytes of `events.jsonl`.
    pub events: u64,
    /// Bytes of `transcript.txt`.
    pub transcript: u64,
}

/// How long all files are at a sequence; the daemon's own log is under none.
pub type Extents = BTreeMap<Option<SessionId>, Extent>;

/// What one log is written with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Events,
    Transcript,
}

type Key = (Option<SessionId>, Kind);

/// An open file and what is known of it.
struct Open {
    file: Box<dyn DiskFile>,
    /// Bytes of the file. What lies beyond its extent is left over from before a crash.
    size: u64,
}

/// What is to be written.
#[derive(Default)]
struct Pending {
    texts: IndexMap<Key, Vec<u8>, FxBuildHasher>,
    records: BTreeMap<SessionId, SessionRecord>,
    removed: BTreeSet<SessionId>,
}

/// Files that are brought up to date after a start.
#[derive(Default)]
struct Recovery {
    /// The run of the machine; empty if it is not known.
    boot: String,
    /// Whether the files were right in this run of the machine already: they hold what was
    /// written since, and only how much of it that is has to be looked at.
    same_boot: bool,
    /// Files that were appended to, and how long they are.
    sizes: FxHashMap<Key, u64>,
    touched: Vec<Key>,
}

/// Appends to the files of all logs.
pub struct Projector {
    disk: Arc<dyn Disk>,
    extents: Extents,
    open: BTreeMap<Key, Open>,
    /// Open files, the one used longest ago first.
    order: VecDeque<Key>,
    max_open: usize,
    pending: Pending,
    dirty_files: BTreeSet<String>,
    dirty_dirs: BTreeSet<String>,
    /// Files that the daemon before may have made, and died before they were synced: dirty with
    /// the folders that lead to them.
    unsynced: BTreeSet<Key>,
    /// What is known of the files while they are brought up to date.
    recovery: Option<Recovery>,
    /// Files that were found to differ from what they should be.
    repaired: BTreeSet<Key>,
    /// Folders that were set aside, relative to the home.
    quarantined: Vec<String>,
}

impl Projector {
    /// Goes on where the files were this long. At most `max_open` files are kept open.
    pub fn new(disk: Arc<dyn Disk>, extents: Extents, max_open: usize) -> Self {
        Self {
            disk,
            extents,
            open: BTreeMap::new(),
            order: VecDeque::new(),
            max_open: max_open.max(2),
            pending: Pending::default(),
            dirty_files: BTreeSet::new(),
            dirty_dirs: BTreeSet::new(),
            unsynced: BTreeSet::new(),
            recovery: None,
            repaired: BTreeSet::new(),
            quarantined: Vec::new(),
        }
    }

    /// Begins to bring the files up to date: what is pushed from here on may be in them already.
    /// If they were right once in this run of the machine, which `boot` names, that is known from
    /// their lengths.
    pub fn begin_recovery(&mut self, boot: &str) {
        let known = journal::disk::read_all(&*self.disk, BOOT_PATH);
        let same_boot = !boot.is_empty() && known.is_ok_and(|known| known == boot.as_bytes());
        self.recovery = Some(Recovery { boot: boot.to_owned(), same_boot, ..Recovery::default() });
    }

    /// Writes what is missing, and cuts off what files hold beyond what was pushed. Can be called
    /// again after an error.
    pub fn end_recovery(&mut self) -> Result<(), Error> {
        self.flush()?;
        let touched = self.recovery.as_ref().map(|recovery| recovery.touched.clone());
        for key in touched.unwrap_or_default() {
            self.cut_left_over(key)?;
        }
        if let Some(recovery) = self.recovery.take()
            && let Err(error) = self.note_boot(&recovery)
        {
            self.recovery = Some(recovery);
            return Err(error);
        }
        Ok(())
    }

    /// Notes that the files are right in this run of the machine. Needs no sync: the next run has
    /// another name.
    fn note_boot(&self, recovery: &Recovery) -> Result<(), Error> {
        if recovery.same_boot || recovery.boot.is_empty() {
            return Ok(());
        }
        let failed = || journal::Error::io(format!("writing {BOOT_PATH}"));
        let file = self.disk.create(BOOT_PATH).map_err(failed())?;
        file.write_at(recovery.boot.as_bytes(), 0).map_err(failed())?;
        Ok(())
    }

    /// An event log that holds an event after `last`, and the sequence of that event.
    ///
    /// Logs are written after the journal, so what they hold beyond it was lost from it. Called
    /// when all of the journal was pushed, and nothing else.
    pub fn ahead_of(&self, last: u64) -> Result<Option<(String, u64)>, Error> {
        let known = self.extents.keys().copied();
        let new = self.pending.texts.keys().map(|(session, _)| *session);
        for session in known.chain(new).chain([None]) {
            let key = (session, Kind::Events);
            let pending = self.pending.texts.get(&key).map_or(0, Vec::len) as u64;
            let (end, path) = (self.extent(key) + pending, path_of(key));
            if self.disk.size(&path).is_ok_and(|size| size > end) {
                let failed = journal::Error::io(format!("reading {path}"));
                let found = super::log::sequence_after(&*self.disk, session, end, last);
                if let Some(sequence) = found.map_err(failed)? {
                    return Ok(Some((path, sequence)));
                }
            }
        }
        Ok(None)
    }

    /// How long the files are.
    pub fn extents(&self) -> &Extents {
        &self.extents
    }

    /// Folders that were set aside because a file in them was shorter than it had durably been.
    pub fn quarantined(&self) -> &[String] {
        &self.quarantined
    }

    /// How many files differed from what they should be.
    pub fn repaired(&self) -> usize {
        self.repaired.len()
    }

    /// Takes what became durable. Commits come in order; [`Projector::flush`] writes them.
    pub fn push(&mut self, commit: &Commit) {
        for line in &commit.lines {
            self.push_text((line.entry.session, Kind::Events), &line.text);
        }
        for (session, text) in &commit.transcript {
            self.push_text((Some(*session), Kind::Transcript), text.as_bytes());
        }
        let records = commit.sessions.iter().map(|(id, record)| (*id, record.clone()));
        self.pending.records.extend(records);
        self.pending.removed.extend(&commit.removed);
    }

    fn push_text(&mut self, key: Key, text: &[u8]) {
        if let Some(waiting) = self.pending.texts.get_mut(&key) {
            return waiting.extend_from_slice(text);
        }
        if self.recovery.is_some() && self.is_there(key, text.len() as u64) {
            return;
        }
        self.pending.texts.insert(key, text.to_vec());
    }

    /// Whether a file is known to hold the next bytes already; notes it then.
    fn is_there(&mut self, key: Key, length: u64) -> bool {
        let Some(recovery) = &mut self.recovery else { return false };
        let size = *recovery.sizes.entry(key).or_insert_with(|| {
            recovery.touched.push(key);
            self.disk.size(&path_of(key)).unwrap_or(0)
        });
        let same_boot = recovery.same_boot;
        let end = self.extent(key) + length;
        let there = same_boot && end <= size;
        if there {
            self.unsynced.insert(key);
            self.set_extent(key, end);
        }
        there
    }

    /// Bytes that were taken and are not written yet.
    pub fn pending_bytes(&self) -> usize {
        self.pending.texts.values().map(Vec::len).sum()
    }

    /// Writes what was taken, but for session records. After an error, what was not written is
    /// still there: when there is space again, it can be called again.
    pub fn flush(&mut self) -> Result<(), Error> {
        while let Some((key, text)) = self.pending.texts.pop() {
            if let Err(error) = self.append_to(key, &text) {
                self.pending.texts.insert(key, text);
                return Err(error);
            }
        }
        while let Some(session) = self.pending.removed.pop_first() {
            self.pending.records.remove(&session);
            if let Err(error) = self.remove(session) {
                self.pending.removed.insert(session);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes one session record that waits; false if none does.
    ///
    /// A session may change many times before its record is written: only how it stands then is.
    /// Records take no part in recovery, and replacing a file is slow, so they wait for a quiet
    /// moment.
    pub fn flush_record(&mut self) -> Result<bool, Error> {
        let Some((id, record)) = self.pending.records.pop_first() else { return Ok(false) };
        if let Err(error) = self.write_record(id, &record) {
            self.pending.records.insert(id, record);
            return Err(error);
        }
        Ok(true)
    }

    fn records_behind(&self) -> BTreeSet<SessionId> {
        self.pending.records.keys().copied().collect()
    }

    /// Takes session records that may differ from what is on the disk.
    pub fn check_records(&mut self, records: impl IntoIterator<Item = SessionRecord>) {
        self.pending.records.extend(records.into_iter().map(|record| (record.id, record)));
    }

    fn append_to(&mut self, key: Key, text: &[u8]) -> Result<(), Error> {
        let path = path_of(key);
        let failed = || journal::Error::io(format!("appending to {path}"));
        let mut at = self.extent(key);
        let there = self.open.contains_key(&key) || self.disk.size(&path).is_ok();
        if self.open_file(key)?.size < at {
            if there && self.recovery.is_none() {
                // What is missing may still be in the journal: for the next start to find out.
                let problem = "it became shorter while it was being written".to_owned();
                return Err(Error::Damaged { file: path, problem });
            }
            self.quarantine(key.0)?;
            at = 0;
        }
        let open = self.open_file(key)?;
        let kept = if open.size > at { kept(&*open.file, at, text).map_err(failed())? } else { 0 };
        let end = at + text.len() as u64;
        if kept < text.len() {
            let left_over = open.size > at + kept as u64;
            if left_over {
                open.file.set_size(at + kept as u64).map_err(failed())?;
            }
            open.file.write_at(&text[kept..], at + kept as u64).map_err(failed())?;
            open.size = end;
            self.dirty_files.insert(path);
            if left_over {
                self.repaired.insert(key);
            }
        }
        if self.recovery.is_some() {
            self.unsynced.insert(key);
        }
        self.set_extent(key, end);
        Ok(())
    }

    fn set_extent(&mut self, key: Key, end: u64) {
        let extent = self.extents.entry(key.0).or_default();
        match key.1 {
            Kind::Events => extent.events = end,
            Kind::Transcript => extent.transcript = end,
        }
    }

    /// Cuts off what a file holds beyond what was appended to it. Only a file that was appended to
    /// can hold more.
    fn cut_left_over(&mut self, key: Key) -> Result<(), Error> {
        let (at, path) = (self.extent(key), path_of(key));
        if self.disk.size(&path).is_ok_and(|size| size <= at) || !self.extents.contains_key(&key.0)
        {
            return Ok(());
        }
        let open = self.open_file(key)?;
        if open.size > at {
            let failed = journal::Error::io(format!("cutting {path}"));
            open.file.set_size(at).map_err(failed)?;
            open.size = at;
            self.dirty_files.insert(path);
            self.repaired.insert(key);
        }
        Ok(())
    }

    fn extent(&self, key: Key) -> u64 {
        let extent = self.extents.get(&key.0).copied().unwrap_or_default();
        match key.1 {
            Kind::Events => extent.events,
            Kind::Transcript => extent.transcript,
        }
    }

    /// The open file of a log; opened, and created if it is not there.
    fn open_file(&mut self, key: Key) -> Result<&mut Open, Error> {
        if !self.open.contains_key(&key) {
            while self.open.len() >= self.max_open {
                let Some(oldest) = self.order.pop_front() else { break };
                self.open.remove(&oldest);
            }
            let opened = self.open_or_create(key)?;
            self.open.insert(key, opened);
            self.order.push_back(key);
        }
        // It is there now.
        self.open.get_mut(&key).ok_or_else(|| {
            let error = io::Error::other("an open file vanished");
            journal::Error::io(path_of(key))(error).into()
        })
    }

    fn open_or_create(&mut self, key: Key) -> Result<Open, Error> {
        let path = path_of(key);
        let failed = || journal::Error::io(format!("opening {path}"));
        let file = match self.disk.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.create_dir(key.0)?;
                self.dirty_dirs.insert(key.0.map_or_else(String::new, session_dir));
                self.disk.create(&path).map_err(failed())?
            }
            Err(error) => return Err(failed()(error).into()),
        };
        let size = file.size().map_err(failed())?;
        Ok(Open { file, size })
    }

    fn create_dir(&mut self, session: Option<SessionId>) -> Result<(), Error> {
        let Some(session) = session else { return Ok(()) };
        let dir = session_dir(session);
        self.disk.create_dir(DIR).map_err(journal::Error::io("creating agents"))?;
        self.disk.create_dir(&dir).map_err(journal::Error::io(format!("creating {dir}")))?;
        self.dirty_dirs.extend([String::new(), DIR.to_owned(), dir]);
        Ok(())
    }

    /// Sets the folder of a session aside, whose files are shorter than they durably were: someone
    /// or something damaged it. The session goes on with an empty log.
    fn quarantine(&mut self, session: Option<SessionId>) -> Result<(), Error> {
        self.forget(session);
        self.extents.insert(session, Extent::default());
        let (from, parent) = match session {
            Some(session) => (session_dir(session), DIR.to_owned()),
            None => (events_path(None), String::new()),
        };
        let names = self.disk.list(&parent).map_err(journal::Error::io("listing a folder"))?;
        let name = from.rsplit('/').next().unwrap_or(&from);
        let aside = (1..)
            .map(|number| format!("{name}.damaged-{number}"))
            .find(|aside| !names.contains(aside))
            .unwrap_or_else(|| format!("{name}.damaged"));
        let to = if parent.is_empty() { aside } else { format!("{parent}/{aside}") };
        match self.disk.rename(&from, &to) {
            Ok(()) => {
                tracing::error!(folder = from, aside = to, "a log is shorter than it was");
                self.quarantined.push(to);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::error!(folder = from, "a log is gone");
                self.quarantined.push(from);
            }
            Err(error) => {
                return Err(journal::Error::io(format!("setting {from} aside"))(error).into());
            }
        }
        self.dirty_dirs.insert(parent);
        Ok(())
    }

    fn forget(&mut self, session: Option<SessionId>) {
        for kind in [Kind::Events, Kind::Transcript] {
            self.open.remove(&(session, kind));
            self.unsynced.remove(&(session, kind));
            self.dirty_files.remove(&path_of((session, kind)));
        }
        self.order.retain(|(other, _)| *other != session);
    }

    /// Replaces `session.json`, unless it is as it should be.
    fn write_record(&mut self, id: SessionId, record: &SessionRecord) -> Result<(), Error> {
        let dir = session_dir(id);
        let path = format!("{dir}/session.json");
        let failed = || journal::Error::io(format!("writing {path}"));
        let mut json = serde_json::to_vec_pretty(record).map_err(|error| failed()(error.into()))?;
        json.push(b'\n');
        if journal::disk::read_all(&*self.disk, &path).is_ok_and(|there| there == json) {
            // The daemon before may have written it, and died before it was synced.
            self.dirty_files.insert(path);
            self.dirty_dirs.insert(dir);
            return Ok(());
        }
        let temporary = format!("{path}.tmp");
        let file = match self.disk.create(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.create_dir(Some(id))?;
                self.disk.create(&temporary)
            }
            other => other,
        };
        file.map_err(failed())?.write_at(&json, 0).map_err(failed())?;
        self.disk.rename(&temporary, &path).map_err(failed())?;
        self.dirty_files.insert(path);
        self.dirty_dirs.insert(dir);
        Ok(())
    }

    fn remove(&mut self, session: SessionId) -> Result<(), Error> {
        self.forget(Some(session));
        self.extents.remove(&Some(session));
        let dir = session_dir(session);
        self.disk.remove_dir(&dir).map_err(journal::Error::io(format!("removing {dir}")))?;
        self.dirty_files.retain(|path| !path.starts_with(&dir));
        self.dirty_dirs.remove(&dir);
        self.dirty_dirs.insert(DIR.to_owned());
        Ok(())
    }

    /// How the files stand, for a checkpoint at what was pushed last. Everything was flushed.
    ///
    /// A log that someone removed while it was open is noticed here: its session goes on with an
    /// empty one.
    pub fn cut(&mut self) -> Result<Cut, Error> {
        debug_assert_eq!(self.pending_bytes(), 0);
        let is_gone = |key: &&Key| {
            let size = self.disk.size(&path_of(**key));
            size.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        let gone: BTreeSet<Option<SessionId>> =
            self.open.keys().filter(is_gone).map(|(session, _)| *session).collect();
        for session in gone {
            self.quarantine(session)?;
        }
        let marks = Marks { extents: self.extents.clone(), records_behind: self.records_behind() };
        for key in std::mem::take(&mut self.unsynced) {
            self.dirty_files.insert(path_of(key));
            self.dirty_dirs.insert(String::new());
            if let Some(session) = key.0 {
                self.dirty_dirs.extend([DIR.to_owned(), session_dir(session)]);
            }
        }
        let files = std::mem::take(&mut self.dirty_files).into_iter().collect();
        let dirs = std::mem::take(&mut self.dirty_dirs).into_iter().collect();
        Ok(Cut { marks, files, dirs })
    }
}

fn path_of((session, kind): Key) -> String {
    match (session, kind) {
        (Some(session), Kind::Transcript) => transcript_path(session),
        (session, _) => events_path(session),
    }
}

/// How many bytes of `text` stand in the file at `at` already.
fn kept(file: &dyn DiskFile, at: u64, text: &[u8]) -> io::Result<usize> {
    let mut there = vec![0; text.len()];
    let mut filled = 0;
    while filled < there.len() {
        match file.read_at(&mut there[filled..], at + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(text.iter().zip(&there[..filled]).take_while(|(wanted, found)| wanted == found).count())
}
