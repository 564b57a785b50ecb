//! Messages that a backend refuses, and what USER does about them.

use serde_json::json;

use super::scenarios::team;
use super::world::{World, send};
use crate::model::*;

/// The backend refuses the running turn.
fn refuse(world: &mut World, agent: &str) {
    fail(world, agent, FailureClass::Overflow);
}

fn fail(world: &mut World, reference: &str, class: FailureClass) {
    let (agent, turn) = (world.agent(reference).id, world.turn(reference));
    let attended = Vec::new();
    let end = TurnEnd::Failed { class, error: "no".into() };
    world.run(Command::FinishTurn { agent, turn, end, attended }).expect("never rejected");
}

fn retry(world: &mut World, messages: &[MessageId]) -> Result<Outcome, Rejection> {
    world.run(Command::RetryMessages { agent: "a".into(), messages: messages.to_vec() })
}

fn discard(world: &mut World, messages: &[MessageId]) -> Result<Outcome, Rejection> {
    world.run(Command::DiscardMessages { agent: "a".into(), messages: messages.to_vec() })
}

fn in_turn(world: &World) -> Vec<MessageId> {
    world.agent("a").turn().map(|turn| turn.messages.clone()).unwrap_or_default()
}

fn set_aside(world: &World) -> Vec<MessageId> {
    let inbox = &world.agent("a").inbox;
    inbox.iter().filter(|message| message.set_aside).map(|message| message.id).collect()
}

#[test]
fn a_message_that_is_refused_twice_keeps_no_other_from_being_read() {
    let mut world = World::new(4);
    world.create("a");
    let long = world.send("a", "far too long");
    refuse(&mut world, "a");
    assert!(world.agent("a").turn().is_none() && set_aside(&world).is_empty());
    let short = world.send("a", "short");
    assert_eq!(in_turn(&world), [long], "what may be refused again is alone");
    assert_eq!(world.prompt("a"), "far too long");
    refuse(&mut world, "a");
    assert_eq!((set_aside(&world), in_turn(&world)), (vec![long], vec![short]));
    world.complete("a", "read");
    assert!(world.agent("a").turn().is_none(), "it is in no turn any more");
    let last = world.state.user_inbox().back().map(|message| message.text.to_string());
    assert_eq!(last.as_deref(), Some("read"));
    let told = world.state.user_inbox().iter().any(|message| message.text.contains("set aside"));
    assert!(told, "USER is told what is set aside: {:?}", world.state.user_inbox());
}

#[test]
fn messages_that_are_too_long_only_together_are_read_one_by_one() {
    let mut world = World::new(4);
    world.create("a");
    world.run(Command::Gate { agent: "a".into() }).unwrap();
    let [one, two] = ["one", "two"].map(|text| world.send("a", text));
    world.run(Command::Ungate { agent: "a".into() }).unwrap();
    assert_eq!(in_turn(&world), [one, two]);
    refuse(&mut world, "a");
    let three = world.send("a", "three");
    for message in [one, two, three] {
        assert_eq!(in_turn(&world), [message]);
        world.complete("a", "read");
    }
    assert!(world.agent("a").inbox.is_empty());
}

#[test]
fn a_turn_that_fails_otherwise_is_not_started_again_for_what_waits_behind_it() {
    let mut world = World::new(4);
    world.create("a");
    let long = world.send("a", "far too long");
    refuse(&mut world, "a");
    let short = world.send("a", "short");
    world.attended.insert(short);
    fail(&mut world, "a", FailureClass::Network);
    assert!(world.agent("a").turn().is_none(), "or it would be started for ever");
    let end = world.entries.iter().rev().find_map(|entry| match &entry.event {
        Event::TurnFailed(data) => Some(data.messages.clone()),
        _ => None,
    });
    assert_eq!(end, Some(vec![long, short]), "who waits for either is told");
    let third = world.send("a", "third");
    assert_eq!(in_turn(&world), [long]);
    world.complete("a", "read after all");
    assert_eq!(in_turn(&world), [short, third]);
}

#[test]
fn an_agent_is_told_what_it_will_not_read_of_another() {
    let mut world = team(4, &["kid"]);
    world.complete("lead", "ok");
    let tell = json!({ "recipient": "parent", "text": "far too long", "sync": false });
    world.call("kid", "send_message", &tell);
    refuse(&mut world, "lead");
    world.send("lead", "go on");
    refuse(&mut world, "lead");
    let prompt = world.prompt("lead");
    assert!(prompt.contains("12 bytes) is set aside: 2 turns with it were refused"), "{prompt}");
    assert!(prompt.contains("ask kid for it in another form"), "{prompt}");
    while world.agent("lead").turn().is_some() {
        refuse(&mut world, "lead");
    }
    let turns = world.agent("lead").turns;
    assert!(turns.failed < 8, "a backend that refuses all is not asked for ever: {turns:?}");
}

#[test]
fn what_is_set_aside_can_be_tried_again_or_discarded() {
    let mut world = World::new(4);
    world.create("a");
    let [one, two] = ["one", "two"].map(|text| {
        let message = world.send("a", text);
        refuse(&mut world, "a");
        message
    });
    // The second came while the first was to be tried again, alone.
    assert_eq!((set_aside(&world), in_turn(&world)), (vec![one], vec![two]));
    refuse(&mut world, "a");
    assert!(in_turn(&world).is_empty());
    retry(&mut world, &[one]).unwrap();
    assert_eq!((set_aside(&world), in_turn(&world)), (vec![], vec![one]));
    let refused = discard(&mut world, &[one]).unwrap_err();
    assert!(matches!(refused, Rejection::MessageNotFound { taken: true, .. }), "{refused}");
    discard(&mut world, &[two]).unwrap();
    world.complete("a", "read");
    assert!(world.agent("a").inbox.is_empty());
    for message in [&[][..], &[one]] {
        let refused = retry(&mut world, message).unwrap_err();
        assert!(matches!(refused, Rejection::MessageNotFound { taken: false, .. }), "{refused}");
    }
}

#[test]
fn a_retry_starts_a_turn_after_any_failure() {
    let mut world = World::new(4);
    world.create("a");
    let message = world.send("a", "hello");
    fail(&mut world, "a", FailureClass::Auth);
    assert!(in_turn(&world).is_empty());
    retry(&mut world, &[message]).unwrap();
    assert_eq!(in_turn(&world), [message]);
}

#[test]
fn what_is_retried_while_a_turn_runs_is_tried_however_that_ends() {
    let mut world = World::new(4);
    world.create("a");
    let long = world.send("a", "far too long");
    refuse(&mut world, "a");
    let short = world.send("a", "short");
    refuse(&mut world, "a");
    assert_eq!((set_aside(&world), in_turn(&world)), (vec![long], vec![short]));
    retry(&mut world, &[long]).unwrap();
    fail(&mut world, "a", FailureClass::Network);
    assert_eq!(in_turn(&world), [long, short]);
}

#[test]
fn a_message_that_is_discarded_before_its_turn_starts_none_and_its_sender_is_told() {
    let mut world = team(4, &["kid"]);
    world.complete("lead", "ok");
    world.run(Command::Gate { agent: "lead".into() }).unwrap();
    world.call("kid", "send_message", &json!({ "recipient": "parent", "text": "?" }));
    let asked = world.agent("lead").inbox[0].id;
    let messages = vec![asked];
    world.run(Command::DiscardMessages { agent: "lead".into(), messages }).unwrap();
    world.run(Command::Ungate { agent: "lead".into() }).unwrap();
    assert!(world.agent("lead").turn().is_none(), "there is nothing to read");
    assert!(world.agent("kid").wait().is_none(), "who was asked for an answer does not wait");
    let told = world.entries.iter().any(|entry| match &entry.event {
        Event::ToolCallResult(data) => {
            data.error.as_deref().is_some_and(|error| error.contains("USER discarded"))
        }
        _ => false,
    });
    assert!(told);
}

#[test]
fn the_answer_that_a_turn_is_about_to_read_cannot_be_discarded() {
    let mut world = team(1, &["kid"]);
    world.complete("lead", "ok");
    world.finish_suspensions();
    world.complete("kid", "x");
    world.run(send("lead", "go")).unwrap();
    world.finish_suspensions();
    world.call("lead", "send_message", &json!({ "recipient": "kid", "text": "?" }));
    world.finish_suspensions();
    world.create("other");
    world.complete("kid", "the answer");
    let lead = world.agent("lead");
    if lead.wait().is_some() {
        let messages: Vec<MessageId> = lead.inbox.iter().map(|message| message.id).collect();
        for message in messages {
            let messages = vec![message];
            let refused = world.run(Command::DiscardMessages { agent: "lead".into(), messages });
            assert!(matches!(refused, Err(Rejection::MessageNotFound { .. })), "{refused:?}");
        }
    }
    world.finish_suspensions();
    assert!(world.agent("lead").wait().is_none(), "it goes on with the answer");
}

#[test]
fn a_message_that_fails_alone_in_another_way_is_set_aside_too() {
    for class in [FailureClass::Permanent, FailureClass::Killed, FailureClass::Stalled] {
        let mut world = World::new(4);
        world.create("a");
        let bad = world.send("a", "bad");
        refuse(&mut world, "a");
        let good = world.send("a", "good");
        fail(&mut world, "a", class);
        assert_eq!((set_aside(&world), in_turn(&world)), (vec![bad], vec![good]), "{class:?}");
    }
}

#[test]
fn a_provider_that_stands_in_blames_no_message() {
    let mut world = World::new(4);
    world.create("a");
    for (own, refusals) in [(FailureClass::Network, 0), (FailureClass::Overflow, 1)] {
        world.send("a", "hello");
        let (agent, turn) = (world.agent("a").id, world.turn("a"));
        let (error, provider) = ("no".to_owned(), Some("other".into()));
        let class = own;
        let (attempt, delay_ms) = (2, 0);
        let next = Command::RetryTurn { agent, turn, attempt, delay_ms, class, error, provider };
        world.run(next).unwrap();
        let last = if refusals == 0 { FailureClass::Overflow } else { FailureClass::Permanent };
        fail(&mut world, "a", last);
        assert_eq!(world.agent("a").inbox[0].refusals, refusals, "{own:?}");
    }
}

#[test]
fn what_is_set_aside_takes_no_room_and_stops_no_reminder() {
    let mut world = team(4, &["kid"]);
    world.complete("lead", "ok");
    world.complete("kid", "ok");
    world.send("kid", "work");
    world.call("kid", "remind_me", &json!({ "reason": "tea", "after": 1, "every": 60 }));
    world.complete("kid", "ok");
    let pass = |world: &mut World, seconds| {
        world.now = world.now.after(std::time::Duration::from_secs(seconds));
        world.run(Command::Tick).unwrap();
    };
    pass(&mut world, 1);
    refuse(&mut world, "kid");
    world.run(Command::RetryMessages { agent: "kid".into(), messages: Vec::new() }).unwrap();
    refuse(&mut world, "kid");
    world.send("kid", "go on");
    refuse(&mut world, "kid");
    let aside =
        |world: &World| world.agent("kid").inbox.iter().filter(|message| message.set_aside).count();
    assert_eq!(aside(&world), 1, "the reminder is");
    world.complete("kid", "gone on");
    pass(&mut world, 120);
    assert!(world.prompt("kid").contains("tea"), "it comes again");
    world.complete("kid", "ok");
    world.policy.max_inbox = 1;
    world.send("kid", "there is room");
}

#[test]
fn whoever_asked_is_answered_when_a_message_is_tried_again() {
    let mut world = team(4, &["kid"]);
    world.complete("lead", "ok");
    world.complete("kid", "ok");
    world.send("lead", "go");
    world.call("lead", "send_message", &json!({ "recipient": "kid", "text": "?" }));
    refuse(&mut world, "kid");
    world.complete("lead", "it failed");
    world.run(Command::RetryMessages { agent: "kid".into(), messages: Vec::new() }).unwrap();
    world.complete("kid", "the answer");
    assert!(world.prompt("lead").contains("the answer"), "{}", world.prompt("lead"));
}

#[test]
fn who_was_poked_can_be_poked_again_when_the_first_is_set_aside() {
    let mut world = team(4, &["kid"]);
    world.complete("lead", "ok");
    world.complete("kid", "ok");
    world.send("lead", "go");
    let poke = |world: &mut World| {
        let call = world.call("lead", "poke", &json!({ "agent_name": "kid" }));
        world.result(call).unwrap().unwrap()["status"].clone()
    };
    assert_eq!(poke(&mut world), "poked");
    refuse(&mut world, "kid");
    world.send("kid", "work");
    refuse(&mut world, "kid");
    world.complete("kid", "worked");
    assert_eq!(world.agent("kid").inbox.iter().filter(|message| message.set_aside).count(), 1);
    assert_eq!(poke(&mut world), "poked");
    assert!(world.prompt("kid").contains("pokes you"));
}
