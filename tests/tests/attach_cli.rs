//! `substratctl agent attach`, piped and on a terminal, over kills of the daemon.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::io::{BufRead, BufReader, Write};

use serde_json::Value;
use substrat_proto::v1;
use substrat_tests::harness::{Daemon, text};
use substrat_tests::typing::Attach;

const ECHO: &str = "fn turn(prompt) { `re-${prompt}` }";
const ENDLESS: &str = r#"fn turn(prompt) { say("at it\n"); sleep_ms(3600000); }"#;

/// The items of JSON output, asserted to come in order and once.
fn items(text: &str) -> Vec<Value> {
    let items: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let mut last = 0;
    for item in &items {
        let sequence = item["sequence"].as_str().map_or(0, |seq| seq.parse::<u64>().unwrap());
        assert!(sequence == 0 || sequence > last, "{sequence} after {last}");
        last = last.max(sequence);
    }
    items
}

fn answers(items: &[Value]) -> Vec<&str> {
    items.iter().filter_map(|item| item["turnEnded"]["response"].as_str()).collect()
}

#[test]
fn piped_lines_are_sent_and_all_answers_are_waited_for() {
    let daemon = Daemon::start();
    daemon.ctl_ok(&["agent", "create", "echo", "--instructions", ECHO]);
    let mut attach = Attach::start(&daemon, &["agent", "attach", "echo"]);
    attach.write("one\n");
    attach.wait_for("re-one");
    attach.write("\ntwo\n");
    let (status, text) = attach.end();
    assert!(status.success(), "{text}");
    assert_eq!(text.matches("re-one").count(), 1, "{text}");
    assert_eq!(text.matches("re-two").count(), 1, "{text}");
}

#[test]
fn an_attempt_that_failed_is_told_before_the_next_one() {
    let daemon = Daemon::start();
    let busy = r#"fn turn(prompt) { fail("transient", "busy") }"#;
    daemon.ctl_ok(&["agent", "create", "busy", "--instructions", busy]);
    let mut attach = Attach::on_terminal(&daemon, &["agent", "attach", "busy"]);
    attach.wait_for("busy> ");
    attach.write("go\r");
    attach.wait_for("[transient: busy; trying again]");
    attach.write("/quit\r");
    attach.end();
}

#[test]
fn more_lines_than_any_buffer_holds_do_not_block() {
    let daemon = Daemon::with(&["limits.inbox_messages=100000"]);
    let script = "fn turn(prompt) { for i in 0..50 { say(prompt.len().to_string()); } }";
    daemon.ctl_ok(&["agent", "create", "talker", "--instructions", script]);
    let mut attach = Attach::start(&daemon, &["-o", "json", "agent", "attach", "talker"]);
    let mut stdin = attach.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        for number in 0..5000 {
            writeln!(stdin, "{number:0>200}").expect("it reads");
        }
    });
    let (status, text) = attach.end();
    writer.join().unwrap();
    assert!(status.success());
    let items = items(&text);
    let sent = |item: &&Value| item["messageSeen"]["message"]["sender"] == "USER";
    let texts: Vec<u64> = items
        .iter()
        .filter(sent)
        .map(|item| item["messageSeen"]["message"]["text"].as_str().unwrap().parse().unwrap())
        .collect();
    assert_eq!(texts, (0..5000).collect::<Vec<u64>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_piped_client_goes_on_over_kills_without_losing_or_doubling_a_line() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let agent = client.create("echo", ECHO).await;
    let mut attach = Attach::start(&daemon, &["-o", "json", "agent", "attach", "echo"]);
    attach.wait_for("\n");
    for round in 0..5 {
        for number in 0..10 {
            attach.write(&format!("<{round}.{number}>\n"));
        }
        // Somewhere within the round.
        attach.wait_for(&format!("<{round}.{}>", round * 2));
        daemon.kill();
        attach.write(&format!("<{round}.while down>\n"));
        daemon.start_again();
        attach.wait_for(&format!("re-<{round}.while down>"));
    }
    let (status, text) = attach.end();
    let items = items(&text);
    assert!(status.success(), "{text}");
    let events = daemon.client().await.events().await;
    let mut wanted: Vec<String> = Vec::new();
    for round in 0..5 {
        wanted.extend((0..10).map(|number| format!("<{round}.{number}>")));
        wanted.push(format!("<{round}.while down>"));
    }
    let payload = |event: &v1::Event| text_of_user(event, &agent.id);
    let sent: Vec<String> = events.iter().filter_map(payload).collect();
    assert_eq!(sent, wanted, "each line is sent once, in order");
    let completed = events.iter().filter(|event| event.r#type == "turn.complete").count();
    assert_eq!(answers(&items).len(), completed, "each answer is shown once");
}

fn text_of_user(event: &v1::Event, agent: &str) -> Option<String> {
    let is_sent = event.r#type == "message.enqueued"
        && event.agent_id == agent
        && text(event, "sender_name") == "USER";
    is_sent.then(|| text(event, "payload").to_owned())
}

#[test]
fn a_terminal_goes_on_over_a_kill_and_tells_of_the_lost_turn() {
    let mut daemon = Daemon::start();
    daemon.ctl_ok(&["agent", "create", "endless", "--instructions", ENDLESS]);
    let mut attach = Attach::on_terminal(&daemon, &["agent", "attach", "endless"]);
    attach.wait_for("attached to endless");
    attach.wait_for("endless> ");
    attach.write("go\r");
    attach.wait_for("at it");
    daemon.kill();
    attach.wait_for("daemon lost, reconnecting");
    daemon.start_again();
    attach.wait_for("reconnected to a restarted daemon");
    attach.wait_for("lost its current turn. Your conversation history is saved.");
    attach.wait_for("at it");
    // Ctrl-C cancels the turn that started again, then detaches.
    attach.write("\x03");
    attach.wait_for("cancelling the turn");
    attach.wait_for("[turn cancelled]");
    attach.wait_for("endless> ");
    attach.write("\x03");
    let (_, text) = attach.end();
    assert_eq!(text.matches("lost its current turn").count(), 1, "{text}");
    let listed = daemon.ctl_ok(&["-o", "json", "agent", "list"]);
    assert!(listed.contains("AGENT_STATE_IDLE"), "{listed}");
}

#[test]
fn a_terminal_streams_answers_and_quits() {
    let daemon = Daemon::start();
    let script = r#"fn turn(prompt) { say("first "); say("second\n"); say(prompt); }"#;
    daemon.ctl_ok(&["agent", "create", "talker", "--instructions", script]);
    let mut attach = Attach::on_terminal(&daemon, &["agent", "attach", "talker"]);
    attach.wait_for("talker> ");
    attach.write("third\r");
    attach.wait_for("first second");
    attach.wait_for("third");
    attach.wait_for("talker> ");
    attach.write("/quit\r");
    let (status, text) = attach.end();
    assert!(status.success(), "{text}");
    assert_eq!(text.matches("first second").count(), 1, "{text}");
}

#[test]
fn a_client_that_was_stopped_shows_no_line_twice() {
    let daemon = Daemon::with(&["attach.silence_seconds=6"]);
    let script = r#"fn turn(prompt) { say("begin\n"); while list_files().entries.len() == 0 { sleep_ms(500); } say("end\n"); }"#;
    daemon.ctl_ok(&["workspace", "create", "desk"]);
    let args = ["agent", "create", "talker", "--workspace", "desk", "--instructions", script];
    daemon.ctl_ok(&args);
    let before = daemon.open_sockets();
    let mut attach = Attach::start(&daemon, &["agent", "attach", "talker"]);
    attach.write("go\n");
    attach.wait_for("begin\n");
    let pid = rustix::process::Pid::from_raw(attach.child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let dropped = || daemon.more_sockets(&before) == 0;
    runtime.block_on(substrat_tests::probe::eventually("that it is dropped", dropped));
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    attach.wait_for("reconnected");
    let workspaces = std::fs::read_dir(daemon.home.join("workspaces")).unwrap();
    for workspace in workspaces {
        std::fs::write(workspace.unwrap().path().join("root/go"), "").unwrap();
    }
    attach.wait_for("end\n");
    let (status, text) = attach.end();
    assert!(status.success(), "{text}");
    let lines = BufReader::new(text.as_bytes()).lines().map(Result::unwrap);
    let said: Vec<String> = lines.filter(|line| ["begin", "end"].contains(&&**line)).collect();
    assert_eq!(said, ["begin", "end"], "{text}");
}
