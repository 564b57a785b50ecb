//! File tools where there is little room.

use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::launcher::limits::room::Rooms;
use crate::model::{Access, Mount, Source, Tool, World};
use crate::workspace::{Counted, Files, Room, Want};

/// An agent with file tools, and nothing else.
struct Agent {
    _folder: tempfile::TempDir,
    files: Files,
    world: World,
}

impl Agent {
    fn new(limits: Limits, rooms: Rooms) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let home = folder.path().join("home");
        let files = Files::new(home.join("workspaces"), &home).with_room(Arc::new(rooms));
        files.create_root("w/root").expect("a root");
        let source = Source::Workspaces("w/root".to_owned());
        let root = Mount { source: source.clone(), access: Access::ReadWrite };
        let world = World {
            workspace: WORKSPACE,
            counted: source,
            shares: Vec::new(),
            mounts: [(String::new(), root)].into(),
            links: Default::default(),
            network: false,
            env: Default::default(),
            limits,
            git: None,
        };
        Self { _folder: folder, files, world }
    }

    fn limited(limits: Limits) -> Self {
        Self::new(limits, Rooms::with_reserve(Limits::default(), |_| 0))
    }

    fn root(&self) -> PathBuf {
        self.files.path_of(&self.world.counted)
    }

    fn write(&self, path: &str, bytes: usize, append: bool) -> Result<(), String> {
        let args = json!({ "path": path, "content": "x".repeat(bytes), "append": append });
        let tool = Tool::parse("write_file", &args.to_string()).expect("a tool");
        self.files.run(&self.world, &tool).map(drop).map_err(|error| error.to_string())
    }
}

const MIB: usize = 1 << 20;

#[test]
fn a_workspace_is_filled_to_its_limit_and_no_further() {
    let limits = Limits { disk: Some(2 << 20), ..Limits::default() };
    let agent = Agent::limited(limits);
    agent.write("a", MIB, false).unwrap();
    let written = (0..).take_while(|_| agent.write("b", 64 << 10, true).is_ok()).count();
    assert_eq!(written, 16);
    let refused = agent.write("c", 100_000, false).unwrap_err();
    assert!(refused.contains("100 KiB more were to be written; 2 MiB are allowed"), "{refused}");
    // What makes no more of it is allowed, and what was removed is seen at once.
    agent.write("a", 4096, false).unwrap();
    agent.write("c", 512 << 10, false).unwrap();
    assert_eq!(fs::metadata(agent.root().join("c")).unwrap().len(), 512 << 10);
}

#[test]
fn what_others_wrote_counts_too() {
    let limits = Limits { disk: Some(2 << 20), ..Limits::default() };
    let agent = Agent::limited(limits);
    fs::write(agent.root().join("theirs"), vec![1; 3 * MIB]).unwrap();
    // A count takes longer than what comes after it, with so many.
    for n in 0..2000 {
        fs::write(agent.root().join(format!("empty-{n}")), "").unwrap();
    }
    agent.write("a", 1, false).unwrap_err();
    fs::remove_file(agent.root().join("theirs")).unwrap();
    agent.write("a", 1, false).unwrap();
}

#[test]
fn agents_of_one_workspace_share_its_room() {
    let limits = Limits { disk: Some(2 << 20), ..Limits::default() };
    let agent = Agent::limited(limits);
    let write = |n: usize| agent.write(&format!("file-{n}"), 256 << 10, false).is_ok();
    let written: usize = std::thread::scope(|threads| {
        let threads: Vec<_> = (0..16).map(|n| threads.spawn(move || write(n))).collect();
        threads.into_iter().filter_map(|one| one.join().ok()).map(usize::from).sum()
    });
    assert_eq!(written, 8);
}

#[test]
fn what_is_about_to_be_written_counts_in_every_count() {
    let limits = Limits { disk: Some(2 << 20), ..Limits::default() };
    let (agent, rooms) = (Agent::limited(limits), Rooms::with_reserve(limits, |_| 0));
    let folder = fs::File::open(agent.root()).expect("a folder");
    let counted = Counted { workspace: WORKSPACE, root: agent.root(), limits };
    let take = |growth| {
        let counted = Some(counted.clone());
        rooms.take(&Want { world: &agent.world, folder: folder.as_fd(), counted, growth, size: 0 })
    };
    let taken = take(3 << 19).expect("room");
    // The disk is counted again and again, and has nothing of it yet.
    assert!((0..1000).all(|_| take(1 << 20).is_err()));
    drop(taken);
    // It was not written after all.
    while take(1 << 20).is_err() {}
}

#[test]
fn a_file_grows_no_larger_than_files_may() {
    let agent = Agent::limited(Limits { file_size: Some(1000), ..Limits::default() });
    agent.write("a", 600, true).unwrap();
    let refused = agent.write("a", 600, true).unwrap_err();
    assert!(refused.starts_with("the file would have 1.1 KiB; 1000 bytes are"), "{refused}");
    agent.write("a", 1000, false).unwrap();
}

#[test]
fn what_is_kept_free_on_the_disk_is_not_written_on() {
    let agent = Agent::new(Limits::default(), Rooms::with_reserve(Limits::default(), |_| u64::MAX));
    let refused = agent.write("a", 1, false).unwrap_err();
    assert!(refused.contains("are free on the disk, of which"), "{refused}");
    fs::write(agent.root().join("a"), vec![1; MIB]).unwrap();
    agent.write("a", 1, false).unwrap();
}

#[test]
fn limits_of_the_settings_hold_where_a_workspace_names_none() {
    let defaults = Limits { disk: Some(64 << 10), ..Limits::default() };
    let agent = Agent::new(Limits::default(), Rooms::with_reserve(defaults, |_| 0));
    agent.write("a", MIB, false).unwrap_err();
    let named = Limits { disk: Some(2 << 20), ..Limits::default() };
    let agent = Agent::new(named, Rooms::with_reserve(defaults, |_| 0));
    agent.write("a", MIB, false).unwrap();
}
