//! What an agent sees: its workspace with links and views resolved, as the file tools and the
//! sandbox show it.
//!
//! ```text
//!  workspace  = root, and its links over it
//!  view       = a window on the world of another workspace, capped; its own links over it
//!  agent      = a window on the world of its workspace, capped
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Access, Agent, Git, Limits, Name, State, Workspace, WorkspaceId, covers};

/// Where a folder that is shown lies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Source {
    /// Below the folder of all workspaces; the path is relative to it.
    #[serde(rename = "folder")]
    Workspaces(String),
    /// On the host, an absolute path without symbolic links.
    #[serde(rename = "host_path")]
    Host(String),
}

impl Source {
    /// What lies at a normal path below it.
    pub fn join(&self, path: &str) -> Self {
        let below = |top: &str| match path {
            "" => top.to_owned(),
            path => format!("{}/{path}", top.trim_end_matches('/')),
        };
        match self {
            Self::Workspaces(top) => Self::Workspaces(below(top)),
            Self::Host(top) => Self::Host(below(top)),
        }
    }

    /// Whether `other` is this folder or lies below it.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Workspaces(top), Self::Workspaces(path)) => covers(top, path),
            (Self::Host(top), Self::Host(path)) => covers(top.trim_end_matches('/'), path),
            _ => false,
        }
    }
}

/// A folder that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it lies.
    pub source: Source,
    /// What may be done there.
    pub access: Access,
}

impl Mount {
    /// Whether places for mounts are made in it. A workspace has some for its links also where an
    /// agent may only read; a folder of the host that is only read stays as it is.
    pub fn may_hold_places(&self) -> bool {
        self.access == Access::ReadWrite || matches!(self.source, Source::Workspaces(_))
    }
}

/// Which link shows a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkPlace {
    /// The workspace that has it.
    pub workspace: Name,
    /// Its mount path there.
    pub path: String,
}

/// Another workspace, of which something is shown for writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// Its root: what lies there counts.
    pub counted: Source,
    /// Limits that it names.
    pub limits: Limits,
}

/// All that an agent sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    /// The workspace whose limits its processes share.
    pub workspace: WorkspaceId,
    /// The root of that workspace, whatever part of it is seen here: what lies there counts.
    pub counted: Source,
    /// The other workspaces in which its links lie: what is written there counts there.
    pub shares: Vec<Share>,
    /// Folders by the normal path at which they are seen. The root, the empty path, is always
    /// there; of two that cover a path the longer one is seen.
    pub mounts: BTreeMap<String, Mount>,
    /// The links among them.
    pub links: BTreeMap<String, LinkPlace>,
    /// Whether its processes reach the network.
    pub network: bool,
    /// Variables in the environment of its processes.
    pub env: BTreeMap<String, String>,
    /// Limits that the workspace names.
    pub limits: Limits,
    /// The worktree that the whole root is.
    pub git: Option<Git>,
}

impl World {
    /// Most folders that processes are shown at once; each costs the start of one some time.
    pub const MAX_MOUNTS: usize = 512;

    /// The mount in which a normal path lies, and the path within it.
    pub fn mount_of<'a>(&self, path: &'a str) -> Option<(&Mount, &'a str)> {
        let found = self.mounts.iter().rev().find(|(at, _)| covers(at, path));
        found.map(|(at, mount)| (mount, path[at.len()..].trim_start_matches('/')))
    }

    /// The shares in which something may be written.
    pub fn shares(&self) -> impl Iterator<Item = &Share> {
        self.shares.iter().filter(|share| self.writes_in(&share.counted))
    }

    fn writes_in(&self, folder: &Source) -> bool {
        let mut written = self.mounts.values().filter(|mount| mount.access == Access::ReadWrite);
        written.any(|mount| folder.covers(&mount.source))
    }

    /// The same without a mount.
    #[must_use]
    pub(super) fn without(mut self, path: &str) -> Self {
        self.mounts.remove(path);
        self
    }

    /// What is seen at a normal path, alone.
    pub fn at(&self, path: &str) -> Option<Mount> {
        let (mount, rest) = self.mount_of(path)?;
        Some(Mount { source: mount.source.join(rest), access: mount.access })
    }

    /// Whether folders are mounted below a normal path.
    pub fn has_mounts_below(&self, path: &str) -> bool {
        self.mounts.keys().any(|at| at != path && covers(path, at))
    }

    /// Whether it shows a folder, with this access or more.
    pub fn shows(&self, wanted: &Mount) -> bool {
        self.mounts
            .values()
            .any(|mount| mount.access >= wanted.access && mount.source.covers(&wanted.source))
    }

    /// Leaves what is seen from a folder in normal form, with no more access than this.
    #[must_use]
    pub fn window(mut self, subdir: &str, most: Access) -> Self {
        if !subdir.is_empty() {
            let top = self.at(subdir);
            let around = self.mounts.keys().rev().find(|at| covers(at, subdir));
            let link = around.and_then(|at| self.links.get(at)).cloned();
            self.mounts = below(&mut self.mounts, subdir, top);
            self.links = below(&mut self.links, subdir, link);
            self.git = None;
        }
        for mount in self.mounts.values_mut() {
            mount.access = mount.access.min(most);
        }
        self
    }

    fn of(workspace: &Workspace) -> Self {
        let source = Source::Workspaces(workspace.root.clone());
        let root = Mount { source: source.clone(), access: Access::ReadWrite };
        Self {
            workspace: workspace.id,
            counted: source,
            shares: Vec::new(),
            mounts: BTreeMap::from([(String::new(), root)]),
            links: BTreeMap::new(),
            network: false,
            env: BTreeMap::new(),
            limits: Limits::default(),
            git: workspace.git.clone(),
        }
    }

    /// Adds what a workspace has of its own.
    fn dress(&mut self, workspace: &Workspace) {
        for (at, link) in &workspace.links {
            let mount = Mount { source: link.source.clone(), access: link.mode };
            self.mounts.insert(at.clone(), mount);
            let place = LinkPlace { workspace: workspace.name.clone(), path: at.clone() };
            self.links.insert(at.clone(), place);
        }
        self.network = workspace.network;
        self.env.extend(workspace.env.iter().map(|(name, value)| (name.clone(), value.clone())));
        if !workspace.limits.is_empty() {
            self.limits = workspace.limits.or(self.limits);
            self.workspace = workspace.id;
            if let Some(root) = self.mounts.get("") {
                self.counted = root.source.clone();
            }
        }
    }
}

/// What lies below a folder, by its path there, and what stands for the folder itself.
fn below<T>(all: &mut BTreeMap<String, T>, folder: &str, top: Option<T>) -> BTreeMap<String, T> {
    let below = |(at, one): (String, T)| {
        let rest = at.strip_prefix(folder)?.strip_prefix('/')?;
        Some((rest.to_owned(), one))
    };
    let top = top.map(|top| (String::new(), top));
    std::mem::take(all).into_iter().filter_map(below).chain(top).collect()
}

impl State {
    /// All of a workspace, as one who may do everything in it sees it.
    ///
    /// A view has a network switch of its own; the variables and limits of what it is a view of
    /// hold where it names none. One that names no limit at all shares them, not only has the same.
    pub fn workspace_world(&self, workspace: &Workspace) -> World {
        self.world_where(workspace, None)
    }

    /// The same where a workspace is another than it is.
    pub(super) fn world_where(&self, workspace: &Workspace, changed: Option<&Workspace>) -> World {
        let find = |id| changed.filter(|one| one.id == id).or_else(|| self.workspace(id));
        let workspace = find(workspace.id).unwrap_or(workspace);
        let mut chain = vec![workspace];
        let mut last = workspace;
        while let Some(base) = last.view.as_ref().and_then(|view| find(view.of)) {
            chain.push(base);
            last = base;
        }
        let mut world = World::of(last);
        world.dress(last);
        for one in chain.into_iter().rev().skip(1) {
            if let Some(view) = &one.view {
                world = world.window(&view.subdir, view.access);
            }
            world.dress(one);
        }
        world.shares = self.shares_of(&world);
        world
    }

    /// The workspaces in which the links of a world lie, where that is not in its own.
    fn shares_of(&self, world: &World) -> Vec<Share> {
        let elsewhere = |mount: &&Mount| {
            matches!(mount.source, Source::Workspaces(_)) && !world.counted.covers(&mount.source)
        };
        let mut shares: BTreeMap<WorkspaceId, Share> = BTreeMap::new();
        for mount in world.mounts.values().filter(elsewhere) {
            let root = |one: &Workspace| Source::Workspaces(one.root.clone());
            let around = self
                .workspaces()
                .filter(|one| one.view.is_none() && root(one).covers(&mount.source));
            // Of those that lie in each other, the innermost.
            if let Some(one) = around.max_by_key(|one| one.root.len()) {
                let (workspace, limits) = (one.id, one.limits);
                shares.insert(one.id, Share { workspace, counted: root(one), limits });
            }
        }
        shares.into_values().collect()
    }

    /// What an agent sees; none if it has no workspace.
    pub fn world(&self, agent: &Agent) -> Option<World> {
        let workspace = self.workspace(agent.workspace?)?;
        let world = self.workspace_world(workspace);
        Some(world.window(&agent.workspace_subdir, agent.workspace_access))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_covers_what_lies_below_it_in_the_same_place() {
        let host = |path: &str| Source::Host(path.to_owned());
        assert_eq!(host("/a").join("b/c"), host("/a/b/c"));
        assert_eq!(host("/a").join(""), host("/a"));
        assert!(host("/").covers(&host("/a")) && host("/a").covers(&host("/a")));
        assert!(!host("/a").covers(&host("/ab")) && !host("/a/b").covers(&host("/a")));
        assert!(!host("a").covers(&Source::Workspaces("a/b".to_owned())));
    }
}
