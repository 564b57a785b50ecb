//! Keys that are exchanged or missing, and who stands in where one is not let in.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use substrat_tests::harness::{Daemon, say, text};
use substrat_tests::model_server::Behaviour;

use super::{Agent, Bench, CLAUDE, CODEX, CURSOR, KEY};

const OTHER: &str = "sk-test-0815-fedcba";

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_exchanged_is_in_force_with_the_next_turn() {
    for agent in [CLAUDE, CODEX, CURSOR] {
        exchange(agent).await;
    }
}

async fn exchange(agent: Agent) {
    let Some(bench) = Bench::start(agent, &["providers.cli.attempts=1"]) else { return };
    let client = bench.client().await;
    let shows = |key: &str| {
        let requests = bench.server.requests();
        let last = requests.iter().rev().find(|request| !request.aside).unwrap();
        last.headers.values().any(|value| value.contains(key))
    };
    client.ask("m", "SAY alpha noted").await.unwrap();
    assert!(shows(KEY));
    std::fs::write(bench.folder.path().join("key"), OTHER).unwrap();
    let recalled = client.ask("m", "RECALL").await.unwrap();
    assert!(recalled.contains("alpha noted"), "{recalled}");
    assert!(shows(OTHER) && !shows(KEY), "{}", agent.program);
    // One that was refused is not spoken to again.
    let before = client.sequence().await;
    let refused = client.ask("m", "STATUS 401").await.unwrap_err();
    let key = bench.folder.path().join("key");
    let wanted = format!("its key comes from the file {}", key.display());
    assert!(refused.message().contains(&wanted), "{}: {refused}", agent.program);
    client.wait_event(before + 1, |event| event.r#type == "process.exited").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_an_agent_puts_into_a_call_is_told_to_nobody() {
    for agent in [CLAUDE, CODEX] {
        told_in_a_call(agent).await;
    }
}

async fn told_in_a_call(agent: Agent) {
    let Some(bench) = Bench::start(agent, &[]) else { return };
    let client = bench.client().await;
    let create = ["agent", "create", "echo", "--parent", "m", "--provider", "scripted"];
    let echo = r#"fn turn(prompt) { "heard " + messages()[0].text }"#;
    bench.daemon.ctl_ok(&[&create[..], &["--instructions", echo]].concat());
    let tool = "send_message".to_owned();
    let args = json!({ "recipient": "echo", "text": format!("my key is {KEY}") });
    bench.server.next([Behaviour::Call { tool, args }]);
    bench.server.next([Behaviour::Say("sent".to_owned())]);
    assert_eq!(client.ask("m", "tell the echo").await.unwrap(), "sent");
    let events = client.events().await;
    let told = |event: &&_| text(event, "payload") == "my key is [hidden]";
    assert_eq!(events.iter().filter(told).count(), 1, "{}: {events:#?}", agent.program);
    for event in events {
        assert!(!format!("{event:?}").contains(KEY), "{}: {event:?}", agent.program);
    }
}

/// Answers with its prompt, unless it is told to break.
const PROGRAM: &str = r#"import json, sys
for line in sys.stdin:
    turn = json.loads(line)
    if turn["type"] != "turn":
        continue
    if "break" in turn["messages"][0]["text"]:
        said = {"type": "error", "class": "overflow", "message": "too long"}
    else:
        said = {"type": "done", "response": turn["prompt"]}
    print(json.dumps(said), flush=True)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn one_that_stands_in_again_does_not_go_on_with_what_it_was_told_before() {
    for agent in [CLAUDE, CODEX, CURSOR] {
        stand_in_twice(agent).await;
    }
}

async fn stand_in_twice(agent: Agent) {
    let own = ["providers.own.kind=program", r#"providers.own.fallback=["cli"]"#];
    let Some(bench) = Bench::start(agent, &own) else { return };
    let client = bench.daemon.client().await;
    bench.daemon.ctl_ok(&["workspace", "create", "desk"]);
    std::fs::write(bench.root("desk").join("own.py"), PROGRAM).unwrap();
    let create = ["agent", "create", "m", "--provider", "own", "--workspace", "desk", "--model"];
    bench.daemon.ctl_ok(&[&create[..], &["python3 own.py"]].concat());
    let answer = client.ask("m", "break one\nSAY spare here").await.unwrap();
    assert_eq!(answer, "spare here");
    client.ask("m", "break two\nSAY here again").await.unwrap();
    let asked = bench.server.request(|request| request.user.contains("break two")).await;
    let told = asked.body.to_string().matches("break one").count();
    assert_eq!(told, 1, "{}: {}", agent.program, asked.body);
}

#[test]
fn a_look_at_one_without_key_and_login_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("agent");
    std::fs::write(&program, "#!/bin/sh\necho 1.0\n").unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let set = |key: &str| format!("providers.bare.{key}");
    let settings = [
        set("kind=claude-code"),
        set(&format!("program={}", program.display())),
        set("key_env="),
        set("login=false"),
    ];
    let settings = settings.each_ref().map(String::as_str);
    let daemon = Daemon::on(&folder.path().join("home"), &settings);
    let checked = say(&daemon.home, &["provider", "check", "bare"]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    let wanted = "it has neither a key nor a login: name a key in [providers.bare]";
    assert!(checked.stderr.contains(wanted), "{checked:?}");
}

#[test]
fn a_look_at_an_adapter_says_which_cli_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("adapter");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let set = |key: &str| format!("providers.claude-acp.{key}");
    let settings = [
        set(&format!("program={}", program.display())),
        set(r#"env={CLAUDE_CODE_EXECUTABLE="/nowhere/claude"}"#),
    ];
    let settings = settings.each_ref().map(String::as_str);
    let daemon = Daemon::on(&folder.path().join("home"), &settings);
    let checked = say(&daemon.home, &["provider", "check", "claude-acp"]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    let wanted = "CLAUDE_CODE_EXECUTABLE names /nowhere/claude, and there is no such program";
    assert!(checked.stderr.contains(wanted), "{checked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_one_is_not_installed_another_stands_in() {
    let gone = [
        "providers.gone.kind=claude-code",
        "providers.gone.program=/nowhere/claude",
        r#"providers.gone.fallback=["cli"]"#,
    ];
    let Some(bench) = Bench::start(CURSOR, &gone) else { return };
    let client = bench.daemon.client().await;
    bench.daemon.ctl_ok(&["agent", "create", "m", "--provider", "gone"]);
    assert_eq!(client.ask("m", "SAY spare here").await.unwrap(), "spare here");
    let tried = client.wait_event(1, |event| event.r#type == "turn.retry").await;
    assert_eq!((text(&tried, "provider"), text(&tried, "class")), ("cli", "provider-gone"));
    assert!(text(&tried, "error").contains("/nowhere/claude is no program"), "{tried:?}");
}
