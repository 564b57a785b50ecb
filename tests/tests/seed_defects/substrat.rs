//! What the Python Substrat got wrong.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use substrat_proto::v1;
use substrat_tests::harness::{Daemon, binary, forget_environment, reason, text};
use substrat_tests::judge::judge;
use tokio::task::JoinSet;

use crate::{COUNTER, ECHO, PATIENT, child, desk, inbox, restart, worked};

#[tokio::test]
async fn a_restart_leaves_every_session_usable() {
    let mut daemon = Daemon::with(&["slots.scripted=2"]);
    let client = daemon.client().await;
    for name in ["created", "suspended", "active", "last"] {
        client.create(name, COUNTER).await;
    }
    for name in ["suspended", "active", "last"] {
        assert_eq!(client.ask(name, "x").await.unwrap(), "1");
    }
    for (round, kill) in [false, true, true, false].into_iter().enumerate() {
        let client = restart(&mut daemon, kill).await;
        assert_eq!(client.ask("created", "x").await.unwrap(), (round + 1).to_string());
        for name in ["suspended", "active", "last"] {
            assert_eq!(client.ask(name, "x").await.unwrap(), (round + 2).to_string(), "{name}");
        }
    }
}

#[tokio::test]
async fn a_session_that_made_room_answers_its_next_message() {
    let daemon = Daemon::with(&["slots.scripted=1"]);
    let client = daemon.client().await;
    client.create("a", COUNTER).await;
    client.create("b", COUNTER).await;
    for round in 1..=5 {
        for name in ["a", "b"] {
            assert_eq!(client.ask(name, "x").await.unwrap(), round.to_string(), "{name}");
        }
    }
    let events = client.events().await;
    assert_eq!(events.iter().filter(|event| event.r#type == "session.restored").count(), 8);
    for name in ["a", "b"] {
        let log = daemon.ctl_ok(&["agent", "log", name]);
        assert_eq!(log.matches("turn.complete").count(), 5, "{log}");
    }
}

/// What is written after a torn record is there after the next crash, too.
#[tokio::test]
async fn a_torn_tail_loses_no_later_entry() {
    let mut daemon = Daemon::start();
    daemon.client().await.create("a", COUNTER).await;
    for round in 1..=8_usize {
        let client = daemon.client().await;
        assert_eq!(client.ask("a", "x").await.unwrap(), round.to_string());
        daemon.kill();
        let mut segments: Vec<PathBuf> = fs::read_dir(daemon.home.join("journal"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "wal"))
            .collect();
        segments.sort();
        // The last segment that was written to, with the start of a record after its end.
        let written = segments.iter().rev().find_map(|path| {
            let bytes = fs::read(path).unwrap();
            let end = bytes.iter().rposition(|byte| *byte != 0)? + 1;
            (end > 512).then_some((path.clone(), bytes, end))
        });
        let (path, mut bytes, end) = written.expect("a segment was written to");
        let torn = [&5000u32.to_le_bytes()[..], &vec![b'x'; round * 37]].concat();
        bytes[end..end + torn.len()].copy_from_slice(&torn);
        fs::write(path, bytes).unwrap();
        daemon.start_again();
        let recovery = daemon.client().await.status().await.recovery.unwrap();
        assert!(recovery.torn_bytes > 0, "{recovery:?}");
    }
    let client = daemon.client().await;
    assert_eq!(client.agent("a").await.turns.unwrap().completed, 8);
    judge(&client.events().await);
}

#[tokio::test]
async fn messages_to_the_user_are_there_until_they_are_acknowledged() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let script = r#"fn turn(prompt) { for n in 1..=3 { send_message("USER", `news ${n}`); } }"#;
    client.create("a", script).await;
    client.ask("a", "go").await.unwrap();
    let texts = |inbox: &[v1::Message]| -> Vec<String> {
        inbox.iter().map(|message| message.text.clone()).collect()
    };
    for kill in [true, false] {
        let client = restart(&mut daemon, kill).await;
        assert_eq!(texts(&inbox(&client).await), ["news 1", "news 2", "news 3"]);
        assert_eq!(inbox(&client).await.len(), 3, "reading takes nothing away");
    }
    let client = daemon.client().await;
    let message_ids = vec![inbox(&client).await[1].id.clone()];
    let request = v1::AckInboxRequest { message_ids, ..Default::default() };
    client.agents.clone().ack_inbox(request).await.unwrap();
    let client = restart(&mut daemon, true).await;
    assert_eq!(texts(&inbox(&client).await), ["news 1", "news 3"]);
}

#[tokio::test]
async fn a_message_and_a_gate_of_a_child_just_spawned_survive() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let root = desk(&client).await;
    let script = r#"fn turn(prompt) {
        if messages()[0].from == "kid" { return "noted"; }
        if list_children().children.is_empty() {
            spawn_agent("kid", "fn turn(p) { messages()[0].text }");
            send_message("kid", "first words", false);
        }
        while !("go" in list_files().entries.map(|entry| entry.path)) { sleep_ms(10); }
        "spawned"
    }"#;
    let lead = client.create_in("lead", script, "desk").await;
    let asked = client.tell("lead", "go").await;
    let sent = |event: &v1::Event| text(event, "payload") == "first words";
    client.wait_event(asked.sequence, sent).await;
    daemon.ctl_ok(&["agent", "gate", "lead/kid"]);
    let client = restart(&mut daemon, true).await;
    let kid = client.agent("lead/kid").await;
    assert!(kid.gated);
    assert_eq!((kid.inbox_size, kid.state()), (1, v1::AgentState::Idle));
    fs::write(root.join("go"), "").unwrap();
    client.wait_type(1, &lead, "turn.complete").await;
    assert_eq!(client.agent("lead/kid").await.turns.unwrap().completed, 0);
    daemon.ctl_ok(&["agent", "ungate", "lead/kid"]);
    let done = client.wait_type(1, &kid, "turn.complete").await;
    assert_eq!(text(&done, "response"), "first words");
}

/// Each turn waits until all four have started, so one after the other they would never end.
#[tokio::test]
async fn four_woken_agents_run_at_the_same_time() {
    let daemon = Daemon::with(&["slots.scripted=4"]);
    let client = daemon.client().await;
    desk(&client).await;
    let script = r#"fn turn(prompt) {
        for n in 1..=4 { send_message(`w${n}`, "wake up", false); }
    }"#;
    client.create_in("lead", script, "desk").await;
    let meet = r#"fn turn(prompt) {
        write_file("here/" + agent_name(), "");
        while list_files("here").entries.len() < 4 { sleep_ms(5); }
        "met"
    }"#;
    let mut workers = Vec::new();
    for n in 1..=4 {
        workers.push(child(&client, "lead", &format!("w{n}"), meet).await);
    }
    client.ask("lead", "go").await.unwrap();
    for worker in &workers {
        let done = client.wait_type(1, worker, "turn.complete").await;
        assert_eq!(text(&done, "response"), "met");
    }
    let events = client.events().await;
    assert_eq!(judge(&events), 4);
    let place = |kind: &str, agent: &v1::Agent| {
        let fits = |e: &v1::Event| e.r#type == kind && e.agent_id == agent.id;
        events.iter().position(fits).unwrap()
    };
    let last_start = workers.iter().map(|agent| place("turn.start", agent)).max();
    let first_end = workers.iter().map(|agent| place("turn.complete", agent)).min();
    assert!(last_start < first_end, "{last_start:?} {first_end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn three_senders_on_two_slots_all_succeed() {
    let daemon = Daemon::with(&["slots.scripted=2"]);
    let client = daemon.client().await;
    let mut senders = JoinSet::new();
    for name in ["a", "b", "c"] {
        client.create(name, COUNTER).await;
        let client = client.clone();
        senders.spawn(async move {
            for round in 1..=20 {
                assert_eq!(client.ask(name, "x").await.unwrap(), round.to_string(), "{name}");
            }
        });
    }
    senders.join_all().await;
    assert_eq!(judge(&client.events().await), 2);
}

#[tokio::test]
async fn more_sessions_than_file_descriptors_recover() {
    const AGENTS: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let start = || {
        let mut command = Command::new("sh");
        forget_environment(&mut command);
        command.args(["-c", "ulimit -n 96; exec \"$@\" --background --set slots.scripted=4", "sh"]);
        command.arg(binary("substratd")).arg("--home").arg(&home);
        Daemon::run(&home, command).unwrap()
    };
    let mut daemon = start();
    let client = daemon.client().await;
    for number in 0..AGENTS {
        client.create(&format!("a{number}"), COUNTER).await;
        client.tell(&format!("a{number}"), "x").await;
    }
    daemon.kill();
    let daemon = start();
    let client = daemon.client().await;
    for number in 0..AGENTS {
        let answer = client.ask(&format!("a{number}"), "x").await.unwrap();
        assert!(["1", "2"].contains(&answer.as_str()), "{number}: {answer}");
    }
    judge(&client.events().await);
}

#[tokio::test]
async fn gates_and_permits_survive_a_kill() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let agent = client.create("gated", ECHO).await;
    daemon.ctl_ok(&["agent", "gate", "gated"]);
    let client = restart(&mut daemon, true).await;
    let permit = v1::PermitTurnRequest { agent: "gated".into(), ..Default::default() };
    for _ in 0..2 {
        client.agents.clone().permit_turn(permit.clone()).await.unwrap();
    }
    let client = restart(&mut daemon, true).await;
    let found = client.agent("gated").await;
    assert_eq!((found.gated, found.permits), (true, 2));
    for text in ["one", "two"] {
        assert_eq!(client.ask("gated", text).await.unwrap(), format!("you said: {text}"));
    }
    client.tell("gated", "three").await;
    let client = restart(&mut daemon, true).await;
    let found = client.agent("gated").await;
    assert_eq!((found.permits, found.inbox_size, found.turns.unwrap().completed), (0, 1, 2));
    client.agents.clone().permit_turn(permit).await.unwrap();
    let third = |event: &v1::Event| text(event, "response") == "you said: three";
    assert_eq!(client.wait_event(1, third).await.agent_id, agent.id);
}

#[tokio::test]
async fn a_line_that_was_garbled_is_mended_or_told() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let agent = client.create("a", ECHO).await;
    for text in ["one", "two", "three"] {
        client.ask("a", text).await.unwrap();
    }
    let log = daemon.home.join("agents").join(&agent.session_id).join("events.jsonl");
    let (before, last) = (client.events().await, client.sequence().await);
    daemon.kill();
    let garbled =
        fs::read_to_string(&log).unwrap().replacen("\"payload\":\"two\"", "\"payload\":#two#", 1);
    assert!(garbled.contains("#two#"));
    fs::write(&log, garbled).unwrap();
    daemon.start_again();
    let client = daemon.client().await;
    assert!(client.sequence().await >= last);
    let request = v1::ListEventsRequest { page_size: 1000, ..Default::default() };
    match client.sessions.clone().list_events(request).await {
        Ok(page) => assert_eq!(page.into_inner().events[..before.len()], before),
        Err(status) => {
            assert_eq!(reason(&status), "LOG_UNREADABLE");
            assert!(status.message().contains(&agent.session_id), "{status}");
        }
    }
    assert_eq!(client.ask("a", "four").await.unwrap(), "you said: four");
}

#[tokio::test]
async fn a_child_that_fails_stops_no_other() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    desk(&client).await;
    let script = r#"fn turn(prompt) {
        if messages()[0].from != "USER" { return messages()[0].text; }
        for n in 1..=3 { send_message(`w${n}`, "go", false); }
    }"#;
    let lead = client.create_in("lead", script, "desk").await;
    let fails = r#"fn turn(prompt) { fail("permanent", "no good") }"#;
    child(&client, "lead", "w1", fails).await;
    let others =
        [child(&client, "lead", "w2", ECHO).await, child(&client, "lead", "w3", ECHO).await];
    for round in 0..3 {
        let from = client.sequence().await + 1;
        client.ask("lead", "go").await.unwrap();
        for other in &others {
            let done = client.wait_type(from, other, "turn.complete").await;
            assert_eq!(text(&done, "response"), "you said: go", "{round}");
        }
        let told = |event: &v1::Event| {
            event.agent_id == lead.id && text(event, "response").contains("no good")
        };
        client.wait_event(from, told).await;
    }
}

#[tokio::test]
async fn a_damaged_session_file_stops_no_other_session() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let mut sessions = Vec::new();
    for name in ["a", "b", "c"] {
        sessions.push(client.create(name, COUNTER).await.session_id);
        assert_eq!(client.ask(name, "x").await.unwrap(), "1");
    }
    for (round, kill) in [(2, true), (3, false)] {
        match kill {
            true => daemon.kill(),
            false => assert!(daemon.stop()),
        }
        let file = daemon.home.join("agents").join(&sessions[1]).join("session.json");
        fs::write(file, r#"{"id": "#).unwrap();
        daemon.start_again();
        let client = daemon.client().await;
        for name in ["a", "b", "c"] {
            assert_eq!(client.ask(name, "x").await.unwrap(), round.to_string(), "{name}");
        }
    }
}

#[tokio::test]
async fn an_answer_to_a_turn_that_a_crash_cut_off_still_arrives() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let root = desk(&client).await;
    let script = r#"fn turn(prompt) {
        for message in messages() {
            if message.kind == "response" { return `${message.from} said ${message.text}`; }
        }
        if "asked" in list_files().entries.map(|entry| entry.path) { return "later"; }
        write_file("asked", "");
        send_message("b", "work").text
    }"#;
    let asker = client.create_in("a", script, "desk").await;
    let worker = child(&client, "a", "b", PATIENT).await;
    let told = client.tell("a", "go").await;
    worked(&client, told.sequence, &worker).await;
    assert_eq!(client.agent("a").await.state(), v1::AgentState::Waiting);
    let client = restart(&mut daemon, true).await;
    fs::write(root.join("go"), "").unwrap();
    let arrived =
        |event: &v1::Event| event.agent_id == asker.id && text(event, "response") == "b said work;";
    client.wait_event(1, arrived).await;
    let events = client.events().await;
    let cut = events.iter().find(|event| text(event, "error").contains("outcome unknown"));
    assert_eq!(text(cut.expect("the call was closed"), "tool"), "send_message");
}
