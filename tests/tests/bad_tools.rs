//! Tool calls that cannot be done: each is refused with its reason, over the script of an agent
//! and over its tool socket, and nothing is half done.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::collections::BTreeSet;

use serde_json::{Value, json};
use substrat_proto::v1;
use substrat_proto::v1::tool_service_client::ToolServiceClient;
use substrat_tests::harness::{Client, Daemon, channel, reason, text};
use tonic::transport::Channel;

const ECHO: &str = r#"fn turn(prompt) { "you said: " + messages()[0].text }"#;
/// Works until the file `go` is in its workspace.
const PATIENT: &str = r#"fn turn(prompt) {
    write_file("begun", "");
    while !("go" in list_files().entries.map(|entry| entry.path)) { sleep_ms(500); }
}"#;

/// A call, and what the refusal says.
struct Bad {
    tool: &'static str,
    args: Value,
    says: &'static str,
}

fn bad(tool: &'static str, args: Value, says: &'static str) -> Bad {
    Bad { tool, args, says }
}

/// What `middle` of the tree `top/middle/leaf` cannot do in a home of six agents.
fn all() -> Vec<Bad> {
    let mut all = talking();
    all.extend(governing());
    all.extend(sharing());
    all
}

/// With tools for workspaces. USER linked a folder for reading only at `docs`.
fn sharing() -> Vec<Bad> {
    let link = |workspace: &str, source: &str, target: &str, mode: &str| json!({ "workspace": workspace, "source": source, "target": target, "mode": mode });
    let view = |name: &str, of: &str, subdir: &str, mode: &str| json!({ "name": name, "view_of": of, "subdir": subdir, "mode": mode });
    let from = |workspace: &str, source: &str| json!({ "source_workspace": workspace, "source": source, "target": "x" });
    let kid = json!({ "name": "kid", "instructions": ECHO, "workspace_access": "all" });
    vec![
        bad("create_workspace", json!({}), "missing field `name`"),
        bad("create_workspace", json!({ "name": "a/b" }), "is not a valid name"),
        bad("create_workspace", json!({ "name": "desk" }), "already a workspace"),
        bad("create_workspace", json!({ "name": "x", "network_access": true }), "the network"),
        bad("create_workspace", view("x", "nowhere", "", "ro"), "no workspace \"nowhere\""),
        bad("create_workspace", view("x", "foreign", "", "ro"), "not yours"),
        bad("create_workspace", view("x", "desk", "../up", "ro"), "\"..\""),
        bad("create_workspace", view("x", "desk", "/etc", "ro"), "absolute"),
        bad("create_workspace", view("x", "desk", "docs", "rw"), "read-only to you"),
        bad("create_workspace", view("x", "desk", "", "all"), "unknown variant `all`"),
        bad("delete_workspace", json!({ "workspace": "desk" }), "in use by agent"),
        bad("delete_workspace", json!({ "workspace": "foreign" }), "not yours"),
        bad("delete_workspace", json!({ "workspace": "" }), "no workspace"),
        bad("link_dir", link("foreign", "a", "x", "ro"), "not yours"),
        bad("link_dir", link("desk", "docs", "x", "rw"), "read-only to you"),
        bad("link_dir", link("desk", "", "x", "ro"), "linked below it"),
        bad("link_dir", link("desk", "/etc", "x", "ro"), "absolute"),
        bad("link_dir", link("desk", "a", "docs/x", "ro"), "overlaps the link at"),
        bad("link_dir", link("desk", "a", ".", "ro"), "root of the workspace"),
        bad("link_from", from("foreign", ""), "not yours"),
        bad("link_from", from("desk", ".."), "\"..\""),
        bad("unlink_dir", json!({ "workspace": "desk", "target": "docs" }), "made by USER"),
        bad("unlink_dir", json!({ "workspace": "desk", "target": "x" }), "nothing is linked"),
        bad("unlink_dir", json!({ "workspace": "foreign", "target": "x" }), "not yours"),
        bad("spawn_agent", kid, "unknown variant `all`"),
    ]
}

/// With tools for messages, agents and files.
fn talking() -> Vec<Bad> {
    let to = |name: &str| json!({ "recipient": name, "text": "hi" });
    let far = "is not its parent, child or sibling";
    let kid = |name: &str| json!({ "name": name, "instructions": ECHO });
    vec![
        bad("fly_away", json!({}), "no tool \"fly_away\"; there are: "),
        bad("", json!({}), "no tool \"\""),
        bad("send_message", json!({}), "missing field `recipient`"),
        bad("send_message", json!({ "recipient": 7, "text": "hi" }), "expected a string"),
        bad("send_message", json!({ "recipient": "top", "text": ["hi"] }), "expected a string"),
        bad(
            "send_message",
            json!({ "recipient": "top", "text": "hi", "sync": "no" }),
            "expected a boolean",
        ),
        bad(
            "send_message",
            json!({ "recipient": "top", "text": "hi", "timeout": -1 }),
            "timeout: invalid value: integer `-1`, expected a whole number of at least 0",
        ),
        bad(
            "send_message",
            json!({ "recipient": "top", "text": "hi", "tiemout": 1 }),
            "unknown field `tiemout`",
        ),
        bad("send_message", to("nobody"), "no agent \"nobody\""),
        bad("send_message", to("deep"), far),
        bad("send_message", to("uncle"), far),
        bad("send_message", to("gone"), "agent \"gone\" is terminated; "),
        bad("inspect_agent", json!({ "name": "gone" }), "agent \"gone\" is terminated; "),
        bad("send_message", to("middle"), "cannot message itself"),
        bad("send_message", to("USER"), "it is not a root"),
        bad("send_message", to(""), "no agent \"\""),
        bad("broadcast", json!({ "text": "hi" }), "has no siblings"),
        bad("broadcast", json!({ "text": null }), "expected a string"),
        bad("check_inbox", json!({ "kind": "letter" }), "unknown variant `letter`"),
        bad("inspect_agent", json!({ "name": "uncle" }), far),
        bad("spawn_agent", json!({ "name": "x" }), "missing field `instructions`"),
        bad("spawn_agent", kid("a/b"), "a/b"),
        bad("spawn_agent", kid("leaf"), "already an agent \"top/middle/leaf\""),
        bad("spawn_agent", kid("seventh"), "the number of agents is at its limit of 6"),
        bad(
            "spawn_agent",
            json!({ "name": "x", "instructions": ECHO, "metadata": { "k": 1 } }),
            "expected a string",
        ),
        bad("complete", json!({ "result": "done" }), "child"),
        bad("spawn_agent", json!({ "name": "x", "instructions": "fn turn(" }), "are refused: "),
        bad(
            "send_message",
            json!({ "recipient": "leaf", "text": "hi", "reply_to": "7" }),
            "no message \"7\" of that sender",
        ),
        bad(
            "send_message",
            json!({ "recipient": "leaf", "text": "hi", "priority": "urgent" }),
            "unknown variant `urgent`",
        ),
        bad("read_file", json!({ "path": "nothing" }), "there is nothing at \"nothing\""),
        bad("read_file", json!({ "path": "../../etc/passwd" }), "etc/passwd"),
        bad(
            "read_file",
            json!({ "path": "begun", "first_line": "one" }),
            "first_line: invalid type: string \"one\", expected a whole number",
        ),
        bad("write_file", json!({ "path": "/etc/x", "content": "" }), "/etc/x"),
        bad("list_files", json!({ "path": "nowhere" }), "nowhere"),
    ]
}

/// With tools that govern others, and time.
fn governing() -> Vec<Bad> {
    let far = "is not its parent, child or sibling";
    vec![
        bad("remind_me", json!({ "reason": "x", "after": 1, "every": 0 }), "every is 0"),
        bad(
            "remind_me",
            json!({ "reason": "x", "after": "soon" }),
            "after: invalid type: string \"soon\", expected a whole number",
        ),
        bad("remind_me", json!({ "reason": "x", "after": 400_000_000 }), "ten years"),
        bad("cancel_reminder", json!({ "reminder_id": "7" }), "no reminder \"7\""),
        bad(
            "subscribe",
            json!({ "agent_name": "leaf", "transition": "busy" }),
            "is not a transition",
        ),
        bad("subscribe", json!({ "agent_name": "deep", "transition": "*->*" }), far),
        bad("unsubscribe", json!({ "subscription_id": "7" }), "no subscription \"7\""),
        bad("poke", json!({ "agent_name": "uncle" }), far),
        bad("gate", json!({ "agent_name": "top" }), "is not a child"),
        bad("ungate", json!({ "agent_name": "middle" }), "cannot message itself"),
        bad("permit_turn", json!({ "agent_name": "leaf" }), "is not gated"),
        bad(
            "set_agent_metadata",
            json!({ "agent_name": "leaf", "key": "", "value": "v" }),
            "metadata key",
        ),
    ]
}

async fn create(client: &Client, parent: &str, name: &str, script: &str) -> v1::Agent {
    let request = v1::CreateAgentRequest {
        name: name.into(),
        parent: parent.into(),
        instructions: script.into(),
        workspace: "desk".into(),
        ..Default::default()
    };
    client.agents.clone().create_agent(request).await.unwrap().into_inner().agent.unwrap()
}

/// A home with the tree that the calls are about, as many agents as it may have; its `middle`.
async fn home(settings: &[&str], script: &str) -> (Daemon, Client, v1::Agent) {
    let daemon = Daemon::with(&[&["limits.agents=6"], settings].concat());
    let client = daemon.client().await;
    let desk = v1::CreateWorkspaceRequest { name: "desk".into(), ..Default::default() };
    client.workspaces.clone().create_workspace(desk).await.unwrap();
    daemon.ctl_ok(&["workspace", "create", "foreign"]);
    std::fs::create_dir(daemon.home.join("../docs")).unwrap();
    let docs = daemon.home.join("../docs").to_str().unwrap().to_owned();
    daemon.ctl_ok(&["workspace", "link", "desk", &docs, "docs"]);
    let top = create(&client, "", "top", ECHO).await;
    let middle = create(&client, "top", "middle", script).await;
    create(&client, "top", "gone", ECHO).await;
    daemon.ctl_ok(&["agent", "terminate", "gone"]);
    // It is told of that.
    client.wait_type(1, &top, "turn.complete").await;
    create(&client, "middle", "leaf", ECHO).await;
    create(&client, "leaf", "deep", ECHO).await;
    create(&client, "", "uncle", ECHO).await;
    create(&client, "uncle", "cousin", ECHO).await;
    (daemon, client, middle)
}

/// All that a call could have changed: agents without what counts their events, workspaces, and
/// USER's inbox.
async fn state(client: &Client) -> (Vec<v1::Agent>, Vec<v1::Workspace>, usize) {
    let mut agents = client.all_agents().await;
    for agent in &mut agents {
        agent.last_sequence = 0;
        // The turn that makes the calls counts.
        (agent.usage, agent.tree_usage) = (None, None);
    }
    let request = v1::ListInboxRequest { page_size: 1000, ..Default::default() };
    let inbox = client.agents.clone().list_inbox(request).await.unwrap().into_inner();
    let mut service = client.workspaces.clone();
    let listed = service.list_workspaces(v1::ListWorkspacesRequest::default()).await.unwrap();
    (agents, listed.into_inner().workspaces, inbox.messages.len())
}

/// Asserts that the events of a turn are refused calls, each recorded with its error, and no more.
fn only_refused(events: &[v1::Event], calls: &[Bad]) {
    let mut events = events.iter();
    for Bad { tool, says, .. } in calls {
        let (made, closed) = (events.next().unwrap(), events.next().unwrap());
        assert_eq!(made.r#type, "tool_call.invoked", "{made:?}");
        assert_eq!(closed.r#type, "tool_call.result", "{closed:?}");
        assert_eq!((text(made, "tool"), text(closed, "tool")), (*tool, *tool));
        assert_eq!(text(made, "call_id"), text(closed, "call_id"));
        assert!(text(closed, "error").contains(says), "{tool}: {closed:?}");
    }
    assert_eq!(events.next(), None);
}

fn value(value: &Value) -> prost_types::Value {
    use prost_types::value::Kind;
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(*value),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(items) => Kind::ListValue(prost_types::ListValue {
            values: items.iter().map(self::value).collect(),
        }),
        Value::Object(_) => Kind::StructValue(object(value)),
    };
    prost_types::Value { kind: Some(kind) }
}

fn object(value: &Value) -> prost_types::Struct {
    let fields = value.as_object().unwrap().iter();
    prost_types::Struct {
        fields: fields.map(|(key, item)| (key.clone(), self::value(item))).collect(),
    }
}

async fn tools(daemon: &Daemon, agent: &v1::Agent) -> ToolServiceClient<Channel> {
    let path = daemon.home.join("run").join(format!("{}.sock", agent.session_id));
    ToolServiceClient::new(channel(&path).await.expect("the tool socket answers"))
}

#[tokio::test]
async fn a_bad_call_over_the_tool_socket_is_refused_and_changes_nothing() {
    let (daemon, client, middle) = home(&["scripted.tool_socket=true"], PATIENT).await;
    client.tell("middle", "go").await;
    client.wait_type(1, &middle, "tool_call.result").await;
    let mut tools = tools(&daemon, &middle).await;
    let mut reasons = Vec::new();
    for call in all() {
        let before = state(&client).await;
        let request = v1::CallToolRequest {
            name: call.tool.into(),
            arguments: Some(object(&call.args)),
            ..Default::default()
        };
        let answer = tools.call_tool(request).await.unwrap().into_inner();
        let (tool, args) = (call.tool, &call.args);
        assert!(answer.result.is_none(), "{tool} {args}: {answer:?}");
        assert!(answer.error.contains(call.says), "{tool} {args}: {}", answer.error);
        reasons.push((answer.error, answer.reason));
        assert_eq!(state(&client).await, before, "{tool} {args}");
    }
    let events = client.events().await;
    let failed = events.iter().filter(|event| !text(event, "error").is_empty());
    let failed = failed.map(|event| (text(event, "error"), text(event, "reason")));
    // A call that was not refused, but failed, has no reason on record.
    let told = reasons.iter().map(|(error, reason)| match reason.as_str() {
        "TOOL_FAILED" => (error.as_str(), ""),
        reason => (error.as_str(), reason),
    });
    assert!(failed.eq(told), "each call is on record with its error and its reason: {reasons:?}");
    let reasons: BTreeSet<&str> = reasons.iter().map(|(_, reason)| reason.as_str()).collect();
    for reason in ["AGENT_TERMINATED", "ARGUMENTS_INVALID", "NOT_A_NEIGHBOUR", "SCRIPT_INVALID"] {
        assert!(reasons.contains(reason), "{reasons:?}");
    }
    assert!(events.iter().all(|event| text(event, "sender") != middle.id), "nothing was sent");
}

/// A script that makes calls, and catches what each throws. Functions that are not there and
/// required arguments that are missing are errors of the script itself, which end the turn.
fn calling(calls: &[Bad]) -> String {
    let mut body = String::new();
    for Bad { tool, args, .. } in calls {
        let args = args.as_object().unwrap();
        let first = "recipient text name instructions result path content reason after \
                     reminder_id agent_name transition subscription_id key \
                     workspace source_workspace source target";
        // Whoever spawns need not name a workspace.
        let named = |key: &&str| *tool != "spawn_agent" || !key.contains("workspace");
        let first: Vec<&str> = first.split_whitespace().filter(named).collect();
        let required = first.iter().filter_map(|key| args.get(*key)).map(Value::to_string);
        let rest: serde_json::Map<String, Value> = args
            .iter()
            .filter(|(key, _)| !first.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let mut args: Vec<String> = required.collect();
        if !rest.is_empty() {
            args.push(Value::Object(rest).to_string().replace('{', "#{"));
        }
        body += &format!("try {{ {tool}({}); throw \"done\"; }} catch {{}}\n", args.join(", "));
    }
    format!("fn turn(prompt) {{ {body} \"over\" }}")
}

#[tokio::test]
async fn a_bad_call_of_a_script_is_refused_and_changes_nothing() {
    let fits = |call: &Bad| {
        let of_script = ["no tool", "missing field"].iter().any(|says| call.says.starts_with(says));
        !of_script && !call.args.to_string().contains("null")
    };
    let calls: Vec<Bad> = all().into_iter().filter(fits).collect();
    assert!(calls.len() > 20);
    let (_daemon, client, middle) = home(&[], &calling(&calls)).await;
    let before = state(&client).await;
    assert_eq!(client.ask("middle", "go").await.unwrap(), "over");
    let mut after = state(&client).await;
    let changed = after.0.iter_mut().find(|agent| agent.id == middle.id).unwrap();
    assert_eq!(changed.turns.as_ref().unwrap().completed, 1);
    let same = before.0.iter().find(|agent| agent.id == middle.id).unwrap();
    (changed.turns, changed.activity_time) = (same.turns, same.activity_time);
    assert_eq!(after, before);
    let events = client.events().await;
    let own: Vec<v1::Event> =
        events.into_iter().filter(|event| event.r#type.starts_with("tool_call.")).collect();
    only_refused(&own, &calls);
}

#[tokio::test]
async fn a_script_that_calls_what_is_not_there_fails_its_turn_and_changes_nothing() {
    for body in [r#"fly_away("x")"#, "send_message()", r#"spawn_agent("x")"#] {
        let script = format!("fn turn(prompt) {{ {body} }}");
        let (_daemon, client, middle) = home(&[], &script).await;
        let before = client.all_agents().await.len();
        let refused = client.ask("middle", "go").await.unwrap_err();
        assert_eq!(reason(&refused), "TURN_FAILED", "{body}: {refused}");
        assert_eq!(client.all_agents().await.len(), before);
        let events = client.events().await;
        let of_turn = |kind: &str| events.iter().any(|event| event.r#type == kind);
        assert!(of_turn("turn.failed"));
        let sent = events.iter().filter(|e| text(e, "sender") == middle.id).count();
        assert_eq!(sent, 0, "{body}");
    }
}

#[tokio::test]
async fn a_tree_that_is_as_deep_as_it_may_be_gets_no_deeper() {
    let daemon = Daemon::with(&["limits.depth=2"]);
    let client = daemon.client().await;
    let script = r#"fn turn(prompt) {
        spawn_agent("kid", "fn turn(p) { spawn_agent(`grandkid`, `fn turn(p) {}`); }");
        send_message("kid", "go")
    }"#;
    client.create("top", script).await;
    let refused = client.ask("top", "go").await.unwrap_err();
    assert_eq!(reason(&refused), "TURN_FAILED");
    assert!(refused.message().contains("the depth of the tree is at its limit of 2"), "{refused}");
    assert!(refused.message().contains("limits.depth"), "it says what to do: {refused}");
    let names: Vec<String> = client.all_agents().await.into_iter().map(|a| a.name).collect();
    assert_eq!(names, ["top", "kid"]);
    let request = v1::CreateAgentRequest {
        name: "grandkid".into(),
        parent: "top/kid".into(),
        instructions: ECHO.into(),
        ..Default::default()
    };
    let refused = client.agents.clone().create_agent(request).await.unwrap_err();
    assert_eq!(reason(&refused), "TREE_LIMIT");
}

#[tokio::test]
async fn reminders_end_at_their_limit_whoever_asks_for_ten_thousand() {
    let daemon = Daemon::with(&["limits.reminders=50"]);
    let client = daemon.client().await;
    let script = r#"fn turn(prompt) {
        let refused = 0; let last = "";
        for n in 0..10000 {
            try { remind_me("again", 3600, 60); } catch (error) { refused += 1; last = error; }
        }
        `${refused}: ${last}`
    }"#;
    client.create("eager", script).await;
    let answer = client.ask("eager", "go").await.unwrap();
    assert!(answer.starts_with("9950: there are already 50 reminders"), "{answer}");
    let request = v1::InspectAgentRequest { agent: "eager".into(), recent: 1 };
    let seen = client.agents.clone().inspect_agent(request).await.unwrap().into_inner();
    assert_eq!(seen.reminders.len(), 50);
}
