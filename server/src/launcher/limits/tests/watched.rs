//! Real processes without any cgroup: they are watched, ended and told.
//!
//! Each does a bounded amount of harm if nobody ends it.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::*;

/// Runs a script under a warden until a limit ends it; returns the hits, and what ended it.
async fn watched(
    wardens: &Arc<Wardens>,
    root: &Path,
    script: &str,
    limits: Limits,
) -> (Vec<Hit>, Option<i32>) {
    let mut shell = Shell::run(script, [root]);
    let (_limits, limits) = watch::channel(limits);
    let (hits, mut told) = mpsc::channel(8);
    let ended = CancellationToken::new();
    let warden = wardens.watch(Ward {
        workspace: WORKSPACE,
        root: root.to_owned(),
        top: shell.pid(),
        limits,
        means: Means::of(None, ProcessCount::Nobody),
        group: None,
        kill: shell.killer(),
        full: None,
        is_guest: false,
        hits,
        ended: ended.clone(),
    });
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(warden.run());
    let mut hits: Vec<Hit> = Vec::new();
    while hits.last().is_none_or(|hit| !hit.ends) {
        let Some(hit) = told.recv().await else { break };
        hits.push(hit);
    }
    let signal = shell.signal();
    ended.cancel();
    tasks.join_all().await;
    while let Some(hit) = told.recv().await {
        hits.push(hit);
    }
    (hits, signal)
}

fn kinds(hits: &[Hit]) -> Vec<LimitKind> {
    hits.iter().map(|hit| hit.kind).collect()
}

#[tokio::test]
async fn processes_that_hold_too_much_memory_are_ended() {
    let folder = tempfile::tempdir().unwrap();
    let script = "x=a; while [ ${#x} -lt 134217728 ]; do x=$x$x; done; sleep 1000";
    let limits = Limits { memory: Some(64 << 20), ..Limits::default() };
    let (hits, signal) = watched(&Arc::default(), folder.path(), script, limits).await;
    // On its way it may be seen near to what one process may have.
    assert!(kinds(&hits).iter().all(|kind| *kind == LimitKind::Memory), "{hits:?}");
    let ended_by = explain(signal, &hits, &limits);
    assert!(ended_by.is_some());
    assert_eq!(ended_by.as_ref(), hits.last());
}

#[tokio::test]
async fn too_many_processes_are_ended() {
    let folder = tempfile::tempdir().unwrap();
    // Each in a session of its own; they end when the shell does not hold their input any more.
    let script = "i=0; while [ $i -lt 30 ]; do sleep 1000 & i=$((i+1)); done; wait";
    let limits = Limits { processes: Some(10), ..Limits::default() };
    let (hits, signal) = watched(&Arc::default(), folder.path(), script, limits).await;
    assert_eq!(kinds(&hits), [LimitKind::Processes]);
    assert_eq!(signal, Some(9));
}

#[tokio::test]
async fn a_workspace_that_grows_too_large_loses_its_processes() {
    let folder = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 300 ]; do \
                  head -c 1048576 /dev/zero >> \"$1/file\"; sleep 0.1; i=$((i+1)); done";
    let limits = Limits { disk: Some(2 << 20), ..Limits::default() };
    let (hits, signal) = watched(&Arc::default(), folder.path(), script, limits).await;
    assert_eq!(kinds(&hits), [LimitKind::Disk]);
    assert!(hits[0].detail.ends_with("2 MiB are allowed"), "{hits:?}");
    assert_eq!(signal, Some(9));
}

#[tokio::test]
async fn who_writes_on_a_disk_that_is_nearly_full_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let kind = rustix::fs::statfs(folder.path()).unwrap().f_type;
    if kind == 0x0102_1994 {
        not_run("temporary files are in memory, whose writes are not counted");
        return;
    }
    let wardens = Arc::new(Wardens::with_reserve(|_| u64::MAX));
    let script = "i=0; while [ $i -lt 600 ]; do \
                  head -c 1048576 /dev/zero >> \"$1/file\"; sleep 0.05; i=$((i+1)); done";
    let (hits, signal) = watched(&wardens, folder.path(), script, Limits::default()).await;
    assert_eq!(kinds(&hits), [LimitKind::Disk]);
    assert!(hits[0].detail.contains("are free on the disk"), "{hits:?}");
    assert_eq!(signal, Some(9));
}

#[tokio::test]
async fn a_limit_that_is_set_while_a_launch_runs_binds_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Shell::run("sleep 1000 & sleep 1000 & echo ready; wait", [""; 0]);
    assert_eq!(shell.line(), "ready");
    let (change, limits) = watch::channel(Limits::default());
    let (hits, mut told) = mpsc::channel(8);
    let ended = CancellationToken::new();
    let wardens: Arc<Wardens> = Arc::default();
    let warden = wardens.watch(Ward {
        workspace: WORKSPACE,
        root: folder.path().to_owned(),
        top: shell.pid(),
        limits,
        means: Means::of(None, ProcessCount::User),
        group: None,
        kill: shell.killer(),
        full: None,
        is_guest: false,
        hits,
        ended: ended.clone(),
    });
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(warden.run());
    change.send(Limits { processes: Some(2), ..Limits::default() }).unwrap();
    let hit = told.recv().await.expect("a hit");
    assert_eq!(hit.detail, "3 processes and threads; 2 are allowed");
    assert_eq!(shell.signal(), Some(9));
    ended.cancel();
    tasks.join_all().await;
}

#[tokio::test]
async fn who_begins_waits_for_nobody_who_waits_to_count() {
    let folder = tempfile::tempdir().unwrap();
    let wardens: Arc<Wardens> = Arc::new(Wardens::with_reserve(|_| 0));
    let limits = Limits { disk: Some(1 << 20), ..Limits::default() };
    let (shared, counts) = (wardens.shared(WORKSPACE), tokio::sync::Semaphore::new(1));
    let first = shared.count_after(0, folder.path(), &counts).await;
    tokio::time::pause();
    let next = shared.count_after(first.number, folder.path(), &counts);
    tokio::pin!(next);
    assert!(futures_util::poll!(&mut next).is_pending(), "it waits for its time");
    let begun = tokio::time::Instant::now();
    std::fs::write(folder.path().join("file"), vec![1; 2 << 20]).unwrap();
    wardens.space(WORKSPACE, folder.path(), &limits).await;
    assert!(begun.elapsed() < std::time::Duration::from_millis(500), "{:?}", begun.elapsed());
    assert_eq!(next.await.number, 2);
}
