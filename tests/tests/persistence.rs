//! What a daemon keeps over a clean stop, and how it mends what was done to its files.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use substrat_proto::v1;
use substrat_tests::harness::{Client, Daemon};
use substrat_tests::judge::judge;

const COUNTER: &str = r#"fn turn(prompt) {
    let n = recall("n"); if type_of(n) == "()" { n = 0; }
    n += 1; remember("n", n); n.to_string() }"#;

/// Everything that the API shows of a home, but for its time.
#[derive(Debug, PartialEq)]
struct Seen {
    agents: Vec<v1::Agent>,
    sessions: Vec<v1::Session>,
    workspaces: Vec<v1::Workspace>,
    inboxes: Vec<Vec<v1::Message>>,
    transcripts: Vec<String>,
}

async fn see(client: &Client) -> Seen {
    let request = v1::ListAgentsRequest { show_terminated: true, ..Default::default() };
    let listed = client.agents.clone().list_agents(request).await.unwrap().into_inner().agents;
    let mut seen = Seen {
        agents: Vec::new(),
        sessions: Vec::new(),
        workspaces: Vec::new(),
        inboxes: Vec::new(),
        transcripts: Vec::new(),
    };
    for agent in listed {
        let request = v1::InspectAgentRequest { agent: agent.id.clone(), ..Default::default() };
        let inspected = client.agents.clone().inspect_agent(request).await.unwrap().into_inner();
        seen.agents.extend(inspected.agent);
        seen.inboxes.push(inspected.inbox);
        let request = v1::ReadTranscriptRequest { agent: agent.id.clone(), follow: false };
        let transcript = client.sessions.clone().read_transcript(request).await.unwrap();
        let (mut transcript, mut text) = (transcript.into_inner(), String::new());
        while let Some(piece) = transcript.message().await.unwrap() {
            text += &piece.text;
        }
        seen.transcripts.push(text);
    }
    let sessions = client.sessions.clone().list_sessions(v1::ListSessionsRequest::default()).await;
    seen.sessions = sessions.unwrap().into_inner().sessions;
    let listed = v1::ListWorkspacesRequest::default();
    let listed = client.workspaces.clone().list_workspaces(listed).await.unwrap();
    seen.workspaces = listed.into_inner().workspaces;
    let inbox = client.agents.clone().list_inbox(v1::ListInboxRequest::default()).await.unwrap();
    seen.inboxes.push(inbox.into_inner().messages);
    seen
}

/// A home with something of everything.
async fn fill(client: &Client) {
    let desk = v1::CreateWorkspaceRequest { name: "desk".into(), ..Default::default() };
    client.workspaces.clone().create_workspace(desk).await.unwrap();
    let link = v1::LinkDirectoryRequest {
        workspace: "desk".into(),
        host_path: "/usr".into(),
        mount_path: "linked".into(),
        ..Default::default()
    };
    client.workspaces.clone().link_directory(link).await.unwrap();
    client.create_in("counter", COUNTER, "desk").await;
    let parent = r#"fn turn(p) { spawn_agent("child", "fn turn(p) { write_file(\"f\", p); p }"); send_message("child", p).text }"#;
    client.create_in("lead", parent, "desk").await;
    client.create("gated", COUNTER).await;
    client.create("ended", COUNTER).await;
    for number in 0..3 {
        client.ask("counter", &number.to_string()).await.unwrap();
    }
    client.ask("lead", "hello").await.unwrap();
    client.ask("ended", "hello").await.unwrap();
    let gate = v1::GateAgentRequest { agent: "gated".into(), ..Default::default() };
    client.agents.clone().gate_agent(gate).await.unwrap();
    client.tell("gated", "later").await;
    let end = v1::TerminateAgentRequest { agent: "ended".into(), ..Default::default() };
    client.agents.clone().terminate_agent(end).await.unwrap();
    let sent = client.tell("counter", "to the inbox").await;
    let counter = client.agent("counter").await.id;
    let done = |event: &v1::Event| event.r#type == "turn.complete" && event.agent_id == counter;
    client.wait_event(sent.sequence, done).await;
}

/// The files that a home is projected to, by path.
fn projections(home: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![home.join("agents")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    let own = home.join("events.jsonl");
    found.insert(own.clone(), fs::read(own).unwrap());
    found
}

/// Asserts that files begin as they did.
fn assert_goes_on(before: &BTreeMap<PathBuf, Vec<u8>>, after: &BTreeMap<PathBuf, Vec<u8>>) {
    for (path, bytes) in before {
        let now = after.get(path).unwrap_or_else(|| panic!("{} is gone", path.display()));
        if path.ends_with("session.json") {
            let id = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
            assert_eq!(id(bytes)["id"], id(now)["id"]);
        } else {
            assert!(now.starts_with(bytes), "{} changed", path.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_stop_keeps_everything_and_numbers_go_on() {
    let mut daemon = Daemon::start();
    fill(&daemon.client().await).await;
    assert!(daemon.stop());
    // From here on nothing is live that a stop would suspend.
    daemon.start_again();
    let client = daemon.client().await;
    let (before, events) = (see(&client).await, client.events().await);
    assert!(daemon.stop());
    let files = projections(&daemon.home);
    daemon.start_again();
    let client = daemon.client().await;
    assert_eq!(see(&client).await, before);
    let status = client.status().await;
    let recovery = status.recovery.unwrap();
    assert!(recovery.clean && !recovery.rebuilt && recovery.repaired_projections == 0);
    let after = client.events().await;
    assert_eq!(after[..events.len()], events);
    let new: Vec<&str> = after[events.len()..].iter().map(|event| event.r#type.as_str()).collect();
    assert_eq!(new, ["daemon.stopped", "daemon.started"]);
    judge(&after);
    assert_goes_on(&files, &projections(&daemon.home));
    assert_eq!(client.ask("counter", "x").await.unwrap(), "5");
    let permit = v1::PermitTurnRequest { agent: "gated".into(), ..Default::default() };
    client.agents.clone().permit_turn(permit).await.unwrap();
    let gated = client.agent("gated").await.id;
    let done = |event: &v1::Event| event.r#type == "turn.complete" && event.agent_id == gated;
    client.wait_event(1, done).await;
}

/// A home whose daemon was killed, so that the journal holds all that its projections do.
async fn killed() -> (Daemon, BTreeMap<PathBuf, Vec<u8>>, Vec<v1::Event>) {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    fill(&client).await;
    // The transcripts and the events are written when they can be read.
    see(&client).await;
    let events = client.events().await;
    daemon.kill();
    let files = projections(&daemon.home);
    (daemon, files, events)
}

/// Asserts that a daemon that starts now mends its files, as if nothing had been done to them.
async fn assert_mends(
    mut daemon: Daemon,
    files: &BTreeMap<PathBuf, Vec<u8>>,
    events: &[v1::Event],
) {
    daemon.start_again();
    let client = daemon.client().await;
    let after = client.events().await;
    assert_eq!(after[..events.len()], *events);
    judge(&after);
    assert!(daemon.stop());
    assert_goes_on(files, &projections(&daemon.home));
}

#[tokio::test(flavor = "multi_thread")]
async fn projections_deleted_by_hand_are_made_again_byte_for_byte() {
    let (daemon, files, events) = killed().await;
    for path in files.keys() {
        fs::remove_file(path).unwrap();
    }
    assert_mends(daemon, &files, &events).await;
    let (daemon, files, events) = killed().await;
    fs::remove_dir_all(daemon.home.join("agents")).unwrap();
    assert_mends(daemon, &files, &events).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_cut_is_completed() {
    for cut in [1, 2, 30, 400] {
        let (daemon, files, events) = killed().await;
        for (path, bytes) in files.iter().filter(|(path, _)| !path.ends_with("session.json")) {
            fs::write(path, &bytes[..bytes.len().saturating_sub(cut)]).unwrap();
        }
        assert_mends(daemon, &files, &events).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_holds_more_than_the_journal_is_cut() {
    for more in ["x", "{\"seq\":99999,\"session_id\":null}\n", "\n\n\n", "\0\0\0"] {
        let (daemon, files, events) = killed().await;
        for (path, bytes) in files.iter().filter(|(path, _)| !path.ends_with("session.json")) {
            let mut bytes = bytes.clone();
            bytes.extend(more.as_bytes());
            fs::write(path, bytes).unwrap();
        }
        assert_mends(daemon, &files, &events).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_is_lost_or_damaged_is_made_up_for() {
    for damage in [
        |path: &Path| fs::remove_file(path).unwrap(),
        |path: &Path| fs::write(path, "no checkpoint").unwrap(),
        |path: &Path| {
            let mut bytes = fs::read(path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(path, bytes).unwrap();
        },
    ] {
        let mut daemon = Daemon::with(&["journal.segment_mib=1", "journal.checkpoint_mib=1"]);
        let client = daemon.client().await;
        fill(&client).await;
        // So much that the first segments go.
        client.create("large", "fn turn(prompt) { prompt }").await;
        for _ in 0..30 {
            client.ask("large", &"x".repeat(100_000)).await.unwrap();
        }
        assert!(daemon.stop());
        daemon.start_again();
        let client = daemon.client().await;
        let (before, events) = (see(&client).await, client.events().await);
        assert!(daemon.stop());
        assert!(!daemon.home.join("journal/00000001.wal").exists());
        let files = projections(&daemon.home);
        damage(&daemon.home.join("checkpoint"));
        daemon.start_again();
        let client = daemon.client().await;
        assert!(client.status().await.recovery.unwrap().rebuilt);
        assert_eq!(see(&client).await, before);
        assert_eq!(client.events().await[..events.len()], events);
        assert_eq!(client.ask("counter", "x").await.unwrap(), "5");
        assert!(daemon.stop());
        assert_goes_on(&files, &projections(&daemon.home));
    }
}
