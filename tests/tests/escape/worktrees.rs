//! Leading the user's git from a worktree to settings of an agent's.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use substrat_server::launcher::{Error, Launch};
use substrat_server::model::{Access, Git, Mount, Source, World};
use substrat_server::workspace::SandboxPolicy;
use substrat_tests::hostile::{assert_held, python};
use substrat_tests::launch::{Bench, Ran};

/// The root of the worktree, as workspaces are named.
const ROOT: &str = "a1/a1";

/// Runs git as its user does.
fn git(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=A", "-c", "user.email=a@b"]).args(args).current_dir(folder);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.output().expect("git runs");
    assert!(output.status.success(), "git {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A worktree that agents work in, and a program that leaves a mark when somebody runs it.
struct Trap {
    bench: Bench,
    repo: PathBuf,
    git: Git,
    mark: PathBuf,
}

impl Trap {
    async fn new() -> Self {
        let bench = Bench::new(SandboxPolicy::Required);
        let repo = bench.host("repo").canonicalize().unwrap();
        git(&repo, &["init", "-q", "-b", "main"]);
        fs::write(repo.join("file"), "one\n").unwrap();
        git(&repo, &["add", "."]);
        git(&repo, &["commit", "-q", "-m", "first"]);
        let (files, path) = (bench.launcher.files(), repo.to_str().unwrap().to_owned());
        let made = tokio::task::spawn_blocking(move || {
            let git = files.check_repository(&path, "substrat/wt/work")?;
            files.add_worktree(&git, ROOT).map(|()| git)
        });
        let git = made.await.unwrap().unwrap();
        let mark = bench.folder.path().join("mark");
        Self { bench, repo, git, mark }
    }

    fn root(&self) -> PathBuf {
        self.bench.folder.path().join("home/workspaces").join(ROOT)
    }

    fn admin(&self) -> PathBuf {
        self.repo.join(".git/worktrees/a1")
    }

    fn mount(&self) -> Mount {
        Mount { source: Source::Workspaces(ROOT.to_owned()), access: Access::ReadWrite }
    }

    /// What an agent sees that works there.
    fn world(&self) -> World {
        let mut world = self.bench.world(&[]);
        world.mounts.insert(String::new(), self.mount());
        world.git = Some(self.git.clone());
        world
    }

    async fn try_all(&self, world: World, at: &str) -> Ran {
        let admin = self.admin();
        let script = format!("TOP, ADMIN = {at:?}, {:?}\n{ATTEMPTS}", admin.to_str().unwrap());
        self.bench.run(python(world, &script)).await
    }

    /// The user looks at what is there.
    fn look(&self) {
        git(&self.root(), &["status", "--ignore-submodules=all"]);
        git(&self.root(), &["log", "-1"]);
        git(&self.root(), &["diff", "--no-ext-diff", "--ignore-submodules=all"]);
        assert!(!self.mark.exists(), "a program of the agent was run");
    }
}

/// A repository with settings of its own, and all ways to it.
const ATTEMPTS: &str = r#"
evil = TOP + "/evil"
os.makedirs(evil + "/objects"); os.makedirs(evil + "/refs")
write(evil + "/HEAD", b"ref: refs/heads/x\n")
write(evil + "/config", b"[core]\nrepositoryformatversion = 0\n")
os.symlink(evil, TOP + "/way")
os.symlink(".", TOP + "/here")
places = [TOP + "/.git", TOP + "/here/.git", "/proc/self/root" + TOP + "/.git"]
if os.path.exists(ADMIN):
    places += [ADMIN + "/" + name for name in ["commondir", "gitdir", "config.worktree"]]
folder = os.open(TOP, os.O_PATH)
for place in places:
    attempt("writing " + place, lambda: write(place, evil.encode()))
    attempt("appending", lambda: os.open(place, os.O_WRONLY | os.O_APPEND))
    attempt("opening anew", lambda: write(f"/proc/self/fd/{os.open(place, os.O_RDONLY)}", evil.encode()))
    attempt("cutting", lambda: os.truncate(place, 0))
    attempt("removing", lambda: os.unlink(place))
    attempt("moving away", lambda: os.rename(place, TOP + "/away"))
    write(TOP + "/new", evil.encode())
    attempt("replacing", lambda: os.replace(TOP + "/new", place))
    attempt("replacing by a link", lambda: os.replace(TOP + "/way", place))
    attempt("exchanging", lambda: call("renameat2", -100, (TOP + "/new").encode(), -100, place.encode(), 2))
    attempt("naming it again", lambda: os.link(place, TOP + "/same"))
    attempt("naming it again in its folder", lambda: os.link(place, place + ".same"))
    attempt("changing its mode", lambda: os.chmod(place, 0o666))
    attempt("unmounting", lambda: call("umount2", place.encode(), 2))
attempt("removing it by its folder", lambda: os.unlink(".git", dir_fd=folder))
attempt("a folder in its place", lambda: os.mkdir(TOP + "/.git"))
if os.path.exists(ADMIN):
    attempt("moving the folder", lambda: os.rename(ADMIN, ADMIN + ".away"))
    attempt("moving the folder above", lambda: os.rename(os.path.dirname(ADMIN), os.path.dirname(ADMIN) + ".away"))
    attempt("another folder", lambda: os.mkdir(os.path.dirname(ADMIN) + "/b2"))
if TOP != "/workspace":
    attempt("moving the root", lambda: os.rename(TOP, TOP + ".away"))
print("done")
"#;

#[tokio::test]
async fn an_agent_does_not_lead_the_users_git_elsewhere() {
    let trap = Trap::new().await;
    let before = fs::read(trap.root().join(".git")).unwrap();
    assert_held(&trap.try_all(trap.world(), "/workspace").await);
    // Nor one that sees the worktree in another workspace.
    fs::remove_dir_all(trap.root().join("evil")).unwrap();
    fs::remove_file(trap.root().join("here")).unwrap();
    let _ = fs::remove_file(trap.root().join("way"));
    let mut world = trap.bench.world(&[]);
    world.mounts.insert("wt".to_owned(), trap.mount());
    assert_held(&trap.try_all(world, "/workspace/wt").await);
    assert_eq!(fs::read(trap.root().join(".git")).unwrap(), before);
    assert_eq!(fs::read_to_string(trap.admin().join("commondir")).unwrap(), "../..\n");
    assert_eq!(fs::metadata(trap.admin().join("config.worktree")).unwrap().len(), 0);
    trap.look();
}

#[tokio::test]
async fn settings_of_a_worktree_are_not_an_agents_when_the_repository_reads_them_later() {
    let trap = Trap::new().await;
    let program = trap.bench.folder.path().join("program");
    fs::write(&program, format!("#!/bin/sh\ntouch {}\n", trap.mark.display())).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let script = format!(
        "git config --file {0}/config.worktree core.fsmonitor {1} || printf '[core]\\nfsmonitor = {1}\\n' > {0}/config.worktree",
        trap.admin().display(),
        program.display()
    );
    let ran = trap.bench.run(trap.bench.shell(trap.world(), &script)).await;
    assert!(ran.stderr.contains("Read-only file system"), "{ran:?}");
    git(&trap.repo, &["config", "core.repositoryFormatVersion", "1"]);
    git(&trap.repo, &["config", "extensions.worktreeConfig", "true"]);
    trap.look();
}

#[tokio::test]
async fn a_worktree_whose_way_was_changed_is_not_worked_in() {
    let trap = Trap::new().await;
    let start = || trap.bench.launcher.start(trap.bench.shell(trap.world(), "true"));
    let (git_file, kept) = (trap.root().join(".git"), trap.root().join("kept"));
    let content = fs::read_to_string(&git_file).unwrap();
    fs::rename(&git_file, &kept).unwrap();
    let plants: [(&str, &dyn Fn()); 4] = [
        ("it is not there", &|| {}),
        ("a link", &|| symlink("kept", &git_file).unwrap()),
        ("a second name", &|| fs::hard_link(&kept, &git_file).unwrap()),
        ("another way", &|| fs::write(&git_file, "gitdir: /workspace/evil\n").unwrap()),
    ];
    for (what, plant) in plants {
        plant();
        let refused = start().await;
        assert!(matches!(refused, Err(Error::Mount { .. })), "{what}: {refused:?}");
        let _ = fs::remove_file(&git_file);
    }
    fs::write(&git_file, content).unwrap();
    for (name, content) in
        [("commondir", "/evil\n"), ("gitdir", "/x/.git\n"), ("config.worktree", "[a]")]
    {
        let path = trap.admin().join(name);
        let before = fs::read(&path).unwrap();
        fs::write(&path, content).unwrap();
        let refused = start().await;
        assert!(matches!(refused, Err(Error::Mount { .. })), "{name}: {refused:?}");
        fs::write(&path, before).unwrap();
        fs::hard_link(&path, trap.admin().join("same")).unwrap();
        let refused = start().await;
        assert!(matches!(refused, Err(Error::Mount { .. })), "{name}: {refused:?}");
        fs::remove_file(trap.admin().join("same")).unwrap();
    }
    let launch: Launch = trap.bench.shell(trap.world(), "git status");
    assert_eq!(trap.bench.run(launch).await.stderr, "");
}
