//! What is mounted where, as far as git and the folders of mounts are concerned.

use serde_json::json;

use super::world::World;
use crate::model::*;

impl World {
    fn worktree(&mut self, name: &str) {
        let git = Git {
            repo: "/srv/repo".into(),
            branch: "b/work".into(),
            common_dir: "/srv/repo/.git".into(),
            identity: "1".into(),
            created_branch: true,
            start: None,
        };
        let new = NewWorkspace { git: Some(git), ..NewWorkspace::named(name) };
        self.run(Command::CreateWorkspace { new }).unwrap();
    }

    fn try_view(&mut self, name: &str, of: &str, subdir: &str) -> Result<Outcome, Rejection> {
        let access = Access::ReadWrite;
        let view = Some(NewView { of: of.into(), subdir: subdir.into(), access });
        self.run(Command::CreateWorkspace {
            new: NewWorkspace { view, ..NewWorkspace::named(name) },
        })
    }

    fn try_link(&mut self, workspace: &str, mount: &str) -> Result<Outcome, Rejection> {
        self.run(Command::LinkDirectory {
            workspace: workspace.into(),
            host_path: "/srv/docs".into(),
            mount_path: mount.into(),
            mode: Access::ReadWrite,
        })
    }

    /// What unlinking leaves to be removed, as paths below the root of a workspace.
    fn left(&mut self, workspace: &str, mount: &str, root: &str) -> Vec<String> {
        let before = self.effects.len();
        let (workspace, mount_path) = (workspace.to_owned(), mount.to_owned());
        self.run(Command::UnlinkDirectory { workspace, mount_path }).unwrap();
        let root = format!("{}/", self.state.resolve_workspace(root).unwrap().root);
        let below = |place: &Source| match place {
            Source::Workspaces(path) => path.strip_prefix(&root).unwrap().to_owned(),
            Source::Host(path) => path.clone(),
        };
        let places = self.effects[before..].iter().filter_map(|effect| match effect {
            Effect::RemovePlaces { places } => Some(places.iter().map(below).collect()),
            _ => None,
        });
        let all: Vec<Vec<String>> = places.collect();
        assert_eq!(all.len(), 1);
        all.into_iter().flatten().collect()
    }
}

#[test]
fn nothing_takes_the_place_of_the_git_file_of_a_worktree() {
    let mut world = World::new(4);
    world.worktree("wt");
    world.try_view("look", "wt", "").unwrap();
    world.try_view("sub", "wt", "src").unwrap();
    for (workspace, mount) in [("wt", ".git"), ("wt", "./.git/hooks"), ("look", ".git")] {
        let refused = world.try_link(workspace, mount);
        assert!(matches!(refused, Err(Rejection::PathInvalid { .. })), "{mount}: {refused:?}");
    }
    let refused = world.try_view("bad", "look", ".git/hooks");
    assert!(matches!(refused, Err(Rejection::PathInvalid { .. })), "{refused:?}");
    let agent = NewAgent {
        name: "a".into(),
        workspace: Some("wt".into()),
        workspace_subdir: Some(".git".into()),
        ..NewAgent::default()
    };
    let refused = world.run(Command::CreateAgent { agent: agent.clone(), parent: None });
    assert!(matches!(refused, Err(Rejection::PathInvalid { .. })), "{refused:?}");
    // An agent that has it in a folder of another workspace neither gives it on nor mounts there.
    let agent = NewAgent { workspace_subdir: None, ..agent };
    world.run(Command::CreateAgent { agent, parent: None }).unwrap();
    world.send("a", "go");
    let call = world.call("a", "create_workspace", &json!({ "name": "other" }));
    world.result(call).unwrap().unwrap();
    let link = |source: &str, target: &str| {
        json!({ "source_workspace": "wt", "source": source, "target": target,
                "target_workspace": "other", "mode": "rw" })
    };
    for args in [link(".git", "x"), link(".git/x", "y")] {
        let call = world.call("a", "link_from", &args);
        let said = world.result(call).unwrap().unwrap_err();
        assert!(said.contains("the file by which git finds"), "{said}");
    }
    let call = world.call("a", "link_from", &link("", "wt"));
    world.result(call).unwrap().unwrap();
    world.try_view("through", "other", "").unwrap();
    let refused = world.try_link("through", "wt/.git");
    assert!(matches!(refused, Err(Rejection::PathInvalid { .. })), "{refused:?}");
    // Elsewhere the name is one like any other.
    for (workspace, mount) in [("wt", "src/.git"), ("sub", ".git"), ("other", ".git")] {
        world.try_link(workspace, mount).unwrap_or_else(|no| panic!("{workspace} {mount}: {no}"));
    }
}

#[test]
fn the_folders_of_a_link_go_with_it_unless_another_one_needs_them() {
    let mut world = World::new(4);
    world.run(Command::CreateWorkspace { new: NewWorkspace::named("desk") }).unwrap();
    for mount in ["a/b/c", "a/d"] {
        world.try_link("desk", mount).unwrap();
    }
    assert_eq!(world.left("desk", "a/b/c", "desk"), ["a/b/c", "a/b"]);
    assert_eq!(world.left("desk", "a/d", "desk"), ["a/d", "a"]);
    // Two views mount at one place, the one of them from above.
    world.try_view("one", "desk", "").unwrap();
    world.try_view("two", "desk", "a").unwrap();
    for (workspace, mount) in [("desk", "a/b"), ("two", "b/c")] {
        world.try_link(workspace, mount).unwrap();
    }
    world.try_link("one", "a").unwrap();
    assert_eq!(
        world.left("two", "b/c", "desk"),
        ["/srv/docs/c"],
        "it lay in the link of the other"
    );
    assert_eq!(world.left("desk", "a/b", "desk"), ["a/b"]);
    assert_eq!(world.left("one", "a", "desk"), ["a"]);
}
