//! Homes of the Python Substrat, opened by the shipped daemon.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use substrat_tests::harness::{Daemon, say, text};
use tempfile::TempDir;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// A copy of a fixture.
fn home(name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/fixtures");
    copy(&fixtures.join(name), &home);
    (folder, home)
}

#[tokio::test]
async fn a_home_of_the_python_substrat_opens_with_its_agents_and_their_past() {
    let (_folder, home) = home("python-home-team");
    let daemon = Daemon::on(&home, &[]);
    let client = daemon.client().await;
    let names: Vec<String> =
        client.all_agents().await.into_iter().map(|agent| agent.path).collect();
    assert_eq!(names, ["lead", "lead/worker", "lead/code-reviewer", "lead/worker", "late"]);
    let status = daemon.ctl_ok(&["daemon", "status"]);
    assert!(status.contains("imported  4 agents (and 1 ended), 2 workspaces"), "{status}");
    let report = home.join("import-report.txt");
    assert!(status.contains(&format!("see {}", report.display())), "{status}");
    assert!(fs::read_to_string(report).unwrap().contains("code-reviewer"));
    assert!(daemon.log().contains("took over a home"));

    let transcript = daemon.ctl_ok(&["agent", "transcript", "lead"]);
    assert!(transcript.contains("worker → lead: the work is done"), "{transcript}");
    let log = daemon.ctl_ok(&["agent", "log", "lead"]);
    assert!(log.contains("started ✓") && log.contains("spawn_agent"), "{log}");
    let sequences: Vec<u64> = client.events().await.iter().map(|event| event.sequence).collect();
    assert!(sequences.iter().zip(1..).all(|(found, wanted)| *found == wanted), "{sequences:?}");
    let workspaces = daemon.ctl_ok(&["workspace", "list"]);
    assert!(workspaces.contains("project-00000001"), "{workspaces}");
}

#[tokio::test]
async fn agents_that_cannot_run_here_say_why_and_keep_their_mail() {
    let (_folder, home) = home("python-home-team");
    let daemon = Daemon::on(&home, &[]);
    let client = daemon.client().await;
    // Its pending mail woke it.
    let worker = client.agent("lead/worker").await;
    let failed = client
        .wait_event(1, |event| event.agent_id == worker.id && event.r#type == "turn.failed")
        .await;
    assert!(text(&failed, "error").contains("Python program"), "{failed:?}");
    let refused = client.ask("lead/worker", "go on").await.unwrap_err();
    assert!(refused.message().contains("/home/me/worker.py"), "{refused}");
    assert!(client.agent("lead/worker").await.inbox_size >= 2, "its mail is there");
    let refused = client.ask("late", "hello").await.unwrap_err();
    assert!(refused.message().contains("cursor-agent or agent is not installed"), "{refused}");

    let script = "fn turn(prompt) { `${messages().len()} messages` }";
    let updated = say(&home, &["agent", "update", "lead/worker", "--instructions", script]);
    assert_eq!(updated.code, Some(0), "{updated:?}");
    let answer = client.ask("lead/worker", "and now").await.unwrap();
    assert!(answer.ends_with("messages"), "{answer}");
}

#[tokio::test]
async fn it_is_taken_over_once_and_there_is_a_way_back() {
    let (_folder, home) = home("python-home-damaged");
    let mut daemon = Daemon::on(&home, &[]);
    let imports = |events: &[substrat_proto::v1::Event]| {
        events.iter().filter(|event| event.r#type == "home.imported").count()
    };
    let agents = daemon.client().await.all_agents().await.len();
    daemon.kill();
    daemon.start_again();
    let client = daemon.client().await;
    assert_eq!(imports(&client.events().await), 1);
    assert_eq!(client.all_agents().await.len(), agents);
    assert!(daemon.stop());

    for old in ["agents", "journal"] {
        fs::remove_dir_all(home.join(old)).unwrap();
    }
    for old in ["checkpoint", "boot", "events.jsonl"] {
        let _ = fs::remove_file(home.join(old));
    }
    fs::rename(home.join("python-agents"), home.join("agents")).unwrap();
    daemon.start_again();
    let client = daemon.client().await;
    assert_eq!(client.all_agents().await.len(), agents);
    assert_eq!(imports(&client.events().await), 1);
}

#[test]
fn a_home_whose_python_daemon_runs_is_refused_and_left_alone() {
    let (_folder, home) = home("python-home-team");
    let lock = fs::File::create(home.join("daemon.lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let complaint = Daemon::try_on(&home, &[]).err().expect("it is refused");
    assert!(complaint.contains("the Python Substrat still runs"), "{complaint}");
    assert!(complaint.contains("4194304"), "{complaint}");
    assert!(!home.join("checkpoint").exists() && !home.join("python-agents").exists());
    drop(lock);
    let listener = std::os::unix::net::UnixListener::bind(home.join("daemon.sock")).unwrap();
    let complaint = Daemon::try_on(&home, &[]).err().expect("it is refused");
    assert!(complaint.contains("the Python Substrat still runs"), "{complaint}");
    drop(listener);
    drop(Daemon::on(&home, &[]));
    assert!(home.join("daemon.sock").exists(), "its files are left");
}
