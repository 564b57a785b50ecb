//! The `.git` of a worktree, and agents that would write it.

use super::*;

const CONTENT: &str = "gitdir: /srv/repo/.git/worktrees/a1\n";

/// A worktree, as far as its root shows.
fn worktree() -> World {
    let mut world = World::new();
    world.files.create_root("a1/a1").unwrap();
    world.seen = seen("a1/a1");
    fs::write(world.root().join(".git"), CONTENT).unwrap();
    world
}

#[test]
fn no_tool_writes_it_by_any_path() {
    let world = worktree();
    let root = world.root();
    fs::create_dir(root.join("sub")).unwrap();
    symlink(".git", root.join("way")).unwrap();
    symlink(".", root.join("here")).unwrap();
    symlink("..", root.join("sub/up")).unwrap();
    fs::hard_link(root.join(".git"), root.join("same")).unwrap();
    let refused = "is the file by which git finds the repository; run git instead";
    for path in [".git", "./.git", ".git/config", "here/.git", "here/here/.git", "sub/up/.git"] {
        for tried in [world.write(path, "x"), world.append(path, "x")] {
            let said = tried.unwrap_err();
            assert!(said.contains(refused) || path == ".git/config", "{path}: {said}");
        }
    }
    for path in ["way", "same"] {
        let said = world.append(path, "x").unwrap_err();
        assert!(said.contains(refused), "{path}: {said}");
        // The new file takes the place of a name, not of what that names.
        world.write(path, "x").unwrap();
    }
    assert_eq!(fs::read_to_string(root.join(".git")).unwrap(), CONTENT);
    assert_eq!(world.read(".git").unwrap(), CONTENT);
    for path in [".gitignore", "sub/.git", "sub/.git2"] {
        world.write(path, "x").unwrap();
    }
}

#[test]
fn it_is_shown_read_only_wherever_its_worktree_is_written() {
    let mut world = worktree();
    let root = world.seen.mounts[""].clone();
    world.seen.mounts.insert("again".to_owned(), root.clone());
    let read_only = Mount { access: Access::ReadOnly, ..root };
    world.seen.mounts.insert("look".to_owned(), read_only);
    let open = |world: &World| {
        let open = world.files.open(&world.seen).unwrap();
        let all = world.files.with_git_files(open, &world.seen);
        let shown = |open: Vec<Open>| open.into_iter().map(|one| (one.path, one.access)).collect();
        all.map(shown).map_err(|no| format!("{}: {}", no.path, no.problem))
    };
    let path = |path: &str, access| (path.to_owned(), access);
    let expected: Vec<(String, Access)> = vec![
        path("", Access::ReadWrite),
        path(".git", Access::ReadOnly),
        path("again", Access::ReadWrite),
        path("again/.git", Access::ReadOnly),
        path("look", Access::ReadOnly),
    ];
    assert_eq!(open(&world), Ok(expected));
    let git_file = world.root().join(".git");
    fs::hard_link(&git_file, world.root().join("same")).unwrap();
    assert!(open(&world).unwrap_err().contains("it has other names"));
    fs::remove_file(&git_file).unwrap();
    assert!(open(&world).unwrap_err().starts_with(".git: No such file"));
    symlink("same", &git_file).unwrap();
    assert!(open(&world).unwrap_err().contains("it is no file"));
    fs::remove_file(&git_file).unwrap();
    fs::create_dir(&git_file).unwrap();
    assert!(open(&world).unwrap_err().contains("it is no file"));
}
