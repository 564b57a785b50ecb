//! Attached streams: what every client sees, whenever it joins and however it leaves.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::time::Duration;

use substrat_proto::v1;
use substrat_proto::v1::attach_open::Start;
use substrat_proto::v1::attach_request::Request as Asked;
use substrat_proto::v1::attach_response::Item;
use substrat_tests::harness::{Client, Daemon, reason};
use substrat_tests::watch::{deltas, durable, event_name, expected, open};
use tokio::task::JoinSet;
use tonic::Code;

/// Says two pieces with a tool call between them.
const TALKS: &str = r#"fn turn(prompt) { say("<"); list_children(); say(prompt); say(">"); }"#;
/// Answers at once.
const ECHO: &str = "fn turn(prompt) { prompt }";
/// Runs until it is cancelled.
const ENDLESS: &str = r#"fn turn(prompt) { say("at it"); sleep_ms(3600000); }"#;

async fn last_sequence(client: &Client) -> u64 {
    client.status().await.journal.expect("a journal").durable_sequence
}

#[tokio::test]
async fn all_clients_of_an_agent_see_the_same_stream() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let agent = client.create("talker", TALKS).await;
    let mut watches = Vec::new();
    for _ in 0..3 {
        watches.push(daemon.client().await.attach("talker", Some(0)).await);
    }
    for number in 0..20 {
        assert_eq!(client.ask("talker", &number.to_string()).await.unwrap(), format!("<{number}>"));
    }
    let events = client.events().await;
    let wanted = expected(&events, &agent.id);
    let last = wanted.last().unwrap().0;
    let mut streams = Vec::new();
    for watch in &mut watches {
        streams.push(watch.until_sequence(last).await);
    }
    for items in &streams {
        assert_eq!(durable(items), wanted);
    }
    // Output comes in its place: each piece after the call before it, and before the one after.
    let names = |items: &[v1::AttachResponse]| -> Vec<String> {
        let shown = items.iter().filter_map(|item| match &item.item {
            Some(Item::OutputDelta(delta)) => Some(delta.text.clone()),
            Some(Item::ToolCallStarted(_)) => Some("call".to_owned()),
            _ => None,
        });
        shown.collect()
    };
    let all: Vec<String> =
        (0..20).flat_map(|n| ["<".into(), "call".into(), n.to_string(), ">".into()]).collect();
    // A turn whose output was gone before a client came to it is shown by its answer alone, so
    // what is compared are those that were followed.
    for items in &streams {
        let shown = names(items);
        let calls = shown.iter().filter(|name| *name == "call").count();
        assert_eq!(calls, 20);
        if shown.len() == all.len() {
            assert_eq!(shown, all);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_client_gets_the_past_and_then_the_present_without_a_seam() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let agent = client.create("echo", ECHO).await;
    for number in 0..100 {
        client.ask("echo", &number.to_string()).await.unwrap();
    }
    let middle = last_sequence(&client).await;
    let writer = client.clone();
    let mut writing = JoinSet::new();
    writing.spawn(async move {
        for number in 100..400 {
            writer.ask("echo", &number.to_string()).await.unwrap();
        }
    });
    let mut from_start = client.attach("echo", Some(0)).await;
    let mut from_middle = client.attach("echo", Some(middle)).await;
    let mut from_now = client.attach("echo", None).await;
    let latest = v1::AttachOpen { start: Some(Start::LastTurns(3)), ..open("echo", None) };
    let mut from_turns = client.try_attach(latest).await.unwrap();
    writing.join_all().await;
    let events = client.events().await;
    let wanted = expected(&events, &agent.id);
    let last = wanted.last().unwrap().0;
    for (watch, is_from_now) in [
        (&mut from_start, false),
        (&mut from_middle, false),
        (&mut from_now, true),
        (&mut from_turns, false),
    ] {
        let cursor = watch.attached.cursor;
        let mut seen = durable(&watch.until_sequence(last).await);
        if is_from_now {
            // A turn that ran when it joined is told first, with the sequence that it has.
            seen.retain(|(sequence, _)| *sequence > cursor);
        }
        let wanted: Vec<_> = wanted.iter().filter(|(seq, _)| *seq > cursor).cloned().collect();
        assert_eq!(seen, wanted, "from {cursor}");
    }
    assert_eq!(from_start.attached.cursor, 0);
    assert_eq!(from_middle.attached.cursor, middle);
    let last_three = v1::AttachOpen { start: Some(Start::LastTurns(3)), ..open("echo", None) };
    let mut three = client.try_attach(last_three).await.unwrap();
    let seen = durable(&three.until_sequence(last).await);
    assert_eq!(seen.iter().filter(|(_, name)| name == "turn.start").count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_comes_back_with_its_cursor_misses_and_repeats_nothing() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let script = r#"fn turn(prompt) { for i in 0..200 { say(`${i} `); if i % 40 == 0 { list_children(); } } }"#;
    let agent = client.create("talker", script).await;
    let after = last_sequence(&client).await;
    let asker = client.clone();
    let mut asking = JoinSet::new();
    asking.spawn(async move {
        for _ in 0..5 {
            asker.ask("talker", "go").await.unwrap();
        }
        last_sequence(&asker).await
    });
    let (mut seen, mut cursor, mut turn) = (Vec::new(), after, (0, 0));
    let mut completed = 0;
    while completed < 5 {
        let start = Some(Start::AfterSequence(cursor));
        let (seen_turn, seen_deltas) = turn;
        let open = v1::AttachOpen { start, seen_turn, seen_deltas, ..open("talker", None) };
        let mut watch = client.try_attach(open).await.unwrap();
        assert_eq!(watch.attached.cursor, cursor);
        for _ in 0..23 {
            let item = watch.next().await;
            match &item.item {
                Some(Item::TurnStarted(_)) => turn = (item.sequence, 0),
                Some(Item::OutputDelta(delta)) => turn = (delta.turn, delta.index + 1),
                Some(Item::Lagged(lagged)) => turn = (lagged.turn, lagged.to_index),
                Some(Item::TurnEnded(_)) => completed += 1,
                _ => {}
            }
            cursor = cursor.max(item.sequence);
            seen.push(item);
            if completed == 5 {
                break;
            }
        }
    }
    asking.join_all().await;
    let mut wanted = expected(&client.events().await, &agent.id);
    wanted.retain(|(sequence, _)| *sequence > after && *sequence <= cursor);
    assert_eq!(durable(&seen), wanted);
    // The output of a turn that ended meanwhile is in its answer; of the others every piece came
    // at most once and in order.
    let mut last = (0, None);
    for (turn, index, _) in deltas(&seen) {
        if turn == last.0 {
            assert!(last.1.is_none_or(|last| index > last), "{turn}: {index} after {last:?}");
        }
        last = (turn, Some(index));
    }
    let answers = seen.iter().filter_map(|item| match &item.item {
        Some(Item::TurnEnded(ended)) => Some(ended.response.as_str()),
        _ => None,
    });
    let whole: String = (0..200).map(|i| format!("{i} ")).collect();
    assert!(answers.into_iter().all(|answer| answer == whole));
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_a_slow_client_missed_is_counted_and_takes_no_memory() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let script = r#"fn turn(prompt) { let s = "x"; s.pad(99, "y");
        for i in 0..300000 { say(s); if i == 150000 { list_children(); } } "done" }"#;
    let agent = client.create("talker", script).await;
    let slow = daemon.client().await;
    let mut slow = slow.attach("talker", Some(0)).await;
    client.ask("talker", "warm up").await.unwrap();
    let before = daemon.resident_kib();
    for _ in 0..3 {
        client.ask("talker", "go").await.unwrap();
    }
    let grown = daemon.resident_kib().saturating_sub(before);
    // The threads that did the work keep some for what they do next.
    assert!(grown < 40 << 10, "120 MB of output took {grown} KiB");
    let wanted = expected(&client.events().await, &agent.id);
    let items = slow.until_sequence(wanted.last().unwrap().0).await;
    assert_eq!(durable(&items), wanted);
    let mut lags = 0;
    let mut next = (0, 0);
    for item in &items {
        match &item.item {
            Some(Item::TurnStarted(_)) => next = (item.sequence, 0),
            Some(Item::OutputDelta(delta)) => {
                assert_eq!((delta.turn, delta.index), next);
                next.1 += 1;
            }
            Some(Item::Lagged(lagged)) => {
                assert_eq!((lagged.turn, lagged.from_index), next);
                assert!(lagged.to_index > lagged.from_index);
                next.1 = lagged.to_index;
                lags += 1;
            }
            Some(Item::TurnEnded(ended)) => {
                assert_eq!(ended.response, "done");
                // Every piece was shown or counted, as far as the turn was followed.
                assert!(next.1 == 300_000 || next.1 == 0, "{} of 300000", next.1);
            }
            _ => {}
        }
    }
    assert!(lags > 0, "the slow client lagged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_for_long_still_gets_every_event() {
    let daemon = Daemon::with(&["journal.checkpoint_mib=1"]);
    let client = daemon.client().await;
    let agent = client.create("watched", ECHO).await;
    let slow = daemon.client().await;
    let mut slow = slow.attach("watched", Some(0)).await;
    let mut asking = JoinSet::new();
    for number in 0..8 {
        let client = client.clone();
        let name = if number == 0 { "watched".to_owned() } else { format!("other-{number}") };
        asking.spawn(async move {
            if number > 0 {
                client.create(&name, ECHO).await;
            }
            for _ in 0..700 {
                client.ask(&name, "x").await.unwrap();
            }
        });
    }
    let mut asked = std::pin::pin!(asking.join_all());
    let mut beat = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            _ = &mut asked => break,
            _ = beat.tick() => slow.ask(Asked::Heartbeat(v1::Heartbeat {})).await,
        }
    }
    let events = client.events().await;
    assert!(events.len() > 20_000, "more than memory keeps: {}", events.len());
    let wanted = expected(&events, &agent.id);
    let seen = durable(&slow.until_sequence(wanted.last().unwrap().0).await);
    assert_eq!(seen, wanted);
}

#[tokio::test]
async fn inputs_are_confirmed_in_order_and_done_once() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let agent = client.create("echo", ECHO).await;
    let mut watch = client.attach("echo", None).await;
    for number in 0..200 {
        watch.input(&format!("input {number}"), &format!("id-{number}")).await;
    }
    let mut ids = Vec::new();
    for number in 0..200 {
        let result = watch.result().await;
        assert_eq!((result.request_id, result.reason), (format!("id-{number}"), String::new()));
        ids.push(result.message_id);
    }
    watch.input("input 7", "id-7").await;
    assert_eq!(watch.result().await.message_id, ids[7]);
    watch.input("another text", "id-7").await;
    assert_eq!(watch.result().await.reason, "REQUEST_ID_REUSED");
    watch.input(&"x".repeat((1 << 20) + 1), "large").await;
    assert_eq!(watch.result().await.reason, "MESSAGE_TOO_LARGE");
    let events = client.events().await;
    let sent: Vec<&str> = events
        .iter()
        .filter(|event| event.r#type == "message.enqueued" && event.agent_id == agent.id)
        .map(|event| substrat_tests::harness::text(event, "payload"))
        .collect();
    let wanted: Vec<String> = (0..200).map(|number| format!("input {number}")).collect();
    assert_eq!(sent, wanted);
}

#[tokio::test]
async fn a_turn_is_cancelled_through_the_stream() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    client.create("endless", ENDLESS).await;
    let mut watch = client.attach("endless", None).await;
    watch.cancel("").await;
    assert_eq!(watch.result().await.reason, "NO_TURN");
    watch.input("go", "").await;
    watch.until(|item| matches!(item.item, Some(Item::OutputDelta(_)))).await;
    // One that came too late for the turn before does not hit this one.
    let other = "exec-0123456789abcdef";
    for (turn, reason) in [(other, "NO_TURN"), ("no id", "FIELD_INVALID")] {
        watch.cancel(turn).await;
        assert_eq!(watch.result().await.reason, reason);
    }
    let running = client.agent("endless").await.turn_id;
    watch.cancel(&running).await;
    let items = watch.until(|item| event_name(item) == Some("turn.cancelled")).await;
    let Some(Item::TurnEnded(ended)) = &items.last().unwrap().item else { panic!("an end") };
    assert_eq!(ended.outcome(), v1::TurnOutcome::Cancelled);
    assert_eq!(client.agent("endless").await.state(), v1::AgentState::Idle);
}

#[tokio::test]
async fn a_gate_holds_inputs_back_and_watchers_are_told() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    client.create("echo", ECHO).await;
    let mut watch = client.attach("echo", None).await;
    let request = v1::GateAgentRequest { agent: "echo".into(), ..Default::default() };
    client.agents.clone().gate_agent(request).await.unwrap();
    let told = watch.until(|item| event_name(item) == Some("tool.gate")).await;
    let Some(Item::StateChanged(changed)) = &told.last().unwrap().item else { panic!("a change") };
    assert!(changed.agent.as_ref().unwrap().gated);
    for text in ["one", "two"] {
        watch.input(text, text).await;
        assert_eq!(watch.result().await.reason, "");
    }
    assert_eq!(client.agent("echo").await.inbox_size, 2);
    let request = v1::PermitTurnRequest { agent: "echo".into(), ..Default::default() };
    client.agents.clone().permit_turn(request).await.unwrap();
    let items = watch.until(|item| event_name(item) == Some("turn.complete")).await;
    let permit = items.iter().find_map(|item| match &item.item {
        Some(Item::StateChanged(changed)) if changed.event == "tool.permit_turn" => Some(changed),
        _ => None,
    });
    assert!(permit.is_some(), "a permit is told");
    let started = items.iter().filter(|item| event_name(item) == Some("turn.start")).count();
    assert_eq!(started, 1);
    watch.input("three", "three").await;
    assert_eq!(watch.result().await.reason, "");
    let agent = client.agent("echo").await;
    assert_eq!((agent.inbox_size, agent.permits, agent.turns.unwrap().completed), (1, 0, 1));
    let request = v1::UngateAgentRequest { agent: "echo".into(), ..Default::default() };
    client.agents.clone().ungate_agent(request).await.unwrap();
    watch.until(|item| event_name(item) == Some("turn.complete")).await;
}

#[tokio::test]
async fn the_end_of_an_agent_is_seen_and_its_past_stays_readable() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let agent = client.create("echo", ECHO).await;
    client.ask("echo", "hello").await.unwrap();
    let mut live = client.attach("echo", Some(0)).await;
    let request = v1::TerminateAgentRequest { agent: "echo".into(), ..Default::default() };
    client.agents.clone().terminate_agent(request).await.unwrap();
    let seen = live.until(|item| event_name(item) == Some("agent.terminated")).await;
    live.input("are you there?", "").await;
    assert_eq!(live.result().await.reason, "AGENT_TERMINATED");
    let by_name = client.try_attach(open("echo", None)).await.err().unwrap();
    assert_eq!((by_name.code(), reason(&by_name).as_str()), (Code::NotFound, "AGENT_NOT_FOUND"));
    let mut past = client.attach(&agent.id, Some(0)).await;
    let state = past.attached.agent.as_ref().unwrap().state();
    assert_eq!(state, v1::AgentState::Terminated);
    let again = past.until(|item| event_name(item) == Some("agent.terminated")).await;
    assert_eq!(durable(&again), durable(&seen));
    assert_eq!(durable(&again), expected(&client.events().await, &agent.id));
}

#[tokio::test]
async fn a_subtree_shows_descendants_that_come_later() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let script = r#"fn turn(prompt) {
        spawn_agent("child", "fn turn(p) { spawn_agent(\"grandchild\", \"fn turn(p) { messages()[0].text + 3 }\"); send_message(\"grandchild\", messages()[0].text + 2).text }");
        send_message("child", prompt + 1).text }"#;
    client.create("root", script).await;
    let tree = v1::AttachOpen { tree: true, ..open("root", Some(0)) };
    let mut watch = client.try_attach(tree).await.unwrap();
    assert_eq!(client.ask("root", "0").await.unwrap(), "0123");
    let events = client.events().await;
    let last = events.iter().rfind(|event| event.r#type == "turn.complete").unwrap().sequence;
    let seen = durable(&watch.until_sequence(last).await);
    let mut wanted: Vec<(u64, String)> = Vec::new();
    for name in ["root", "root/child", "root/child/grandchild"] {
        wanted.extend(expected(&events, &client.agent(name).await.id));
    }
    wanted.sort();
    wanted.dedup();
    assert_eq!(seen, wanted);
}
