//! Workspaces and their links.

use super::Plan;
use crate::model::workspace::normal_path;
use crate::model::{
    Access, Name, Outcome, Rejection, WorkspaceCreated, WorkspaceDeleted, WorkspaceId,
    WorkspaceLinked, WorkspaceUnlinked,
};

impl Plan<'_, '_> {
    pub(super) fn create_workspace(
        &mut self,
        name: &str,
        parent: Option<String>,
    ) -> Result<Outcome, Rejection> {
        let name = Name::parse(name)?;
        if self.state.workspaces().any(|workspace| workspace.name == name) {
            return Err(Rejection::WorkspaceExists { name });
        }
        let parent = parent.map(|name| self.state.resolve_workspace(&name)).transpose()?;
        let workspace_id = WorkspaceId::fresh(self.cx.ids);
        let root = match parent {
            Some(parent) => format!("{}/{name}", parent.root),
            None => format!("{workspace_id}/root"),
        };
        let parent = parent.map(|parent| parent.id);
        self.push(None, WorkspaceCreated { workspace_id, name, parent, root });
        Ok(Outcome::Workspace(workspace_id))
    }

    pub(super) fn link_directory(
        &mut self,
        workspace: &str,
        host_path: String,
        mount_path: &str,
        mode: Access,
    ) -> Result<Outcome, Rejection> {
        let workspace = self.state.resolve_workspace(workspace)?;
        let mount_path = normal_path(mount_path)?;
        if mount_path.is_empty() {
            let problem = "the root of the workspace cannot be a link";
            return Err(Rejection::PathInvalid { path: mount_path, problem });
        }
        if let Some(other) = workspace.overlapping(&mount_path) {
            return Err(Rejection::LinkExists { mount: mount_path, other: other.to_owned() });
        }
        let workspace_id = workspace.id;
        self.push(None, WorkspaceLinked { workspace_id, host_path, mount_path, mode });
        Ok(Outcome::Workspace(workspace_id))
    }

    pub(super) fn unlink_directory(
        &mut self,
        workspace: &str,
        mount_path: &str,
    ) -> Result<Outcome, Rejection> {
        let workspace = self.state.resolve_workspace(workspace)?;
        let mount_path = normal_path(mount_path)?;
        if !workspace.links.contains_key(&mount_path) {
            return Err(Rejection::LinkNotFound { mount: mount_path });
        }
        let workspace_id = workspace.id;
        self.push(None, WorkspaceUnlinked { workspace_id, mount_path });
        Ok(Outcome::Workspace(workspace_id))
    }

    pub(super) fn delete_workspace(&mut self, workspace: &str) -> Result<Outcome, Rejection> {
        let workspace = self.state.resolve_workspace(workspace)?;
        let agent = self.state.users_of(workspace.id).next();
        let child = self.state.workspaces().find(|other| other.parent == Some(workspace.id));
        let by = match (agent, child) {
            (Some(agent), _) => format!("agent {:?}", self.state.path(agent)),
            (None, Some(child)) => format!("workspace {:?}", child.name),
            (None, None) => {
                let (workspace_id, root) = (workspace.id, workspace.root.clone());
                self.push(None, WorkspaceDeleted { workspace_id, root });
                return Ok(Outcome::Workspace(workspace_id));
            }
        };
        Err(Rejection::WorkspaceInUse { name: workspace.name.clone(), by })
    }
}
