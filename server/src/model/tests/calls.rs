//! Repeated and cancelled tool calls.

use serde_json::json;

use super::world::World;
use crate::model::*;

/// A team of two with a running turn of the lead, and one slot or more.
fn team(slots: usize) -> World {
    let mut world = World::new(slots);
    world.create("lead");
    let agent = NewAgent { name: "helper".into(), ..NewAgent::default() };
    let parent = Some("lead".to_owned());
    world.run(Command::CreateAgent { agent, parent }).expect("a helper");
    world.send("lead", "go");
    world
}

fn invoked(world: &World) -> usize {
    let calls = world.entries.iter();
    calls.filter(|entry| matches!(entry.event, Event::ToolCallInvoked(_))).count()
}

fn answered(world: &World, agent: &str, key: &str, fingerprint: &str) -> Option<Answered> {
    let request = Request { id: key.into(), fingerprint: fingerprint.into() };
    world.state.requests_of(Some(world.agent(agent))).answered(&request)
}

/// Cancels a call, as when its caller went away.
fn cancel(world: &mut World, agent: &str, call: CallId) {
    let agent = world.agent(agent).id;
    world.run(Command::CancelCall { agent, call }).expect("never rejected");
}

fn ask() -> serde_json::Value {
    json!({ "recipient": "helper", "text": "?" })
}

#[test]
fn a_repeated_call_has_one_effect_and_one_result() {
    let mut world = team(4);
    let args = json!({ "recipient": "helper", "text": "!", "sync": false });
    let first = world.call_as("lead", "send_message", &args, "one").expect("it is made");
    let result = world.result(first).expect("it returned");
    let at = answered(&world, "lead", "one", &format!("send_message{args}")).expect("noted");
    assert!(matches!(world.entries[at.seq as usize - 1].event, Event::ToolCallResult(_)));
    assert_eq!(world.call_as("lead", "send_message", &args, "one"), Ok(first));
    assert_eq!((invoked(&world), world.result(first)), (1, Some(result)));
    // Also in a later turn, and when none runs.
    world.complete("lead", "done");
    assert_eq!(world.call_as("lead", "send_message", &args, "one"), Ok(first));
    let other = world.call_as("lead", "send_message", &args, "two");
    assert!(matches!(other, Err(Rejection::NoTurn { .. })), "{other:?}");
}

#[test]
fn a_call_with_the_key_of_another_request_is_refused() {
    let mut world = team(4);
    world.call_as("lead", "list_children", &json!({}), "one").expect("it is made");
    let refused = world.call_as("lead", "inspect_agent", &json!({ "name": "helper" }), "one");
    assert_eq!(refused, Err(Rejection::RequestIdReused { id: "one".into() }));
    assert_eq!(invoked(&world), 1);
}

#[test]
fn the_keys_of_user_and_of_each_agent_are_apart() {
    let mut world = team(4);
    world.send("helper", "go");
    let mine = world.call_as("lead", "list_children", &json!({}), "one").expect("it is made");
    let other = world.call_as("helper", "list_children", &json!({}), "one").expect("it is made");
    assert_ne!(mine, other);
    let request = Request { id: "one".into(), fingerprint: "x".into() };
    let sent = world.run_request(super::world::send("lead", "again"), Some(&request));
    assert!(matches!(sent, Ok(Outcome::Message { .. })), "{sent:?}");
}

#[test]
fn a_call_that_died_with_the_daemon_keeps_its_result() {
    let mut world = team(4);
    let call = world.call_as("lead", "send_message", &ask(), "one").expect("it is made");
    let fingerprint = format!("send_message{}", ask());
    assert_eq!(answered(&world, "lead", "one", &fingerprint), None);
    world.crash();
    assert_eq!(world.result(call), Some(Err("[Interrupted: outcome unknown]".into())));
    assert!(answered(&world, "lead", "one", &fingerprint).is_some());
    assert_eq!(world.call_as("lead", "send_message", &ask(), "one"), Ok(call));
    assert_eq!(invoked(&world), 1);
}

#[test]
fn a_key_is_forgotten_when_its_time_is_up_or_its_agent_ends() {
    let mut world = team(4);
    let first = world.call_as("lead", "list_children", &json!({}), "one").expect("it is made");
    world.now = world.now.after(world.policy.request_retention);
    world.call_as("lead", "list_children", &json!({}), "two").expect("it is made");
    let again = world.call_as("lead", "list_children", &json!({}), "one").expect("it is made");
    assert_ne!(again, first);
    let lead = world.agent("lead").id;
    world.run(Command::Terminate { agent: "lead".into(), recursive: true }).expect("it ends");
    assert!(world.state.agent(lead).expect("it is known").requests.is_empty());
}

#[test]
fn a_cancelled_call_ends_its_wait_and_the_turn_goes_on() {
    let mut world = team(4);
    let call = world.call("lead", "send_message", &ask());
    assert!(world.agent("lead").wait().is_some());
    cancel(&mut world, "lead", call);
    assert_eq!(world.result(call), Some(Err("[Cancelled by the caller]".into())));
    let lead = world.agent("lead");
    assert!(lead.wait().is_none() && lead.turn().is_some());
    // The answer comes as a message, and starts another turn.
    world.complete("helper", "late");
    world.complete("lead", "done");
    assert!(world.prompt("lead").contains("late"), "{}", world.prompt("lead"));
}

#[test]
fn a_cancelled_call_returns_when_its_agent_has_a_slot_again() {
    let mut world = team(1);
    let call = world.call("lead", "send_message", &ask());
    world.finish_suspensions();
    assert!(world.agent("helper").turn().is_some(), "it has the slot of the one that waits");
    cancel(&mut world, "lead", call);
    assert_eq!(world.result(call), None);
    cancel(&mut world, "lead", call);
    world.complete("helper", "late");
    world.finish_suspensions();
    assert_eq!(world.result(call), Some(Err("[Cancelled by the caller]".into())));
}

#[test]
fn only_a_wait_is_ended_by_cancelling_a_call() {
    let mut world = World::new(4);
    world.run(Command::CreateWorkspace { new: NewWorkspace::named("desk") }).expect("a desk");
    let workspace = Some("desk".to_owned());
    let agent = NewAgent { name: "lead".into(), workspace, ..NewAgent::default() };
    world.run(Command::CreateAgent { agent, parent: None }).expect("a lead");
    world.send("lead", "go");
    let call = world.call("lead", "read_file", &json!({ "path": "p" }));
    let before = world.state.seq();
    cancel(&mut world, "lead", call);
    cancel(&mut world, "lead", CallId::from_u64(1));
    assert_eq!(world.state.seq(), before);
}

#[test]
fn a_turn_waits_for_one_answer_at_a_time() {
    let mut world = team(4);
    let first = world.call("lead", "send_message", &ask());
    let second = world.call("lead", "send_message", &ask());
    let result = world.result(second).expect("it returned").expect("no error");
    assert_eq!(result["status"], "pending", "{result}");
    assert_eq!(world.result(first), None);
    world.complete("helper", "one");
    let result = world.result(first).expect("it returned").expect("no error");
    assert_eq!(result["status"], "answered", "{result}");
}

#[test]
fn an_agent_is_offered_what_can_work_for_it() {
    let mut world = team(4);
    world.run(Command::CreateWorkspace { new: NewWorkspace::named("desk") }).expect("a desk");
    let workspace = Some("desk".to_owned());
    let agent = NewAgent { name: "clerk".into(), workspace, ..NewAgent::default() };
    world.run(Command::CreateAgent { agent, parent: None }).expect("a clerk");
    let with = |agent: &str, tool: &str, native: bool| {
        offered(world.agent(agent), native).any(|offer| offer.name == tool)
    };
    let offers = |agent: &str, tool: &str| with(agent, tool, false);
    assert!(offers("clerk", "run_command") && !offers("lead", "run_command"));
    assert!(!with("clerk", "run_command", true), "its provider has a shell of its own");
    assert!(with("clerk", "read_file", true));
    for tool in ["broadcast", "complete"] {
        assert!(offers("helper", tool) && !offers("lead", tool) && !offers("clerk", tool));
    }
    for tool in ["list_files", "read_file", "write_file"] {
        assert!(offers("clerk", tool) && !offers("lead", tool) && !offers("helper", tool));
    }
    assert!(offers("lead", "send_message") && offers("helper", "send_message"));
}
