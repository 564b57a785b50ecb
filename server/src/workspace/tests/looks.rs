//! What is looked at before a workspace is changed.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::model::{
    Command, Context, IdSource, Look, NewView, NewWorkspace, Policy, Resume, State, Timestamp,
    Workspace, transact,
};

struct Counted(u128);

impl IdSource for Counted {
    fn next_u128(&mut self) -> u128 {
        self.0 += 1;
        self.0
    }
}

fn policy() -> Policy {
    Policy {
        providers: Default::default(),
        default_provider: "none".into(),
        max_text: 1000,
        max_inbox: 50,
        max_user_inbox: 50,
        max_inbox_bytes: 1 << 20,
        max_agents: 10,
        max_depth: 5,
        max_waiting: 10,
        max_reminders: 5,
        max_subscriptions: 5,
        multicast_timeout: Duration::from_secs(600),
        max_setbacks: 3,
        resume: Resume::Roots,
        request_retention: Duration::from_secs(60),
        draining: false,
    }
}

/// A workspace `w` with views, some folders of the host, and a disk.
struct Disk {
    folder: tempfile::TempDir,
    files: Files,
    state: State,
    ids: Counted,
}

impl Disk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        let files = Files::new(home.join("workspaces"), &home);
        let mut disk = Self { folder, files, state: State::default(), ids: Counted(0) };
        disk.run(Command::CreateWorkspace { new: NewWorkspace::named("w") }).unwrap();
        disk.files.create_root(&disk.state.workspace_named("w").unwrap().root).unwrap();
        disk
    }

    fn run(&mut self, command: Command) -> Result<(), Rejection> {
        let cx = &mut Context {
            now: Timestamp::from_micros(1),
            policy: &policy(),
            ids: &mut self.ids,
            attended: &|_| false,
        };
        transact(&mut self.state, cx, command, None).map(drop)
    }

    fn root(&self) -> PathBuf {
        let root = self.state.workspace_named("w").unwrap().root.clone();
        self.files.path_of(&Source::Workspaces(root))
    }

    /// A folder of the host, made if it is not there.
    fn host(&self, name: &str) -> PathBuf {
        let host = self.folder.path().canonicalize().unwrap().join(name);
        fs::create_dir_all(&host).unwrap();
        host
    }

    fn look(&self, looks: &[Look]) -> Result<(), Rejection> {
        looks.iter().try_for_each(|look| self.files.look(look))
    }

    /// Makes a link as a daemon does.
    fn link(&mut self, to: &str, host: &Path, at: &str, mode: Access) -> Result<(), Rejection> {
        let host_path = self.files.check_link(host.to_str().unwrap())?;
        self.look(&self.state.looks_of_link(to, &host_path, at, mode)?)?;
        self.link_unseen(to, host_path, at, mode)
    }

    fn link_unseen(
        &mut self,
        to: &str,
        host_path: String,
        at: &str,
        mode: Access,
    ) -> Result<(), Rejection> {
        let (workspace, mount_path) = (to.to_owned(), at.to_owned());
        self.run(Command::LinkDirectory { workspace, host_path, mount_path, mode })
    }

    /// Makes many links.
    fn fill(&mut self, to: &str, count: usize) {
        let host = self.host("host").to_str().unwrap().to_owned();
        for number in 0..count {
            let at = format!("{to}-{number}");
            self.link_unseen(to, host.clone(), &at, Access::ReadOnly).unwrap();
        }
    }

    /// Makes a view as a daemon does.
    fn view(&mut self, name: &str, of: &str, subdir: &str) -> Result<(), Rejection> {
        self.look(&self.state.looks_of_view(name, of, subdir))?;
        let (of, subdir, access) = (of.to_owned(), subdir.to_owned(), Access::ReadWrite);
        let view = Some(NewView { of, subdir, access });
        self.run(Command::CreateWorkspace {
            new: NewWorkspace { view, ..NewWorkspace::named(name) },
        })
    }

    /// Opens all that every workspace shows, as a launch does.
    fn open_all(&self) -> Result<(), String> {
        self.state.workspaces().try_for_each(|one| self.open(one))
    }

    /// The same where the last one is used first: others have made no folders for it then.
    fn open_last_first(&self) -> Result<(), String> {
        let all: Vec<_> = self.state.workspaces().collect();
        all.into_iter().rev().try_for_each(|one| self.open(one))
    }

    fn open(&self, one: &Workspace) -> Result<(), String> {
        let opened = self.files.open(&self.state.workspace_world(one));
        opened.map(drop).map_err(|no| format!("{} {:?}: {}", one.name, no.path, no.problem))
    }
}

fn why(refused: Result<(), Rejection>) -> String {
    let no = refused.unwrap_err();
    format!("{no}; {}", no.hint())
}

#[test]
fn a_place_that_cannot_be_one_is_refused_with_what_is_there() {
    let mut disk = Disk::new();
    let host = disk.host("host");
    fs::write(disk.root().join("file"), "x").unwrap();
    symlink(disk.host("other"), disk.root().join("sym")).unwrap();
    for at in ["file", "file/below", "sym", "sym/below"] {
        let no = why(disk.link("w", &host, at, Access::ReadOnly));
        let expected = format!(
            "{at:?} cannot be shown in workspace \"w\": at its place: it is no folder, or a \
             symbolic link; choose another mount path, or move away what lies there"
        );
        assert_eq!(no, expected);
    }
    let no = why(disk.link("w", &host, &format!("a/{}", "n".repeat(256)), Access::ReadOnly));
    assert!(no.contains("a part of it is longer than 255 bytes; use a shorter path"), "{no}");
    assert!(no.len() < 400, "{no}");
    let root = disk.root().as_os_str().len();
    let deep = |length: usize| {
        let mut path = vec!["n".repeat(199); length / 200 - 1].join("/");
        path += &format!("/{}", "n".repeat(99));
        path += &format!("/{}", "m".repeat(length - path.len() - 1));
        path
    };
    let no = why(disk.link("w", &host, &deep(4095 - root), Access::ReadOnly));
    assert!(no.contains("is longer than 4,095 bytes; choose a shorter mount path"), "{no}");
    assert!(no.len() < 400, "{no}");
    assert_eq!(disk.open_all(), Ok(()));
    disk.link("w", &host, &deep(4094 - root), Access::ReadOnly).unwrap();
    disk.link("w", &host, &"é".repeat(127), Access::ReadOnly).unwrap();
    assert_eq!(disk.open_all(), Ok(()));
}

#[test]
fn a_link_that_would_break_a_view_is_refused() {
    let mut disk = Disk::new();
    let (outer, inner) = (disk.host("outer"), disk.host("inner"));
    fs::create_dir_all(disk.root().join("src/lib")).unwrap();
    disk.view("look", "w", "src/lib").unwrap();
    let no = why(disk.link("w", &outer, "src", Access::ReadWrite));
    assert!(no.starts_with("\"\" cannot be shown in workspace \"look\": its root: "), "{no}");
    disk.link("look", &inner, "deep/in", Access::ReadOnly).unwrap();
    let no = why(disk.link("w", &outer, "src/lib/deep", Access::ReadOnly));
    assert!(no.starts_with("\"deep/in\" cannot be shown in workspace \"look\""), "{no}");
    fs::create_dir(outer.join("in")).unwrap();
    disk.link("w", &outer, "src/lib/deep", Access::ReadOnly).unwrap();
    assert_eq!(disk.open_all(), Ok(()));
}

#[test]
fn a_view_of_a_folder_that_is_not_there_is_refused_and_none_is_made() {
    let mut disk = Disk::new();
    fs::write(disk.root().join("file"), "x").unwrap();
    for (subdir, problem) in [
        ("none", "it is not there"),
        ("none/deep", "it is not there"),
        ("file", "it is no folder, or a symbolic link"),
    ] {
        let no = why(disk.view("look", "w", subdir));
        assert!(no.contains(&format!("the folder: {problem}; make the folder first")), "{no}");
    }
    assert_eq!(fs::read_dir(disk.root()).unwrap().count(), 1);
    // One that is there because a link lies in it is one.
    disk.link("w", &disk.host("host"), "a/b", Access::ReadWrite).unwrap();
    disk.view("look", "w", "a").unwrap();
    disk.view("inside", "w", "a/b").unwrap();
    assert_eq!(disk.open_all(), Ok(()));
}

#[test]
fn what_agents_shut_on_the_way_to_a_view_or_a_link_is_opened_again() {
    let mut disk = Disk::new();
    let (shut, host) = (disk.root().join("shut"), disk.host("host"));
    fs::create_dir_all(shut.join("part")).unwrap();
    let shut = || fs::set_permissions(&shut, fs::Permissions::from_mode(0o000)).unwrap();
    shut();
    disk.view("look", "w", "shut/part").unwrap();
    shut();
    disk.link("w", &host, "shut/link", Access::ReadOnly).unwrap();
    shut();
    assert_eq!(disk.open_all(), Ok(()));
}

#[test]
fn more_folders_than_can_be_shown_are_refused() {
    let mut disk = Disk::new();
    let host = disk.host("host").to_str().unwrap().to_owned();
    disk.fill("w", 256);
    disk.view("first", "w", "").unwrap();
    disk.fill("first", Seen::MAX_MOUNTS - 257);
    let no = why(disk.link_unseen("first", host, "more", Access::ReadOnly));
    assert!(no.contains("already 512 folders to be seen in a workspace or a view of it"), "{no}");
}

#[test]
fn a_link_says_where_it_is_to_be_unlinked() {
    let mut disk = Disk::new();
    let host = disk.host("host");
    fs::create_dir_all(host.join("sub")).unwrap();
    disk.link("w", &host, "a/b", Access::ReadWrite).unwrap();
    disk.view("look", "w", "a").unwrap();
    disk.view("inside", "w", "a/b/sub").unwrap();
    fs::remove_dir_all(&host).unwrap();
    for (workspace, at) in [("w", "a/b"), ("look", "b"), ("inside", "")] {
        let world = disk.state.workspace_world(disk.state.workspace_named(workspace).unwrap());
        let no = disk.files.open(&world).unwrap_err();
        let link = no.link.unwrap();
        assert_eq!((no.path.as_str(), link.workspace.as_str(), &*link.path), (at, "w", "a/b"));
    }
}

/// A change, by a person who does not look.
#[derive(Debug, Clone)]
enum Step {
    Folder(String),
    File(String),
    Symlink(String),
    Link(usize, usize, String, Access),
    View(usize, String),
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        12 => "[ab]",
        1 => prop::sample::select(vec!["a b", "line\nbreak", "日本", "-x", ".", "..", "\u{1}"])
            .prop_map(str::to_owned),
        1 => (250_usize..260).prop_map(|length| "n".repeat(length)),
    ]
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(name(), 1..4).prop_map(|parts| parts.join("/"))
}

fn step() -> impl Strategy<Value = Step> {
    let access = prop_oneof![Just(Access::ReadOnly), Just(Access::ReadWrite)];
    prop_oneof![
        2 => path().prop_map(Step::Folder),
        1 => path().prop_map(Step::File),
        1 => path().prop_map(Step::Symlink),
        6 => (0_usize..4, 0_usize..3, path(), access)
            .prop_map(|(to, host, at, access)| Step::Link(to, host, at, access)),
        2 => (0_usize..4, path()).prop_map(|(of, subdir)| Step::View(of, subdir)),
    ]
}

impl Disk {
    /// Takes a step. A refusal that the core did not give is to be a true one: what is done all
    /// the same cannot be opened.
    fn step(&mut self, step: Step) {
        let names: Vec<String> = self.state.workspaces().map(|one| one.name.to_string()).collect();
        let named = |number: usize| names[number % names.len()].clone();
        // What is in the way was there first: later it would be in the way of what is there.
        let free = |path: &str| {
            let top = path.split('/').next().unwrap_or_default().to_owned();
            self.root().join(&top).symlink_metadata().is_err()
                && self.state.workspaces().count() < 2
        };
        match step {
            Step::Folder(path) if free(&path) => {
                // A name that no folder can have is none.
                let _ = fs::create_dir_all(self.root().join(path));
            }
            Step::File(path) if free(&path) => {
                let _ = fs::write(self.root().join(path), "x");
            }
            Step::Symlink(path) if free(&path) => {
                let _ = symlink("/usr", self.root().join(path));
            }
            Step::Link(to, host, at, mode) => {
                let (to, host) = (named(to), self.host(&format!("host{host}/a")));
                let host = host.parent().unwrap();
                let Err(Rejection::MountFailed { .. }) = self.link(&to, host, &at, mode) else {
                    return;
                };
                let host = host.to_str().unwrap().to_owned();
                self.link_unseen(&to, host, &at, mode).unwrap();
                assert!(self.open_last_first().is_err(), "{at:?} was refused for nothing");
                let (workspace, mount_path) = (to, at);
                self.run(Command::UnlinkDirectory { workspace, mount_path }).unwrap();
            }
            Step::View(of, subdir) => {
                let (of, name) = (named(of), format!("v{}", names.len()));
                // Refused or not: what there is can be opened.
                let _ = self.view(&name, &of, &subdir);
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_is_linked_or_viewed_is_refused_or_can_be_opened(
        steps in prop::collection::vec(step(), 1..24),
    ) {
        let mut disk = Disk::new();
        for step in steps {
            disk.step(step.clone());
            prop_assert_eq!(disk.open_all(), Ok(()), "after {:?}", step);
        }
    }
}

#[test]
fn a_nested_workspace_takes_no_folder_that_holds_something() {
    let mut disk = Disk::new();
    let root = disk
        .files
        .path_of(&Source::Workspaces(disk.state.workspace_named("w").unwrap().root.clone()));
    fs::create_dir_all(root.join("full/of")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("file"), "x").unwrap();
    symlink("full", root.join("link")).unwrap();
    let looked = |name: &str| disk.look(&disk.state.looks_of_nested(name, "w"));
    for (name, what) in [("full", "something in it"), ("file", "no folder"), ("link", "no folder")]
    {
        let no = looked(name).unwrap_err();
        assert!(matches!(no, Rejection::WorkspaceInvalid { .. }), "{name}: {no:?}");
        assert!(no.to_string().contains(what), "{name}: {no}");
    }
    looked("empty").unwrap();
    looked("new").unwrap();
    let parent = Some("w".to_owned());
    let new = NewWorkspace { parent, ..NewWorkspace::named("full") };
    disk.run(Command::CreateWorkspace { new }).unwrap();
    let again = disk.state.looks_of_nested("full", "w");
    assert!(again.is_empty(), "who asks again is not told of what is its own");
}
