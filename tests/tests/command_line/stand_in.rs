//! What only cursor-agent does, by its stand-in.

use substrat_tests::harness::{Daemon, say};
use substrat_tests::model_server::ModelServer;

use super::{Bench, CURSOR, KEY};

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
    let no = say(home, &["provider", "models", "codex"]);
    let told =
        no.stderr.contains("codex does not tell its models") && no.stderr.contains("--model");
    assert!(no.code == Some(5) && told, "{no:?}");
    // An agent of ACP tells them where a turn asks for another one.
    let no = say(home, &["provider", "models", "gemini"]);
    assert!(no.stderr.contains("gemini does not tell its models"), "{no:?}");
    assert!(no.stderr.contains("names those that it offers"), "{no:?}");
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
