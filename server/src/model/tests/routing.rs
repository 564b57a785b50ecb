//! Who reaches whom, and how those who do not are refused.

use serde_json::{Value, json};

use super::scenarios::team;
use super::world::World;
use crate::model::*;

/// How a tool call is refused: the reason that is on record, and the text.
fn refused(world: &mut World, agent: &str, tool: &str, args: &Value) -> (String, String) {
    let call = world.call(agent, tool, args);
    let mut entries = world.entries.iter();
    let data = entries.find_map(|entry| match &entry.event {
        Event::ToolCallResult(data) if data.call_id == call => Some(data),
        _ => None,
    });
    let data = data.expect("it is over");
    let text = |part: &Option<String>| part.clone().expect("it is refused");
    (text(&data.reason), text(&data.error))
}

fn end(world: &mut World, agent: AgentId) {
    let agent = agent.to_string();
    world.run(Command::Terminate { agent, recursive: false }).expect("it ends");
}

/// A lead and its child `a`, both in a turn, and a child `gone` that has ended.
fn bereaved() -> (World, AgentId) {
    let mut world = team(16, &["a", "gone"]);
    world.complete("lead", "ok");
    let gone = world.agent("gone").id;
    end(&mut world, gone);
    world.send("lead", "go");
    (world, gone)
}

/// Every tool that names one agent, with that name.
fn calls(name: &str) -> Vec<(&'static str, Value)> {
    let named = |tool| (tool, json!({ "agent_name": name }));
    vec![
        ("send_message", json!({ "recipient": name, "text": "hi" })),
        ("inspect_agent", json!({ "name": name })),
        ("subscribe", json!({ "agent_name": name, "transition": "*->idle" })),
        ("set_agent_metadata", json!({ "agent_name": name, "key": "k", "value": "v" })),
        named("poke"),
        named("gate"),
        named("ungate"),
        named("permit_turn"),
    ]
}

#[test]
fn a_neighbour_that_has_ended_is_refused_as_one_that_has() {
    let (mut world, gone) = bereaved();
    // Its parent, and its sibling.
    for agent in ["lead", "a"] {
        for name in ["gone".to_owned(), gone.to_string()] {
            for (tool, args) in calls(&name) {
                let (reason, text) = refused(&mut world, agent, tool, &args);
                assert_eq!(reason, "AGENT_TERMINATED", "{agent} {tool} {name}: {text}");
                assert!(text.starts_with("agent \"gone\" is terminated; "), "{text}");
                assert!(text.contains("spawn_agent") && text.contains("list_children"), "{text}");
            }
        }
    }
}

#[test]
fn a_living_neighbour_goes_before_one_of_its_name_that_has_ended() {
    let (mut world, gone) = bereaved();
    let agent = NewAgent { name: "gone".into(), ..NewAgent::default() };
    world.run(Command::CreateAgent { agent, parent: Some("lead".into()) }).expect("it is made");
    let call = world.call("a", "poke", &json!({ "agent_name": "gone" }));
    assert!(world.result(call).expect("it is over").is_ok());
    // The id still means the one that has ended.
    let (reason, _) = refused(&mut world, "a", "poke", &json!({ "agent_name": gone }));
    assert_eq!(reason, "AGENT_TERMINATED");
}

#[test]
fn who_was_no_neighbour_is_not_told_to_have_ended() {
    let mut world = team(16, &["a"]);
    let far = world.create("far");
    end(&mut world, far);
    let (reason, text) = refused(&mut world, "lead", "poke", &json!({ "agent_name": "far" }));
    assert_eq!(reason, "AGENT_NOT_FOUND");
    assert!(text.contains("list_children"), "{text}");
    let (reason, _) = refused(&mut world, "lead", "poke", &json!({ "agent_name": far }));
    assert_eq!(reason, "NOT_A_NEIGHBOUR");
}
