//! The thread that writes projections behind the journal, and the one that writes checkpoints.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{Cut, Error, Projector};
use crate::journal::{self, Disk, Journal};
use crate::model::Commit;

/// How long to wait before a full disk is tried again.
const FULL_RETRY: Duration = Duration::from_secs(1);

/// Told when a checkpoint is written, or why it is not.
pub type Done = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// How long session records are written when the daemon stops.
const LAST_RECORDS: Duration = Duration::from_secs(2);

enum Job {
    Commit(Arc<Commit>),
    /// Write a checkpoint of this body at this sequence, which is the last one before.
    Checkpoint {
        sequence: u64,
        state: Vec<u8>,
        done: Option<Done>,
    },
    /// Tell when everything before is written.
    Settle(oneshot::Sender<()>),
}

struct CheckpointJob {
    sequence: u64,
    cut: Cut,
    state: Vec<u8>,
    done: Option<Done>,
}

#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    closed: bool,
}

/// How projections are doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerStatus {
    /// Bytes of events that wait to be written.
    pub backlog: u64,
    /// Sequence of the last checkpoint.
    pub checkpoint: u64,
    /// Segments that are left.
    pub segments: u32,
}

/// What was found wrong with files when they were brought up to date.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mended {
    /// Files that differed from what they should have been.
    pub repaired: usize,
    /// Folders that were set aside, relative to the home.
    pub quarantined: Vec<String>,
}

#[derive(Default)]
struct Shared {
    mended: Mutex<Mended>,
    queue: Mutex<Queue>,
    work: Condvar,
    backlog: AtomicU64,
    checkpoint: AtomicU64,
    segments: AtomicU32,
    failed: Mutex<Option<Error>>,
    /// Whether projections wait for space.
    full: AtomicBool,
}

/// A handle on the threads; clones share it.
#[derive(Clone)]
pub struct Worker {
    shared: Arc<Shared>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Worker {
    /// Starts the threads. `failed` is told once when projections cannot go on; the process must
    /// end then, and recovery mends them.
    pub fn start(
        disk: Arc<dyn Disk>,
        journal: Journal,
        projector: Projector,
        checkpoint: u64,
        failed: impl FnOnce(Error) + Send + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        shared.checkpoint.store(checkpoint, Ordering::Relaxed);
        count_segments(&shared, &*disk);
        let (checkpoints, checkpoint_jobs) = mpsc::channel();
        let checkpointer = std::thread::Builder::new().name("checkpoint".into()).spawn({
            let shared = shared.clone();
            move || {
                let mut synced = true;
                for job in checkpoint_jobs {
                    write_checkpoint(&shared, &*disk, &journal, job, &mut synced);
                }
            }
        })?;
        let writer = std::thread::Builder::new().name("projection".into()).spawn({
            let shared = shared.clone();
            move || {
                if let Err(error) = project(&shared, projector, &checkpoints) {
                    *lock(&shared.failed) = Some(error.clone());
                    failed(error);
                }
            }
        })?;
        Ok(Self { shared, threads: Arc::new(Mutex::new(vec![writer, checkpointer])) })
    }

    /// Hands over what became durable, in order.
    pub fn commit(&self, commit: Arc<Commit>) {
        self.shared.backlog.fetch_add(size(&commit), Ordering::Relaxed);
        self.push(Job::Commit(commit));
    }

    /// Asks for a checkpoint at the last sequence that was handed over.
    pub fn checkpoint(&self, sequence: u64, state: Vec<u8>, done: Option<Done>) {
        self.push(Job::Checkpoint { sequence, state, done });
    }

    /// Waits until everything that was handed over is written (not synced).
    pub async fn settled(&self) {
        let (done, settled) = oneshot::channel();
        self.push(Job::Settle(done));
        // Dropped only when the thread is gone; then nothing more is written.
        let _ = settled.await;
    }

    /// How projections are doing.
    pub fn status(&self) -> WorkerStatus {
        WorkerStatus {
            backlog: self.shared.backlog.load(Ordering::Relaxed),
            checkpoint: self.shared.checkpoint.load(Ordering::Relaxed),
            segments: self.shared.segments.load(Ordering::Relaxed),
        }
    }

    /// What was found wrong with files at the start; nothing before they are up to date.
    pub fn mended(&self) -> Mended {
        lock(&self.shared.mended).clone()
    }

    /// Writes what waits and ends the threads. Blocks until they have ended.
    pub fn close(&self) {
        lock(&self.shared.queue).closed = true;
        self.shared.work.notify_all();
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // A thread that panicked has left its word in the log.
            let _ = thread.join();
        }
    }

    fn push(&self, job: Job) {
        let mut queue = lock(&self.shared.queue);
        let was_empty = queue.jobs.is_empty();
        queue.jobs.push(job);
        drop(queue);
        if was_empty {
            self.shared.work.notify_one();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing under these locks can be left half done by a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn size(commit: &Commit) -> u64 {
    commit.lines.iter().map(|line| line.text.len() as u64).sum()
}

/// The projection thread.
fn project(
    shared: &Shared,
    mut projector: Projector,
    checkpoints: &mpsc::Sender<CheckpointJob>,
) -> Result<(), Error> {
    while let Err(error) = projector.end_recovery() {
        wait_if_full(shared)(error)?;
    }
    note_mended(shared, &projector);
    // Whether session records may wait for a quiet moment.
    let mut behind = true;
    loop {
        let jobs = {
            let mut queue = lock(&shared.queue);
            while queue.jobs.is_empty() && !queue.closed && !behind {
                queue = shared.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            if queue.jobs.is_empty() && queue.closed {
                drop(queue);
                return flush_records(&mut projector);
            }
            std::mem::take(&mut queue.jobs)
        };
        if jobs.is_empty() {
            behind = projector.flush_record().or_else(wait_if_full(shared))?;
            continue;
        }
        behind = true;
        let mut commits = Vec::new();
        for job in jobs {
            match job {
                Job::Commit(commit) => commits.push(commit),
                Job::Checkpoint { sequence, state, done } => {
                    append(shared, &mut projector, &mut commits)?;
                    let cut = loop {
                        match projector.cut() {
                            Ok(cut) => break cut,
                            Err(error) => wait_if_full(shared)(error)?,
                        };
                    };
                    note_mended(shared, &projector);
                    let job = CheckpointJob { sequence, cut, state, done };
                    // The receiver lives as long as this sender.
                    let _ = checkpoints.send(job);
                }
                Job::Settle(done) => {
                    append(shared, &mut projector, &mut commits)?;
                    let _ = done.send(());
                }
            }
        }
        append(shared, &mut projector, &mut commits)?;
    }
}

/// Writes commits; on a full disk, waits for space.
fn append(
    shared: &Shared,
    projector: &mut Projector,
    commits: &mut Vec<Arc<Commit>>,
) -> Result<(), Error> {
    if commits.is_empty() {
        return Ok(());
    }
    for commit in commits.iter() {
        projector.push(commit);
    }
    while let Err(error) = projector.flush() {
        wait_if_full(shared)(error)?;
    }
    shared.full.store(false, Ordering::Relaxed);
    note_mended(shared, projector);
    let bytes: u64 = commits.iter().map(|commit| size(commit)).sum();
    shared.backlog.fetch_sub(bytes, Ordering::Relaxed);
    commits.clear();
    Ok(())
}

/// Tells what was found wrong with files, when more was.
fn note_mended(shared: &Shared, projector: &Projector) {
    let mut mended = lock(&shared.mended);
    for folder in projector.quarantined().iter().skip(mended.quarantined.len()) {
        tracing::error!(folder, "damaged, and set aside");
        mended.quarantined.push(folder.clone());
    }
    mended.repaired = projector.repaired();
}

/// Waits for space if that is what is missing.
fn wait_if_full(shared: &Shared) -> impl FnOnce(Error) -> Result<bool, Error> + '_ {
    move |error| {
        let queue = lock(&shared.queue);
        if !error.may_pass() || queue.closed {
            return Err(error);
        }
        if !shared.full.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, "the logs of agents wait until that is over");
        }
        drop(shared.work.wait_timeout(queue, FULL_RETRY));
        Ok(true)
    }
}

/// Writes the session records that wait when the daemon stops, as far as that does not keep it.
/// The checkpoint says which are behind; the next start goes on with them.
fn flush_records(projector: &mut Projector) -> Result<(), Error> {
    let begun = Instant::now();
    while begun.elapsed() < LAST_RECORDS && projector.flush_record()? {}
    Ok(())
}

/// `synced` is whether every sync of projections so far succeeded.
fn write_checkpoint(
    shared: &Shared,
    disk: &dyn Disk,
    journal: &Journal,
    job: CheckpointJob,
    synced: &mut bool,
) {
    let CheckpointJob { sequence, cut, state, done } = job;
    let files = if *synced {
        cut.sync(disk)
    } else {
        let error = std::io::Error::other("a sync failed before; restart the daemon");
        Err(journal::Error::io("syncing projections")(error).into())
    };
    *synced &= files.is_ok();
    let segment = u64::from(journal.status().segment);
    let written = files.and_then(|files| files.write(disk, sequence, &state, segment));
    match &written {
        Ok(()) => shared.checkpoint.store(sequence, Ordering::Relaxed),
        Err(error) => tracing::error!(%error, "no checkpoint was written"),
    }
    count_segments(shared, disk);
    if let Some(done) = done {
        done(written);
    }
}

fn count_segments(shared: &Shared, disk: &dyn Disk) {
    if let Ok(names) = disk.list(journal::DIR) {
        let count = names.iter().filter(|name| name.ends_with(".wal")).count();
        shared.segments.store(count as u32, Ordering::Relaxed);
    }
}
