//! The MCP server of `substratctl mcp`, by raw lines on its stdin and stdout.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::path::PathBuf;

use serde_json::{Value, json};
use substrat_proto::v1;
use substrat_tests::harness::{Daemon, say, text};
use substrat_tests::mcp::{Bridge, said};
use substrat_tests::team::{Team, tool_socket};

const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const KEY: &str = "claudecode/toolUseId";

fn socket(team: &Team) -> PathBuf {
    tool_socket(&team.daemon, &team.lead)
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

async fn inbox(team: &Team) -> Vec<v1::Message> {
    let request = v1::ListInboxRequest::default();
    team.client.agents.clone().list_inbox(request).await.unwrap().into_inner().messages
}

fn ask(recipient: &str) -> Value {
    json!({ "recipient": recipient, "text": "?" })
}

#[tokio::test]
async fn every_version_of_the_protocol_is_spoken() {
    let team = Team::start().await;
    for version in VERSIONS {
        let mut bridge = Bridge::start(&socket(&team), &[]);
        let pong = bridge.request("ping", &json!({})).await;
        assert_eq!(pong["result"], json!({}), "{version}");
        let hello = bridge.initialize(version).await;
        assert_eq!(hello["protocolVersion"], version);
        assert_eq!(hello["serverInfo"]["name"], "substrat");
        assert_eq!(hello["capabilities"]["tools"]["listChanged"], true);
        assert!(hello["instructions"].as_str().unwrap().contains("team"), "{hello}");
        assert!(names(&bridge.tools().await).contains(&"send_message"), "{version}");
        let called = bridge.call("list_children", &json!({})).await;
        assert_eq!(called["structuredContent"]["children"].as_array().unwrap().len(), 2);
    }
    let mut bridge = Bridge::start(&socket(&team), &[]);
    assert_eq!(bridge.initialize("1999-01-01").await["protocolVersion"], "2025-11-25");
}

/// The draft without a handshake: what a client of it asks first, and what it needs then.
#[tokio::test]
async fn a_client_that_does_not_say_hello_is_served() {
    let team = Team::start().await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
    });
    let mut bridge = Bridge::start(&socket(&team), &[]);
    let found = bridge.request("server/discover", &json!({ "_meta": meta })).await;
    let versions = found["result"]["supportedVersions"].as_array().unwrap();
    assert!(VERSIONS.iter().all(|version| versions.contains(&json!(version))), "{found}");
    let id = bridge.send_call("list_children", &json!({}), &meta);
    let called = bridge.response(id).await;
    assert_eq!(called["result"]["structuredContent"]["children"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn tools_are_listed_and_called_as_the_daemon_has_them() {
    let team = Team::start().await;
    let mut bridge = Bridge::ready(&socket(&team), &[]).await;
    let tools = bridge.tools().await;
    let channel = substrat_tests::harness::channel(&socket(&team)).await.unwrap();
    let mut own = v1::tool_service_client::ToolServiceClient::new(channel);
    let listed = own.list_tools(v1::ListToolsRequest {}).await.unwrap().into_inner().tools;
    assert_eq!(tools.len(), listed.len());
    for (tool, offered) in tools.iter().zip(&listed) {
        assert_eq!(tool["name"], offered.name);
        assert_eq!(tool["description"], offered.description);
        let schema = &tool["inputSchema"];
        assert_eq!(schema["type"], "object", "{tool}");
        assert_eq!(schema["additionalProperties"], false, "{tool}");
    }
    let sent = tools.iter().find(|tool| tool["name"] == "send_message").unwrap();
    assert_eq!(sent["inputSchema"]["required"], json!(["recipient", "text"]));

    let children = bridge.call("list_children", &json!({})).await;
    assert_eq!(children["isError"], false);
    let shown: Value = serde_json::from_str(said(&children)).unwrap();
    assert_eq!(shown, children["structuredContent"]);
    let answered = bridge.call("send_message", &ask("echo")).await;
    assert_eq!(answered["structuredContent"]["text"], "you said: ?", "{answered}");
    let told = json!({ "recipient": "USER", "text": "größe", "sync": false });
    assert_eq!(bridge.call("send_message", &told).await["structuredContent"]["status"], "sent");
    let made = json!({ "name": "new", "instructions": "fn turn(prompt) { \"x\" }" });
    let made = bridge.call("spawn_agent", &made).await;
    assert_eq!(made["structuredContent"]["status"], "accepted", "{made}");
    let read = bridge.call("read_file", &json!({ "path": "none" })).await;
    assert_eq!(read["isError"], true);
    assert!(said(&read).contains("there is nothing at"), "{read}");
    let written = json!({ "path": "note", "content": "one\n" });
    let wrote = bridge.call("write_file", &written).await;
    assert_eq!(wrote["structuredContent"]["bytes"], 4, "{wrote}");
}

#[tokio::test]
async fn what_is_wrong_with_a_call_is_said() {
    let team = Team::start().await;
    let mut bridge = Bridge::ready(&socket(&team), &[]).await;
    let bad = "ARGUMENTS_INVALID";
    for (name, args, complaint, reason) in [
        ("send_message", json!({ "recipient": "echo" }), "missing field `text`", bad),
        ("send_message", json!({ "recipient": 7, "text": "x" }), "recipient: invalid type", bad),
        ("send_message", ask("stranger"), "no agent \"stranger\"", "AGENT_NOT_FOUND"),
        ("inspect_agent", json!({ "name": "echo", "all": true }), "unknown field `all`", bad),
        ("read_file", json!({ "path": "none" }), "there is nothing at", "TOOL_FAILED"),
    ] {
        let refused = bridge.call(name, &args).await;
        assert_eq!(refused["isError"], true, "{refused}");
        assert!(said(&refused).contains(complaint), "{refused}");
        let structured = json!({ "error": said(&refused), "reason": reason });
        assert_eq!(refused["structuredContent"], structured);
    }
    // What is no call of a tool is an error of the protocol.
    for (method, params, code, complaint) in [
        ("tools/call", json!({ "name": "fly_away" }), -32602, "unknown tool \"fly_away\""),
        ("tools/call", json!({ "name": "complete" }), -32602, "unknown tool \"complete\""),
        ("tools/call", json!({ "name": "list_children", "arguments": [] }), -32602, "object"),
        ("tools/call", json!({}), -32602, "wants a name"),
        ("tools/fly", json!({}), -32601, "tools/fly"),
    ] {
        let refused = bridge.request(method, &params).await;
        assert_eq!(refused["error"]["code"], code, "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(complaint), "{refused}");
    }
    bridge.raw(r#"{"jsonrpc":"2.0","id":"text","method":"ping"}"#);
    assert_eq!(bridge.wait(|message| message["id"] == "text").await["result"], json!({}));
}

#[tokio::test]
async fn garbage_is_passed_over_and_the_end_of_input_is_the_end() {
    let team = Team::start().await;
    let mut bridge = Bridge::start(&socket(&team), &[]);
    for line in ["", "this is not JSON", "{\"jsonrpc\":", "\u{0}\u{1}"] {
        bridge.raw(line);
    }
    bridge.initialize("2025-06-18").await;
    bridge.raw("{\"half\": ");
    bridge.raw("[1, 2]");
    bridge.raw(r#"{"jsonrpc":"2.0","method":"notifications/of_nobody"}"#);
    let pong = bridge.request("ping", &json!({})).await;
    assert_eq!(pong["result"], json!({}));
    assert!(bridge.close().success());
    let mut unused = Bridge::start(&socket(&team), &[]);
    assert!(unused.close().success());
}

#[tokio::test]
async fn a_call_that_the_client_repeats_has_one_effect() {
    let team = Team::start().await;
    let mut bridge = Bridge::ready(&socket(&team), &[]).await;
    let told = json!({ "recipient": "USER", "text": "news" });
    for key in [KEY, "callId"] {
        let meta = json!({ key: format!("toolu_{key}") });
        let first = bridge.send_call("send_message", &told, &meta);
        let first = bridge.response(first).await["result"].clone();
        let mut again = Bridge::ready(&socket(&team), &[]).await;
        let second = again.send_call("send_message", &told, &meta);
        assert_eq!(again.response(second).await["result"], first);
    }
    let other =
        bridge.send_call("send_message", &ask("echo"), &json!({ KEY: format!("toolu_{KEY}") }));
    let refused = bridge.response(other).await["result"].clone();
    assert_eq!(refused["isError"], true);
    assert!(said(&refused).contains("request id"), "{refused}");
    assert_eq!(refused["structuredContent"]["reason"], "REQUEST_ID_REUSED");
    assert_eq!(inbox(&team).await.len(), 2);
}

#[tokio::test]
async fn a_key_of_any_length_and_kind_is_a_key() {
    let team = Team::start().await;
    let mut bridge = Bridge::ready(&socket(&team), &[]).await;
    let keys =
        [json!("x".repeat(200)), json!("line\nline"), json!(7), json!("7"), json!({ "a": 1 })];
    for (count, key) in (1..).zip(&keys) {
        let told = json!({ "recipient": "USER", "text": format!("news {count}") });
        let meta = json!({ KEY: key });
        let first = bridge.send_call("send_message", &told, &meta);
        let first = bridge.response(first).await["result"].clone();
        assert_eq!(first["isError"], false, "{first}");
        let second = bridge.send_call("send_message", &told, &meta);
        assert_eq!(bridge.response(second).await["result"], first);
        assert_eq!(inbox(&team).await.len(), count, "{key}");
    }
}

#[tokio::test]
async fn a_call_that_is_too_large_is_refused_at_once() {
    let team = Team::start().await;
    let mut bridge = Bridge::ready(&socket(&team), &["--patience", "1000h"]).await;
    let large = json!({ "recipient": "echo", "text": "x".repeat(5 << 20) });
    let refused = bridge.call("send_message", &large).await;
    assert_eq!(refused["isError"], true);
    let text = "the request is larger than 4194304 bytes; write it to a file and send the path";
    assert_eq!(said(&refused), text);
    assert_eq!(bridge.call("list_children", &json!({})).await["isError"], false);
}

#[tokio::test]
async fn a_line_that_is_too_long_is_answered() {
    let team = Team::start().await;
    let long = "x".repeat(16 << 20);
    let mut bridge = Bridge::start(&socket(&team), &[]);
    bridge.raw(&format!(r#"{{"jsonrpc":"2.0","id":50,"method":"{long}"}}"#));
    assert!(bridge.response(50).await["error"].is_object());
    bridge.initialize("2025-11-25").await;
    let params = format!(r#""method":"tools/call","params":{{"name":"{long}"}}"#);
    for (line, id) in [
        (format!(r#"{{"jsonrpc":"2.0","id":51,{params}}}"#), json!(51)),
        (format!(r#"{{{params},"jsonrpc":"2.0","id":"end"}}"#), json!("end")),
    ] {
        bridge.raw(&line);
        let refused = bridge.wait(|message| message["id"] == id).await;
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("16777216 bytes"));
    }
    bridge.raw(&format!(r#"{{{params}}}"#));
    let refused = bridge.wait(|message| message["error"]["code"] == -32600).await;
    assert!(refused["id"].is_null(), "{refused}");
    assert_eq!(bridge.call("list_children", &json!({})).await["isError"], false);
}

#[tokio::test]
async fn a_request_with_an_id_that_is_none_is_answered() {
    let team = Team::start().await;
    let mut bridge = Bridge::ready(&socket(&team), &[]).await;
    for id in ["1.5", "[1]", "true"] {
        bridge.raw(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#));
        let refused = bridge.wait(|message| message.get("error").is_some()).await;
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
        assert!(refused["id"].is_null(), "{refused}");
    }
}

#[tokio::test]
async fn a_cancelled_call_ends_in_the_daemon_too() {
    let team = Team::start().await;
    let mut bridge = Bridge::ready(&socket(&team), &[]).await;
    let id = bridge.send_call("send_message", &ask("gated"), &json!({}));
    let waiting = team.client.wait_type(1, &team.lead, "turn.waiting").await;
    bridge.notify("notifications/cancelled", &json!({ "requestId": id, "reason": "enough" }));
    let call = text(&waiting, "call_id").to_owned();
    let closes =
        |event: &v1::Event| event.r#type == "tool_call.result" && text(event, "call_id") == call;
    let closed = team.client.wait_event(1, closes).await;
    assert_eq!(text(&closed, "error"), "[Cancelled by the caller]");
    assert_eq!(bridge.call("list_children", &json!({})).await["isError"], false);
    let rest = bridge.rest().await;
    assert!(rest.iter().all(|message| message["id"] != id), "{rest:?}");
}

#[tokio::test]
async fn a_long_call_says_that_it_still_runs() {
    let team = Team::start().await;
    let mut bridge = Bridge::ready(&socket(&team), &[]).await;
    let id = bridge.send_call("send_message", &ask("gated"), &json!({ "progressToken": "p-1" }));
    let first = bridge.notification("notifications/progress").await;
    assert_eq!(first["params"]["progressToken"], "p-1");
    let second = bridge.notification("notifications/progress").await;
    let number = |message: &Value| message["params"]["progress"].as_f64().unwrap();
    assert!(number(&second) > number(&first), "{second}");
    team.daemon.ctl_ok(&["agent", "ungate", "gated"]);
    let answered = bridge.response(id).await;
    assert_eq!(answered["result"]["structuredContent"]["status"], "answered", "{answered}");
}

#[tokio::test]
async fn a_call_that_the_daemon_died_under_is_answered_once() {
    let mut team = Team::start().await;
    let mut bridge = Bridge::ready(&socket(&team), &[]).await;
    let before = bridge.tools().await;
    let id = bridge.send_call("send_message", &ask("gated"), &json!({}));
    team.client.wait_type(1, &team.lead, "turn.waiting").await;
    team.crash().await;
    let answer = bridge.response(id).await;
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert_eq!(said(&answer["result"]), "[Interrupted: outcome unknown]");
    assert_eq!(bridge.tools().await, before);
    assert_eq!(bridge.call("list_children", &json!({})).await["isError"], false);
    let rest = bridge.rest().await;
    assert_eq!(rest, Vec::<Value>::new(), "the client notices nothing");
    let events = team.client.events().await;
    let asked = |event: &&v1::Event| {
        event.r#type == "tool_call.invoked" && text(event, "tool") == "send_message"
    };
    assert_eq!(events.iter().filter(asked).count(), 1);
}

/// A call that is made while there is no daemon is made when there is one.
#[tokio::test]
async fn a_call_waits_for_the_daemon_and_the_list_is_announced() {
    let mut team = Team::start().await;
    let path = socket(&team);
    team.kill();
    let mut bridge = Bridge::ready(&path, &[]).await;
    assert_eq!(bridge.tools().await, Vec::<Value>::new());
    let id = bridge.send_call("list_children", &json!({}), &json!({}));
    team.start_again().await;
    bridge.notification("notifications/tools/list_changed").await;
    assert!(names(&bridge.tools().await).contains(&"send_message"));
    assert_eq!(bridge.response(id).await["result"]["isError"], false);
}

#[tokio::test]
async fn patience_with_a_daemon_that_is_not_there_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut bridge =
        Bridge::ready(&folder.path().join("none.sock"), &["--patience", "100ms"]).await;
    let failed = bridge.call("send_message", &ask("echo")).await;
    assert_eq!(failed["isError"], true);
    assert!(said(&failed).contains("has not answered for 0.1 s"), "{failed}");
    assert_eq!(failed["structuredContent"], json!({ "error": said(&failed), "reason": "" }));
    assert!(bridge.close().success());
}

#[tokio::test]
async fn a_call_outside_of_a_turn_says_so() {
    let team = Team::start().await;
    team.client.ask("echo", "hi").await.unwrap();
    let mut bridge = Bridge::ready(&tool_socket(&team.daemon, &team.echo), &[]).await;
    let listed = bridge.tools().await;
    let names = names(&listed);
    assert!(names.contains(&"complete") && names.contains(&"broadcast"), "{names:?}");
    let refused = bridge.call("list_children", &json!({})).await;
    assert_eq!(refused["isError"], true);
    assert!(said(&refused).contains("has no running turn"), "{refused}");
    assert_eq!(refused["structuredContent"]["reason"], "NO_TURN");
}

#[tokio::test]
async fn only_a_tool_socket_is_served() {
    let daemon = Daemon::start();
    let mut bridge = Bridge::start(&daemon.socket(), &[]);
    assert_eq!(bridge.ended().code(), Some(6));
    let refused = say(&daemon.home, &["mcp"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(6), ""));
    assert!(refused.stderr.contains("there is no tool socket"), "{refused:?}");
    let refused = say(&daemon.home, &["mcp", "--agent", "lead"]);
    assert_eq!(refused.code, Some(2));
}
