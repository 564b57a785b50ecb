//! Worktrees of real repositories, among agents that write what they can.
#![allow(clippy::disallowed_methods, reason = "repositories and agents are played from outside")]

mod hostile;
mod left;
mod sandbox;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;

/// A repository with a commit, and a place for a worktree.
struct World {
    folder: tempfile::TempDir,
    repo: PathBuf,
    root: PathBuf,
}

/// Runs git as a person does.
fn git_at(folder: &Path, args: &[&str]) -> String {
    let output = try_git_at(folder, args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {error}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

fn try_git_at(folder: &Path, args: &[&str]) -> std::process::Output {
    std::process::Command::new("git")
        .args([
            "-c",
            "user.name=A",
            "-c",
            "user.email=a@example.com",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(args)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap()
}

impl World {
    fn new() -> Self {
        Self::named("repo", "root")
    }

    fn named(repo: &str, root: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let world = Self { folder, repo: real.join(repo), root: real.join("w").join(root) };
        fs::create_dir_all(&world.repo).unwrap();
        fs::create_dir_all(&world.root).unwrap();
        git_at(&world.repo, &["init", "-q"]);
        world.commit_in(&world.repo, "first");
        world
    }

    fn commit_in(&self, folder: &Path, name: &str) {
        fs::write(folder.join(name), name).unwrap();
        git_at(folder, &["add", "--", name]);
        git_at(folder, &["commit", "-q", "-m", name]);
    }

    fn open(&self) -> Repository {
        Repository::open(Arc::new(Direct), &self.repo).unwrap()
    }

    fn add(&self) -> Worktree {
        self.open().add_worktree(&self.root, "substrat/w/work").unwrap()
    }

    fn left(&self, worktree: &Worktree) -> WorkLeft {
        self.open().work_left(&self.root, worktree).unwrap()
    }

    fn remove(&self, worktree: &Worktree, force: bool) -> Result<Removed, Error> {
        self.open().remove_worktree(&self.root, worktree, force)
    }

    fn branches(&self) -> Vec<String> {
        let names =
            git_at(&self.repo, &["for-each-ref", "--format=%(refname:short)", "refs/heads"]);
        names.lines().map(str::to_owned).collect()
    }

    fn admin(&self, worktree: &Worktree) -> PathBuf {
        self.repo.join(".git/worktrees").join(&worktree.name)
    }
}

const BRANCH: &str = "substrat/w/work";

#[test]
fn a_worktree_is_made_once_and_removed_with_its_branch() {
    let world = World::new();
    let worktree = world.add();
    assert!(worktree.is_branch_new);
    assert_eq!(fs::read_to_string(world.root.join("first")).unwrap(), "first");
    assert_eq!(git_at(&world.root, &["branch", "--show-current"]), BRANCH);
    let again = world.add();
    assert_eq!(again, Worktree { is_branch_new: false, ..worktree.clone() });
    assert!(world.left(&worktree).is_empty());
    assert_eq!(world.remove(&worktree, false).unwrap(), Removed::default());
    assert!(!world.root.exists() && !world.admin(&worktree).exists());
    assert_eq!(world.branches(), ["main"]);
    // What is gone already is fine.
    assert_eq!(world.remove(&worktree, false).unwrap(), Removed::default());
    // And it can come again.
    assert!(world.add().is_branch_new);
}

#[test]
fn paths_may_hold_spaces_and_line_breaks() {
    let world = World::named("a b\nc ü", "my root\n");
    let worktree = world.add();
    fs::write(world.root.join("new\nfile\u{1b}[2J"), "").unwrap();
    let left = world.left(&worktree);
    assert_eq!(left.uncommitted, ["new\\nfile\\u{1b}[2J"]);
    assert_eq!(world.add().name, worktree.name);
    world.remove(&worktree, true).unwrap();
    assert!(!world.root.exists());
    assert_eq!(world.branches(), ["main"]);
}

#[test]
fn a_repository_is_found_from_a_folder_in_it_and_through_links() {
    let world = World::new();
    let inner = world.repo.join("deep/er");
    fs::create_dir_all(&inner).unwrap();
    let link = world.folder.path().join("link");
    symlink(&inner, &link).unwrap();
    for path in [&inner, &link] {
        let found = Repository::open(Arc::new(Direct), path).unwrap();
        assert_eq!(found.top(), world.repo);
        assert_eq!(found.common_dir(), world.repo.join(".git"));
    }
    let worktree = world.add();
    let of_worktree = Repository::open(Arc::new(Direct), &world.root).unwrap();
    assert_eq!(of_worktree.common_dir(), world.repo.join(".git"));
    assert_eq!(of_worktree.top(), world.root);
    drop(worktree);
}

#[test]
fn a_bare_repository_has_worktrees_too() {
    let mut world = World::new();
    let bare = world.folder.path().canonicalize().unwrap().join("bare.git");
    git_at(&world.repo, &["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    world.repo = bare.clone();
    let repository = world.open();
    assert_eq!((repository.top(), repository.common_dir()), (bare.as_path(), bare.as_path()));
    let worktree = world.add();
    assert!(world.root.join("first").exists());
    assert!(world.left(&worktree).is_empty());
    world.remove(&worktree, false).unwrap();
    assert_eq!(world.branches(), ["main"]);
}

#[test]
fn what_is_no_repository_is_refused_for_what_it_is() {
    let world = World::new();
    let open = |path: &Path| Repository::open(Arc::new(Direct), path).map(drop).unwrap_err();
    for path in [world.folder.path(), &world.repo.join("first"), &world.repo.join("nowhere")] {
        assert!(matches!(open(path), Error::NotARepository { .. }), "{path:?}");
    }
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&world.repo, Some(1000), Some(1000)).unwrap();
        std::os::unix::fs::chown(world.repo.join(".git"), Some(1000), Some(1000)).unwrap();
        let refused = open(&world.repo);
        assert!(matches!(refused, Error::NotOwned { .. }), "{refused}");
        assert!(refused.to_string().contains("run the daemon as that user"), "{refused}");
    }
    let empty = world.folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    git_at(&empty, &["init", "-q"]);
    let empty = Repository::open(Arc::new(Direct), &empty).unwrap();
    let refused = empty.add_worktree(&world.root, BRANCH).unwrap_err();
    assert!(matches!(refused, Error::NoCommits { .. }), "{refused}");
    git_at(&empty.top, &["config", "extensions.worktreeConfig", "true"]);
    git_at(&empty.top, &["config", "core.repositoryFormatVersion", "1"]);
    let refused = open(&empty.top);
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    let command = "git config --unset extensions.worktreeConfig";
    assert!(refused.to_string().contains(command), "{refused}");
    git_at(&empty.top, &["config", "--unset", "extensions.worktreeConfig"]);
    Repository::open(Arc::new(Direct), &empty.top).unwrap();
}

#[derive(Debug)]
struct NoGit;

impl Run for NoGit {
    fn run(&self, _: &Command) -> Result<Output, RunError> {
        Err(RunError::Missing)
    }
}

#[test]
fn a_host_without_git_is_told_what_to_install() {
    let world = World::new();
    let error = Repository::open(Arc::new(NoGit), &world.repo).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "git is not installed; install the package \"git\"");
}

#[test]
fn a_branch_that_is_checked_out_elsewhere_is_refused_with_the_place() {
    let world = World::new();
    let repository = world.open();
    let refused = repository.add_worktree(&world.root, "main").unwrap_err();
    assert!(matches!(&refused, Error::BranchInUse { at, .. } if *at == world.repo), "{refused}");
    let worktree = world.add();
    let other = world.root.with_file_name("other");
    let refused = repository.add_worktree(&other, BRANCH).unwrap_err();
    assert!(matches!(&refused, Error::BranchInUse { at, .. } if *at == world.root), "{refused}");
    for bad in ["", "-x", "a..b", "a b", "a/.b", "a.lock", "x\n", "HEAD", "a//b", "a*"] {
        let refused = repository.add_worktree(&other, bad).unwrap_err();
        assert!(matches!(refused, Error::BranchInvalid { .. }), "{bad:?}: {refused}");
        let by_git = try_git_at(&world.repo, &["check-ref-format", "--branch", bad]);
        assert!(!by_git.status.success(), "{bad:?}");
    }
    world.remove(&worktree, false).unwrap();
}

#[test]
fn a_new_branch_does_not_get_the_name_of_a_remote_tracking_one() {
    let world = World::new();
    git_at(&world.repo, &["update-ref", "refs/remotes/origin/main", "HEAD"]);
    let repository = world.open();
    let refused = repository.check_new_branch("origin/main").unwrap_err();
    assert!(matches!(refused, Error::RemoteTracking { .. }), "{refused}");
    assert!(refused.to_string().contains("\"git branch NAME origin/main\""), "{refused}");
    for fine in ["main", "origin", "origin/new", "topic"] {
        repository.check_new_branch(fine).unwrap();
    }
}

#[test]
fn a_folder_with_something_in_it_is_left_alone() {
    let world = World::new();
    fs::write(world.root.join("mine"), "").unwrap();
    let refused = world.open().add_worktree(&world.root, BRANCH).unwrap_err();
    assert!(matches!(refused, Error::RootTaken { .. }), "{refused}");
    assert_eq!(world.branches(), ["main"]);
}

#[test]
fn a_branch_that_was_there_stays() {
    let world = World::new();
    git_at(&world.repo, &["branch", "mine"]);
    let worktree = world.open().add_worktree(&world.root, "mine").unwrap();
    assert!(!worktree.is_branch_new);
    world.remove(&worktree, true).unwrap();
    assert_eq!(world.branches(), ["main", "mine"]);
}

#[test]
fn work_that_would_be_lost_stands_against_removal_and_commits_survive_force() {
    let world = World::new();
    let worktree = world.add();
    fs::write(world.root.join("first"), "changed").unwrap();
    fs::write(world.root.join("untracked"), "").unwrap();
    fs::write(world.root.join("staged"), "").unwrap();
    git_at(&world.root, &["add", "staged"]);
    world.commit_in(&world.root, "second");
    let left = world.left(&worktree);
    let mut uncommitted = left.uncommitted.clone();
    uncommitted.sort();
    // What was staged before the commit went into it.
    assert_eq!(uncommitted, ["first", "untracked"]);
    assert_eq!(left.unpushed.len(), 1);
    assert!(left.unpushed[0].ends_with(" second"), "{left:?}");
    let refused = world.remove(&worktree, false).unwrap_err();
    assert!(matches!(&refused, Error::WorkLeft { left: found, .. } if *found == left));
    assert!(world.root.join("untracked").exists());
    let removed = world.remove(&worktree, true).unwrap();
    assert_eq!(removed.kept, [BRANCH]);
    assert_eq!(world.branches(), ["main", BRANCH]);
    assert!(!world.root.exists());
}

#[test]
fn what_git_cannot_look_at_stands_against_removal() {
    for mode in [0o000, 0o300] {
        let world = World::new();
        let worktree = world.add();
        let shut = world.root.join("shut");
        fs::create_dir(&shut).unwrap();
        fs::write(shut.join("precious"), "").unwrap();
        fs::set_permissions(&shut, fs::Permissions::from_mode(mode)).unwrap();
        let refused = world.remove(&worktree, false).map(drop).unwrap_err();
        let Error::WorkLeft { left, .. } = &refused else { panic!("{mode:o}: {refused}") };
        // Nothing is kept from root, for whom it is listed as any other.
        assert!(left.uncommitted.iter().any(|path| path.starts_with("shut/")), "{left:?}");
        assert!(shut.is_dir(), "{mode:o}");
        world.remove(&worktree, true).unwrap();
        assert!(!world.root.exists());
    }
}

#[test]
fn changes_in_a_folder_that_git_cannot_enter_stand_against_removal() {
    let world = World::new();
    fs::create_dir(world.repo.join("shut")).unwrap();
    world.commit_in(&world.repo, "shut/file");
    let worktree = world.add();
    let shut = world.root.join("shut");
    fs::write(shut.join("file"), "changed").unwrap();
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o000)).unwrap();
    let refused = world.remove(&worktree, false).map(drop).unwrap_err();
    let Error::WorkLeft { left, .. } = &refused else { panic!("{refused}") };
    assert!(left.uncommitted.iter().any(|path| path.contains("shut/")), "{left:?}");
    world.remove(&worktree, true).unwrap();
}

#[test]
fn what_git_says_of_files_that_it_could_not_look_at_is_known() {
    let said = b"warning: could not open directory 'it's/': Permission denied\n\
        a/b: Permission denied\na/b: Permission denied\n\
        warning: unable to access '.gitignore': Too many levels of symbolic links\n";
    let unseen: Vec<_> = parse::unseen(said).into_iter().collect();
    let expected = [
        "it's/ (a folder that cannot be read)",
        "what git could not look at: a/b: Permission denied",
    ];
    assert_eq!(unseen, expected);
    assert!(parse::unseen(b"").is_empty());
}

#[test]
fn commits_that_others_have_are_no_work_left() {
    for has_it in ["refs/heads/other", "refs/remotes/origin/work"] {
        let world = World::new();
        let worktree = world.add();
        world.commit_in(&world.root, "second");
        assert_eq!(world.left(&worktree).unpushed.len(), 1);
        git_at(&world.repo, &["update-ref", has_it, BRANCH]);
        assert!(world.left(&worktree).is_empty(), "{has_it}");
        assert_eq!(world.remove(&worktree, false).unwrap(), Removed::default());
        assert!(!world.branches().contains(&BRANCH.to_owned()));
    }
}

#[test]
fn commits_without_a_branch_get_one() {
    let world = World::new();
    let worktree = world.add();
    git_at(&world.root, &["checkout", "-q", "--detach"]);
    world.commit_in(&world.root, "loose");
    let commit = git_at(&world.root, &["rev-parse", "HEAD"]);
    assert!(world.left(&worktree).unpushed[0].ends_with(" loose"));
    assert!(matches!(world.remove(&worktree, false), Err(Error::WorkLeft { .. })));
    let removed = world.remove(&worktree, true).unwrap();
    assert_eq!(removed.kept, [format!("{BRANCH}-{}", &commit[..12])]);
    assert_eq!(git_at(&world.repo, &["rev-parse", &removed.kept[0]]), commit);
    assert_eq!(world.branches(), ["main", &removed.kept[0]]);
}

#[test]
fn a_list_of_work_has_a_bound() {
    let world = World::new();
    let worktree = world.add();
    for number in 0..=MAX_LISTED {
        fs::write(world.root.join(number.to_string()), "").unwrap();
    }
    let left = world.left(&worktree);
    assert_eq!((left.uncommitted.len(), left.has_more), (MAX_LISTED, true));
}

#[test]
fn a_worktree_removed_by_hand_is_forgotten_or_made_anew() {
    let world = World::new();
    let worktree = world.add();
    world.commit_in(&world.root, "second");
    fs::remove_dir_all(&world.root).unwrap();
    assert_eq!(world.left(&worktree).unpushed.len(), 1, "its commits are still there");
    let again = world.add();
    assert!(!again.is_branch_new && world.root.join("second").exists());
    fs::remove_dir_all(&world.root).unwrap();
    assert!(matches!(world.remove(&worktree, false), Err(Error::WorkLeft { .. })));
    assert_eq!(world.remove(&worktree, true).unwrap().kept, [BRANCH]);
    assert!(!world.admin(&again).exists());
    let listed = git_at(&world.repo, &["worktree", "list", "--porcelain"]);
    assert_eq!(listed.matches("worktree ").count(), 1, "{listed}");
    // Forgotten by git, with its folder still there.
    let worktree = world.add();
    fs::remove_dir_all(world.admin(&worktree)).unwrap();
    world.remove(&worktree, true).unwrap();
    assert!(!world.root.exists());
}

#[test]
fn a_branch_that_leads_nowhere_does_not_stand_against_a_worktree() {
    let world = World::new();
    fs::write(world.repo.join(".git/refs/heads/nowhere"), format!("{}\n", "1".repeat(40))).unwrap();
    assert!(!try_git_at(&world.repo, &["repack", "-d", "-l", "-q"]).status.success());
    let worktree = world.add();
    let loose = git_at(&world.repo, &["count-objects"]);
    assert!(loose.starts_with("0 objects"), "an agent could change them: {loose}");
    world.commit_in(&world.root, "second");
    assert_eq!(world.left(&worktree).unpushed.len(), 1);
    assert_eq!(world.remove(&worktree, true).unwrap().kept, [BRANCH]);
}

#[test]
fn objects_that_cannot_be_packed_stand_against_a_worktree_with_the_reason() {
    let world = World::new();
    fs::write(world.repo.join(".git/refs/heads/nowhere"), format!("{}\n", "1".repeat(40))).unwrap();
    let blob = git_at(&world.repo, &["rev-parse", "HEAD:first"]);
    let object = world.repo.join(".git/objects").join(&blob[..2]).join(&blob[2..]);
    fs::remove_file(&object).unwrap();
    fs::write(&object, "no object").unwrap();
    let refused = world.open().add_worktree(&world.root, BRANCH).unwrap_err().to_string();
    assert!(refused.contains("refs/heads/nowhere") && refused.contains("git fsck"), "{refused}");
    assert_eq!(world.branches(), ["main", "nowhere"], "nothing was made");
}

#[test]
fn what_is_kept_from_the_daemon_is_not_called_damaged() {
    if rustix::process::geteuid().is_root() {
        // Nothing is kept from root.
        return;
    }
    let world = World::new();
    let packs = world.repo.join(".git/objects/pack");
    fs::set_permissions(&packs, fs::Permissions::from_mode(0o500)).unwrap();
    let refused = world.open().add_worktree(&world.root, BRANCH).unwrap_err();
    assert!(matches!(refused, Error::Denied { .. }), "{refused}");
    assert!(refused.to_string().contains("chown -R"), "{refused}");
    assert_eq!(world.branches(), ["main"], "nothing was made");
}

#[test]
fn how_each_git_says_that_a_repository_is_anothers_is_known() {
    assert!(is_not_owned("fatal: detected dubious ownership in repository at '/srv/shop'"));
    assert!(is_not_owned("fatal: the repository ('/srv/shop' is owned by someone else)"));
    assert!(!is_not_owned("fatal: not a git repository (or any of the parent directories): .git"));
}

#[test]
fn what_is_made_in_a_repository_has_the_modes_that_git_gives() {
    let world = World::new();
    git_at(&world.repo, &["config", "core.sharedRepository", "group"]);
    let git = world.repo.join(".git");
    let mode = |path: &str| fs::metadata(git.join(path)).unwrap().permissions().mode() & 0o7777;
    for (file, folder) in [(0o640, 0o750), (0o664, 0o2775)] {
        for (path, mode) in [("HEAD", file), ("refs/heads", folder), ("logs/refs/heads", folder)] {
            fs::set_permissions(git.join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
        let worktree = world.add();
        assert_eq!(mode("packed-refs"), file);
        for made in ["refs/heads/substrat/w", "logs/refs/heads/substrat/w"] {
            fs::remove_dir_all(git.join(made).parent().unwrap()).unwrap();
        }
        world.open().prepare(&worktree.name, BRANCH).unwrap();
        for made in ["refs/heads/substrat/w", "logs/refs/heads/substrat"] {
            assert_eq!(mode(made), folder, "{made}");
        }
        world.remove(&worktree, true).unwrap();
        fs::remove_file(git.join("packed-refs")).unwrap();
    }
}

#[test]
fn a_branch_of_a_worktree_begins_where_that_one_is() {
    let world = World::new();
    let other = world.repo.with_file_name("other");
    git_at(&world.repo, &["worktree", "add", "-q", "-b", "side", other.to_str().unwrap()]);
    world.commit_in(&other, "on the side");
    let found = Repository::open(Arc::new(Direct), &other).unwrap();
    let start = found.starts_at().map(str::to_owned);
    let identity = found.identity().unwrap();
    let known = Repository::known(Arc::new(Direct), found.common_dir(), &identity).unwrap();
    known.starting_at(start.as_deref()).add_worktree(&world.root, BRANCH).unwrap();
    assert_eq!(git_at(&world.root, &["log", "-1", "--format=%s"]), "on the side");
    assert_eq!(Repository::open(Arc::new(Direct), &world.repo).unwrap().starts_at(), None);
}

#[test]
fn a_repository_whose_objects_lie_elsewhere_is_refused() {
    let world = World::new();
    let shared = world.repo.with_file_name("shared");
    let args = ["clone", "-q", "--shared", world.repo.to_str().unwrap()];
    git_at(world.folder.path(), &[&args[..], &[shared.to_str().unwrap()]].concat());
    let refused = Repository::open(Arc::new(Direct), &shared).map(drop).unwrap_err();
    assert!(refused.to_string().contains("objects/info/alternates"), "{refused}");
}
