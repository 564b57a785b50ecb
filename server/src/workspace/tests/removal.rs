//! What becomes of the folders of workspaces that are deleted.

use super::*;
use crate::workspace::HalfRemoved;

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
    world.files.remove_root(child).unwrap();
    assert_eq!(world.list("", true).unwrap(), ["file"]);
    assert_eq!(world.tops(), ["w"]);
}

#[test]
fn what_a_daemon_did_not_get_to_remove_is_removed_by_the_next() {
    let world = World::new();
    let git = r#"{"repo":"/r","branch":"b","common_dir":"/r/.git","identity":"1"}"#;
    world.put("removed-w/root/file", "of one that was whole");
    world.put("removed-0123456789abcdef/file", "of a child");
    world.put("a/removing", "what is no record keeps no other");
    world.put("b/removing", git);
    world.put("b/b/file", "of a worktree");
    world.put("c/removing", git);
    let found = world.files.half_removed(|top| top == "c").unwrap();
    assert_eq!(world.tops(), ["a", "b", "c", "w"]);
    let git = serde_json::from_str(git).unwrap();
    assert_eq!(found, [HalfRemoved { root: "b/b".to_owned(), git }]);
}
