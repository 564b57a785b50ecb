//! Between the engine and the projections, which do not know each other.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::engine::{Archive, CheckpointDone, Removal, Sink, Span, remove_shell};
use crate::journal::{Disk, Journal};
use crate::model::{Commit, Entry, SessionId};
use crate::projection::{self, Worker};
use crate::provider::remove_home;
use crate::service::{JournalStatus, Mended};

/// Hands what is durable to the projections.
pub(super) struct ToProjections {
    worker: Worker,
    tail: Arc<Tail>,
    /// Where homes of sessions lie, which go with them.
    homes: PathBuf,
    /// Where what is kept of their shells lies, which does too.
    shells: PathBuf,
}

impl ToProjections {
    pub(super) fn new(worker: &Worker, tail: &Arc<Tail>, home: &Path) -> Self {
        let (worker, tail) = (worker.clone(), tail.clone());
        Self { worker, tail, homes: home.join("providers"), shells: home.join("shells") }
    }
}

/// How much journal there is since the last checkpoint.
pub(super) struct Tail {
    pub(super) journal: Journal,
    pub(super) worker: Worker,
    /// Bytes that were committed when the last checkpoint was taken.
    pub(super) at_checkpoint: AtomicU64,
}

impl Tail {
    pub(super) fn status(&self) -> JournalStatus {
        let (journal, worker) = (self.journal.status(), self.worker.status());
        JournalStatus {
            durable: journal.durable,
            checkpoint: worker.checkpoint,
            segments: worker.segments,
            tail_bytes: journal.bytes.saturating_sub(self.at_checkpoint.load(Ordering::Relaxed)),
            commits: journal.commits,
            full: self.journal.is_full(),
        }
    }
}

impl Tail {
    pub(super) fn mended(&self) -> Mended {
        let projection::Mended { repaired, quarantined } = self.worker.mended();
        Mended { repaired, quarantined }
    }
}

impl Sink for ToProjections {
    fn commit(&mut self, commit: &Arc<Commit>) {
        self.worker.commit(commit.clone());
    }

    fn removal(&self, session: SessionId) -> Removal {
        let (homes, shells) = (self.homes.clone(), self.shells.clone());
        Box::new(move || {
            if let Err(error) = remove_shell(&shells, session) {
                tracing::warn!(%session, %error, "the shell of a session was not removed");
            }
            if let Err(error) = remove_home(&homes, session) {
                tracing::warn!(%session, %error, "the home of a session was not removed");
            }
        })
    }

    fn checkpoint(&mut self, sequence: u64, state: Vec<u8>, done: Option<CheckpointDone>) {
        let bytes = self.tail.journal.status().bytes;
        self.tail.at_checkpoint.store(bytes, Ordering::Relaxed);
        let done = done.map(|done| -> projection::Done {
            Box::new(move |written| {
                // Whoever asked may have gone.
                let _ = done.send(written.map_err(|error| error.to_string()));
            })
        });
        self.worker.checkpoint(sequence, state, done);
    }

    fn backlog(&self) -> u64 {
        self.worker.status().backlog
    }
}

/// Reads what the projections hold.
pub(super) struct FromProjections {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) worker: Worker,
}

impl Archive for FromProjections {
    fn settled(&self) -> BoxFuture<'_, ()> {
        self.worker.settled().boxed()
    }

    fn read(&self, spans: &[Span], from: u64, end: u64) -> io::Result<Vec<Entry>> {
        let spans: Vec<projection::Span> = spans
            .iter()
            .map(|span| projection::Span {
                session: span.session,
                first: span.first,
                last: span.last,
            })
            .collect();
        let found = projection::read_merged(&*self.disk, &spans, from, end)?;
        Ok(found.into_iter().map(|(entry, _)| entry).collect())
    }

    fn scan(
        &self,
        session: SessionId,
        from: u64,
        each: &mut dyn FnMut(Entry) -> bool,
    ) -> io::Result<()> {
        projection::scan(&*self.disk, session, from, each)
    }

    fn tail(&self, session: SessionId, count: usize) -> io::Result<Vec<Entry>> {
        projection::read_tail(&*self.disk, session, count)
    }

    fn before(&self, session: SessionId, end: u64, bytes: usize) -> io::Result<Vec<Entry>> {
        projection::read_before(&*self.disk, session, end, bytes)
    }

    fn transcript(&self, session: SessionId, from: u64, limit: usize) -> io::Result<(String, u64)> {
        projection::read_transcript(&*self.disk, session, from, limit)
    }
}
