//! Damage to what a daemon left on the disk: refused where acknowledged data is gone, mended
//! where it is not.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use substrat_tests::harness::{Client, Daemon, say};

const ECHO: &str = r#"fn turn(prompt) { "you said: " + messages()[0].text }"#;

/// The files of a home that hold data, with what is in them.
fn contents(home: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![home.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            match path.is_dir() {
                // Files for a run of the daemon.
                _ if name == "run" || path.is_symlink() => {}
                true => folders.push(path),
                false if name.starts_with("substratd.") => {}
                false => drop(found.insert(path.clone(), fs::read(&path).unwrap())),
            }
        }
    }
    found
}

/// The segments of a home's journal, in order.
fn segments(home: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(home.join("journal")).unwrap();
    let mut found: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "wal"));
    found.sort();
    found
}

fn position(bytes: &[u8], text: &str) -> usize {
    let found = bytes.windows(text.len()).position(|window| window == text.as_bytes());
    found.unwrap_or_else(|| panic!("{text:?} is not there"))
}

/// A daemon with two agents, of which each was asked once.
async fn asked(settings: &[&str]) -> (Daemon, Client) {
    let daemon = Daemon::with(settings);
    let client = daemon.client().await;
    for (agent, text) in [("one", "marker-one"), ("two", "marker-two")] {
        client.create(agent, ECHO).await;
        client.ask(agent, text).await.unwrap();
    }
    (daemon, client)
}

/// Both agents are there with what they did, and go on.
async fn both_are_there(daemon: &Daemon) {
    let client = daemon.client().await;
    for (agent, text) in [("one", "marker-one"), ("two", "marker-two")] {
        assert_eq!(client.agent(agent).await.turns.unwrap().completed, 1, "{agent}");
        let transcript = daemon.ctl_ok(&["agent", "transcript", agent]);
        assert!(transcript.contains(&format!("you said: {text}")), "{transcript}");
        assert_eq!(client.ask(agent, "again").await.unwrap(), "you said: again");
    }
    let sequences: Vec<u64> = client.events().await.iter().map(|event| event.sequence).collect();
    assert!(sequences.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{sequences:?}");
    assert_eq!(sequences[0], 1);
}

#[tokio::test]
async fn a_damaged_journal_is_refused_with_its_place_and_the_way_out() {
    for clean in [true, false] {
        let (mut daemon, _) = asked(&[]).await;
        match clean {
            true => assert!(daemon.stop()),
            false => daemon.kill(),
        }
        let segment = &segments(&daemon.home)[0];
        let mut bytes = fs::read(segment).unwrap();
        let flipped = position(&bytes, "marker-one");
        bytes[flipped] ^= 0x10;
        fs::write(segment, &bytes).unwrap();
        let before = contents(&daemon.home);
        let complaint = Daemon::try_on(&daemon.home, &[]).err().expect("it is refused");
        let place = complaint.split_once("journal/00000001.wal is damaged at byte ");
        let offset = place.and_then(|(_, rest)| rest.split_once(':')).map(|(offset, _)| offset);
        let offset: usize = offset.unwrap_or_else(|| panic!("{complaint}")).parse().unwrap();
        assert!(offset <= flipped && flipped - offset < 4096, "{offset} for {flipped}");
        assert!(complaint.contains("nothing was changed"), "{complaint}");
        assert!(complaint.contains("Restore the home from a backup"), "{complaint}");
        assert!(contents(&daemon.home) == before, "something was changed");
        let said = say(&daemon.home, &["daemon", "start"]);
        assert_eq!(said.code, Some(1));
        assert!(said.stderr.contains("is damaged at byte"), "{said:?}");
        assert!(said.stderr.contains("\nhint: nothing was changed. Restore"), "{said:?}");

        // It was only that byte.
        bytes[flipped] ^= 0x10;
        fs::write(segment, &bytes).unwrap();
        daemon.start_again();
        both_are_there(&daemon).await;
    }
}

#[tokio::test]
async fn a_write_that_was_never_acknowledged_is_cut_off() {
    let (mut daemon, client) = asked(&[]).await;
    let acknowledged = client.sequence().await;
    daemon.kill();
    let segment = &segments(&daemon.home)[0];
    let mut bytes = fs::read(segment).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    // The start of a record that says that it is longer than what follows.
    let begun = bytes[position(&bytes, "marker-one") - 400..][..300].to_vec();
    bytes[end..end + 4].copy_from_slice(&5000u32.to_le_bytes());
    bytes[end + 4..end + 4 + begun.len()].copy_from_slice(&begun);
    fs::write(segment, &bytes).unwrap();
    daemon.start_again();
    let recovery = daemon.client().await.status().await.recovery.unwrap();
    assert!(!recovery.clean && recovery.torn_bytes > 0, "{recovery:?}");
    assert!(recovery.replayed_events >= acknowledged, "{recovery:?}");
    assert!(daemon.log().contains("cutting off a write that was never acknowledged"));
    let files = contents(&daemon.home.join("journal"));
    let kept = files.keys().find(|path| path.extension().is_some_and(|end| end == "broken"));
    assert!(files[kept.expect("the cut bytes are kept")].windows(300).any(|part| part == begun));
    both_are_there(&daemon).await;
    assert!(daemon.ctl_ok(&["daemon", "status"]).contains("of a torn write cut off"));
}

#[tokio::test]
async fn a_damaged_checkpoint_is_done_without() {
    for long in [false, true] {
        let (mut daemon, client) =
            asked(&["journal.segment_mib=1", "journal.checkpoint_mib=1"]).await;
        if long {
            // So much that the first segments go.
            client.create("three", r#"fn turn(prompt) { "ok" }"#).await;
            for _ in 0..5 {
                client.ask("three", &"x".repeat(900 << 10)).await.unwrap();
            }
        }
        assert!(daemon.stop());
        assert_eq!(long, !daemon.home.join("journal/00000001.wal").exists());
        let checkpoint = daemon.home.join("checkpoint");
        let mut bytes = fs::read(&checkpoint).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&checkpoint, &bytes).unwrap();
        daemon.start_again();
        let recovery = daemon.client().await.status().await.recovery.unwrap();
        assert!(recovery.clean, "{recovery:?}");
        assert_eq!((recovery.checkpoint_sequence, recovery.rebuilt), (0, long), "{recovery:?}");
        assert_eq!(recovery.quarantined, Vec::<String>::new());
        both_are_there(&daemon).await;

        // The next start has a good one again, and one without any goes as well.
        assert!(daemon.stop());
        daemon.start_again();
        assert!(daemon.client().await.status().await.recovery.unwrap().checkpoint_sequence > 0);
        assert!(daemon.stop());
        fs::remove_file(&checkpoint).unwrap();
        daemon.start_again();
        assert_eq!(daemon.ctl_ok(&["agent", "send", "one", "hi"]), "you said: hi\n");
    }
}

#[tokio::test]
async fn logs_that_someone_removed_are_missing_but_nothing_else_is() {
    let (mut daemon, client) = asked(&[]).await;
    let session = client.agent("one").await.session_id;
    let folder = daemon.home.join("agents").join(session);
    // They are written behind the journal; what reads them waits for that.
    daemon.ctl_ok(&["agent", "log", "one"]);
    let logs = || fs::read_to_string(folder.join("events.jsonl")).unwrap();
    let before = logs();
    assert!(before.contains("marker-one"));
    for clean in [false, true] {
        // The journal still holds them: they are written anew.
        match clean {
            true => assert!(daemon.stop()),
            false => daemon.kill(),
        }
        fs::remove_file(daemon.home.join("checkpoint")).ok();
        fs::remove_dir_all(&folder).unwrap();
        daemon.start_again();
        daemon.ctl_ok(&["agent", "log", "one"]);
        assert!(logs().starts_with(&before), "clean: {clean}");
    }
    both_are_there(&daemon).await;
}

#[tokio::test]
async fn a_log_that_is_gone_for_good_is_told_and_stops_nobody() {
    let (mut daemon, client) = asked(&[]).await;
    let session = client.agent("one").await.session_id;
    assert!(daemon.stop());
    let folder = daemon.home.join("agents").join(&session);
    fs::remove_dir_all(&folder).unwrap();
    daemon.start_again();
    let client = daemon.client().await;
    assert_eq!(client.ask("two", "hi").await.unwrap(), "you said: hi");
    assert_eq!(client.ask("one", "hi").await.unwrap(), "you said: hi");
    assert_eq!(client.agent("one").await.turns.unwrap().completed, 2);
    let log = daemon.ctl_ok(&["agent", "log", "one"]);
    assert!(log.contains("you said: hi"), "{log}");
    assert!(daemon.log().contains("a log is shorter than it was"));
    assert!(daemon.log().contains(&session));
}

#[tokio::test]
async fn a_journal_that_is_gone_is_refused_where_it_is_missed() {
    let (mut daemon, _) = asked(&[]).await;
    daemon.kill();
    let aside = daemon.home.with_file_name("journal-aside");
    fs::rename(daemon.home.join("journal"), &aside).unwrap();
    let before = contents(&daemon.home.join("agents"));
    let complaint = Daemon::try_on(&daemon.home, &[]).err().expect("it is refused");
    assert!(complaint.contains("the journal is missing, but there are logs"), "{complaint}");
    assert!(complaint.contains("Restore the home from a backup"), "{complaint}");
    assert!(contents(&daemon.home.join("agents")) == before);
    fs::remove_dir(daemon.home.join("journal")).ok();
    fs::rename(&aside, daemon.home.join("journal")).unwrap();
    daemon.start_again();
    both_are_there(&daemon).await;
}

#[tokio::test]
async fn a_journal_that_is_gone_behind_a_checkpoint_is_not_passed_over() {
    let (mut daemon, _) = asked(&[]).await;
    assert!(daemon.stop());
    daemon.start_again();
    let client = daemon.client().await;
    client.create("late", ECHO).await;
    client.ask("late", "acknowledged").await.unwrap();
    daemon.kill();
    for segment in segments(&daemon.home) {
        fs::remove_file(segment).unwrap();
    }
    let complaint = Daemon::try_on(&daemon.home, &[]).err().expect("it is refused");
    let expected = "journal is damaged at byte 0: it ends before event";
    assert!(complaint.contains(expected), "{complaint}");
}

#[tokio::test]
async fn files_that_go_while_the_daemon_runs_do_not_stop_it() {
    let (mut daemon, client) = asked(&[]).await;
    let session = client.agent("one").await.session_id;
    daemon.ctl_ok(&["agent", "log", "one"]);
    // The daemon may be writing there at this moment.
    fs::remove_dir_all(daemon.home.join("agents").join(&session)).ok();
    fs::remove_file(daemon.home.join("substratd.log")).unwrap();
    assert_eq!(client.ask("one", "hi").await.unwrap(), "you said: hi");
    assert_eq!(client.ask("two", "hi").await.unwrap(), "you said: hi");
    client.create("three", ECHO).await;
    assert!(daemon.stop(), "it ends well");
    daemon.start_again();
    let client = daemon.client().await;
    assert_eq!(client.agent("one").await.turns.unwrap().completed, 2);
    assert_eq!(client.ask("three", "hi").await.unwrap(), "you said: hi");
}
