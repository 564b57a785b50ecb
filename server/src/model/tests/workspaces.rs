//! Workspaces: views, links of agents, rights, and what goes with what.

use serde_json::{Value, json};

use super::world::World;
use crate::model::*;

impl World {
    fn make(&mut self, new: NewWorkspace) -> Result<Outcome, Rejection> {
        self.run(Command::CreateWorkspace { new })
    }

    fn desk(&mut self, name: &str) {
        self.make(NewWorkspace::named(name)).unwrap();
    }

    fn view(&mut self, name: &str, of: &str, subdir: &str, access: Access) {
        let view = Some(NewView { of: of.into(), subdir: subdir.into(), access });
        self.make(NewWorkspace { view, ..NewWorkspace::named(name) }).unwrap();
    }

    fn host_link(&mut self, workspace: &str, host: &str, mount: &str, mode: Access) {
        let (workspace, mount_path) = (workspace.to_owned(), mount.to_owned());
        let host_path = host.to_owned();
        self.run(Command::LinkDirectory { workspace, host_path, mount_path, mode }).unwrap();
    }

    fn delete(&mut self, workspace: &str) -> Result<Outcome, Rejection> {
        self.run(Command::DeleteWorkspace { workspace: workspace.into(), force: false })
    }

    /// An agent with a running turn.
    fn worker(&mut self, name: &str, workspace: &str, access: Option<Access>) {
        let agent = NewAgent {
            name: name.into(),
            workspace: Some(workspace.into()),
            workspace_access: access,
            ..NewAgent::default()
        };
        self.run(Command::CreateAgent { agent, parent: None }).unwrap();
        self.send(name, "go");
    }

    fn made(&mut self, agent: &str, tool: &str, args: &Value) -> Value {
        let call = self.call(agent, tool, args);
        self.result(call).expect("it is over").unwrap_or_else(|no| panic!("{tool}: {no}"))
    }

    fn denied(&mut self, agent: &str, tool: &str, args: &Value) -> String {
        let call = self.call(agent, tool, args);
        self.result(call).expect("it is over").expect_err("it is refused")
    }

    /// The mounts of a workspace: `path source mode`.
    fn mounts(&self, workspace: &str) -> Vec<String> {
        let workspace = self.state.resolve_workspace(workspace).unwrap();
        shown(&self.state.workspace_world(workspace))
    }

    fn seen_by(&self, agent: &str) -> Vec<String> {
        shown(&self.state.world(self.agent(agent)).unwrap())
    }

    fn root(&self, workspace: &str) -> String {
        self.state.resolve_workspace(workspace).unwrap().root.clone()
    }

    fn names(&self) -> Vec<&str> {
        self.state.workspaces().map(|one| one.name.as_str()).collect()
    }
}

fn shown(world: &crate::model::World) -> Vec<String> {
    let line = |(at, mount): (&String, &Mount)| {
        let (Source::Workspaces(source) | Source::Host(source)) = &mount.source;
        format!("{at} {source} {}", mount.access.as_str())
    };
    world.mounts.iter().map(line).collect()
}

use Access::{ReadOnly, ReadWrite};

#[test]
fn a_view_shows_a_folder_of_another_workspace_with_the_links_in_it() {
    let mut world = World::new(4);
    world.desk("desk");
    world.host_link("desk", "/srv/docs", "src/docs", ReadWrite);
    world.host_link("desk", "/srv/other", "other", ReadWrite);
    world.view("look", "desk", "./src/", ReadOnly);
    let root = world.root("desk");
    assert_eq!(world.mounts("look"), [format!(" {root}/src ro"), "docs /srv/docs ro".to_owned()]);
    // It follows what it shows, and has links of its own.
    world.host_link("desk", "/srv/new", "src/new", ReadWrite);
    world.host_link("look", "/srv/own", "own", ReadWrite);
    world.view("deep", "look", "docs/api", ReadOnly);
    assert_eq!(world.mounts("look")[2..], ["new /srv/new ro", "own /srv/own rw"]);
    assert_eq!(world.mounts("deep"), [" /srv/docs/api ro"]);
    let unlink =
        Command::UnlinkDirectory { workspace: "desk".into(), mount_path: "src/docs".into() };
    world.run(unlink).unwrap();
    assert_eq!(world.mounts("deep"), [format!(" {root}/src/docs/api ro")]);
}

#[test]
fn a_view_for_writing_of_what_is_only_read_is_refused() {
    let mut world = World::new(4);
    world.desk("desk");
    world.host_link("desk", "/srv/docs", "docs", ReadOnly);
    world.view("look", "desk", "src", ReadOnly);
    for (of, subdir, named) in [
        ("desk", "docs", "\"docs\" is read-only in \"desk\""),
        ("desk", "docs/api", "\"docs/api\" is read-only"),
        ("look", "", "all of it is read-only in \"look\""),
    ] {
        let view = Some(NewView { of: of.into(), subdir: subdir.into(), access: ReadWrite });
        let no = world.make(NewWorkspace { view, ..NewWorkspace::named("x") }).unwrap_err();
        assert!(no.to_string().contains(named), "{no}");
    }
    // Around it, it may be written.
    world.view("all", "desk", "", ReadWrite);
    assert!(world.mounts("all")[1].ends_with("docs ro"));
}

#[test]
fn views_do_not_go_deeper_than_they_may_and_hold_nothing() {
    let mut world = World::new(4);
    world.desk("v0");
    for depth in 1..=16 {
        world.view(&format!("v{depth}"), &format!("v{}", depth - 1), "d", ReadWrite);
    }
    let expected = format!(" {}{} rw", world.root("v0"), "/d".repeat(16));
    assert_eq!(world.mounts("v16"), [expected]);
    let view = Some(NewView { of: "v16".into(), subdir: String::new(), access: ReadOnly });
    let no = world.make(NewWorkspace { view, ..NewWorkspace::named("v17") });
    assert!(matches!(no, Err(Rejection::TreeLimit { limit: 16, .. })), "{no:?}");
    let parent = Some("v1".to_owned());
    let no = world.make(NewWorkspace { parent, ..NewWorkspace::named("in") });
    assert!(matches!(no, Err(Rejection::WorkspaceInvalid { .. })), "{no:?}");
}

#[test]
fn folders_lie_in_each_other_fifty_deep() {
    let mut world = World::new(4);
    world.desk("n0");
    for depth in 1..=50 {
        let parent = Some(format!("n{}", depth - 1));
        world.make(NewWorkspace { parent, ..NewWorkspace::named(format!("n{depth}")) }).unwrap();
    }
    assert!(world.root("n50").starts_with(&world.root("n0")));
    assert!(world.root("n50").ends_with("/n49/n50"));
    assert!(matches!(world.delete("n49"), Err(Rejection::WorkspaceInUse { .. })));
}

#[test]
fn a_root_has_no_longer_path_than_the_system_takes() {
    let mut world = World::new(4);
    let name = |depth: usize| format!("{depth:064}");
    world.desk(&name(0));
    let mut depth = 0;
    let no = loop {
        let (parent, child) = (Some(name(depth)), name(depth + 1));
        match world.make(NewWorkspace { parent, ..NewWorkspace::named(child) }) {
            Ok(_) => depth += 1,
            Err(no) => break no,
        }
    };
    assert!(matches!(no, Rejection::WorkspaceInvalid { .. }), "{no}");
    assert!(no.to_string().contains("the path of its root would have"), "{no}");
    assert!((40..64).contains(&depth) && world.root(&name(depth)).len() <= 3072, "{depth}");
}

#[test]
fn a_variable_that_is_not_there_is_not_unset() {
    let mut world = World::new(4);
    let env = [("A".to_owned(), "1".to_owned())].into();
    world.make(NewWorkspace { env, ..NewWorkspace::named("desk") }).unwrap();
    let unset = |names: &[&str]| Command::UpdateWorkspace {
        workspace: "desk".into(),
        network: None,
        env: names.iter().map(|name| ((*name).to_owned(), None)).collect(),
        limits: Limits::default(),
    };
    let no = world.run(unset(&["A", "NOPE"])).unwrap_err();
    assert!(no.to_string().contains("it has no variable \"NOPE\" of its own"), "{no}");
    world.run(unset(&["A"])).unwrap();
    assert!(world.run(unset(&["A"])).is_err());
}

#[test]
fn a_view_has_its_own_switch_and_shares_variables_and_limits() {
    let mut world = World::new(4);
    let limits = Limits { memory: Some(1 << 30), processes: Some(64), ..Limits::default() };
    let env: std::collections::BTreeMap<_, _> =
        [("A".to_owned(), "base".to_owned()), ("B".to_owned(), "base".to_owned())].into();
    let desk = NewWorkspace { network: true, env, limits, ..NewWorkspace::named("desk") };
    world.make(desk).unwrap();
    world.view("look", "desk", "", ReadOnly);
    let desk = world.state.resolve_workspace("desk").unwrap().id;
    let look = |world: &World| {
        let look = world.state.resolve_workspace("look").unwrap();
        world.state.workspace_world(look)
    };
    let seen = look(&world);
    assert_eq!((seen.workspace, seen.network, seen.limits), (desk, false, limits));
    let update = |limits: Limits| Command::UpdateWorkspace {
        workspace: "look".into(),
        network: Some(true),
        env: [("A".to_owned(), Some("own".to_owned()))].into(),
        limits,
    };
    let few = Limits { processes: Some(16), ..Limits::default() };
    world.run(update(few)).unwrap();
    let seen = look(&world);
    assert!(seen.network && seen.workspace != desk);
    assert_eq!((seen.env["A"].as_str(), seen.env["B"].as_str()), ("own", "base"));
    assert_eq!(seen.limits, Limits { processes: Some(16), ..limits });
    let events = world.state.seq();
    world.run(update(few)).unwrap();
    assert_eq!(world.state.seq(), events, "what changes nothing is no event");
    world.run(update(Limits { processes: Some(0), ..Limits::default() })).unwrap();
    assert_eq!(look(&world).workspace, desk);
    let bad = Limits { processes: Some(1), ..Limits::default() };
    assert!(matches!(world.run(update(bad)), Err(Rejection::WorkspaceInvalid { .. })));
}

#[test]
fn what_counts_is_the_root_of_the_workspace_whose_limits_hold() {
    let mut world = World::new(4);
    let limits = Limits { disk: Some(1 << 30), ..Limits::default() };
    world.make(NewWorkspace { limits, ..NewWorkspace::named("desk") }).unwrap();
    world.view("look", "desk", "src", ReadWrite);
    let root = Source::Workspaces(world.root("desk"));
    let look = |world: &World| {
        let look = world.state.resolve_workspace("look").unwrap();
        world.state.workspace_world(look)
    };
    assert_eq!(look(&world).mounts[""].source, root.join("src"));
    assert_eq!(look(&world).counted, root);
    assert_eq!(look(&world).window("lib", ReadWrite).counted, root);
    let update = Command::UpdateWorkspace {
        workspace: "look".into(),
        network: None,
        env: Default::default(),
        limits,
    };
    world.run(update).unwrap();
    assert_eq!(look(&world).window("lib", ReadWrite).counted, root.join("src"));
}

#[test]
fn a_workspace_goes_with_its_views_unless_an_agent_is_in_one() {
    let mut world = World::new(4);
    world.desk("desk");
    world.desk("other");
    world.view("look", "desk", "a", ReadOnly);
    world.view("deep", "look", "b", ReadOnly);
    world.worker("a", "deep", None);
    let no = world.delete("desk").unwrap_err().to_string();
    assert!(no.contains("agent \"a\" (in its view \"deep\")"), "{no}");
    world.run(Command::Terminate { agent: "a".into(), recursive: false }).unwrap();
    let before = world.effects.len();
    world.delete("desk").unwrap();
    assert_eq!(world.names(), ["other"]);
    let folders = world.effects[before..].iter();
    let removed = folders.filter(|effect| matches!(effect, Effect::RemoveFolder { .. }));
    assert_eq!(removed.count(), 3, "a view has a folder of its own, which is not there");
}

#[test]
fn agents_share_a_workspace_with_rights_of_their_own() {
    let mut world = World::new(8);
    world.desk("desk");
    world.worker("writer", "desk", None);
    world.worker("reader", "desk", Some(ReadOnly));
    let root = world.root("desk");
    assert_eq!(world.seen_by("writer"), [format!(" {root} rw")]);
    assert_eq!(world.seen_by("reader"), [format!(" {root} ro")]);
    let spawn = |name: &str, access: Option<&str>| json!({ "name": name, "instructions": "x", "workspace_access": access });
    world.made("writer", "spawn_agent", &spawn("w", None));
    world.made("writer", "spawn_agent", &spawn("r", Some("ro")));
    world.made("reader", "spawn_agent", &spawn("heir", None));
    let no = world.denied("reader", "spawn_agent", &spawn("more", Some("rw")));
    assert!(no.contains("read-only to you"), "{no}");
    let access = |name: &str| world.agent(name).workspace_access;
    assert_eq!([access("w"), access("r"), access("heir")], [ReadWrite, ReadOnly, ReadOnly]);
    // USER may give a child more than its parent has.
    let agent = NewAgent {
        name: "trusted".into(),
        workspace_access: Some(ReadWrite),
        ..NewAgent::default()
    };
    world.run(Command::CreateAgent { agent, parent: Some("reader".into()) }).unwrap();
    assert_eq!(world.agent("trusted").workspace_access, ReadWrite);
}

#[test]
fn an_agent_gives_on_what_it_sees_and_no_more() {
    let mut world = World::new(8);
    world.desk("desk");
    world.desk("secret");
    world.host_link("desk", "/srv/docs", "docs", ReadOnly);
    world.host_link("desk", "/srv/data", "data", ReadWrite);
    world.worker("lead", "desk", None);
    world.made("lead", "create_workspace", &json!({ "name": "lab" }));
    let link = |workspace: &str, source: &str, target: &str, mode: &str| json!({ "workspace": workspace, "source": source, "target": target, "mode": mode });
    world.made("lead", "link_dir", &link("lab", "docs/api", "in/docs", "ro"));
    world.made("lead", "link_dir", &link("lab", "src", "src", "rw"));
    let (desk, lab) = (world.root("desk"), world.root("lab"));
    let expected =
        [format!(" {lab} rw"), "in/docs /srv/docs/api ro".to_owned(), format!("src {desk}/src rw")];
    assert_eq!(world.mounts("lab"), expected);
    for (args, why) in [
        (link("lab", "docs", "x", "rw"), "read-only to you"),
        (link("lab", "", "x", "ro"), "linked below it"),
        (link("lab", "../secret", "x", "ro"), "\"..\""),
        (link("lab", "/etc", "x", "ro"), "absolute"),
        (link("secret", "src", "x", "ro"), "not yours"),
        (link("nowhere", "src", "x", "ro"), "no workspace"),
        (link("lab", "src", "in", "ro"), "overlaps"),
        (link("lab", "src", "", "ro"), "root of the workspace"),
    ] {
        let no = world.denied("lead", "link_dir", &args);
        assert!(no.contains(why), "{args}: {no}");
    }
    let from = |source_workspace: &str, source: &str, target: &str| json!({ "source_workspace": source_workspace, "source": source, "target": target });
    world.made("lead", "link_from", &from("lab", "results", "results"));
    assert!(world.seen_by("lead").contains(&format!("results {lab}/results ro")));
    let no = world.denied("lead", "link_from", &from("secret", "", "x"));
    assert!(no.contains("not yours"), "{no}");
    let unlink = |target: &str| json!({ "workspace": "desk", "target": target });
    world.made("lead", "unlink_dir", &unlink("results"));
    assert!(world.denied("lead", "unlink_dir", &unlink("docs")).contains("made by USER"));
    assert!(world.denied("lead", "unlink_dir", &unlink("results")).contains("nothing is linked"));
}

#[test]
fn an_agent_makes_views_and_workspaces_within_its_rights() {
    let mut world = World::new(8);
    world.desk("desk");
    world.host_link("desk", "/srv/docs", "docs", ReadOnly);
    world.worker("lead", "desk", None);
    let create = |name: &str, more: Value| {
        let mut args = json!({ "name": name });
        args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        args
    };
    for (more, why) in [
        (json!({ "network_access": true }), "reach the network"),
        (json!({ "view_of": "desk", "subdir": "docs", "mode": "rw" }), "read-only to you"),
        (json!({ "view_of": "desk", "subdir": "../up" }), "\"..\""),
        (json!({ "view_of": "other" }), "no workspace"),
    ] {
        let no = world.denied("lead", "create_workspace", &create("x", more));
        assert!(no.contains(why), "{no}");
    }
    let view = create("part", json!({ "view_of": "desk", "subdir": "src", "mode": "rw" }));
    world.made("lead", "create_workspace", &view);
    let no = world.denied("lead", "create_workspace", &view);
    assert!(no.contains("already a workspace"), "{no}");
    let spawn = json!({ "name": "kid", "instructions": "x", "workspace": "part" });
    world.made("lead", "spawn_agent", &spawn);
    assert_eq!(world.seen_by("kid"), [format!(" {}/src rw", world.root("desk"))]);
    let no = world.denied("lead", "delete_workspace", &json!({ "workspace": "part" }));
    assert!(no.contains("in use by agent \"lead/kid\""), "{no}");
    let no = world.denied("lead", "delete_workspace", &json!({ "workspace": "desk" }));
    assert!(no.contains("in use"), "{no}");
    let listed = world.made("lead", "list_workspaces", &json!({}));
    let names: Vec<&str> = listed["workspaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["desk", "part"]);
    assert_eq!(listed["workspaces"][1]["view_of"], "desk");
    assert!(!listed.to_string().contains("/srv"), "where links lead on the host is not told");
    world.complete("lead", "ok");
    // The child sees the view alone: what is made of it lies in it.
    let view = create("inner", json!({ "view_of": "part", "subdir": "lib" }));
    world.made("kid", "create_workspace", &view);
    assert_eq!(world.mounts("inner"), [format!(" {}/src/lib ro", world.root("desk"))]);
    assert!(
        world
            .denied("kid", "create_workspace", &create("x", json!({ "view_of": "desk" })))
            .contains("not yours")
    );
}

#[test]
fn one_who_only_reads_and_sees_a_part_gives_on_that_alone() {
    let mut world = World::new(8);
    world.desk("desk");
    let agent = NewAgent {
        name: "reader".into(),
        workspace: Some("desk".into()),
        workspace_subdir: Some("part".into()),
        workspace_access: Some(ReadOnly),
        ..NewAgent::default()
    };
    world.run(Command::CreateAgent { agent, parent: None }).unwrap();
    world.send("reader", "go");
    let view = json!({ "name": "v", "view_of": "desk", "subdir": "in", "mode": "rw" });
    assert!(world.denied("reader", "create_workspace", &view).contains("read-only"));
    let view = json!({ "name": "v", "view_of": "desk", "subdir": "in" });
    world.made("reader", "create_workspace", &view);
    assert_eq!(world.mounts("v"), [format!(" {}/part/in ro", world.root("desk"))]);
    let link = json!({ "workspace": "desk", "source": "a", "target": "b" });
    assert!(world.denied("reader", "link_dir", &link).contains("read-only"));
    // What it links into a workspace of its own is what it sees.
    world.made("reader", "create_workspace", &json!({ "name": "own" }));
    let link = json!({ "workspace": "own", "source": "a", "target": "b" });
    world.made("reader", "link_dir", &link);
    assert_eq!(world.mounts("own")[1], format!("b {}/part/a ro", world.root("desk")));
}

#[test]
fn what_agents_linked_goes_with_what_they_saw_it_through() {
    let mut world = World::new(8);
    world.desk("desk");
    world.host_link("desk", "/srv/docs", "docs", ReadOnly);
    world.view("look", "desk", "", ReadWrite);
    world.worker("lead", "look", None);
    world.made("lead", "create_workspace", &json!({ "name": "lab" }));
    world.made("lead", "create_workspace", &json!({ "name": "far" }));
    let link = |workspace: &str, source: &str, target: &str| json!({ "workspace": workspace, "source": source, "target": target });
    world.made("lead", "link_dir", &link("lab", "docs/api", "api"));
    world.made("lead", "link_dir", &link("lab", "src", "src"));
    let chain = json!({ "source_workspace": "lab", "source": "api/v1", "target": "v1",
                        "target_workspace": "far" });
    world.made("lead", "link_from", &chain);
    assert_eq!(world.mounts("far")[1], "v1 /srv/docs/api/v1 ro");
    let unlink = Command::UnlinkDirectory { workspace: "desk".into(), mount_path: "docs".into() };
    world.run(unlink).unwrap();
    assert_eq!(world.mounts("far").len(), 1, "the host folder is seen by nobody any more");
    assert_eq!(world.mounts("lab").len(), 2, "what lies in the workspace stays");
    world.run(Command::Terminate { agent: "lead".into(), recursive: true }).unwrap();
    world.delete("desk").unwrap();
    assert_eq!(world.names(), ["lab", "far"]);
    assert_eq!(world.mounts("lab").len(), 1, "it went with the folder that it showed");
}

#[test]
fn a_nested_workspace_is_given_on_only_if_all_of_it_is_seen() {
    let mut world = World::new(8);
    world.desk("desk");
    for name in ["plain", "rich", "online"] {
        let new = NewWorkspace {
            parent: Some("desk".into()),
            network: name == "online",
            ..NewWorkspace::named(name)
        };
        world.make(new).unwrap();
    }
    world.host_link("rich", "/srv/secret", "secret", ReadOnly);
    world.worker("lead", "desk", None);
    let spawn =
        |workspace: &str| json!({ "name": workspace, "instructions": "x", "workspace": workspace });
    world.made("lead", "spawn_agent", &spawn("plain"));
    assert!(world.denied("lead", "spawn_agent", &spawn("rich")).contains("not yours"));
    assert!(world.denied("lead", "spawn_agent", &spawn("online")).contains("network"));
}

#[test]
fn a_workspace_of_another_agent_is_not_given_on() {
    let mut world = World::new(8);
    world.desk("desk");
    world.worker("one", "desk", None);
    world.worker("two", "desk", None);
    // It shows nothing that the other one does not see, so far.
    let view = json!({ "name": "part", "view_of": "desk", "subdir": "a" });
    world.made("one", "create_workspace", &view);
    world.view("look", "part", "", ReadOnly);
    for name in ["part", "look"] {
        let spawn = json!({ "name": "kid", "instructions": "x", "workspace": name });
        assert!(world.denied("two", "spawn_agent", &spawn).contains("not yours"), "{name}");
    }
    let spawn = json!({ "name": "kid", "instructions": "x", "workspace": "part" });
    world.made("one", "spawn_agent", &spawn);
}

#[test]
fn a_thousand_workspaces_are_found_at_once() {
    let World { mut state, policy, mut ids, now, .. } = World::new(4);
    let cx = &mut Context { now, policy: &policy, ids: &mut ids, attended: &|_| false };
    for i in 0..1000 {
        let new = NewWorkspace::named(format!("w{i}"));
        transact(&mut state, cx, Command::CreateWorkspace { new }, None).unwrap();
    }
    for i in 0..1000 {
        let name = format!("w{i}");
        assert_eq!(state.resolve_workspace(&name).unwrap().name.as_str(), name);
        let delete = Command::DeleteWorkspace { workspace: name, force: false };
        transact(&mut state, cx, delete, None).unwrap();
    }
    assert_eq!(state.workspaces().len(), 0);
}

#[test]
fn what_a_process_did_is_told_once_and_bounded() {
    let mut world = World::new(4);
    world.desk("desk");
    world.worker("a", "desk", None);
    let (agent, turn) = (world.agent("a").id, world.turn("a"));
    let other = TurnId::from_u64(99);
    let desk = world.state.resolve_workspace("desk").unwrap().id;
    let text = format!("{}end", "ä".repeat(20_000));
    let stderr = |turn| Command::ReportStderr { agent, turn, text: text.clone(), bytes: 40_003 };
    world.run(stderr(turn)).unwrap();
    world.run(stderr(other)).unwrap();
    let exit = |turn| Command::ReportExit {
        agent,
        turn,
        pid: 7,
        status: "signal 9 (SIGKILL)".into(),
        reason: Some("it was asked to end".into()),
    };
    world.run(exit(Some(turn))).unwrap();
    world.run(exit(Some(other))).unwrap();
    world.run(Command::ReportUnsandboxed { agent, turn, reason: "off".into() }).unwrap();
    let limit = LimitKind::OpenFiles;
    let hit = Command::ReportLimit {
        agent: Some(agent),
        turn: None,
        workspace: None,
        limit,
        detail: "x".into(),
    };
    world.run(hit).unwrap();
    let events: Vec<&Event> = world.entries.iter().map(|entry| &entry.event).collect();
    let stderr = events.iter().filter_map(|event| match event {
        Event::TurnStderr(data) => Some(data),
        _ => None,
    });
    let stderr: Vec<_> = stderr.collect();
    assert!(matches!(stderr[..], [one] if one.text.len() <= 16 << 10 && one.text.ends_with("end")));
    let exits = events.iter().filter_map(|event| match event {
        Event::ProcessExited(data) => Some(data.turn_id),
        _ => None,
    });
    assert_eq!(exits.collect::<Vec<_>>(), [Some(turn), None]);
    let hit = LimitHit { turn_id: None, workspace_id: desk, limit, detail: "x".into() };
    assert!(events.contains(&&hit.into()));
}

#[test]
fn a_limit_that_a_users_command_met_is_told_in_the_daemons_log() {
    let mut world = World::new(4);
    world.desk("desk");
    let desk = world.state.resolve_workspace("desk").unwrap().id;
    let first = world.entries.len();
    for workspace in [Some(desk), Some(WorkspaceId::from_u128(9)), None] {
        let (limit, detail) = (LimitKind::Disk, "x".to_owned());
        let hit = Command::ReportLimit { agent: None, turn: None, workspace, limit, detail };
        world.run(hit).unwrap();
    }
    let limit = LimitKind::Disk;
    let hit = LimitHit { turn_id: None, workspace_id: desk, limit, detail: "x".into() };
    let told: Vec<_> = world.entries[first..].iter().map(|one| (one.session, &one.event)).collect();
    assert_eq!(told, [(None, &hit.into())]);
}
