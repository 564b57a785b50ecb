//! Worktrees that a daemon which is gone was about to make, and workspaces that it was removing.

use futures_util::StreamExt;

use super::Api;
use crate::model::{Command, Git, State, WorkspaceId};
use crate::workspace::{HalfRemoved, Made};

/// How many worktrees are finished at once.
const AT_ONCE: usize = 4;

/// A workspace that is a worktree.
struct Found {
    id: WorkspaceId,
    name: String,
    root: String,
    git: Git,
}

impl Api {
    /// Removes what an earlier daemon did not get to remove, and finishes each worktree that it did
    /// not get to make.
    pub async fn finish_worktrees(&self) {
        self.finish_removals().await;
        let listed = |state: &State| {
            let all = state.workspaces().filter_map(|one| {
                let (id, name) = (one.id, one.name.to_string());
                Some(Found { id, name, root: one.root.clone(), git: one.git.clone()? })
            });
            all.collect::<Vec<_>>()
        };
        // An engine that is gone has none.
        let all = self.engine.read(listed).await.unwrap_or_default();
        // One that takes long keeps few others waiting.
        let finished = all.into_iter().map(|found| self.finish_worktree(found));
        futures_util::stream::iter(finished).for_each_concurrent(AT_ONCE, |one| one).await;
    }

    async fn finish_removals(&self) {
        let used =
            |state: &State| state.workspaces().map(|one| one.root.clone()).collect::<Vec<String>>();
        // An engine that is gone uses what it knows, which nobody here does.
        let Ok(used) = self.engine.read(used).await else { return };
        let files = self.files.clone();
        let is_used = move |top: &str| {
            used.iter().any(|root| root.split_once('/').is_some_and(|(of, _)| of == top))
        };
        let listed = self.at_git(move || files.half_removed(is_used)).await;
        let listed = match listed {
            Ok(Ok(listed)) => listed,
            Ok(Err(error)) => {
                return tracing::error!(%error, "what was being removed could not be removed");
            }
            Err(panic) => {
                return tracing::error!(reason = panic.message(), "removing crashed");
            }
        };
        for HalfRemoved { id, root, git } in listed {
            let (files, of) = (self.files.clone(), root.clone());
            match self.at_git(move || files.remove_workspace(id, &of, Some(&git))).await {
                Ok(Ok(None)) => tracing::warn!(root, "removed a worktree that was cut off at that"),
                // What stays known is told as an error where that is found.
                Ok(Ok(Some(left))) => tracing::warn!(root, left, "removed what can be removed"),
                Ok(Err(error)) => tracing::error!(root, %error, "could not be removed"),
                Err(panic) => tracing::error!(root, reason = panic.message(), "removing crashed"),
            }
        }
    }

    /// Finishes a worktree that is not made, or deletes the workspace of one that was cut off and
    /// cannot be made: who asked for it was not told that it is there.
    async fn finish_worktree(&self, Found { id, name, root, git }: Found) {
        // Nobody works there meanwhile. One that is being deleted goes.
        let Some(_making) = self.uses.close(vec![id]) else { return };
        let repo = git.repo.clone();
        let (files, of) = (self.files.clone(), (root.clone(), git.clone()));
        let finish = move || match files.made(&of.1, &of.0) {
            Made::Whole => (Made::Whole, Ok(())),
            other => (other, files.add_worktree(&of.1, &of.0).map_err(|error| error.to_string())),
        };
        let (made, error) = match self.at_git(finish).await {
            Ok((Made::Whole, _)) => return,
            Ok((_, Ok(()))) => {
                let gone = self.keep_made(id, root, Some(git)).await.is_err();
                return tracing::warn!(workspace = name, repo, gone, "finished a worktree");
            }
            Ok((made, Err(error))) => (made, error),
            Err(panic) => (Made::Not, panic.message().to_owned()),
        };
        let kept = self.files.aside(&root);
        if made == Made::Not || !kept.is_empty() {
            let next = "delete the workspace, or mend the repository and start the daemon again";
            return tracing::error!(
                workspace = name,
                repo,
                error,
                ?kept,
                next,
                "a worktree is not there"
            );
        }
        let undo = Command::DeleteWorkspace { workspace: id.to_string(), force: false };
        match self.engine.execute(undo, None).await {
            Ok(_) => tracing::error!(
                workspace = name,
                repo,
                error,
                "deleted a workspace whose worktree was cut off and cannot be made"
            ),
            Err(no) => tracing::error!(
                workspace = name,
                repo,
                error,
                ?no,
                "a worktree was cut off and cannot be made; delete its workspace by hand"
            ),
        }
    }
}
