//! git in a sandbox that binds what [`sandbox_mounts`] says, by the real bubblewrap.

use std::process::Output;

use super::*;
use crate::model::Access;

#[test]
fn what_a_sandbox_binds_is_as_narrow_as_git_allows() {
    let world = World::new();
    let repository = world.open();
    let common = world.repo.join(".git");
    let mounts = |branch| -> Vec<(String, Access)> {
        let relative = |path: &Path| path.strip_prefix(&common).unwrap().display().to_string();
        let mut mounts = sandbox_mounts(&repository, "name", branch).unwrap();
        let top = mounts.iter().take_while(|(_, access)| *access == ReadOnly).count();
        let listed: Vec<_> = mounts.drain(..top).map(|(path, _)| relative(&path)).collect();
        for name in ["HEAD", "config", "hooks", "objects", "refs"] {
            assert!(listed.iter().any(|path| path == name), "{listed:?}");
        }
        assert!(!listed.iter().any(|path| path.is_empty() || path.contains('/')), "{listed:?}");
        mounts.iter().map(|(path, access)| (relative(path), *access)).collect()
    };
    use Access::{ReadOnly, ReadWrite};
    let expected = |branches: &str, logs: &str| {
        [
            ("objects", ReadWrite),
            ("worktrees/name", ReadWrite),
            (branches, ReadWrite),
            (logs, ReadWrite),
            ("objects/pack", ReadOnly),
            ("objects/info", ReadOnly),
            ("worktrees/name/commondir", ReadOnly),
            ("worktrees/name/gitdir", ReadOnly),
            ("worktrees/name/config.worktree", ReadOnly),
        ]
        .map(|(path, access)| (path.to_owned(), access))
    };
    let of_folder = expected("refs/heads/a/b", "logs/refs/heads/a/b");
    assert_eq!(mounts("a/b/c"), of_folder);
    assert_eq!(mounts("main"), expected("refs/heads", "logs/refs/heads"));
}

/// Runs a script in a sandbox, in the worktree.
fn in_sandbox(world: &World, worktree: &Worktree, script: &str) -> Output {
    let repository = world.open();
    repository.prepare(&worktree.name, &worktree.branch).unwrap();
    let mut bwrap = std::process::Command::new("bwrap");
    bwrap.args(["--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev"]);
    bwrap.arg("--tmpfs").arg(repository.common_dir());
    for (path, access) in sandbox_mounts(&repository, &worktree.name, &worktree.branch).unwrap() {
        let flag = if access == Access::ReadOnly { "--ro-bind" } else { "--bind" };
        bwrap.arg(flag).args([&path, &path]);
    }
    bwrap.arg("--bind").args([&world.root, &world.root]).arg("--chdir").arg(&world.root);
    bwrap.arg("--ro-bind").args([world.root.join(".git"), world.root.join(".git")]);
    bwrap.args(["/bin/sh", "-c", script]);
    bwrap.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", "/nonexistent");
    for name in ["AUTHOR", "COMMITTER"] {
        bwrap.env(format!("GIT_{name}_NAME"), "A").env(format!("GIT_{name}_EMAIL"), "a@b");
    }
    bwrap.env("COMMON", repository.common_dir());
    bwrap.envs(sandbox_environment(None));
    bwrap.output().unwrap()
}

#[test]
fn in_a_sandbox_commits_work_and_the_rest_of_the_repository_stays_as_it_is() {
    let has_bubblewrap = std::process::Command::new("bwrap").arg("--version").output().is_ok();
    if !has_bubblewrap {
        eprintln!("NOT RUN: bubblewrap is missing");
        return;
    }
    let world = World::new();
    let worktree = world.add();
    let common = world.repo.join(".git");
    let state = || {
        let refs = git_at(&world.repo, &["for-each-ref", "--exclude=refs/heads/substrat"]);
        (refs, fs::read(common.join("config")).unwrap(), names_in(&common), packs(&common))
    };
    let before = state();
    assert_eq!(before.3.len(), 1, "what was there is packed, and so out of reach");
    let output = in_sandbox(
        &world,
        &worktree,
        "set -e; echo a > a; git add a; git commit -qm second; git commit -q --amend -m changed;
         git checkout -q -b substrat/w/other; git checkout -q -; git rebase -q HEAD~; git log -1 --format=%s",
    );
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "changed\n", "{error}");
    assert!(!error.contains("packed-refs.lock"), "{error}");
    let attempts = [
        "echo x >> $COMMON/config",
        "git config core.fsmonitor evil",
        "git config extensions.worktreeConfig true",
        "mkdir -p $COMMON/hooks && echo x > $COMMON/hooks/post-checkout",
        "echo x > $COMMON/info/attributes",
        "git update-ref refs/heads/main HEAD",
        "git rev-parse HEAD > $COMMON/refs/heads/main",
        "git branch mine",
        "git branch substrat/v/other",
        "git tag t",
        "git pack-refs --all",
        "git update-ref refs/remotes/origin/main HEAD",
        "rm $COMMON/objects/pack/*.pack",
        "echo / > $COMMON/objects/info/alternates",
        "mkdir $COMMON/worktrees/other",
        "mv $COMMON/objects $COMMON/gone",
        "echo /tmp > $COMMON/worktrees/*/commondir",
        "echo /tmp > $COMMON/worktrees/*/gitdir",
        "echo '[core]' > $COMMON/worktrees/*/config.worktree",
        "rm -f $COMMON/worktrees/*/commondir",
        "mv $COMMON/worktrees/* $COMMON/worktrees/other",
        "echo x > .git",
        "rm -f .git",
        "mv .git gone",
        "ln .git other",
        "mv first .git",
        "echo x > $COMMON/HEAD",
        "echo x > $COMMON/../first",
    ];
    for attempt in attempts {
        let output = in_sandbox(&world, &worktree, attempt);
        assert!(!output.status.success(), "{attempt}");
        assert_eq!(state(), before, "{attempt}");
    }
    // The folder around them is a private one.
    in_sandbox(&world, &worktree, "mkdir $COMMON/modules; git gc -q; git stash; git stash clear");
    assert_eq!(state(), before);
    assert_eq!(git_at(&world.repo, &["log", "-1", "--format=%s", BRANCH]), "changed");
    let left = world.left(&worktree);
    assert_eq!((left.uncommitted.len(), left.unpushed.len()), (0, 0), "another branch has it");
}

fn names_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<PathBuf> = entries.collect();
    names.sort();
    names
}

fn packs(common: &Path) -> Vec<PathBuf> {
    let mut packs = names_in(&common.join("objects/pack"));
    packs.retain(|path| path.extension() == Some(OsStr::new("pack")));
    packs
}

#[test]
fn what_is_shut_from_within_a_sandbox_is_opened_again() {
    let world = World::new();
    let worktree = world.add();
    world.commit_in(&world.root, "second");
    let shut = "admin=$(sed 's/gitdir: //' .git) && refs=$(git rev-parse --git-path refs/heads) && \
        chmod 000 \"$refs/substrat/w/work\" \"$refs/substrat/w\" \"$admin/logs/HEAD\" \
        \"$admin/logs\" \"$admin/HEAD\" \"$admin/index\" \"$admin\"";
    let shut = in_sandbox(&world, &worktree, shut);
    assert!(shut.status.success(), "{shut:?}");
    let mode = |path: &str| {
        fs::symlink_metadata(world.repo.join(".git").join(path)).unwrap().permissions().mode()
            & 0o777
    };
    let repository = world.open();
    let before = mode("objects");
    repository.open_again(&worktree.name, &worktree.branch);
    repository.check_ways(&world.root, &worktree).unwrap();
    let left = world.left(&worktree);
    assert!(left.uncommitted.is_empty() && left.unpushed.len() == 1, "{left:?}");
    assert_eq!(git_at(&world.root, &["log", "-1", "--format=%s"]), "second");
    let reference = "refs/heads/substrat/w";
    assert_eq!((mode(reference), mode(&format!("{reference}/work"))), (0o700, 0o600));
    assert_eq!(mode("objects"), before, "it is the repository's");
}

#[test]
fn a_link_in_place_of_what_is_opened_again_is_not_followed() {
    let world = World::new();
    let worktree = world.add();
    let (admin, outside) = (world.admin(&worktree), world.repo.join("first"));
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o444)).unwrap();
    for name in ["HEAD", "index"] {
        fs::remove_file(admin.join(name)).unwrap();
    }
    symlink(&outside, admin.join("HEAD")).unwrap();
    fs::hard_link(&outside, admin.join("index")).unwrap();
    world.open().open_again(&worktree.name, &worktree.branch);
    assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o444);
}
