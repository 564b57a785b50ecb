//! A daemon from start to end: detaching, taking over, sockets, draining.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;
use substrat_proto::v1;
use substrat_tests::harness::{
    Client, Daemon, Detached, channel, reason, say, substratctl, substratd,
};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const ECHO: &str = r#"fn turn(prompt) { "you said: " + messages()[0].text }"#;
/// Waits for a file in its workspace when it is told to hold.
const HOLD: &str = r#"fn turn(prompt) {
    let text = messages()[0].text;
    while text == "hold" && list_files("").entries.is_empty() { sleep_ms(10); }
    "done: " + text
}"#;
const SLEEP: &str = "fn turn(prompt) { sleep_ms(3600000); }";

/// A folder with a home in it that is not there yet.
fn fresh() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    (folder, home)
}

#[test]
fn starting_detaches_and_says_where() {
    let (_folder, home) = fresh();
    let detached = Detached(home.clone());
    let said = say(&home, &["daemon", "start"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let pid = detached.pid().unwrap();
    let expected = format!(
        "started (pid {pid}) on {home}/substratd.sock, log in {home}/substratd.log\n",
        home = home.display()
    );
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), (expected.as_str(), ""));
    // It leads a session of its own, and holds nothing of who started it.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    assert_eq!(fields[3], pid.to_string(), "session of {stat}");
    for (number, target) in [(0, "/dev/null"), (1, "/dev/null"), (2, "substratd.log")] {
        let link = fs::read_link(format!("/proc/{pid}/fd/{number}")).unwrap();
        assert!(link.ends_with(target.trim_start_matches('/')), "fd {number} is {link:?}");
    }
    assert_eq!(say(&home, &["daemon", "stop"]).stdout, "stopped\n");
    assert!(!detached.lives());
    let log = say(&home, &["daemon", "logs"]);
    assert!(log.stdout.contains("stopped cleanly"), "{log:?}");
    assert_eq!(say(&home, &["daemon", "logs", "-n", "1"]).stdout.lines().count(), 1);
}

#[test]
fn a_second_start_says_so() {
    let (_folder, home) = fresh();
    let detached = Detached(home.clone());
    assert_eq!(say(&home, &["daemon", "start"]).code, Some(0));
    let pid = detached.pid().unwrap();
    let said = say(&home, &["daemon", "start"]);
    let socket = home.join("substratd.sock");
    let expected = format!("already running (pid {pid}) on {}\n", socket.display());
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), expected.as_str()));
    let said = say(&home, &["daemon", "start", "-o", "json"]);
    assert_eq!(said.json()["daemon"]["pid"], pid);
    assert_eq!(detached.pid(), Some(pid));
}

#[test]
fn many_who_start_it_at_once_get_one_daemon() {
    let (_folder, home) = fresh();
    let detached = Detached(home.clone());
    let start = || {
        let mut command = substratctl(&home);
        command.args(["daemon", "start"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let starting: Vec<_> = (0..6).map(|_| start()).collect();
    let mut started = 0;
    for child in starting {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let pid = detached.pid().unwrap();
        assert!(said.contains(&format!("(pid {pid})")), "{said}");
        started += usize::from(said.starts_with("started"));
    }
    assert_eq!(started, 1);
}

#[test]
fn a_start_during_a_stop_waits_for_its_end() {
    let mut daemon = Daemon::with(&["drain_seconds=0"]);
    daemon.ctl_ok(&["agent", "create", "a", "--instructions", SLEEP]);
    daemon.ctl_ok(&["agent", "send", "a", "hello", "--no-wait"]);
    let follow = ["events", "--follow", "--from", "1", "--type", "turn.start", "-o", "json"];
    let mut watching = substratctl(&daemon.home);
    watching.args(follow).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut watching = watching.spawn().unwrap();
    let mut line = String::new();
    let mut events = std::io::BufReader::new(watching.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut events, &mut line).unwrap();
    assert!(line.contains("turn.start"), "{line}");

    let detached = Detached(daemon.home.clone());
    let stopping = daemon.ctl(&["daemon", "stop", "--deadline", "1h", "--timeout", "1s"]);
    assert_eq!(stopping.status.code(), Some(124), "{stopping:?}");
    let mut starting = substratctl(&daemon.home);
    starting.args(["daemon", "start"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut starting = starting.spawn().unwrap();
    let mut said = std::io::BufReader::new(starting.stderr.take().unwrap());
    line.clear();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert!(line.contains("the daemon is stopping"), "{line}");
    daemon.signal(Signal::TERM);
    assert!(daemon.wait());
    let output = starting.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("started (pid "), "{output:?}");
    assert!(detached.lives() && detached.pid() != Some(daemon.pid));
    watching.wait().unwrap();
}

#[test]
fn two_daemons_on_one_home_are_refused() {
    let daemon = Daemon::start();
    let taken = format!("a daemon already runs on {}", daemon.home.display());
    let other = daemon.home.parent().unwrap().join("other.sock");
    let mut second = substratd(&daemon.home);
    second.arg("--socket").arg(&other);
    let complaint = Daemon::run(&daemon.home, second).err().expect("it is refused");
    assert!(complaint.contains(&taken), "{complaint}");
    assert!(complaint.contains(&format!("(pid {})", daemon.pid)), "{complaint}");
    assert!(!other.exists());
    daemon.ctl_ok(&["daemon", "status"]);
}

#[test]
fn what_a_dead_daemon_left_is_taken_over() {
    let mut daemon = Daemon::start();
    daemon.ctl_ok(&["agent", "create", "echo", "--instructions", ECHO]);
    daemon.kill();
    assert!(daemon.socket().symlink_metadata().unwrap().file_type().is_socket());
    let said = say(&daemon.home, &["agent", "list"]);
    assert_eq!(said.code, Some(3));
    assert!(said.stderr.contains("the daemon does not answer on"), "{said:?}");
    assert!(said.stderr.contains("hint: start it with"), "{said:?}");
    daemon.start_again();
    assert_eq!(daemon.ctl_ok(&["agent", "send", "echo", "hi"]), "you said: hi\n");

    // A lock that names a process which lives, but has it not; and a link that leads nowhere.
    assert!(daemon.stop());
    fs::write(daemon.home.join("substratd.lock"), "1\nnonsense\n\u{fffd}").unwrap();
    symlink("/nowhere/at/all.sock", daemon.socket()).unwrap();
    daemon.start_again();
    assert_eq!(daemon.ctl_ok(&["agent", "send", "echo", "hi"]), "you said: hi\n");
}

#[test]
fn a_socket_path_that_is_too_long_is_linked() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("deep/".repeat(25)).join("home");
    let runtime = folder.path().join("run");
    fs::create_dir_all(&runtime).unwrap();
    let mut command = substratd(&home);
    command.env("XDG_RUNTIME_DIR", &runtime);
    let mut daemon = Daemon::run(&home, command).unwrap();
    assert!(daemon.socket().as_os_str().len() > 108);
    let target = fs::read_link(daemon.socket()).unwrap();
    assert!(target.starts_with(&runtime), "{target:?}");
    assert_eq!(target.symlink_metadata().unwrap().mode() & 0o777, 0o600);
    assert_eq!(target.parent().unwrap().metadata().unwrap().mode() & 0o777, 0o700);
    let status = say(&home, &["daemon", "status"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    assert!(daemon.stop());
    assert!(daemon.socket().symlink_metadata().is_err() && !target.exists());
}

#[test]
fn what_is_no_dead_socket_is_left_in_its_place() {
    let (folder, home) = fresh();
    let start = |socket: &Path| {
        let mut command = substratd(&home);
        command.arg("--socket").arg(socket);
        Daemon::run(&home, command).err().expect("it is refused")
    };
    let file = folder.path().join("precious");
    fs::write(&file, "precious").unwrap();
    let complaint = start(&file);
    assert!(complaint.contains("something else than a socket"), "{complaint}");
    assert!(complaint.contains(&file.display().to_string()), "{complaint}");
    let link = folder.path().join("link");
    symlink(&file, &link).unwrap();
    start(&link);
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    assert_eq!(fs::read_link(&link).unwrap(), file);
    assert!(start(folder.path()).contains("something else than a socket"));

    let living = folder.path().join("living.sock");
    let _listener = UnixListener::bind(&living).unwrap();
    let complaint = start(&living);
    assert!(complaint.contains("another process listens there"), "{complaint}");
    assert!(living.exists());

    let nowhere = folder.path().join("no/such/folder.sock");
    let complaint = start(&nowhere);
    assert!(complaint.contains("no/such/folder.sock"), "{complaint}");
}

#[test]
fn a_socket_elsewhere_is_enough_to_stop_its_daemon() {
    let (folder, home) = fresh();
    let socket = folder.path().join("api.sock");
    let mut command = substratd(&home);
    command.arg("--socket").arg(&socket);
    let mut daemon = Daemon::run(&home, command).unwrap();
    let other = folder.path().join("other");
    let said = say(&other, &["--socket", socket.to_str().unwrap(), "daemon", "stop"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "stopped\n"), "{said:?}");
    assert!(daemon.wait());
    assert!(!socket.exists() && !other.exists());
}

#[test]
fn a_daemon_that_does_not_run_is_said_to_be_down() {
    let (_folder, home) = fresh();
    let said = say(&home, &["daemon", "status"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(3), ""));
    let missing = format!("the daemon does not run: there is no {}", home.display());
    assert!(said.stderr.contains(&missing), "{said:?}");
    assert!(said.stderr.contains("hint: start it with \"substratctl daemon start\""), "{said:?}");
    let said = say(&home, &["daemon", "stop"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "not running\n"));
    assert_eq!(say(&home, &["daemon", "stop", "-o", "json"]).json(), serde_json::json!({}));
    let said = say(&home, &["daemon", "logs"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(!home.exists(), "only looking makes no home");
}

#[test]
fn the_status_of_a_daemon_is_shown() {
    let daemon = Daemon::start();
    let said = say(&daemon.home, &["daemon", "status"]);
    let running = format!("(pid {}), up ", daemon.pid);
    assert!(said.stdout.starts_with("running   substratd "), "{said:?}");
    assert!(said.stdout.contains(&running), "{said:?}");
    for heading in ["home", "agents", "inbox", "journal", "recovery"] {
        assert!(said.stdout.contains(&format!("\n{heading} ")), "{said:?}");
    }
    let status = say(&daemon.home, &["daemon", "status", "-o", "json"]).json();
    assert_eq!(status["daemon"]["home"], daemon.home.to_str().unwrap());
    assert_eq!(status["daemon"]["recovery"]["clean"], true);
}

/// Asks in the background.
fn asking(
    client: &Client,
    agent: &'static str,
    text: &'static str,
) -> tokio::task::JoinHandle<Result<String, tonic::Status>> {
    let client = client.clone();
    tokio::spawn(async move { client.ask(agent, text).await })
}

/// Waits until the daemon drains: its health says so.
async fn draining(daemon: &Daemon) {
    let mut health = HealthClient::new(channel(&daemon.socket()).await.unwrap());
    let request = HealthCheckRequest { service: String::new() };
    let mut told = health.watch(request).await.unwrap().into_inner();
    while let Some(health) = told.message().await.unwrap() {
        if health.status() == ServingStatus::NotServing {
            return;
        }
    }
    panic!("the daemon went away");
}

async fn desk(client: &Client) -> PathBuf {
    let request = v1::CreateWorkspaceRequest { name: "desk".into(), ..Default::default() };
    let created = client.workspaces.clone().create_workspace(request).await.unwrap();
    PathBuf::from(created.into_inner().workspace.unwrap().root)
}

#[tokio::test]
async fn a_running_turn_gets_to_finish_when_the_daemon_stops() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let root = desk(&client).await;
    let agent = client.create_in("a", HOLD, "desk").await;
    let asked = asking(&client, "a", "hold");
    client.wait_type(1, &agent, "turn.start").await;
    daemon.signal(Signal::TERM);
    draining(&daemon).await;
    let refused = client.ask("a", "more").await.unwrap_err();
    assert_eq!(reason(&refused), "DRAINING");
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    let before = client.agent("a").await;
    fs::write(root.join("go"), "").unwrap();
    assert_eq!(asked.await.unwrap().unwrap(), "done: hold");
    assert!(daemon.wait());
    assert!(daemon.log().contains("stopped cleanly"));
    assert!(!daemon.socket().exists());

    daemon.start_again();
    let client = daemon.client().await;
    assert!(client.status().await.recovery.unwrap().clean);
    let after = client.agent("a").await;
    assert_eq!(after.session_id, before.session_id);
    assert_eq!(after.turns.unwrap().completed, 1);
    assert_eq!(client.ask("a", "again").await.unwrap(), "done: again");
}

#[tokio::test]
async fn a_turn_that_does_not_finish_is_cut_at_the_deadline() {
    for stop in [Signal::TERM, Signal::INT] {
        let mut daemon = Daemon::with(&["drain_seconds=0"]);
        let client = daemon.client().await;
        let root = desk(&client).await;
        let agent = client.create_in("a", HOLD, "desk").await;
        let request = v1::SendMessageRequest {
            agent: "a".into(),
            text: "hold".into(),
            request_id: "once".into(),
            ..Default::default()
        };
        let mut agents = client.agents.clone();
        let again = request.clone();
        let asked = tokio::spawn(async move { agents.send_message(request).await });
        client.wait_type(1, &agent, "turn.start").await;
        daemon.signal(stop);
        let cut = asked.await.unwrap().unwrap_err();
        assert_eq!((reason(&cut).as_str(), cut.code()), ("DRAINING", tonic::Code::Unavailable));
        assert!(daemon.wait());

        // The session and the message were kept: who asks again gets the one answer.
        fs::write(root.join("go"), "").unwrap();
        daemon.start_again();
        let client = daemon.client().await;
        let answer = client.agents.clone().send_message(again).await.unwrap().into_inner();
        assert_eq!(answer.answer, "done: hold");
        let after = client.agent("a").await;
        assert_eq!(after.session_id, agent.session_id);
        let turns = after.turns.unwrap();
        assert_eq!((turns.interrupted, turns.completed), (1, 1));
    }
}

#[tokio::test]
async fn a_second_signal_stops_without_further_waiting() {
    for (first, second) in [(Signal::TERM, Signal::TERM), (Signal::INT, Signal::INT)] {
        let mut daemon = Daemon::with(&["drain_seconds=86400"]);
        let client = daemon.client().await;
        let agent = client.create("a", SLEEP).await;
        let asked = asking(&client, "a", "hello");
        client.wait_type(1, &agent, "turn.start").await;
        daemon.signal(first);
        draining(&daemon).await;
        daemon.signal(second);
        assert_eq!(reason(&asked.await.unwrap().unwrap_err()), "DRAINING");
        assert!(daemon.wait());
    }
}

#[tokio::test]
async fn the_deadline_of_a_stop_can_be_made_shorter_but_not_crash_the_daemon() {
    let mut daemon = Daemon::with(&["drain_seconds=86400"]);
    let client = daemon.client().await;
    let agent = client.create("a", SLEEP).await;
    let asked = asking(&client, "a", "hello");
    client.wait_type(1, &agent, "turn.start").await;
    let before = client.sequence().await;
    let shutdown = |seconds| {
        let mut client = client.daemon.clone();
        let deadline = Some(prost_types::Duration { seconds, nanos: 0 });
        async move { client.shutdown(v1::ShutdownRequest { deadline }).await }
    };
    let refused = shutdown(-1).await.unwrap_err();
    assert_eq!(reason(&refused), "FIELD_INVALID");
    assert_eq!(client.sequence().await, before);
    assert_eq!(shutdown(i64::MAX).await.unwrap().into_inner().running_turns, 1);
    assert!(client.status().await.draining);
    shutdown(0).await.unwrap();
    assert_eq!(reason(&asked.await.unwrap().unwrap_err()), "DRAINING");
    assert!(daemon.wait());
}
