//! Folders that agents shut, to themselves and to the daemon.

use super::*;

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_root_that_its_agent_shut_is_opened_again() {
    let mut world = World::new();
    world.link("docs", Access::ReadOnly);
    world.write("file", "text").unwrap();
    for shut in [0o000, 0o200, 0o400, 0o500] {
        set(&world.root(), shut);
        world.files.open(&world.seen).unwrap();
        assert_eq!(mode(&world.root()), 0o700, "{shut:o}");
        set(&world.root(), shut);
        assert_eq!(world.read("file").as_deref(), Ok("text"));
        assert_eq!(mode(&world.root()), 0o700, "{shut:o}");
    }
    set(&world.root(), 0o755);
    world.files.open(&world.seen).unwrap();
    assert_eq!(mode(&world.root()), 0o755, "it shuts nobody out");
}

#[test]
fn who_only_reads_is_let_in_as_well() {
    let mut world = World::new();
    world.write("file", "text").unwrap();
    world.seen.mounts.get_mut("").unwrap().access = Access::ReadOnly;
    set(&world.root(), 0o000);
    assert_eq!(world.read("file").as_deref(), Ok("text"));
    assert_eq!(mode(&world.root()), 0o700);
    set(&world.root(), 0o500);
    assert_eq!(world.read("file").as_deref(), Ok("text"));
    assert_eq!(mode(&world.root()), 0o500, "nobody is to write there");
}

#[test]
fn roots_on_the_way_to_a_nested_one_are_opened_again() {
    let world = World::new();
    world.files.create_root("w/root/child/inner").unwrap();
    let inner = World { seen: seen("w/root/child/inner"), ..world };
    inner.write("file", "text").unwrap();
    let roots = ["w/root/child/inner", "w/root/child", "w/root"];
    let roots = roots.map(|root| inner.files.path_of(&Source::Workspaces(root.to_owned())));
    let shut = || roots.iter().for_each(|root| set(root, 0o000));
    shut();
    inner.files.open(&inner.seen).unwrap();
    assert!(roots.iter().rev().all(|root| mode(root) == 0o700));
    shut();
    assert_eq!(inner.read("file").as_deref(), Ok("text"));
    shut();
    let id = WorkspaceId::from_u128(1);
    inner.files.begin_removal(id, "w/root/child/inner", None);
    inner.files.remove_workspace(id, "w/root/child/inner", None).unwrap();
    assert!(roots[1].is_dir() && !roots[0].exists());
}

#[test]
fn a_part_of_a_root_is_shown_though_that_was_shut() {
    let mut world = World::new();
    world.files.create_root("x/root").unwrap();
    let shared = world.files.path_of(&Source::Workspaces("x/root".to_owned()));
    fs::create_dir(shared.join("part")).unwrap();
    fs::write(shared.join("part/file"), "text").unwrap();
    let source = Source::Workspaces("x/root/part".to_owned());
    world.seen.mounts.insert("part".to_owned(), Mount { source, access: Access::ReadOnly });
    set(&shared, 0o000);
    world.files.open(&world.seen).unwrap();
    set(&shared, 0o000);
    assert_eq!(world.read("part/file").as_deref(), Ok("text"));
    assert_eq!(mode(&shared), 0o700);
}

#[test]
fn a_folder_of_the_host_stays_as_its_owner_left_it() {
    let mut world = World::new();
    let written = world.link("a", Access::ReadWrite);
    let read = world.link("b", Access::ReadOnly);
    let guarded = world.link("c", Access::ReadWrite);
    for (path, shut) in [(&written, 0o000), (&read, 0o000), (&guarded, 0o500)] {
        set(path, shut);
    }
    // Whether a process can use it is for the system to say.
    let _ = world.files.open(&world.seen);
    let written_to = world.write("a/file", "text");
    let modes = [&written, &read, &guarded].map(|path| mode(path));
    // So that they can be removed.
    [&written, &read].iter().for_each(|path| set(path, 0o700));
    assert_eq!(modes, [0o000, 0o000, 0o500]);
    // Who is root may use all.
    assert_eq!(written_to.is_ok(), is_root(), "{written_to:?}");
    assert!(written_to.is_ok() || written_to.as_ref().is_err_and(|told| told.contains("\"a")));
}

#[test]
fn neither_where_a_link_leads_nor_what_is_anothers_is_opened() {
    let world = World::new();
    let child = World { seen: seen("w/root/child"), ..world };
    symlink(child.outside(), child.root()).unwrap();
    set(&child.outside(), 0o500);
    child.files.open(&child.seen).unwrap_err();
    child.read("secret").unwrap_err();
    let kept = mode(&child.outside());
    // So that what is in it can be removed.
    set(&child.outside(), 0o700);
    assert_eq!(kept, 0o500);
    if is_root() {
        let world = World { seen: seen("w/root"), ..child };
        std::os::unix::fs::chown(world.root(), Some(1000), Some(1000)).unwrap();
        set(&world.root(), 0o000);
        world.files.open(&world.seen).unwrap();
        assert_eq!(mode(&world.root()), 0o000);
    }
}

#[test]
fn a_folder_that_the_daemons_user_cannot_use_is_not_linked() {
    let mut world = World::new();
    let host = world.link("docs", Access::ReadOnly);
    for shut in [0o000, 0o300, 0o600] {
        set(&host, shut);
        let checked = world.files.check_link(host.to_str().unwrap());
        set(&host, 0o700);
        match checked {
            Err(Rejection::LinkForbidden { problem, .. }) => {
                assert!(problem.contains("may not read"), "{problem}");
            }
            // Who is root may use all.
            checked => assert!(is_root() && checked.is_ok(), "{shut:o}: {checked:?}"),
        }
    }
}
