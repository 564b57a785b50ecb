//! The data of events about workspaces.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{Access, AgentId, Git, Limits, Name, Source, View, WorkspaceId};

data! {
    /// Data of `workspace.created`.
    WorkspaceCreated {
        /// Identity.
        workspace_id: WorkspaceId,
        /// Name.
        name: Name,
        /// The workspace that holds it.
        parent: Option<WorkspaceId>,
        /// Its root, below the folder of all workspaces; nothing is there for a view.
        root: String,
        /// What it is a window on; absent for a folder of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        view: Option<View>,
        /// The worktree that its root is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        git: Option<Git>,
        /// The agent that created it; absent for USER.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<AgentId>,
        /// Whether its processes reach the network.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        network: bool,
        /// Variables in their environment.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
        /// Limits on them.
        #[serde(default, skip_serializing_if = "Limits::is_empty")]
        limits: Limits,
    }

    /// Data of `workspace.updated`: what is absent stays.
    WorkspaceUpdated {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// Whether its processes reach the network.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network: Option<bool>,
        /// Variables; null removes one.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, Option<String>>,
        /// All of its limits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limits: Option<Limits>,
    }

    /// Data of `workspace.linked`.
    WorkspaceLinked {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// The folder: `host_path`, or `folder` below the folder of all workspaces.
        #[serde(flatten)]
        source: Source,
        /// Where it is seen.
        mount_path: String,
        /// What may be done through it.
        mode: Access,
        /// The workspace in which the agent that linked it saw it; absent for USER.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        via: Option<WorkspaceId>,
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
        /// The worktree that its root was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        git: Option<Git>,
        /// Whether work in the worktree that is nowhere else goes with it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        forced: bool,
    }
}

impl WorkspaceCreated {
    /// An empty folder of USER, in no other one.
    pub fn folder(workspace_id: WorkspaceId, name: Name, root: String) -> Self {
        Self {
            workspace_id,
            name,
            parent: None,
            root,
            view: None,
            git: None,
            owner: None,
            network: false,
            env: BTreeMap::new(),
            limits: Limits::default(),
        }
    }
}
