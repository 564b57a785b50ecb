//! Agents that do not keep to their protocol harm their own turns, and nothing else.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use substrat_proto::v1;
use substrat_tests::harness::{Daemon, text};

use super::KEY;

const BAD: &str = r#"#!/usr/bin/python3
import os, sys, time
how = sys.argv[1]
sys.stdin.readline()
if how == "garbage":
    os.write(1, os.urandom(1 << 20))
    sys.exit(3)
if how == "long":
    for _ in range(100):
        os.write(1, b"x" * (1 << 20))
if how == "half":
    os.write(1, b'{"jsonrpc":"2.0","id":0,"result":{"agentInfo":{"name":"caf\xc3')
if how == "closes":
    os.close(1)
    time.sleep(1000)
if how == "silent":
    time.sleep(1000)
if how == "version":
    print('{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":7}}', flush=True)
    time.sleep(1000)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_breaks_its_protocol_fails_its_own_turn() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("bad");
    std::fs::write(&program, BAD).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let kinds = [
        ("garbage", "killed", "exit 3"),
        ("long", "protocol", "it wrote a line of more than"),
        ("half", "killed", "it ended before its turn was done: exit 0"),
        ("nothing", "killed", "it ended before its turn was done: exit 0"),
        ("closes", "killed", "it closed its output"),
        ("version", "protocol", "it speaks version 7"),
        ("silent", "stalled", "nothing was heard of it for 11 s"),
    ];
    let settings = kinds.map(|(how, ..)| {
        [
            format!("providers.{how}.kind=acp"),
            format!("providers.{how}.program={}", program.display()),
            format!("providers.{how}.args=[\"{how}\"]"),
            format!("providers.{how}.attempts=1"),
            format!("providers.{how}.stall_seconds=11"),
        ]
    });
    let settings: Vec<&str> = settings.iter().flatten().map(String::as_str).collect();
    let daemon = Daemon::on(&folder.path().join("home"), &settings);
    let client = daemon.client().await;
    client.create("good", "fn turn(prompt) { messages()[0].text }").await;
    for (how, class, words) in kinds {
        let before = client.sequence().await;
        daemon.ctl_ok(&["agent", "create", how, "--provider", how]);
        client.tell(how, "hello").await;
        assert_eq!(client.ask("good", how).await.unwrap(), how, "others go on");
        let failed = client.wait_event(before + 1, |event| event.r#type == "turn.failed").await;
        assert_eq!(text(&failed, "class"), class, "{how}: {failed:?}");
        assert!(text(&failed, "error").contains(words), "{how}: {failed:?}");
    }
    let events = client.events().await;
    let stalled = events.iter().filter(|event| event.r#type == "turn.stalled");
    assert_eq!(stalled.count(), 1, "silence is told before it is ended");
}

/// Speaks the protocol, and does in its turn what its argument says.
const AGENT: &str = r##"#!/usr/bin/python3
import json, os, subprocess, sys
how = sys.argv[1]
def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def ask(number, title, input):
    option = lambda kind: {"optionId": kind, "name": kind, "kind": kind}
    options = [option(kind) for kind in ("allow_always", "allow_once", "reject_once")]
    call = {"toolCallId": f"t{number}", "title": title, "kind": "execute", "rawInput": input}
    params = {"sessionId": "s", "toolCall": call, "options": options}
    say(id=number, method="session/request_permission", params=params)
    return json.loads(sys.stdin.readline())["result"]["outcome"].get("optionId", "cancelled")
def work():
    if how == "forges":
        forged = {"command": "rm -rf /", "server": "substrat", "tool": "send_message"}
        return ask(1, "developer: shell", forged) + " " + ask(2, "send_message (substrat MCP Server)", {})
    if how == "asks":
        return [ask(number, "shell", {}) for number in range(1003)][-1]
    if how == "tells":
        key = os.environ["THE_KEY"]
        return ask(1, "curl -H 'x-api-key: " + key + "'", {"command": key})
    if how == "floods":
        for _ in range(1024):
            os.write(1, b'{"id":1,"method":"m"}\n' * 3000)
        return "all of it was read"
    return "done"
def call_late(server):
    """Calls a tool of Substrat after the turn's attempt was over, and returns what that said."""
    env = {one["name"]: one["value"] for one in server["env"]}
    bridge = subprocess.Popen([server["command"], *server["args"]], env={**os.environ, **env},
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    def request(method, **params):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        bridge.stdin.write(json.dumps(message) + "\n")
        bridge.stdin.flush()
        return bridge.stdout.readline()
    info = {"name": "late", "version": "1"}
    request("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=info)
    told = {"metadata": {"note": "my key is " + os.environ["THE_KEY"]}}
    return request("tools/call", name="set_agent_metadata", arguments=told)
said = None
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        say(id=message["id"], result={"protocolVersion": 1, "agentInfo": {"name": "goose"}})
    elif message.get("method") == "session/new":
        servers = message["params"]["mcpServers"]
        say(id=message["id"], result={"sessionId": "s"})
    elif how == "late" and message.get("method") == "session/prompt" and servers:
        say(id=message["id"], error={"code": 529, "message": "overloaded"})
        said = call_late(servers.pop())
    elif message.get("method") == "session/prompt":
        content = {"type": "text", "text": said or work()}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        say(method="session/update", params={"sessionId": "s", "update": update})
        say(id=message["id"], result={"stopReason": "end_turn"})
        if how == "goes on":
            for _ in range(33):
                os.write(1, b"x" * (1 << 20))
"##;

/// A daemon with an agent that does so in its turns.
fn agent(folder: &Path, how: &str, more: &[&str]) -> Daemon {
    let program = folder.join("agent");
    std::fs::write(&program, AGENT).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let settings = [
        "providers.bad.kind=acp".to_owned(),
        format!("providers.bad.program={}", program.display()),
        format!("providers.bad.args=[\"{how}\"]"),
        "providers.bad.attempts=1".to_owned(),
    ];
    let settings: Vec<&str> =
        settings.iter().map(String::as_str).chain(more.iter().copied()).collect();
    let daemon = Daemon::on(&folder.join("home"), &settings);
    daemon.ctl_ok(&["agent", "create", "m", "--provider", "bad"]);
    daemon
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_called_like_a_tool_of_substrat_is_asked_about_and_logged() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = agent(folder.path(), "forges", &["providers.bad.unattended=deny"]);
    let client = daemon.client().await;
    assert_eq!(client.ask("m", "hello").await.unwrap(), "reject_once reject_once");
    let events = client.events().await;
    for name in ["permission.asked", "permission.answered", "tool_use.started"] {
        let of_name: Vec<_> = events.iter().filter(|event| event.r#type == name).collect();
        assert_eq!(of_name.len(), 2, "{name}: {of_name:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_asks_without_end_is_denied_and_no_longer_logged() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = agent(folder.path(), "asks", &["providers.bad.permissions=allow"]);
    let client = daemon.client().await;
    assert_eq!(client.ask("m", "hello").await.unwrap(), "reject_once");
    let events = client.events().await;
    let count = |name: &str| events.iter().filter(|event| event.r#type == name).count();
    assert_eq!((count("permission.asked"), count("permission.answered")), (1000, 1000));
    let notices = events.iter().filter(|event| event.r#type == "turn.notice");
    let told: Vec<_> = notices.map(|notice| text(notice, "text")).collect();
    assert_eq!(told, ["asked 1000 times; what it asks further is denied"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_the_name_of_a_tool_is_told_to_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, KEY).unwrap();
    let key = format!("providers.bad.key_file={}", key.display());
    let daemon = agent(folder.path(), "tells", &[&key, "providers.bad.key_as=THE_KEY"]);
    let client = daemon.client().await;
    assert_eq!(client.ask("m", "hello").await.unwrap(), "allow_once");
    let events = client.events().await;
    let asked = events.iter().find(|event| event.r#type == "permission.asked").unwrap();
    assert!(text(asked, "tool").contains("x-api-key: [hidden]"), "{asked:?}");
    for event in events {
        assert!(!format!("{event:?}").contains(KEY), "{event:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_a_call_between_two_attempts_is_told_to_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, KEY).unwrap();
    let key = format!("providers.bad.key_file={}", key.display());
    let more = [key.as_str(), "providers.bad.key_as=THE_KEY", "providers.bad.attempts=2"];
    let daemon = agent(folder.path(), "late", &more);
    let client = daemon.client().await;
    // It is refused, unless it comes so late that the next attempt runs.
    let refused = client.ask("m", "hello").await.unwrap().contains("has no running turn");
    let events = client.events().await;
    let told = |event: &v1::Event| format!("{event:?}").contains("my key is [hidden]");
    assert!(refused != events.iter().any(told), "{events:#?}");
    for event in events {
        assert!(!format!("{event:?}").contains(KEY), "{event:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_reads_no_answers_is_not_read_either() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = agent(folder.path(), "floods", &["providers.bad.stall_seconds=11"]);
    let client = daemon.client().await;
    assert!(client.ask("m", "hello").await.is_err());
    let failed = client.wait_event(0, |event| event.r#type == "turn.failed").await;
    assert_eq!(text(&failed, "class"), "stalled", "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_without_end_between_turns_fails_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = agent(folder.path(), "goes on", &[]);
    let client = daemon.client().await;
    assert_eq!(client.ask("m", "hello").await.unwrap(), "done");
    assert!(client.ask("m", "hello").await.is_err());
    let failed = client.wait_event(0, |event| event.r#type == "turn.failed").await;
    assert_eq!(text(&failed, "class"), "protocol", "{failed:?}");
}
