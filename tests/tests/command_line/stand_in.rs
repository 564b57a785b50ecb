//! What only cursor-agent does, by its stand-in.

use substrat_proto::v1;
use substrat_tests::harness::{Daemon, say};
use substrat_tests::model_server::ModelServer;
use substrat_tests::probe::eventually;

use super::{Bench, CURSOR, KEY, cases};

/// How often its model reads a text in what it was asked last.
fn read(server: &ModelServer, text: &str) -> usize {
    let asked = server.requests().into_iter().rfind(|request| !request.aside);
    asked.map_or(0, |asked| asked.body.to_string().matches(text).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn instructions_that_changed_are_told_once_in_the_same_chat() {
    let Some(bench) = Bench::start(CURSOR, &[]) else { return };
    let client = bench.client().await;
    client.ask("m", "SAY alpha noted").await.unwrap();
    client.ask("m", "SAY two").await.unwrap();
    assert_eq!(read(&bench.server, "be good"), 1);
    bench.daemon.ctl_ok(&["agent", "update", "m", "--instructions", "be brief"]);
    client.ask("m", "SAY three").await.unwrap();
    assert_eq!(read(&bench.server, "be brief"), 1, "it knows what it is to be now");
    let recalled = client.ask("m", "RECALL").await.unwrap();
    assert!(recalled.contains("alpha noted"), "{recalled}");
    assert_eq!((read(&bench.server, "be good"), read(&bench.server, "be brief")), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_long_costs_the_conversation_nothing_when_it_is_tried_often() {
    cases::refused(CURSOR, 9).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn its_models_are_listed_in_a_sandbox_of_which_nothing_stays() {
    let Some(bench) = Bench::start(CURSOR, &[]) else { return };
    let home = &bench.daemon.home;
    let listed = bench.daemon.ctl_ok(&["provider", "models", "cli", "-o", "json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let models = listed["models"].as_array().unwrap();
    let shown = |at: usize| ["id", "label"].map(|key| models[at][key].as_str().unwrap());
    assert_eq!(shown(0), ["auto", "Auto"]);
    // It is asked with its key, and sees no workspace.
    assert_eq!(shown(1), ["fake-1", "The fake-1 (of [])"]);
    assert_eq!(models.len(), 2);
    let asked = bench.server.requests();
    let has_key = |value: &String| value.contains(KEY);
    assert!(asked.iter().all(|it| it.headers.values().any(has_key)), "{asked:?}");
    let left: Vec<_> = std::fs::read_dir(home.join("providers")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    // What went wrong is told, and what is to be done.
    std::fs::remove_file(bench.folder.path().join("key")).unwrap();
    let no = say(home, &["provider", "models", "cli"]);
    assert!(no.code == Some(5) && no.stderr.contains("key"), "{no:?}");
}

/// A provider of ACP whose program is a script.
fn of_script(folder: &std::path::Path, name: &str, script: &str) -> [String; 2] {
    let program = folder.join(name);
    let version = r#"[ "$1" != --version ] || exec echo 1.0"#;
    std::fs::write(&program, format!("#!/bin/sh\n{version}\n{script}\n")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let section = format!("providers.{name}");
    [format!("{section}.kind=acp"), format!("{section}.program={}", program.display())]
}

/// It opens a session, as it should, and has one model.
const MUTE: &str = r#"read line; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}'
read line; echo '{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}'
exec cat >/dev/null"#;

#[test]
fn what_tells_no_models_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        of_script(folder.path(), "mute", MUTE),
        of_script(folder.path(), "other", "echo no such option >&2; exit 2"),
        of_script(folder.path(), "chatty", "exec yes hello"),
        of_script(folder.path(), "hush", "echo wait >&2; exec sleep 1000 >&-"),
        of_script(folder.path(), "gemini", "echo spawn /gone/codex ENOENT >&2; exit 1"),
    ];
    let settings = settings.iter().flatten().map(String::as_str);
    let settings: Vec<&str> = settings.chain(["providers.gemini.key_env=HOME"]).collect();
    let daemon = Daemon::on(&folder.path().join("home"), &settings);
    let page = "hint: its page says which models it takes";
    let check = "substratctl provider check other says what it needs";
    let ended = format!("hint: its program ended before it could be asked; {check}");
    for (provider, why, hint) in [
        ("mute", "mute offers no choice of models", page),
        ("other", "other listed no models: exit 2: no such option", ended.as_str()),
        ("chatty", "chatty listed no models: it wrote more than 8 MiB", "check chatty says"),
        ("hush", "hush listed no models: it closed its output and did not end: wait", "check hush"),
        ("scripted", "scripted does not tell its models", page),
    ] {
        let no = say(&daemon.home, &["provider", "models", provider]);
        assert!(no.code == Some(5) && no.stderr.contains(why), "{no:?}");
        assert!(no.stderr.contains(hint), "{no:?}");
    }
    // A check says the same of what opens no session, and of no other.
    for (provider, why) in [
        ("other", "other opens no session: exit 2: no such option; docs/acp.md says how"),
        ("chatty", "chatty opens no session: it wrote more than 8 MiB"),
        ("gemini", "ENOENT; install it again, with what it runs: npm install -g @google"),
    ] {
        let no = say(&daemon.home, &["provider", "check", provider]);
        assert!(no.code == Some(1) && no.stderr.contains(why), "{no:?}");
    }
    daemon.ctl_ok(&["provider", "check", "mute"]);
    let left = std::fs::read_dir(daemon.home.join("providers")).unwrap().count();
    assert_eq!(left, 0, "their homes are gone");
}

#[test]
fn a_list_of_providers_waits_for_no_program_that_hangs() {
    let (folder, names) = (tempfile::tempdir().unwrap(), ["a", "b"]);
    let settings = names.map(|name| of_script(folder.path(), name, ""));
    let write = |name: &str, script: &str| {
        std::fs::write(folder.path().join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
    };
    for name in names {
        write(name, "exec sleep 1000");
    }
    let settings: Vec<&str> = settings.iter().flatten().map(String::as_str).collect();
    let daemon = Daemon::on(&folder.path().join("home"), &settings);
    let listed = daemon.ctl_ok(&["provider", "list"]);
    for name in names {
        let late = format!("{name} cannot run here: no answer to --version in 5 s; ");
        let check = format!("substratctl provider check {name} waits for 20 s");
        assert!(listed.contains(&format!("{late}{check}")), "{listed}");
    }
    // One that was slow is asked again, though it is the same program.
    let program = folder.path().join("a");
    let changed = program.metadata().unwrap().modified().unwrap();
    write("a", "exec echo 7.5");
    let file = std::fs::File::options().write(true).open(&program).unwrap();
    file.set_modified(changed).unwrap();
    drop(file);
    let listed = daemon.ctl_ok(&["provider", "list"]);
    let row = listed.lines().find(|line| line.starts_with("a ")).unwrap();
    assert!(row.contains(" 7.5 "), "{listed}");
    // One that breaks says what it said.
    write("b", "echo boom >&2; exit 3");
    let no = say(&daemon.home, &["provider", "check", "b"]);
    let why = "--version came to exit 3: boom; docs/acp.md says how it is installed";
    assert!(no.code == Some(1) && no.stderr.contains(why), "{no:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn few_list_their_models_at_once_and_others_wait_in_line() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        of_script(folder.path(), "slow", "exec sleep 1000"),
        of_script(folder.path(), "mute", MUTE),
    ];
    let settings: Vec<&str> = settings.iter().flatten().map(String::as_str).collect();
    let daemon = Daemon::on(&folder.path().join("home"), &settings);
    let client = daemon.client().await;
    let ask = |_| {
        let mut providers = client.providers.clone();
        let request = v1::ListModelsRequest { provider: "slow".to_owned() };
        tokio::spawn(async move { providers.list_models(request).await.map(drop) })
    };
    let asking: Vec<_> = (0..4).map(ask).collect();
    let homes = || std::fs::read_dir(daemon.home.join("providers")).map_or(0, Iterator::count);
    eventually("that four are asked", || homes() == 4).await;
    let late = say(&daemon.home, &["provider", "models", "mute", "--timeout", "1s"]);
    assert_eq!(late.code, Some(124), "{late:?}");
    assert_eq!(homes(), 4);
    // Who goes makes room.
    asking[0].abort();
    let told = say(&daemon.home, &["provider", "models", "mute"]);
    assert!(told.stderr.contains("mute offers no choice of models"), "{told:?}");
}

#[test]
fn a_list_of_models_wants_the_program_before_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "providers.gone.kind=cursor-agent",
        "providers.gone.program=/nowhere/cursor-agent",
        "providers.gone.key_env=",
        "providers.gone.login=false",
    ];
    let daemon = Daemon::on(&folder.path().join("home"), &settings);
    let no = say(&daemon.home, &["provider", "models", "gone"]);
    assert!(no.code == Some(5) && !no.stderr.contains("key"), "{no:?}");
    assert!(no.stderr.contains("/nowhere/cursor-agent is no program"), "{no:?}");
}
