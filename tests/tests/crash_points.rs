//! The daemon killed at one system call after another, by strace: while it recovers, while it
//! writes a checkpoint, and while it goes on to the next segment.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::path::{Path, PathBuf};

use substrat_proto::v1;
use substrat_tests::harness::{Client, Daemon, text};
use substrat_tests::judge::judge;
use substrat_tests::remember::Worker;
use tokio::sync::watch;

const SMALL: [&str; 2] = ["journal.segment_mib=1", "journal.checkpoint_mib=1"];

/// Starts a daemon that is killed at a system call: the `nth` of these in one of its threads,
/// of those that touch a path if one is given. None if it was killed before it served.
fn start_and_kill(home: &Path, calls: &str, path: Option<&Path>, nth: usize) -> Option<Daemon> {
    let trace = format!("trace={calls}");
    let inject = format!("inject={calls}:signal=KILL:when={nth}");
    let mut strace = vec!["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    if let Some(path) = path {
        strace.extend(["-P", path.to_str().unwrap()]);
    }
    let daemon = Daemon::under(&strace, home, &SMALL);
    match daemon {
        Ok(daemon) => Some(daemon),
        Err(complaint) => {
            assert_eq!(complaint, "", "it was killed, and did not fail");
            None
        }
    }
}

async fn with_desk(home: &Path) -> Daemon {
    let daemon = Daemon::on(home, &SMALL);
    let client = daemon.client().await;
    let desk = v1::CreateWorkspaceRequest { name: "desk".into(), ..Default::default() };
    client.workspaces.clone().create_workspace(desk).await.unwrap();
    daemon
}

/// Works until so much is done or the daemon goes away.
async fn work(daemon: &Daemon, worker: &mut Worker, most: u64) {
    let Ok(client) = Client::try_connect(&daemon.socket()).await else { return };
    let (done, mut count) = watch::channel(0);
    tokio::select! {
        () = worker.work(&client, &done) => {}
        _ = count.wait_for(|count| *count >= most) => {}
    }
}

/// The segment that is not there yet.
fn next_segment(home: &Path) -> PathBuf {
    let names = std::fs::read_dir(home.join("journal")).unwrap();
    let numbers = names.filter_map(|name| name.unwrap().path().file_stem()?.to_str()?.parse().ok());
    home.join(format!("journal/{:08}.wal", 1 + numbers.max().unwrap_or(0_u32)))
}

/// Sequence of the last checkpoint; none when the daemon goes away.
async fn checkpoint(daemon: &Daemon) -> Option<u64> {
    let client = Client::try_connect(&daemon.socket()).await.ok()?;
    let status = client.daemon.clone().get_daemon(v1::GetDaemonRequest {}).await.ok()?;
    Some(status.into_inner().daemon?.journal?.checkpoint_sequence)
}

/// Asserts that what is remembered is there, once, and that everyone answers.
async fn check(home: &Path, worker: &mut Worker) {
    let daemon = Daemon::on(home, &SMALL);
    let client = daemon.client().await;
    for name in worker.memory.agents.keys() {
        assert!(client.ask(name, "are you there?").await.unwrap().contains("are you there?;"));
    }
    assert!(worker.settle(&client).await, "the daemon runs");
    let events = client.events().await;
    judge(&events);
    let count = |event: &str, key: &str, value: &str| {
        events.iter().filter(|e| e.r#type == event && text(e, key) == value).count()
    };
    for request in &worker.memory.requests {
        assert_eq!(count("request.recorded", "request_id", request), 1);
    }
    for message in &worker.memory.sent {
        assert_eq!(count("message.enqueued", "payload", &message.text), 1, "{message:?}");
        assert_eq!(count("message.delivered", "message_id", &message.id), 1, "{message:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_killed_at_any_step_of_its_start_can_be_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let mut daemon = with_desk(&home).await;
    let client = daemon.client().await;
    // A turn in a tool call, one that waits for an answer, and one that is held back.
    let asks = r#"fn turn(p) { spawn_agent("busy", "fn turn(p) { sleep_ms(3600000); }"); send_message("busy", "x") }"#;
    client.create("asks", asks).await;
    client.create("gated", "fn turn(prompt) { prompt }").await;
    let gate = v1::GateAgentRequest { agent: "gated".into(), ..Default::default() };
    client.agents.clone().gate_agent(gate).await.unwrap();
    client.tell("gated", "later").await;
    client.tell("asks", "go").await;
    client.wait_event(1, |event| event.r#type == "turn.waiting").await;
    let mut worker = Worker::new("w", 1);
    work(&daemon, &mut worker, 100).await;
    let before = client.events().await;
    daemon.kill();
    let mut kills = 0;
    for calls in ["pwrite64", "fdatasync,fsync", "rename,renameat,renameat2", "ftruncate", "mkdir"]
    {
        for nth in 1..30 {
            if start_and_kill(&home, calls, None, nth).is_some() {
                break;
            }
            kills += 1;
        }
    }
    assert!(kills >= 5, "only {kills} starts were killed");
    let mut daemon = Daemon::on(&home, &SMALL);
    let client = daemon.client().await;
    let after = client.events().await;
    assert!(after.len() > before.len());
    assert_eq!(after[..before.len()], before);
    judge(&after);
    assert_eq!(client.agent("gated").await.inbox_size, 1);
    daemon.kill();
    check(&home, &mut worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_killed_at_any_step_of_a_checkpoint_or_rotation_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    drop(with_desk(&home).await);
    let mut worker = Worker::new("w", 2).padded(3000);
    let mut kills = 0;
    for place in ["checkpoint.tmp", "checkpoint", "journal", "next segment", "agents"] {
        for nth in 1..8 {
            // Reads and looks are as good as what follows them.
            let calls = "openat,pwrite64,fdatasync,fsync,rename,renameat,renameat2,unlink,unlinkat";
            let path = match place {
                "next segment" => next_segment(&home),
                place => home.join(place),
            };
            let Some(daemon) = start_and_kill(&home, calls, Some(&path), nth) else {
                kills += 1;
                continue;
            };
            let mut daemon = daemon;
            // A whole checkpoint and a whole segment.
            for _ in 0..2 {
                let before = checkpoint(&daemon).await;
                while daemon.is_running() && checkpoint(&daemon).await == before {
                    work(&daemon, &mut worker, 20).await;
                }
            }
            if daemon.is_running() {
                // There are no more steps here: on to the next place.
                break;
            }
            kills += 1;
        }
        check(&home, &mut worker).await;
    }
    println!("{kills} kills");
    assert!(kills >= 6, "only {kills} daemons were killed");
}
