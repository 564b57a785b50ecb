//! Cancelling at any moment, and the conversation that a turn is given.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use substrat_proto::v1;
use substrat_tests::harness::{Client, Daemon, text};

/// Does one thing after the other that takes a while, as its prompt says.
const WORKER: &str = r#"fn turn(prompt) {
    let all = messages();
    let text = all[all.len() - 1].text;
    if text == "history" { return history(); }
    if text == "files" { loop { write_file("f", text); read_file("f"); list_files(""); } }
    if text == "sleep" { sleep_ms(3600000); }
    if text == "spin" { loop { } }
    if text == "retry" { write_file("f", text); fail("transient", "busy"); }
    if text == "fail" { write_file("f", text); fail("permanent", "broken"); }
    if text == "ask" {
        spawn_agent("kid", "fn turn(p) { sleep_ms(3600000); }");
        send_message("kid", "?");
    }
    if text == "ask again" { send_message("kid", "?"); }
    "did " + text
}"#;

const ABORTED: &str = "[Aborted by user]";

async fn worker(client: &Client) -> v1::Agent {
    let request = v1::CreateWorkspaceRequest { name: "desk".into(), ..Default::default() };
    client.workspaces.clone().create_workspace(request).await.expect("it is created");
    client.create_in("a", WORKER, "desk").await
}

async fn cancel(client: &Client) -> Result<(), tonic::Status> {
    let request = v1::CancelTurnRequest { agent: "a".into(), ..Default::default() };
    client.agents.clone().cancel_turn(request).await.map(drop)
}

/// The results of each call, in the turn that made it; a turn that ended has one for each.
async fn judge(client: &Client) -> Vec<String> {
    let mut open: BTreeMap<(String, String), u32> = BTreeMap::new();
    let mut errors = Vec::new();
    for event in client.events().await {
        let turn = text(&event, "turn_id").to_owned();
        let call = (turn.clone(), text(&event, "call_id").to_owned());
        match event.r#type.as_str() {
            "tool_call.invoked" => assert_eq!(open.insert(call, 0), None, "{event:?}"),
            "tool_call.result" => {
                let results = open.get_mut(&call).expect("a call of this turn");
                *results += 1;
                errors.push(text(&event, "error").to_owned());
            }
            "turn.complete" | "turn.failed" | "turn.cancelled" | "turn.interrupted" => {
                let own = open.iter().filter(|((of, _), _)| *of == turn);
                for (call, results) in own {
                    assert_eq!(*results, 1, "{call:?} at {event:?}");
                }
                open.retain(|(of, _), _| *of != turn);
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "no turn runs any more: {open:?}");
    errors
}

/// The conversation, as the agent's next turn sees it.
async fn history(client: &Client) -> Vec<Value> {
    let answer = client.ask("a", "history").await.expect("an answer");
    serde_json::from_str(&answer).expect("an array")
}

/// Whether each call has its result, and the roles take turns.
fn assert_valid(history: &[Value]) {
    let mut calls: Vec<&Value> = Vec::new();
    let mut before = "assistant";
    for item in history {
        let role = item["role"].as_str().expect("a role");
        match (role, item.get("call")) {
            ("user", _) => assert_eq!(before, "assistant", "{history:#?}"),
            ("assistant", Some(call)) => calls.push(call),
            ("tool", Some(call)) => assert_eq!(calls.remove(0), call, "{history:#?}"),
            _ => assert!(!item["text"].as_str().expect("a text").is_empty()),
        }
        before = role;
    }
    assert!(calls.is_empty() && before == "assistant", "{history:#?}");
}

#[tokio::test]
async fn a_turn_can_be_cancelled_at_each_of_its_moments() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let agent = worker(&client).await;
    let moments = [
        ("sleep", "turn.start"),
        ("spin", "turn.start"),
        ("files", "tool_call.invoked"),
        ("files", "tool_call.result"),
        ("retry", "turn.retry"),
        ("ask", "turn.waiting"),
    ];
    for (number, (what, moment)) in moments.into_iter().enumerate() {
        let from = client.sequence().await + 1;
        client.tell("a", what).await;
        client.wait_type(from, &agent, moment).await;
        cancel(&client).await.expect("a turn runs");
        // Again, at once: it is the same turn, or it has ended.
        let again = cancel(&client).await;
        assert!(again.is_ok() || again.unwrap_err().code() == tonic::Code::FailedPrecondition);
        client.wait_type(from, &agent, "turn.cancelled").await;
        assert_eq!(client.agent("a").await.inbox_size, 0, "turn {number}");
    }
    cancel_kid(&client).await;
    let errors = judge(&client).await;
    assert!(errors.iter().any(|error| error == ABORTED), "{errors:?}");
    let told = history(&client).await;
    assert_valid(&told);
    let text = "[USER cancelled the turn.]";
    let cancelled = told.iter().filter(|item| item["text"] == text).count();
    assert_eq!(cancelled, moments.len(), "{told:#?}");
}

async fn cancel_kid(client: &Client) {
    let from = client.sequence().await + 1;
    let request = v1::TerminateAgentRequest { agent: "a/kid".into(), ..Default::default() };
    client.agents.clone().terminate_agent(request).await.expect("it is there");
    // Its parent is told, and has a turn.
    let done = |event: &v1::Event| event.r#type == "turn.complete";
    client.wait_event(from, done).await;
}

#[tokio::test]
async fn cancelling_and_killing_at_any_moment_leaves_a_valid_history() {
    let given = std::env::var("SUBSTRAT_TEST_SEED").ok();
    let seed = given.map_or_else(rand::random, |seed| seed.parse().expect("a number"));
    println!("SUBSTRAT_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut daemon = Daemon::with(&["resume=none"]);
    let agent = worker(&daemon.client().await).await;
    for _ in 0..12 {
        let client = daemon.client().await;
        let from = client.sequence().await + 1;
        client.tell("a", "files").await;
        // Some way into the turn.
        let calls = random.random_range(0..40);
        let mut seen = client.wait_type(from, &agent, "turn.start").await.sequence;
        for _ in 0..calls {
            seen = client.wait_type(seen + 1, &agent, "tool_call.result").await.sequence;
        }
        let cancelled = cancel(&client).await;
        if random.random() {
            daemon.kill();
            daemon.start_again();
        }
        let client = daemon.client().await;
        cancelled.expect("a turn runs");
        client.wait_type(from, &agent, "turn.cancelled").await;
        let now = client.agent("a").await;
        assert_eq!((now.state(), now.inbox_size), (v1::AgentState::Idle, 0));
    }
    let client = daemon.client().await;
    judge(&client).await;
    assert_valid(&history(&client).await);
}

#[tokio::test]
async fn the_conversation_is_the_same_after_suspend_restart_and_kill() {
    let mut daemon = Daemon::with(&["resume=none"]);
    let client = daemon.client().await;
    let agent = worker(&client).await;
    assert_eq!(client.ask("a", "one").await.unwrap(), "did one");
    client.ask("a", "fail").await.expect_err("it fails");
    let first = history(&client).await;
    assert_valid(&first);
    // The failed turn gave its message back, so that it was in the prompt of this one.
    let texts: Vec<&str> = first.iter().filter_map(|item| item["text"].as_str()).collect();
    assert_eq!(
        texts,
        [
            "one",
            "did one",
            "[What this turn was asked comes again in a later one.]",
            "[The turn failed (permanent): broken]",
        ]
    );
    let call = first.iter().find(|item| item["role"] == "tool").expect("what its tool did");
    assert_eq!((&call["tool"], &call["result"]), (&json!("write_file"), &json!({ "bytes": 4 })));

    // Each look is a turn of its own, so what was there before is where it starts.
    let session = agent.session_id.clone();
    let mut before = history(&client).await;
    assert!(before.starts_with(&first));
    let from = client.sequence().await + 1;
    let request = v1::SuspendSessionRequest { session, ..Default::default() };
    client.sessions.clone().suspend_session(request).await.expect("it is idle");
    client.wait_type(from, &agent, "suspend.result").await;
    for step in ["suspended", "stopped", "killed"] {
        match step {
            "stopped" => assert!(daemon.stop()),
            "killed" => daemon.kill(),
            _ => {}
        }
        if step != "suspended" {
            daemon.start_again();
        }
        let now = history(&daemon.client().await).await;
        assert!(now.starts_with(&before), "{step}: {now:#?} does not go on from {before:#?}");
        assert_eq!(now.len(), before.len() + 2, "{step}");
        assert_valid(&now);
        before = now;
    }
}

#[tokio::test]
async fn what_an_interrupted_turn_did_is_known_to_the_next() {
    let mut daemon = Daemon::with(&["resume=none"]);
    let client = daemon.client().await;
    let script = r#"fn turn(prompt) {
        if list_files("").entries.is_empty() { write_file("f", "x"); sleep_ms(3600000); }
        history()
    }"#;
    let request = v1::CreateWorkspaceRequest { name: "desk".into(), ..Default::default() };
    client.workspaces.clone().create_workspace(request).await.expect("it is created");
    let agent = client.create_in("a", script, "desk").await;
    let from = client.sequence().await + 1;
    client.tell("a", "go").await;
    let listed = client.wait_type(from, &agent, "tool_call.result").await.sequence;
    client.wait_type(listed + 1, &agent, "tool_call.result").await;
    daemon.kill();
    daemon.start_again();
    let client = daemon.client().await;
    let done = client.wait_type(from, &agent, "turn.complete").await;
    let told: Vec<Value> = serde_json::from_str(text(&done, "response")).expect("an array");
    assert_valid(&told);
    let roles: Vec<&str> = told.iter().filter_map(|item| item["role"].as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant", "tool", "assistant"]);
    assert!(told[5]["text"].as_str().unwrap().starts_with("[The daemon stopped"), "{told:#?}");
}

#[tokio::test]
async fn a_long_conversation_is_cut_at_whole_turns() {
    let daemon = Daemon::with(&["limits.history_bytes=2000"]);
    let client = daemon.client().await;
    let script = r#"fn turn(prompt) {
        if prompt == "look" { return #{ cut: history_cut(), seen: history() }; }
        "done"
    }"#;
    client.create("a", script).await;
    for _ in 0..5 {
        client.ask("a", &"x".repeat(600)).await.expect("an answer");
    }
    let answer = client.ask("a", "look").await.expect("an answer");
    let answer: Value = serde_json::from_str(&answer).expect("a map");
    let seen = answer["seen"].as_array().expect("an array");
    assert_valid(seen);
    assert_eq!((&answer["cut"], seen.len()), (&json!(3), 4), "{answer:#}");
}
