//! File tools against those who try to get out, to block the daemon, or to exhaust it.
#![allow(clippy::disallowed_methods, reason = "the files are looked at from outside of the tools")]

mod again;
mod git_file;
mod hidden;
mod looks;
mod mounts;
mod places;
mod removal;
mod room;
mod shut;
mod window;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, mknodat};
use serde_json::{Value, json};

use super::*;
use crate::model::{Access, LimitKind, Mount, Rejection, Source, Tool, WorkspaceId, World as Seen};

/// A home with one workspace, and a folder outside with a secret in it.
struct World {
    folder: tempfile::TempDir,
    files: Files,
    seen: Seen,
}

const SECRET: &str = "the secret";

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        let files = Files::new(home.join("workspaces"), &home);
        let seen = seen("w/root");
        files.create_root("w/root").unwrap();
        let outside = folder.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), SECRET).unwrap();
        Self { folder, files, seen }
    }

    fn root(&self) -> PathBuf {
        self.files.path_of(&self.seen.mounts[""].source)
    }

    fn outside(&self) -> PathBuf {
        self.folder.path().join("outside")
    }

    /// Links a new host folder.
    fn link(&mut self, mount: &str, mode: Access) -> PathBuf {
        let host = self.folder.path().join(format!("host-{}", mount.replace('/', "-")));
        fs::create_dir(&host).unwrap();
        let host_path = host.to_str().unwrap().to_owned();
        self.seen.mounts.insert(mount.to_owned(), linked(&host_path, mode));
        host
    }

    fn tool(&self, name: &str, args: &Value) -> Result<Value, String> {
        let tool = Tool::parse(name, &args.to_string()).unwrap();
        self.files.run(&self.seen, &tool).map_err(|error| error.to_string())
    }

    fn read(&self, path: &str) -> Result<String, String> {
        let read = self.tool("read_file", &json!({ "path": path }))?;
        Ok(read["text"].as_str().unwrap().to_owned())
    }

    fn write(&self, path: &str, content: &str) -> Result<Value, String> {
        self.tool("write_file", &json!({ "path": path, "content": content }))
    }

    fn append(&self, path: &str, content: &str) -> Result<Value, String> {
        self.tool("write_file", &json!({ "path": path, "content": content, "append": true }))
    }

    fn list(&self, path: &str, recursive: bool) -> Result<Vec<String>, String> {
        let listed = self.tool("list_files", &json!({ "path": path, "recursive": recursive }))?;
        let entries = listed["entries"].as_array().unwrap();
        Ok(entries.iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect())
    }

    /// Everything that a tool can do at a path.
    fn attempts(&self, path: &str) -> [Result<Value, String>; 4] {
        [
            self.tool("read_file", &json!({ "path": path })),
            self.write(path, "overwritten"),
            self.append(path, "appended"),
            self.tool("list_files", &json!({ "path": path, "recursive": true })),
        ]
    }

    fn outside_is_untouched(&self) {
        let names: Vec<_> =
            fs::read_dir(self.outside()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"]);
        assert_eq!(fs::read_to_string(self.outside().join("secret")).unwrap(), SECRET);
    }
}

fn seen(root: &str) -> Seen {
    let source = Source::Workspaces(root.to_owned());
    Seen {
        workspace: WorkspaceId::from_u128(1),
        counted: source.clone(),
        shares: Vec::new(),
        mounts: [(String::new(), Mount { source, access: Access::ReadWrite })].into(),
        links: Default::default(),
        network: false,
        env: Default::default(),
        limits: Default::default(),
        git: None,
    }
}

fn linked(host_path: &str, access: Access) -> Mount {
    Mount { source: Source::Host(host_path.to_owned()), access }
}

#[test]
fn a_path_that_leads_out_is_refused() {
    let world = World::new();
    for path in ["..", "../../outside/secret", "a/../../../outside/secret", "a/..", "./.."] {
        for refused in world.attempts(path) {
            assert!(refused.as_ref().unwrap_err().contains("\"..\""), "{path}: {refused:?}");
        }
    }
    let absolute = world.outside().join("secret");
    for path in [absolute.to_str().unwrap(), "/etc/passwd", "//etc/passwd"] {
        for refused in world.attempts(path) {
            assert!(refused.as_ref().unwrap_err().contains("absolute"), "{path}: {refused:?}");
        }
    }
    world.outside_is_untouched();
}

#[test]
fn a_symbolic_link_that_leads_out_is_not_followed() {
    let world = World::new();
    symlink(world.outside().join("secret"), world.root().join("absolute")).unwrap();
    symlink("../../../../outside/secret", world.root().join("relative")).unwrap();
    symlink(world.outside(), world.root().join("folder")).unwrap();
    symlink("folder", world.root().join("twice")).unwrap();
    symlink(world.outside().join("new"), world.root().join("dangling")).unwrap();
    symlink("/proc/self/root", world.root().join("magic")).unwrap();
    for path in ["folder", "folder/secret", "twice/secret", "folder/new", "folder/a/b", "magic/etc"]
    {
        for refused in world.attempts(path) {
            if path == "folder" && refused.is_ok() {
                // Writing replaces a link at the path itself.
                continue;
            }
            let error = refused.unwrap_err();
            assert!(!error.contains(SECRET), "{path}: {error}");
        }
        let _ = fs::remove_file(world.root().join("folder"));
        symlink(world.outside(), world.root().join("folder")).unwrap();
    }
    for path in ["absolute", "relative", "dangling"] {
        assert!(world.read(path).unwrap_err().contains("leads out"), "{path}");
        assert!(world.append(path, "x").unwrap_err().contains("leads out"), "{path}");
        world.write(path, "mine").unwrap();
        assert!(!fs::symlink_metadata(world.root().join(path)).unwrap().is_symlink());
        assert_eq!(world.read(path).as_deref(), Ok("mine"));
    }
    world.outside_is_untouched();
}

#[test]
fn symbolic_links_inside_work_and_loops_end() {
    let world = World::new();
    world.write("dir/file", "text").unwrap();
    symlink("dir", world.root().join("alias")).unwrap();
    symlink("loop", world.root().join("loop")).unwrap();
    symlink("..", world.root().join("dir/up")).unwrap();
    assert_eq!(world.read("alias/file").as_deref(), Ok("text"));
    assert_eq!(world.read("dir/up/dir/up/dir/file").as_deref(), Ok("text"));
    assert!(world.read("loop").is_err());
    assert!(world.append("loop", "x").is_err());
    assert!(world.write("loop/x", "x").is_err());
    assert_eq!(
        world.list("", true).unwrap(),
        ["alias", "dir", "dir/file", "dir/up", "loop"],
        "a listing does not descend into symbolic links"
    );
}

#[test]
fn a_symbolic_link_that_changes_while_tools_run_leads_nowhere() {
    let world = World::new();
    fs::create_dir(world.root().join("real")).unwrap();
    fs::write(world.root().join("real/secret"), "harmless").unwrap();
    symlink("real", world.root().join("swap")).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let (root, outside) = (world.root(), world.outside());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                for target in [outside.as_path(), Path::new("real")] {
                    symlink(target, root.join("next")).unwrap();
                    fs::rename(root.join("next"), root.join("swap")).unwrap();
                }
            }
        });
        for _ in 0..2000 {
            if let Ok(text) = world.read("swap/secret") {
                assert_ne!(text, SECRET);
            }
            let _ = world.write("swap/secret", "harmless");
            let _ = world.append("swap/secret", "");
            let _ = world.list("swap", true);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    world.outside_is_untouched();
}

#[test]
fn a_linked_folder_that_was_swapped_for_a_symbolic_link_is_not_followed() {
    let mut world = World::new();
    let host = world.link("data", Access::ReadWrite);
    fs::remove_dir(&host).unwrap();
    symlink(world.outside(), &host).unwrap();
    for refused in world.attempts("data/secret") {
        refused.unwrap_err();
    }
    assert!(world.list("data", true).is_err());
    assert!(world.read("data").is_err());
    world.outside_is_untouched();
}

#[test]
fn a_workspace_root_that_was_swapped_for_a_symbolic_link_is_not_followed() {
    let world = World::new();
    world.files.create_root("other/root").unwrap();
    let other = world.files.path_of(&Source::Workspaces("other/root".to_owned()));
    fs::write(other.join("secret"), SECRET).unwrap();
    let child = World { seen: seen("w/root/child"), ..world };
    symlink("../../other/root", child.root()).unwrap();
    for refused in child.attempts("secret") {
        refused.unwrap_err();
    }
    let _ = child.files.create_root("w/root/child/inner");
    child.files.begin_removal(WorkspaceId::from_u128(7), "w/root/child/secret", None);
    let others = fs::read_dir(&other).unwrap().count();
    assert_eq!(others, 1);
}

#[test]
fn what_is_no_regular_file_neither_blocks_nor_is_used() {
    let world = World::new();
    let root = fs::File::open(world.root()).unwrap();
    mknodat(&root, "fifo", FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = UnixListener::bind(world.root().join("socket")).unwrap();
    // Held open at both ends, so that opening it succeeds.
    let _end =
        fs::OpenOptions::new().read(true).write(true).open(world.root().join("fifo")).unwrap();
    mknodat(&root, "closed", FileType::Fifo, Mode::RWXU, 0).unwrap();
    for name in ["fifo", "closed", "socket"] {
        let error = world.read(name).unwrap_err();
        assert!(error.contains("no regular file"), "{name}: {error}");
        let error = world.append(name, "x").unwrap_err();
        assert!(error.contains("no regular file"), "{name}: {error}");
        assert!(world.list(name, true).is_err());
    }
    let listed = world.tool("list_files", &json!({})).unwrap();
    let kinds: Vec<&str> =
        listed["entries"].as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["other", "other", "other"]);
    world.write("fifo", "a file now").unwrap();
    assert_eq!(world.read("fifo").as_deref(), Ok("a file now"));
}

#[test]
fn a_device_in_a_linked_folder_is_not_read() {
    let mut world = World::new();
    world.seen.mounts.insert("dev".into(), linked("/dev", Access::ReadOnly));
    let error = world.read("dev/zero").unwrap_err();
    assert!(error.contains("no regular file"), "{error}");
}

#[test]
fn a_file_in_the_way_of_a_temporary_name_is_left_alone() {
    let world = World::new();
    fs::write(world.root().join(".a.substrat-tmp"), "the user's").unwrap();
    world.write("a", "text").unwrap();
    assert_eq!(fs::read_to_string(world.root().join(".a.substrat-tmp")).unwrap(), "the user's");
}

#[test]
fn writers_at_once_leave_one_whole_text_and_nothing_else() {
    let world = World::new();
    let texts: Vec<String> = ('a'..='d').map(|c| c.to_string().repeat(300_000)).collect();
    std::thread::scope(|scope| {
        for text in &texts {
            scope.spawn(|| (0..20).for_each(|_| drop(world.write("shared", text).unwrap())));
        }
        for _ in 0..50 {
            if let Ok(text) = fs::read_to_string(world.root().join("shared")) {
                assert!(texts.contains(&text), "{} bytes of a mixture", text.len());
            }
        }
    });
    assert!(texts.contains(&fs::read_to_string(world.root().join("shared")).unwrap()));
    assert_eq!(world.list("", true).unwrap(), ["shared"]);
}

#[test]
fn a_replaced_file_keeps_its_permissions() {
    let world = World::new();
    world.write("run.sh", "#!/bin/sh\n").unwrap();
    let path = world.root().join("run.sh");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    world.write("run.sh", "#!/bin/sh\nexit 0\n").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o750);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    world.write("run.sh", "other").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755, "nothing runs as its owner");
}

#[test]
fn a_write_that_fails_leaves_the_old_file_and_nothing_beside_it() {
    let world = World::new();
    world.write("dir/file", "old").unwrap();
    assert!(world.write("dir", "x").unwrap_err().contains("is a folder"));
    assert!(world.write("", "x").unwrap_err().contains("is a folder"));
    assert!(world.append("dir", "x").unwrap_err().contains("is a folder"));
    assert!(world.write("dir/file/below", "x").unwrap_err().contains("lies in a file"));
    assert!(world.read("dir/file/below").unwrap_err().contains("lies in a file"));
    assert!(world.read("dir").unwrap_err().contains("is a folder"));
    assert!(world.read("").unwrap_err().contains("is a folder"));
    assert!(world.list("dir/file", false).unwrap_err().contains("no folder"));
    assert!(world.list("none", false).unwrap_err().contains("nothing at"));
    assert!(world.read("none").unwrap_err().contains("nothing at"));
    assert_eq!(world.list("", true).unwrap(), ["dir", "dir/file"]);
    assert_eq!(world.read("dir/file").as_deref(), Ok("old"));
}

#[test]
fn a_read_only_link_is_only_read() {
    let mut world = World::new();
    let host = world.link("deep/docs", Access::ReadOnly);
    fs::write(host.join("file"), "kept").unwrap();
    assert_eq!(world.read("deep/docs/file").as_deref(), Ok("kept"));
    for path in ["deep/docs/file", "deep//docs/./file", "deep/docs", "deep/docs/new/file"] {
        for refused in [world.write(path, "x"), world.append(path, "x")] {
            assert!(refused.as_ref().unwrap_err().contains("read-only"), "{path}: {refused:?}");
        }
    }
    assert_eq!(fs::read_to_string(host.join("file")).unwrap(), "kept");
    assert_eq!(fs::read_dir(&host).unwrap().count(), 1);
}

#[test]
fn a_writable_link_is_written_and_cannot_be_left() {
    let mut world = World::new();
    let host = world.link("deep/er/work", Access::ReadWrite);
    world.write("deep/er/work/a/b/file", "text").unwrap();
    assert_eq!(fs::read_to_string(host.join("a/b/file")).unwrap(), "text");
    symlink(world.outside(), host.join("out")).unwrap();
    for refused in world.attempts("deep/er/work/out/secret") {
        refused.unwrap_err();
    }
    assert_eq!(
        world.list("", true).unwrap(),
        [
            "deep",
            "deep/er",
            "deep/er/work",
            "deep/er/work/a",
            "deep/er/work/a/b",
            "deep/er/work/a/b/file",
            "deep/er/work/out"
        ]
    );
    assert_eq!(world.list("deep", false).unwrap(), ["deep/er"]);
    world.outside_is_untouched();
}

#[test]
fn a_listing_shows_what_a_read_would_find() {
    let mut world = World::new();
    world.write("data/hidden", "below the link").unwrap();
    world.write("data2/shown", "").unwrap();
    let host = world.link("data", Access::ReadOnly);
    fs::write(host.join("file"), "").unwrap();
    let listed = world.list("", true).unwrap();
    assert_eq!(listed, ["data", "data/file", "data2", "data2/shown"]);
    for path in ["data/file", "data2/shown"] {
        assert_eq!(world.read(path).as_deref(), Ok(""));
    }
}

#[test]
fn a_listing_inside_a_link_shows_what_is_there() {
    let mut world = World::new();
    let host = world.link("source", Access::ReadOnly);
    fs::create_dir(host.join("part")).unwrap();
    fs::write(host.join("part/file"), "").unwrap();
    assert_eq!(world.list("source", false).unwrap(), ["source/part"]);
    assert_eq!(world.list("source", true).unwrap(), ["source/part", "source/part/file"]);
    assert_eq!(world.list("source/part", false).unwrap(), ["source/part/file"]);
}

#[test]
fn a_listing_is_in_order_and_bounded() {
    let world = World::new();
    for number in (0..5100).rev() {
        fs::write(world.root().join(format!("f{number:04}")), "").unwrap();
    }
    let listed = world.tool("list_files", &json!({})).unwrap();
    assert_eq!(listed["truncated"], true);
    let entries = listed["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 5000);
    assert!(entries.is_sorted_by_key(|entry| entry["path"].as_str().unwrap()));
}

#[test]
fn names_that_are_hard_to_print_are_told_apart_or_left_out() {
    let world = World::new();
    for name in ["new\nline", "\x1b[31mred", "größe", "日本", " space ", "-rf", "a\u{202e}b"] {
        world.write(name, name).unwrap();
        assert_eq!(world.read(name).as_deref(), Ok(name));
    }
    fs::write(world.root().join(OsStr::from_bytes(b"not\xffutf8")), "").unwrap();
    assert_eq!(world.list("", false).unwrap().len(), 7);
    assert!(world.read("nul\0byte").unwrap_err().contains("NUL"));
    let error = world.read("\x1b[31m\nnone").unwrap_err();
    assert!(!error.contains('\x1b') && !error.contains('\n'), "{error}");
}

#[test]
fn a_name_may_be_as_long_as_the_file_system_lets_it_be() {
    let world = World::new();
    let name = "n".repeat(255);
    world.write(&name, "text").unwrap();
    world.write(&name, "again").unwrap();
    assert_eq!(world.read(&name).as_deref(), Ok("again"));
    assert!(world.write(&"n".repeat(256), "x").is_err());
}

#[test]
fn a_path_without_end_is_refused_in_a_short_text() {
    let world = World::new();
    for path in ["a/".repeat(2000), "x".repeat(100_000), "a/".repeat(500_000)] {
        for refused in world.attempts(&path) {
            assert!(refused.unwrap_err().len() < 1000);
        }
    }
    assert_eq!(world.list("", true).unwrap(), [""; 0]);
}

#[test]
fn a_workspace_as_deep_as_one_likes_is_removed() {
    let world = World::new();
    let mut dir = fs::File::open(world.root()).unwrap();
    let flags = rustix::fs::OFlags::DIRECTORY;
    for _ in 0..6000 {
        rustix::fs::mkdirat(&dir, "d", Mode::RWXU).unwrap();
        dir = rustix::fs::openat(&dir, "d", flags, Mode::empty()).unwrap().into();
    }
    symlink(world.outside(), world.root().join("link")).unwrap();
    world.list("", true).unwrap();
    let id = WorkspaceId::from_u128(7);
    world.files.remove_workspace(id, "w/root", None).unwrap();
    assert!(!world.root().parent().unwrap().exists());
    world.outside_is_untouched();
    world.files.remove_workspace(id, "w/root", None).unwrap();
}

#[test]
fn what_is_made_is_its_owners_alone_where_the_folder_is() {
    let world = World::new();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&world.root()), 0o700);
    assert_eq!(mode(world.root().parent().unwrap()), 0o700);
}

#[test]
fn a_file_is_read_in_parts_by_lines() {
    let world = World::new();
    let text: String = (1..=100_000).map(|n| format!("line {n}\n")).collect();
    world.write("big", &text).unwrap();
    let mut read = String::new();
    let mut next = json!(1);
    while let Some(first) = next.as_u64() {
        let part = world.tool("read_file", &json!({ "path": "big", "first_line": first })).unwrap();
        assert_eq!(part["size"], text.len());
        read.push_str(part["text"].as_str().unwrap());
        next = part["next_line"].clone();
    }
    assert!(read == text);
    let part = json!({ "path": "big", "first_line": 3, "max_lines": 2 });
    let part = world.tool("read_file", &part).unwrap();
    assert_eq!(part["text"], "line 3\nline 4\n");
    assert_eq!((&part["lines"], &part["next_line"]), (&json!(2), &json!(5)));
    for (first, most) in [(u64::MAX, 1), (100_001, 5), (1, 0)] {
        let part = json!({ "path": "big", "first_line": first, "max_lines": most });
        let part = world.tool("read_file", &part).unwrap();
        assert_eq!((&part["text"], &part["lines"]), (&json!(""), &json!(0)));
    }
    let zero = world.tool("read_file", &json!({ "path": "big", "first_line": 0, "max_lines": 1 }));
    assert_eq!(zero.unwrap()["text"], "line 1\n");
}

#[test]
fn an_endless_line_is_cut_and_reading_goes_on_behind_it() {
    let world = World::new();
    let long = "ü".repeat(400 << 10);
    world.write("long", &format!("{long}\nlast\n")).unwrap();
    let part = world.tool("read_file", &json!({ "path": "long" })).unwrap();
    let text = part["text"].as_str().unwrap();
    assert!(text.len() <= 256 << 10 && long.starts_with(text), "{} bytes", text.len());
    assert_eq!(part["next_line"], 2);
    let rest = world.tool("read_file", &json!({ "path": "long", "first_line": 2 })).unwrap();
    assert_eq!((&rest["text"], &rest["next_line"]), (&json!("last\n"), &Value::Null));
}

#[test]
fn a_file_that_is_too_large_is_refused_before_it_is_read() {
    let world = World::new();
    let file = fs::File::create(world.root().join("sparse")).unwrap();
    file.set_len(1 << 40).unwrap();
    let error = world.read("sparse").unwrap_err();
    assert!(error.contains("1099511627776") && error.contains("at most 268435456"), "{error}");
}

#[test]
fn what_is_no_text_is_said_to_be_none() {
    let world = World::new();
    fs::write(world.root().join("binary"), b"ELF\0\x01").unwrap();
    assert!(world.read("binary").unwrap_err().contains("no text file"));
    fs::write(world.root().join("latin"), b"gr\xf6\xdfe").unwrap();
    assert_eq!(world.read("latin").as_deref(), Ok("gr\u{fffd}\u{fffd}e"));
    fs::write(world.root().join("empty"), "").unwrap();
    let empty = world.tool("read_file", &json!({ "path": "empty" })).unwrap();
    assert_eq!(empty, json!({ "text": "", "lines": 0, "size": 0, "next_line": null }));
    world.append("empty", "one\n").unwrap();
    world.append("empty", "two").unwrap();
    assert_eq!(world.read("empty").as_deref(), Ok("one\ntwo"));
}

#[test]
fn only_a_folder_away_from_the_home_can_be_linked() {
    let world = World::new();
    let refused = |path: &Path| match world.files.check_link(path.to_str().unwrap()) {
        Err(Rejection::LinkForbidden { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    let folder = world.folder.path();
    assert!(refused(Path::new("relative")).contains("absolute"));
    assert!(refused(&folder.join("none")).contains("does not exist"));
    assert!(refused(&folder.join("outside/secret")).contains("not a folder"));
    for path in [folder.join("home"), folder.to_owned(), "/".into(), world.root()] {
        assert!(refused(&path).contains("home"), "{path:?}");
    }
    symlink(folder.join("home"), folder.join("innocent")).unwrap();
    assert!(refused(&folder.join("innocent")).contains("home"));
    assert!(refused(&folder.join("outside/../home")).contains("home"));
    symlink(world.outside(), folder.join("alias")).unwrap();
    let real = world.files.check_link(folder.join("alias").to_str().unwrap()).unwrap();
    assert_eq!(Path::new(&real), world.outside().canonicalize().unwrap());
}
