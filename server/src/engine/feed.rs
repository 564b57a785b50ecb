//! The newest durable events, in memory, for everyone who watches.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::model::{Commit, Line};

/// Most events that are kept.
const MAX_EVENTS: usize = 16_384;
/// Most bytes of lines that are kept.
const MAX_BYTES: usize = 4 << 20;

#[derive(Default)]
struct Ring {
    commits: VecDeque<(Arc<Commit>, usize)>,
    events: usize,
    bytes: usize,
    /// Everything up to this sequence went out of the ring, or was never in it.
    gone: u64,
}

/// What a watcher asked for is not in memory any more: it is read from the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behind {
    /// The first sequence that is in memory.
    pub first: u64,
}

/// The newest durable events. A slow watcher slows nobody: it falls behind.
pub struct Feed {
    ring: Mutex<Ring>,
    last: watch::Sender<u64>,
}

impl Feed {
    /// A feed that starts after this sequence.
    pub fn new(sequence: u64) -> Self {
        let ring = Mutex::new(Ring { gone: sequence, ..Ring::default() });
        Self { ring, last: watch::Sender::new(sequence) }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // Nothing under this lock can be left half done by a panic.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what became durable.
    pub fn publish(&self, commit: Arc<Commit>) {
        let Some(last) = commit.last() else { return };
        let bytes: usize = commit.lines.iter().map(|line| line.text.len()).sum();
        let mut ring = self.ring();
        ring.events += commit.lines.len();
        ring.bytes += bytes;
        ring.commits.push_back((commit, bytes));
        while ring.commits.len() > 1 && (ring.events > MAX_EVENTS || ring.bytes > MAX_BYTES) {
            let Some((oldest, bytes)) = ring.commits.pop_front() else { break };
            ring.events -= oldest.lines.len();
            ring.bytes -= bytes;
            ring.gone = oldest.last().unwrap_or(ring.gone);
        }
        drop(ring);
        self.last.send_replace(last);
    }

    /// Sequence of the newest event.
    pub fn last(&self) -> u64 {
        *self.last.borrow()
    }

    /// Watches for new events.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// Hands out the events after a sequence, in order, until `each` says stop with false.
    ///
    /// # Errors
    ///
    /// [`Behind`] if some of them are not in memory any more; nothing was handed out then.
    pub fn read(&self, after: u64, mut each: impl FnMut(&Line) -> bool) -> Result<(), Behind> {
        let commits: Vec<Arc<Commit>> = {
            let ring = self.ring();
            if after < ring.gone {
                return Err(Behind { first: ring.gone + 1 });
            }
            let newer = |commit: &Commit| commit.last().is_some_and(|last| last > after);
            let start = ring.commits.partition_point(|(commit, _)| !newer(commit));
            ring.commits.range(start..).map(|(commit, _)| commit.clone()).collect()
        };
        let lines = commits.iter().flat_map(|commit| &commit.lines);
        for line in lines.skip_while(|line| line.entry.seq <= after) {
            if !each(line) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DaemonStopped, Entry, Timestamp};

    fn commit(sequences: std::ops::Range<u64>, bytes: usize) -> Arc<Commit> {
        let line = |seq| Line {
            entry: Entry {
                seq,
                session: None,
                at: Timestamp::default(),
                event: DaemonStopped {}.into(),
            },
            text: vec![b'x'; bytes].into(),
            agent: None,
        };
        Arc::new(Commit { lines: sequences.map(line).collect(), ..Commit::default() })
    }

    fn read(feed: &Feed, after: u64) -> Result<Vec<u64>, Behind> {
        let mut found = Vec::new();
        feed.read(after, |line| {
            found.push(line.entry.seq);
            true
        })?;
        Ok(found)
    }

    #[test]
    fn a_watcher_gets_what_came_after_its_cursor() {
        let feed = Feed::new(10);
        feed.publish(commit(11..14, 10));
        feed.publish(commit(14..15, 10));
        assert_eq!(read(&feed, 12), Ok(vec![13, 14]));
        assert_eq!(read(&feed, 14), Ok(vec![]));
        assert_eq!(read(&feed, 9), Err(Behind { first: 11 }));
        assert_eq!(feed.last(), 14);
    }

    #[test]
    fn memory_is_bounded_and_the_slow_are_told() {
        let feed = Feed::new(0);
        for sequence in 1..20 {
            feed.publish(commit(sequence..sequence + 1, MAX_BYTES / 4));
        }
        assert_eq!(read(&feed, 3), Err(Behind { first: 16 }));
        assert_eq!(read(&feed, 15), Ok(vec![16, 17, 18, 19]));
    }
}
