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
use substrat_tests::harness::{Daemon, Said, say, substratctl, substratd};
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
env > "FOLDER/env"
echo begun > "FOLDER/begun"
sleep 86439
"#;

fn sleepers() -> usize {
    let all = fs::read_dir("/proc").unwrap();
    let lines = all.filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with(b"sleep\x0086439")).count()
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
    assert_eq!(said, "begun\n");
    let env = fs::read_to_string(folder.path().join("env")).unwrap();
    assert!(env.contains("GIT_CONFIG_NOSYSTEM=1") && !env.contains("A_SECRET"), "{env}");
    daemon.kill();
    create.wait().unwrap();
    // The next one says that it serves only when nothing of the one before is left.
    daemon.start_again();
    assert_eq!(sleepers(), 0);
    done(&say(&home, &["workspace", "create", "wt", "--git", repo.to_str().unwrap()]));
}
