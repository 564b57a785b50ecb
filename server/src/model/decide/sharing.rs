//! What agents do with workspaces: their own, and those that they created. Whatever they give on
//! is theirs to see, with no more access and no more network than they have.

use serde_json::{Value, json};

use super::Plan;
use crate::model::workspace::{join_paths, normal_path};
use crate::model::{
    Access, Agent, CreateWorkspace, DeleteWorkspace, Link, LinkDir, LinkFrom, NewView,
    NewWorkspace, Rejection, Short, State, Tool, UnlinkDir, Workspace,
};

/// Most workspaces that one agent created.
const MAX_OWNED: usize = 64;
/// Most links of a workspace that are listed.
const MAX_LISTED: usize = 64;

impl<'a> Plan<'a, '_> {
    /// Runs a workspace tool.
    pub(super) fn workspace_tool(&mut self, agent: &Agent, tool: Tool) -> Result<Value, Rejection> {
        let none = || Rejection::NoWorkspace { name: agent.name.clone() };
        let own = agent.workspace.and_then(|id| self.state.workspace(id)).ok_or_else(none)?;
        match tool {
            Tool::CreateWorkspace(args) => self.tool_create_workspace(agent, args),
            Tool::DeleteWorkspace(args) => self.tool_delete_workspace(agent, &args),
            Tool::LinkDir(LinkDir { workspace, source, target, mode }) => {
                let to = self.managed(agent, &workspace)?;
                self.tool_link(agent, (own, &source), (to, &target), mode.into())
            }
            Tool::LinkFrom(args) => {
                let LinkFrom { source_workspace, source, target, target_workspace, mode } = args;
                let from = self.managed(agent, &source_workspace)?;
                let to = target_workspace.map(|to| self.managed(agent, &to)).transpose()?;
                let to = to.unwrap_or(own);
                self.tool_link(agent, (from, &source), (to, &target), mode.into())
            }
            Tool::UnlinkDir(args) => self.tool_unlink(agent, &args),
            _ => Ok(self.tool_list_workspaces(agent, own)),
        }
    }

    /// A workspace that an agent works in or created.
    fn managed(&self, agent: &Agent, reference: &str) -> Result<&'a Workspace, Rejection> {
        let state: &'a State = self.state;
        state.managed(agent, reference)
    }

    /// What an agent may do in a workspace that is not its own, if all of it is its to give on.
    pub(super) fn may_give(
        &self,
        agent: &Agent,
        workspace: &Workspace,
    ) -> Result<Access, Rejection> {
        if workspace.owner == Some(agent.id) {
            return Ok(Access::ReadWrite);
        }
        let hidden = || Rejection::WorkspaceNotVisible { name: workspace.name.clone() };
        // What another agent's workspace shows, and what a view does, changes with more than itself.
        if workspace.owner.is_some() || workspace.view.is_some() {
            return Err(hidden());
        }
        let own = self.state.world(agent).ok_or_else(hidden)?;
        let all = self.state.workspace_world(workspace);
        if all.network && !own.network {
            return Err(Rejection::NetworkNotAllowed { name: workspace.name.to_string() });
        }
        let fits = |most: Access| {
            let world = all.clone().window("", most);
            world.mounts.values().all(|mount| own.shows(mount))
        };
        [Access::ReadWrite, Access::ReadOnly]
            .into_iter()
            .find(|most| fits(*most))
            .ok_or_else(hidden)
    }

    fn tool_create_workspace(
        &mut self,
        agent: &Agent,
        args: CreateWorkspace,
    ) -> Result<Value, Rejection> {
        if self.state.owned_by(agent.id).count() >= MAX_OWNED {
            return Err(Rejection::TooMany { what: "workspaces of yours", limit: MAX_OWNED });
        }
        let none = || Rejection::NoWorkspace { name: agent.name.clone() };
        let own = self.state.world(agent).ok_or_else(none)?;
        if args.network_access && !own.network {
            return Err(Rejection::NetworkNotAllowed { name: args.name });
        }
        let (view, limits) = match &args.view_of {
            Some(of) => {
                let of = self.managed(agent, of)?;
                let (world, above) = self.state.sight(agent, of);
                let subdir = normal_path(&args.subdir)?;
                let access = args.mode.into();
                if world.at(&subdir).is_none_or(|seen| seen.access < access) {
                    return Err(read_only(of, &subdir));
                }
                let (of, subdir) = (of.id.to_string(), join_paths(above, &subdir)?);
                // It shares the limits of what it shows.
                (Some(NewView { of, subdir, access }), Default::default())
            }
            None => (None, own.limits),
        };
        let network = args.network_access;
        let new = NewWorkspace { view, network, limits, ..NewWorkspace::named(&args.name) };
        let id = self.create_workspace(new, Some(agent.id))?;
        Ok(json!({ "status": "created", "workspace_id": id, "name": args.name }))
    }

    fn tool_delete_workspace(
        &mut self,
        agent: &Agent,
        args: &DeleteWorkspace,
    ) -> Result<Value, Rejection> {
        let workspace = self.managed(agent, &args.workspace)?;
        let (id, name) = (workspace.id.to_string(), workspace.name.clone());
        // Its own is in use by itself.
        self.delete_workspace(&id, false)?;
        Ok(json!({ "status": "deleted", "name": name }))
    }

    fn tool_link(
        &mut self,
        agent: &Agent,
        (from, source): (&Workspace, &str),
        (to, target): (&Workspace, &str),
        mode: Access,
    ) -> Result<Value, Rejection> {
        let (world, _) = self.state.sight(agent, from);
        let seen = normal_path(source)?;
        if world.has_mounts_below(&seen) {
            let problem = "other folders are linked below it";
            return Err(Rejection::LinkForbidden { path: seen, problem });
        }
        let Some(mount) = world.at(&seen).filter(|mount| mount.access >= mode) else {
            return Err(read_only(from, &seen));
        };
        let mount_path = self.changeable(agent, to, target)?;
        self.link(to, &mount_path, Link { source: mount.source, mode, via: Some(from.id) })?;
        Ok(json!({
            "status": "linked", "workspace": to.name, "target": normal_path(target)?, "mode": mode,
        }))
    }

    fn tool_unlink(&mut self, agent: &Agent, args: &UnlinkDir) -> Result<Value, Rejection> {
        let workspace = self.managed(agent, &args.workspace)?;
        let mount_path = self.changeable(agent, workspace, &args.target)?;
        let target = normal_path(&args.target)?;
        match workspace.links.get(&mount_path) {
            // Which there are it sees with list_workspaces.
            None => Err(Rejection::LinkNotFound { mount: target, known: Vec::new() }),
            // It may be there to hide something.
            Some(link) if link.via.is_none() => Err(Rejection::LinkNotYours { mount: target }),
            Some(_) => {
                let name = workspace.name.clone();
                self.unlink(vec![(workspace.id, mount_path)]);
                Ok(json!({ "status": "unlinked", "workspace": name, "target": target }))
            }
        }
    }

    /// The path in a workspace of what an agent sees there, if it may change its links.
    fn changeable(
        &self,
        agent: &Agent,
        workspace: &Workspace,
        target: &str,
    ) -> Result<String, Rejection> {
        let target = normal_path(target)?;
        if agent.workspace != Some(workspace.id) {
            return Ok(target);
        }
        if agent.workspace_access < Access::ReadWrite {
            return Err(read_only(workspace, ""));
        }
        join_paths(&agent.workspace_subdir, &target)
    }

    fn tool_list_workspaces(&self, agent: &Agent, own: &Workspace) -> Value {
        let owned = self.state.owned_by(agent.id).filter(|one| one.id != own.id);
        let all = std::iter::once(own).chain(owned);
        let all: Vec<Value> = all.map(|one| self.describe_workspace(agent, one)).collect();
        json!({ "workspaces": all })
    }

    fn describe_workspace(&self, agent: &Agent, workspace: &Workspace) -> Value {
        let own = agent.workspace == Some(workspace.id);
        let (world, _) = self.state.sight(agent, workspace);
        let links = world.mounts.iter().filter(|(at, _)| !at.is_empty()).take(MAX_LISTED);
        let links: Vec<Value> =
            links.map(|(at, mount)| json!({ "target": at, "mode": mount.access })).collect();
        let view = workspace.view.as_ref().filter(|_| !own);
        let of = view.and_then(|view| self.state.workspace(view.of));
        let users = self
            .state
            .users_of(workspace.id)
            .filter(|other| other.id == agent.id || self.state.is_within(other.id, agent.id));
        let users: Vec<&str> = users.map(|other| other.name.as_str()).collect();
        json!({
            "name": workspace.name,
            "workspace_id": workspace.id,
            "own": own,
            "mode": world.at("").map(|root| root.access),
            "network_access": world.network,
            "view_of": of.map(|of| &of.name),
            "subdir": view.map(|view| &view.subdir),
            "links": links,
            "agents": users,
        })
    }
}

fn read_only(workspace: &Workspace, path: &str) -> Rejection {
    let name = &workspace.name;
    Rejection::ReadOnly {
        what: match path {
            "" => format!("workspace {name:?}"),
            path => format!("{} in workspace {name:?}", Short(path)),
        },
    }
}
