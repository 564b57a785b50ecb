//! Worktrees that a daemon which was killed was about to make.

use super::Api;
use crate::model::{Command, Git, State, WorkspaceId};
use crate::workspace::Made;

impl Api {
    /// Finishes each worktree that is not made, or deletes the workspace of one that was cut off
    /// and cannot be made: who asked for it was not told that it is there.
    pub async fn finish_worktrees(&self) {
        let listed = |state: &State| {
            let all = state.workspaces().filter_map(|one| {
                Some((one.id, one.name.to_string(), one.root.clone(), one.git.clone()?))
            });
            all.collect::<Vec<_>>()
        };
        // An engine that is gone has none.
        for (id, name, root, git) in self.engine.read(listed).await.unwrap_or_default() {
            self.finish_worktree(id, &name, root, git).await;
        }
    }

    async fn finish_worktree(&self, id: WorkspaceId, name: &str, root: String, git: Git) {
        let (files, repo) = (self.files.clone(), git.repo.clone());
        let finish = move || match files.made(&git, &root) {
            Made::Whole => (Made::Whole, Ok(())),
            other => (other, files.add_worktree(&git, &root)),
        };
        let (made, error) = match tokio::task::spawn_blocking(finish).await {
            Ok((Made::Whole, _)) => return,
            Ok((_, Ok(()))) => {
                tracing::warn!(workspace = name, repo, "finished a worktree that was cut off");
                return;
            }
            Ok((made, Err(error))) => (made, error.to_string()),
            Err(panic) => (Made::Not, panic.to_string()),
        };
        if made == Made::Not {
            tracing::error!(workspace = name, repo, error, "a worktree is not there");
            return;
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
