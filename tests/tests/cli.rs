//! `substratctl`, verb by verb: what people read, what programs read, and how it ends.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use substrat_tests::harness::{
    Daemon, Detached, Said, binary, forget_environment, say, say_with, skipped, substratctl,
};

const ECHO: &str = r#"fn turn(prompt) { "you said: " + messages()[0].text }"#;

/// What the tests say to a daemon.
trait Talk {
    fn home(&self) -> &Path;

    fn say(&self, args: &[&str]) -> Said {
        say(self.home(), args)
    }

    /// Says it, and takes the answer as JSON.
    fn json(&self, args: &[&str]) -> Value {
        let said = self.say(&[args, &["-o", "json"]].concat());
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{args:?}: {said:?}");
        said.json()
    }

    /// Says it, and takes what comes as one JSON value a line.
    fn json_lines(&self, args: &[&str]) -> Vec<Value> {
        let said = self.say(&[args, &["-o", "json"]].concat());
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{args:?}: {said:?}");
        said.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn create(&self, name: &str, script: &str) -> Value {
        self.json(&["agent", "create", name, "--instructions", script])["agent"].clone()
    }

    /// Says what fails: the exit code, and the error as a program reads it.
    fn fails(&self, args: &[&str]) -> (i32, Value) {
        let said = self.say(&[args, &["-o", "json"]].concat());
        assert_eq!(said.stdout, "", "{args:?}");
        let error: Value =
            serde_json::from_str(&said.stderr).unwrap_or_else(|_| panic!("{said:?}"));
        let code = said.code.unwrap();
        assert_eq!(error["error"]["exitCode"], code);
        (code, error["error"].clone())
    }
}

impl Talk for Daemon {
    fn home(&self) -> &Path {
        &self.home
    }
}

/// The names of an object's fields.
fn fields(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn agents_are_created_shown_changed_and_ended() {
    let daemon = Daemon::start();
    let said = daemon.say(&["agent", "list"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), ""));
    assert_eq!(said.stderr, "no agents; create one with \"substratctl agent create NAME\"\n");
    assert_eq!(daemon.json(&["agent", "list"]), json!({}));
    let create =
        ["agent", "create", "echo", "--instructions", ECHO, "--role", "r", "--label", "k=v"];
    let said = daemon.say(&create);
    assert!(said.stdout.starts_with("created echo ("), "{said:?}");
    let child = ["agent", "create", "child", "--parent", "echo", "--instructions", ECHO];
    let child = daemon.json(&child)["agent"].clone();
    let expected = [
        "activityTime",
        "createTime",
        "id",
        "instructions",
        "lastSequence",
        "name",
        "parentId",
        "path",
        "provider",
        "sandbox",
        "sessionId",
        "state",
        "treeUsage",
        "turns",
        "usage",
    ];
    assert_eq!(fields(&child), expected);
    assert_eq!(
        (&child["path"], &child["state"]),
        (&json!("echo/child"), &json!("AGENT_STATE_IDLE"))
    );

    assert_eq!(daemon.ctl_ok(&["agent", "send", "echo", "hi"]), "you said: hi\n");
    let answer = daemon.json(&["agent", "send", "echo", "hi"]);
    assert_eq!(fields(&answer), ["answer", "answered", "messageId", "sequence", "turnId"]);
    let table = daemon.ctl_ok(&["agent", "list"]);
    assert!(
        table.starts_with("AGENT       STATE  PROVIDER  INBOX  TURNS  ACTIVE  ID\n"),
        "{table}"
    );
    assert!(table.contains("\necho        idle   scripted  0      2 "), "{table}");
    let tree = daemon.ctl_ok(&["agent", "list", "--tree"]);
    assert!(tree.contains("echo (r)  idle, 2 turns\n└─ child  idle, 0 turns"), "{tree}");
    let inspected = daemon.ctl_ok(&["agent", "inspect", "echo"]);
    for part in [
        "echo  idle\n",
        "role       r\n",
        "label      k = v\n",
        "child      child: idle",
        "turn.complete",
    ] {
        assert!(inspected.contains(part), "{part:?} in {inspected}");
    }
    let inspected = daemon.json(&["agent", "inspect", "echo", "--recent", "3"]);
    assert_eq!(fields(&inspected), ["agent", "children", "recent"]);
    assert_eq!(inspected["recent"].as_array().unwrap().len(), 3);

    let said =
        daemon.say(&["agent", "update", "echo", "--role", "", "--label", "k=", "--label", "n=1"]);
    assert_eq!(said.stdout, "updated echo\n", "{said:?}");
    let agent = &daemon.json(&["agent", "inspect", "echo"])["agent"];
    assert_eq!((agent.get("role"), &agent["metadata"]), (None, &json!({ "n": "1" })));
    assert_eq!(daemon.say(&["agent", "update", "echo"]).code, Some(2));

    assert_eq!(daemon.fails(&["agent", "terminate", "echo"]).1["reason"], "AGENT_HAS_CHILDREN");
    let said = daemon.say(&["agent", "terminate", "echo", "--recursive"]);
    assert_eq!(said.stdout, "terminated echo and 1 descendants\n");
    assert_eq!(daemon.json(&["agent", "list"]), json!({}));
    assert!(daemon.ctl_ok(&["agent", "list", "--all"]).contains("terminated"));
    let id = child["id"].as_str().unwrap();
    assert!(daemon.ctl_ok(&["agent", "log", id]).contains("agent.terminated"));
}

#[test]
fn turns_are_held_back_permitted_and_cancelled() {
    let daemon = Daemon::start();
    daemon.create("a", ECHO);
    assert_eq!(daemon.ctl_ok(&["agent", "gate", "a"]), "gated a\n");
    let sent = daemon.json(&["agent", "send", "a", "one", "--no-wait"]);
    assert_eq!(fields(&sent), ["messageId", "sequence"]);
    assert!(
        daemon.ctl_ok(&["agent", "send", "a", "two", "--no-wait", "--urgent"]).starts_with("sent ")
    );
    let agent = &daemon.json(&["agent", "gate", "a"])["agent"];
    assert_eq!((&agent["gated"], &agent["inboxSize"]), (&json!(true), &json!(2)));
    assert_eq!(daemon.fails(&["agent", "cancel", "a"]).1["reason"], "NO_TURN");
    assert_eq!(daemon.ctl_ok(&["agent", "permit", "a"]), "permitted one turn of a\n");
    // What waited is delivered in one turn, the urgent message first.
    let news = follow(&daemon, &["inbox", "--follow"], "you said: two");
    assert!(news.contains("] a (answer):\n"), "{news}");
    assert_eq!(daemon.ctl_ok(&["agent", "ungate", "a"]), "ungated a\n");
    assert_eq!(daemon.fails(&["agent", "permit", "a"]).1["reason"], "AGENT_NOT_GATED");

    daemon.create("sleeper", "fn turn(prompt) { sleep_ms(3600000); }");
    daemon.ctl_ok(&["agent", "send", "sleeper", "go", "--no-wait"]);
    follow(&daemon, &["events", "--follow", "--from", "1", "--agent", "sleeper"], "turn.start");
    let inspected = daemon.ctl_ok(&["agent", "inspect", "sleeper"]);
    assert!(inspected.contains("\nturn       exec-"), "{inspected}");
    assert!(daemon.ctl_ok(&["agent", "cancel", "sleeper"]).starts_with("cancelling exec-"));
    follow(&daemon, &["events", "--follow", "--from", "1"], "turn.cancelled");
}

/// Runs a command that follows something until a line holds a text; returns what it wrote so far.
fn follow(daemon: &Daemon, args: &[&str], until: &str) -> String {
    let mut child = substratctl(&daemon.home).args(args).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains(until) {
        assert_ne!(lines.read_line(&mut text).unwrap(), 0, "it ended: {text}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    text
}

#[test]
fn logs_and_transcripts_and_events_are_shown_and_followed() {
    let daemon = Daemon::start();
    let session = daemon.create("echo", ECHO)["sessionId"].as_str().unwrap().to_owned();
    daemon.ctl_ok(&["agent", "send", "echo", "hi"]);
    let log = daemon.ctl_ok(&["agent", "log", "echo"]);
    assert!(log.contains("message.enqueued    USER → echo: hi"), "{log}");
    assert!(log.contains("turn.complete       you said: hi"), "{log}");
    let log = daemon.json_lines(&["agent", "log", "echo"]);
    assert!(log.iter().all(|event| event["sessionId"] == session.as_str()));
    assert_eq!(fields(&log[0]), ["agentId", "data", "sequence", "sessionId", "time", "type"]);
    let transcript = daemon.ctl_ok(&["agent", "transcript", "echo"]);
    assert!(transcript.contains("] USER → echo: hi\n"), "{transcript}");
    assert!(transcript.contains("] echo → USER: you said: hi\n"), "{transcript}");
    let lines = daemon.json_lines(&["agent", "transcript", "echo"]);
    assert_eq!(lines[0]["text"], transcript);
    let events = daemon.json_lines(&["events", "--type", "turn.*", "--from", "1"]);
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["turn.start", "turn.complete"]);
    assert_eq!(daemon.say(&["events", "--type", "turn.failed"]).stderr, "no events\n");
    let followed = ["events", "--follow", "--from", "1", "--agent", "echo", "-o", "json"];
    let text = follow(&daemon, &followed, "turn.complete");
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{text}");
    follow(&daemon, &["agent", "log", "echo", "--follow"], "turn.complete");
    follow(&daemon, &["agent", "transcript", "echo", "--follow"], "you said: hi");
    follow(&daemon, &["daemon", "logs", "--follow"], "serving");
}

#[test]
fn those_who_follow_are_told_when_the_daemon_is_killed() {
    let mut daemon = Daemon::start();
    daemon.create("echo", ECHO);
    let mut command = substratctl(&daemon.home);
    command.args(["events", "--follow", "--from", "1"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("agent.created") {
        assert_ne!(lines.read_line(&mut text).unwrap(), 0, "it ended: {text}");
    }
    daemon.kill();
    lines.read_to_string(&mut text).unwrap();
    let said: Said = child.wait_with_output().unwrap().into();
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.stderr.starts_with("error: the daemon went away"), "{said:?}");
    assert!(said.stderr.contains("\nhint: start it with"), "{said:?}");
}

#[test]
fn messages_to_the_user_are_shown_once() {
    let daemon = Daemon::start();
    daemon.create("a", r#"fn turn(prompt) { send_message("USER", "news"); "done" }"#);
    assert_eq!(daemon.say(&["inbox"]).stderr, "no messages\n");
    daemon.ctl_ok(&["agent", "send", "a", "go"]);
    let kept = daemon.json_lines(&["inbox", "--keep"]);
    let expected = [
        "createTime",
        "id",
        "kind",
        "recipient",
        "recipientId",
        "sender",
        "senderId",
        "sequence",
        "text",
    ];
    assert_eq!(fields(&kept[0]), expected);
    assert_eq!(
        (&kept[0]["text"], &kept[0]["kind"]),
        (&json!("news"), &json!("MESSAGE_KIND_NOTIFICATION"))
    );
    let shown = daemon.ctl_ok(&["inbox"]);
    assert!(shown.contains("] a:\nnews\n"), "{shown}");
    assert_eq!(daemon.json_lines(&["inbox"]), [] as [Value; 0]);
}

#[test]
fn sessions_are_shown_suspended_resumed_and_deleted() {
    let daemon = Daemon::start();
    assert_eq!(daemon.json(&["session", "list"]), json!({}));
    let id = daemon.create("echo", ECHO)["sessionId"].as_str().unwrap().to_owned();
    daemon.ctl_ok(&["agent", "send", "echo", "hi"]);
    assert!(daemon.ctl_ok(&["session", "list"]).contains("echo   active  scripted"));
    let listed = &daemon.json(&["session", "list"])["sessions"][0];
    let expected = [
        "agentId",
        "agentPath",
        "createTime",
        "eventCount",
        "id",
        "lastSequence",
        "provider",
        "sandbox",
        "state",
    ];
    assert_eq!(fields(listed), expected);
    let short = &id[..8];
    assert!(daemon.ctl_ok(&["session", "show", short]).starts_with(&format!("session    {id}\n")));
    assert_eq!(daemon.ctl_ok(&["session", "suspend", short]), "session of echo is suspended\n");
    assert_eq!(
        daemon.json(&["session", "show", &id])["session"]["state"],
        "SESSION_STATE_SUSPENDED"
    );
    assert_eq!(daemon.ctl_ok(&["session", "resume", &id]), "session of echo is active\n");
    let (code, error) = daemon.fails(&["session", "delete", &id]);
    assert_eq!((code, &error["reason"]), (5, &json!("SESSION_NOT_TERMINATED")));
    daemon.ctl_ok(&["agent", "terminate", "echo"]);
    assert_eq!(daemon.json(&["session", "delete", &id]), json!({ "sessionId": id }));
    assert_eq!(daemon.fails(&["session", "show", &id]).1["reason"], "SESSION_NOT_FOUND");
    assert!(!daemon.home.join("agents").join(&id).exists());
}

#[test]
fn workspaces_are_made_linked_and_deleted() {
    let daemon = Daemon::start();
    let said = daemon.say(&["workspace", "list"]);
    assert!(said.stderr.starts_with("no workspaces; create one with"), "{said:?}");
    assert!(daemon.ctl_ok(&["workspace", "create", "desk"]).starts_with("created desk ("));
    daemon.ctl_ok(&["workspace", "create", "inner", "--parent", "desk"]);
    // Relative to where the command runs, not to where the daemon does.
    let host = tempfile::tempdir().unwrap();
    std::fs::create_dir(host.path().join("folder")).unwrap();
    let mut link = substratctl(&daemon.home);
    link.current_dir(host.path()).args(["workspace", "link", "desk", "folder", "in/here"]);
    let said: Said = link.output().unwrap().into();
    assert!(said.stdout.starts_with("linked into desk ("), "{said:?}");
    let real = host.path().canonicalize().unwrap().join("folder");
    let shown = daemon.ctl_ok(&["workspace", "show", "desk"]);
    assert!(shown.contains(&format!("link       in/here (ro) → {}\n", real.display())), "{shown}");
    let shown = &daemon.json(&["workspace", "show", "desk"])["workspace"];
    assert_eq!(
        fields(shown),
        ["createTime", "id", "limitsInForce", "links", "name", "root", "sandbox"]
    );
    assert!(daemon.ctl_ok(&["workspace", "list"]).contains("desk       folder  off      1      0"));
    let twice = ["workspace", "set", "desk", "--env", "A=1", "--unset-env", "A"];
    assert_eq!(daemon.say(&twice).code, Some(6));
    let remote = ["workspace", "create", "far", "--git", "https://host.example/x.git"];
    let said = daemon.say(&remote);
    assert!(said.code == Some(6) && said.stderr.contains("clone it first"), "{said:?}");
    let both = ["workspace", "link", "desk", "/tmp", "x", "--rw", "--ro"];
    assert_eq!(daemon.say(&both).code, Some(2));
    assert_eq!(daemon.fails(&["workspace", "delete", "desk"]).1["reason"], "WORKSPACE_IN_USE");
    assert!(
        daemon.ctl_ok(&["workspace", "unlink", "desk", "in/here"]).starts_with("unlinked from")
    );
    assert_eq!(daemon.ctl_ok(&["workspace", "delete", "inner"]), "deleted inner\n");
    assert_eq!(fields(&daemon.json(&["workspace", "delete", "desk"])), ["workspaceId"]);
    assert!(real.is_dir());
}

#[test]
fn providers_and_the_configuration_are_shown() {
    let daemon = Daemon::with(&["slots.scripted=7"]);
    let listed = daemon.ctl_ok(&["provider", "list"]);
    let row = listed.lines().find(|line| line.starts_with("scripted ")).unwrap();
    assert!(row.split_whitespace().take(5).eq(["scripted", "yes", "0", "of", "7"]), "{listed}");
    let providers = daemon.json(&["provider", "list"]);
    let providers = providers["providers"].as_array().unwrap();
    let slots: Vec<_> = providers.iter().map(|one| (&one["name"], &one["slotLimit"])).collect();
    for own in [("anthropic", 4), ("openai", 4), ("program", 16), ("scripted", 7)] {
        assert!(slots.contains(&(&json!(own.0), &json!(own.1))), "{slots:?}");
    }
    let table = daemon.ctl_ok(&["config", "show"]);
    assert!(
        table.lines().any(|line| line.starts_with("slots.scripted ") && line.contains("--set"))
    );
    let path = daemon.home.join("config.toml");
    assert_eq!(daemon.ctl_ok(&["config", "path"]), format!("{}\n", path.display()));
    assert_eq!(daemon.json(&["config", "path"]), json!({ "path": path.to_str().unwrap() }));
    let elsewhere = tempfile::tempdir().unwrap();
    let said = say(elsewhere.path(), &["config", "show", "-o", "json"]);
    assert_eq!(said.code, Some(0));
    assert!(said.stderr.starts_with("the daemon does not run: this is what"), "{said:?}");
    assert!(said.json()["values"].as_array().unwrap().len() > 10);
}

#[test]
fn failures_have_a_code_a_reason_and_a_hint() {
    let daemon = Daemon::with(&["limits.inbox_messages=10"]);
    daemon.create("echo", ECHO);
    daemon.create("fails", r#"fn turn(prompt) { fail("permanent", "broken") }"#);
    daemon.create("gated", ECHO);
    daemon.ctl_ok(&["agent", "gate", "gated"]);
    for _ in 0..10 {
        daemon.ctl_ok(&["agent", "send", "gated", "one", "--no-wait"]);
    }
    let cases: [(&[&str], i32, &str); 9] = [
        (&["agent", "send", "fails", "hi"], 1, "TURN_FAILED"),
        (&["agent", "send", "nobody", "hi"], 4, "AGENT_NOT_FOUND"),
        (&["session", "show", "ffff"], 4, "SESSION_NOT_FOUND"),
        (&["agent", "create", "echo", "--instructions", ECHO], 5, "AGENT_EXISTS"),
        (&["agent", "permit", "echo"], 5, "AGENT_NOT_GATED"),
        (&["agent", "create", "a b", "--instructions", ECHO], 6, "NAME_INVALID"),
        (&["agent", "create", "x", "--instructions", "fn turn("], 6, "SCRIPT_INVALID"),
        (&["events", "--type", "no.such"], 6, "FIELD_INVALID"),
        (&["agent", "send", "gated", "two", "--no-wait"], 7, "INBOX_FULL"),
    ];
    for (args, code, reason) in cases {
        let (found, error) = daemon.fails(args);
        assert_eq!((found, &error["reason"]), (code, &json!(reason)), "{args:?}: {error}");
        assert!(!error["hint"].as_str().unwrap().is_empty(), "{args:?}: {error}");
        let said = daemon.say(args);
        assert_eq!((said.code, said.stdout.as_str()), (Some(code), ""), "{args:?}: {said:?}");
        let lines: Vec<&str> = said.stderr.lines().collect();
        assert!(lines.len() <= 3 && lines[0].starts_with("error: "), "{said:?}");
        assert!(lines.last().unwrap().starts_with("hint: "), "{said:?}");
        let said = daemon.say(&[args, &["-v"]].concat());
        assert!(said.stderr.contains(&format!("\nreason: {reason} (docs/errors/{reason}.md)")));
    }
    let (code, error) = daemon.fails(&["agent", "send", "gated", "hi", "--timeout", "100ms"]);
    // Its inbox is full: no waiting for that.
    assert_eq!((code, &error["reason"]), (7, &json!("INBOX_FULL")));
    daemon.create("sleeper", "fn turn(prompt) { sleep_ms(3600000); }");
    let (code, error) = daemon.fails(&["agent", "send", "sleeper", "hi", "--timeout", "100ms"]);
    assert_eq!((code, &error["message"]), (124, &json!("no answer in time")));
}

#[test]
fn mistakes_on_the_command_line_are_told() {
    let daemon = Daemon::start();
    let cases: [&[&str]; 8] = [
        &[],
        &["explode"],
        &["agent"],
        &["agent", "explode"],
        &["agent", "create"],
        &["agent", "list", "-o", "yaml"],
        &["agent", "list", "--timeout", "soon"],
        &["agent", "create", "a", "--label", "no-equals-sign"],
    ];
    for args in cases {
        let said = daemon.say(args);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(said.stderr.contains("Usage") || said.stderr.contains("--help"), "{said:?}");
    }
    for odd in [b"\xff\xfe", b"a\xffb" as &[u8]] {
        let odd = OsStr::from_bytes(odd);
        let mut create = substratctl(&daemon.home);
        let said: Said = create.args(["agent", "create"]).arg(odd).output().unwrap().into();
        assert_eq!(said.code, Some(2), "{said:?}");
        let mut link = substratctl(&daemon.home);
        link.args(["workspace", "link", "desk"]).arg(odd).arg("x");
        let said: Said = link.output().unwrap().into();
        assert_eq!(said.code, Some(6), "{said:?}");
        let mut socket = substratctl(&daemon.home);
        socket.arg("--socket").arg(odd).args(["agent", "list"]);
        let said: Said = socket.output().unwrap().into();
        assert_eq!(said.code, Some(3), "{said:?}");
    }
    let said = say_with(&daemon.home, &["agent", "send", "nobody", "-"], b"\xff");
    assert_eq!(said.code, Some(6), "{said:?}");
    let missing = ["agent", "create", "x", "--instructions", "@/no/such/file"];
    let said = daemon.say(&missing);
    assert_eq!(said.code, Some(6), "{said:?}");
    assert!(said.stderr.contains("instructions from \"/no/such/file\""), "{said:?}");
    assert_eq!(daemon.say(&["--version"]).code, Some(0));
    assert!(daemon.say(&["agent", "create", "--help"]).stdout.contains("--instructions"));
}

#[test]
fn without_a_daemon_every_verb_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let cases: [&[&str]; 8] = [
        &["agent", "list"],
        &["agent", "create", "a"],
        &["agent", "send", "a", "hi"],
        &["session", "list"],
        &["workspace", "list"],
        &["inbox"],
        &["events"],
        &["provider", "list"],
    ];
    for args in cases {
        let said = say(&home, args);
        assert_eq!((said.code, said.stdout.as_str()), (Some(3), ""), "{args:?}");
        let expected = format!(
            "error: the daemon does not run: there is no {}/substratd.sock\n\
             hint: start it with \"substratctl daemon start\", or give --start\n",
            home.display()
        );
        assert_eq!(said.stderr, expected);
    }
    assert!(!home.exists());
    let detached = Detached(home.clone());
    let said = say(&home, &["agent", "create", "a", "--instructions", ECHO, "--start"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stdout.starts_with("created a (") && said.stderr.starts_with("started (pid "));
    assert_eq!(say(&home, &["daemon", "stop"]).code, Some(0));
    std::fs::write(home.join("config.toml"), "autostart = true\n").unwrap();
    assert_eq!(say(&home, &["agent", "send", "a", "hi"]).stdout, "you said: hi\n");
    assert!(detached.lives());
}

#[test]
fn an_agent_is_named_by_path_name_or_start_of_its_id() {
    let daemon = Daemon::start();
    let mut ids = Vec::new();
    for root in ["one", "two"] {
        daemon.create(root, ECHO);
        let child = ["agent", "create", "worker", "--parent", root, "--instructions", ECHO];
        ids.push(daemon.json(&child)["agent"]["id"].as_str().unwrap().to_owned());
    }
    let path = |reference: &str| -> String {
        let found = daemon.json(&["agent", "inspect", reference]);
        found["agent"]["path"].as_str().unwrap().to_owned()
    };
    assert_eq!(path("one"), "one");
    assert_eq!(path("two/worker"), "two/worker");
    assert_eq!(path(&ids[1]), "two/worker");
    assert_eq!(path(&ids[0][..12]), "one/worker");
    let (code, error) = daemon.fails(&["agent", "inspect", "worker"]);
    assert_eq!((code, &error["reason"]), (5, &json!("AGENT_AMBIGUOUS")));
    assert_eq!(error["message"], "\"worker\" could be one/worker, two/worker");
    assert_eq!(error["hint"], "name it by its path or id");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let daemon = Daemon::start();
    daemon.create("echo", ECHO);
    for number in 0..30 {
        daemon.ctl_ok(&["agent", "send", "echo", &format!("{number} {}", "x".repeat(4000))]);
    }
    for verb in
        ["events --from 1 -o json", "events --from 1 --follow -o json", "agent log echo -o json"]
    {
        let mut shell = Command::new("bash");
        forget_environment(&mut shell);
        let pipe = format!("set -o pipefail; \"$0\" --home \"$1\" {verb} | head -1");
        shell.args(["-c", &pipe]).arg(binary("substratctl")).arg(&daemon.home);
        let said: Said = shell.output().unwrap().into();
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{verb}: {said:?}");
        assert_eq!(said.stdout.lines().count(), 1);
    }
}

#[test]
fn completions_load_in_their_shells() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, mark) in [
        ("bash", "_substratctl()"),
        ("zsh", "#compdef substratctl"),
        ("fish", "complete -c substratctl"),
    ] {
        let said = say(folder.path(), &["completions", shell]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.stdout.contains(mark) && said.stdout.contains("workspace"), "{shell}");
        let script = folder.path().join(shell);
        std::fs::write(&script, &said.stdout).unwrap();
        match Command::new(shell).arg("-n").arg(&script).output() {
            Ok(loaded) => assert!(loaded.status.success(), "{shell}: {loaded:?}"),
            Err(_) => skipped(&format!("there is no {shell} here")),
        }
    }
    assert_eq!(say(folder.path(), &["completions", "tcsh"]).code, Some(2));
}

#[test]
fn a_request_id_makes_it_happen_once() {
    let daemon = Daemon::start();
    let create = ["agent", "create", "echo", "--instructions", ECHO, "--request-id", "first"];
    assert_eq!(daemon.json(&create), daemon.json(&create));
    let send = ["agent", "send", "echo", "hi", "--request-id", "second"];
    assert_eq!(daemon.json(&send), daemon.json(&send));
    let agent = &daemon.json(&["agent", "inspect", "echo"])["agent"];
    assert_eq!(agent["turns"]["completed"], "1");
    let other = ["agent", "send", "echo", "something else", "--request-id", "second"];
    let (code, error) = daemon.fails(&other);
    assert_eq!((code, &error["reason"]), (5, &json!("REQUEST_ID_REUSED")));
}

#[test]
fn scripts_come_from_files_and_stdin_too() {
    let daemon = Daemon::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("echo.rhai");
    std::fs::write(&file, ECHO).unwrap();
    let from_file = format!("@{}", file.display());
    daemon.ctl_ok(&["agent", "create", "a", "--instructions", &from_file]);
    let piped = ["agent", "create", "b", "--instructions", "@-"];
    assert_eq!(say_with(&daemon.home, &piped, ECHO.as_bytes()).code, Some(0));
    for agent in ["a", "b"] {
        let send = ["agent", "send", agent, "-"];
        let said = say_with(&daemon.home, &send, "two\nlines\n".as_bytes());
        assert_eq!(said.stdout, "you said: two\nlines\n", "{said:?}");
    }
    std::fs::write(&file, r#"fn turn(prompt) { "changed" }"#).unwrap();
    daemon.ctl_ok(&["agent", "update", "a", "--instructions", &from_file]);
    assert_eq!(daemon.ctl_ok(&["agent", "send", "a", "hi"]), "changed\n");
}
