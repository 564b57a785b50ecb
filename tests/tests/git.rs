//! Workspaces of git repositories, through the real binaries: what git does in them, and how the
//! daemon runs it.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use substrat_proto::v1;
use substrat_tests::harness::{Daemon, Said, say, substratctl, substratd};
use substrat_tests::probe::{eventually, processes};
use substrat_tests::repo::{self, git};

fn exec(daemon: &Daemon, workspace: &str, script: &str) -> Said {
    say(&daemon.home, &["workspace", "exec", workspace, "--", "sh", "-c", script])
}

fn done(said: &Said) -> &str {
    assert_eq!(said.code, Some(0), "{said:?}");
    &said.stdout
}

fn repository(home: &Path) -> PathBuf {
    let repo = home.parent().unwrap().join("repo");
    repo::repository(&repo);
    repo
}

fn with_worktree() -> (Daemon, PathBuf) {
    let daemon = Daemon::start();
    let repo = repository(&daemon.home);
    done(&say(&daemon.home, &["workspace", "create", "wt", "--git", repo.to_str().unwrap()]));
    (daemon, repo)
}

/// The root of the one workspace.
fn root(daemon: &Daemon) -> PathBuf {
    let top = fs::read_dir(daemon.home.join("workspaces")).unwrap().next().unwrap().unwrap();
    top.path().join(top.file_name())
}

#[test]
fn git_works_inside_and_what_it_cannot_write_it_says() {
    let (daemon, repo) = with_worktree();
    let script = "set -e; git status --short; echo two > two; git add two; git commit -qm second
        git checkout -qb substrat/wt/side HEAD~; echo three > three; git add .; git commit -qm third
        git rebase -q substrat/wt/work; git commit -q --amend -m fourth; git reset -q --soft HEAD~
        git commit -qm fifth; git switch -q substrat/wt/work; git merge -q substrat/wt/side
        git branch -d substrat/wt/side; git rm -q two; git restore --staged two; git restore two
        git worktree list >&-; git fsck --connectivity-only
        git log --format=%s; git status --short";
    let said = exec(&daemon, "wt", script);
    assert!(done(&said).ends_with("fifth\nsecond\nfirst\n"), "{said:?}");
    assert_eq!(git(&repo, &["log", "-1", "--format=%s", "substrat/wt/work"]), "fifth\n");
    // They write what all worktrees share.
    for command in ["git pack-refs --all", "echo x > file; git stash"] {
        assert_ne!(exec(&daemon, "wt", command).code, Some(0), "{command}");
    }
    done(&exec(&daemon, "wt", "git checkout -q file; git gc -q; git status"));
    assert_eq!(git(&root(&daemon), &["status", "--short"]), "");
    done(&say(&daemon.home, &["workspace", "delete", "wt", "--force"]));
    assert_eq!(git(&repo, &["worktree", "list"]).lines().count(), 1);
}

#[test]
fn what_is_mounted_is_not_untracked_and_its_folder_goes_with_the_link() {
    let (daemon, _) = with_worktree();
    let host = daemon.home.parent().unwrap().join("host");
    fs::create_dir(&host).unwrap();
    fs::write(host.join("page"), "").unwrap();
    let (host, deep) = (host.to_str().unwrap(), "deep/er [a]*");
    for mount in [deep, "docs"] {
        done(&say(&daemon.home, &["workspace", "link", "wt", host, mount]));
    }
    let script =
        "ls docs deep/*; echo x > mine; git status --short; git add -A; git status --short";
    let said = exec(&daemon, "wt", script);
    assert_eq!(done(&said), "deep/er [a]*:\npage\n\ndocs:\npage\n?? mine\nA  mine\n", "{said:?}");
    assert!(root(&daemon).join(deep).is_dir());
    for mount in [deep, "docs"] {
        done(&say(&daemon.home, &["workspace", "unlink", "wt", mount]));
    }
    let said = exec(&daemon, "wt", "ls");
    assert_eq!(done(&said), "file\nmine\n", "{said:?}");
    let refused = say(&daemon.home, &["workspace", "link", "wt", host, ".git/hooks"]);
    assert_eq!(refused.code, Some(6), "{refused:?}");
    assert!(refused.stderr.contains("choose another path"), "{refused:?}");
}

/// A `git` that says where it is, and stays with a process in a session of its own.
const STAYS: &str = r#"#!/bin/sh
case "$*" in *--absolute-git-dir*) ;; *) exec /usr/bin/git "$@" ;; esac
trap '' TERM INT HUP
setsid sh -c 'trap "" TERM INT HUP; exec sleep 86439' &
env > "FOLDER/begun"
sleep 86439
"#;

fn sleepers() -> usize {
    processes("sleep\086439")
}

#[test]
fn git_of_a_daemon_that_was_killed_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let repo = repository(&home);
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let begun = folder.path().join("begun");
    mknodat(CWD, &begun, FileType::Fifo, Mode::RWXU, 0).unwrap();
    fs::write(bin.join("git"), STAYS.replace("FOLDER", folder.path().to_str().unwrap())).unwrap();
    fs::set_permissions(bin.join("git"), PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = substratd(&home);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", bin.display())).env("A_SECRET", "of the daemon");
    let mut daemon = Daemon::run(&home, command).unwrap();
    let mut create = substratctl(&home);
    create.args(["workspace", "create", "wt", "--git", repo.to_str().unwrap()]);
    let mut create = create.stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut said = String::new();
    fs::File::open(&begun).unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("GIT_CONFIG_NOSYSTEM=1") && !said.contains("A_SECRET"), "{said}");
    daemon.kill();
    create.wait().unwrap();
    // The next one says that it serves only when nothing of the one before is left.
    daemon.start_again();
    assert_eq!(sleepers(), 0);
    done(&say(&home, &["workspace", "create", "wt", "--git", repo.to_str().unwrap()]));
}

#[test]
fn a_pipe_that_an_agent_left_for_git_does_not_hold_a_deletion_up() {
    let (daemon, _) = with_worktree();
    done(&exec(&daemon, "wt", "mkfifo .gitignore"));
    let said = say(&daemon.home, &["workspace", "delete", "wt"]);
    assert_eq!(said.code, Some(5), "{said:?}");
    assert!(said.stderr.contains(".gitignore\" is a pipe"), "{said:?}");
    done(&say(&daemon.home, &["workspace", "delete", "wt", "--force"]));
    assert_eq!(fs::read_dir(daemon.home.join("workspaces")).unwrap().count(), 0);
}

#[test]
fn what_the_daemon_makes_in_a_repository_is_as_if_its_user_had_made_it() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let repo = repository(&home);
    let mut command = std::process::Command::new("sh");
    let daemon = substratd(&home);
    command.args(["-c", "umask 022; exec \"$@\"", "sh"]).arg(daemon.get_program());
    command.args(daemon.get_args());
    for (name, value) in daemon.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let daemon = Daemon::run(&home, command).unwrap();
    done(&say(&home, &["workspace", "create", "wt", "--git", repo.to_str().unwrap()]));
    let made = [
        "packed-refs",
        "refs/heads/substrat/wt",
        "refs/heads/substrat/wt/work",
        "objects/info/packs",
    ];
    for path in made {
        let mode = fs::metadata(repo.join(".git").join(path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o044, 0o044, "{path}: {mode:o}");
    }
    drop(daemon);
}

/// A git that is cut off after it has made the worktree, before all files are there.
const CUT_OFF: &str = r#"#!/bin/sh
PATH=${PATH#*:}
case "$*" in *"worktree add"*) ;; *) exec git "$@" ;; esac
git "$@"
eval "root=\${$(($# - 1))}"
rm "$root/first"
echo begun > "FOLDER/begun"
exec cat "FOLDER/never"
"#;

/// A daemon with that git, and a client that has it make a worktree, which is cut off.
struct CutOff {
    folder: tempfile::TempDir,
    daemon: Daemon,
    repo: PathBuf,
    create: std::process::Child,
}

/// A daemon that runs this `git`, and a repository with a file.
fn with_git(folder: &Path, script: &str) -> (Daemon, PathBuf) {
    let home = folder.join("home");
    let repo = repository(&home);
    fs::write(repo.join("first"), "first").unwrap();
    git(&repo, &["add", "first"]);
    git(&repo, &["commit", "-qm", "first file"]);
    let bin = folder.join("bin");
    fs::create_dir(&bin).unwrap();
    for pipe in ["begun", "never"] {
        mknodat(CWD, folder.join(pipe), FileType::Fifo, Mode::RWXU, 0).unwrap();
    }
    fs::write(bin.join("git"), script.replace("FOLDER", folder.to_str().unwrap())).unwrap();
    fs::set_permissions(bin.join("git"), PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = substratd(&home);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", bin.display()));
    (Daemon::run(&home, command).unwrap(), repo)
}

fn cut_off() -> CutOff {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, repo) = with_git(folder.path(), CUT_OFF);
    let mut create = substratctl(&daemon.home);
    create.args(["workspace", "create", "wt", "--git", repo.to_str().unwrap()]);
    let create = create.stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut said = String::new();
    fs::File::open(folder.path().join("begun")).unwrap().read_to_string(&mut said).unwrap();
    CutOff { folder, daemon, repo, create }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worktree_whose_making_was_cut_off_is_finished_by_the_next_daemon() {
    for is_killed in [true, false] {
        let CutOff { folder, mut daemon, repo, mut create } = cut_off();
        if is_killed {
            daemon.kill();
        } else {
            assert!(daemon.stop());
            assert_eq!(processes(&format!("cat\0{}/never", folder.path().display())), 0);
            let log = daemon.log();
            assert!(log.contains("cut off git") && !log.contains("panicked"), "{log}");
        }
        create.wait().unwrap();
        finished_by_the_next(&mut daemon, &repo).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worktree_that_is_being_made_is_not_deleted() {
    let CutOff { folder: _folder, mut daemon, mut create, .. } = cut_off();
    // It goes on when whoever asked for it has gone.
    create.kill().unwrap();
    for force in [&["--force"][..], &[]] {
        let said = say(&daemon.home, &[&["workspace", "delete", "wt"], force].concat());
        assert_eq!(said.code, Some(5), "{said:?}");
        assert!(said.stderr.contains("its making"), "{said:?}");
    }
    daemon.kill();
    create.wait().unwrap();
}

async fn finished_by_the_next(daemon: &mut Daemon, repo: &Path) {
    let root = root(daemon);
    assert!(root.join(".git").exists() && !root.join("first").exists());
    daemon.start_again();
    eventually("it is finished", || {
        !root.with_file_name("making").exists() && root.join("first").exists()
    })
    .await;
    let used = || exec(daemon, "wt", "git status --short; cat first").stdout == "first";
    eventually("it can be used", used).await;
    done(&say(&daemon.home, &["workspace", "delete", "wt"]));
    assert_eq!(git(repo, &["branch", "--format=%(refname:short)"]), "main\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_whose_worktree_was_cut_off_and_cannot_be_made_is_deleted() {
    let (mut daemon, repo) = with_worktree();
    daemon.kill();
    let root = root(&daemon);
    fs::write(root.with_file_name("making"), "").unwrap();
    fs::rename(&repo, repo.with_file_name("elsewhere")).unwrap();
    daemon.start_again();
    eventually("it is deleted", || {
        say(&daemon.home, &["workspace", "list", "-o", "json"]).json() == serde_json::json!({})
    })
    .await;
    eventually("its folder is removed", || !root.exists()).await;
    assert!(daemon.log().contains("cannot be made"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_where_a_worktree_was_cut_off_is_kept() {
    let (mut daemon, _repo) = with_worktree();
    daemon.kill();
    let root = root(&daemon);
    fs::write(root.join("precious"), "work").unwrap();
    fs::write(root.with_file_name("making"), "").unwrap();
    daemon.start_again();
    eventually("it is made anew", || {
        !root.with_file_name("making").exists() && root.join(".git").exists()
    })
    .await;
    let aside = root.with_file_name("cut-off-1").join("precious");
    assert_eq!(fs::read_to_string(aside).unwrap(), "work");
    eventually("it can be used", || exec(&daemon, "wt", "git status --short").code == Some(0))
        .await;
    let said = say(&daemon.home, &["workspace", "delete", "wt"]);
    assert!(said.code == Some(5) && said.stderr.contains("cut-off-1"), "{said:?}");
    done(&say(&daemon.home, &["workspace", "delete", "wt", "--force"]));
}

/// A git that is cut off before it deletes a branch.
const KEEPS: &str = r#"#!/bin/sh
PATH=${PATH#*:}
case "$*" in *"update-ref"*"-d"*) ;; *) exec git "$@" ;; esac
echo begun > "FOLDER/begun"
exec cat "FOLDER/never"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_was_cut_off_is_finished_by_the_next_daemon() {
    for is_killed in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (mut daemon, repo) = with_git(folder.path(), KEEPS);
        let repo_path = repo.to_str().unwrap();
        done(&say(&daemon.home, &["workspace", "create", "wt", "--git", repo_path]));
        let mut delete = substratctl(&daemon.home);
        delete.args(["workspace", "delete", "wt"]).stderr(std::process::Stdio::null());
        let mut delete = delete.spawn().unwrap();
        let mut said = String::new();
        fs::File::open(folder.path().join("begun")).unwrap().read_to_string(&mut said).unwrap();
        if is_killed {
            daemon.kill();
        } else {
            assert!(daemon.stop());
        }
        delete.wait().unwrap();
        assert!(git(&repo, &["branch", "--format=%(refname:short)"]).contains("substrat/wt/work"));
        daemon.start_again();
        eventually("it is removed", || {
            git(&repo, &["branch", "--format=%(refname:short)"]) == "main\n"
                && fs::read_dir(daemon.home.join("workspaces")).unwrap().count() == 0
        })
        .await;
        assert_eq!(git(&repo, &["worktree", "list"]).lines().count(), 1);
        done(&say(&daemon.home, &["workspace", "create", "wt", "--git", repo_path]));
    }
}

#[test]
fn commits_without_a_branch_are_named_where_git_cannot_be_run() {
    let (daemon, repo) = with_worktree();
    let script = "git checkout -q --detach; echo x > x; git add x; git commit -qm detached
        mkfifo $(git rev-parse --git-common-dir)/refs/heads/substrat/wt/pipe; git rev-parse HEAD";
    let said = exec(&daemon, "wt", script);
    let commit = done(&said).trim();
    let said = say(&daemon.home, &["workspace", "delete", "wt", "--force"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let told = format!("git branch NAME {commit}");
    assert!(said.stderr.contains(&told), "{said:?}");
    fs::remove_file(repo.join(".git/refs/heads/substrat/wt/pipe")).unwrap();
    git(&repo, &["branch", "rescued", commit]);
    assert_eq!(git(&repo, &["log", "-1", "--format=%s", "rescued"]), "detached\n");
}

#[tokio::test]
async fn a_creation_that_is_repeated_harms_nothing() {
    let daemon = Daemon::start();
    let repo = repository(&daemon.home);
    let client = daemon.client().await;
    let git = v1::WorkspaceGit { repo: repo.to_str().unwrap().to_owned(), ..Default::default() };
    let request = v1::CreateWorkspaceRequest {
        name: "wt".into(),
        git: Some(git),
        request_id: "one".into(),
        ..Default::default()
    };
    client.workspaces.clone().create_workspace(request.clone()).await.unwrap();
    let root = root(&daemon);
    fs::write(root.join("hours"), "work").unwrap();
    // Another repository lies there now.
    fs::rename(&repo, repo.with_file_name("elsewhere")).unwrap();
    repository(&daemon.home);
    client.workspaces.clone().create_workspace(request).await.unwrap();
    assert_eq!(fs::read_to_string(root.join("hours")).unwrap(), "work");
}

#[test]
fn a_repository_that_holds_the_daemon_is_refused_by_whichever_worktree_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let repo = folder.path().join("repo");
    repo::repository(&repo);
    let linked = folder.path().join("linked");
    git(&repo, &["worktree", "add", "-q", linked.to_str().unwrap()]);
    let daemon = Daemon::on(&repo.join(".git/sub/home"), &[]);
    for path in [&repo, &linked] {
        let create = ["workspace", "create", "wt", "--git", path.to_str().unwrap()];
        let said = say(&daemon.home, &create);
        assert!(said.code != Some(0) && said.stderr.contains("home"), "{path:?}: {said:?}");
    }
}

/// A git that writes where a link leads that an agent put there meanwhile.
const FOLLOWS: &str = r#"#!/bin/sh
PATH=${PATH#*:}
case "$*" in *"worktree add"*) echo pwned >> "FOLDER/victim"; echo $? > "FOLDER/repo/.git/told" ;; esac
exec git "$@"
"#;

#[test]
fn git_of_the_daemon_writes_only_where_it_is_to() {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, repo) = with_git(folder.path(), FOLLOWS);
    fs::write(folder.path().join("victim"), "mine").unwrap();
    done(&say(&daemon.home, &["workspace", "create", "wt", "--git", repo.to_str().unwrap()]));
    assert_eq!(fs::read_to_string(folder.path().join("victim")).unwrap(), "mine");
    // It could write in the repository.
    assert_ne!(fs::read_to_string(repo.join(".git/told")).unwrap().trim(), "0");
}
