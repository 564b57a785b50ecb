//! Where a new agent works, and what it may do there.

use super::Plan;
use crate::model::workspace::{join_paths, normal_path};
use crate::model::{Access, Agent, NewAgent, Rejection, WorkspaceId};

/// Where an agent works.
#[derive(Default)]
pub(super) struct Desk {
    pub(super) workspace: Option<WorkspaceId>,
    /// The folder of it that it sees, in normal form.
    pub(super) subdir: String,
    pub(super) access: Access,
}

impl Plan<'_, '_> {
    /// Where a new agent works. What `by` spawns it sees no more than `by` does; USER may choose
    /// anything.
    pub(super) fn desk(
        &self,
        by: Option<&Agent>,
        parent: Option<&Agent>,
        new: &NewAgent,
    ) -> Result<Desk, Rejection> {
        let named = new.workspace.as_deref().filter(|name| !name.is_empty());
        let named = named.map(|name| self.state.resolve_workspace(name)).transpose()?;
        let subdir = new.workspace_subdir.as_deref().unwrap_or_default();
        let own =
            parent.and_then(|parent| Some((self.state.workspace(parent.workspace?)?, parent)));
        let (workspace, above, most) = match (named, own) {
            (Some(workspace), Some((own, parent))) if workspace.id == own.id => {
                (own, parent.workspace_subdir.as_str(), parent.workspace_access)
            }
            (Some(workspace), _) => {
                let most = by.map(|agent| self.may_give(agent, workspace)).transpose()?;
                (workspace, "", most.unwrap_or_default())
            }
            (None, Some((own, parent))) => {
                (own, parent.workspace_subdir.as_str(), parent.workspace_access)
            }
            (None, None) => {
                return match (subdir, by.or(parent)) {
                    ("", _) => Ok(Desk::default()),
                    (folder, None) => Err(Rejection::WorkspaceInvalid {
                        problem: format!("it is to see the folder {folder:?} of no workspace"),
                        hint: "name the workspace that holds the folder, or leave that out",
                    }),
                    (_, Some(parent)) => Err(Rejection::NoWorkspace { name: parent.name.clone() }),
                };
            }
        };
        let access = new.workspace_access.unwrap_or(most);
        if by.is_some() && access > most {
            let what = format!("workspace {:?}", workspace.name);
            return Err(Rejection::ReadOnly { what });
        }
        let subdir = join_paths(above, &normal_path(subdir)?)?;
        self.state.check_git_file(workspace, &subdir)?;
        Ok(Desk { workspace: Some(workspace.id), subdir, access })
    }
}
