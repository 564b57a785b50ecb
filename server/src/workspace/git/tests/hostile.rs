//! What an agent may leave behind, and what must not come of it on the host.

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

/// A world with a program that leaves a mark when somebody runs it.
struct Trap {
    world: World,
    worktree: Worktree,
    program: PathBuf,
    mark: PathBuf,
}

impl Trap {
    fn new() -> Self {
        let world = World::new();
        let worktree = world.add();
        let folder = world.folder.path().canonicalize().unwrap();
        let (program, mark) = (folder.join("evil"), folder.join("mark"));
        // A filter passes on what it gets, a monitor says that nothing changed.
        fs::write(&program, format!("#!/bin/sh\ntouch {}\nexec cat\n", mark.display())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self { world, worktree, program, mark }
    }

    fn admin(&self, file: &str) -> PathBuf {
        self.world.admin(&self.worktree).join(file)
    }

    fn work_left(&self) -> Result<WorkLeft, Error> {
        self.world.open().work_left(&self.world.root, &self.worktree)
    }

    /// The settings that run the program.
    fn settings(&self) -> String {
        let program = self.program.display();
        format!(
            "[core]\nfsmonitor = {program}\npager = {program}\n[diff]\nexternal = {program}\n\
             [filter \"evil\"]\nclean = {program}\nsmudge = {program}\nrequired = true\n"
        )
    }

    fn was_sprung(&self) -> bool {
        let was = self.mark.exists();
        let _ = fs::remove_file(&self.mark);
        was
    }

    /// A repository whose settings run the program.
    fn repository(&self, at: &Path) {
        fs::create_dir_all(at).unwrap();
        git_at(at, &["init", "-q"]);
        self.world.commit_in(at, "inner");
        let config = at.join(".git/config");
        let text = fs::read_to_string(&config).unwrap();
        fs::write(config, format!("{text}{}", self.settings())).unwrap();
    }
}

#[test]
fn a_git_file_that_leads_elsewhere_is_not_followed() {
    let trap = Trap::new();
    let evil = trap.world.folder.path().canonicalize().unwrap().join("evil-repo");
    trap.repository(&evil);
    let git_file = trap.world.root.join(".git");
    fs::write(&git_file, format!("gitdir: {}/.git\n", evil.display())).unwrap();
    fs::write(trap.world.root.join("new"), "").unwrap();
    git_at(&trap.world.root, &["status"]);
    assert!(trap.was_sprung(), "git by itself falls for it");
    assert_eq!(trap.work_left().unwrap().uncommitted, ["new"]);
    fs::remove_file(&git_file).unwrap();
    fs::rename(evil.join(".git"), &git_file).unwrap();
    assert_eq!(trap.work_left().unwrap().uncommitted, ["new"]);
    trap.world.remove(&trap.worktree, true).unwrap();
    assert!(!trap.was_sprung());
}

#[test]
fn settings_that_a_worktree_brings_are_refused() {
    let trap = Trap::new();
    let evil = trap.world.folder.path().join("evil-repo");
    trap.repository(&evil);
    let commondir = evil.join(".git").display().to_string();
    let files = [("commondir", commondir), ("config.worktree", trap.settings())];
    for (file, content) in files {
        let before = fs::read(trap.admin(file)).ok();
        fs::write(trap.admin(file), content).unwrap();
        for refused in [
            trap.work_left().map(drop).unwrap_err(),
            trap.world.remove(&trap.worktree, false).map(drop).unwrap_err(),
        ] {
            let is_named = matches!(&refused, Error::Tampered { path, .. } if path.ends_with(file));
            assert!(is_named, "{refused}");
        }
        match before {
            Some(before) => fs::write(trap.admin(file), before).unwrap(),
            None => fs::remove_file(trap.admin(file)).unwrap(),
        }
    }
    // This one git does not read.
    fs::write(trap.admin("config"), trap.settings()).unwrap();
    assert!(trap.work_left().unwrap().is_empty());
    fs::write(trap.admin("commondir"), "/nowhere").unwrap();
    trap.world.remove(&trap.worktree, true).unwrap();
    assert!(!trap.was_sprung());
}

#[test]
fn files_in_place_of_others_are_refused_and_not_waited_for() {
    for (file, is_link) in [("HEAD", false), ("HEAD", true), ("index", true), ("index", false)] {
        let trap = Trap::new();
        fs::remove_file(trap.admin(file)).unwrap();
        if is_link {
            symlink("/etc/passwd", trap.admin(file)).unwrap();
        } else {
            mknodat(CWD, trap.admin(file), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
        let refused = trap.work_left().unwrap_err();
        assert!(matches!(refused, Error::Tampered { .. }), "{file}: {refused}");
        trap.world.remove(&trap.worktree, true).unwrap();
        assert!(!trap.world.root.exists());
    }
    for head in ["ref: refs/heads/../../x\n", "ref: refs/heads/--all\n", "", "\0", "--all"] {
        let trap = Trap::new();
        fs::write(trap.admin("HEAD"), head).unwrap();
        // git refuses what is no HEAD; all that counts is that nothing else comes of it.
        let _ = trap.work_left();
        trap.world.remove(&trap.worktree, true).unwrap();
        assert!(!trap.was_sprung() && !trap.world.root.exists());
    }
}

#[test]
fn what_the_repository_would_run_is_not_run() {
    let trap = Trap::new();
    let config = trap.world.repo.join(".git/config");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}{}", trap.settings())).unwrap();
    let hooks = trap.world.repo.join(".git/hooks");
    fs::create_dir_all(&hooks).unwrap();
    for hook in ["post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc"] {
        symlink(&trap.program, hooks.join(hook)).unwrap();
    }
    fs::write(trap.world.root.join(".gitattributes"), "* filter=evil diff=evil\n").unwrap();
    fs::write(trap.world.root.join("first"), "Other").unwrap();
    let _ = try_git_at(&trap.world.root, &["status"]);
    assert!(trap.was_sprung(), "git by itself runs it");
    let mut uncommitted = trap.work_left().unwrap().uncommitted;
    uncommitted.sort();
    assert_eq!(uncommitted, [".gitattributes", "first"]);
    trap.world.remove(&trap.worktree, true).unwrap();
    let worktree = trap.world.add();
    assert!(worktree.is_branch_new);
    trap.world.remove(&worktree, false).unwrap();
    assert!(!trap.was_sprung());
}

#[test]
fn repositories_within_are_listed_and_not_looked_into() {
    let trap = Trap::new();
    let root = &trap.world.root;
    trap.repository(&root.join("untracked"));
    trap.repository(&root.join("sub"));
    git_at(root, &["add", "sub"]);
    fs::write(root.join("sub/inner"), "changed").unwrap();
    let committed = ["commit", "-q", "-m", "sub"];
    git_at(root, &committed);
    trap.was_sprung();
    git_at(root, &["status"]);
    assert!(trap.was_sprung(), "git by itself looks into it");
    let left = trap.work_left().unwrap();
    assert_eq!(left.uncommitted, ["untracked/", "sub (a repository of its own)"]);
    assert!(!trap.was_sprung());
}

#[test]
fn removal_removes_what_it_is_told_and_follows_no_link() {
    let trap = Trap::new();
    let world = &trap.world;
    let victim = world.folder.path().canonicalize().unwrap().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("precious"), "").unwrap();
    fs::write(trap.admin("gitdir"), format!("{}/.git\n", victim.display())).unwrap();
    symlink(&victim, world.root.join("link")).unwrap();
    symlink(&victim, trap.admin("link")).unwrap();
    world.remove(&trap.worktree, true).unwrap();
    let worktree = world.add();
    fs::remove_dir_all(&world.root).unwrap();
    symlink(&victim, &world.root).unwrap();
    fs::remove_dir_all(world.admin(&worktree)).unwrap();
    symlink(&victim, world.admin(&worktree)).unwrap();
    assert!(world.open().work_left(&world.root, &worktree).is_err());
    world.remove(&worktree, true).unwrap();
    assert!(fs::symlink_metadata(&world.root).is_err());
    assert!(victim.join("precious").exists());
    for name in ["", ".", "..", "../../..", "a/b", "/etc"] {
        let named = Worktree { name: name.to_owned(), ..worktree.clone() };
        fs::create_dir_all(&world.root).unwrap();
        fs::write(world.root.join("file"), "").unwrap();
        let refused = world.remove(&named, false).unwrap_err();
        assert!(matches!(refused, Error::Tampered { .. }), "{name}: {refused}");
        let refused = world.remove(&named, true).unwrap_err();
        assert!(matches!(refused, Error::Tampered { .. }), "{name}: {refused}");
        assert!(world.repo.join(".git/config").exists());
    }
}

#[test]
fn a_log_of_references_is_not_written_through_a_link() {
    let trap = Trap::new();
    let world = &trap.world;
    git_at(&world.root, &["checkout", "-q", "--detach"]);
    world.commit_in(&world.root, "loose");
    let commit = git_at(&world.root, &["rev-parse", "HEAD"]);
    let victim = world.folder.path().join("victim");
    fs::write(&victim, "as it was").unwrap();
    let log = world.repo.join(".git/logs/refs/heads").join(format!("{BRANCH}-{}", &commit[..12]));
    symlink(&victim, &log).unwrap();
    assert_eq!(world.remove(&trap.worktree, true).unwrap().kept.len(), 1);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
}

#[test]
fn a_link_is_never_a_mount() {
    let trap = Trap::new();
    let repository = trap.world.open();
    let branches = trap.world.repo.join(".git/refs/heads/substrat");
    repository.prepare(&trap.worktree.name, "substrat/x/work").unwrap();
    assert!(branches.join("x").is_dir());
    fs::remove_dir(branches.join("x")).unwrap();
    symlink(trap.world.folder.path(), branches.join("x")).unwrap();
    let refused = repository.prepare(&trap.worktree.name, "substrat/x/work").unwrap_err();
    assert!(matches!(refused, Error::Tampered { .. }), "{refused}");
}

fn pipe(at: &Path) {
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    let _ = fs::remove_file(at);
    mknodat(CWD, at, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[test]
fn a_pipe_where_git_reads_is_named_and_not_waited_for() {
    let places = [
        ("root", ".gitignore"),
        ("root", "deep/er/.gitattributes"),
        ("root", ".gitmodules"),
        ("root", "within/.git/HEAD"),
        ("admin", "info/sparse-checkout"),
        ("admin", "refs/bisect/bad"),
        ("common", "refs/heads/substrat/w/other"),
        ("common", "logs/refs/heads/substrat/w/work"),
        ("common", "objects/ab/cdef0123456789cdef0123456789cdef012345"),
    ];
    for ((top, place), is_link) in places.iter().flat_map(|at| [(at, false), (at, true)]) {
        let trap = Trap::new();
        let at = match *top {
            "root" => trap.world.root.join(place),
            "admin" => trap.admin(place),
            _ => trap.world.repo.join(".git").join(place),
        };
        pipe(&at);
        if is_link {
            let aside = trap.world.folder.path().join("aside");
            fs::rename(&at, &aside).unwrap();
            symlink(&aside, &at).unwrap();
        }
        let refused = trap.work_left().unwrap_err();
        let is_named = matches!(&refused, Error::Special { path, .. } if *path == at);
        assert!(is_named, "{place}: {refused}");
        let removed = trap.world.remove(&trap.worktree, true);
        match *top {
            // A link among logs is removed first.
            "common" if !(is_link && place.starts_with("logs")) => {
                assert!(matches!(removed, Err(Error::Special { .. })), "{place}");
            }
            _ => assert!(removed.is_ok() && !trap.world.root.exists(), "{place}"),
        }
    }
}

#[test]
fn a_link_to_a_folder_where_git_reads_is_named_and_not_followed() {
    let places = [
        ("root", "within/.git"),
        ("admin", "refs/bisect"),
        ("common", "refs/heads/substrat/w/deep"),
        ("common", "logs/refs/heads/substrat/w/deep"),
        ("common", "objects/ab"),
    ];
    for (top, place) in places {
        let trap = Trap::new();
        let at = match top {
            "root" => trap.world.root.join(place),
            "admin" => trap.admin(place),
            _ => trap.world.repo.join(".git").join(place),
        };
        let aside = trap.world.folder.path().join("aside");
        for name in ["HEAD", "cdef0123456789cdef0123456789cdef012345"] {
            pipe(&aside.join(name));
        }
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        let _ = fs::remove_dir_all(&at);
        symlink(&aside, &at).unwrap();
        let refused = trap.work_left().unwrap_err();
        let is_named = matches!(&refused, Error::Special { path, .. } if *path == at);
        assert!(is_named, "{place}: {refused}");
        let removed = trap.world.remove(&trap.worktree, true);
        match top {
            "common" if place.starts_with("logs") => assert!(removed.is_ok() && !at.is_symlink()),
            "common" => assert!(matches!(removed, Err(Error::Special { .. })), "{place}"),
            _ => assert!(removed.is_ok() && !trap.world.root.exists(), "{place}"),
        }
    }
    // Files of a worktree may lie behind one.
    let trap = Trap::new();
    symlink(trap.world.folder.path(), trap.world.root.join("elsewhere")).unwrap();
    assert_eq!(trap.work_left().unwrap().uncommitted, ["elsewhere"]);
}

#[test]
fn no_worktree_is_made_in_a_repository_of_links() {
    for place in ["refs", "objects", "logs", "info", "worktrees"] {
        let world = World::new();
        let at = world.repo.join(".git").join(place);
        let aside = world.folder.path().join("aside");
        let _ = fs::rename(&at, &aside);
        fs::create_dir_all(&aside).unwrap();
        symlink(&aside, &at).unwrap();
        let refused = world.open().add_worktree(&world.root, BRANCH).unwrap_err();
        let is_named = matches!(&refused, Error::Special { path, .. } if *path == at);
        assert!(is_named, "{place}: {refused}");
    }
}

#[test]
fn a_pipe_that_git_does_not_read_stands_against_nothing() {
    let trap = Trap::new();
    pipe(&trap.world.root.join("build/jobs"));
    assert!(trap.work_left().unwrap().is_empty());
    trap.world.remove(&trap.worktree, false).unwrap();
    assert!(!trap.world.root.exists());
}

#[test]
fn no_worktree_is_made_where_git_would_wait() {
    for place in ["worktrees/other/HEAD", "refs/tags/v1", "objects/ab/cdef", "HEAD"] {
        let world = World::new();
        let repository = world.open();
        let at = world.repo.join(".git").join(place);
        pipe(&at);
        let refused = repository.add_worktree(&world.root, BRANCH).unwrap_err();
        let is_named = matches!(&refused, Error::Special { path, .. } if *path == at);
        assert!(is_named, "{place}: {refused}");
        let opened = Repository::open(Arc::new(Direct), &world.repo);
        assert_eq!(matches!(opened, Err(Error::Special { .. })), place == "HEAD");
    }
}

#[test]
fn git_writes_through_no_link() {
    for place in ["logs/refs/heads/substrat/w/other", "refs/heads/substrat/w/other"] {
        let trap = Trap::new();
        let (at, aside) = (trap.world.repo.join(".git").join(place), trap.world.folder.path());
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        symlink(aside.join("anything"), &at).unwrap();
        let root = trap.world.root.with_file_name("second");
        let added = trap.world.open().add_worktree(&root, "substrat/w/other");
        let removed = trap.world.remove(&trap.worktree, true);
        if place.starts_with("logs") {
            assert!(added.is_ok() && removed.is_ok() && !at.is_symlink(), "{added:?} {removed:?}");
        } else {
            let refused = added.unwrap_err();
            let is_named = matches!(&refused, Error::Special { path, .. } if *path == at);
            assert!(is_named && removed.is_err(), "{place}: {refused}");
        }
        assert!(!aside.join("anything").exists(), "{place}");
    }
}

#[test]
fn what_other_programs_keep_beside_a_worktree_stands_against_nothing() {
    let trap = Trap::new();
    for at in [trap.admin("annex"), trap.admin("modules/sub/hooks")] {
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        symlink(trap.world.folder.path(), at).unwrap();
    }
    assert!(trap.work_left().unwrap().is_empty());
    let root = trap.world.root.with_file_name("second");
    trap.world.open().add_worktree(&root, "another").unwrap();
    trap.world.remove(&trap.worktree, false).unwrap();
}
