//! What an agent sees: its workspace with links and views resolved, as the file tools and the
//! sandbox show it.

use std::collections::BTreeMap;

use super::{Access, Limits, WorkspaceId, covers};

/// Where a folder that is shown lies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Below the folder of all workspaces; the path is relative to it.
    Workspaces(String),
    /// On the host, an absolute path without symbolic links.
    Host(String),
}

/// A folder that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it lies.
    pub source: Source,
    /// What may be done there.
    pub access: Access,
}

/// All that an agent sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    /// The workspace whose limits its processes share.
    pub workspace: WorkspaceId,
    /// Folders by the normal path at which they are seen. The root, the empty path, is always
    /// there; of two that cover a path the longer one is seen.
    pub mounts: BTreeMap<String, Mount>,
    /// Whether its processes reach the network.
    pub network: bool,
    /// Variables in the environment of its processes.
    pub env: BTreeMap<String, String>,
    /// Limits that the workspace names.
    pub limits: Limits,
}

impl World {
    /// The mount in which a normal path lies, and the path within it.
    pub fn mount_of<'a>(&self, path: &'a str) -> Option<(&Mount, &'a str)> {
        let found = self.mounts.iter().rev().find(|(at, _)| covers(at, path));
        found.map(|(at, mount)| (mount, path[at.len()..].trim_start_matches('/')))
    }
}
