//! Agents that see one folder of a workspace.

use super::*;

impl World {
    /// The same world as seen from a folder of the workspace.
    fn window(mut self, subdir: &str) -> Self {
        self.seen = self.seen.window(subdir, Access::ReadWrite);
        self
    }
}

fn paths(listed: &Value) -> Vec<&str> {
    let entries = listed["entries"].as_array().unwrap().iter();
    entries.map(|entry| entry["path"].as_str().unwrap()).collect()
}

#[test]
fn a_window_shows_one_folder_and_the_links_in_it() {
    let mut world = World::new();
    world.write("src/lib/a.txt", "inside").unwrap();
    world.write("above.txt", "outside").unwrap();
    let host = world.link("src/lib/docs", Access::ReadOnly);
    fs::write(host.join("page"), "linked").unwrap();
    world.link("other", Access::ReadWrite);
    symlink("../../above.txt", world.root().join("src/lib/up")).unwrap();
    symlink("..", world.root().join("src/lib/dir")).unwrap();
    let window = world.window("src/lib");
    assert_eq!(window.read("a.txt").unwrap(), "inside");
    assert_eq!(window.read("docs/page").unwrap(), "linked");
    let listed = window.tool("list_files", &json!({ "recursive": true })).unwrap();
    assert_eq!(paths(&listed), ["a.txt", "dir", "docs", "docs/page", "up"]);
    assert!(window.write("docs/page", "x").is_err(), "a link keeps its mode");
    for escape in ["up", "dir/lib/a.txt", "../above.txt", "dir/../above.txt", "other/x"] {
        assert!(window.read(escape).is_err(), "{escape}");
    }
    window.write("new/b.txt", "b").unwrap();
    assert!(window.root().ends_with("src/lib") && window.root().join("new/b.txt").exists());
}

#[test]
fn a_window_that_lies_in_a_link_shows_a_folder_of_the_host() {
    let mut world = World::new();
    let host = world.link("repo", Access::ReadWrite);
    fs::create_dir_all(host.join("crates/core")).unwrap();
    fs::write(host.join("secret"), SECRET).unwrap();
    symlink("../../secret", host.join("crates/core/up")).unwrap();
    let window = world.window("repo/crates/core");
    window.write("lib.rs", "fn main() {}").unwrap();
    assert_eq!(fs::read_to_string(host.join("crates/core/lib.rs")).unwrap(), "fn main() {}");
    let listed = window.tool("list_files", &json!({})).unwrap();
    assert_eq!(paths(&listed), ["lib.rs", "up"]);
    assert!(window.read("up").is_err() && window.read("../../secret").is_err());
}

#[test]
fn a_window_on_a_symbolic_link_is_refused() {
    let world = World::new();
    symlink(world.outside(), world.root().join("way")).unwrap();
    let window = world.window("way");
    assert!(window.read("secret").is_err());
    assert!(window.write("new", "x").is_err());
    assert!(!window.outside().join("new").exists());
}
