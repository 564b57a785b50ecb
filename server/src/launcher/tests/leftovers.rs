use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::super::leftovers::{Records, Whose, end_below, start_time};
use crate::model::{Leftover, SessionId};

const WHOSE: Whose = Whose { session: Some(SessionId::from_u128(7)), workspace: None };

/// A process that ends when its input does, and its number.
fn victim() -> (Child, Pid) {
    let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    (child, pid)
}

/// A record of a process as a daemon that was killed leaves it.
fn left(records: &Records, pid: Pid) {
    std::mem::forget(records.add(pid, WHOSE).unwrap());
}

#[test]
fn a_record_that_does_not_fit_on_the_disk_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("processes");
    let records = Records::new(path.clone()).unwrap();
    let (mut child, pid) = victim();
    let name = format!("{}-{}", pid.as_raw_nonzero(), start_time(pid).unwrap());
    std::os::unix::fs::symlink("/dev/full", path.join(name)).unwrap();
    let refused = records.add(pid, WHOSE).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn a_process_that_was_left_is_ended_with_its_descendants() {
    let folder = tempfile::tempdir().unwrap();
    let records = Records::new(folder.path().join("processes")).unwrap();
    let script = "sleep 1000 & sleep 1000 & echo ready; wait";
    let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    std::io::Read::read_exact(&mut output, &mut [0; 6]).unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    left(&records, pid);
    let left = |ended| Leftover {
        pid: pid.as_raw_nonzero().get().unsigned_abs(),
        session: WHOSE.session,
        workspace: None,
        ended,
    };
    assert_eq!(records.end_all().unwrap(), [left(true)]);
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    // Each of them holds it open.
    assert_eq!(std::io::Read::read_to_end(&mut output, &mut Vec::new()).unwrap(), 0);
    // It is told until that is forgotten.
    assert_eq!(records.end_all().unwrap(), [left(false)]);
    records.forget_all().unwrap();
    assert_eq!(records.end_all().unwrap(), []);
}

#[test]
fn another_process_of_the_same_number_is_let_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("processes");
    let records = Records::new(path.clone()).unwrap();
    let (mut child, pid) = victim();
    left(&records, pid);
    let record = fs::read_dir(&path).unwrap().next().unwrap().unwrap().path();
    let boot = fs::read(&record).unwrap();
    fs::remove_file(&record).unwrap();
    // It started at another time; in another run of the machine; names that say nothing.
    let name = record.file_name().unwrap().to_str().unwrap();
    let (number, started) = name.split_once('-').unwrap();
    let started: u64 = started.parse().unwrap();
    fs::write(path.join(format!("{number}-{}", started - 1)), &boot).unwrap();
    fs::write(path.join(name), "another run").unwrap();
    for odd in ["-1-1", "0-0", "x-y", "99999999999-1"] {
        fs::write(path.join(odd), &boot).unwrap();
    }
    assert!(records.end_all().unwrap().iter().all(|left| !left.ended));
    records.forget_all().unwrap();
    assert!(child.try_wait().unwrap().is_none());
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_process_that_ended_by_itself_leaves_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("processes");
    let records = Records::new(path.clone()).unwrap();
    let (mut child, pid) = victim();
    let record = records.add(pid, WHOSE).unwrap();
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
    drop(record);
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn what_does_not_end_is_waited_for_with_pauses_and_then_named() {
    let (mut child, pid) = victim();
    let (looks, begun) = (std::cell::Cell::new(0), Instant::now());
    let find = || {
        looks.set(looks.get() + 1);
        vec![pid]
    };
    // As one that the kernel holds: it was killed, and is there.
    let left = end_below(find, |_| true, Duration::from_millis(200));
    assert_eq!(left, [pid]);
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert!(looks.get() <= 20, "looked {} times", looks.get());
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(end_below(|| vec![pid], |_| false, Duration::from_secs(5)), []);
}
