//! What agents, turns and messages do, case by case.

use serde_json::json;

use super::world::{World, send};
use crate::model::*;

fn spawn(world: &mut World, parent: &str, name: &str) {
    let call = world.call(parent, "spawn_agent", &json!({ "name": name, "instructions": "x" }));
    assert!(world.result(call).unwrap().is_ok());
}

/// A busy root with children that were spawned in its turn.
pub(super) fn team(slots: usize, names: &[&str]) -> World {
    let mut world = World::new(slots);
    world.create("lead");
    world.send("lead", "go");
    for name in names {
        spawn(&mut world, "lead", name);
    }
    world
}

#[test]
fn a_message_wakes_an_idle_agent_and_leaves_with_the_completed_turn() {
    let mut world = World::new(4);
    world.create("a");
    let message = world.send("a", "hello");
    assert_eq!(world.prompt("a"), "hello");
    assert_eq!(world.agent("a").turn().unwrap().messages, [message]);
    assert_eq!(world.agent("a").inbox.len(), 1, "it leaves when the turn completes");
    world.complete("a", "hi");
    assert!(world.agent("a").inbox.is_empty());
    let answer = world.state.user_inbox().back().unwrap();
    assert_eq!(
        (answer.kind, &*answer.text, answer.reply_to),
        (Kind::Response, "hi", Some(message))
    );
}

#[test]
fn an_attended_answer_does_not_go_to_the_inbox() {
    let mut world = World::new(4);
    let agent = world.create("a");
    let message = world.send("a", "hello");
    let turn = world.turn("a");
    let end = TurnEnd::Completed { response: "hi".into(), saved: Saved::Unchanged };
    world.run(Command::FinishTurn { agent, turn, end, attended: vec![message] }).unwrap();
    assert!(world.state.user_inbox().is_empty());
    let Event::TurnComplete(data) = &world.entries.last().unwrap().event else { panic!() };
    assert_eq!(data.answers, [message]);
}

#[test]
fn everything_queued_is_delivered_in_one_turn_urgent_first() {
    let mut world = World::new(4);
    world.create("a");
    world.send("a", "first");
    world.send("a", "second");
    let metadata = [("priority".to_owned(), "high".to_owned())].into();
    let urgent = Command::SendMessage { agent: "a".into(), text: "third".into(), metadata };
    world.run(urgent).unwrap();
    world.complete("a", "done");
    let prompt = world.prompt("a");
    let (third, second) = (prompt.find("third").unwrap(), prompt.find("second").unwrap());
    assert!(third < second, "{prompt}");
    assert!(!prompt.contains("first"));
}

#[test]
fn a_failed_turn_keeps_its_messages_and_waits_for_another_one() {
    let mut world = World::new(4);
    world.create("a");
    world.send("a", "one");
    world.fail("a");
    let agent = world.agent("a");
    assert!(agent.turn().is_none() && agent.inbox.len() == 1);
    assert_eq!(world.state.user_inbox().back().unwrap().kind, Kind::Error, "USER is told");
    world.send("a", "two");
    let prompt = world.prompt("a");
    assert!(prompt.contains("one") && prompt.contains("two"), "{prompt}");
}

#[test]
fn the_parent_is_told_of_a_failed_turn() {
    let mut world = team(4, &["kid"]);
    world.complete("lead", "ok");
    world.fail("kid");
    let told = world.prompt("lead");
    assert!(told.contains("Error from SYSTEM") && told.contains("broken"), "{told}");
}

#[test]
fn a_cancelled_prompt_of_user_does_not_come_back_but_that_of_an_agent_does() {
    let mut world = team(4, &["kid"]);
    let note = json!({ "recipient": "kid", "text": "from lead", "sync": false });
    world.call("lead", "send_message", &note);
    world.complete("lead", "ok");
    world.complete("kid", "ok");
    world.send("kid", "from user");
    world.run(Command::CancelTurn { agent: "kid".into(), turn: None }).unwrap();
    let (agent, turn) = (world.agent("kid").id, world.turn("kid"));
    let end = TurnEnd::Cancelled;
    world.run(Command::FinishTurn { agent, turn, end, attended: vec![] }).unwrap();
    assert!(world.agent("kid").inbox.is_empty());
    assert!(world.agent("lead").turn().is_some(), "the parent is told");
}

#[test]
fn a_child_starts_when_the_turn_of_its_parent_is_over() {
    let mut world = team(4, &["kid"]);
    let note = json!({ "recipient": "kid", "text": "work", "sync": false });
    world.call("lead", "send_message", &note);
    assert!(world.agent("kid").turn().is_none());
    world.complete("lead", "ok");
    assert_eq!(world.prompt("kid"), "Message from lead:\nwork");
}

#[test]
fn a_child_that_nobody_writes_to_is_told_to_begin() {
    let mut world = team(4, &["kid"]);
    world.complete("lead", "ok");
    assert!(world.prompt("kid").contains("Follow your instructions"));
}

#[test]
fn a_request_to_a_new_child_in_the_same_turn_is_answered() {
    let mut world = team(1, &["kid"]);
    let ask = json!({ "recipient": "kid", "text": "how much?" });
    let call = world.call("lead", "send_message", &ask);
    assert_eq!(world.result(call), None, "it waits");
    assert!(world.agent("lead").is_waiting());
    assert!(world.prompt("kid").contains("how much?"), "the slot was given up");
    world.complete("kid", "seven");
    world.finish_suspensions();
    let result = world.result(call).unwrap().unwrap();
    assert_eq!(result["text"], "seven");
    world.complete("lead", "done");
    assert_eq!(&*world.state.user_inbox().back().unwrap().text, "done");
}

#[test]
fn a_chain_of_requests_of_any_depth_needs_one_slot() {
    let mut world = World::new(1);
    world.create("a0");
    world.send("a0", "go");
    let mut path = "a0".to_owned();
    let mut calls = Vec::new();
    for depth in 1..6 {
        let name = format!("a{depth}");
        spawn(&mut world, &path, &name);
        let ask = json!({ "recipient": name, "text": "deeper" });
        calls.push(world.call(&path, "send_message", &ask));
        world.finish_suspensions();
        path = format!("{path}/{name}");
    }
    for (depth, call) in (1..6).zip(calls.iter()).rev() {
        world.complete(&format!("a{depth}"), &format!("answer {depth}"));
        world.finish_suspensions();
        assert_eq!(world.result(*call).unwrap().unwrap()["text"], format!("answer {depth}"));
    }
    world.complete("a0", "all the way");
    assert_eq!(&*world.state.user_inbox().back().unwrap().text, "all the way");
}

#[test]
fn a_circle_of_requests_is_refused() {
    let mut world = team(4, &["kid"]);
    world.call("lead", "send_message", &json!({ "recipient": "kid", "text": "?" }));
    let back = world.call("kid", "send_message", &json!({ "recipient": "parent", "text": "??" }));
    let error = world.result(back).unwrap().unwrap_err();
    assert!(error.contains("waiting") && error.contains("sync = false"), "{error}");
}

#[test]
fn one_hop_and_no_further() {
    let mut world = team(4, &["x", "y"]);
    world.create("stranger");
    world.complete("lead", "ok");
    spawn(&mut world, "x", "grandchild");
    world.complete("x", "ok");
    let refused = |world: &mut World, from: &str, to: &str| {
        let send = json!({ "recipient": to, "text": "t", "sync": false });
        let call = world.call(from, "send_message", &send);
        world.result(call).unwrap().unwrap_err()
    };
    assert!(refused(&mut world, "grandchild", "lead").contains("not its parent"));
    assert!(refused(&mut world, "y", "grandchild").contains("not its parent"));
    assert!(refused(&mut world, "y", "stranger").contains("not its parent"));
    assert!(refused(&mut world, "y", "USER").contains("not a root"));
    assert!(refused(&mut world, "y", "y").contains("itself"));
    assert!(refused(&mut world, "y", "nobody").contains("no agent"));
    for to in ["x", "lead", "parent"] {
        let send = json!({ "recipient": to, "text": "t", "sync": false });
        let call = world.call("y", "send_message", &send);
        assert!(world.result(call).unwrap().is_ok(), "{to}");
    }
}

#[test]
fn a_broadcast_reaches_every_sibling_and_answers_come_back() {
    let mut world = team(8, &["a", "b", "c"]);
    world.complete("lead", "ok");
    for name in ["b", "c"] {
        world.complete(name, "ready");
    }
    let call = world.call("a", "broadcast", &json!({ "text": "who is there?" }));
    assert_eq!(world.result(call).unwrap().unwrap()["recipient_count"], 2);
    world.complete("b", "b is");
    world.complete("c", "c is");
    let call = world.call("a", "check_inbox", &json!({ "kind": "response" }));
    let found = world.result(call).unwrap().unwrap();
    let texts: Vec<_> = found["messages"].as_array().unwrap().iter().map(|m| &m["text"]).collect();
    assert_eq!(texts, ["b is", "c is"]);
    world.call("a", "check_inbox", &json!({ "sender": "SYSTEM" }));
    world.complete("a", "done");
    assert!(world.agent("a").inbox.is_empty(), "what was read leaves with the turn");
}

#[test]
fn what_was_read_comes_back_if_the_turn_fails() {
    let mut world = team(4, &["kid"]);
    world.complete("lead", "ok");
    world.send("kid", "late");
    world.call("kid", "check_inbox", &json!({}));
    world.fail("kid");
    assert!(world.agent("kid").inbox.iter().any(|message| &*message.text == "late"));
}

#[test]
fn complete_answers_the_parent_and_ends_the_agent() {
    let mut world = team(4, &["kid"]);
    world.complete("lead", "ok");
    let call = world.call("kid", "complete", &json!({ "result": "42" }));
    assert!(world.result(call).unwrap().is_ok());
    assert!(world.agent("kid").is_live(), "until its turn ends");
    world.complete("kid", "bye");
    assert!(world.state.resolve("kid").is_err());
    assert_eq!(world.prompt("lead"), "Answer from kid:\n42");
    let refused = world.call("lead", "complete", &json!({ "result": "x" }));
    assert!(world.result(refused).unwrap().unwrap_err().contains("no parent"));
}

#[test]
fn an_agent_that_spawns_after_it_completed_lives_on() {
    let mut world = team(4, &["kid"]);
    world.complete("lead", "ok");
    world.call("kid", "complete", &json!({ "result": "42" }));
    spawn(&mut world, "kid", "grandchild");
    world.complete("kid", "bye");
    assert!(world.agent("kid").is_live());
    assert_eq!(world.prompt("lead"), "Answer from kid:\n42");
}

#[test]
fn a_request_to_an_agent_that_ends_is_answered_with_an_error() {
    let mut world = team(4, &["kid"]);
    let call = world.call("lead", "send_message", &json!({ "recipient": "kid", "text": "?" }));
    world.run(Command::Terminate { agent: "kid".into(), recursive: false }).unwrap();
    let error = world.result(call).unwrap().unwrap_err();
    assert!(error.contains("ended before it answered"), "{error}");
}

#[test]
fn a_timeout_ends_the_wait_and_the_late_answer_is_a_message() {
    let mut world = team(4, &["kid"]);
    let ask = json!({ "recipient": "kid", "text": "?", "timeout": 5 });
    let call = world.call("lead", "send_message", &ask);
    world.run(Command::Tick).unwrap();
    assert_eq!(world.result(call), None);
    world.now = world.now.after(std::time::Duration::from_secs(6));
    world.run(Command::Tick).unwrap();
    assert!(world.result(call).unwrap().unwrap_err().contains("timeout"));
    world.complete("lead", "gave up");
    world.complete("kid", "late");
    assert_eq!(world.prompt("lead"), "Answer from kid:\nlate");
}

#[test]
fn past_the_limit_of_a_provider_a_call_is_pending_and_the_agent_waits() {
    let mut world = World::new(4);
    let limited = ProviderPolicy { slots: 4, call_limit: Some(std::time::Duration::from_secs(45)) };
    world.policy.providers.insert("scripted".into(), limited);
    world.create("lead");
    world.send("lead", "go");
    spawn(&mut world, "lead", "kid");
    let call = world.call("lead", "send_message", &json!({ "recipient": "kid", "text": "?" }));
    world.now = world.now.after(std::time::Duration::from_secs(46));
    world.run(Command::Tick).unwrap();
    assert_eq!(world.result(call).unwrap().unwrap()["status"], "pending");
    world.complete("lead", "I wait");
    assert!(world.agent("lead").is_waiting() && world.agent("lead").turn().is_none());
    world.complete("kid", "here");
    assert!(!world.agent("lead").is_waiting());
    assert_eq!(world.prompt("lead"), "Answer from kid:\nhere");
}

#[test]
fn a_repeated_request_id_has_one_effect() {
    let mut world = World::new(4);
    world.create("a");
    let request = Request { id: "key".into(), fingerprint: "f".into() };
    let first = world.run_request(send("a", "once"), Some(&request)).unwrap();
    let again = world.run_request(send("a", "once"), Some(&request)).unwrap();
    assert_eq!(first, again);
    assert_eq!(world.agent("a").inbox.len(), 1);
    let other = Request { fingerprint: "g".into(), ..request.clone() };
    let refused = world.run_request(send("a", "twice"), Some(&other));
    assert!(matches!(refused, Err(Rejection::RequestIdReused { .. })));
    world.crash();
    let after = world.run_request(send("a", "once"), Some(&request)).unwrap();
    assert_eq!(first, after);
    assert_eq!(world.agent("a").inbox.iter().filter(|m| &*m.text == "once").count(), 1);
}

#[test]
fn a_message_of_a_failed_turn_is_left_until_the_next_one_wakes_the_agent() {
    let mut world = World::new(4);
    world.create("a");
    let message = world.send("a", "once");
    assert!(!world.agent("a").leaves(message), "a turn runs");
    world.fail("a");
    assert!(world.agent("a").leaves(message));
    world.send("a", "again");
    assert!(!world.agent("a").leaves(message));
    assert!(world.prompt("a").contains("once"));
}

#[test]
fn changed_instructions_hold_from_the_next_turn_on() {
    let mut world = World::new(4);
    let agent = world.create("a");
    world.send("a", "1");
    let update = Command::UpdateAgent {
        agent: "a".into(),
        instructions: Some("new".into()),
        role: None,
        metadata: Default::default(),
        budgets: Vec::new(),
    };
    world.run(update).unwrap();
    world.complete("a", "x");
    world.finish_suspensions();
    world.effects.clear();
    world.send("a", "2");
    let opened = world.effects.iter().find_map(|effect| match effect {
        Effect::Open { agent: id, instructions, .. } if *id == agent => Some(instructions.clone()),
        _ => None,
    });
    assert_eq!(opened.as_deref(), Some("new"));
}

#[test]
fn a_crashed_runner_fails_its_turn_and_the_agent_goes_on() {
    let mut world = World::new(4);
    world.create("a");
    world.send("a", "1");
    let session = world.agent("a").session.id;
    let crash = Command::Crash { session, reason: "panicked".into(), attended: vec![] };
    world.run(crash).unwrap();
    assert_eq!(world.agent("a").session.state, SessionState::Suspended);
    world.send("a", "2");
    assert!(world.prompt("a").contains('1') && world.prompt("a").contains('2'));
}

#[test]
fn references_mean_paths_names_ids_and_prefixes() {
    let mut world = team(4, &["kid"]);
    world.create("other");
    world.complete("lead", "ok");
    let kid = world.agent("lead/kid").id;
    assert_eq!(world.agent("kid").id, kid);
    assert_eq!(world.agent(&kid.to_string()).id, kid);
    assert_eq!(world.agent(&kid.to_string()[..8]).id, kid);
    spawn(&mut world, "kid", "twin");
    world.send("other", "go");
    spawn(&mut world, "other", "twin");
    assert!(matches!(world.state.resolve("twin"), Err(Rejection::AgentAmbiguous { .. })));
    assert!(matches!(world.state.resolve("kid/twin"), Err(Rejection::AgentNotFound { .. })));
    assert!(world.state.resolve("other/twin").is_ok());
}

#[test]
fn a_tree_is_ended_leaves_first_or_not_at_all() {
    let mut world = team(4, &["kid"]);
    world.complete("lead", "ok");
    let refused = world.run(Command::Terminate { agent: "lead".into(), recursive: false });
    assert!(matches!(refused, Err(Rejection::AgentHasChildren { children: 1, .. })));
    let (lead, kid) = (world.agent("lead").id, world.agent("kid").id);
    let ended = world.run(Command::Terminate { agent: "lead".into(), recursive: true });
    assert_eq!(ended, Ok(Outcome::Agents(vec![kid, lead])));
    assert_eq!(world.state.live_count(), 0);
}

#[test]
fn sessions_are_deleted_only_after_their_agents_ended() {
    let mut world = World::new(4);
    world.create("a");
    let session = world.agent("a").session.id.to_string();
    let delete = Command::DeleteSession { session };
    assert!(matches!(world.run(delete.clone()), Err(Rejection::SessionNotTerminated { .. })));
    world.run(Command::Terminate { agent: "a".into(), recursive: false }).unwrap();
    world.run(delete.clone()).unwrap();
    assert_eq!(world.state.agents().len(), 0);
    assert!(matches!(world.run(delete), Err(Rejection::SessionNotFound { .. })));
}

#[test]
fn workspaces_are_kept_while_they_are_used() {
    let mut world = World::new(4);
    let create = |name: &str, parent: Option<&str>| Command::CreateWorkspace {
        new: NewWorkspace { parent: parent.map(str::to_owned), ..NewWorkspace::named(name) },
    };
    world.run(create("desk", None)).unwrap();
    world.run(create("drawer", Some("desk"))).unwrap();
    assert!(matches!(world.run(create("desk", None)), Err(Rejection::WorkspaceExists { .. })));
    let drawer = world.state.resolve_workspace("drawer").unwrap();
    assert!(drawer.root.ends_with("/root/drawer"), "{}", drawer.root);
    let agent =
        NewAgent { name: "a".into(), workspace: Some("drawer".into()), ..NewAgent::default() };
    world.run(Command::CreateAgent { agent, parent: None }).unwrap();
    let delete = |name: &str| Command::DeleteWorkspace { workspace: name.into(), force: false };
    assert!(matches!(world.run(delete("drawer")), Err(Rejection::WorkspaceInUse { .. })));
    world.run(Command::Terminate { agent: "a".into(), recursive: false }).unwrap();
    assert!(matches!(world.run(delete("desk")), Err(Rejection::WorkspaceInUse { .. })));
    world.run(delete("drawer")).unwrap();
    world.run(delete("desk")).unwrap();
}

#[test]
fn links_do_not_overlap() {
    let mut world = World::new(4);
    world.run(Command::CreateWorkspace { new: NewWorkspace::named("w") }).unwrap();
    let link = |mount: &str| Command::LinkDirectory {
        workspace: "w".into(),
        host_path: "/srv/x".into(),
        mount_path: mount.into(),
        mode: Access::ReadOnly,
    };
    world.run(link("src/lib")).unwrap();
    for bad in ["src", "src/lib", "src/lib/deep", "./src//lib"] {
        assert!(matches!(world.run(link(bad)), Err(Rejection::LinkExists { .. })), "{bad}");
    }
    for bad in ["/abs", "..", "a/../../b", "", "."] {
        assert!(matches!(world.run(link(bad)), Err(Rejection::PathInvalid { .. })), "{bad:?}");
    }
    world.run(link("src2")).unwrap();
    let unlink =
        |mount: &str| Command::UnlinkDirectory { workspace: "w".into(), mount_path: mount.into() };
    world.run(unlink("src/lib")).unwrap();
    assert!(matches!(world.run(unlink("src/lib")), Err(Rejection::LinkNotFound { .. })));
}

#[test]
fn limits_are_typed_refusals() {
    let mut world = World::new(4);
    world.create("a");
    let long = "x".repeat(1001);
    assert!(matches!(world.run(send("a", &long)), Err(Rejection::MessageTooLarge { .. })));
    world.run(Command::Gate { agent: "a".into() }).unwrap();
    for number in 0..50 {
        world.send("a", &number.to_string());
    }
    assert!(matches!(world.run(send("a", "x")), Err(Rejection::InboxFull { .. })));
    world.policy.max_agents = 1;
    let agent = NewAgent { name: "b".into(), ..NewAgent::default() };
    let refused = world.run(Command::CreateAgent { agent, parent: None });
    assert!(matches!(refused, Err(Rejection::TreeLimit { .. })));
    let agent = NewAgent { name: "c".into(), provider: Some("nope".into()), ..NewAgent::default() };
    world.policy.max_agents = 10;
    let refused = world.run(Command::CreateAgent { agent, parent: None });
    assert!(matches!(refused, Err(Rejection::ProviderUnknown { .. })));
}

#[test]
fn a_waiting_turn_that_is_cancelled_returns_from_its_call() {
    let mut world = team(1, &["kid"]);
    let call = world.call("lead", "send_message", &json!({ "recipient": "kid", "text": "?" }));
    world.run(Command::CancelTurn { agent: "lead".into(), turn: None }).unwrap();
    assert_eq!(world.result(call), Some(Err("[Aborted by user]".to_owned())));
    let cancelled = world.effects.iter().any(|e| matches!(e, Effect::CancelTurn { .. }));
    assert!(cancelled);
}

#[test]
fn no_inbox_grows_without_a_bound() {
    let mut world = World::new(4);
    world.policy.max_inbox_bytes = 1500;
    world.policy.max_user_inbox = 3;
    world.create("a");
    world.create("b");
    world.send("a", "work");
    for _ in 0..3 {
        let told = world.call("a", "send_message", &json!({"recipient": "USER", "text": "hi"}));
        assert!(world.result(told).unwrap().is_ok());
    }
    let refused = world.call("a", "send_message", &json!({"recipient": "USER", "text": "hi"}));
    assert!(world.result(refused).unwrap().unwrap_err().contains("the inbox of \"USER\" is full"));
    world.run(Command::Gate { agent: "b".into() }).unwrap();
    world.send("b", &"x".repeat(1000));
    world.send("b", &"x".repeat(1000));
    assert!(matches!(world.run(send("b", "x")), Err(Rejection::InboxFull { bytes: 2000, .. })));
    world.complete("a", "the answer comes all the same");
    assert_eq!(world.state.user_inbox().len(), 4);
}

#[test]
fn an_agent_of_an_older_home_that_is_called_parent_lives_on() {
    let mut world = World::new(4);
    let created = |name: &str, world: &mut World| {
        let agent = NewAgent { name: name.into(), ..NewAgent::default() };
        world.run(Command::CreateAgent { agent, parent: None })
    };
    assert!(matches!(created("parent", &mut world), Err(Rejection::NameInvalid { .. })));
    created("a", &mut world).unwrap();
    // As the log of an older daemon has it.
    let mut old = State::default();
    for mut entry in world.entries {
        if let Event::AgentCreated(data) = &mut entry.event {
            data.name = Name::known("parent");
        }
        old.apply(&entry);
    }
    let mut snapshot = Vec::new();
    Snapshot::write(&old, &mut snapshot).unwrap();
    let mut read = State::default();
    for line in snapshot.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        Snapshot::read_line(&mut read, line).unwrap();
    }
    assert_eq!(read.resolve("parent").unwrap().name.as_str(), "parent");
}
