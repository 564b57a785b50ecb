//! Workspaces, their views and their links, as USER has them. Agents: see `sharing`.

use std::collections::{BTreeMap, BTreeSet};

use super::Plan;
use crate::model::environment;
use crate::model::git_file::git_file;
use crate::model::workspace::{mount_path, normal_path};
use crate::model::{
    Access, AgentId, Limits, Link, Name, NewView, NewWorkspace, Outcome, Rejection, Short, Source,
    State, View, Workspace, WorkspaceCreated, WorkspaceDeleted, WorkspaceId, WorkspaceLinked,
    WorkspaceUnlinked, WorkspaceUpdated, World,
};

/// How deep folders of workspaces lie in each other.
const MAX_NESTED: usize = 64;
/// Longest path of a root below the folder of all workspaces, in bytes: with the path of that
/// folder it has to fit into the 4,095 that the kernel takes.
const MAX_ROOT: usize = 3072;
/// How many views are seen through each other.
const MAX_VIEWS: usize = 16;

fn invalid(problem: impl Into<String>, hint: &'static str) -> Rejection {
    Rejection::WorkspaceInvalid { problem: problem.into(), hint }
}

fn check_limits(limits: Limits) -> Result<(), Rejection> {
    let hint = "raise the limit, or leave it out";
    limits.problem().map_or(Ok(()), |problem| Err(invalid(problem, hint)))
}

impl<'a> Plan<'a, '_> {
    /// Creates a workspace for an agent, or for USER.
    pub(super) fn create_workspace(
        &mut self,
        new: NewWorkspace,
        owner: Option<AgentId>,
    ) -> Result<WorkspaceId, Rejection> {
        let name = Name::parse(&new.name)?;
        if self.state.workspace_named(name.as_str()).is_some() {
            return Err(Rejection::WorkspaceExists { name });
        }
        environment::check(&new.env)?;
        check_limits(new.limits)?;
        if new.view.is_some() && (new.parent.is_some() || new.git.is_some()) {
            let hint = "leave out the one or the other";
            return Err(invalid("a view has no folder of its own", hint));
        }
        if new.git.is_some() && new.parent.is_some() {
            let hint = "leave out the one or the other";
            return Err(invalid("a worktree lies in no other workspace", hint));
        }
        let parent = new.parent.map(|name| self.parent(&name)).transpose()?;
        let view = new.view.map(|view| self.view(&view)).transpose()?;
        let workspace_id = WorkspaceId::fresh(self.cx.ids);
        let root = match (parent, &new.git) {
            (Some(parent), _) => format!("{}/{name}", parent.root),
            // git names a worktree by the last part of its path, and no two may be alike.
            (None, Some(_)) => format!("{workspace_id}/{workspace_id}"),
            (None, None) => format!("{workspace_id}/root"),
        };
        if root.len() > MAX_ROOT {
            let problem = format!("the path of its root would have {} bytes", root.len());
            let hint = "choose shorter names, or go less deep: 3,072 bytes are the most";
            return Err(invalid(problem, hint));
        }
        self.push(
            None,
            WorkspaceCreated {
                workspace_id,
                name,
                parent: parent.map(|parent| parent.id),
                root,
                view,
                git: new.git,
                owner,
                network: new.network,
                env: new.env,
                limits: new.limits,
            },
        );
        Ok(workspace_id)
    }

    /// The workspace that is to hold another one's folder.
    fn parent(&self, reference: &str) -> Result<&'a Workspace, Rejection> {
        let state: &'a State = self.state;
        let parent = state.resolve_workspace(reference)?;
        if parent.view.is_some() {
            let hint = "create it in the workspace that the view shows";
            return Err(invalid("a view holds no workspaces", hint));
        }
        let above = |one: &&Workspace| self.state.workspace(one.parent?);
        if std::iter::successors(Some(parent), above).count() >= MAX_NESTED {
            let what = "the depth of workspaces in each other";
            return Err(Rejection::TreeLimit { what, limit: MAX_NESTED });
        }
        Ok(parent)
    }

    fn view(&self, new: &NewView) -> Result<View, Rejection> {
        let of = self.state.resolve_workspace(&new.of)?;
        let base = |one: &&Workspace| self.state.workspace(one.view.as_ref()?.of);
        if std::iter::successors(Some(of), base).count() > MAX_VIEWS {
            let what = "the depth of views of each other";
            return Err(Rejection::TreeLimit { what, limit: MAX_VIEWS });
        }
        let subdir = normal_path(&new.subdir)?;
        self.state.check_git_file(of, &subdir)?;
        let seen = self.state.workspace_world(of).at(&subdir);
        if new.access > seen.map_or(Access::ReadWrite, |seen| seen.access) {
            let at = match subdir.as_str() {
                "" => "all of it".to_owned(),
                subdir => Short(subdir).to_string(),
            };
            return Err(Rejection::WorkspaceInvalid {
                problem: format!("{at} is read-only in {:?}", of.name.as_str()),
                hint: "make the view read-only, or have that linked for writing first",
            });
        }
        Ok(View { of: of.id, subdir, access: new.access })
    }

    pub(super) fn update_workspace(
        &mut self,
        reference: &str,
        network: Option<bool>,
        env: BTreeMap<String, Option<String>>,
        limits: Limits,
    ) -> Result<Outcome, Rejection> {
        let workspace = self.state.resolve_workspace(reference)?;
        let network = network.filter(|network| *network != workspace.network);
        environment::check_names(env.keys())?;
        let missing = |(name, value): &(&String, &Option<String>)| {
            value.is_none() && !workspace.env.contains_key(*name)
        };
        if let Some((name, _)) = env.iter().find(missing) {
            let hint = "show the workspace to see its variables";
            return Err(invalid(format!("it has no variable {} of its own", Short(name)), hint));
        }
        let mut variables = workspace.env.clone();
        let env: BTreeMap<_, _> = env
            .into_iter()
            .filter(|(name, value)| workspace.env.get(name) != value.as_ref())
            .collect();
        for (name, value) in &env {
            match value {
                Some(value) => variables.insert(name.clone(), value.clone()),
                None => variables.remove(name),
            };
        }
        environment::check(&variables)?;
        let limits = workspace.limits.changed_by(limits);
        check_limits(limits)?;
        let limits = (limits != workspace.limits).then_some(limits);
        let workspace_id = workspace.id;
        if network.is_some() || !env.is_empty() || limits.is_some() {
            self.push(None, WorkspaceUpdated { workspace_id, network, env, limits });
        }
        Ok(Outcome::Workspace(workspace_id))
    }

    pub(super) fn link_directory(
        &mut self,
        workspace: &str,
        host_path: String,
        mount: &str,
        mode: Access,
    ) -> Result<Outcome, Rejection> {
        let workspace = self.state.resolve_workspace(workspace)?;
        let link = Link { source: Source::Host(host_path), mode, via: None };
        self.link(workspace, mount, link)?;
        Ok(Outcome::Workspace(workspace.id))
    }

    /// Links a folder.
    pub(super) fn link(
        &mut self,
        workspace: &Workspace,
        mount: &str,
        link: Link,
    ) -> Result<(), Rejection> {
        let mount_path = mount_path(mount)?;
        self.state.check_git_file(workspace, &mount_path)?;
        if link.source.is_git_file() {
            return Err(git_file(&mount_path));
        }
        if let Some(other) = workspace.overlapping(&mount_path) {
            return Err(Rejection::LinkExists { mount: mount_path, other: other.to_owned() });
        }
        if workspace.links.len() >= Workspace::MAX_LINKS {
            return Err(Rejection::TooMany { what: "links", limit: Workspace::MAX_LINKS });
        }
        let seen = self.state.worlds_with(workspace, &mount_path, link.clone());
        if seen.iter().any(|(_, world)| world.mounts.len() > World::MAX_MOUNTS) {
            let what = "folders to be seen in a workspace or a view of it";
            return Err(Rejection::TooMany { what, limit: World::MAX_MOUNTS });
        }
        let Link { source, mode, via } = link;
        let workspace_id = workspace.id;
        self.push(None, WorkspaceLinked { workspace_id, source, mount_path, mode, via });
        Ok(())
    }

    pub(super) fn unlink_directory(
        &mut self,
        workspace: &str,
        mount_path: &str,
    ) -> Result<Outcome, Rejection> {
        let workspace = self.state.resolve_workspace(workspace)?;
        let found = normal_path(mount_path).ok();
        let found = found.filter(|mount_path| workspace.links.contains_key(mount_path));
        let Some(mount_path) = found else {
            let known = workspace.links.keys().cloned().collect();
            return Err(Rejection::LinkNotFound { mount: mount_path.to_owned(), known });
        };
        self.unlink(vec![(workspace.id, mount_path)]);
        Ok(Outcome::Workspace(workspace.id))
    }

    /// Removes links, and those that agents made of what they saw through them.
    pub(super) fn unlink(&mut self, first: Vec<(WorkspaceId, String)>) {
        let state = self.state;
        let mut gone: BTreeSet<(WorkspaceId, String)> = first.iter().cloned().collect();
        let mut open = first;
        while let Some((id, mount_path)) = open.pop() {
            let Some(workspace) = state.workspace(id) else { continue };
            let Some(link) = workspace.links.get(&mount_path) else { continue };
            self.push(None, WorkspaceUnlinked { workspace_id: id, mount_path });
            let through = state.with_views(workspace);
            for (id, mount, other) in self.links_of_agents() {
                let seen = through.iter().any(|one| Some(one.id) == other.via);
                if seen && link.source.covers(&other.source) {
                    let place = (id, mount.to_owned());
                    if gone.insert(place.clone()) {
                        open.push(place);
                    }
                }
            }
        }
    }

    /// Links of agents, with the workspace and the mount path.
    fn links_of_agents(&self) -> impl Iterator<Item = (WorkspaceId, &str, &Link)> {
        self.state.workspaces().flat_map(|one| {
            let links = one.links.iter().filter(|(_, link)| link.via.is_some());
            links.map(|(mount, link)| (one.id, mount.as_str(), link))
        })
    }

    /// Deletes a workspace, its views and theirs, and what agents linked out of any of them.
    pub(super) fn delete_workspace(
        &mut self,
        reference: &str,
        forced: bool,
    ) -> Result<Outcome, Rejection> {
        let state = self.state;
        let workspace = state.resolve_workspace(reference)?;
        let doomed = state.with_views(workspace);
        if let Some(by) = self.users(workspace, &doomed) {
            return Err(Rejection::WorkspaceInUse { name: workspace.name.clone(), by });
        }
        let ids: BTreeSet<WorkspaceId> = doomed.iter().map(|one| one.id).collect();
        let folder = Source::Workspaces(workspace.root.clone());
        let lost = self.links_of_agents().filter(|(id, _, link)| {
            let seen = link.via.is_some_and(|via| ids.contains(&via));
            !ids.contains(id) && (seen || folder.covers(&link.source))
        });
        let lost = lost.map(|(id, mount, _)| (id, mount.to_owned())).collect();
        self.unlink(lost);
        for one in doomed {
            let (workspace_id, root, git) = (one.id, one.root.clone(), one.git.clone());
            self.push(None, WorkspaceDeleted { workspace_id, root, git, forced });
        }
        Ok(Outcome::Workspace(workspace.id))
    }

    /// Who keeps a workspace and its views from being deleted, in words.
    fn users(&self, workspace: &Workspace, doomed: &[&Workspace]) -> Option<String> {
        let agents = doomed.iter().rev().flat_map(|one| {
            self.state.users_of(one.id).map(|agent| {
                let path = self.state.path(agent);
                match one.id == workspace.id {
                    true => format!("agent {path:?}"),
                    false => format!("agent {path:?} (in its view {:?})", one.name),
                }
            })
        });
        let nested = self.state.nested_in(workspace.id);
        let nested = nested.map(|child| format!("workspace {:?}", child.name));
        let all: Vec<String> = agents.chain(nested).collect();
        match all.as_slice() {
            [] => None,
            [a, b, c, rest @ ..] if !rest.is_empty() => {
                Some(format!("{a}, {b}, {c} and {} more", rest.len()))
            }
            few => Some(few.join(", ")),
        }
    }
}
