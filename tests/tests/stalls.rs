//! Silence of backends: it is told, shown, and ends an attempt.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

use substrat_proto::v1::attach_response::Item;
use substrat_tests::harness::{Client, Daemon, reason, text};
use substrat_tests::model_server::ModelServer;
use substrat_tests::watch::event_name;

async fn bench(more: &[&str]) -> (ModelServer, Daemon, Client) {
    let server = ModelServer::start();
    let settings = [
        "providers.fake.kind=anthropic".to_owned(),
        format!("providers.fake.base_url={}", server.url()),
        "providers.fake.model=fake-1".to_owned(),
        "providers.fake.key_env=HOME".to_owned(),
    ];
    let settings: Vec<&str> =
        settings.iter().map(String::as_str).chain(more.iter().copied()).collect();
    let daemon = Daemon::with(&settings);
    daemon.ctl_ok(&["agent", "create", "m", "--provider", "fake"]);
    let client = daemon.client().await;
    (server, daemon, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_is_silent_for_too_long_is_tried_again() {
    let settings = ["providers.fake.stall_seconds=1", "providers.fake.attempts=2"];
    let (server, _daemon, client) = bench(&settings).await;
    let answer = client.ask("m", "SAY so\nSTALL once\nSAY I am back").await.unwrap();
    assert!(answer.ends_with("I am back"), "{answer}");
    let events = client.events().await;
    let retry = events.iter().find(|event| event.r#type == "turn.retry").expect("a second attempt");
    assert_eq!(text(retry, "class"), "stalled");
    assert_eq!(text(retry, "error"), "nothing was heard of it for 1 s");
    assert_eq!(server.requests().len(), 2);
    let failed = client.ask("m", "HANG").await.unwrap_err();
    assert_eq!(reason(&failed), "TURN_FAILED");
    assert!(failed.message().contains("stalled"), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_is_told_and_shown_until_something_is_heard() {
    let (server, daemon, client) = bench(&[]).await;
    let mut watch = client.attach("m", None).await;
    watch.input("HOLD on\nSAY here I am", "1").await;
    let items = watch.until(|item| event_name(item) == Some("turn.stalled")).await;
    let Some(Item::ProcessNotice(notice)) = &items.last().unwrap().item else { unreachable!() };
    assert_eq!(notice.text, "nothing was heard for 10 s");
    let shown = daemon.ctl_ok(&["agent", "inspect", "m"]);
    assert!(shown.contains("\nsilent     for "), "{shown}");
    server.release("on");
    watch.until(|item| event_name(item) == Some("turn.complete")).await;
    let shown = daemon.ctl_ok(&["agent", "inspect", "m"]);
    assert!(!shown.contains("\nsilent "), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_may_be_silent_which_is_told_and_ends_it_where_that_is_asked_for() {
    let settings = [
        "providers.patient.kind=program",
        "providers.strict.kind=program",
        "providers.strict.stall_seconds=1",
        "providers.strict.attempts=1",
    ];
    let daemon = Daemon::with(&settings);
    let client = daemon.client().await;
    daemon.ctl_ok(&["workspace", "create", "desk"]);
    let program = r#"import json, os, sys, time
for line in sys.stdin:
    while not os.path.exists("go"):
        time.sleep(0.02)
    print(json.dumps({"type": "done", "response": "here I am"}), flush=True)
"#;
    let desk = daemon.home.join("workspaces");
    let root = std::fs::read_dir(desk).unwrap().next().unwrap().unwrap().path().join("root");
    std::fs::write(root.join("waits.py"), program).unwrap();
    for provider in ["patient", "strict"] {
        let create = ["agent", "create", provider, "--provider", provider, "--workspace", "desk"];
        daemon.ctl_ok(&[&create[..], &["--model", "python3 waits.py"]].concat());
    }
    let failed = client.ask("strict", "go on").await.unwrap_err();
    assert!(failed.message().contains("nothing was heard of it for 1 s"), "{failed:?}");
    let from = client.sequence().await;
    daemon.ctl_ok(&["agent", "send", "patient", "go on", "--no-wait"]);
    client.wait_event(from, |event| event.r#type == "turn.stalled").await;
    std::fs::write(root.join("go"), "").unwrap();
    let done = client.wait_event(from, |event| event.r#type == "turn.complete").await;
    assert_eq!(text(&done, "response"), "here I am");
}
