//! What stands against the removal of a worktree though `git status` and `git log` do not show it.

use super::*;

#[test]
fn changes_that_a_flag_hides_from_git_stand_against_removal() {
    for flag in ["--assume-unchanged", "--skip-worktree"] {
        let world = World::new();
        let worktree = world.add();
        git_at(&world.root, &["update-index", flag, "first"]);
        assert!(world.left(&worktree).is_empty(), "{flag}: nothing has changed");
        fs::write(world.root.join("first"), "changed").unwrap();
        assert_eq!(git_at(&world.root, &["status", "--porcelain"]), "");
        let left = world.left(&worktree);
        assert_eq!(left.uncommitted, ["first (hidden from git's status by a flag)"], "{flag}");
        assert!(matches!(world.remove(&worktree, false), Err(Error::WorkLeft { .. })), "{flag}");
        // As a sparse checkout leaves it out.
        fs::remove_file(world.root.join("first")).unwrap();
        assert!(world.left(&worktree).is_empty(), "{flag}");
        world.remove(&worktree, false).unwrap();
    }
}

#[test]
fn files_with_flags_are_told_apart() {
    let world = World::new();
    for name in ["-a", "b\nc", "link"] {
        match name {
            "link" => symlink("first", world.repo.join(name)).unwrap(),
            _ => fs::write(world.repo.join(name), name).unwrap(),
        }
        git_at(&world.repo, &["add", "--", name]);
    }
    git_at(&world.repo, &["commit", "-q", "-m", "more"]);
    let worktree = world.add();
    for name in ["-a", "b\nc", "first", "link"] {
        git_at(&world.root, &["update-index", "--skip-worktree", "--", name]);
    }
    fs::write(world.root.join("b\nc"), "changed").unwrap();
    let left = world.left(&worktree);
    // A link is not compared.
    let expected = ["link", "b\\nc"].map(|at| format!("{at} (hidden from git's status by a flag)"));
    assert_eq!(left.uncommitted, expected);
}

#[test]
fn changes_that_a_rebase_or_a_merge_has_set_aside_stand_against_removal() {
    let ways: [&[&str]; 3] = [
        &["rebase", "--merge", "--autostash", "main"],
        &["rebase", "--apply", "--autostash", "main"],
        &["merge", "--autostash", "main"],
    ];
    for way in ways {
        let world = World::new();
        let worktree = world.add();
        for (folder, text) in [(&world.repo, "theirs"), (&world.root, "ours")] {
            fs::write(folder.join("first"), text).unwrap();
            git_at(folder, &["commit", "-q", "-a", "-m", text]);
        }
        git_at(&world.repo, &["branch", "other", BRANCH]);
        fs::write(world.root.join("new"), "").unwrap();
        git_at(&world.root, &["add", "new"]);
        assert!(!try_git_at(&world.root, way).status.success(), "{way:?}");
        if way[0] == "rebase" {
            // Of a merge, this would bring the changes back.
            git_at(&world.root, &["reset", "-q", "--hard"]);
        }
        let refused = world.remove(&worktree, false).map(drop).unwrap_err();
        let Error::WorkLeft { left, .. } = &refused else { panic!("{way:?}: {refused}") };
        let is_told = |line: &String| line.ends_with(" (set aside by a rebase or a merge)");
        assert_eq!(left.uncommitted.iter().filter(|line| is_told(line)).count(), 1, "{left:?}");
        assert!(left.unpushed.is_empty(), "{left:?}");
        world.remove(&worktree, true).unwrap();
    }
}

#[test]
fn what_a_rebase_has_set_aside_is_read_as_what_it_may_be() {
    let world = World::new();
    let worktree = world.add();
    let admin = world.admin(&worktree);
    let look = || world.open().work_left(&world.root, &worktree);
    fs::create_dir(admin.join("rebase-merge")).unwrap();
    assert!(look().unwrap().is_empty(), "a rebase that has stopped is no work by itself");
    let file = admin.join("rebase-merge/autostash");
    fs::write(&file, "--all\n").unwrap();
    assert!(matches!(look(), Err(Error::Tampered { path, .. }) if path == file));
    fs::write(&file, "1".repeat(40)).unwrap();
    assert!(matches!(look(), Err(Error::Failed { .. })), "it is not there");
    fs::remove_dir_all(admin.join("rebase-merge")).unwrap();
    symlink(world.folder.path(), admin.join("rebase-merge")).unwrap();
    assert!(matches!(look(), Err(Error::Tampered { .. })));
    world.remove(&worktree, true).unwrap();
    assert!(!world.root.exists());
}

#[test]
fn commits_that_were_amended_do_not_stand_against_removal() {
    let world = World::new();
    let worktree = world.add();
    world.commit_in(&world.root, "second");
    git_at(&world.root, &["commit", "-q", "--amend", "-m", "better"]);
    git_at(&world.repo, &["branch", "other", BRANCH]);
    assert!(world.left(&worktree).is_empty());
    world.remove(&worktree, false).unwrap();
}

#[test]
fn a_branch_that_cannot_be_read_is_not_taken_for_none() {
    let reference = format!("refs/heads/{BRANCH}");
    for shut in [&*reference, "refs/heads/substrat/w", "refs/heads/substrat"] {
        let world = World::new();
        let worktree = world.add();
        world.commit_in(&world.root, "second");
        // Only the branch has it now.
        fs::remove_dir_all(&world.root).unwrap();
        let at = world.repo.join(".git").join(shut);
        let mode = fs::metadata(&at).unwrap().permissions();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o000)).unwrap();
        let refused = world.remove(&worktree, false).map(drop).unwrap_err();
        match rustix::process::geteuid().is_root() {
            // Nothing is kept from root.
            true => assert!(matches!(refused, Error::WorkLeft { .. }), "{shut}: {refused}"),
            false => {
                let cannot_tell = matches!(refused, Error::Tampered { .. } | Error::Io { .. });
                assert!(cannot_tell, "{shut}: {refused}");
            }
        }
        assert!(world.admin(&worktree).exists(), "{shut}");
        assert_eq!(world.remove(&worktree, true).unwrap().kept, [BRANCH], "{shut}");
        fs::set_permissions(&at, mode).unwrap();
        assert!(world.branches().contains(&BRANCH.to_owned()), "{shut}");
    }
}

#[test]
fn a_branch_that_names_no_commit_is_not_taken_for_none() {
    for content in ["no commit\n".to_owned(), format!("{}\n", "1".repeat(40))] {
        let world = World::new();
        let worktree = world.add();
        fs::remove_dir_all(&world.root).unwrap();
        let at = world.repo.join(".git/refs/heads").join(BRANCH);
        fs::write(&at, content).unwrap();
        let refused = world.remove(&worktree, false).map(drop).unwrap_err();
        assert!(matches!(&refused, Error::Tampered { path, .. } if *path == at), "{refused}");
        assert_eq!(world.remove(&worktree, true).unwrap().kept, [BRANCH]);
        assert!(at.exists());
    }
}

#[test]
fn a_commit_that_is_checked_out_and_cannot_be_read_is_not_taken_for_none() {
    let world = World::new();
    let worktree = world.add();
    fs::remove_dir_all(&world.root).unwrap();
    fs::write(world.admin(&worktree).join("HEAD"), "1".repeat(40)).unwrap();
    let refused = world.remove(&worktree, false).map(drop).unwrap_err();
    assert!(refused.to_string().contains("cannot be read"), "{refused}");
    world.remove(&worktree, true).unwrap();
}
