//! Opening what a sandbox shows.

use super::*;

fn shown(world: &World) -> Result<Vec<(String, u64)>, String> {
    let opened =
        world.files.open(&world.seen).map_err(|no| format!("{}: {}", no.path, no.problem))?;
    let inode = |open: Open| {
        let inode = rustix::fs::fstat(&open.folder).unwrap().st_ino;
        (open.path, inode)
    };
    Ok(opened.into_iter().map(inode).collect())
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

#[test]
fn folders_are_opened_from_the_root_on_and_their_places_are_made() {
    let mut world = World::new();
    let outer = world.link("a", Access::ReadWrite);
    let other = world.link("a b", Access::ReadOnly);
    let inner = world.link("a/b/c", Access::ReadOnly);
    let expected = vec![
        (String::new(), inode(&world.root())),
        ("a".to_owned(), inode(&outer)),
        ("a b".to_owned(), inode(&other)),
        ("a/b/c".to_owned(), inode(&inner)),
    ];
    assert_eq!(shown(&world), Ok(expected));
    assert!(world.root().join("a b").is_dir() && outer.join("b/c").is_dir());
    assert!(!world.root().join("a/b").exists(), "made where it is not seen");
}

#[test]
fn a_planted_link_is_not_followed_to_make_a_place() {
    let mut world = World::new();
    world.link("a/b", Access::ReadWrite);
    symlink(world.outside(), world.root().join("a")).unwrap();
    let refused = "a/b: at its place: it is no folder, or a symbolic link";
    assert_eq!(shown(&world), Err(refused.to_owned()));
    assert_eq!(fs::read_dir(world.outside()).unwrap().count(), 1);
}

#[test]
fn a_folder_of_the_host_that_is_only_read_gets_no_places() {
    let mut world = World::new();
    let docs = world.link("docs", Access::ReadOnly);
    let inner = world.link("docs/a/b", Access::ReadWrite);
    let refused = "docs/a/b: at its place: it is not there any more";
    assert_eq!(shown(&world), Err(refused.to_owned()));
    assert_eq!(fs::read_dir(&docs).unwrap().count(), 0);
    fs::create_dir_all(docs.join("a/b")).unwrap();
    assert_eq!(shown(&world).unwrap()[2].1, inode(&inner));
}

#[test]
fn what_vanished_is_named() {
    let mut world = World::new();
    let docs = world.link("docs", Access::ReadOnly);
    fs::remove_dir(&docs).unwrap();
    assert_eq!(shown(&world), Err(format!("docs: the folder {docs:?}: it is not there any more")));
    symlink(world.outside(), &docs).unwrap();
    let refused = format!("docs: the folder {docs:?}: it is no folder, or a symbolic link");
    assert_eq!(shown(&world), Err(refused));
}

#[test]
fn a_link_made_before_the_socket_lay_in_it_is_not_shown() {
    let mut world = World::new();
    let docs = world.link("docs", Access::ReadOnly);
    assert!(shown(&world).is_ok());
    fs::create_dir(docs.join("run")).unwrap();
    world.files = world.files.hiding(Some(&docs.join("run/s.sock")));
    let refused = format!("docs: the folder {docs:?}: it holds the daemon's socket");
    assert_eq!(shown(&world), Err(refused));
}
