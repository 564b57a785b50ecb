//! What is mounted in a sandbox is what was to be, for any set of folders.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value, json};
use substrat_server::launcher::{Error, Exit};
use substrat_server::model::{Access, Mount, Source, World};
use substrat_server::workspace::SandboxPolicy;
use substrat_tests::harness::{Daemon, say};
use substrat_tests::hostile::python;
use substrat_tests::launch::Bench;

/// Says what is mounted, what lies at each path, and where a file can be made.
const LOOK: &str = r#"
import json, re
def plain(text):
    return re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), text)
def writable(folder):
    try:
        os.close(os.open(folder + b"/.probe", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except OSError:
        return False
    os.unlink(folder + b"/.probe")
    return True
found = []
for line in open("/proc/self/mountinfo", "rb").read().strip(b"\n").split(b"\n"):
    at = plain(line.split(b" ")[4])
    there = os.stat(at)
    is_folder = stat.S_ISDIR(there.st_mode)
    found.append({"at": at.decode("utf-8"), "device": there.st_dev, "inode": there.st_ino,
                  "options": line.split(b" ")[5].decode(), "writable": is_folder and writable(at)})
print(json.dumps(found))
"#;

/// What a world shows, as seen from inside: below the workspace, and elsewhere.
async fn look(bench: &Bench, world: World) -> (BTreeMap<String, Value>, Vec<Value>) {
    let ran = bench.run(python(world, LOOK)).await;
    assert_eq!(ran.exit, Exit::Code(0), "{ran:?}");
    let found: Vec<Value> = serde_json::from_str(&ran.stdout).expect("JSON");
    let mut below = BTreeMap::new();
    let mut elsewhere = Vec::new();
    for mount in found {
        let at = mount["at"].as_str().unwrap().to_owned();
        match at.strip_prefix("/workspace") {
            Some(rest) => {
                let before = below.insert(rest.trim_start_matches('/').to_owned(), mount);
                assert!(before.is_none(), "two mounts at {at:?}");
            }
            None => elsewhere.push(mount),
        }
    }
    (below, elsewhere)
}

/// Checks that what is seen is what the world says, and nothing else.
async fn assert_as_said(bench: &Bench, world: &World) {
    let (below, elsewhere) = look(bench, world.clone()).await;
    let workspaces = bench.folder.path().join("home/workspaces");
    let said = world.mounts.iter().map(|(at, mount)| {
        let host = match &mount.source {
            Source::Host(path) => PathBuf::from(path),
            Source::Workspaces(path) => workspaces.join(path),
        };
        let folder = fs::metadata(&host).unwrap();
        let writable = mount.access == Access::ReadWrite;
        (at.clone(), json!([folder.dev(), folder.ino(), writable, writable]))
    });
    let seen = below.iter().map(|(at, mount)| {
        let options = mount["options"].as_str().unwrap();
        for needed in ["nosuid", "nodev"] {
            assert!(options.split(',').any(|option| option == needed), "{at:?}: {options}");
        }
        let writable = options.split(',').any(|option| option == "rw");
        (at.clone(), json!([mount["device"], mount["inode"], writable, mount["writable"]]))
    });
    assert_eq!(seen.collect::<BTreeMap<_, _>>(), said.collect::<BTreeMap<_, _>>());
    let writable = elsewhere.iter().filter(|mount| mount["writable"] == true);
    let mut writable: Vec<&str> = writable.map(|mount| mount["at"].as_str().unwrap()).collect();
    writable.sort_unstable();
    assert_eq!(writable, ["/dev/shm", "/home/agent", "/tmp"]);
}

/// A folder to be shown: in the folder of an earlier one or below the root, under a name, with
/// folders between; of the host or of a workspace.
#[derive(Debug, Clone)]
struct Shown {
    within: prop::sample::Index,
    between: bool,
    name: String,
    of_host: bool,
    access: Access,
}

fn names() -> impl Strategy<Value = String> {
    let odd = [
        "a b",
        " ",
        "new\nline",
        "tab\there",
        "back\\slash",
        "\\040",
        "-x",
        "--bind",
        "ünï",
        "日本",
        "quote'\"",
        "$(id)",
        "*",
        "a.b",
        "...",
        "#",
        "\u{7f}\u{1}",
        "🦀",
        "é",
        "e\u{301}",
        "%s",
        ":",
    ];
    prop_oneof![
        4 => prop::sample::select(odd.map(str::to_owned).to_vec()),
        3 => "[a-c]{1,2}",
        1 => Just("n".repeat(255)),
        2 => "[^/\u{0}]{1,20}".prop_filter("a name", |name| name != "." && name != ".."),
    ]
}

fn shown() -> impl Strategy<Value = Shown> {
    let access = prop_oneof![Just(Access::ReadOnly), Just(Access::ReadWrite)];
    (any::<prop::sample::Index>(), any::<bool>(), names(), any::<bool>(), access).prop_map(
        |(within, between, name, of_host, access)| Shown { within, between, name, of_host, access },
    )
}

/// The world that shows some folders, which are made.
fn world_of(bench: &Bench, root: Access, all: &[Shown]) -> World {
    let mut world = bench.world(&[]);
    world.mounts.get_mut("").unwrap().access = root;
    for (number, shown) in all.iter().enumerate() {
        let places: Vec<String> = world.mounts.keys().cloned().collect();
        let within = shown.within.get(&places);
        let parts = [within.as_str(), if shown.between { "between" } else { "" }, &shown.name];
        let at = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
        let source = if shown.of_host {
            Source::Host(bench.host(&format!("host{number}")).to_str().unwrap().to_owned())
        } else {
            let folder = format!("other/root/{number}");
            fs::create_dir_all(bench.folder.path().join("home/workspaces").join(&folder)).unwrap();
            Source::Workspaces(folder)
        };
        if at.len() < 3000 {
            world.mounts.entry(at).or_insert(Mount { source, access: shown.access });
        }
    }
    make_places(&world);
    world
}

/// In a folder of the host that is only shown the places must be there.
fn make_places(world: &World) {
    for at in world.mounts.keys().filter(|at| !at.is_empty()) {
        let around = world.mounts.iter().rev().find(|(other, _)| {
            *other != at && (other.is_empty() || at.starts_with(&format!("{other}/")))
        });
        if let Some((other, Mount { source: Source::Host(host), .. })) = around {
            fs::create_dir_all(Path::new(host).join(at[other.len()..].trim_start_matches('/')))
                .unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24, failure_persistence: None, max_shrink_iters: 64, ..ProptestConfig::default()
    })]

    #[test]
    fn the_mounts_in_effect_are_those_of_the_workspace(
        read_only in any::<bool>(),
        all in prop::collection::vec(shown(), 0..14),
    ) {
        let root = if read_only { Access::ReadOnly } else { Access::ReadWrite };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let bench = Bench::new(SandboxPolicy::Required);
            let world = world_of(&bench, root, &all);
            assert_as_said(&bench, &world).await;
        });
    }
}

#[tokio::test]
async fn fifty_folders_in_each_other_are_shown() {
    let bench = Bench::new(SandboxPolicy::Required);
    let mut world = bench.world(&[]);
    let mut at = "d".to_owned();
    for number in 0..50 {
        let source =
            Source::Host(bench.host(&format!("host{number}")).to_str().unwrap().to_owned());
        world.mounts.insert(at.clone(), Mount { source, access: Access::ReadWrite });
        at += "/d";
    }
    assert_as_said(&bench, &world).await;
}

#[tokio::test]
async fn as_many_folders_as_allowed_are_shown_and_one_more_is_refused() {
    let bench = Bench::new(SandboxPolicy::Required);
    let mut world = bench.world(&[]);
    let host = bench.host("host").to_str().unwrap().to_owned();
    let mount = Mount { source: Source::Host(host), access: Access::ReadOnly };
    for number in 1..World::MAX_MOUNTS {
        world.mounts.insert(format!("many/{number}"), mount.clone());
    }
    assert_as_said(&bench, &world).await;
    world.mounts.insert("many/more".to_owned(), mount);
    let refused = bench.launcher.start(bench.shell(world, "true")).await;
    assert!(matches!(refused, Err(Error::TooManyMounts { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_folder_that_vanished_or_became_a_file_is_named() {
    let bench = Bench::new(SandboxPolicy::Required);
    let (gone, file) = (bench.host("gone"), bench.host("file"));
    let world = bench.world(&[("docs", &gone, Access::ReadOnly)]);
    fs::remove_dir(&gone).unwrap();
    let refused = bench.launcher.start(bench.shell(world, "true")).await.unwrap_err();
    let problem = format!("the folder {gone:?}: it is not there any more");
    assert_eq!(refused, Error::Mount { path: "docs".into(), problem, link: None });
    let world = bench.world(&[("docs", &file, Access::ReadOnly)]);
    fs::remove_dir(&file).unwrap();
    fs::write(&file, "x").unwrap();
    let refused = bench.launcher.start(bench.shell(world, "true")).await.unwrap_err();
    let problem = format!("the folder {file:?}: it is no folder, or a symbolic link");
    assert_eq!(refused, Error::Mount { path: "docs".into(), problem, link: None });
}

#[tokio::test]
async fn a_name_that_is_too_long_is_refused() {
    let bench = Bench::new(SandboxPolicy::Required);
    let (name, host) = ("n".repeat(256), bench.host("host"));
    let world = bench.world(&[(name.as_str(), &host, Access::ReadOnly)]);
    let refused = bench.launcher.start(bench.shell(world, "true")).await;
    assert!(matches!(refused, Err(Error::Mount { path, .. }) if path == name));
}

#[tokio::test]
async fn no_place_is_made_in_a_folder_of_the_host_that_is_only_shown() {
    let bench = Bench::new(SandboxPolicy::Required);
    let (shown, other) = (bench.host("shown"), bench.host("other"));
    let inside =
        [("docs", &*shown, Access::ReadOnly), ("docs/new/place", &*other, Access::ReadWrite)];
    let refused = bench.launcher.start(bench.shell(bench.world(&inside), "true")).await;
    assert!(
        matches!(&refused, Err(Error::Mount { path, .. }) if path == "docs/new/place"),
        "{refused:?}"
    );
    assert_eq!(fs::read_dir(&shown).unwrap().count(), 0);
    // One that is there is used.
    fs::create_dir_all(shown.join("new/place")).unwrap();
    assert_as_said(&bench, &bench.world(&inside)).await;
}

/// A place for a link as a careless person names it.
fn careless() -> impl Strategy<Value = String> {
    let usual = ["taken", "folder", "file", "sym", "a"].map(str::to_owned).to_vec();
    let part = prop_oneof![
        6 => prop::sample::select(usual),
        2 => names(),
        1 => (250_usize..260).prop_map(|length| "n".repeat(length)),
    ];
    prop::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4, failure_persistence: None, max_shrink_iters: 16, ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_is_linked_is_refused_or_processes_start(
        links in prop::collection::vec((careless(), any::<bool>()), 6..16),
        deep in 3800_usize..4090,
    ) {
        let daemon = Daemon::start();
        daemon.ctl_ok(&["workspace", "create", "w"]);
        let shown = say(&daemon.home, &["workspace", "show", "w", "-o", "json"]).json();
        let root = PathBuf::from(shown["workspace"]["root"].as_str().unwrap());
        fs::create_dir_all(root.join("folder/a")).unwrap();
        fs::write(root.join("file"), "x").unwrap();
        fs::write(root.join("folder/file"), "x").unwrap();
        std::os::unix::fs::symlink("folder", root.join("sym")).unwrap();
        let host = daemon.home.join("../host dir");
        fs::create_dir_all(host.join("sub")).unwrap();
        let host = host.to_str().unwrap();
        let mut long = vec!["d".repeat(99); deep / 100].join("/");
        long += &format!("/{}", "d".repeat(deep - long.len()));
        for (at, writable) in links.into_iter().chain([(long, true)]) {
            let mode = if writable { "--rw" } else { "--ro" };
            let linked = say(&daemon.home, &["workspace", "link", "w", host, mode, "--", &at]);
            if linked.code == Some(0) {
                let ran = say(&daemon.home, &["workspace", "exec", "w", "--", "true"]);
                assert_eq!(ran.code, Some(0), "after {at:?}: {ran:?}");
            } else {
                let said = &linked.stderr;
                assert!(said.contains("\nhint: ") && said.len() < 800, "{at:?}: {said}");
            }
        }
    }
}

/// The other half.
#[test]
fn the_whole_suite_holds_for_an_ordinary_user() {
    substrat_tests::hostile::run_again_as_ordinary_user(
        "the_whole_suite_holds_for_an_ordinary_user",
    );
}
