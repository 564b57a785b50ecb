//! Turns that USER cancels, at each moment of their lives. The world judges after each step that
//! every call has one result, in its own turn.

use serde_json::json;

use super::scenarios::team;
use super::world::World;
use crate::model::*;

const ABORTED: &str = "[Aborted by user]";

fn aborted() -> Option<Result<serde_json::Value, String>> {
    Some(Err(ABORTED.to_owned()))
}

/// An agent whose turn has a file tool at work.
fn in_a_file_tool() -> (World, CallId) {
    let mut world = World::new(4);
    world.run(Command::CreateWorkspace { new: NewWorkspace::named("desk") }).unwrap();
    let workspace = Some("desk".into());
    let agent = NewAgent { name: "a".into(), workspace, ..NewAgent::default() };
    world.run(Command::CreateAgent { agent, parent: None }).unwrap();
    world.send("a", "go");
    let call = world.call("a", "read_file", &json!({ "path": "x" }));
    assert_eq!(world.result(call), None);
    (world, call)
}

fn cancel(world: &mut World, agent: &str) {
    world.run(Command::CancelTurn { agent: agent.into(), turn: None }).unwrap();
}

fn end(world: &mut World, agent: &str, end: TurnEnd) {
    let (agent, turn) = (world.agent(agent).id, world.turn(agent));
    world.run(Command::FinishTurn { agent, turn, end, attended: Vec::new() }).unwrap();
}

fn last(world: &World) -> &'static str {
    world.entries.iter().rfind(|entry| entry.event.ends_turn()).unwrap().event.name()
}

#[test]
fn a_call_that_is_open_when_its_turn_is_cancelled_is_aborted() {
    let (mut world, call) = in_a_file_tool();
    cancel(&mut world, "a");
    assert_eq!(world.result(call), None, "it may still come to something");
    end(&mut world, "a", TurnEnd::Cancelled);
    assert_eq!(world.result(call), aborted());
    assert_eq!(last(&world), "turn.cancelled");
}

#[test]
fn a_call_that_comes_back_between_cancel_and_end_keeps_its_result() {
    let (mut world, call) = in_a_file_tool();
    cancel(&mut world, "a");
    let (agent, turn) = (world.agent("a").id, world.turn("a"));
    let result = Ok(Json::null());
    world.run(Command::FinishTool { agent, turn, call, result }).unwrap();
    end(&mut world, "a", TurnEnd::Cancelled);
    assert_eq!(world.result(call), Some(Ok(json!(null))));
}

#[test]
fn a_cancelled_turn_that_ends_in_another_way_aborts_its_calls_too() {
    let (mut world, call) = in_a_file_tool();
    cancel(&mut world, "a");
    end(&mut world, "a", TurnEnd::Completed { response: "done".into(), saved: Saved::Unchanged });
    assert_eq!((world.result(call), last(&world)), (aborted(), "turn.complete"));
    let (mut world, call) = in_a_file_tool();
    cancel(&mut world, "a");
    let session = world.agent("a").session.id;
    let (reason, attended) = ("panicked".to_owned(), Vec::new());
    world.run(Command::Crash { session, reason, attended }).unwrap();
    assert_eq!((world.result(call), last(&world)), (aborted(), "turn.cancelled"));
    assert!(world.agent("a").inbox.is_empty(), "USER's message is withdrawn");
}

#[test]
fn a_turn_that_fails_over_its_cancel_is_cancelled() {
    let failed = || TurnEnd::Failed { class: FailureClass::Permanent, error: "no".into() };
    let (mut world, call) = in_a_file_tool();
    let (agent, turn) = (world.agent("a").id, world.turn("a"));
    world.run(Command::FinishTool { agent, turn, call, result: Ok(Json::null()) }).unwrap();
    cancel(&mut world, "a");
    // The next call is refused, and its backend throws that.
    let again = Command::CallTool {
        agent,
        turn: Some(turn),
        call: CallId::from_u64(1),
        tool: "list_files".into(),
        args: Json::of(&json!({})).unwrap(),
        objection: None,
    };
    let refused = world.run(again).unwrap_err();
    assert!(matches!(refused, Rejection::NoTurn { .. }), "{refused}");
    end(&mut world, "a", failed());
    assert_eq!(last(&world), "turn.cancelled");
    assert!(world.agent("a").inbox.is_empty(), "USER's message is withdrawn");

    // One that the daemon asked to end starts again.
    let (mut world, _) = in_a_file_tool();
    world.run(Command::CancelAll).unwrap();
    end(&mut world, "a", failed());
    assert_eq!(last(&world), "turn.interrupted");
}

#[test]
fn a_file_tool_that_comes_back_after_the_end_changes_nothing() {
    let (mut world, call) = in_a_file_tool();
    cancel(&mut world, "a");
    let (agent, turn) = (world.agent("a").id, world.turn("a"));
    end(&mut world, "a", TurnEnd::Cancelled);
    world.send("a", "again");
    assert_ne!(world.turn("a"), turn, "another turn runs");
    let before = world.state.seq();
    let result = Ok(Json::null());
    world.run(Command::FinishTool { agent, turn, call, result }).unwrap();
    assert_eq!((world.state.seq(), world.result(call)), (before, aborted()));
}

#[test]
fn a_call_that_waits_for_an_answer_is_aborted_at_once() {
    let mut world = team(4, &["kid"]);
    let call = world.call("lead", "send_message", &json!({ "recipient": "kid", "text": "?" }));
    assert_eq!(world.result(call), None);
    cancel(&mut world, "lead");
    assert_eq!(world.result(call), aborted());
    end(&mut world, "lead", TurnEnd::Cancelled);
    assert_eq!(last(&world), "turn.cancelled");
}

#[test]
fn cancelling_before_the_first_call_or_twice_is_cancelling_once() {
    let mut world = World::new(4);
    world.create("a");
    world.send("a", "go");
    cancel(&mut world, "a");
    let once = world.state.seq();
    cancel(&mut world, "a");
    assert_eq!(world.state.seq(), once);
    end(&mut world, "a", TurnEnd::Cancelled);
    assert!(world.agent("a").inbox.is_empty(), "USER's message is withdrawn");
}

#[test]
fn cancelling_while_a_turn_is_tried_again_cancels_it() {
    let (mut world, call) = in_a_file_tool();
    let (agent, turn) = (world.agent("a").id, world.turn("a"));
    let class = FailureClass::Transient;
    let error = "no".to_owned();
    world
        .run(Command::RetryTurn {
            agent,
            turn,
            attempt: 2,
            delay_ms: 500,
            class,
            error,
            provider: None,
        })
        .unwrap();
    let unknown = Some(Err("[Interrupted: outcome unknown]".to_owned()));
    assert_eq!(world.result(call), unknown, "nobody had cancelled it yet");
    cancel(&mut world, "a");
    end(&mut world, "a", TurnEnd::Cancelled);
    assert_eq!((world.result(call), last(&world)), (unknown, "turn.cancelled"));
}

#[test]
fn a_turn_that_was_cancelled_before_the_daemon_died_does_not_come_again() {
    let (mut world, call) = in_a_file_tool();
    cancel(&mut world, "a");
    let found = world.crash();
    assert_eq!((found.interrupted_turns, found.orphaned_calls), (0, 0), "{found:?}");
    assert_eq!((world.result(call), last(&world)), (aborted(), "turn.cancelled"));
    let agent = world.agent("a");
    assert!(agent.turn().is_none() && agent.inbox.is_empty(), "{agent:?}");
}

#[test]
fn a_cancelled_root_is_not_told_that_it_was_interrupted() {
    let mut world = team(4, &["kid"]);
    world.call("lead", "send_message", &json!({ "recipient": "kid", "text": "?" }));
    cancel(&mut world, "lead");
    world.crash();
    let told = world.prompt("lead");
    assert!(told.contains("lead/kid") && !told.contains("Your turn"), "{told}");
}

#[test]
fn a_turn_that_the_daemon_asked_to_end_can_still_be_cancelled() {
    let (mut world, call) = in_a_file_tool();
    world.run(Command::CancelAll).unwrap();
    cancel(&mut world, "a");
    end(&mut world, "a", TurnEnd::Cancelled);
    assert_eq!((world.result(call), last(&world)), (aborted(), "turn.cancelled"));
    assert!(world.agent("a").turn().is_none(), "it does not start again");
}
