//! Random changes of workspaces, by USER and by agents, and what must hold of them.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::world::{World, send};
use crate::model::World as Seen;
use crate::model::*;

/// What happens; numbers choose among what there is.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Folder { name: u8, within: Option<u8> },
    View { name: u8, of: u8, subdir: u8, rw: bool },
    HostLink { mount: u8, rw: bool },
    Unlink { workspace: u8, link: u8 },
    Update { workspace: u8, network: bool, few: bool },
    Delete { workspace: u8 },
    Agent { name: u8, workspace: u8, subdir: u8, ro: bool },
    Call { agent: u8, tool: Tool, one: u8, other: u8, path: u8, rw: bool },
    Told { agent: u8, what: u8, late: bool },
    Wake { agent: u8 },
    Rest { agent: u8 },
    Leave { agent: u8 },
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Tool {
    Create,
    View,
    Delete,
    List,
    Link,
    LinkFrom,
    Unlink,
    Spawn,
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    use Step as S;
    let n = any::<u8>;
    let yes = any::<bool>;
    let tool = prop_oneof![
        3 => Just(Tool::Create),
        3 => Just(Tool::View),
        1 => Just(Tool::Delete),
        1 => Just(Tool::List),
        3 => Just(Tool::Link),
        3 => Just(Tool::LinkFrom),
        1 => Just(Tool::Unlink),
        4 => Just(Tool::Spawn),
    ];
    prop_oneof![
        2 => (n(), proptest::option::of(n())).prop_map(|(name, within)| S::Folder { name, within }),
        3 => (n(), n(), n(), yes())
            .prop_map(|(name, of, subdir, rw)| S::View { name, of, subdir, rw }),
        3 => (n(), yes()).prop_map(|(mount, rw)| S::HostLink { mount, rw }),
        2 => (n(), n()).prop_map(|(workspace, link)| S::Unlink { workspace, link }),
        1 => (n(), yes(), yes())
            .prop_map(|(workspace, network, few)| S::Update { workspace, network, few }),
        2 => n().prop_map(|workspace| S::Delete { workspace }),
        3 => (n(), n(), n(), yes())
            .prop_map(|(name, workspace, subdir, ro)| S::Agent { name, workspace, subdir, ro }),
        18 => (n(), tool, n(), n(), n(), yes()).prop_map(|(agent, tool, one, other, path, rw)| {
            S::Call { agent, tool, one, other, path, rw }
        }),
        1 => (n(), n(), yes()).prop_map(|(agent, what, late)| S::Told { agent, what, late }),
    ]
}

/// Steps that keep agents at work, with the others.
fn busy_step() -> impl Strategy<Value = Step> {
    let n = any::<u8>;
    prop_oneof![
        12 => step(),
        4 => n().prop_map(|agent| Step::Wake { agent }),
        2 => n().prop_map(|agent| Step::Rest { agent }),
        1 => n().prop_map(|agent| Step::Leave { agent }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, max_shrink_iters: 4000, ..Default::default() })]

    #[test]
    fn nobody_shows_a_child_more_than_he_sees(
        steps in proptest::collection::vec(busy_step(), 1..120)
    ) {
        let mut world = World::new(16);
        let new = NewWorkspace::named("desk");
        world.run(Command::CreateWorkspace { new }).expect("its name is free");
        for step in steps {
            world.desk_step(step);
        }
    }
}

fn name(number: u8) -> String {
    format!("w{}", number % 8)
}

/// Few paths, so that they meet.
fn path(number: u8) -> &'static str {
    ["", "a", "b", "a/b", "a/b/c", "./b//c", "docs", "..", "/etc"][usize::from(number) % 9]
}

fn mode(rw: bool) -> (Access, &'static str) {
    if rw { (Access::ReadWrite, "rw") } else { (Access::ReadOnly, "ro") }
}

impl World {
    fn pick_workspace(&self, number: u8) -> Option<Workspace> {
        let count = self.state.workspaces().len();
        self.state.workspaces().nth(usize::from(number) % count.max(1)).cloned()
    }

    fn workspace_name(&self, number: u8) -> String {
        self.pick_workspace(number).map_or_else(|| name(number), |one| one.name.to_string())
    }

    fn pick_running(&self, number: u8) -> Option<Agent> {
        let runs = |agent: &&Agent| agent.turn().is_some_and(|turn| turn.cancelling.is_none());
        let running: Vec<&Agent> = self.state.agents().filter(runs).collect();
        running.get(usize::from(number) % running.len().max(1)).copied().cloned()
    }

    pub(super) fn desk_step(&mut self, step: Step) {
        match step {
            Step::Folder { name: number, within } => {
                let parent = within.map(|within| self.workspace_name(within));
                let new = NewWorkspace { parent, ..NewWorkspace::named(name(number)) };
                let _ = self.run(Command::CreateWorkspace { new });
            }
            Step::View { name: number, of, subdir, rw } => {
                let of = self.workspace_name(of);
                let view = Some(NewView { of, subdir: path(subdir).into(), access: mode(rw).0 });
                let new = NewWorkspace { view, ..NewWorkspace::named(name(number)) };
                let _ = self.run(Command::CreateWorkspace { new });
            }
            Step::HostLink { mount, rw } => {
                // Elsewhere USER would give a child more than its parent has.
                let _ = self.run(Command::LinkDirectory {
                    workspace: "desk".into(),
                    host_path: format!("/srv/{}", mount % 3),
                    mount_path: path(mount).into(),
                    mode: mode(rw).0,
                });
            }
            Step::Unlink { workspace, link } => {
                let Some(workspace) = self.pick_workspace(workspace) else { return };
                let count = workspace.links.len().max(1);
                let Some(mount) = workspace.links.keys().nth(usize::from(link) % count) else {
                    return;
                };
                let (workspace, mount_path) = (workspace.name.to_string(), mount.clone());
                self.run(Command::UnlinkDirectory { workspace, mount_path }).expect("it is there");
            }
            Step::Update { workspace, network, few } => {
                let processes = Some(if few { 16 } else { 0 });
                let _ = self.run(Command::UpdateWorkspace {
                    workspace: self.workspace_name(workspace),
                    network: Some(network),
                    env: [("A".to_owned(), few.then(|| "a".to_owned()))].into(),
                    limits: Limits { processes, ..Limits::default() },
                });
            }
            other => self.desk_step_of_agents(&other),
        }
    }

    fn desk_step_of_agents(&mut self, step: &Step) {
        match *step {
            Step::Delete { workspace } => {
                let workspace = self.workspace_name(workspace);
                // Where the team starts.
                if workspace != "desk" {
                    let _ = self.run(Command::DeleteWorkspace { workspace, force: false });
                }
            }
            Step::Agent { name, workspace, subdir, ro } => {
                let agent = NewAgent {
                    name: format!("n{}", name % 5),
                    workspace: Some(self.workspace_name(workspace)),
                    workspace_subdir: Some(path(subdir).into()),
                    workspace_access: ro.then_some(Access::ReadOnly),
                    ..NewAgent::default()
                };
                let _ = self.run(Command::CreateAgent { agent, parent: None });
            }
            Step::Call { agent, tool, one, other, path, rw } => {
                let Some(agent) = self.pick_running(agent) else { return };
                let (tool, args) = self.arguments(tool, (one, other), path, rw);
                let _ = self.call(&agent.id.to_string(), tool, &args);
            }
            Step::Told { agent, what, late } => {
                let Some(agent) = self.pick_running(agent) else { return };
                let turn = agent.turn().map(|turn| turn.id).filter(|_| !late);
                let (id, turn) = (agent.id, turn.unwrap_or(TurnId::from_u64(7)));
                self.run(told(id, turn, agent.workspace, what)).expect("never rejected");
            }
            Step::Wake { agent } => {
                let agents: Vec<&Agent> = self.state.agents().filter(|one| one.is_live()).collect();
                if let Some(agent) = agents.get(usize::from(agent) % agents.len().max(1)) {
                    let agent = agent.id.to_string();
                    let _ = self.run(send(&agent, "go"));
                }
            }
            Step::Rest { agent } => {
                let Some(agent) = self.pick_running(agent) else { return };
                self.complete(&agent.id.to_string(), "done");
            }
            Step::Leave { agent } => {
                let Some(agent) = self.pick_running(agent) else { return };
                let agent = agent.id.to_string();
                self.run(Command::Terminate { agent, recursive: true }).expect("it is there");
            }
            _ => {}
        }
    }

    fn arguments(
        &self,
        tool: Tool,
        (one, other): (u8, u8),
        at: u8,
        rw: bool,
    ) -> (&'static str, Value) {
        let (first, second) = (self.workspace_name(one), self.workspace_name(other));
        let (source, target) = (path(at), path(at / 9));
        let mode = mode(rw).1;
        match tool {
            Tool::Create => {
                ("create_workspace", json!({ "name": name(one), "network_access": rw }))
            }
            Tool::View => (
                "create_workspace",
                json!({ "name": name(one), "view_of": second, "subdir": source, "mode": mode }),
            ),
            Tool::Delete => ("delete_workspace", json!({ "workspace": first })),
            Tool::List => ("list_workspaces", json!({})),
            Tool::Link => (
                "link_dir",
                json!({ "workspace": first, "source": source, "target": target, "mode": mode }),
            ),
            Tool::LinkFrom => (
                "link_from",
                json!({ "source_workspace": first, "source": source, "target": target,
                        "target_workspace": second, "mode": mode }),
            ),
            Tool::Unlink => ("unlink_dir", json!({ "workspace": first, "target": target })),
            Tool::Spawn => (
                "spawn_agent",
                json!({ "name": format!("n{}", one % 5), "instructions": "x",
                        "workspace": second, "workspace_subdir": source,
                        "workspace_access": rw.then_some("rw") }),
            ),
        }
    }

    /// Looks whether everything holds of workspaces that must always hold.
    pub(super) fn judge_workspaces(&self) {
        for workspace in self.state.workspaces() {
            self.judge_workspace(workspace);
        }
        let spawned = self.entries.iter().filter_map(|entry| match &entry.event {
            Event::AgentCreated(data) if data.spawned_in.is_some() => Some(data.agent_id),
            _ => None,
        });
        let spawned: BTreeSet<AgentId> = spawned.collect();
        for agent in self.state.agents().filter(|agent| agent.is_live()) {
            let Some(seen) = self.state.world(agent) else {
                assert_eq!(agent.workspace, None, "who works in a workspace has one");
                continue;
            };
            judge_world(&seen);
            let most = seen.mounts.values().map(|mount| mount.access).max();
            assert!(most <= Some(agent.workspace_access), "nobody may more than he is let");
            // USER may give a child more than its parent has.
            let parent = agent.parent.filter(|_| spawned.contains(&agent.id));
            if let Some(parent) = parent.and_then(|id| self.state.agent(id)) {
                self.judge_child(agent, &seen, parent);
            }
        }
    }

    fn judge_workspace(&self, workspace: &Workspace) {
        let there = |id: WorkspaceId| self.state.workspace(id);
        let world = self.state.workspace_world(workspace);
        judge_world(&world);
        let same = self.state.workspace_named(workspace.name.as_str());
        assert_eq!(same.map(|one| one.id), Some(workspace.id), "names are unique");
        if let Some(parent) = workspace.parent {
            let parent = there(parent).expect("what holds a workspace is there");
            assert!(covers(&parent.root, &workspace.root) && parent.view.is_none());
        }
        for link in workspace.links.values() {
            assert!(
                link.via.is_none_or(|via| there(via).is_some()),
                "what it was seen in is there"
            );
            if let Source::Workspaces(folder) = &link.source {
                let within = |one: &Workspace| one.view.is_none() && covers(&one.root, folder);
                assert!(self.state.workspaces().any(within), "a link leads into a workspace");
            }
        }
        let Some(view) = &workspace.view else { return };
        let base = there(view.of).expect("what a view shows is there");
        let base = self.state.workspace_world(base);
        for (at, mount) in &world.mounts {
            if !workspace.links.contains_key(at) {
                assert!(base.shows(mount) && mount.access <= view.access, "{at:?} of a view");
            }
        }
    }

    /// A child shows nothing but what its parent could show it, and what it made itself.
    fn judge_child(&self, child: &Agent, seen: &Seen, parent: &Agent) {
        let owned = self.state.owned_by(parent.id).map(|one| self.state.workspace_world(one));
        let given: Vec<Seen> = self.state.world(parent).into_iter().chain(owned).collect();
        let of_its_own = |mount: &Mount| {
            let Source::Workspaces(folder) = &mount.source else { return false };
            let made =
                |owner| self.state.agent(owner).is_none() || self.state.is_within(owner, child.id);
            self.state
                .workspaces()
                .any(|one| one.owner.is_some_and(made) && covers(&one.root, folder))
        };
        // In a workspace of USER others who work there may have linked what they see.
        let theirs = self.state.workspace(child.workspace.expect("it sees something"));
        let theirs = theirs
            .filter(|one| child.workspace != parent.workspace && one.owner != Some(parent.id));
        let linked = |mount: &Mount| {
            let all = self.state.workspaces().flat_map(|one| one.links.values());
            let mut linked = all.filter(|link| link.via.is_some());
            theirs.is_some() && linked.any(|link| link.source.covers(&mount.source))
        };
        for (at, mount) in &seen.mounts {
            let shown =
                given.iter().any(|world| world.shows(mount)) || of_its_own(mount) || linked(mount);
            assert!(shown, "{} shows {mount:?} at {at:?}, {} does not", child.name, parent.name);
        }
    }
}

fn judge_world(world: &Seen) {
    assert!(world.mounts.contains_key(""), "a world has a root");
    for (at, mount) in &world.mounts {
        assert_eq!(workspace_path(at).as_ref(), Ok(at), "mounts lie at normal paths");
        match &mount.source {
            Source::Host(path) => assert!(path.starts_with("/srv/"), "{path}"),
            Source::Workspaces(path) => {
                let mut parts = path.split('/');
                let (top, root) = (parts.next(), parts.next());
                assert!(root == Some("root") || root == top, "{path} lies below no root");
                assert_eq!(workspace_path(path).as_ref(), Ok(path));
            }
        }
        // Whoever takes a window of it, sees no more.
        let window = world.clone().window(at, Access::ReadOnly);
        assert_eq!(window.at("").map(|top| top.source), Some(mount.source.clone()));
        assert!(window.mounts.values().all(|inner| inner.access == Access::ReadOnly));
    }
}

/// What a provider tells of a process.
fn told(agent: AgentId, turn: TurnId, workspace: Option<WorkspaceId>, what: u8) -> Command {
    let text = "text".to_owned();
    match what % 5 {
        0 => Command::ReportStderr { agent, turn, text, bytes: 9 },
        1 => Command::ReportExit { agent, turn: Some(turn), pid: 7, status: text, reason: None },
        2 => {
            let (agent, workspace, limit) = (Some(agent), None, LimitKind::Memory);
            Command::ReportLimit { agent, turn: Some(turn), workspace, limit, detail: text }
        }
        3 => Command::ReportUnsandboxed { agent, turn, reason: text },
        _ => {
            let limit = LimitKind::Disk;
            Command::ReportLimit { agent: None, turn: None, workspace, limit, detail: text }
        }
    }
}
