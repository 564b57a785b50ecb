//! Reading the configuration again while the daemon runs.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use substrat_tests::harness::{Daemon, say};
use substrat_tests::model_server::ModelServer;

const ECHO: &str = r#"fn turn(prompt) { "you said: " + messages()[0].text }"#;

#[test]
fn a_provider_is_there_after_a_reload_and_no_turn_is_disturbed() {
    let mut daemon = Daemon::start();
    let waits =
        r#"fn turn(prompt) { while list_files().entries.len() == 0 { sleep_ms(20); } "done" }"#;
    daemon.ctl_ok(&["workspace", "create", "desk"]);
    let args = ["agent", "create", "waits", "--workspace", "desk", "--instructions", waits];
    daemon.ctl_ok(&args);
    daemon.ctl_ok(&["agent", "send", "waits", "go", "--no-wait"]);
    let path = daemon.home.join("config.toml");
    let section =
        "[providers.second]\nkind = \"scripted\"\nslots = 3\n[journal]\nsegment_mib = 2\n";
    std::fs::write(&path, section).unwrap();
    let told = daemon.ctl_ok(&["daemon", "reload"]);
    let wanted = "provider added: second\nin force after a restart: journal.segment_mib\n";
    assert_eq!(told, wanted);
    let told = daemon.ctl_ok(&["daemon", "reload"]);
    assert_eq!(told, "in force after a restart: journal.segment_mib\n");
    let create = ["agent", "create", "new", "--provider", "second", "--instructions", ECHO];
    daemon.ctl_ok(&create);
    assert_eq!(daemon.ctl_ok(&["agent", "send", "new", "x"]), "you said: x\n");
    let listed = daemon.ctl_ok(&["provider", "list"]);
    let row = listed
        .lines()
        .find(|line| line.starts_with("second "))
        .unwrap_or_else(|| panic!("{listed}"));
    assert!(row.split_whitespace().take(5).eq(["second", "yes", "1", "of", "3"]), "{listed}");
    // One that cannot be used changes nothing.
    std::fs::write(&path, "[providers.second]\nkind = \"nope\"").unwrap();
    let said = say(&daemon.home, &["daemon", "reload"]);
    assert_eq!(said.code, Some(5));
    assert!(said.stderr.contains("providers.second.kind: there is no kind \"nope\""), "{said:?}");
    assert_eq!(daemon.ctl_ok(&["agent", "send", "new", "y"]), "you said: y\n");
    // Without it, turns of its agents fail and say so.
    std::fs::write(&path, "").unwrap();
    let told = daemon.ctl_ok(&["daemon", "reload"]);
    assert_eq!(told, "provider removed: second\n");
    let said = say(&daemon.home, &["agent", "send", "new", "z"]);
    assert!(said.stderr.contains("its provider \"second\" is not configured"), "{said:?}");
    let checked = say(&daemon.home, &["provider", "check", "second"]);
    assert!(checked.stderr.contains("no provider \"second\""), "{checked:?}");
    assert!(daemon.ctl_ok(&["provider", "check", "scripted"]).contains("it can run here"));
    // The turn from before all of it goes on.
    let desk = say(&daemon.home, &["workspace", "show", "desk", "-o", "json"]).json();
    std::fs::write(Path::new(desk["workspace"]["root"].as_str().unwrap()).join("go"), "").unwrap();
    daemon.ctl_ok(&["agent", "send", "waits", "again"]);
    assert!(daemon.stop());
}

#[test]
fn keys_with_dots_are_kept_and_compared() {
    let daemon = Daemon::start();
    let reload = |settings: &str| {
        let file = format!(
            "[providers.gemini.files]\n\".gemini/settings.json\" = '{settings}'\n\
             [providers.\"my.script\"]\nkind = \"scripted\"\n"
        );
        std::fs::write(daemon.home.join("config.toml"), file).unwrap();
        daemon.ctl_ok(&["daemon", "reload"])
    };
    assert_eq!(reload("{}"), "provider added: my.script\nprovider changed: gemini\n");
    assert_eq!(reload("{}"), "nothing has changed\n");
    assert_eq!(reload("{ }"), "provider changed: gemini\n");
    let create = ["agent", "create", "a", "--provider", "my.script", "--instructions", ECHO];
    daemon.ctl_ok(&create);
    assert_eq!(daemon.ctl_ok(&["agent", "send", "a", "hi"]), "you said: hi\n");
    let shown = daemon.ctl_ok(&["config", "show"]);
    assert!(shown.contains("providers.\"my.script\".kind"), "{shown}");
}

#[test]
fn a_turn_that_fails_since_its_provider_is_of_another_kind_says_so() {
    let daemon = Daemon::start();
    let path = daemon.home.join("config.toml");
    let section = |kind: &str| format!("[providers.odd]\nkind = \"{kind}\"\n");
    let reload = |kind: &str| {
        std::fs::write(&path, section(kind)).unwrap();
        daemon.ctl_ok(&["daemon", "reload"]);
    };
    reload("scripted");
    let create = ["agent", "create", "a", "--provider", "odd", "--instructions", ECHO];
    daemon.ctl_ok(&create);
    assert_eq!(daemon.ctl_ok(&["agent", "send", "a", "hi"]), "you said: hi\n");
    reload("program");
    let said = say(&daemon.home, &["agent", "send", "a", "hi"]);
    let note = "before a reload its provider \"odd\" was of the kind \"scripted\"";
    assert!(said.stderr.contains(note), "{said:?}");
    reload("scripted");
    assert_eq!(daemon.ctl_ok(&["agent", "send", "a", "hi"]), "you said: hi\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_becomes_of_another_kind_is_told_what_was_said() {
    let (server, folder) = (ModelServer::start(), tempfile::tempdir().unwrap());
    let program = folder.path().join("cursor-agent");
    std::fs::write(&program, include_str!("../src/cursor_agent.py")).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "sk-test-4711-abcdef").unwrap();
    let daemon = Daemon::on(&folder.path().join("home"), &[]);
    let reload = |keys: &str| {
        let common = format!("base_url = \"{}/v1\"\nkey_file = {key:?}", server.url());
        let section = format!("[providers.odd]\n{common}\nmodel = \"fake-1\"\n{keys}\n");
        std::fs::write(daemon.home.join("config.toml"), section).unwrap();
        daemon.ctl_ok(&["daemon", "reload"]);
    };
    let bare = "kind = \"openai\"";
    let agent = format!("kind = \"cursor-agent\"\nprogram = {program:?}");
    reload(bare);
    daemon.ctl_ok(&["agent", "create", "a", "--provider", "odd"]);
    let client = daemon.client().await;
    client.ask("a", "SAY alpha noted").await.unwrap();
    let told = || server.requests().pop().unwrap().body.to_string();
    // The agent begins with nothing, keeps what it is told, and misses what is said without it.
    for (keys, say, wanted, times) in [
        (&*agent, "SAY beta noted", "You said: alpha noted", 1),
        (&*agent, "SAY gamma noted", "You said: alpha noted", 1),
        (bare, "SAY delta noted", "gamma noted", 2),
        (&*agent, "SAY epsilon noted", "You said: delta noted", 1),
        (&*agent, "SAY zeta noted", "You said: delta noted", 1),
    ] {
        reload(keys);
        client.ask("a", say).await.unwrap();
        assert_eq!(told().matches(wanted).count(), times, "{say}: {}", told());
    }
    let events = client.events().await;
    let notices = events.iter().filter(|event| {
        event.r#type == "turn.notice" && format!("{event:?}").contains("is told it from the log")
    });
    assert_eq!(notices.count(), 2, "once for each time that it came");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_goes_on_with_the_provider_that_it_began_with() {
    let (before, after) = (ModelServer::start(), ModelServer::start());
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::on(&folder.path().join("home"), &[]);
    let reload = |server: &ModelServer| {
        let url = server.url();
        let section = format!(
            "[providers.odd]\nkind = \"openai\"\nbase_url = \"{url}/v1\"\nmodel = \"fake-1\"\n"
        );
        std::fs::write(daemon.home.join("config.toml"), section).unwrap();
        daemon.ctl_ok(&["daemon", "reload"]);
    };
    reload(&before);
    daemon.ctl_ok(&["agent", "create", "a", "--provider", "odd"]);
    let client = daemon.client().await;
    let from = client.sequence().await;
    let text = "STATUS 429 retry-after 3 once\nSAY from here";
    daemon.ctl_ok(&["agent", "send", "a", text, "--no-wait"]);
    client.wait_event(from, |event| event.r#type == "turn.retry").await;
    reload(&after);
    client.wait_event(from, |event| event.r#type == "turn.complete").await;
    assert_eq!((before.requests().len(), after.requests().len()), (2, 0));
    assert_eq!(client.ask("a", "SAY from there").await.unwrap(), "from there");
    assert_eq!(after.requests().len(), 1);
}
