//! What comes between a decision and what it leads to.

use serde_json::json;

use super::scenarios::team;
use super::world::World;
use crate::model::*;

const UNKNOWN: &str = "[Interrupted: outcome unknown]";

fn with_files() -> World {
    let mut world = World::new(4);
    world.run(Command::CreateWorkspace { new: NewWorkspace::named("desk") }).unwrap();
    let workspace = Some("desk".into());
    let agent = NewAgent { name: "a".into(), workspace, ..NewAgent::default() };
    world.run(Command::CreateAgent { agent, parent: None }).unwrap();
    world.send("a", "go");
    world
}

fn retry(world: &mut World, agent: &str) {
    let (agent, turn) = (world.agent(agent).id, world.turn(agent));
    let (class, error) = (FailureClass::Transient, "busy".to_owned());
    let (attempt, delay_ms, provider) = (2, 500, None);
    world
        .run(Command::RetryTurn { agent, turn, attempt, delay_ms, class, error, provider })
        .unwrap();
}

#[test]
fn nothing_is_done_for_a_call_that_is_refused() {
    let mut world = with_files();
    let (agent, turn) = (world.agent("a").id, world.turn("a"));
    let is_done =
        |effect: &Effect| matches!(effect, Effect::RunTool { .. } | Effect::Inspect { .. });
    for objection in [Some(Rejection::Draining), None] {
        let refused = objection.is_some();
        let call = CallId::from_u64(refused.into());
        let args = Json::of(&json!({ "command": "touch here" })).unwrap();
        let tool = "run_command".into();
        world.effects.clear();
        let turn = Some(turn);
        world.run(Command::CallTool { agent, turn, call, tool, args, objection }).unwrap();
        assert_eq!(world.result(call).is_some(), refused);
        assert_eq!(world.effects.iter().any(is_done), !refused, "{:?}", world.effects);
    }
}

#[test]
fn a_turn_that_is_tried_again_waits_no_more_and_hears_the_answer_as_a_message() {
    let mut world = team(4, &["kid"]);
    let call = world.call("lead", "send_message", &json!({ "recipient": "kid", "text": "?" }));
    assert!(world.agent("lead").is_waiting());
    retry(&mut world, "lead");
    assert!(!world.agent("lead").is_waiting());
    assert_eq!(world.result(call), Some(Err(UNKNOWN.to_owned())));
    let (agent, turn) = (world.agent("lead").id, world.turn("lead"));
    world.run(Command::StartAttempt { agent, turn }).unwrap();
    world.complete("kid", "seven");
    let collected = world.entries.iter().any(|e| matches!(e.event, Event::MessageCollected(_)));
    assert!(!collected, "no call took it");
    world.complete("lead", "done");
    assert!(world.prompt("lead").contains("seven"), "{}", world.prompt("lead"));
}

#[test]
fn nothing_is_called_between_two_attempts() {
    let mut world = with_files();
    retry(&mut world, "a");
    let (agent, turn) = (world.agent("a").id, world.turn("a"));
    let call = |world: &mut World, id| {
        let (call, tool) = (CallId::from_u64(id), "list_files".into());
        let args = Json::of(&json!({})).unwrap();
        let turn = Some(turn);
        world.run(Command::CallTool { agent, turn, call, tool, args, objection: None })
    };
    assert!(matches!(call(&mut world, 1), Err(Rejection::NoTurn { .. })));
    world.run(Command::StartAttempt { agent, turn }).unwrap();
    assert_eq!(world.entries.last().unwrap().event.name(), "turn.attempt");
    call(&mut world, 2).unwrap();
}

#[test]
fn a_turn_that_is_cancelled_is_not_tried_again() {
    let mut world = with_files();
    world.run(Command::CancelTurn { agent: "a".into(), turn: None }).unwrap();
    let before = world.state.seq();
    retry(&mut world, "a");
    let (agent, turn) = (world.agent("a").id, world.turn("a"));
    world.run(Command::StartAttempt { agent, turn }).unwrap();
    assert_eq!(world.state.seq(), before);
}

#[test]
fn an_answer_that_a_call_goes_on_with_is_read_once() {
    let mut world = team(1, &["kid"]);
    let call = world.call("lead", "send_message", &json!({ "recipient": "kid", "text": "?" }));
    world.complete("kid", "seven");
    assert_eq!(world.result(call), None, "there is no slot yet");
    let found = world.call("lead", "check_inbox", &json!({}));
    assert_eq!(world.result(found).unwrap().unwrap()["messages"], json!([]));
    world.finish_suspensions();
    assert_eq!(world.result(call).unwrap().unwrap()["text"], "seven");
}
