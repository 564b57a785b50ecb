//! What file tools ask for before they write.

use std::sync::{Arc, Mutex};

use super::*;

/// What was asked for: bytes more, the size of the file, and whether it counts to the workspace.
type Asked = (u64, u64, bool);

/// Notes what it is asked for, and has room for files of some size.
#[derive(Debug, Default)]
struct Notes {
    asked: Mutex<Vec<Asked>>,
    largest: u64,
}

impl Room for Notes {
    fn take(&self, want: &Want<'_>) -> Result<Taken, NoRoom> {
        self.asked.lock().unwrap().push((want.growth, want.size, want.counted.is_some()));
        let refused = NoRoom { kind: LimitKind::Disk, detail: "too much".to_owned() };
        if want.size <= self.largest { Ok(Box::new(())) } else { Err(refused) }
    }
}

fn noting(mut world: World, largest: u64) -> (World, Arc<Notes>) {
    let notes = Arc::new(Notes { largest, ..Notes::default() });
    world.files = world.files.with_room(notes.clone());
    (world, notes)
}

impl Notes {
    fn all(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    fn last(&self) -> Asked {
        *self.asked.lock().unwrap().last().unwrap()
    }
}

#[test]
fn what_is_written_asks_for_the_blocks_that_it_takes_more() {
    let (world, notes) = noting(World::new(), u64::MAX);
    world.write("file", &"x".repeat(5000)).unwrap();
    assert_eq!(notes.last(), (8192, 5000, true));
    world.append("file", &"x".repeat(3000)).unwrap();
    assert_eq!(notes.last(), (0, 8000, true), "it fits in the last block");
    world.append("file", &"x".repeat(193)).unwrap();
    assert!(notes.all().contains(&(4096, 8193, true)));
    assert_eq!(notes.last(), (0, 8193, true), "the file that is open is looked at again");
    fs::File::create(world.root().join("holes")).unwrap().set_len(1 << 20).unwrap();
    world.append("holes", "x").unwrap();
    assert!(notes.all().contains(&(8192, (1 << 20) + 1, true)));
    world.write("empty", "").unwrap();
    assert_eq!(notes.last(), (512, 0, true), "an empty file takes a place in a table");
    world.write("a/b/c", "x").unwrap();
    assert_eq!(notes.last(), (3 * 4096, 1, true), "two folders, and a file");
    symlink("file", world.root().join("link")).unwrap();
    world.write("link", "x").unwrap();
    assert_eq!(notes.last(), (4096, 1, true), "a link that is replaced frees nothing");
}

#[test]
fn what_is_replaced_counts_unless_it_stays() {
    let (world, notes) = noting(World::new(), u64::MAX);
    world.write("file", &"x".repeat(40_960)).unwrap();
    let taken = fs::metadata(world.root().join("file")).unwrap().blocks() * 512;
    world.write("file", "small").unwrap();
    assert_eq!(notes.last(), (4096_u64.saturating_sub(taken), 5, true));
    fs::hard_link(world.root().join("file"), world.root().join("other")).unwrap();
    world.write("file", "small").unwrap();
    assert_eq!(notes.last(), (4096 - 512, 5, true));
}

#[test]
fn only_what_lies_in_the_workspace_counts_to_it() {
    let mut world = World::new();
    world.link("linked", Access::ReadWrite);
    let other = Source::Workspaces("x/root".to_owned());
    world.files.create_root("x/root").unwrap();
    world.seen.mounts.insert("view".into(), Mount { source: other, access: Access::ReadWrite });
    let inner = Source::Workspaces("w/root/inner".to_owned());
    world.seen.mounts.insert("own".into(), Mount { source: inner, access: Access::ReadWrite });
    world.write("inner/a", "x").unwrap();
    let (mut world, notes) = noting(world, u64::MAX);
    for (path, counts) in [("a", true), ("linked/a", false), ("view/a", false), ("own/b", true)] {
        world.write(path, "x").unwrap();
        assert_eq!(notes.last().2, counts, "{path}");
    }
    world.seen.counted = Source::Workspaces("w/root/inner".to_owned());
    world.write("a", "x").unwrap();
    assert!(!notes.last().2, "it lies above");
    world.write("inner/a", "x").unwrap();
    assert!(notes.last().2);
}

#[test]
fn where_there_is_no_room_nothing_is_made() {
    let (world, _) = noting(World::new(), 4);
    let refused = world.write("a/b", "12345").unwrap_err();
    assert!(refused.starts_with("too much; nothing was written"), "{refused}");
    assert!(fs::read_dir(world.root()).unwrap().next().is_none());
    world.write("a", "1234").unwrap();
    world.append("a", "5").unwrap_err();
    world.write("a", "12345").unwrap_err();
    assert_eq!(world.read("a").unwrap(), "1234");
}
