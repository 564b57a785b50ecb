//! Groups in made-up trees: which files are written, with what.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::launcher::limits::machine::{Machine, Manager};

/// A number that no process has.
const NOBODY: u32 = 4_000_000_000;

const HOME: &str = "/home/somebody/.substrat";

const LIMITS: Limits = Limits {
    memory: Some(1 << 30),
    cpu_millis: Some(1500),
    processes: Some(64),
    open_files: None,
    file_size: None,
    disk: None,
};

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path.as_ref()).unwrap_or_else(|error| panic!("{:?}: {error}", path.as_ref()))
}

/// The only folder in a folder that the daemon made for itself.
fn base(own: &Path) -> PathBuf {
    let folders = files::folders(own);
    let name =
        |path: &&PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("substrat-");
    folders.iter().find(name).expect("the daemon's group").clone()
}

fn unified(folder: &Path, manager: Manager) -> (Machine, PathBuf) {
    let own = folder.join("unified/user.slice/substratd.service");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("cgroup.controllers"), "cpuset cpu io memory pids\n").unwrap();
    fs::write(own.join("cgroup.type"), "domain\n").unwrap();
    fs::write(own.join("cgroup.procs"), "4000000000\n").unwrap();
    let point = folder.join("unified");
    let machine = Machine {
        mountinfo: format!("30 25 0:26 / {} rw,nosuid - cgroup2 cgroup2 rw\n", point.display())
            .into_bytes(),
        membership: b"0::/user.slice/substratd.service\n".to_vec(),
        manager,
    };
    (machine, own)
}

fn separate(folder: &Path) -> Machine {
    let mut mountinfo = String::new();
    for options in ["memory", "pids", "cpu,cpuacct"] {
        let point = folder.join(options.split(',').next().unwrap());
        fs::create_dir_all(point.join("here")).unwrap();
        let line =
            format!("31 25 0:27 / {} rw shared:9 - cgroup cgroup rw,{options}\n", point.display());
        mountinfo.push_str(&line);
    }
    let membership = "4:memory:/here\n3:pids:/here\n2:cpu,cpuacct:/here\n1:name=systemd:/\n0::/\n";
    Machine {
        mountinfo: mountinfo.into_bytes(),
        membership: membership.into(),
        manager: Manager::Systemd,
    }
}

#[test]
fn version_2_bounds_a_workspace_and_hands_the_controllers_down() {
    let folder = tempfile::tempdir().unwrap();
    let (machine, own) = unified(folder.path(), Manager::Nobody);
    let cgroups = Cgroups::on(&machine, Path::new(HOME));
    let all = Controller::ALL.into();
    assert_eq!(cgroups.controllers(), Some((Version::V2, all)));
    // The daemon stands in a leaf, so that its group may hand controllers down.
    assert_eq!(read(own.join("substratd/cgroup.procs")), "0");
    let down = "+memory +pids +cpu";
    assert_eq!(read(own.join("cgroup.subtree_control")), down);
    let base = base(&own);
    assert_eq!(read(base.join("cgroup.subtree_control")), down);

    let group = cgroups.enter(WORKSPACE, "launch-1", &LIMITS).unwrap().expect("a group");
    let workspace = base.join(WORKSPACE.to_string());
    assert_eq!(read(workspace.join("memory.max")), (1 << 30).to_string());
    assert_eq!(read(workspace.join("memory.swap.max")), "0");
    assert_eq!(read(workspace.join("pids.max")), "64");
    assert_eq!(read(workspace.join("cpu.max")), "150000 100000");
    assert_eq!(read(workspace.join("cgroup.subtree_control")), down);
    group.add(NOBODY).unwrap();
    assert_eq!(read(workspace.join("launch-1/cgroup.procs")), NOBODY.to_string());

    cgroups.update(WORKSPACE, &Limits::default()).unwrap();
    assert_eq!(read(workspace.join("memory.max")), "max");
    assert_eq!(read(workspace.join("memory.swap.max")), "max");
    assert_eq!(read(workspace.join("pids.max")), "max");
    assert_eq!(read(workspace.join("cpu.max")), "max 100000");
}

#[test]
fn version_2_counts_hits_since_the_launch_only() {
    let folder = tempfile::tempdir().unwrap();
    let (machine, own) = unified(folder.path(), Manager::Nobody);
    let cgroups = Cgroups::on(&machine, Path::new(HOME));
    let first = cgroups.enter(WORKSPACE, "a", &LIMITS).unwrap().expect("a group");
    let workspace = base(&own).join(WORKSPACE.to_string());
    fs::write(workspace.join("pids.events"), "max 3\n").unwrap();
    let second = cgroups.enter(WORKSPACE, "b", &LIMITS).unwrap().expect("a group");
    assert_eq!(second.hits(&LIMITS), []);
    let kinds = |group: &Group| -> Vec<LimitKind> {
        group.hits(&LIMITS).iter().map(|hit| hit.kind).collect()
    };
    assert_eq!(kinds(&first), [LimitKind::Processes]);
    fs::write(workspace.join("b/memory.events"), "low 0\noom 2\noom_kill 1\n").unwrap();
    assert_eq!(kinds(&second), [LimitKind::Memory]);
    assert_eq!(kinds(&first), [LimitKind::Processes], "each launch has its own");
    // Told to end, it can start nothing: that is no hit.
    second.kill().unwrap();
    fs::write(workspace.join("pids.events"), "max 4\n").unwrap();
    assert_eq!(kinds(&second), [LimitKind::Memory]);
}

#[test]
fn a_group_that_is_not_delegated_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (machine, own) = unified(folder.path(), Manager::Systemd);
    let cgroups = Cgroups::on(&machine, Path::new(HOME));
    if rustix::process::geteuid().is_root() {
        let Cgroups::Absent(why) = cgroups else { panic!("{cgroups:?}") };
        assert!(why.contains("not delegated"), "{why}");
        assert!(!own.join("substratd").exists());
    } else {
        // Its folder is the user's, as systemd makes it with Delegate=yes.
        assert!(cgroups.controllers().is_some());
    }
}

#[test]
fn the_root_of_all_groups_may_hold_the_daemon_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (machine, own) = unified(folder.path(), Manager::Nobody);
    fs::remove_file(own.join("cgroup.type")).unwrap();
    assert!(Cgroups::on(&machine, Path::new(HOME)).controllers().is_some());
    assert!(!own.join("substratd").exists());
}

#[test]
fn a_unified_hierarchy_without_controllers_leaves_it_to_version_1() {
    let folder = tempfile::tempdir().unwrap();
    let (unified, own) = unified(folder.path(), Manager::Nobody);
    fs::write(own.join("cgroup.controllers"), "\n").unwrap();
    let mut machine = separate(folder.path());
    machine.mountinfo.extend(&unified.mountinfo);
    machine.membership =
        [b"4:memory:/here\n3:pids:/here\n".as_slice(), &unified.membership].concat();
    let cgroups = Cgroups::on(&machine, Path::new(HOME));
    let two = [Controller::Memory, Controller::Pids].into();
    assert_eq!(cgroups.controllers(), Some((Version::V1, two)));
}

#[test]
fn version_1_bounds_a_workspace_in_each_hierarchy() {
    let folder = tempfile::tempdir().unwrap();
    let machine = separate(folder.path());
    let cgroups = Cgroups::on(&machine, Path::new(HOME));
    assert_eq!(cgroups.controllers(), Some((Version::V1, Controller::ALL.into())));
    let group = cgroups.enter(WORKSPACE, "launch-1", &LIMITS).unwrap().expect("a group");
    let workspace = |hierarchy: &str| {
        base(&folder.path().join(hierarchy).join("here")).join(WORKSPACE.to_string())
    };
    let memory = (1 << 30).to_string();
    assert_eq!(read(workspace("memory").join("memory.limit_in_bytes")), memory);
    assert_eq!(read(workspace("memory").join("memory.memsw.limit_in_bytes")), memory);
    assert_eq!(read(workspace("pids").join("pids.max")), "64");
    assert_eq!(read(workspace("cpu").join("cpu.cfs_period_us")), "100000");
    assert_eq!(read(workspace("cpu").join("cpu.cfs_quota_us")), "150000");
    assert_eq!(group.entrances().count(), 3);
    group.add(NOBODY).unwrap();
    for hierarchy in ["memory", "pids", "cpu"] {
        let procs = workspace(hierarchy).join("launch-1/cgroup.procs");
        assert_eq!(read(procs), NOBODY.to_string());
    }
    fs::write(workspace("memory").join("launch-1/memory.oom_control"), "oom_kill 1\n").unwrap();
    fs::write(workspace("pids").join("launch-1/pids.events"), "max 2\n").unwrap();
    let kinds: Vec<LimitKind> = group.hits(&LIMITS).iter().map(|hit| hit.kind).collect();
    assert_eq!(kinds, [LimitKind::Memory, LimitKind::Processes]);

    cgroups.update(WORKSPACE, &Limits::default()).unwrap();
    assert_eq!(read(workspace("memory").join("memory.limit_in_bytes")), "-1");
    assert_eq!(read(workspace("cpu").join("cpu.cfs_quota_us")), "-1");
    assert_eq!(read(workspace("pids").join("pids.max")), "max");
}

#[test]
fn a_hierarchy_that_cannot_be_used_does_not_cost_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let machine = separate(folder.path());
    fs::remove_dir(folder.path().join("cpu/here")).unwrap();
    let cgroups = Cgroups::on(&machine, Path::new(HOME));
    let two = [Controller::Memory, Controller::Pids].into();
    assert_eq!(cgroups.controllers(), Some((Version::V1, two)));
}

#[test]
fn a_launch_has_a_plain_name_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let cgroups = Cgroups::on(&separate(folder.path()), Path::new(HOME));
    for name in ["", "..", "a/b", "a b", "ä"] {
        let error = cgroups.enter(WORKSPACE, name, &LIMITS).expect_err(name);
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
    let first = cgroups.enter(WORKSPACE, "once", &LIMITS).unwrap();
    let again = cgroups.enter(WORKSPACE, "once", &LIMITS).expect_err("it is taken");
    assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
    // The refusal did not take the first one's groups away.
    assert!(first.expect("a group").entrances().all(|file| file.parent().unwrap().is_dir()));
}

#[test]
fn without_groups_the_reason_is_kept() {
    let machine =
        Machine { mountinfo: Vec::new(), membership: Vec::new(), manager: Manager::Nobody };
    let Cgroups::Absent(why) = Cgroups::on(&machine, Path::new(HOME)) else { panic!("groups") };
    assert_eq!(why, "no unified hierarchy is mounted");
}
