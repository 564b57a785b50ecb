//! Projections on the simulated disk.

use super::*;
use crate::journal::{Crash, Disk, SimDisk};
use crate::model::{Commit, DaemonStarted, Entry, Event, Line, State, Timestamp};
use std::sync::Arc;

fn session(number: u128) -> SessionId {
    format!("{number:032x}").parse().unwrap()
}

/// Appends an event to a commit, whose text is padded to be told apart.
fn line(commit: &mut Commit, seq: u64, session: Option<SessionId>) {
    let event: Event = DaemonStarted { version: "x".repeat(seq as usize % 40) }.into();
    let entry = Entry { seq, session, at: Timestamp::default(), event };
    let mut text = Vec::new();
    entry.encode(&mut text);
    commit.lines.push(Line { entry, text: text.into(), agent: None });
    if let Some(session) = session {
        commit.transcript.push((session, format!("[00:00:00] event {seq}\n")));
    }
}

/// Events from a sequence on, dealt out to the daemon's log and three sessions.
fn commit(sequences: std::ops::Range<u64>) -> Commit {
    let mut commit = Commit::default();
    for seq in sequences {
        let number = u128::from(seq % 4);
        line(&mut commit, seq, (number > 0).then(|| session(number)));
    }
    commit
}

fn home() -> SimDisk {
    let disk = SimDisk::new(1);
    disk.create_dir(DIR).unwrap();
    disk.sync_dir("").unwrap();
    disk
}

fn projector(disk: &SimDisk, extents: Extents) -> Projector {
    Projector::new(Arc::new(disk.clone()), extents, 3)
}

/// A home with the events 1 to 99, and how long its files are.
fn written() -> (SimDisk, Extents) {
    let disk = home();
    let mut projector = projector(&disk, Extents::new());
    for from in (1..100).step_by(9) {
        projector.push(&commit(from..from + 9));
        projector.flush().unwrap();
    }
    projector.cut().unwrap().sync(&disk).unwrap();
    (disk, projector.extents().clone())
}

/// The same events again, as a recovery from nothing pushes them.
fn recover(disk: &SimDisk, boot: &str) -> Projector {
    let mut projector = projector(disk, Extents::new());
    projector.begin_recovery(boot);
    projector.push(&commit(1..100));
    projector.end_recovery().unwrap();
    projector
}

fn logs(disk: &SimDisk) -> std::collections::BTreeMap<String, Vec<u8>> {
    let mut files = disk.contents();
    files.remove(BOOT_PATH);
    files
}

#[test]
fn what_is_right_is_left_alone() {
    let (disk, extents) = written();
    let before = disk.operations();
    let projector = recover(&disk, "");
    assert_eq!(disk.operations(), before, "nothing was written");
    assert_eq!(projector.extents(), &extents);
    assert_eq!(projector.repaired(), 0);
}

#[test]
fn what_is_missing_torn_or_left_over_is_mended() {
    let (disk, extents) = written();
    let right = disk.contents();
    let log = events_path(Some(session(2)));
    let length = right[&log].len() as u64;
    let damages: [&dyn Fn(&SimDisk); 5] = [
        &|disk| disk.remove(&log).unwrap(),
        &|disk| disk.open(&log).unwrap().set_size(length - 7).unwrap(),
        &|disk| disk.flip_bit(&log, 8 * 100).unwrap(),
        &|disk| disk.open(&log).unwrap().write_at(b"torn", length).unwrap(),
        &|disk| disk.remove_dir(&session_dir(session(2))).unwrap(),
    ];
    for (number, damage) in damages.iter().enumerate() {
        let copy = disk.fork();
        damage(&copy);
        let projector = recover(&copy, "");
        assert_eq!(copy.contents(), right, "damage {number}");
        assert_eq!(projector.extents(), &extents);
    }
}

#[test]
fn in_the_same_run_of_the_machine_lengths_are_believed() {
    let (disk, _) = written();
    recover(&disk, "boot 1");
    let log = events_path(Some(session(1)));
    disk.flip_bit(&log, 8 * 100).unwrap();
    let damaged = logs(&disk);
    recover(&disk, "boot 1");
    assert_eq!(logs(&disk), damaged, "not looked into");
    recover(&disk, "boot 2");
    assert_ne!(logs(&disk), damaged, "looked into after a start of the machine");
    assert_eq!(logs(&disk), logs(&written().0));
}

#[test]
fn a_mending_that_was_not_finished_is_not_believed() {
    let (disk, _) = written();
    let log = events_path(Some(session(1)));
    disk.flip_bit(&log, 8 * 100).unwrap();
    let mut half = projector(&disk, Extents::new());
    half.begin_recovery("boot 1");
    half.push(&commit(1..100));
    drop(half);
    recover(&disk, "boot 1");
    assert_eq!(logs(&disk), logs(&written().0));
}

#[test]
fn what_was_believed_is_synced_by_the_next_checkpoint() {
    let disk = home();
    recover(&disk, "boot 1");
    for boot in ["boot 1", "boot 2", "boot 2"] {
        // One log is not whole, and the folder that it is in may never have been synced.
        disk.open(&events_path(Some(session(1)))).unwrap().set_size(20).unwrap();
        let copy = disk.fork();
        recover(&copy, boot).cut().unwrap().sync(&copy).unwrap();
        let before = logs(&copy);
        copy.crash(Crash::Power);
        assert_eq!(logs(&copy), before);
        recover(&disk, boot);
    }
}

#[test]
fn after_a_failed_sync_lengths_are_not_believed() {
    let disk = home();
    let mut projector = recover(&disk, "boot 1");
    disk.set_fault(disk.operations() + 1, journal::Fault::Eio);
    assert!(projector.cut().unwrap().sync(&disk).is_err());
    assert!(!disk.contents().contains_key(BOOT_PATH));
}

#[test]
fn a_log_that_shrinks_under_a_live_daemon_stops_it() {
    let (disk, extents) = written();
    let mut live = projector(&disk, extents);
    let log = events_path(Some(session(1)));
    disk.open(&log).unwrap().set_size(5).unwrap();
    live.push(&commit(100..110));
    match live.flush() {
        Err(Error::Damaged { file, .. }) => assert_eq!(file, log),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_log_that_was_removed_while_it_was_open_is_noticed_by_the_next_checkpoint() {
    let (disk, extents) = written();
    let mut live = projector(&disk, extents);
    live.push(&commit(101..102));
    live.flush().unwrap();
    disk.remove_dir(&session_dir(session(1))).unwrap();
    live.cut().unwrap().sync(&disk).unwrap();
    assert_eq!(live.quarantined(), [session_dir(session(1))]);
    live.push(&commit(105..106));
    live.flush().unwrap();
    assert!(all(&disk).contains(&105));
}

#[test]
fn a_full_disk_is_waited_for_and_nothing_is_written_twice() {
    let (disk, extents) = written();
    let mut live = projector(&disk, extents);
    live.push(&commit(100..140));
    disk.set_capacity(Some(disk.used() + 700));
    assert!(matches!(live.flush(), Err(Error::Disk(journal::Error::Full))));
    disk.set_capacity(None);
    live.flush().unwrap();
    let entries = all(&disk);
    assert_eq!(entries, (1..140).collect::<Vec<_>>());
}

fn all(disk: &SimDisk) -> Vec<u64> {
    let span = |session| Span { session, first: 1, last: u64::MAX };
    let spans =
        [span(None), span(Some(session(1))), span(Some(session(2))), span(Some(session(3)))];
    let found = read_merged(disk, &spans, 1, u64::MAX).unwrap();
    found.iter().map(|(entry, _)| entry.seq).collect()
}

#[test]
fn a_removed_session_leaves_nothing() {
    let (disk, extents) = written();
    let mut live = projector(&disk, extents);
    let mut last = commit(100..104);
    last.removed.push(session(3));
    live.push(&last);
    live.flush().unwrap();
    let dir = session_dir(session(3));
    assert!(disk.contents().keys().all(|path| !path.starts_with(&dir)));
    assert!(!live.extents().contains_key(&Some(session(3))));
    live.cut().unwrap().sync(&disk).unwrap();
    disk.crash(Crash::Power);
    assert!(disk.contents().keys().all(|path| !path.starts_with(&dir)));
}

/// Logs with 9,000 events.
fn long() -> SimDisk {
    let disk = home();
    let mut live = projector(&disk, Extents::new());
    for from in (1..9001).step_by(1000) {
        live.push(&commit(from..from + 1000));
    }
    live.flush().unwrap();
    disk
}

#[test]
fn logs_are_read_by_sequence_from_either_end() {
    let disk = long();
    assert_eq!(all(&disk), (1..9001).collect::<Vec<_>>());
    let spans = [Span { session: Some(session(1)), first: 1, last: 8997 }];
    for (from, end) in [(1, 50), (4000, 4100), (8990, u64::MAX), (8998, u64::MAX)] {
        let found = read_merged(&disk, &spans, from, end).unwrap();
        let found: Vec<u64> = found.iter().map(|(entry, _)| entry.seq).collect();
        let expected: Vec<u64> = (from..end.min(9001)).filter(|seq| seq % 4 == 1).collect();
        assert_eq!(found, expected, "{from}..{end}");
    }
    for count in [0, 1, 10, 2000, 100_000] {
        let found = read_tail(&disk, session(1), count).unwrap();
        let all: Vec<u64> = (1..9001).filter(|seq| seq % 4 == 1).collect();
        let found: Vec<u64> = found.iter().map(|entry| entry.seq).collect();
        assert_eq!(found, all[all.len().saturating_sub(count)..], "the last {count}");
    }
    assert!(read_tail(&disk, session(9), 5).unwrap().is_empty());
}

#[test]
fn a_log_is_read_backwards_piece_by_piece() {
    let disk = long();
    let all: Vec<u64> = (1..9001).filter(|seq| seq % 4 == 1).collect();
    for bytes in [1, 500, 100_000, 100_000_000] {
        let (mut found, mut end) = (Vec::new(), 9001);
        loop {
            let piece = read_before(&disk, session(1), end, bytes).unwrap();
            let Some(first) = piece.first() else { break };
            assert!(piece.iter().all(|entry| entry.seq < end));
            end = first.seq;
            found.extend(piece.iter().rev().map(|entry| entry.seq));
        }
        found.reverse();
        assert_eq!(found, all, "{bytes} bytes at once");
    }
    assert!(read_before(&disk, session(9), 5, 100).unwrap().is_empty());
}

#[test]
fn transcripts_are_read_in_whole_lines() {
    let (disk, _) = written();
    let whole = String::from_utf8(disk.contents()[&transcript_path(session(1))].clone()).unwrap();
    for limit in [1, 10, 64, 10_000] {
        let (mut text, mut from) = (String::new(), 0);
        loop {
            let (piece, next) = read_transcript(&disk, session(1), from, limit).unwrap();
            assert!(piece.is_empty() || piece.ends_with('\n'));
            if piece.is_empty() {
                break;
            }
            text.push_str(&piece);
            from = next;
        }
        assert_eq!(text, whole, "{limit} bytes at once");
    }
    assert_eq!(read_transcript(&disk, session(9), 0, 10).unwrap(), (String::new(), 0));
}

#[test]
fn a_line_that_is_no_event_is_passed_over_when_read_and_set_aside_by_a_rebuild() {
    let (disk, _) = written();
    let log = events_path(Some(session(1)));
    let length = disk.contents()[&log].len() as u64;
    disk.open(&log).unwrap().write_at(b"by hand\n", length).unwrap();
    assert_eq!(all(&disk), (1..100).collect::<Vec<_>>());
    let rebuilt = rebuild(&disk, None).unwrap();
    assert_eq!(rebuilt.damaged, [format!("{log}.damaged-1")]);
    assert_eq!(rebuilt.state.seq(), 99);
    assert_eq!(disk.contents()[&log].len() as u64, length, "the lines before it go on");
}

#[test]
fn an_event_that_was_garbled_is_an_error_and_not_left_out() {
    let (disk, _) = written();
    let log = events_path(Some(session(1)));
    let bytes = disk.contents()[&log].clone();
    let second = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    disk.open(&log).unwrap().write_at(b"###", second as u64 + 20).unwrap();
    let garbled = sequence_in(&bytes[second..]);
    let span = [Span { session: Some(session(1)), first: 1, last: 99 }];
    let error = read_merged(&disk, &span, 1, 100).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    assert!(error.to_string().contains(&format!("event {garbled} in {log}")), "{error}");
    assert!(read_merged(&disk, &span, garbled + 1, 100).is_ok(), "the others are read");
}

/// The number of the event in the first line.
fn sequence_in(line: &[u8]) -> u64 {
    let digits = line[br#"{"seq":"#.len()..].iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}

#[test]
fn a_gap_that_no_deleted_session_explains_is_refused() {
    let (disk, _) = written();
    let right = rebuild(&disk.fork(), None).unwrap().state;
    assert_eq!(right.seq(), 99);
    disk.remove_dir(&session_dir(session(2))).unwrap();
    assert!(matches!(rebuild(&disk, None), Err(Error::Damaged { .. })));
    assert_ne!(right, State::default());
}
