//! Turns that Codex begins by itself.

use std::os::unix::fs::PermissionsExt;

use substrat_tests::harness::{Daemon, text};

use super::{Bench, CODEX, CODEX_EXEC};

#[tokio::test(flavor = "multi_thread")]
async fn codex_is_offered_no_goals() {
    for agent in [CODEX, CODEX_EXEC] {
        let Some(bench) = Bench::start(agent, &[]) else { return };
        let client = bench.client().await;
        assert_eq!(client.ask("m", "SAY one").await.unwrap(), "one");
        let asked = bench.server.request(|request| request.user.contains("SAY one")).await;
        let named = |name: &str| asked.tools.iter().any(|tool| tool.contains(name));
        assert!(named("send_message") && !named("goal"), "{:?}", asked.tools);
    }
}

/// Speaks as an app-server does, and begins a turn of its own with the end of each that was asked
/// for: what comes while that runs is added to it.
const SERVER: &str = r#"#!/usr/bin/python3
import json, os, sys
count, own = 0, None
def told(method, **params):
    return {"method": method, "params": {"threadId": "t", **params}}
def turn(method, turn, status):
    return told(method, turn={"id": turn, "status": status})
def said(turn, words):
    global count
    count += 1
    total = {"inputTokens": 0, "cachedInputTokens": 0, "outputTokens": 10 * count}
    item = {"type": "agentMessage", "id": "m", "text": words}
    return [told("item/completed", turnId=turn, item=item),
            told("thread/tokenUsage/updated", turnId=turn, tokenUsage={"total": total})]
def say(*messages):
    os.write(1, b"".join(json.dumps(message).encode() + b"\n" for message in messages))
for line in sys.stdin:
    message = json.loads(line)
    number, method = message.get("id"), message.get("method")
    if method == "initialize":
        say({"id": number, "result": {}})
    elif method == "thread/start":
        say({"id": number, "result": {"thread": {"id": "t"}}})
    elif method == "turn/interrupt":
        ended, own = own, None
        say({"id": number, "result": {}}, turn("turn/completed", ended, "interrupted"))
    elif method == "turn/start":
        words = "added to another" if own else "mine"
        asked, own = own or f"asked-{number}", f"own-{number}"
        say({"id": number, "result": {"turn": {"id": asked}}},
            turn("turn/started", asked, "inProgress"), *said(asked, words),
            turn("turn/completed", asked, "completed"),
            turn("turn/started", own, "inProgress"), *said(own, "nobody asked"))
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_nobody_asked_for_is_ended_and_answers_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("codex");
    std::fs::write(&program, SERVER).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let program = format!("providers.own.program={}", program.display());
    let base = "providers.own.base_url=http://127.0.0.1:9/v1";
    let settings = ["providers.own.kind=codex", program.as_str(), base];
    let daemon = Daemon::on(&folder.path().join("home"), &settings);
    daemon.ctl_ok(&["agent", "create", "m", "--provider", "own"]);
    let client = daemon.client().await;
    assert_eq!(client.ask("m", "one").await.unwrap(), "mine");
    assert_eq!(client.ask("m", "two").await.unwrap(), "mine");
    let events = client.events().await;
    let notices = events.iter().filter(|event| event.r#type == "turn.notice");
    let notices: Vec<_> = notices.map(|notice| text(notice, "text")).collect();
    assert_eq!(notices, ["Codex began a turn of its own; it was ended"]);
    let used = client.agent("m").await.usage.unwrap();
    assert_eq!((used.output_tokens, used.turns), (30, 2), "its tokens are booked: {used:?}");
}
