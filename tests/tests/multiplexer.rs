//! Slots: few live sessions serve many agents, fairly, and without losing anything.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

use substrat_proto::v1;
use substrat_proto::v1::SessionState;
use substrat_tests::harness::{Client, Daemon, reason, text};
use substrat_tests::judge::judge;
use tokio::task::JoinSet;

/// Counts its turns.
const COUNTER: &str = r#"fn turn(prompt) {
    let n = recall("n"); if type_of(n) == "()" { n = 0; }
    n += 1; remember("n", n); n.to_string() }"#;
/// Holds its slot until it is cancelled.
const HOLDER: &str = "fn turn(prompt) { sleep_ms(3600000); }";

async fn session(client: &Client, agent: &str) -> v1::Session {
    let session = client.agent(agent).await.session_id;
    let request = v1::GetSessionRequest { session };
    client.sessions.clone().get_session(request).await.unwrap().into_inner().session.unwrap()
}

async fn suspend(client: &Client, agent: &str) -> Result<v1::Session, tonic::Status> {
    let session = client.agent(agent).await.session_id;
    let request = v1::SuspendSessionRequest { session, ..Default::default() };
    let suspended = client.sessions.clone().suspend_session(request).await?;
    Ok(suspended.into_inner().session.unwrap())
}

async fn resume(client: &Client, agent: &str) -> Result<v1::Session, tonic::Status> {
    let session = client.agent(agent).await.session_id;
    let request = v1::ResumeSessionRequest { session, ..Default::default() };
    let resumed = client.sessions.clone().resume_session(request).await?;
    Ok(resumed.into_inner().session.unwrap())
}

async fn hold(client: &Client, agent: &str) {
    let sent = client.tell(agent, "hold").await;
    let id = client.agent(agent).await.id;
    let started = |event: &v1::Event| event.r#type == "turn.start" && event.agent_id == id;
    client.wait_event(sent.sequence, started).await;
}

async fn release(client: &Client, agent: &str) {
    let request = v1::CancelTurnRequest { agent: agent.into(), ..Default::default() };
    client.agents.clone().cancel_turn(request).await.unwrap();
}

/// Names of the agents of some events, in order.
fn agents(events: &[v1::Event], kind: &str, names: &[(&str, String)]) -> Vec<String> {
    let of_kind = events.iter().filter(|event| event.r#type == kind);
    let name = |event: &v1::Event| names.iter().find(|(_, id)| *id == event.agent_id);
    of_kind.filter_map(name).map(|(name, _)| (*name).to_owned()).collect()
}

#[tokio::test]
async fn a_chain_of_requests_five_deep_needs_one_slot() {
    let daemon = Daemon::with(&["slots.scripted=1"]);
    let client = daemon.client().await;
    let mut parent = String::new();
    for depth in 1..=6 {
        let script = match depth {
            6 => r#"fn turn(prompt) { "bottom" }"#.to_owned(),
            _ => format!(
                r#"fn turn(p) {{ send_message("a{}", "go").text + "<{depth}" }}"#,
                depth + 1
            ),
        };
        let request = v1::CreateAgentRequest {
            name: format!("a{depth}"),
            parent: parent.clone(),
            instructions: script,
            ..Default::default()
        };
        let created = client.agents.clone().create_agent(request).await.unwrap().into_inner();
        parent = created.agent.unwrap().path;
    }
    for _ in 0..3 {
        assert_eq!(client.ask("a1", "go").await.unwrap(), "bottom<5<4<3<2<1");
    }
    let events = client.events().await;
    assert_eq!(judge(&events), 1);
    let waits = events.iter().filter(|event| event.r#type == "turn.waiting").count();
    assert_eq!(waits, 15);
}

#[tokio::test]
async fn the_session_used_longest_ago_makes_room_and_remembers() {
    let daemon = Daemon::with(&["slots.scripted=2"]);
    let client = daemon.client().await;
    let mut names = Vec::new();
    for name in ["a", "b", "c"] {
        names.push((name, client.create(name, COUNTER).await.id));
    }
    for (agent, count) in [("a", "1"), ("b", "1"), ("c", "1"), ("b", "2"), ("a", "2"), ("b", "3")] {
        assert_eq!(client.ask(agent, "x").await.unwrap(), count, "{agent}");
    }
    let events = client.events().await;
    assert_eq!(agents(&events, "session.suspending", &names), ["a", "c"]);
    assert_eq!(agents(&events, "session.restored", &names), ["a"]);
    let why = events.iter().filter(|event| event.r#type == "session.suspending");
    assert!(why.map(|event| text(event, "reason")).all(|reason| reason == "evicted"));
    assert_eq!(judge(&events), 2);
    for (agent, state) in
        [("a", SessionState::Active), ("b", SessionState::Active), ("c", SessionState::Suspended)]
    {
        assert_eq!(session(&client, agent).await.state(), state, "{agent}");
    }
}

#[tokio::test]
async fn who_waits_for_a_slot_is_served_in_order() {
    let daemon = Daemon::with(&["slots.scripted=1"]);
    let client = daemon.client().await;
    client.create("holder", HOLDER).await;
    let waiting: Vec<String> = (0..20).map(|number| format!("waiting-{number:02}")).collect();
    let mut names = Vec::new();
    for name in &waiting {
        names.push((name.as_str(), client.create(name, COUNTER).await.id));
    }
    hold(&client, "holder").await;
    // Back to front, so that the order is that of the messages and not that of the agents.
    for name in waiting.iter().rev() {
        client.tell(name, "first").await;
    }
    for name in waiting.iter() {
        client.tell(name, "second").await;
        assert!(client.agent(name).await.queued);
    }
    let status = client.status().await;
    assert_eq!((status.busy_count, status.queued_count), (1, 20));
    release(&client, "holder").await;
    let done = |event: &v1::Event| event.r#type == "turn.complete" && event.agent_id == names[0].1;
    client.wait_event(1, done).await;
    let events = client.events().await;
    let order: Vec<String> = waiting.iter().rev().cloned().collect();
    assert_eq!(agents(&events, "turn.start", &names), order);
    assert_eq!(judge(&events), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_agents_share_two_slots() {
    let daemon = Daemon::with(&["slots.scripted=2"]);
    let client = daemon.client().await;
    let mut tasks = JoinSet::new();
    for number in 0..100 {
        let client = client.clone();
        tasks.spawn(async move {
            let name = format!("agent-{number}");
            client.create(&name, COUNTER).await;
            for count in 1..=5 {
                assert_eq!(client.ask(&name, "x").await.unwrap(), count.to_string());
            }
        });
    }
    tasks.join_all().await;
    let events = client.events().await;
    assert_eq!(judge(&events), 2);
    let restored = events.iter().filter(|event| event.r#type == "session.restored").count();
    assert!(restored > 100, "{restored}");
    assert_eq!(client.status().await.queued_count, 0);
}

#[tokio::test]
async fn a_session_is_suspended_and_resumed_by_hand() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    client.create("counter", COUNTER).await;
    let created = suspend(&client, "counter").await.unwrap();
    assert_eq!(created.state(), SessionState::Created, "it was never opened");
    assert_eq!(client.ask("counter", "x").await.unwrap(), "1");
    assert_eq!(session(&client, "counter").await.state(), SessionState::Active);
    let suspended = suspend(&client, "counter").await.unwrap();
    assert_eq!(suspended.state(), SessionState::Suspended);
    assert!(suspended.suspend_time.is_some() && suspended.provider_state_size > 0);
    let again = suspend(&client, "counter").await.unwrap();
    assert_eq!(again.last_sequence, suspended.last_sequence, "it does nothing");
    assert_eq!(resume(&client, "counter").await.unwrap().state(), SessionState::Active);
    assert_eq!(resume(&client, "counter").await.unwrap().state(), SessionState::Active);
    assert_eq!(client.ask("counter", "x").await.unwrap(), "2");
    suspend(&client, "counter").await.unwrap();
    assert_eq!(client.ask("counter", "x").await.unwrap(), "3", "a message wakes it");
    client.create("holder", HOLDER).await;
    hold(&client, "holder").await;
    let busy = suspend(&client, "holder").await.unwrap_err();
    assert_eq!(reason(&busy), "SESSION_BUSY");
    judge(&client.events().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_resumed_by_hand_waits_for_a_slot() {
    let daemon = Daemon::with(&["slots.scripted=1"]);
    let client = daemon.client().await;
    client.create("holder", HOLDER).await;
    let counter = client.create("counter", COUNTER).await;
    assert_eq!(client.ask("counter", "x").await.unwrap(), "1");
    hold(&client, "holder").await;
    assert_eq!(session(&client, "counter").await.state(), SessionState::Suspended);
    let resuming = client.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { resume(&resuming, "counter").await.unwrap() });
    let resuming = |event: &v1::Event| event.r#type == "session.resuming";
    let asked = client.wait_event(1, resuming).await;
    assert_eq!(asked.agent_id, counter.id);
    assert_eq!(session(&client, "counter").await.state(), SessionState::Suspended);
    release(&client, "holder").await;
    let resumed = tasks.join_all().await;
    assert_eq!(resumed[0].state(), SessionState::Active);
    assert_eq!(judge(&client.events().await), 1);
}

#[tokio::test]
async fn sessions_are_listed_in_every_state() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    for name in ["created", "active", "suspended", "terminated"] {
        client.create(name, COUNTER).await;
        if name != "created" {
            client.ask(name, "x").await.unwrap();
        }
    }
    suspend(&client, "suspended").await.unwrap();
    let request = v1::TerminateAgentRequest { agent: "terminated".into(), ..Default::default() };
    client.agents.clone().terminate_agent(request).await.unwrap();
    let mut listed = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = v1::ListSessionsRequest { page_size: 3, page_token };
        let page = client.sessions.clone().list_sessions(request).await.unwrap().into_inner();
        listed.extend(page.sessions.iter().map(|s| (s.agent_path.clone(), s.state())));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let wanted = [
        ("created", SessionState::Created),
        ("active", SessionState::Active),
        ("suspended", SessionState::Suspended),
        ("terminated", SessionState::Terminated),
    ];
    assert_eq!(listed, wanted.map(|(name, state)| (name.to_owned(), state)));
}

#[tokio::test(flavor = "multi_thread")]
async fn fewer_slots_hold_from_the_next_start_on() {
    let mut daemon = Daemon::with(&["slots.scripted=4"]);
    for (slots, count) in [(4, "1"), (1, "2"), (3, "3")] {
        if slots != 4 {
            assert!(daemon.stop());
            daemon.start_again_with(&[&format!("slots.scripted={slots}")]);
        }
        let client = daemon.client().await;
        let from = client.events().await.len();
        let mut tasks = JoinSet::new();
        for number in 0..8 {
            let client = client.clone();
            tasks.spawn(async move {
                let name = format!("agent-{number}");
                if count == "1" {
                    client.create(&name, COUNTER).await;
                }
                assert_eq!(client.ask(&name, "x").await.unwrap(), count);
            });
        }
        tasks.join_all().await;
        let events = client.events().await;
        judge(&events);
        // At a clean stop all sessions are suspended, so the rest stands for itself.
        let mut held = 0_i32;
        let mut most = 0;
        for event in &events[from..] {
            held += match event.r#type.as_str() {
                "session.opened" | "session.restored" => 1,
                "suspend.result" => -1,
                _ => 0,
            };
            most = most.max(held);
        }
        assert!((1..=slots).contains(&most), "{most} of {slots}");
    }
}
