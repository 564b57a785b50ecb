//! What must be on the disk before a workspace is changed. The core does not look there: it says
//! what is to be looked at, and whoever hands the change in does so first. Nothing is to be looked
//! at for a change that the core refuses anyway.

use super::workspace::{join_paths, mount_path, normal_path};
use super::{
    Access, Agent, AgentId, Link, Mount, Name, Rejection, Source, State, Tool, Workspace, World,
    covers,
};

/// Something that must be so on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// A folder is there.
    Folder {
        /// The workspace that shows it.
        workspace: Name,
        /// What is seen there.
        world: World,
        /// Where the folder is seen, a normal path.
        path: String,
    },
    /// A folder can be shown at a place.
    Place {
        /// The workspace that is to show it.
        workspace: Name,
        /// What is to be seen there.
        world: World,
        /// The place, a normal path.
        path: String,
    },
    /// Nothing lies where the folder of a new workspace is to be: it would be deleted with it.
    Free {
        /// The workspace in whose folder that is.
        parent: Name,
        /// Its name.
        name: String,
        /// Where its root is to be, below the folder of all workspaces.
        root: String,
    },
}

impl State {
    /// What USER's link needs.
    ///
    /// # Errors
    ///
    /// There is no such workspace.
    pub fn looks_of_link(
        &self,
        workspace: &str,
        host_path: &str,
        mount: &str,
        mode: Access,
    ) -> Result<Vec<Look>, Rejection> {
        let workspace = self.resolve_workspace(workspace)?;
        let link = Link { source: Source::Host(host_path.to_owned()), mode, via: None };
        let mount = mount_path(mount);
        Ok(mount.map_or_else(|_| Vec::new(), |mount| self.places(workspace, &mount, link)))
    }

    /// What USER's workspace in the folder of another one needs. What is not right otherwise is
    /// for its creation to say, and one that is there is a repetition.
    pub fn looks_of_nested(&self, name: &str, parent: &str) -> Vec<Look> {
        match self.resolve_workspace(parent) {
            Ok(parent) if Name::parse(name).is_ok() && self.workspace_named(name).is_none() => {
                let (root, name) = (format!("{}/{name}", parent.root), name.to_owned());
                vec![Look::Free { parent: parent.name.clone(), name, root }]
            }
            _ => Vec::new(),
        }
    }

    /// What USER's view needs.
    pub fn looks_of_view(&self, name: &str, of: &str, subdir: &str) -> Vec<Look> {
        let found = || {
            let (of, subdir) = (self.resolve_workspace(of).ok()?, normal_path(subdir).ok()?);
            self.check_git_file(of, &subdir).ok()?;
            Some((of.name.clone(), self.workspace_world(of), subdir))
        };
        match found() {
            Some((workspace, world, path)) if self.workspace_named(name).is_none() => {
                vec![Look::Folder { workspace, world, path }]
            }
            _ => Vec::new(),
        }
    }

    /// What a tool call of an agent needs.
    pub fn looks_of_call(&self, agent: AgentId, tool: &Tool) -> Vec<Look> {
        let agent = self.agent(agent);
        agent.and_then(|agent| self.looks_of(agent, tool)).unwrap_or_default()
    }

    fn looks_of(&self, agent: &Agent, tool: &Tool) -> Option<Vec<Look>> {
        let own = self.workspace(agent.workspace?)?;
        let managed = |reference: &str| self.managed(agent, reference).ok();
        let (from, source, to, target, mode) = match tool {
            Tool::CreateWorkspace(args) => {
                let of = managed(args.view_of.as_ref()?)?;
                let (world, _) = self.sight(agent, of);
                let (workspace, path) = (of.name.clone(), normal_path(&args.subdir).ok()?);
                self.check_git_file(of, &path).ok()?;
                let may = world.at(&path).is_some_and(|seen| seen.access >= args.mode.into());
                let is_new = self.workspace_named(&args.name).is_none();
                return (may && is_new).then(|| vec![Look::Folder { workspace, world, path }]);
            }
            Tool::LinkDir(args) => {
                (own, &args.source, managed(&args.workspace)?, &args.target, args.mode)
            }
            Tool::LinkFrom(args) => {
                let to = args.target_workspace.as_ref().map_or(Some(own), |to| managed(to))?;
                (managed(&args.source_workspace)?, &args.source, to, &args.target, args.mode)
            }
            _ => return None,
        };
        let (world, _) = self.sight(agent, from);
        let (path, mode) = (normal_path(source).ok()?, Access::from(mode));
        let may = |seen: &Mount| seen.access >= mode && !seen.source.is_git_file();
        let seen = world.at(&path).filter(may)?;
        let mut at = normal_path(target).ok()?;
        if to.id == own.id {
            at = join_paths(&agent.workspace_subdir, &at).ok()?;
        }
        let link = Link { source: seen.source, mode, via: Some(from.id) };
        let places = self.places(to, &mount_path(&at).ok()?, link);
        if places.is_empty() || world.has_mounts_below(&path) {
            return None;
        }
        let workspace = from.name.clone();
        Some([vec![Look::Folder { workspace, world, path }], places].concat())
    }

    /// The places at which a new link lets folders be seen, and those within it: in its workspace
    /// and in every view of that.
    fn places(&self, workspace: &Workspace, mount: &str, link: Link) -> Vec<Look> {
        let refused = self.check_git_file(workspace, mount).is_err();
        if refused || workspace.overlapping(mount).is_some() {
            return Vec::new();
        }
        let source = link.source.clone();
        let worlds = self.worlds_with(workspace, mount, link);
        let changed = |world: &World, at: &str| {
            let shown =
                |at: &str| world.mounts.get(at).is_some_and(|mount| source.covers(&mount.source));
            let around = world.mounts.keys().rev().find(|other| *other != at && covers(other, at));
            shown(at) || around.is_some_and(|around| shown(around))
        };
        let places = worlds.into_iter().flat_map(|(workspace, world)| {
            let all: Vec<String> =
                world.mounts.keys().filter(|at| changed(&world, at)).cloned().collect();
            let place = move |path| {
                let (workspace, world) = (workspace.clone(), world.clone());
                Look::Place { workspace, world, path }
            };
            all.into_iter().map(place)
        });
        places.collect()
    }

    /// What would be seen with a new link in its workspace and in every view of that.
    pub(super) fn worlds_with(
        &self,
        workspace: &Workspace,
        mount: &str,
        link: Link,
    ) -> Vec<(Name, World)> {
        let mut changed = workspace.clone();
        changed.links.insert(mount.to_owned(), link);
        let views = self.with_views(workspace).into_iter().rev();
        views.map(|one| (one.name.clone(), self.world_where(one, Some(&changed)))).collect()
    }

    /// A workspace that an agent works in or created.
    pub(super) fn managed(&self, agent: &Agent, reference: &str) -> Result<&Workspace, Rejection> {
        let found = self.resolve_workspace(reference)?;
        match agent.workspace == Some(found.id) || found.owner == Some(agent.id) {
            true => Ok(found),
            false => Err(Rejection::WorkspaceNotVisible { name: found.name.clone() }),
        }
    }

    /// What an agent sees in a workspace that it manages, and the folder of it that it sees.
    pub(super) fn sight<'b>(&self, agent: &'b Agent, workspace: &Workspace) -> (World, &'b str) {
        let own = self.world(agent).filter(|_| agent.workspace == Some(workspace.id));
        match own {
            Some(world) => (world, &agent.workspace_subdir),
            None => (self.workspace_world(workspace), ""),
        }
    }
}
