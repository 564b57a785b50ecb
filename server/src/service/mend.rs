//! Worktrees that a daemon which was killed was about to make.

use futures_util::StreamExt;

use super::Api;
use crate::model::{Command, Git, State, WorkspaceId};
use crate::workspace::Made;

/// How many worktrees are finished at once.
const AT_ONCE: usize = 4;

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
        let all = self.engine.read(listed).await.unwrap_or_default();
        // One that takes long keeps few others waiting.
        let finished = all.into_iter().map(|(id, name, root, git)| async move {
            self.finish_worktree(id, &name, root, git).await;
        });
        futures_util::stream::iter(finished).for_each_concurrent(AT_ONCE, |one| one).await;
    }

    async fn finish_worktree(&self, id: WorkspaceId, name: &str, root: String, git: Git) {
        // One that is being deleted goes.
        let Some(_making) = self.uses.enter(id) else { return };
        let (files, repo) = (self.files.clone(), git.repo.clone());
        let known = (root.clone(), Some(git.clone()));
        let finish = move || match files.made(&git, &root) {
            Made::Whole => (Made::Whole, Ok(())),
            other => (other, files.add_worktree(&git, &root)),
        };
        let (made, error) = match tokio::task::spawn_blocking(finish).await {
            Ok((Made::Whole, _)) => return,
            Ok((_, Ok(()))) => {
                match self.keep_made(id, known.0, known.1).await {
                    Ok(()) => {
                        tracing::warn!(
                            workspace = name,
                            repo,
                            "finished a worktree that was cut off"
                        );
                    }
                    Err(no) => tracing::warn!(
                        workspace = name,
                        repo,
                        reason = no.message(),
                        "a worktree that was cut off went"
                    ),
                }
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
