//! Limits that the kernel holds by refusing, seen by what processes have.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::launcher::limits::processes::Process;
use crate::launcher::limits::refusing::Refusing;
use crate::launcher::limits::warden::Told;

const LIMITS: Limits = Limits {
    memory: Some(100 << 20),
    cpu_millis: None,
    processes: Some(8),
    open_files: None,
    file_size: None,
    disk: None,
};

/// A process with threads that has mapped this, of which half is data.
fn process(pid: u32, threads: u64, size: u64) -> Process {
    Process { pid, parent: 1, threads, start: 0, size, resident: 0 }
}

fn half(process: &Process) -> Option<u64> {
    Some(process.size / 2)
}

fn details(refusing: Refusing, tree: &[Process]) -> Vec<String> {
    let hits = refusing.hits(tree, half);
    assert!(hits.iter().all(|hit| !hit.ends), "{hits:?}");
    hits.into_iter().map(|hit| hit.detail).collect()
}

#[test]
fn who_has_all_processes_that_it_may_have_is_told() {
    let refusing = Refusing::of(&LIMITS, &Means::of(None, ProcessCount::Sandbox));
    assert_eq!(details(refusing, &[]), [""; 0]);
    assert_eq!(details(refusing, &[process(1, 2, 0), process(2, 5, 0)]), [""; 0]);
    assert_eq!(
        details(refusing, &[process(1, 2, 0), process(2, 6, 0)]),
        ["8 processes and threads; more than 8 are refused"]
    );
}

#[test]
fn a_process_that_is_near_the_data_that_it_may_have_is_told() {
    let refusing = Refusing::of(&LIMITS, &Means::of(None, ProcessCount::Nobody));
    // Together they have too much, which others look at.
    let small = [process(1, 1, 180 << 20), process(2, 1, 189 << 20)];
    assert_eq!(details(refusing, &small), [""; 0]);
    let large = [process(1, 1, 180 << 20), process(2, 1, 190 << 20), process(3, 1, 200 << 20)];
    assert_eq!(
        details(refusing, &large),
        ["process 2 holds 95 MiB of data; more than 100 MiB are refused to a process"]
    );
    // One that has ended says nothing, nor is one asked that has mapped less.
    assert_eq!(refusing.hits(&large, |_| None), []);
    let asked = |_: &Process| -> Option<u64> { panic!("it is too small") };
    assert_eq!(refusing.hits(&[process(1, 1, 90 << 20)], asked), []);
}

#[test]
fn only_what_the_kernel_refuses_is_looked_at() {
    let controllers = [Controller::Memory, Controller::Pids].into();
    let cgroups = Means::of(Some((Version::V2, controllers)), ProcessCount::Sandbox);
    assert!(Refusing::of(&LIMITS, &cgroups).is_empty());
    assert!(Refusing::of(&Limits::default(), &Means::of(None, ProcessCount::Sandbox)).is_empty());
    let all = [process(1, 8, 400 << 20)];
    let watched = Refusing::of(&LIMITS, &Means::of(None, ProcessCount::Nobody));
    assert_eq!(details(watched, &all).len(), 1, "a watch ends those that are too many");
    let both = Refusing::of(&LIMITS, &Means::of(None, ProcessCount::Sandbox));
    assert_eq!(details(both, &all).len(), 2);
    assert_eq!(details(both.except(|kind| kind == LimitKind::Memory), &all).len(), 1);
    assert!(both.except(|_| true).is_empty());
}

#[test]
fn each_kind_is_told_once_and_once_more_for_an_end() {
    let hit = |kind, ends| Hit { kind, ends, detail: String::new() };
    let mut told = Told::default();
    assert!(told.take(&hit(LimitKind::Memory, false)));
    assert!(!told.take(&hit(LimitKind::Memory, false)));
    assert!(told.take(&hit(LimitKind::Memory, true)));
    assert!(!told.take(&hit(LimitKind::Memory, true)));
    assert!(!told.take(&hit(LimitKind::Memory, false)));
    assert!(told.take(&hit(LimitKind::Processes, true)));
    assert!(!told.take(&hit(LimitKind::Processes, false)));
}

#[tokio::test]
async fn a_launch_that_is_refused_processes_is_told_and_runs_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Shell::run("sleep 1000 & sleep 1000 & echo ready; wait", [""; 0]);
    assert_eq!(shell.line(), "ready");
    let (_limits, limits) = watch::channel(Limits { processes: Some(3), ..Limits::default() });
    let (hits, mut told) = mpsc::channel(8);
    let ended = CancellationToken::new();
    let wardens: Arc<Wardens> = Arc::default();
    let warden = wardens.watch(Ward {
        workspace: WORKSPACE,
        root: folder.path().to_owned(),
        top: shell.pid(),
        limits,
        means: Means::of(None, ProcessCount::Sandbox),
        group: None,
        kill: Box::new(|| panic!("the kernel bounds it")),
        full: None,
        is_guest: false,
        hits,
        ended: ended.clone(),
    });
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(warden.run());
    let hit = told.recv().await.expect("a hit");
    assert_eq!(hit.detail, "3 processes and threads; more than 3 are refused");
    assert!(shell.child.try_wait().unwrap().is_none(), "it still runs");
    ended.cancel();
    tasks.join_all().await;
    assert_eq!(told.recv().await, None);
}
