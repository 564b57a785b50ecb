//! What is kept for an agent while its session is live, or an attempt at its turn runs.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use crate::model::AgentId;

/// One thing for each agent. Clones are the same.
pub(super) struct ByAgent<T>(Arc<Mutex<FxHashMap<AgentId, Arc<T>>>>);

impl<T> Clone for ByAgent<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for ByAgent<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> ByAgent<T> {
    fn all(&self) -> MutexGuard<'_, FxHashMap<AgentId, Arc<T>>> {
        // Nothing under this lock can be left half done by a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// That of an agent.
    pub(super) fn get(&self, agent: AgentId) -> Option<Arc<T>> {
        self.all().get(&agent).cloned()
    }

    /// Keeps something for an agent until what is returned is dropped.
    pub(super) fn keep(&self, agent: AgentId, thing: T) -> Kept<T> {
        let thing = Arc::new(thing);
        self.all().insert(agent, thing.clone());
        Kept { of: self.clone(), agent, thing }
    }
}

/// Something that is kept until this is dropped.
pub(super) struct Kept<T> {
    of: ByAgent<T>,
    agent: AgentId,
    thing: Arc<T>,
}

impl<T> Deref for Kept<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.thing
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        let mut all = self.of.all();
        // A later one may have taken its place.
        if all.get(&self.agent).is_some_and(|known| Arc::ptr_eq(known, &self.thing)) {
            all.remove(&self.agent);
        }
    }
}
