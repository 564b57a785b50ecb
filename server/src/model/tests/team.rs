//! What agents do with each other through their tools, case by case.

use std::time::Duration;

use serde_json::{Value, json};

use super::scenarios::team;
use super::world::World;
use crate::model::*;

/// A team whose members have had their first turns.
fn settled(names: &[&str]) -> World {
    let mut world = team(16, names);
    world.complete("lead", "ok");
    for name in names {
        world.complete(name, "ready");
    }
    world
}

impl World {
    fn done(&mut self, agent: &str, tool: &str, args: &Value) -> Value {
        let call = self.call(agent, tool, args);
        self.result(call).expect("it is done at once").expect("it is no error")
    }

    fn refused(&mut self, agent: &str, tool: &str, args: &Value) -> String {
        let before: Vec<Agent> = self.state.agents().cloned().collect();
        let call = self.call(agent, tool, args);
        let error = self.result(call).expect("it is over").expect_err("it is refused");
        for (was, is) in before.iter().zip(self.state.agents()) {
            let same = (&was.inbox, &was.reminders, &was.subscriptions, &was.gate, &was.metadata)
                == (&is.inbox, &is.reminders, &is.subscriptions, &is.gate, &is.metadata);
            assert!(same, "nothing is half done");
        }
        error
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now.after(Duration::from_secs(seconds));
        self.run(Command::Tick).expect("never rejected");
    }

    fn unread(&self, agent: &str) -> Vec<String> {
        self.agent(agent).unread().map(|message| message.text.to_string()).collect()
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().expect("text")
}

#[test]
fn answers_to_a_broadcast_are_collected_and_told_together() {
    let mut world = settled(&["a", "b", "c"]);
    world.send("lead", "wake a");
    world.done("lead", "poke", &json!({ "agent_name": "a" }));
    world.complete("lead", "ok");
    world.done("a", "broadcast", &json!({ "text": "who is there?" }));
    world.complete("a", "asked");
    assert_eq!(world.agent("a").doing(), Doing::Waiting);
    world.complete("b", "b is");
    assert!(world.agent("a").turn().is_none(), "one answer of two starts no turn");
    world.crash();
    world.complete("c", "c is");
    let prompt = world.prompt("a");
    for part in ["b is", "c is", "2 of 2 have answered your broadcast"] {
        assert!(prompt.contains(part), "{prompt}");
    }
    world.complete("a", "done");
    assert_eq!(world.agent("a").doing(), Doing::Idle);
}

#[test]
fn a_broadcast_is_over_when_its_time_is_up() {
    let mut world = settled(&["a", "b", "c"]);
    world.run(Command::Gate { agent: "lead/c".into() }).unwrap();
    world.send("a", "go");
    world.done("a", "broadcast", &json!({ "text": "?", "timeout": 30 }));
    world.complete("a", "asked");
    world.complete("b", "b is");
    world.pass(29);
    assert!(world.agent("a").turn().is_none());
    world.pass(2);
    let prompt = world.prompt("a");
    assert!(prompt.contains("1 of 2 have answered your broadcast; no answer in time from c"));
    world.complete("a", "done");
    world.run(Command::Ungate { agent: "lead/c".into() }).unwrap();
    world.complete("c", "late");
    assert!(world.prompt("a").contains("late"), "a late answer comes as a message");
}

#[test]
fn who_ends_counts_as_having_answered() {
    let mut world = settled(&["a", "b"]);
    world.send("a", "go");
    world.done("a", "broadcast", &json!({ "text": "?" }));
    world.complete("a", "asked");
    world.run(Command::Terminate { agent: "lead/b".into(), recursive: false }).unwrap();
    let prompt = world.prompt("a");
    assert!(prompt.contains("Error from b"), "{prompt}");
    assert!(prompt.contains("0 of 1 have answered your broadcast; failed: b"), "{prompt}");
}

#[test]
fn a_request_is_answered_within_the_turn_once() {
    let mut world = settled(&["kid"]);
    world.send("lead", "go");
    let call = world.call("lead", "send_message", &json!({ "recipient": "kid", "text": "?" }));
    let asked = world.agent("kid").turn().unwrap().messages[0].to_string();
    let reply = json!({ "recipient": "parent", "text": "soon", "reply_to": asked });
    world.done("kid", "send_message", &reply);
    let answer = world.result(call).unwrap().unwrap();
    assert_eq!((text(&answer, "status"), text(&answer, "text")), ("answered", "soon"));
    assert!(world.refused("kid", "send_message", &reply).contains("answered already"));
    world.complete("kid", "the end");
    world.complete("lead", "ok");
    assert!(world.agent("lead").inbox.is_empty(), "the turn's answer does not come as well");
}

#[test]
fn a_reply_to_nothing_is_refused() {
    let mut world = settled(&["a", "b"]);
    world.send("a", "go");
    let mut to = |reply_to: &str, recipient: &str| {
        let args = json!({ "recipient": recipient, "text": "x", "reply_to": reply_to });
        world.refused("a", "send_message", &args)
    };
    assert!(to("", "b").contains("no message"));
    assert!(to(&"x".repeat(5000), "b").len() < 400);
    assert!(to("00000000000000000000000000000007", "parent").contains("no message"));
    // That of USER is there, but b did not send it.
    let asked = world.agent("a").turn().unwrap().messages[0].to_string();
    let args = json!({ "recipient": "b", "text": "x", "reply_to": asked });
    assert!(world.refused("a", "send_message", &args).contains("of that sender"));
}

#[test]
fn an_urgent_message_of_an_agent_goes_first() {
    let mut world = settled(&["kid"]);
    world.run(Command::Gate { agent: "kid".into() }).unwrap();
    world.send("lead", "go");
    let send = |text: &str, priority: &str| json!({ "recipient": "kid", "text": text, "sync": false, "priority": priority });
    world.done("lead", "send_message", &send("later", "normal"));
    world.done("lead", "send_message", &send("now", "high"));
    assert_eq!(world.unread("kid"), ["now", "later"]);
}

#[test]
fn a_reminder_comes_when_it_is_due_and_again() {
    let mut world = World::new(4);
    world.create("a");
    world.send("a", "go");
    let once = world.done("a", "remind_me", &json!({ "reason": "tea", "after": 60 }));
    let again = json!({ "reason": "look", "after": 100, "every": 100 });
    let again = world.done("a", "remind_me", &again);
    world.complete("a", "ok");
    world.crash();
    world.pass(59);
    assert!(world.agent("a").turn().is_none());
    world.pass(1);
    assert_eq!(world.prompt("a"), "Message from SYSTEM:\nReminder: tea");
    world.complete("a", "ok");
    let gone = json!({ "reminder_id": once["reminder_id"] });
    world.pass(40);
    assert!(world.prompt("a").contains("look"));
    assert!(world.refused("a", "cancel_reminder", &gone).contains("no reminder"));
    world.complete("a", "ok");
    world.pass(100);
    assert!(world.prompt("a").contains("look"));
    world.done("a", "cancel_reminder", &json!({ "reminder_id": again["reminder_id"] }));
    world.complete("a", "ok");
    world.pass(1000);
    assert!(world.agent("a").turn().is_none());
}

#[test]
fn a_reminder_that_nobody_hears_does_not_fill_the_inbox() {
    let mut world = World::new(4);
    world.create("a");
    world.send("a", "go");
    world.done("a", "remind_me", &json!({ "reason": "look", "after": 1, "every": 1 }));
    world.complete("a", "ok");
    world.run(Command::Gate { agent: "a".into() }).unwrap();
    for _ in 0..100 {
        world.pass(1);
    }
    assert_eq!(world.unread("a"), ["Reminder: look"]);
}

#[test]
fn a_reminder_wakes_its_agent_after_a_turn_that_failed_with_it() {
    let mut world = World::new(4);
    world.create("a");
    world.send("a", "go");
    world.done("a", "remind_me", &json!({ "reason": "tick", "after": 10, "every": 10 }));
    world.complete("a", "ok");
    world.pass(10);
    world.fail("a");
    let fired = |world: &World| {
        let of_reminder = |entry: &&Entry| matches!(entry.event, Event::ReminderFired(_));
        world.entries.iter().filter(of_reminder).count()
    };
    world.pass(9);
    assert!(world.agent("a").turn().is_none());
    world.pass(1);
    assert_eq!(world.prompt("a").matches("tick").count(), 1, "it goes on with the one message");
    assert_eq!(fired(&world), 2);
    // A turn that takes long misses times, and the rhythm stays.
    world.pass(95);
    world.complete("a", "ok");
    assert_eq!(fired(&world), 2, "what tells nothing is not noted");
    assert!(world.agent("a").turn().is_none());
    world.pass(5);
    assert!(world.prompt("a").contains("tick"));
}

#[test]
fn reminders_wait_for_an_inbox_that_is_full() {
    let mut world = World::new(4);
    world.policy.max_inbox = 3;
    world.create("a");
    world.send("a", "go");
    for _ in 0..5 {
        world.done("a", "remind_me", &json!({ "reason": "x", "after": 0 }));
    }
    world.pass(1);
    assert_eq!(world.agent("a").inbox.len(), 3);
    assert_eq!(world.agent("a").reminders.len(), 3, "none is lost");
    world.complete("a", "ok");
    world.complete("a", "read");
    world.pass(61);
    assert_eq!(world.agent("a").reminders.len(), 0);
    assert_eq!(world.agent("a").inbox.len(), 3);
}

#[test]
fn reminders_that_make_no_sense_or_are_too_many_are_refused() {
    let mut world = World::new(4);
    world.create("a");
    world.send("a", "go");
    let zero = json!({ "reason": "x", "after": 1, "every": 0 });
    assert!(world.refused("a", "remind_me", &zero).contains("every is 0"));
    let far = json!({ "reason": "x", "after": u64::MAX });
    assert!(world.refused("a", "remind_me", &far).contains("ten years"));
    let negative = json!({ "reason": "x", "after": -1 });
    assert!(world.refused("a", "remind_me", &negative).contains("bad arguments"));
    let fine = json!({ "reason": "x", "after": 1000 });
    for _ in 0..world.policy.max_reminders {
        world.done("a", "remind_me", &fine);
    }
    assert!(world.refused("a", "remind_me", &fine).contains("there are already 5 reminders"));
}

#[test]
fn a_subscription_tells_each_transition_and_a_once_one_the_first() {
    let mut world = settled(&["a", "kid"]);
    world.send("a", "go");
    let watch = |once: bool| json!({ "agent_name": "kid", "transition": "*->busy", "once": once });
    let lasting = world.done("a", "subscribe", &watch(false));
    world.done("a", "subscribe", &watch(true));
    world.complete("a", "watching");
    world.crash();
    world.send("kid", "work");
    let prompt = world.prompt("a");
    assert_eq!(prompt.matches("kid went from idle to busy").count(), 2, "{prompt}");
    world.complete("a", "seen");
    world.complete("kid", "done");
    world.send("kid", "more");
    assert_eq!(world.agent("a").subscriptions.len(), 1);
    let prompt = world.prompt("a");
    assert_eq!(prompt.matches("kid went from idle to busy").count(), 1, "{prompt}");
    world.done("a", "unsubscribe", &json!({ "subscription_id": lasting["subscription_id"] }));
    world.complete("a", "seen");
    world.complete("kid", "done");
    world.send("kid", "again");
    assert!(world.agent("a").turn().is_none() && world.state.watchers.is_empty());
}

#[test]
fn a_crash_is_no_transition_of_who_works_on_by_itself() {
    let mut world = settled(&["a", "kid"]);
    world.send("a", "go");
    let args = json!({ "agent_name": "kid", "transition": "busy->idle", "once": true });
    world.done("a", "subscribe", &args);
    world.complete("a", "watching");
    world.send("kid", "work");
    world.crash();
    assert!(world.agent("a").turn().is_none() && world.agent("kid").turn().is_some());
    world.complete("kid", "done");
    assert!(world.prompt("a").contains("kid went from busy to idle"));
    // One that is left alone has stopped.
    world.complete("a", "seen");
    world.send("a", "again");
    world.done("a", "subscribe", &args);
    world.complete("a", "watching");
    world.send("kid", "work");
    for _ in 0..world.policy.max_setbacks {
        world.crash();
    }
    assert!(world.agent("kid").turn().is_none());
    assert!(world.prompt("a").contains("kid went from busy to idle"));
}

#[test]
fn much_mail_is_read_piece_by_piece() {
    let mut world = World::new(4);
    (world.policy.max_text, world.policy.max_inbox_bytes) = (1 << 20, 16 << 20);
    world.create("a");
    world.send("a", "go");
    for _ in 0..5 {
        world.send("a", &"x".repeat(100 << 10));
    }
    let mut read = || {
        let found = world.done("a", "check_inbox", &json!({}));
        (found["messages"].as_array().unwrap().len(), found["more"].as_u64().unwrap())
    };
    assert_eq!([read(), read(), read(), read()], [(2, 3), (2, 1), (1, 0), (0, 0)]);
    world.complete("a", "done");
    assert!(world.agent("a").inbox.is_empty());
}

#[test]
fn the_end_of_who_is_watched_is_told_and_ends_the_subscription() {
    let mut world = settled(&["a", "kid"]);
    world.send("a", "go");
    let args = json!({ "agent_name": "kid", "transition": "busy->idle" });
    world.done("a", "subscribe", &args);
    world.complete("a", "watching");
    world.send("kid", "finish");
    world.done("kid", "complete", &json!({ "result": "r" }));
    world.complete("kid", "bye");
    let told = [world.prompt("a"), world.unread("a").concat()].concat();
    assert!(told.contains("kid has ended, and with it your subscription"), "{told}");
    assert!(told.contains("kid went from busy to idle"), "{told}");
    assert_eq!(world.agent("a").subscriptions, []);
}

#[test]
fn transitions_that_a_full_inbox_misses_are_counted() {
    let mut world = settled(&["a", "kid"]);
    world.policy.max_inbox = 2;
    world.send("a", "go");
    let args = json!({ "agent_name": "kid", "transition": "idle->busy" });
    world.done("a", "subscribe", &args);
    world.complete("a", "watching");
    world.run(Command::Gate { agent: "a".into() }).unwrap();
    for _ in 0..5 {
        world.send("kid", "work");
        world.complete("kid", "done");
    }
    assert_eq!(world.unread("a").len(), 2);
    world.run(Command::PermitTurn { agent: "a".into() }).unwrap();
    world.complete("a", "read");
    world.send("kid", "work");
    let told = world.unread("a");
    assert!(told[0].contains("; 3 times before were not told: your inbox was full"), "{told:?}");
}

#[test]
fn agents_that_watch_each_other_do_not_wake_each_other_for_ever() {
    let mut world = settled(&["a", "b"]);
    for (one, other) in [("a", "b"), ("b", "a")] {
        world.send(one, "go");
        let args = json!({ "agent_name": other, "transition": "*->idle" });
        world.done(one, "subscribe", &args);
    }
    let mut turns = 0;
    while let Some(name) = ["a", "b"].into_iter().find(|name| world.agent(name).turn().is_some()) {
        world.complete(name, "ok");
        turns += 1;
        assert!(turns < 200, "they wake each other for ever");
    }
    assert!(turns > 10, "a chain of some length is fine");
    // A message from outside is a new beginning, and tells what was missed.
    world.send("b", "work");
    world.complete("b", "done");
    let prompt = world.prompt("a");
    assert!(prompt.contains("woke each other in a circle"), "{prompt}");
}

#[test]
fn what_is_done_to_a_child_in_the_turn_that_spawned_it_survives() {
    let mut world = team(4, &["kid"]);
    world.done("lead", "gate", &json!({ "agent_name": "kid" }));
    world.done("lead", "subscribe", &json!({ "agent_name": "kid", "transition": "*->busy" }));
    let send = json!({ "recipient": "kid", "text": "hello", "sync": false });
    world.done("lead", "send_message", &send);
    world.crash();
    let kid = world.agent("kid");
    assert_eq!(kid.gate, Gate::Gated { permits: 0 });
    assert_eq!(world.unread("kid"), ["hello"]);
    assert_eq!(world.agent("lead").subscriptions.len(), 1);
    world.run(Command::PermitTurn { agent: "kid".into() }).unwrap();
    assert!(world.prompt("kid").ends_with("hello"));
}

#[test]
fn an_agent_finds_its_reminders_and_subscriptions_again() {
    let mut world = settled(&["a", "b"]);
    world.send("a", "go");
    let reminder = world.done("a", "remind_me", &json!({ "reason": "tea", "after": 60 }));
    let watch = json!({ "agent_name": "b", "transition": "*->idle" });
    let subscription = world.done("a", "subscribe", &watch);
    let own = world.done("a", "inspect_agent", &json!({ "name": "a" }));
    assert_eq!(own["reminders"][0]["reminder_id"], reminder["reminder_id"]);
    let shown = &own["subscriptions"][0];
    assert_eq!(shown["subscription_id"], subscription["subscription_id"]);
    assert_eq!((text(shown, "agent_name"), text(shown, "transition")), ("b", "*->idle"));
}

#[test]
fn only_a_parent_governs() {
    let mut world = settled(&["a", "b"]);
    world.send("a", "go");
    for tool in ["gate", "ungate", "permit_turn"] {
        for other in ["b", "parent"] {
            let no = world.refused("a", tool, &json!({ "agent_name": other }));
            assert!(no.contains("is not a child of \"a\""), "{no}");
        }
    }
    let label = |agent: &str| json!({ "agent_name": agent, "key": "k", "value": "v" });
    assert!(world.refused("a", "set_agent_metadata", &label("b")).contains("not a child"));
    world.done("a", "set_agent_metadata", &label("a"));
    world.send("lead", "go");
    world.done("lead", "set_agent_metadata", &label("b"));
    assert_eq!(world.agent("b").metadata["k"], "v");
    world.done("lead", "set_agent_metadata", &json!({ "agent_name": "b", "key": "k" }));
    assert!(world.agent("b").metadata.is_empty());
    assert!(
        world.refused("lead", "permit_turn", &json!({ "agent_name": "b" })).contains("not gated")
    );
    world.done("lead", "gate", &json!({ "agent_name": "b" }));
    world.send("b", "work");
    assert!(world.agent("b").turn().is_none());
    world.done("lead", "permit_turn", &json!({ "agent_name": "b" }));
    world.complete("b", "done");
    world.send("b", "more");
    world.done("lead", "ungate", &json!({ "agent_name": "b" }));
    assert!(world.agent("b").turn().is_some());
}

#[test]
fn a_poke_wakes_who_is_idle_and_nobody_else() {
    let mut world = settled(&["a", "b"]);
    world.send("a", "go");
    let poke = |name: &str| json!({ "agent_name": name });
    assert_eq!(text(&world.done("a", "poke", &poke("b")), "status"), "poked");
    assert!(world.prompt("b").contains("a pokes you"));
    assert_eq!(text(&world.done("a", "poke", &poke("b")), "status"), "awake already");
    // One that was left alone with its mail goes on with it.
    world.fail("b");
    assert!(world.agent("b").turn().is_none());
    assert_eq!(text(&world.done("a", "poke", &poke("b")), "status"), "poked");
    assert_eq!(world.agent("b").turn().unwrap().messages.len(), 2);
}

#[test]
fn a_child_sees_no_more_of_a_workspace_than_its_parent() {
    let mut world = World::new(8);
    for (name, parent) in [("desk", None), ("inner", Some("desk".to_owned())), ("other", None)] {
        let new = NewWorkspace { parent, ..NewWorkspace::named(name) };
        world.run(Command::CreateWorkspace { new }).unwrap();
    }
    let homeless = NewAgent { workspace_subdir: Some("src".into()), ..NewAgent::default() };
    let agent = NewAgent { name: "homeless".into(), ..homeless };
    let no = world.run(Command::CreateAgent { agent, parent: None }).unwrap_err();
    assert!(no.to_string().contains("the folder \"src\" of no workspace"), "{no}");
    let workspace = Some("desk".to_owned());
    let agent = NewAgent { name: "lead".into(), workspace, ..NewAgent::default() };
    world.run(Command::CreateAgent { agent, parent: None }).unwrap();
    world.send("lead", "go");
    let spawn = |name: &str, workspace: Option<&str>, subdir: &str| {
        json!({ "name": name, "instructions": "x", "workspace": workspace,
                "workspace_subdir": subdir })
    };
    let no = world.refused("lead", "spawn_agent", &spawn("x", Some("other"), ""));
    assert!(no.contains("\"other\" is not yours"), "{no}");
    let no = world.refused("lead", "spawn_agent", &spawn("x", None, "../up"));
    assert!(no.contains("\"..\""), "{no}");
    world.done("lead", "spawn_agent", &spawn("in", Some("inner"), ""));
    world.done("lead", "spawn_agent", &spawn("part", None, "src/./lib"));
    world.done("lead", "spawn_agent", &spawn("whole", Some("desk"), ""));
    world.complete("lead", "ok");
    assert_eq!(world.agent("part").workspace_subdir, "src/lib");
    assert_eq!(world.agent("whole").workspace, world.agent("lead").workspace);
    // What it hands on lies in its own folder, also if it names the workspace.
    world.done("part", "spawn_agent", &spawn("deep", None, "a"));
    world.done("part", "spawn_agent", &spawn("same", Some("desk"), ""));
    assert_eq!(world.agent("deep").workspace_subdir, "src/lib/a");
    assert_eq!(world.agent("same").workspace_subdir, "src/lib");
    let no = world.refused("part", "spawn_agent", &spawn("x", Some("inner"), ""));
    assert!(no.contains("not yours"), "{no}");
}
