//! What Opal and IntentusNet got wrong.

use std::collections::BTreeSet;
use std::fs;

use substrat_proto::v1;
use substrat_tests::harness::{Daemon, reason, text};
use substrat_tests::judge::judge;

use crate::{COUNTER, ECHO, PATIENT, child, desk, restart, worked};

#[tokio::test]
async fn a_kill_in_a_turn_keeps_prompt_finished_calls_and_queue() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let root = desk(&client).await;
    let agent = client.create_in("a", PATIENT, "desk").await;
    let first = client.tell("a", "one").await;
    let result = worked(&client, first.sequence, &agent).await;
    client.tell("a", "two").await;
    client.tell("a", "three").await;
    let client = restart(&mut daemon, true).await;
    let events = client.events().await;
    let started = events.iter().find(|event| event.r#type == "turn.start").unwrap();
    assert_eq!(text(started, "prompt"), "one");
    assert_eq!(events[result.sequence as usize - 1], result);
    assert_eq!(client.agent("a").await.inbox_size, 4, "and the notice of the crash");
    fs::write(root.join("go"), "").unwrap();
    let done = client.wait_type(1, &agent, "turn.complete").await;
    let answer = text(&done, "response");
    assert!(answer.starts_with("one;two;three;"), "{answer}");
    assert_eq!(client.agent("a").await.inbox_size, 0);
}

#[tokio::test]
async fn an_agent_remembers_after_its_daemon_was_killed() {
    let mut daemon = Daemon::start();
    daemon.client().await.create("a", COUNTER).await;
    for round in 1..=5 {
        let client = daemon.client().await;
        assert_eq!(client.ask("a", "x").await.unwrap(), round.to_string());
        restart(&mut daemon, true).await;
    }
    let transcript = daemon.ctl_ok(&["agent", "transcript", "a"]);
    assert_eq!(transcript.matches("USER → a").count(), 5, "{transcript}");
}

/// Every call that was made has one result, whatever ended its turn.
fn calls_are_closed(events: &[v1::Event]) {
    let ids = |kind: &str| -> Vec<&str> {
        let of_kind = events.iter().filter(|event| event.r#type == kind);
        of_kind.map(|event| text(event, "call_id")).collect()
    };
    let (made, closed) = (ids("tool_call.invoked"), ids("tool_call.result"));
    let as_set = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(as_set(&made), as_set(&closed));
    assert_eq!(made.len(), closed.len());
}

#[tokio::test]
async fn a_call_of_a_cancelled_turn_is_closed() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    desk(&client).await;
    let ask = r#"fn turn(prompt) {
        if prompt != "go" { return "fine"; }
        send_message("kid", "work").text
    }"#;
    client.create_in("a", ask, "desk").await;
    let kid = child(&client, "a", "kid", PATIENT).await;
    let told = client.tell("a", "go").await;
    worked(&client, told.sequence, &kid).await;
    daemon.ctl_ok(&["agent", "cancel", "a"]);
    assert_eq!(client.ask("a", "again").await.unwrap(), "fine");
    daemon.ctl_ok(&["agent", "cancel", "a/kid"]);
    client.wait_type(1, &kid, "turn.cancelled").await;
    let events = client.events().await;
    calls_are_closed(&events);
    let aborted = events.iter().find(|event| text(event, "error") == "[Aborted by user]");
    assert_eq!(text(aborted.expect("the call was closed"), "tool"), "send_message");
}

#[tokio::test]
async fn a_failed_turn_leaves_a_whole_record() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    desk(&client).await;
    let script = r#"fn turn(prompt) { write_file("x", "1"); fail("permanent", "no \"good\"\n") }"#;
    let agent = client.create_in("a", script, "desk").await;
    let refused = client.ask("a", "go").await.unwrap_err();
    assert_eq!(reason(&refused), "TURN_FAILED");
    let client = restart(&mut daemon, false).await;
    let log = daemon.home.join("agents").join(&agent.session_id).join("events.jsonl");
    let lines = fs::read_to_string(log).unwrap();
    assert!(lines.ends_with('\n'));
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let failed = lines.iter().find(|line| line["event"] == "turn.failed").expect("it is on record");
    assert_eq!(failed["data"]["class"], "permanent");
    assert!(failed["data"]["error"].as_str().unwrap().contains("no \"good\"\n"), "{failed}");
    let started = lines.iter().find(|line| line["event"] == "turn.start").unwrap();
    assert_eq!(failed["data"]["turn_id"], started["data"]["turn_id"]);
    calls_are_closed(&client.events().await);
}

#[tokio::test]
async fn a_kill_inside_a_turn_is_on_record_and_not_judged_safe() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let root = desk(&client).await;
    let agent = client.create_in("a", PATIENT, "desk").await;
    let told = client.tell("a", "go").await;
    worked(&client, told.sequence, &agent).await;
    let client = restart(&mut daemon, true).await;
    let events = client.events().await;
    let find = |kind: &str| events.iter().find(|event| event.r#type == kind).expect(kind);
    let (started, cut) = (find("turn.start"), find("turn.interrupted"));
    assert_eq!(text(cut, "turn_id"), text(started, "turn_id"));
    assert_eq!(text(cut, "stage"), "during_agent_execution");
    assert_eq!(text(cut, "recovery"), "check_agent_idempotency");
    calls_are_closed(&events[..cut.sequence as usize]);
    fs::write(root.join("go"), "").unwrap();
    client.wait_type(1, &agent, "turn.complete").await;
}

#[tokio::test]
async fn a_turn_has_one_identity_everywhere() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    desk(&client).await;
    let script = r#"fn turn(prompt) { write_file("x", "1"); "ok" }"#;
    client.create_in("a", script, "desk").await;
    let request =
        v1::SendMessageRequest { agent: "a".into(), text: "x".into(), ..Default::default() };
    let answer = client.agents.clone().send_message(request).await.unwrap().into_inner();
    let turn = answer.turn_id.as_str();
    let hex = turn.strip_prefix("exec-").expect(turn);
    assert!(hex.len() == 16 && hex.bytes().all(|b| b.is_ascii_hexdigit()), "{turn}");
    let events = client.events().await;
    let of_turn = [
        "turn.start",
        "tool_call.invoked",
        "tool_call.result",
        "message.delivered",
        "turn.complete",
    ];
    for kind in of_turn {
        let event = events.iter().find(|event| event.r#type == kind).expect(kind);
        assert_eq!(text(event, "turn_id"), turn, "{kind}");
    }
    assert_eq!(events[answer.sequence as usize - 1].r#type, "turn.complete");
}

#[tokio::test]
async fn a_journal_that_is_opened_again_goes_on_without_a_seam() {
    let mut daemon = Daemon::with(&["journal.segment_mib=1", "journal.checkpoint_mib=1"]);
    let client = daemon.client().await;
    client.create("a", ECHO).await;
    let long = "x".repeat(100_000);
    let mut seen = Vec::new();
    for kill in [true, false, true, true, false] {
        let client = daemon.client().await;
        for _ in 0..4 {
            client.ask("a", &long).await.unwrap();
        }
        let events = client.events().await;
        assert_eq!(events[..seen.len()], seen[..], "what was there stays as it was");
        judge(&events);
        seen = events;
        restart(&mut daemon, kill).await;
    }
    let client = daemon.client().await;
    assert!(client.status().await.journal.unwrap().checkpoint_sequence > 0);
    judge(&client.events().await);
}
