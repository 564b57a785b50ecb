//! The daemon when nothing happens, and when it comes back with 10,000 agents.

use std::path::Path;
use std::time::{Duration, Instant};

use substrat_proto::v1;
use substrat_server::journal::{Error, OsDisk, scan};
use substrat_tests::harness::{Client, Daemon};
use tokio::task::JoinSet;

use crate::figures::{Figures, Target};
use crate::journal::folder;
use crate::rivals::Rival;

const AGENTS: usize = 10_000;
/// Turns of each agent: creation makes 2 events, a turn 4 and the first one 5.
const TURNS: usize = 25;
/// Nearly the journal between two checkpoints (32 MiB).
const LONG_TAIL: u64 = 28 << 20;
const SCRIPT: &str = r#"fn turn(prompt) { prompt }"#;

pub(crate) fn idle(figures: &mut Figures) {
    let home = folder();
    let daemon = Daemon::on(&home.path().join("home"), &[]);
    let rival = Rival::start();
    let both = [daemon.pid, rival.pid()];
    std::thread::sleep(Duration::from_secs(2));
    let before = both.map(wake_ups);
    std::thread::sleep(Duration::from_secs(10));
    let after = both.map(wake_ups);
    let [per_second, rival_per_second] = [0, 1].map(|at| (after[at] - before[at]) as f64 / 10.0);
    let [resident, rival_resident] = both.map(resident_mib);
    figures.add(
        "idle daemon, empty home: resident",
        (resident, "MiB"),
        Some(("MiB bare tonic server", rival_resident)),
        Target::AtMost(15.0),
    );
    figures.add(
        "idle daemon, empty home: wake-ups",
        (per_second, "/s"),
        Some(("/s bare tonic server", rival_per_second)),
        Target::AtMost(1.0),
    );
}

pub(crate) fn recovery(figures: &mut Figures) {
    let home = folder();
    let mut daemon = Daemon::on(&home.path().join("home"), &[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let journal = runtime.block_on(fill(&daemon));
    let events = journal.durable_sequence;
    println!("     (10,000 agents, {events} events; killing the daemon)");
    daemon.kill();
    let raw = parse(&daemon.home, journal.checkpoint_sequence);
    let begun = Instant::now();
    daemon.start_again();
    let took = begun.elapsed().as_secs_f64();
    let status = runtime.block_on(async { daemon.client().await.status().await });
    assert_eq!(status.agent_count as usize, AGENTS);
    let recovery = status.recovery.unwrap();
    figures.add(
        "kill -9 to serving, 10,000 agents",
        (took, "s"),
        Some(("s for reading and parsing the same journal", raw)),
        Target::AtMost(1.0),
    );
    println!("     ({} events replayed)", recovery.replayed_events);
    figures.add(
        "  resident after it",
        (resident_mib(daemon.pid), "MiB"),
        None,
        Target::AtMost(64.0),
    );
}

async fn fill(daemon: &Daemon) -> v1::Journal {
    let client = daemon.client().await;
    let mut tasks = JoinSet::new();
    for part in 0..64 {
        let client = client.clone();
        tasks.spawn(async move {
            for number in (part..AGENTS).step_by(64) {
                client.create(&format!("agent-{number}"), SCRIPT).await;
            }
        });
    }
    tasks.join_all().await;
    turns(&client, TURNS).await;
    // The worst moment to be killed at is right before a checkpoint is written.
    while client.status().await.journal.unwrap().tail_bytes < LONG_TAIL {
        turns(&client, 1).await;
    }
    client.status().await.journal.unwrap()
}

/// A round of turns of all agents, or several.
async fn turns(client: &Client, rounds: usize) {
    let mut tasks = JoinSet::new();
    for part in 0..128 {
        let mut agents = client.agents.clone();
        tasks.spawn(async move {
            for turn in 0..rounds {
                for number in (part..AGENTS).step_by(128) {
                    let request = v1::SendMessageRequest {
                        agent: format!("agent-{number}"),
                        text: format!("turn {turn}"),
                        ..Default::default()
                    };
                    agents.send_message(request).await.unwrap();
                }
            }
        });
    }
    tasks.join_all().await;
}

/// Seconds that it takes to read the journal after a checkpoint and parse its lines.
fn parse(home: &Path, after: u64) -> f64 {
    let begun = Instant::now();
    let disk = OsDisk::new(home);
    let mut lines = 0;
    scan::<Error>(&disk, after, |entry| {
        for line in entry.bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            serde_json::from_slice::<serde_json::Value>(line).unwrap();
            lines += 1;
        }
        Ok(())
    })
    .unwrap();
    assert!(lines > 0);
    begun.elapsed().as_secs_f64()
}

fn resident_mib(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

/// How often any thread was put on a processor after having waited.
fn wake_ups(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks
        .map(|task| {
            let path = task.unwrap().path().join("status");
            let status = std::fs::read_to_string(path).unwrap_or_default();
            let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches:"));
            line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0)
        })
        .sum()
}
