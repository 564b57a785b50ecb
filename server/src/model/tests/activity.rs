//! What backends do, as it stands in the log.

use super::world::World;
use crate::model::*;

fn busy() -> World {
    let mut world = World::new(3);
    world.create("worker");
    world.send("worker", "go");
    world
}

fn tell(world: &mut World, told: Told) {
    let (agent, turn) = (world.agent("worker").id, world.turn("worker"));
    world.run(Command::TellTurn { agent, turn, told }).expect("never rejected");
}

fn start(world: &mut World, id: &str, input: Json) {
    tell(world, Told::UseStarted { id: id.into(), tool: "Bash".into(), input });
}

fn end(world: &mut World, id: &str, output: &str) {
    tell(world, Told::UseEnded { id: id.into(), ok: true, output: output.to_owned() });
}

fn names(world: &World) -> Vec<&'static str> {
    world.entries.iter().map(|entry| entry.event.name()).collect()
}

fn count(world: &World, name: &str) -> usize {
    names(world).iter().filter(|known| **known == name).count()
}

#[test]
fn arguments_stay_json_and_what_is_cut_is_said() {
    let mut world = busy();
    start(&mut world, "a", Json::of(&"x".repeat(20_000)).unwrap());
    end(&mut world, "a", &"ö".repeat(20_000));
    let found = |event: &Event| match event {
        Event::ToolUseStarted(data) => Some(data.input.get().to_owned()),
        Event::ToolUseEnded(data) => Some(data.output.clone()),
        _ => None,
    };
    let found: Vec<String> = world.entries.iter().filter_map(|entry| found(&entry.event)).collect();
    assert_eq!(found[0], "\"(20002 bytes are left out)\"");
    assert!(found[1].ends_with("\n(23616 more bytes are left out)"), "{}", &found[1][16_000..]);
}

#[test]
fn a_use_is_logged_once_and_ends_with_its_turn() {
    let mut world = busy();
    start(&mut world, "a", Json::null());
    start(&mut world, "a", Json::null());
    end(&mut world, "b", "");
    world.fail("worker");
    world.send("worker", "again");
    end(&mut world, "a", "");
    assert_eq!((count(&world, "tool_use.started"), count(&world, "tool_use.ended")), (1, 1));
    assert!(world.entries.iter().any(|entry| matches!(
        &entry.event,
        Event::ToolUseEnded(data) if !data.ok && data.output == "[Interrupted: outcome unknown]"
    )));
}

#[test]
fn so_many_uses_and_notices_are_logged_and_then_one_notice() {
    let mut world = busy();
    for number in 0..5001 {
        // Of a turn that is that long, only what is told of it is looked at.
        let (agent, turn) = (world.agent("worker").id, world.turn("worker"));
        let (id, tool) = (format!("{number}").into(), "Bash".into());
        let told = Told::UseStarted { id, tool, input: Json::null() };
        world.skim(Command::TellTurn { agent, turn, told });
        let (id, output) = (format!("{number}").into(), String::new());
        let told = Told::UseEnded { id, ok: true, output };
        world.skim(Command::TellTurn { agent, turn, told });
    }
    for _ in 0..200 {
        let (agent, turn) = (world.agent("worker").id, world.turn("worker"));
        world.skim(Command::TellTurn { agent, turn, told: Told::Notice("n".to_owned()) });
    }
    assert_eq!((count(&world, "tool_use.started"), count(&world, "tool_use.ended")), (5000, 5000));
    let notices = world.entries.iter().filter_map(|entry| match &entry.event {
        Event::TurnNotice(data) => Some(data.text.clone()),
        _ => None,
    });
    let notices: Vec<String> = notices.collect();
    assert_eq!(notices.len(), 100);
    assert!(notices[0].contains("further uses are not logged"));
    assert!(notices[99].contains("further notices of this turn are not logged"));
}

#[test]
fn a_state_is_saved_at_once_if_it_is_new() {
    let mut world = busy();
    tell(&mut world, Told::Saved(Blob::from(vec![1])));
    tell(&mut world, Told::Saved(Blob::from(vec![1])));
    assert_eq!(count(&world, "session.saved"), 1);
    world.fail("worker");
    assert_eq!(world.agent("worker").session.saved, Some(Blob::from(vec![1])));
}

#[test]
fn silence_is_over_with_the_next_event() {
    let mut world = busy();
    start(&mut world, "a", Json::null());
    tell(&mut world, Told::Stalled(10_000));
    let stall = |world: &World| world.agent("worker").turn().unwrap().backend.stall.clone();
    assert_eq!(stall(&world).unwrap().tool.as_deref(), Some("Bash"));
    end(&mut world, "a", "");
    assert_eq!(stall(&world), None);
}

#[test]
fn the_first_answer_counts_and_a_later_one_is_refused() {
    let mut world = busy();
    let agent = world.agent("worker").clone();
    let asked = world.ask(&agent, false);
    assert_eq!(world.answer("worker", None), Ok(Outcome::Permission(asked)));
    for named in [None, Some(asked)] {
        let late = world.answer("worker", named);
        assert!(matches!(late, Err(Rejection::PermissionNotOpen { .. })), "{late:?}");
    }
    let (first, second) = (world.ask(&agent, false), world.ask(&agent, false));
    let unclear = world.answer("worker", None);
    assert!(matches!(unclear, Err(Rejection::PermissionAmbiguous { .. })), "{unclear:?}");
    assert!(world.answer("worker", Some(second)).is_ok());
    world.complete("worker", "done");
    assert_eq!(count(&world, "permission.withdrawn"), 1, "the turn ended over {first}");
    assert!(world.answer("worker", Some(first)).is_err());
}

#[test]
fn one_question_more_than_may_be_open_is_denied() {
    let mut world = busy();
    let agent = world.agent("worker").clone();
    for _ in 0..64 {
        world.ask(&agent, false);
    }
    assert_eq!(count(&world, "permission.answered"), 0);
    world.ask(&agent, false);
    let denied = world.entries.last().expect("events").event.clone();
    assert!(matches!(denied, Event::PermissionAnswered(data)
        if data.decision == Permit::Deny && data.by == AnsweredBy::Policy));
}

#[test]
fn a_turn_that_asks_too_much_is_denied_without_an_event() {
    let mut world = busy();
    let asked = |world: &mut World| {
        let agent = world.agent("worker").clone();
        world.ask(&agent, true);
    };
    for _ in 0..1000 {
        asked(&mut world);
    }
    let notices = world.entries.iter().filter_map(|entry| match &entry.event {
        Event::TurnNotice(data) => Some(data.text.clone()),
        _ => None,
    });
    let notices: Vec<String> = notices.collect();
    assert_eq!(notices, ["asked 1000 times; what it asks further is denied"]);
    let before = world.entries.len();
    asked(&mut world);
    assert_eq!(world.entries.len(), before);
    let (agent, id) = (world.agent("worker").clone(), PermissionId::from_u64(1));
    let turn = world.turn("worker");
    let (tool, input) = ("Bash".into(), Json::null());
    let asked = Permission { id, use_id: None, tool, input, options: Vec::new() };
    let command = Command::AskPermission { agent: agent.id, turn, asked, policy: None };
    assert_eq!(world.run(command), Ok(Outcome::Denied));
}

#[test]
fn a_message_that_the_turn_takes_in_is_answered_with_it_and_comes_once() {
    let mut world = busy();
    let steer = |text: &str| Command::SendMessage {
        agent: "worker".into(),
        text: text.into(),
        metadata: [("steer".to_owned(), "now".to_owned())].into(),
    };
    world.effects.clear();
    let Ok(Outcome::Message { message, .. }) = world.run(steer("faster")) else { panic!("sent") };
    let turn = world.turn("worker");
    let wanted = |effect: &Effect| matches!(effect, Effect::AddToTurn { turn: of, text, .. } if *of == turn && &**text == "faster");
    assert!(world.effects.iter().any(wanted), "{:?}", world.effects);
    for _ in 0..2 {
        tell(&mut world, Told::TookIn { message, text: "faster".into() });
    }
    assert_eq!(count(&world, "message.collected"), 1);
    world.complete("worker", "done");
    assert_eq!(count(&world, "message.delivered"), 2);
    assert_eq!(count(&world, "turn.start"), 1);
    // Without a turn it begins one, as any message does; one that was not taken in comes next.
    world.run(steer("again")).unwrap();
    world.run(steer("and this")).unwrap();
    world.complete("worker", "done");
    assert_eq!(world.prompt("worker"), "and this");
}
