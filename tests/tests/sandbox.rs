//! That there is no sandbox is seen wherever a workspace, an agent or a provider is.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::path::Path;

use serde_json::{Value, json};
use substrat_tests::harness::{Daemon, Said, say, say_with, substratd};
use substrat_tests::program::Shop;

const SCRIPT: &str = "fn turn(prompt) { prompt }";

fn done(said: &Said) -> &str {
    assert_eq!(said.code, Some(0), "{said:?}");
    &said.stdout
}

/// A daemon that finds no bubblewrap.
fn without_bubblewrap(home: &Path, policy: &str) -> Daemon {
    let mut command = substratd(home);
    command.env("PATH", "/nowhere").args(["--set", &format!("sandbox.policy={policy}")]);
    Daemon::run(home, command).unwrap()
}

fn fill(daemon: &Daemon) {
    let bare = ["agent", "create", "bare", "--instructions", SCRIPT];
    let housed = ["agent", "create", "housed", "--instructions", SCRIPT, "--workspace", "ws"];
    let program = ["agent", "create", "prog", "--provider", "program", "--model", "true"];
    let of_ws = ["workspace", "view", "ws", "--name", "window"];
    for args in [&["workspace", "create", "ws"][..], &of_ws, &bare, &housed, &program] {
        done(&say(&daemon.home, args));
    }
}

/// What a listing says of sandboxes, by name.
fn sandboxes(home: &Path, noun: &str, field: &str) -> Value {
    let listed = say(home, &[noun, "list", "-o", "json"]).json();
    let all = listed[field].as_array().unwrap().iter();
    // Other kinds are as one of these is.
    let is_known = |kind: &Value| kind.is_null() || kind == "program" || kind == "scripted";
    let all = all.filter(|one| is_known(&one["kind"]));
    all.map(|one| (one["name"].as_str().unwrap().to_owned(), one["sandbox"]["state"].clone()))
        .collect()
}

#[test]
fn where_there_is_a_sandbox_every_answer_says_so_and_no_listing_has_a_column_for_it() {
    let daemon = Daemon::start();
    fill(&daemon);
    let (on, none) = ("SANDBOX_STATE_IN_FORCE", "SANDBOX_STATE_NO_PROCESSES");
    let home = daemon.home.as_path();
    assert_eq!(sandboxes(home, "workspace", "workspaces"), json!({ "ws": on, "window": on }));
    let agents = json!({ "bare": none, "housed": on, "prog": on });
    assert_eq!(sandboxes(home, "agent", "agents"), agents);
    assert_eq!(
        sandboxes(home, "provider", "providers"),
        json!({ "program": on, "scripted": none })
    );
    for listing in [["workspace", "list"], ["agent", "list"], ["provider", "list"]] {
        let said = say(home, &listing);
        assert!(!done(&said).to_uppercase().contains("SANDBOX"), "{said:?}");
        assert_eq!(said.stderr, "");
    }
    assert!(done(&say(home, &["workspace", "show", "ws"])).contains("network    off\n"));
}

#[test]
fn a_required_sandbox_that_is_missing_is_told_by_the_first_call_after_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    fill(&Daemon::on(&home, &[]));
    let (missing, none) = ("SANDBOX_STATE_UNAVAILABLE", "SANDBOX_STATE_NO_PROCESSES");
    let wanted = [
        ("workspace", "workspaces", json!({ "ws": missing, "window": missing })),
        ("agent", "agents", json!({ "bare": none, "housed": missing, "prog": missing })),
        ("provider", "providers", json!({ "program": missing, "scripted": none })),
    ];
    for (noun, field, wanted) in wanted {
        let _daemon = without_bubblewrap(&home, "required");
        assert_eq!(sandboxes(&home, noun, field), wanted);
    }
    let _daemon = without_bubblewrap(&home, "required");
    let said = say(&home, &["provider", "list"]);
    let why = "program cannot run here: no process can be started without a sandbox: bubblewrap \
               is not installed; install the package \"bubblewrap\"\n";
    assert!(done(&said).ends_with(why), "{said:?}");
    let row = said.stdout.lines().find(|line| line.starts_with("program ")).unwrap();
    assert_eq!(row.split_whitespace().nth(1), Some("no"), "{row}");
    let listed = say(&home, &["provider", "list", "-o", "json"]).json();
    let providers = listed["providers"].as_array().unwrap();
    let available = |name: &str| {
        providers.iter().any(|one| one["name"] == name && one["available"] == json!(true))
    };
    assert_eq!((available("program"), available("scripted")), (false, true), "{listed}");
    let said = say(&home, &["workspace", "show", "ws"]);
    assert!(done(&said).contains("sandbox    NOT AVAILABLE: no process is started"), "{said:?}");
    assert!(said.stdout.contains("network    off\n"), "nothing runs that could: {said:?}");
}

#[test]
fn without_a_sandbox_nothing_claims_to_be_enforced() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let _daemon = without_bubblewrap(&home, "preferred");
    fill(&_daemon);
    let why = "bubblewrap is not installed; install the package";
    let shown = say(&home, &["workspace", "show", "window"]);
    let text = done(&shown);
    assert!(text.contains("network    off, but not enforced: no sandbox\n"), "{text}");
    assert!(text.contains("(ro, not enforced on processes: no sandbox)\n"), "{text}");
    let off = format!("sandbox    OFF: processes have the rights of the daemon ({why}");
    assert!(text.contains(&off), "{text}");
    let listed = say(&home, &["workspace", "list"]);
    for row in done(&listed).lines().skip(1) {
        assert!(row.contains("not enforced") && row.ends_with("OFF"), "{row}");
    }
    let listed = say(&home, &["agent", "list"]);
    let ends = |name: &str| {
        let row = done(&listed).lines().find(|line| line.starts_with(name)).unwrap();
        row.split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(
        (ends("AGENT"), ends("bare"), ends("prog")),
        ("SANDBOX".into(), "-".into(), "OFF".into())
    );
    let listed = say(&home, &["session", "list"]);
    let marks = done(&listed).lines().map(|row| row.split_whitespace().last().unwrap());
    let mut marks: Vec<_> = marks.collect();
    marks.sort_unstable();
    assert_eq!(marks, ["-", "OFF", "OFF", "SANDBOX"], "{listed:?}");
    assert!(listed.stderr.starts_with("warning: sandbox preferred, but OFF"), "{listed:?}");
    let tree = say(&home, &["agent", "list", "--tree"]);
    assert_eq!(done(&tree).matches(", sandbox OFF").count(), 2, "{tree:?}");
    assert!(done(&say(&home, &["agent", "inspect", "prog"])).contains(&off));
    assert!(done(&say(&home, &["provider", "list"])).contains("yes, sandbox OFF"));
    let agent = say(&home, &["agent", "inspect", "prog", "-o", "json"]).json();
    assert!(agent["agent"]["sandbox"]["reason"].as_str().unwrap().contains(why), "{agent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_attached_sees_what_befalls_processes() {
    let shop = Shop::open(&["sandbox.policy=off"]).await;
    shop.python("a", "for turn in turns(): sys.exit(3)").await;
    let home = shop.daemon.home.clone();
    let attach = move || say_with(&home, &["agent", "attach", "a"], b"go\n");
    let said = tokio::task::spawn_blocking(attach).await.unwrap();
    for line in ["[runs without a sandbox: sandbox.policy is \"off\"]\n", " ended with exit 3]\n"] {
        assert!(said.stdout.contains(line), "{said:?}");
    }
}
