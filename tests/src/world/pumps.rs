//! What the daemon does on threads of their own, as tasks that take random virtual time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use substrat_server::engine::{Archive, CheckpointDone, Removal, Sink, Span};
use substrat_server::journal::{self, Disk, Journal, SimDisk, Stepper};
use substrat_server::model::{Commit, Entry, SessionId};
use substrat_server::projection::{self, Cut, Projector};
use tokio::sync::{Notify, mpsc};

/// How long to wait before a full disk is tried again.
const FULL_RETRY: Duration = Duration::from_secs(1);

/// Random pauses.
pub(super) struct Pace(StdRng);

impl Pace {
    pub(super) fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    async fn pause(&mut self, most: u64) {
        let time = self.0.random_range(0..=most);
        if time > 0 {
            tokio::time::sleep(Duration::from_millis(time)).await;
        }
    }
}

/// Commits what waits, now and then.
pub(super) async fn commit(mut stepper: Stepper, mut pace: Pace) -> Result<(), journal::Error> {
    loop {
        stepper.ready().await;
        pace.pause(6).await;
        stepper.step()?;
        if stepper.is_full() {
            tokio::time::sleep(FULL_RETRY).await;
        }
    }
}

enum Job {
    Commit(Arc<Commit>),
    Checkpoint(u64, Vec<u8>, Option<CheckpointDone>),
}

#[derive(Default)]
struct Shared {
    jobs: Mutex<Vec<Job>>,
    backlog: AtomicU64,
    work: Notify,
    closed: AtomicBool,
}

/// What became durable, on its way to the projections; clones share it.
#[derive(Clone, Default)]
pub(super) struct Queue(Arc<Shared>);

impl Queue {
    fn push(&self, job: Job) {
        self.0.jobs.lock().expect("nobody panicked with the jobs").push(job);
        self.0.work.notify_one();
    }

    fn take(&self) -> Vec<Job> {
        std::mem::take(&mut *self.0.jobs.lock().expect("nobody panicked with the jobs"))
    }

    /// Nothing more comes.
    pub(super) fn close(&self) {
        self.0.closed.store(true, Ordering::Relaxed);
        self.0.work.notify_one();
    }
}

fn size(commit: &Commit) -> u64 {
    commit.lines.iter().map(|line| line.text.len() as u64).sum()
}

impl Sink for Queue {
    fn commit(&mut self, commit: &Arc<Commit>) {
        self.0.backlog.fetch_add(size(commit), Ordering::Relaxed);
        self.push(Job::Commit(commit.clone()));
    }

    fn removal(&self, _: SessionId) -> Removal {
        // Nothing lies outside the logs.
        Box::new(|| {})
    }

    fn checkpoint(&mut self, sequence: u64, state: Vec<u8>, done: Option<CheckpointDone>) {
        self.push(Job::Checkpoint(sequence, state, done));
    }

    fn backlog(&self) -> u64 {
        self.0.backlog.load(Ordering::Relaxed)
    }
}

type Cuts = mpsc::UnboundedSender<(u64, Vec<u8>, Option<CheckpointDone>, Cut)>;

/// Writes projections behind the journal, until the queue is closed and everything is written.
pub(super) async fn project(
    mut projector: Projector,
    queue: Queue,
    cuts: Cuts,
    mut pace: Pace,
) -> Result<(), projection::Error> {
    pace.pause(300).await;
    while let Err(error) = projector.end_recovery() {
        when_full(error).await?;
    }
    loop {
        let jobs = queue.take();
        if jobs.is_empty() {
            match projector.flush_record() {
                Ok(true) => pace.pause(5).await,
                Ok(false) if queue.0.closed.load(Ordering::Relaxed) => return Ok(()),
                Ok(false) => queue.0.work.notified().await,
                Err(error) => when_full(error).await?,
            }
            continue;
        }
        for job in jobs {
            match job {
                Job::Commit(commit) => {
                    projector.push(&commit);
                    queue.0.backlog.fetch_sub(size(&commit), Ordering::Relaxed);
                }
                Job::Checkpoint(sequence, state, done) => {
                    flush(&mut projector).await?;
                    // Who writes checkpoints lives as long as this.
                    let _ = cuts.send((sequence, state, done, projector.cut()?));
                }
            }
        }
        flush(&mut projector).await?;
        pace.pause(20).await;
    }
}

async fn flush(projector: &mut Projector) -> Result<(), projection::Error> {
    while let Err(error) = projector.flush() {
        when_full(error).await?;
    }
    Ok(())
}

async fn when_full(error: projection::Error) -> Result<(), projection::Error> {
    match error {
        projection::Error::Disk(journal::Error::Full) => {
            tokio::time::sleep(FULL_RETRY).await;
            Ok(())
        }
        other => Err(other),
    }
}

/// Writes checkpoints until nobody asks for one any more.
pub(super) async fn checkpoint(
    disk: SimDisk,
    journal: Journal,
    mut cuts: mpsc::UnboundedReceiver<(u64, Vec<u8>, Option<CheckpointDone>, Cut)>,
    mut pace: Pace,
) {
    let mut synced = true;
    while let Some((sequence, state, done, cut)) = cuts.recv().await {
        pace.pause(10).await;
        if !synced {
            continue;
        }
        let Ok(files) = cut.sync(&disk) else {
            synced = false;
            continue;
        };
        pace.pause(10).await;
        let segment = u64::from(journal.status().segment);
        let written = files.write(&disk, sequence, &state, segment);
        if let Some(done) = done {
            // Whoever asked may have gone.
            let _ = done.send(written.map_err(|error| error.to_string()));
        }
    }
}

/// The logs as they are on the disk.
pub(super) struct Logs(pub(super) SimDisk);

impl Archive for Logs {
    fn settled(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    fn read(&self, spans: &[Span], from: u64, end: u64) -> std::io::Result<Vec<Entry>> {
        let span = |span: &Span| projection::Span {
            session: span.session,
            first: span.first,
            last: span.last,
        };
        let spans: Vec<_> = spans.iter().map(span).collect();
        let found = projection::read_merged(&self.0, &spans, from, end)?;
        Ok(found.into_iter().map(|(entry, _)| entry).collect())
    }

    fn scan(
        &self,
        session: SessionId,
        from: u64,
        each: &mut dyn FnMut(Entry) -> bool,
    ) -> std::io::Result<()> {
        projection::scan(&self.0, session, from, each)
    }

    fn tail(&self, session: SessionId, count: usize) -> std::io::Result<Vec<Entry>> {
        projection::read_tail(&self.0, session, count)
    }

    fn before(&self, session: SessionId, end: u64, bytes: usize) -> std::io::Result<Vec<Entry>> {
        projection::read_before(&self.0, session, end, bytes)
    }

    fn transcript(
        &self,
        session: SessionId,
        from: u64,
        limit: usize,
    ) -> std::io::Result<(String, u64)> {
        projection::read_transcript(&self.0, session, from, limit)
    }
}

/// All logs on a disk, in order.
pub(super) fn history(disk: &SimDisk) -> Vec<(Entry, Vec<u8>)> {
    let names = disk.list(projection::DIR).expect("the folder of the sessions");
    let sessions = names.iter().filter_map(|name| name.parse().ok()).map(Some);
    let spans: Vec<projection::Span> = sessions
        .chain([None])
        .map(|session| projection::Span { session, first: 1, last: u64::MAX })
        .collect();
    projection::read_merged(disk, &spans, 1, u64::MAX).expect("the logs can be read")
}
