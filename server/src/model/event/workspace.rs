//! The data of events about workspaces.

use serde::{Deserialize, Serialize};

use crate::model::{Access, Name, WorkspaceId};

data! {
    /// Data of `workspace.created`.
    WorkspaceCreated {
        /// Identity.
        workspace_id: WorkspaceId,
        /// Name.
        name: Name,
        /// The workspace that holds it.
        parent: Option<WorkspaceId>,
        /// Its root, below the folder of all workspaces.
        root: String,
    }

    /// Data of `workspace.linked`.
    WorkspaceLinked {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// The host folder.
        host_path: String,
        /// Where it is seen.
        mount_path: String,
        /// What may be done through it.
        mode: Access,
    }

    /// Data of `workspace.unlinked`.
    WorkspaceUnlinked {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// Where it was seen.
        mount_path: String,
    }

    /// Data of `workspace.deleted`.
    WorkspaceDeleted {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// Its root, below the folder of all workspaces.
        root: String,
    }
}
