//! Agents that do not keep to their protocol harm their own turns, and nothing else.

use std::os::unix::fs::PermissionsExt;

use substrat_tests::harness::{Daemon, text};

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
        ("garbage", "permanent", "exit 3"),
        ("long", "protocol", "it wrote a line of more than"),
        ("half", "permanent", "it ended before its turn was done: exit 0"),
        ("nothing", "permanent", "it ended before its turn was done: exit 0"),
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
