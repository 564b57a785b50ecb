//! Slots, gates, crashes and stops, case by case.

use serde_json::json;

use super::scenarios::team;
use super::world::{World, send};
use crate::model::*;

#[test]
fn a_gate_holds_turns_back_and_permits_let_some_through() {
    let mut world = World::new(4);
    world.create("a");
    world.run(Command::Gate { agent: "a".into() }).unwrap();
    world.send("a", "one");
    assert!(world.agent("a").turn().is_none());
    world.run(Command::PermitTurn { agent: "a".into() }).unwrap();
    assert!(world.agent("a").turn().is_some());
    world.complete("a", "x");
    world.send("a", "two");
    assert!(world.agent("a").turn().is_none());
    world.run(Command::Ungate { agent: "a".into() }).unwrap();
    assert!(world.agent("a").turn().is_some());
    let refused = world.run(Command::PermitTurn { agent: "a".into() });
    assert!(matches!(refused, Err(Rejection::AgentNotGated { .. })));
}

#[test]
fn a_permitted_turn_that_is_interrupted_starts_again() {
    let mut world = World::new(4);
    world.create("a");
    world.run(Command::Gate { agent: "a".into() }).unwrap();
    world.run(Command::PermitTurn { agent: "a".into() }).unwrap();
    world.send("a", "one");
    let first = world.turn("a");
    world.crash();
    assert_ne!(world.turn("a"), first);
    world.complete("a", "x");
    world.send("a", "two");
    assert!(world.agent("a").turn().is_none(), "one turn was permitted");

    // A gate that was opened and closed again since permits nothing.
    let mut world = World::new(4);
    world.create("a");
    world.run(Command::Gate { agent: "a".into() }).unwrap();
    world.run(Command::PermitTurn { agent: "a".into() }).unwrap();
    world.send("a", "one");
    world.run(Command::Ungate { agent: "a".into() }).unwrap();
    world.run(Command::Gate { agent: "a".into() }).unwrap();
    world.crash();
    assert_eq!(world.agent("a").gate, Gate::Gated { permits: 0 });
    assert!(world.agent("a").turn().is_none());

    // One that began before its gate was closed gives nothing back.
    let mut world = World::new(4);
    world.create("a");
    world.send("a", "one");
    world.run(Command::Gate { agent: "a".into() }).unwrap();
    world.crash();
    assert_eq!(world.agent("a").gate, Gate::Gated { permits: 0 });
    assert!(world.agent("a").turn().is_none());
}

#[test]
fn the_session_of_a_gated_agent_is_live_when_user_wants_it() {
    let mut world = World::new(1);
    world.create("a");
    world.run(Command::Gate { agent: "a".into() }).unwrap();
    world.send("a", "one");
    let session = world.agent("a").session.id.to_string();
    world.run(Command::ResumeSession { session: session.clone() }).unwrap();
    let is = |world: &World| (world.agent("a").session.state, world.agent("a").turn().is_some());
    assert_eq!(is(&world), (SessionState::Active, false));
    world.run(Command::SuspendSession { session: session.clone() }).unwrap();
    // Also one that is asked for before there is something for a turn.
    world.run(Command::ResumeSession { session }).unwrap();
    world.send("a", "two");
    world.finish_suspensions();
    assert_eq!(is(&world), (SessionState::Active, false));
    world.run(Command::Ungate { agent: "a".into() }).unwrap();
    assert_eq!(is(&world), (SessionState::Active, true));
}

#[test]
fn the_turns_of_an_agent_start_although_its_provider_is_not_configured_any_more() {
    let mut world = World::new(4);
    world.create("a");
    world.policy.providers.clear();
    world.send("a", "one");
    assert!(world.agent("a").turn().is_some(), "its runner says what is wrong");
}

#[test]
fn the_least_recently_used_idle_session_gives_its_slot() {
    let mut world = World::new(2);
    for name in ["a", "b", "c"] {
        world.create(name);
    }
    world.send("a", "1");
    world.complete("a", "x");
    world.send("b", "1");
    world.complete("b", "x");
    world.send("a", "2");
    world.complete("a", "x");
    world.send("c", "1");
    assert!(world.agent("c").turn().is_none(), "no slot is free yet");
    assert_eq!(world.agent("b").session.state, SessionState::Suspending);
    world.finish_suspensions();
    assert!(world.agent("c").turn().is_some());
    assert_eq!(world.agent("a").session.state, SessionState::Active);
}

#[test]
fn who_waits_for_a_slot_waits_in_order_and_nobody_overtakes() {
    let mut world = World::new(1);
    for name in ["a", "b", "c"] {
        world.create(name);
        world.send(name, "1");
    }
    world.send("a", "2");
    world.complete("a", "x");
    world.finish_suspensions();
    assert!(world.agent("b").turn().is_some(), "a does not go on before b");
    world.complete("b", "x");
    world.finish_suspensions();
    assert!(world.agent("c").turn().is_some());
    world.complete("c", "x");
    world.finish_suspensions();
    assert!(world.agent("a").turn().is_some());
}

#[test]
fn a_crash_interrupts_turns_and_their_messages_come_again() {
    let mut world = team(4, &["kid"]);
    world.complete("lead", "ok");
    let ask = json!({ "recipient": "parent", "text": "note", "sync": false });
    world.call("kid", "send_message", &ask);
    let found = world.crash();
    // The kid's first message and the note to the lead were in turns.
    assert_eq!((found.interrupted_turns, found.returned_messages), (2, 2), "{found:?}");
    let interrupted = world.entries.iter().any(|entry| {
        matches!(&entry.event, Event::TurnInterrupted(data) if &*data.agent.to_string() == "kid")
    });
    assert!(interrupted);
    assert!(world.prompt("kid").contains("Follow your instructions"), "it starts again");
    let told = world.prompt("lead");
    assert!(told.contains("restarted after a crash") && told.contains("lead/kid"), "{told}");
}

#[test]
fn a_parent_that_asks_again_after_a_crash_gets_the_result_of_a_child_that_completes() {
    let mut world = team(4, &["kid"]);
    let ask = json!({ "recipient": "kid", "text": "finish" });
    world.call("lead", "send_message", &ask);
    world.crash();
    let again = world.call("lead", "send_message", &ask);
    world.call("kid", "check_inbox", &json!({}));
    world.call("kid", "complete", &json!({ "result": "42" }));
    world.complete("kid", "bye");
    assert_eq!(world.result(again).unwrap().unwrap()["text"], "42");
}

#[test]
fn user_is_told_of_a_message_that_an_agent_ended_without() {
    for attended in [false, true] {
        let mut world = team(4, &["kid"]);
        world.complete("lead", "ok");
        let message = world.send("kid", "and this?");
        world.call("kid", "complete", &json!({ "result": "42" }));
        if attended {
            world.attended.insert(message);
        }
        world.complete("kid", "bye");
        let inbox = world.state.user_inbox().iter();
        let told = inbox.filter(|told| told.reply_to == Some(message));
        let told: Vec<_> = told.map(|told| (told.kind, &*told.text)).collect();
        let ended = (Kind::Error, "kid ended before it answered");
        assert_eq!(told, if attended { vec![] } else { vec![ended] });
    }
}

#[test]
fn a_message_is_tried_again_although_its_session_is_about_to_be_resumed() {
    let mut world = World::new(1);
    for name in ["a", "other"] {
        world.create(name);
    }
    world.send("a", "one");
    world.fail("a");
    world.send("other", "work");
    world.finish_suspensions();
    let session = world.agent("a").session.id.to_string();
    world.run(Command::ResumeSession { session }).unwrap();
    world.run(Command::RetryMessages { agent: "a".into(), messages: Vec::new() }).unwrap();
    world.complete("other", "done");
    world.finish_suspensions();
    assert_eq!(world.prompt("a"), "one");
}

#[test]
fn a_tool_call_that_a_crash_cut_off_gets_a_result() {
    let mut world = World::new(4);
    world.run(Command::CreateWorkspace { new: NewWorkspace::named("desk") }).unwrap();
    let workspace = Some("desk".into());
    let agent = NewAgent { name: "a".into(), workspace, ..NewAgent::default() };
    world.run(Command::CreateAgent { agent, parent: None }).unwrap();
    world.send("a", "go");
    let call = world.call("a", "read_file", &json!({ "path": "x" }));
    assert!(world.effects.iter().any(|effect| matches!(effect, Effect::RunTool { .. })));
    assert_eq!(world.crash().orphaned_calls, 1);
    assert_eq!(world.result(call), Some(Err("[Interrupted: outcome unknown]".to_owned())));
    assert!(world.prompt("a").contains("read_file"), "{}", world.prompt("a"));
}

#[test]
fn an_agent_that_keeps_dying_with_the_daemon_is_left_alone() {
    let mut world = World::new(4);
    world.create("a");
    world.send("a", "poison");
    for _ in 0..3 {
        assert!(world.agent("a").turn().is_some());
        world.crash();
    }
    assert!(world.agent("a").turn().is_none());
    let told = &world.state.user_inbox().back().unwrap().text;
    assert!(told.contains("3 times in a row"), "{told}");
}

#[test]
fn recovering_twice_is_recovering_once() {
    let mut world = team(4, &["kid"]);
    world.policy.resume = Resume::None;
    world.complete("lead", "ok");
    world.policy.draining = true; // nothing starts in between
    world.crash();
    let agents: Vec<Agent> = world.state.agents().cloned().collect();
    let found = world.crash();
    assert_eq!(found.interrupted_turns, 0);
    assert!(world.state.agents().eq(agents.iter()));
}

#[test]
fn a_clean_stop_needs_no_recovery() {
    let mut world = World::new(4);
    world.create("a");
    world.run(Command::Stopped).unwrap();
    assert!(world.state.is_clean());
    assert_eq!(world.crash(), Reconciliation::default());
}

#[test]
fn draining_suspends_what_is_idle_and_starts_nothing() {
    let mut world = World::new(4);
    for name in ["a", "b"] {
        world.create(name);
        world.send(name, "1");
    }
    world.complete("a", "x");
    world.policy.draining = true;
    world.run(Command::Drain).unwrap();
    world.finish_suspensions();
    assert_eq!(world.agent("a").session.state, SessionState::Suspended);
    assert_eq!(world.agent("b").session.state, SessionState::Active, "it may finish");
    assert!(matches!(world.run(send("a", "late")), Err(Rejection::Draining)));
    world.complete("b", "x");
    world.finish_suspensions();
    assert!(!world.state.has_live_sessions());
}

#[test]
fn an_answer_that_fits_into_no_message_is_cut_and_a_failure_too() {
    let mut world = World::new(4);
    world.create("a");
    let most = 2 * world.policy.max_text;
    world.send("a", "one");
    world.complete("a", &"x".repeat(most + 5));
    world.send("a", "two");
    let (agent, turn) = (world.agent("a").id, world.agent("a").turn().unwrap().id);
    let end = TurnEnd::Failed { class: FailureClass::Killed, error: "y".repeat(1 << 20) };
    world.run(Command::FinishTurn { agent, turn, end, attended: Vec::new() }).unwrap();
    let mut told = Vec::new();
    for entry in &world.entries {
        match &entry.event {
            Event::TurnNotice(data) => told.push(data.text.clone()),
            Event::TurnComplete(data) => told.push(data.response.to_string()),
            Event::TurnFailed(data) => assert!(data.error.len() < 17 << 10),
            _ => {}
        }
    }
    let notice = format!("its answer has {} bytes, of which {most} are kept", most + 5);
    let kept = format!("{}\n(5 more bytes are left out)", "x".repeat(most));
    assert_eq!(told, [notice, kept]);
}
