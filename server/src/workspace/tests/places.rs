//! Folders that are made for mounts.

use super::*;

fn places(paths: &[&Path]) -> Vec<Source> {
    paths.iter().map(|path| Source::Host(path.to_str().unwrap().to_owned())).collect()
}

#[test]
fn a_place_is_removed_with_what_led_to_it_and_only_if_it_was_made() {
    let mut world = World::new();
    let host = world.link("a/b/c", Access::ReadOnly);
    fs::write(host.join("page"), "").unwrap();
    fs::create_dir(world.root().join("a")).unwrap();
    world.files.open(&world.seen).unwrap();
    assert!(world.root().join("a/b/c").is_dir());
    let below = |path: &str| Source::Workspaces(format!("w/root/{path}"));
    world.files.remove_places(&[below("a/b/c"), below("a/b"), below("a")]);
    assert!(world.root().join("a").is_dir() && !world.root().join("a/b").exists());
    assert!(host.join("page").exists());
    // One that is gone is fine.
    world.files.remove_places(&[below("a/b/c"), below("a/b"), below("a")]);
    assert!(world.root().join("a").is_dir());
}

#[test]
fn a_place_with_something_in_it_stays() {
    let mut world = World::new();
    world.link("a/b", Access::ReadOnly);
    world.files.open(&world.seen).unwrap();
    let place = world.root().join("a/b");
    fs::write(place.join("file"), "").unwrap();
    world.files.remove_places(&places(&[&place, &world.root().join("a")]));
    assert!(place.join("file").exists());
}

#[test]
fn a_link_in_a_place_is_not_followed() {
    let mut world = World::new();
    world.link("a/b", Access::ReadOnly);
    world.files.open(&world.seen).unwrap();
    let (root, outside) = (world.root(), world.outside());
    let victim = outside.join("b");
    fs::rename(root.join("a/b"), &victim).unwrap();
    fs::remove_dir(root.join("a")).unwrap();
    symlink(&outside, root.join("a")).unwrap();
    world.files.remove_places(&places(&[&root.join("a/b")]));
    symlink(&victim, root.join("c")).unwrap();
    world.files.remove_places(&places(&[&root.join("c")]));
    assert!(victim.is_dir() && root.join("c").is_symlink());
}
