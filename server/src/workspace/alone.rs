//! One at a time, for each of many: who removes a workspace keeps only those waiting that concern
//! the same repository or the same folder.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::model::WorkspaceId;

/// A lock for each name in use. Clones are the same locks.
#[derive(Debug, Clone, Default)]
pub(super) struct Locks {
    all: Arc<Mutex<BTreeMap<String, Arc<Mutex<()>>>>>,
    /// Told when nobody does anything.
    idle: Arc<Condvar>,
}

/// What was left behind by the last removals, for who comes to the same one later. Clones are the
/// same.
#[derive(Debug, Clone, Default)]
pub(super) struct LeftBehind(Arc<Mutex<VecDeque<(WorkspaceId, String)>>>);

impl LeftBehind {
    /// How many are known.
    const KNOWN: usize = 64;

    /// What a removal left, by this one or by one before.
    pub(super) fn told(&self, id: WorkspaceId, left: Option<String>) -> Option<String> {
        // Nothing under this lock can be left half done by a panic.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left) = &left {
            known.truncate(Self::KNOWN - 1);
            known.push_front((id, left.clone()));
        }
        left.or_else(|| known.iter().find(|(of, _)| *of == id).map(|(_, left)| left.clone()))
    }
}

/// A lock that is in use, or waited for.
struct Held<'a> {
    locks: &'a Locks,
    name: &'a str,
    lock: Option<Arc<Mutex<()>>>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut all = self.locks.all();
        self.lock = None;
        // Who has a clone is in line for it.
        if all.get(self.name).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            all.remove(self.name);
            if all.is_empty() {
                self.locks.idle.notify_all();
            }
        }
    }
}

impl Locks {
    /// Does something while nobody else does anything under this name.
    pub(super) fn alone<T>(&self, name: &str, work: impl FnOnce() -> T) -> T {
        let lock = self.all().entry(name.to_owned()).or_default().clone();
        let held = Held { locks: self, name, lock: Some(lock) };
        let _alone =
            held.lock.as_ref().map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner));
        work()
    }

    /// Waits until nobody does anything, for so long at most. Returns whether that is so.
    pub(super) fn settle(&self, patience: Duration) -> bool {
        let waited = self.idle.wait_timeout_while(self.all(), patience, |all| !all.is_empty());
        waited.unwrap_or_else(PoisonError::into_inner).0.is_empty()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Mutex<()>>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn what_a_removal_left_is_told_to_who_comes_later() {
        let (behind, id) = (LeftBehind::default(), WorkspaceId::from_u128);
        assert_eq!(behind.told(id(1), None), None);
        let left = Some("a worktree".to_owned());
        assert_eq!(behind.told(id(1), left.clone()), left);
        assert_eq!(behind.told(id(1), None), left);
        for other in 2..=65 {
            behind.told(id(other), left.clone());
        }
        assert_eq!(behind.told(id(1), None), None, "it is bounded");
        assert_eq!(behind.told(id(65), None), left);
    }

    #[test]
    fn other_names_do_not_wait() {
        let (locks, both) = (Locks::default(), Barrier::new(2));
        std::thread::scope(|scope| {
            // Each waits inside for the other.
            scope.spawn(|| locks.alone("a", || both.wait()));
            locks.alone("b", || both.wait());
        });
        assert!(locks.all().is_empty());
    }

    #[test]
    fn who_settles_waits_for_all() {
        let (locks, inside) = (Locks::default(), Barrier::new(2));
        assert!(locks.settle(Duration::ZERO));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                locks.alone("a", || {
                    inside.wait();
                    assert!(!locks.settle(Duration::ZERO));
                });
            });
            inside.wait();
            assert!(locks.settle(Duration::MAX));
        });
    }

    #[test]
    fn the_same_name_waits() {
        let (locks, inside) = (Locks::default(), Mutex::new(()));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        locks.alone("a", || drop(inside.try_lock().expect("nobody else is in")));
                    }
                });
            }
        });
        assert!(locks.all().is_empty());
    }
}
