//! Many clients at once.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

use substrat_proto::v1;
use substrat_tests::harness::{Client, Daemon};
use substrat_tests::judge::judge;
use substrat_tests::probe::eventually;
use substrat_tests::watch::{durable, expected};
use tokio::task::JoinSet;

const AGENTS: usize = 64;
const MESSAGES: usize = 500;
const STREAMS: usize = 20;
const TALKS: &str = r#"fn turn(prompt) { say("<"); list_children(); say(prompt); say(">"); }"#;

/// One wave: messages from many clients at once, while others watch and list.
async fn wave(daemon: &Daemon, ids: &[String]) {
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(daemon.client().await);
    }
    let mut watches = Vec::new();
    for number in 0..STREAMS {
        let client = &clients[number % clients.len()];
        let watch = client.attach(&format!("agent-{number}"), None).await;
        watches.push((number, watch));
    }
    let mut tasks = JoinSet::new();
    for number in 0..MESSAGES {
        let client = clients[number % clients.len()].clone();
        tasks.spawn(async move {
            let agent = format!("agent-{}", number % AGENTS);
            let answer = client.ask(&agent, &number.to_string()).await.expect("an answer");
            // Messages that came while a turn ran are answered together.
            assert!(answer.contains(&number.to_string()), "{answer}");
        });
    }
    for number in 0..50 {
        let client = clients[number % clients.len()].clone();
        tasks.spawn(async move { list(&client).await });
    }
    tasks.join_all().await;
    let events = clients[0].events().await;
    judge(&events);
    for (number, mut watch) in watches {
        let cursor = watch.attached.cursor;
        let mut wanted = expected(&events, &ids[number]);
        wanted.retain(|(sequence, _)| *sequence > cursor);
        let last = wanted.last().expect("it was asked").0;
        assert_eq!(durable(&watch.until_sequence(last).await), wanted);
    }
}

async fn list(client: &Client) {
    let agents = v1::ListAgentsRequest { page_size: 10, ..Default::default() };
    let agents = client.agents.clone().list_agents(agents).await.expect("agents").into_inner();
    assert_eq!(agents.agents.len(), 10);
    let inspected = v1::InspectAgentRequest { agent: "agent-1".into(), recent: 100 };
    client.agents.clone().inspect_agent(inspected).await.expect("an inspection");
    client.status().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clients_at_once_are_all_served_and_leave_nothing_behind() {
    let daemon = Daemon::with(&["slots.scripted=32"]);
    let client = daemon.client().await;
    let mut ids = Vec::new();
    for number in 0..AGENTS {
        ids.push(client.create(&format!("agent-{number}"), TALKS).await.id);
    }
    let idle = daemon.open_sockets();
    // What is kept of the past, for who watches and who asks again, is full after some.
    for _ in 0..8 {
        wave(&daemon, &ids).await;
    }
    eventually("that all sockets are closed", || daemon.more_sockets(&idle) == 0).await;
    let (files, memory) = (daemon.open_files(), daemon.resident_kib());
    for _ in 0..3 {
        wave(&daemon, &ids).await;
        eventually("that all sockets are closed", || daemon.more_sockets(&idle) == 0).await;
    }
    assert!(daemon.open_files() <= files + 2, "{} after {files}", daemon.open_files());
    // Slots, blocking work on files, and the runtime itself.
    assert!(daemon.threads() < 32 + 64 + 32, "{} threads", daemon.threads());
    let grown = daemon.resident_kib().saturating_sub(memory);
    assert!(grown < 48 << 10, "{grown} KiB more");
}
