//! The kernel's own cgroups, where this machine lets the tests make some.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::launcher::limits::machine::Machine;

/// The cgroups of a daemon on a home of its own; none, and said so, where there cannot be any.
fn cgroups(home: &tempfile::TempDir, needed: &[Controller]) -> Option<Cgroups> {
    let cgroups = Cgroups::detect(home.path());
    let there = cgroups
        .controllers()
        .is_some_and(|(_, there)| needed.iter().all(|controller| there.contains(controller)));
    if !there {
        not_run(&format!("no writable cgroup hierarchy for {needed:?} ({cgroups:?})"));
    }
    there.then_some(cgroups)
}

/// Runs a script in a group: its shell enters before anything else, or does nothing.
fn run_in(group: &Group, script: &str) -> Shell {
    let script = format!("for f in \"$@\"; do echo 0 > \"$f\" || exit 99; done; {script}");
    Shell::run(&script, group.entrances())
}

fn limits() -> Limits {
    Limits { processes: Some(64), memory: Some(256 << 20), ..Limits::default() }
}

#[tokio::test]
async fn a_fork_bomb_stays_within_its_limit_and_is_told_and_ended() {
    let home = tempfile::tempdir().unwrap();
    let Some(cgroups) = cgroups(&home, &[Controller::Pids]) else { return };
    let limits = limits();
    let group = Arc::new(cgroups.enter(WORKSPACE, "bomb", &limits).unwrap().expect("a group"));
    let shell = run_in(&group, "bomb() { bomb | bomb & }; bomb; sleep 1000");
    let (_limits, changing) = watch::channel(limits);
    let (hits, mut told) = mpsc::channel(8);
    let ended = CancellationToken::new();
    let wardens: Arc<Wardens> = Arc::default();
    let warden = wardens.watch(Ward {
        workspace: WORKSPACE,
        root: home.path().to_owned(),
        top: shell.pid(),
        limits: changing,
        means: Means::new(&cgroups, ProcessCount::Nobody),
        group: Some(group.clone()),
        kill: Box::new(|| panic!("the kernel bounds it")),
        full: None,
        is_guest: false,
        hits,
        ended: ended.clone(),
    });
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(warden.run());
    let hit = told.recv().await.expect("a hit");
    assert_eq!(hit.kind, LimitKind::Processes);
    assert!(group.members().len() <= 64);
    group.kill().unwrap();
    group.emptied().await.unwrap();
    assert!(group.members().is_empty());
    ended.cancel();
    tasks.join_all().await;
    let mut rest = Vec::new();
    while let Some(hit) = told.recv().await {
        rest.push(hit);
    }
    assert_eq!(rest, [], "each kind is told once");
}

#[tokio::test]
async fn who_eats_memory_is_ended_by_the_kernel_and_it_is_told() {
    let home = tempfile::tempdir().unwrap();
    let Some(cgroups) = cgroups(&home, &[Controller::Memory]) else { return };
    let limits = Limits { memory: Some(32 << 20), ..limits() };
    let group = cgroups.enter(WORKSPACE, "eater", &limits).unwrap().expect("a group");
    let other = cgroups.enter(WORKSPACE, "other", &limits).unwrap().expect("a group");
    let mut shell = run_in(&group, "x=a; while [ ${#x} -lt 536870912 ]; do x=$x$x; done; exit 98");
    let signal = shell.signal();
    let hits = group.hits(&limits);
    assert_eq!(hits.first().map(|hit| hit.kind), Some(LimitKind::Memory));
    assert_eq!(explain(signal, &hits, &limits), hits.first().cloned());
    assert_eq!(other.hits(&limits), [], "only who was hit is told of");
}

/// Processes that left the group of their parent, and their session.
const SCATTERED: &str = "setsid sh -c 'sleep 1000 & echo ready; wait' & wait";

#[tokio::test]
async fn a_group_ends_whatever_session_its_processes_are_in() {
    let home = tempfile::tempdir().unwrap();
    let Some(cgroups) = cgroups(&home, &[]) else { return };
    let group = cgroups.enter(WORKSPACE, "scattered", &limits()).unwrap().expect("a group");
    let mut shell = run_in(&group, SCATTERED);
    assert_eq!(shell.line(), "ready");
    assert_eq!(group.members().len(), 3);
    group.kill().unwrap();
    group.emptied().await.unwrap();
    assert_eq!(shell.signal(), Some(9));
    // Nothing that is left holds the output open.
    assert_eq!(shell.line(), "");
    let folders: Vec<_> = group.entrances().map(|file| file.parent().unwrap().to_owned()).collect();
    drop(group);
    assert!(folders.iter().all(|folder| !folder.exists()), "{folders:?}");
    let workspaces: Vec<_> = folders.iter().map(|folder| folder.parent().unwrap()).collect();
    assert!(workspaces.iter().all(|folder| !folder.exists()), "{workspaces:?}");
}

#[tokio::test]
async fn the_kernel_ends_a_group_of_version_2_at_once() {
    let Some(own) = Machine::this().unified() else {
        not_run("no unified cgroup hierarchy");
        return;
    };
    let base = own.join(format!("substrat-test-{}", std::process::id()));
    if let Err(error) = files::make_new_dir(&base) {
        not_run(&format!("no writable cgroup hierarchy ({error})"));
        return;
    }
    let cgroups = Cgroups::bare(Version::V2, base.clone());
    let group = cgroups.enter(WORKSPACE, "scattered", &limits()).unwrap().expect("a group");
    let mut shell = run_in(&group, SCATTERED);
    assert_eq!(shell.line(), "ready");
    assert_eq!(group.members().len(), 3);
    group.kill().unwrap();
    group.emptied().await.unwrap();
    assert_eq!(shell.signal(), Some(9));
    assert_eq!(shell.line(), "");
    drop((group, cgroups));
    assert!(!base.exists());
}

#[tokio::test]
async fn what_a_daemon_left_is_swept_by_the_next_one() {
    let home = tempfile::tempdir().unwrap();
    let Some(cgroups) = cgroups(&home, &[]) else { return };
    let group = cgroups.enter(WORKSPACE, "left", &limits()).unwrap().expect("a group");
    let mut shell = run_in(&group, SCATTERED);
    assert_eq!(shell.line(), "ready");
    let folders: Vec<_> = group.entrances().map(|file| file.parent().unwrap().to_owned()).collect();
    // As a daemon that was killed: nothing of it is cleaned up.
    std::mem::forget((group, cgroups));

    let elsewhere = tempfile::tempdir().unwrap();
    let stranger = Cgroups::detect(elsewhere.path()).sweep().await.unwrap();
    assert_eq!(stranger, Swept::default(), "another home is another daemon's");
    let next = Cgroups::detect(home.path());
    assert_eq!(next.sweep().await.unwrap(), Swept { ended: 3, left: Vec::new() });
    assert_eq!(shell.signal(), Some(9));
    assert!(folders.iter().all(|folder| !folder.exists()), "{folders:?}");
    assert_eq!(next.sweep().await.unwrap(), Swept::default());
}

#[tokio::test]
async fn limits_change_while_processes_run() {
    let home = tempfile::tempdir().unwrap();
    let Some(cgroups) = cgroups(&home, &[Controller::Pids]) else { return };
    let few = Limits { processes: Some(1), ..Limits::default() };
    let group = cgroups.enter(WORKSPACE, "a", &few).unwrap().expect("a group");
    let script = "until (true) 2>/dev/null; do :; done; echo forked";
    let more = Limits { processes: Some(8), ..Limits::default() };
    // A shell that cannot fork ends; so it is a second one that can.
    let mut first = run_in(&group, script);
    assert_eq!(first.line(), "");
    assert_eq!(group.hits(&few).first().map(|hit| hit.kind), Some(LimitKind::Processes));
    cgroups.update(WORKSPACE, &more).unwrap();
    let mut second = run_in(&group, script);
    assert_eq!(second.line(), "forked");
}

#[tokio::test]
async fn a_failed_launch_leaves_the_others_of_its_workspace_alone() {
    let home = tempfile::tempdir().unwrap();
    let Some(cgroups) = cgroups(&home, &[]) else { return };
    let group = cgroups.enter(WORKSPACE, "a", &limits()).unwrap().expect("a group");
    let mut shell = run_in(&group, "echo ready; sleep 1000");
    assert_eq!(shell.line(), "ready");
    let other = cgroups.enter(WORKSPACE, "b", &limits()).unwrap();
    drop(other);
    cgroups.enter(WORKSPACE, "a", &limits()).expect_err("it is taken");
    assert!(group.members().contains(&shell.pid()));
    assert_eq!(shell.child.try_wait().unwrap(), None);
    group.kill().unwrap();
    group.emptied().await.unwrap();
}
