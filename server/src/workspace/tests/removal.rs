//! What becomes of the folders of workspaces that are deleted.

use super::*;
use crate::model::Git;
use crate::workspace::HalfRemoved;
use crate::workspace::worktrees::kept_in;

impl World {
    /// Names in the folder of all workspaces.
    fn tops(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root().ancestors().nth(2).unwrap()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Makes a file, and the folders to it, among those of all workspaces.
    fn put(&self, path: &str, text: &str) {
        let path = self.root().ancestors().nth(2).unwrap().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

#[test]
fn removing_a_workspace_named_root_leaves_its_parent() {
    let world = World::new();
    world.write("file", "the parent's").unwrap();
    let child = "w/root/root";
    world.files.create_root(child).unwrap();
    fs::write(world.root().join("root/own"), "the child's").unwrap();
    let id = WorkspaceId::from_u128(1);
    world.files.begin_removal(id, child, None);
    assert_eq!(world.list("", true).unwrap(), ["file"]);
    // Another one of its name is not its concern any more.
    world.files.create_root(child).unwrap();
    fs::write(world.root().join("root/own"), "the next one's").unwrap();
    assert_eq!(world.files.remove_workspace(id, child, None).unwrap(), None);
    assert_eq!(world.read("root/own").as_deref(), Ok("the next one's"));
    assert_eq!(world.tops(), ["w"]);
}

#[test]
fn what_was_put_in_the_place_of_a_nested_workspace_is_told_and_left() {
    let (world, child) = (World::new(), "w/root/child");
    assert_eq!(world.files.left_in_place(child), None);
    world.files.create_root(child).unwrap();
    assert_eq!(world.files.left_in_place(child), None);
    fs::remove_dir(world.root().join("child")).unwrap();
    fs::write(world.root().join("child"), "an agent's").unwrap();
    let told = world.files.left_in_place(child).unwrap();
    assert!(told.contains("/w/root/child\", was left there: it is no folder"), "{told}");
    let id = WorkspaceId::from_u128(1);
    world.files.begin_removal(id, child, None);
    assert_eq!(world.files.remove_workspace(id, child, None).unwrap(), None);
    assert_eq!(world.read("child").as_deref(), Ok("an agent's"));
}

#[test]
fn branches_that_are_kept_are_told_with_their_repository() {
    let git = r#"{"repo":"/r","branch":"b","common_dir":"/r/.git","identity":"1"}"#;
    let git: Git = serde_json::from_str(git).unwrap();
    let told = |kept: &[&str]| {
        let kept: Vec<String> = kept.iter().map(|one| (*one).to_owned()).collect();
        kept_in(&git, &kept)
    };
    assert_eq!(told(&[]), None);
    let one = "kept branch b of \"/r\"; merge or delete it there";
    assert_eq!(told(&["b"]).as_deref(), Some(one));
    let both = "kept branches b-1, b of \"/r\"; merge or delete them there";
    assert_eq!(told(&["b-1", "b"]).as_deref(), Some(both));
}

#[test]
fn what_may_not_be_written_is_removed_all_the_same() {
    let world = World::new();
    fs::create_dir_all(world.root().join("a/b/c")).unwrap();
    fs::write(world.root().join("a/b/c/file"), "").unwrap();
    for (path, mode) in [("a/b/c", 0o000), ("a/b", 0o555), ("a", 0o100), ("", 0o500)] {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(world.root().join(path), mode).unwrap();
    }
    world.files.remove_workspace(WorkspaceId::from_u128(1), "w/root", None).unwrap();
    assert_eq!(world.tops(), [""; 0]);
}

#[test]
fn what_a_daemon_did_not_get_to_remove_is_removed_by_the_next() {
    let world = World::new();
    let git = r#"{"repo":"/r","branch":"b","common_dir":"/r/.git","identity":"1"}"#;
    world.put("removed-w/root/file", "of one that was whole");
    world.put("removed-0123456789abcdef/file", "of a child");
    let ids = [1, 2].map(WorkspaceId::from_u128);
    let [gone, used] = ids.map(|id| id.to_string());
    world.put("a/removing", "what is no record keeps no other");
    world.put(&format!("{gone}/removing"), git);
    world.put(&format!("{gone}/{gone}/file"), "of a worktree");
    world.put(&format!("{used}/removing"), git);
    let found = world.files.half_removed(|top| top == used).unwrap();
    assert_eq!(world.tops(), [gone.clone(), used, "a".to_owned(), "w".to_owned()]);
    let git = serde_json::from_str(git).unwrap();
    assert_eq!(found, [HalfRemoved { id: ids[0], root: format!("{gone}/{gone}"), git }]);
}
