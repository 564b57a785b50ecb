//! What a mount hides, and agents that look for it by other paths.

use super::*;

/// A workspace that has `top/secret/key` under a link, which shows `top/secret/shown`.
fn covered() -> World {
    let mut world = World::new();
    fs::create_dir_all(world.root().join("top/secret/deep")).unwrap();
    fs::write(world.root().join("top/secret/key"), SECRET).unwrap();
    fs::write(world.root().join("top/secret/deep/key"), SECRET).unwrap();
    let host = world.link("top/secret", Access::ReadOnly);
    fs::write(host.join("shown"), "of the link").unwrap();
    world
}

/// Nothing of what is hidden was changed.
fn is_untouched(world: &World) {
    let hidden = world.root().join("top/secret");
    for file in ["key", "deep/key"] {
        assert_eq!(fs::read_to_string(hidden.join(file)).unwrap(), SECRET);
    }
    assert_eq!(fs::read_dir(hidden).unwrap().count(), 2);
}

#[test]
fn what_a_link_hides_is_not_reached_through_symbolic_links() {
    let world = covered();
    let root = world.root();
    fs::create_dir(root.join("sub")).unwrap();
    symlink("top/secret", root.join("s")).unwrap();
    symlink("top/secret/deep", root.join("d")).unwrap();
    symlink("top/secret/key", root.join("k")).unwrap();
    symlink("top", root.join("t")).unwrap();
    symlink("../top/../t/./secret", root.join("sub/s")).unwrap();
    symlink("sub/s", root.join("twice")).unwrap();
    for path in
        ["s/key", "d/key", "k", "t/secret/key", "t/secret/deep/key", "sub/s/key", "twice/key"]
    {
        assert!(world.read(path).unwrap_err().contains("nothing at"), "{path}");
        assert!(world.append(path, "x").unwrap_err().contains("read-only"), "{path}");
        if path != "k" {
            assert!(world.write(path, "x").unwrap_err().contains("read-only"), "{path}");
        }
    }
    for path in ["s/new", "d/new", "t/secret/a/b", "twice/new"] {
        for refused in [world.write(path, "x"), world.append(path, "x")] {
            assert!(refused.unwrap_err().contains("read-only"), "{path}");
        }
    }
    is_untouched(&world);
}

#[test]
fn a_symbolic_link_to_a_mount_shows_what_is_mounted() {
    let mut world = covered();
    symlink("top/secret", world.root().join("s")).unwrap();
    symlink("top", world.root().join("t")).unwrap();
    for path in ["s/shown", "t/secret/shown", "top/secret/shown"] {
        assert_eq!(world.read(path).as_deref(), Ok("of the link"), "{path}");
    }
    // It leads on from there, also where the place of a mount was not made yet.
    let host = world.link("made/late", Access::ReadWrite);
    symlink("made/late", world.root().join("l")).unwrap();
    symlink("../../top", host.join("up")).unwrap();
    world.write("l/new/file", "x").unwrap();
    assert_eq!(fs::read_to_string(host.join("new/file")).unwrap(), "x");
    assert!(!world.root().join("made").exists());
    fs::create_dir_all(world.root().join("made/late")).unwrap();
    assert_eq!(world.read("l/up/secret/shown").as_deref(), Ok("of the link"));
    is_untouched(&world);
}

#[test]
fn a_listing_does_not_show_what_a_mount_hides() {
    let mut world = covered();
    symlink("top/secret", world.root().join("s")).unwrap();
    symlink("top", world.root().join("t")).unwrap();
    assert_eq!(world.list("s", true).unwrap(), ["s/shown"]);
    assert_eq!(world.list("t", false).unwrap(), ["t/secret"]);
    assert_eq!(world.list("t", true).unwrap(), ["t/secret", "t/secret/shown"]);
    // A mount in a mount hides what the outer one has there.
    let outer = world.link("outer", Access::ReadOnly);
    fs::create_dir(outer.join("inner")).unwrap();
    fs::write(outer.join("inner/key"), SECRET).unwrap();
    world.link("outer/inner", Access::ReadOnly);
    assert_eq!(world.list("outer", true).unwrap(), ["outer/inner"]);
    let all = ["outer", "outer/inner", "s", "t", "top", "top/secret", "top/secret/shown"];
    assert_eq!(world.list("", true).unwrap(), all);
}

#[test]
fn a_symbolic_link_that_changes_while_tools_run_does_not_lead_to_what_is_hidden() {
    let world = covered();
    fs::create_dir(world.root().join("open")).unwrap();
    fs::write(world.root().join("open/key"), "harmless").unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let root = world.root();
    symlink("open", root.join("swap")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                for target in ["top/secret", "open", "top/secret/deep"] {
                    symlink(target, root.join("next")).unwrap();
                    fs::rename(root.join("next"), root.join("swap")).unwrap();
                }
            }
        });
        for _ in 0..2000 {
            if let Ok(text) = world.read("swap/key") {
                assert_ne!(text, SECRET);
            }
            let _ = world.write("swap/key", "harmless");
            let _ = world.append("swap/key", "");
            let listed = world.list("swap", true).unwrap_or_default();
            assert!(!listed.contains(&"swap/deep".to_owned()), "{listed:?}");
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    is_untouched(&world);
}

#[test]
fn links_that_lead_up_and_down_for_ever_end() {
    let world = World::new();
    fs::create_dir_all(world.root().join("a/b")).unwrap();
    for number in 0..40 {
        let next = format!("l{}/{}x", number + 1, "a/b/../../".repeat(300));
        symlink(next, world.root().join(format!("l{number}"))).unwrap();
    }
    symlink("a/b/../../".repeat(400), world.root().join("l40")).unwrap();
    for refused in world.attempts("l0/x") {
        assert!(refused.is_err());
    }
}
