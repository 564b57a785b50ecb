//! How attached streams begin and end: refusals, heartbeats, silence, and a daemon that goes.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use substrat_proto::v1;
use substrat_proto::v1::attach_open::Start;
use substrat_proto::v1::attach_request::Request as Asked;
use substrat_proto::v1::attach_response::Item;
use substrat_tests::harness::{Daemon, binary, reason};
use substrat_tests::probe::eventually;
use substrat_tests::watch::{Watch, durable, event_name, expected, open};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

const ECHO: &str = "fn turn(prompt) { prompt }";
const ENDLESS: &str = r#"fn turn(prompt) { say("at it"); sleep_ms(3600000); }"#;
/// Calls a tool and puts something out for ever.
const RESTLESS: &str = "fn turn(prompt) { loop { say(prompt); list_children(); sleep_ms(1); } }";

/// Reads items until so many heartbeats came, each answered by one.
async fn beat(watch: &mut Watch, count: usize) {
    let mut beats = 0;
    while beats < count {
        let item = watch.any().await.expect("the stream goes on").expect("an item");
        if matches!(item.item, Some(Item::Heartbeat(_))) {
            watch.ask(Asked::Heartbeat(v1::Heartbeat {})).await;
            beats += 1;
        }
    }
}

#[tokio::test]
async fn an_opening_that_cannot_be_served_is_refused_with_a_reason() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    client.create("echo", ECHO).await;
    let last = client.status().await.journal.unwrap().durable_sequence;
    let with = |start| v1::AttachOpen { start: Some(start), ..open("echo", None) };
    for (open, code, why) in [
        (open("nobody", None), Code::NotFound, "AGENT_NOT_FOUND"),
        (with(Start::AfterSequence(last + 1)), Code::InvalidArgument, "FIELD_INVALID"),
        (with(Start::AfterSequence(u64::MAX)), Code::InvalidArgument, "FIELD_INVALID"),
        (with(Start::LastTurns(0)), Code::InvalidArgument, "FIELD_INVALID"),
        (with(Start::LastTurns(1001)), Code::InvalidArgument, "FIELD_INVALID"),
    ] {
        let refused = client.try_attach(open.clone()).await.err().expect("it is refused");
        assert_eq!((refused.code(), reason(&refused).as_str()), (code, why), "{open:?}");
    }
    let last_of_none = with(Start::LastTurns(5));
    assert_eq!(client.try_attach(last_of_none).await.unwrap().attached.cursor, last);
}

#[tokio::test]
async fn a_stream_begins_with_one_open_and_has_no_other() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    client.create("echo", ECHO).await;
    let (requests, queue) = tokio::sync::mpsc::channel(4);
    let beat = v1::AttachRequest { request: Some(Asked::Heartbeat(v1::Heartbeat {})) };
    requests.send(beat).await.unwrap();
    let refused = client.attach.clone().attach(ReceiverStream::new(queue)).await.err().unwrap();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let nothing = tokio_stream::empty::<v1::AttachRequest>();
    let refused = client.attach.clone().attach(nothing).await.err().unwrap();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let mut watch = client.attach("echo", None).await;
    watch.ask(Asked::Open(open("echo", None))).await;
    assert_eq!(watch.any().await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(client.ask("echo", "still there?").await.unwrap(), "still there?");
}

#[tokio::test]
async fn a_client_that_beats_and_reads_nothing_is_not_taken_for_dead() {
    let daemon = Daemon::with(&["attach.silence_seconds=4"]);
    let client = daemon.client().await;
    client.create("echo", ECHO).await;
    let slow = daemon.client().await;
    let mut slow = slow.attach("echo", None).await;
    // More than is sent to who does not read.
    for _ in 0..48 {
        client.ask("echo", &"x".repeat(64 << 10)).await.unwrap();
        slow.ask(Asked::Heartbeat(v1::Heartbeat {})).await;
    }
    let mut pause = tokio::time::interval(Duration::from_millis(100));
    for _ in 0..50 {
        pause.tick().await;
        slow.ask(Asked::Heartbeat(v1::Heartbeat {})).await;
    }
    let last = client.events().await.last().unwrap().sequence;
    slow.until_sequence(last).await;
}

#[tokio::test]
async fn a_client_that_beats_stays_and_one_that_is_silent_is_dropped() {
    let daemon = Daemon::with(&["attach.silence_seconds=3"]);
    let client = daemon.client().await;
    client.create("echo", ECHO).await;
    let mut silent = client.attach("echo", None).await;
    let mut alive = client.attach("echo", None).await;
    beat(&mut alive, 8).await;
    let dropped = loop {
        match silent.any().await {
            Ok(item) => assert!(matches!(item.expect("an item").item, Some(Item::Heartbeat(_)))),
            Err(status) => break status,
        }
    };
    assert_eq!((dropped.code(), reason(&dropped).as_str()), (Code::Aborted, "PEER_SILENT"));
    alive.input("hello", "").await;
    alive.until(|item| event_name(item) == Some("turn.complete")).await;
}

#[tokio::test]
async fn a_client_that_only_listens_is_not_silent() {
    let daemon = Daemon::with(&["attach.silence_seconds=1"]);
    let client = daemon.client().await;
    client.create("echo", ECHO).await;
    let mut watch = client.attach("echo", None).await;
    watch.close_requests();
    let mut beats = 0;
    while beats < 8 {
        let item = watch.any().await.expect("the stream goes on").expect("an item");
        beats += usize::from(matches!(item.item, Some(Item::Heartbeat(_))));
    }
    client.ask("echo", "hello").await.unwrap();
    watch.until(|item| event_name(item) == Some("turn.complete")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_vanish_leave_nothing_behind() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    client.create("restless", RESTLESS).await;
    client.tell("restless", "x").await;
    let before = daemon.open_sockets();
    for _ in 0..5 {
        let mut watches = Vec::new();
        for _ in 0..20 {
            watches.push(daemon.client().await.attach("restless", Some(0)).await);
        }
        for watch in &mut watches {
            watch.until(|item| matches!(item.item, Some(Item::OutputDelta(_)))).await;
        }
        assert!(daemon.more_sockets(&before) >= 20);
    }
    eventually("that all sockets are closed", || daemon.more_sockets(&before) == 0).await;
    let request = v1::CancelTurnRequest { agent: "restless".into(), ..Default::default() };
    client.agents.clone().cancel_turn(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stands_still_is_dropped() {
    let daemon = Daemon::with(&["attach.silence_seconds=1"]);
    let client = daemon.client().await;
    client.create("echo", ECHO).await;
    let before = daemon.open_sockets();
    let mut command = Command::new(binary("substratctl"));
    command.arg("--home").arg(&daemon.home).args(["-o", "json", "agent", "attach", "echo"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    eventually("that it attaches", || daemon.more_sockets(&before) > 0).await;
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    eventually("that it is dropped", || daemon.more_sockets(&before) == 0).await;
    kill_process(pid, Signal::KILL).unwrap();
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_stops_says_so_and_ends_the_stream() {
    let mut daemon = Daemon::with(&["drain_seconds=0"]);
    let client = daemon.client().await;
    client.create("endless", ENDLESS).await;
    let mut watch = client.attach("endless", None).await;
    watch.input("go", "").await;
    watch.until(|item| matches!(item.item, Some(Item::OutputDelta(_)))).await;
    daemon.signal(Signal::TERM);
    let told = watch.until(|item| matches!(item.item, Some(Item::DaemonDraining(_)))).await;
    assert!(durable(&told).is_empty());
    watch.until(|item| event_name(item) == Some("turn.interrupted")).await;
    assert!(daemon.wait());
    // What came after that, and then the end.
    while let Ok(Some(_)) = watch.any().await {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_on_over_a_kill_with_everything_that_happened() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let agent = client.create("endless", ENDLESS).await;
    let mut watch = client.attach("endless", Some(0)).await;
    let started = watch.attached.daemon_start_time;
    watch.input("go", "once").await;
    let mut seen = watch.until(|item| matches!(item.item, Some(Item::OutputDelta(_)))).await;
    daemon.kill();
    while let Ok(Some(item)) = watch.any().await {
        seen.push(item);
    }
    daemon.start_again();
    let client = daemon.client().await;
    let cursor = seen.iter().map(|item| item.sequence).max().unwrap();
    let mut watch = client.attach("endless", Some(cursor)).await;
    assert_ne!(watch.attached.daemon_start_time, started);
    watch.input("go", "once").await;
    seen.extend(watch.until(|item| matches!(item.item, Some(Item::OutputDelta(_)))).await);
    let names: Vec<&str> = seen.iter().filter_map(event_name).collect();
    assert_eq!(names.iter().filter(|name| **name == "turn.start").count(), 2);
    assert_eq!(names.iter().filter(|name| **name == "turn.interrupted").count(), 1);
    assert_eq!(names.iter().filter(|name| **name == "daemon.recovered").count(), 1);
    let last = seen.iter().map(|item| item.sequence).max().unwrap();
    let mut wanted = expected(&client.events().await, &agent.id);
    wanted.retain(|(sequence, _)| *sequence <= last);
    assert_eq!(durable(&seen), wanted);
    let sent = names.iter().filter(|name| **name == "message.enqueued").count();
    assert_eq!(sent, 2, "the input, once, and the word on the recovery");
}
