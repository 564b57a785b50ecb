//! The journal at work: a writer thread that commits everything that waits, and a thread that
//! prepares segments ahead.

use std::iter::Peekable;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::writer::{Pending, Plan, Prepared, Writer};
use super::{Error, segment_path};
use crate::journal::Disk;

/// How long to wait before a full disk is tried again.
const FULL_RETRY: Duration = Duration::from_secs(1);
/// What has to be left in the segment beside a record that is let in while the disk is full: some
/// hundred short ones may be decided before the first of them is appended.
const KEPT_ROOM: u64 = 256 << 10;
/// Largest record that is committed at once, unless one entry alone is larger.
const MAX_RECORD: usize = 16 << 20;

/// Resolves when the entry is durable, or to why it never will be.
pub type Completion = oneshot::Receiver<Result<(), Error>>;

/// How the journal is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// Sequence of the last durable event.
    pub durable: u64,
    /// Commits so far.
    pub commits: u64,
    /// Bytes that were committed so far.
    pub bytes: u64,
    /// Number of the segment that is being filled.
    pub segment: u32,
}

#[derive(Default)]
struct Queue {
    pending: Pending,
    more: std::collections::VecDeque<Pending>,
    waiters: Vec<Waiter>,
    closed: bool,
    failed: Option<Error>,
}

impl Queue {
    /// Takes everything that waits.
    fn take(&mut self, next: Pending) -> Work {
        let mut batches: Vec<Pending> = self.more.drain(..).collect();
        batches.push(std::mem::replace(&mut self.pending, next));
        (batches, std::mem::take(&mut self.waiters))
    }
}

#[derive(Default)]
struct Spares {
    wanted: Option<Plan>,
    ready: Option<Prepared>,
    failed: Option<Error>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    spares: Mutex<Spares>,
    spares_changed: Condvar,
    full: watch::Sender<bool>,
    queued_bytes: AtomicU64,
    durable: AtomicU64,
    commits: AtomicU64,
    bytes: AtomicU64,
    segment: AtomicU32,
    room: AtomicU64,
    #[cfg(any(test, feature = "sim"))]
    appended: tokio::sync::Notify,
}

impl Shared {
    /// Notes how far the segments are filled.
    fn filled(&self, writer: &Writer) {
        self.segment.store(writer.segment() as u32, Ordering::Relaxed);
        self.room.store(writer.room(), Ordering::Release);
    }
}

/// A handle on the journal; clones share it. The journal closes with [`Journal::close`].
#[derive(Clone)]
pub struct Journal {
    shared: Arc<Shared>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Journal {
    /// Starts the threads. The first segment is prepared before this returns, unless the disk is
    /// full.
    pub fn start(mut writer: Writer) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        shared.durable.store(writer.next_sequence() - 1, Ordering::Release);
        if writer.segment() == 0
            && let Some(plan) = writer.plan()
        {
            match plan.prepare() {
                Ok(prepared) => writer.adopt(prepared),
                Err(Error::Full) => {}
                Err(error) => return Err(std::io::Error::other(error)),
            }
        }
        lock(&shared.spares).wanted = writer.plan();
        shared.filled(&writer);
        let preparer = std::thread::Builder::new().name("journal-prepare".into()).spawn({
            let shared = shared.clone();
            move || prepare(&shared)
        })?;
        let committer = std::thread::Builder::new().name("journal-commit".into()).spawn({
            let shared = shared.clone();
            move || commit(&shared, writer)
        })?;
        Ok(Self { shared, threads: Arc::new(Mutex::new(vec![committer, preparer])) })
    }

    /// A journal without threads: it commits when it is stepped.
    #[cfg(any(test, feature = "sim"))]
    pub fn stepped(writer: Writer) -> (Self, Stepper) {
        let shared = Arc::new(Shared::default());
        shared.durable.store(writer.next_sequence() - 1, Ordering::Release);
        shared.filled(&writer);
        (
            Self { shared: shared.clone(), threads: Arc::default() },
            Stepper {
                shared,
                writer,
                batches: std::collections::VecDeque::new(),
                waiters: Vec::new(),
            },
        )
    }

    /// Appends entries (sequence of the first event, bytes, number of events) that follow the last
    /// appended one. Never blocks; the completion tells when all of them are durable.
    pub fn append<'a>(
        &self,
        entries: impl IntoIterator<Item = (u64, &'a [u8], u32)>,
    ) -> Completion {
        let (done, completion) = oneshot::channel();
        let mut queue = lock(&self.shared.queue);
        let refused = if let Some(error) = &queue.failed {
            Some(error.clone())
        } else if queue.closed {
            Some(Error::Closed)
        } else {
            None
        };
        if let Some(error) = refused {
            // Nobody listens any more, then: nothing to do.
            let _ = done.send(Err(error));
            return completion;
        }
        let was_empty = queue.pending.is_empty();
        let mut last = 0;
        for (sequence, bytes, events) in entries {
            if !queue.pending.is_empty() && queue.pending.bytes() + bytes.len() > MAX_RECORD {
                let full = std::mem::take(&mut queue.pending);
                queue.more.push_back(full);
            }
            if !queue.pending.push(sequence, bytes, events) {
                let error = std::io::Error::from(std::io::ErrorKind::FileTooLarge);
                let _ = done.send(Err(Error::io("appending to the journal")(error)));
                return completion;
            }
            self.shared.queued_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            last = sequence;
        }
        queue.waiters.push((last, done));
        drop(queue);
        if was_empty {
            self.shared.work.notify_one();
            #[cfg(any(test, feature = "sim"))]
            self.shared.appended.notify_one();
        }
        completion
    }

    /// Bytes that wait to be committed.
    pub fn queued_bytes(&self) -> u64 {
        self.shared.queued_bytes.load(Ordering::Relaxed)
    }

    /// Whether the disk is full: what was appended may wait, and no more should be.
    pub fn is_full(&self) -> bool {
        *self.shared.full.borrow()
    }

    /// Whether a record of so many bytes may still be appended on a full disk: the segment that is
    /// being filled was written when it was prepared, so what fits into it needs no space.
    pub fn has_kept_room(&self, bytes: u64) -> bool {
        // What is committed meanwhile leaves the queue after it has left the room.
        let queued = self.queued_bytes();
        queued + bytes + KEPT_ROOM <= self.shared.room.load(Ordering::Acquire)
    }

    /// Watches whether the disk is full.
    pub fn watch_full(&self) -> watch::Receiver<bool> {
        self.shared.full.subscribe()
    }

    /// Sequence of the last durable event.
    pub fn durable(&self) -> u64 {
        self.shared.durable.load(Ordering::Acquire)
    }

    /// How the journal is doing.
    pub fn status(&self) -> Status {
        Status {
            durable: self.durable(),
            commits: self.shared.commits.load(Ordering::Relaxed),
            bytes: self.shared.bytes.load(Ordering::Relaxed),
            segment: self.shared.segment.load(Ordering::Relaxed),
        }
    }

    /// Commits what waits and ends the threads. Blocks until they have ended.
    pub fn close(&self) {
        lock(&self.shared.queue).closed = true;
        lock(&self.shared.spares).closed = true;
        self.shared.work.notify_all();
        self.shared.spares_changed.notify_all();
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // A thread that panicked has left its word in the log, and its waiters see it.
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing under these locks can be left half done by a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The writer thread.
fn commit(shared: &Shared, mut writer: Writer) {
    let mut spent = Pending::default();
    while let Some((mut batches, waiters)) = take(shared, &mut spent) {
        let mut waiters = waiters.into_iter().peekable();
        for batch in &mut batches {
            match commit_one(shared, &mut writer, batch) {
                Ok(()) => tell(shared, batch, &mut waiters),
                Err(error) => return fail(shared, &error, waiters),
            }
        }
        if let Some(batch) = batches.pop() {
            spent = batch;
            spent.clear();
        }
    }
}

/// Tells whoever waits for a batch that it is durable.
fn tell(shared: &Shared, batch: &Pending, waiters: &mut Peekable<impl Iterator<Item = Waiter>>) {
    let last = batch.last();
    shared.durable.store(last, Ordering::Release);
    shared.commits.fetch_add(1, Ordering::Relaxed);
    shared.bytes.fetch_add(batch.bytes() as u64, Ordering::Relaxed);
    shared.queued_bytes.fetch_sub(batch.payload_bytes(), Ordering::Relaxed);
    while let Some((_, waiter)) = waiters.next_if(|(sequence, _)| *sequence <= last) {
        let _ = waiter.send(Ok(()));
    }
}

/// Refuses everything from now on.
fn fail(shared: &Shared, error: &Error, waiters: impl Iterator<Item = Waiter>) {
    let mut queue = lock(&shared.queue);
    queue.failed = Some(error.clone());
    let late = std::mem::take(&mut queue.waiters);
    for (_, waiter) in waiters.chain(late) {
        let _ = waiter.send(Err(error.clone()));
    }
}

/// Who waits until a sequence is durable.
type Waiter = (u64, oneshot::Sender<Result<(), Error>>);
type Work = (Vec<Pending>, Vec<Waiter>);

/// Waits for work and takes all of it; none when the journal is closed.
fn take(shared: &Shared, spent: &mut Pending) -> Option<Work> {
    let mut queue = lock(&shared.queue);
    loop {
        if !queue.pending.is_empty() {
            return Some(queue.take(std::mem::take(spent)));
        }
        if queue.closed {
            return None;
        }
        queue = shared.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

fn commit_one(shared: &Shared, writer: &mut Writer, batch: &mut Pending) -> Result<(), Error> {
    take_spare(shared, writer, None)?;
    while let Some(plan) = writer.needs(batch) {
        take_spare(shared, writer, Some(&plan))?;
    }
    let segment = writer.segment();
    writer.commit(batch)?;
    shared.filled(writer);
    if writer.segment() != segment {
        want(shared, writer.plan());
    }
    Ok(())
}

fn want(shared: &Shared, plan: Option<Plan>) {
    let mut spares = lock(&shared.spares);
    if spares.ready.is_none() {
        spares.wanted = plan;
        shared.spares_changed.notify_all();
    }
}

/// Takes the prepared segment if it is there; waits for one if `plan` says that one is needed.
fn take_spare(shared: &Shared, writer: &mut Writer, plan: Option<&Plan>) -> Result<(), Error> {
    let mut spares = lock(&shared.spares);
    loop {
        if let Some(error) = &spares.failed {
            return Err(error.clone());
        }
        if let Some(prepared) = spares.ready.take() {
            writer.adopt(prepared);
            return Ok(());
        }
        let Some(plan) = plan else { return Ok(()) };
        if spares.closed {
            return Err(Error::Full);
        }
        if spares.wanted.is_none() {
            spares.wanted = Some(plan.clone());
            shared.spares_changed.notify_all();
        }
        spares = shared.spares_changed.wait(spares).unwrap_or_else(PoisonError::into_inner);
    }
}

/// The preparing thread.
fn prepare(shared: &Shared) {
    loop {
        let plan = {
            let mut spares = lock(&shared.spares);
            loop {
                if spares.closed {
                    return;
                }
                if let Some(plan) = spares.wanted.clone() {
                    break plan;
                }
                spares = shared.spares_changed.wait(spares).unwrap_or_else(PoisonError::into_inner);
            }
        };
        let prepared = plan.prepare();
        let mut spares = lock(&shared.spares);
        match prepared {
            Ok(prepared) => {
                if shared.full.send_replace(false) {
                    tracing::info!("there is space on the disk again");
                }
                spares.wanted = None;
                spares.ready = Some(prepared);
            }
            Err(Error::Full) => {
                if !shared.full.send_replace(true) {
                    tracing::error!("the disk is full: mutations are refused until space is back");
                }
                let changed = &shared.spares_changed;
                drop(
                    changed
                        .wait_timeout(spares, FULL_RETRY)
                        .unwrap_or_else(PoisonError::into_inner),
                );
                continue;
            }
            Err(error) => spares.failed = Some(error),
        }
        shared.spares_changed.notify_all();
    }
}

/// Does what the threads of a journal do, when it is told to.
#[cfg(any(test, feature = "sim"))]
pub struct Stepper {
    shared: Arc<Shared>,
    writer: Writer,
    /// What was taken and is not committed yet.
    batches: std::collections::VecDeque<Pending>,
    waiters: Vec<Waiter>,
}

#[cfg(any(test, feature = "sim"))]
impl Stepper {
    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        *self.shared.full.borrow()
    }

    /// Resolves when something waits to be committed.
    pub async fn ready(&self) {
        while self.batches.is_empty() && lock(&self.shared.queue).pending.is_empty() {
            self.shared.appended.notified().await;
        }
    }

    /// Commits what waits. On a full disk it goes on waiting.
    pub fn step(&mut self) -> Result<(), Error> {
        let result = self.commit();
        if let Err(error) = &result {
            fail(&self.shared, error, self.waiters.drain(..));
        }
        result
    }

    fn commit(&mut self) -> Result<(), Error> {
        if !lock(&self.shared.queue).pending.is_empty() {
            let (batches, waiters) = lock(&self.shared.queue).take(Pending::default());
            self.batches.extend(batches);
            self.waiters.extend(waiters);
        }
        while let Some(batch) = self.batches.front_mut() {
            while let Some(plan) = self.writer.needs(batch) {
                match plan.prepare() {
                    Ok(prepared) => self.writer.adopt(prepared),
                    Err(Error::Full) => {
                        self.shared.full.send_replace(true);
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                }
            }
            self.writer.commit(batch)?;
            self.shared.full.send_replace(false);
            self.shared.filled(&self.writer);
            let late = self.waiters.partition_point(|(sequence, _)| *sequence <= batch.last());
            tell(&self.shared, batch, &mut self.waiters.drain(..late).peekable());
            self.batches.pop_front();
        }
        Ok(())
    }
}

/// Deletes the segments that lie wholly at or below a sequence that a checkpoint holds.
///
/// The one that is being filled stays, whatever it holds.
pub fn delete_segments(disk: &dyn Disk, current: u64, through: u64) -> Result<u32, Error> {
    let mut deleted = 0;
    let numbers = super::segments(disk)?;
    for pair in numbers.windows(2) {
        let (number, next) = (pair[0], pair[1]);
        if number >= current {
            break;
        }
        let first_of_next = super::reader::first_of_segment(disk, next)?;
        if first_of_next.is_none_or(|first| first > through + 1) {
            break;
        }
        let path = segment_path(number);
        disk.remove(&path).map_err(Error::io(format!("removing {path}")))?;
        // One at a time: of two removals a crash may keep the later one alone, and leave a gap.
        disk.sync_dir(super::DIR).map_err(Error::io("syncing the journal folder"))?;
        deleted += 1;
    }
    Ok(deleted)
}
