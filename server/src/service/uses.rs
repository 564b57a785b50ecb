//! Workspaces that are in use: what is made, looked into or deleted keeps the others out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::WorkspaceId;

/// In which workspaces commands run, and which are being made or deleted.
#[derive(Debug, Clone, Default)]
pub(super) struct Uses(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    counts: BTreeMap<WorkspaceId, usize>,
    closed: BTreeSet<WorkspaceId>,
}

impl Uses {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one until what is returned is dropped; none if the workspace is being deleted.
    pub(super) fn enter(&self, workspace: WorkspaceId) -> Option<InUse> {
        let mut used = self.lock();
        if used.closed.contains(&workspace) {
            return None;
        }
        *used.counts.entry(workspace).or_default() += 1;
        Some(InUse { uses: self.clone(), workspace })
    }

    /// Lets no command begin in these until what is returned is dropped; none if one runs there,
    /// or they are closed already.
    pub(super) fn close(&self, workspaces: Vec<WorkspaceId>) -> Option<Closed> {
        let mut used = self.lock();
        let is_used = |id| used.counts.contains_key(id) || used.closed.contains(id);
        if workspaces.iter().any(is_used) {
            return None;
        }
        used.closed.extend(&workspaces);
        Some(Closed { uses: self.clone(), workspaces })
    }
}

/// Workspaces in which no command begins.
pub(super) struct Closed {
    uses: Uses,
    workspaces: Vec<WorkspaceId>,
}

impl Drop for Closed {
    fn drop(&mut self) {
        let mut used = self.uses.lock();
        for id in &self.workspaces {
            used.closed.remove(id);
        }
    }
}

/// A command that counts.
pub(super) struct InUse {
    uses: Uses,
    workspace: WorkspaceId,
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut used = self.uses.lock();
        if let Some(count) = used.counts.get_mut(&self.workspace) {
            *count -= 1;
            if *count == 0 {
                used.counts.remove(&self.workspace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_is_used_or_deleted_and_never_both() {
        let (uses, id) = (Uses::default(), WorkspaceId::from_u128(1));
        let one = uses.enter(id).expect("it is open");
        let other = uses.enter(id).expect("it is open");
        drop(one);
        assert!(uses.close(vec![id]).is_none(), "a command runs");
        drop(other);
        let closed = uses.close(vec![id]).expect("nothing runs");
        assert!(uses.enter(id).is_none(), "it is being deleted");
        assert!(uses.close(vec![id]).is_none(), "by one at a time");
        drop(closed);
        assert!(uses.enter(id).is_some());
    }
}
