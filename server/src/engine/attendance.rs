//! Who is there to answer what backends ask.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use tokio::sync::watch;

use super::Handle;
use super::handle::Shared;
use crate::model::AgentId;

/// How many attend an agent, and whether with all below it.
type Counts = FxHashMap<(AgentId, bool), usize>;

/// The clients that can answer questions, by what they watch.
pub(super) struct Attendance {
    counts: Mutex<Counts>,
    changed: watch::Sender<()>,
}

impl Default for Attendance {
    fn default() -> Self {
        Self { counts: Mutex::default(), changed: watch::Sender::new(()) }
    }
}

impl Attendance {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Nothing under this lock can be left half done by a panic.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody can answer for an agent, given with those above it.
    pub(super) fn is_attended(&self, lineage: &[AgentId]) -> bool {
        let counts = self.counts();
        let alone = lineage.first().is_some_and(|agent| counts.contains_key(&(*agent, false)));
        alone || lineage.iter().any(|agent| counts.contains_key(&(*agent, true)))
    }

    /// Waits until somebody can answer for an agent, or nobody can any more.
    pub(super) async fn until(&self, lineage: &[AgentId], attended: bool) {
        let mut changed = self.changed.subscribe();
        while self.is_attended(lineage) != attended {
            // The sender is this one's own.
            let _ = changed.changed().await;
        }
    }
}

/// A client that can answer questions, until this is dropped.
pub struct Attending {
    shared: Arc<Shared>,
    watched: (AgentId, bool),
}

impl Handle {
    /// Counts a client as somebody who can answer what the backend of an agent asks, and in a
    /// tree those of its descendants.
    pub fn attend(&self, agent: AgentId, tree: bool) -> Attending {
        let (shared, watched) = (self.shared.clone(), (agent, tree));
        *shared.attendance.counts().entry(watched).or_default() += 1;
        shared.attendance.changed.send_replace(());
        Attending { shared, watched }
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        let attendance = &self.shared.attendance;
        let mut counts = attendance.counts();
        match counts.get_mut(&self.watched) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&self.watched)),
        }
        drop(counts);
        attendance.changed.send_replace(());
    }
}
