//! Which processes run: a file for each, so that a daemon that starts after a kill finds and ends
//! what the one before left.
//!
//! A process is named by its number, the clock tick in which it started, and the run of the
//! machine, so that no other one is taken for it. The record says whose it is, so that its end is
//! told to whom it concerns.
#![allow(clippy::disallowed_methods, reason = "files for a run of the machine, not of the journal")]

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::model::{Leftover, SessionId, WorkspaceId};

/// How long the end of a leftover is waited for, in seconds.
const PATIENCE: i64 = 5;
/// Longest wait between two looks at what is to end.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Whose a process is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Whose {
    /// The session that it belongs to; none for a command of a user.
    pub(super) session: Option<SessionId>,
    /// The workspace that it is in.
    pub(super) workspace: Option<WorkspaceId>,
}

/// Where the records are.
#[derive(Debug, Clone)]
pub(super) struct Records {
    folder: PathBuf,
}

/// Says that a process runs, until it is dropped.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
}

impl Drop for Record {
    fn drop(&mut self) {
        // A record that stays names a process that is not there.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Records {
    /// Records in a folder, which is made if it is not there.
    pub(super) fn new(folder: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    /// Records a process.
    pub(super) fn add(&self, pid: Pid, whose: Whose) -> io::Result<Record> {
        let started = start_time(pid)?;
        let path = self.folder.join(format!("{}-{started}", pid.as_raw_nonzero()));
        // Made before it is written: what could not be written whole is removed.
        let record = Record { path };
        let text = format!("{}\n{}", boot_id(), serde_json::to_string(&whose)?);
        std::fs::write(&record.path, text)?;
        Ok(record)
    }

    /// Ends what is recorded and still runs. Returns all that is recorded.
    pub(super) fn end_all(&self) -> io::Result<Vec<Leftover>> {
        let boot = boot_id();
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let Some((pid, started)) = named(&path) else { continue };
            // One that cannot be read says nothing that could be trusted.
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let (run, whose) = text.split_once('\n').unwrap_or((&text, ""));
            let Whose { session, workspace } = serde_json::from_str(whose).unwrap_or_default();
            let is_there = run == boot && start_time(pid).is_ok_and(|now| now == started);
            let ended = is_there && !is_zombie(pid);
            if is_there {
                end_tree(pid);
            }
            let pid = pid.as_raw_nonzero().get().unsigned_abs();
            found.push(Leftover { pid, session, workspace, ended });
        }
        Ok(found)
    }

    /// Removes all records.
    pub(super) fn forget_all(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.folder)? {
            std::fs::remove_file(entry?.path())?;
        }
        Ok(())
    }
}

/// The process that a record names, and when it started.
fn named(path: &Path) -> Option<(Pid, u64)> {
    let (pid, started) = path.file_name()?.to_str()?.split_once('-')?;
    Some((Pid::from_raw(pid.parse().ok()?)?, started.parse().ok()?))
}

/// Ends a process with all that descend from it: first the ones below, so that none is adopted by
/// another before it is found.
fn end_tree(pid: Pid) {
    // Each of these can only fail for one that has ended.
    let Ok(open) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    let _ = kill_process(pid, Signal::STOP);
    let end = |below: Pid| kill_process(below, Signal::KILL).is_ok() && !is_zombie(below);
    let left = end_below(|| descendants(pid), end, Duration::from_secs(PATIENCE.unsigned_abs()));
    if !left.is_empty() {
        let pids: Vec<i32> = left.iter().map(|left| left.as_raw_nonzero().get()).collect();
        tracing::warn!(?pids, "processes that a daemon left were killed and do not end");
    }
    let _ = kill_process(pid, Signal::KILL);
    wait_for(&open);
}

/// Ends what is found, again and again until nothing is, or time is up. `end` says whether one is
/// still there. Returns who was left.
pub(super) fn end_below(
    find: impl Fn() -> Vec<Pid>,
    end: impl Fn(Pid) -> bool,
    patience: Duration,
) -> Vec<Pid> {
    let begun = Instant::now();
    loop {
        let left: Vec<Pid> = find().into_iter().filter(|below| end(*below)).collect();
        let Some(first) = left.first() else { return left };
        if begun.elapsed() >= patience {
            return left;
        }
        // One that is not there any more needs no waiting for.
        if let Ok(first) = pidfd_open(*first, PidfdFlags::empty()) {
            let _ = poll(&mut [PollFd::new(&first, PollFlags::IN)], Some(&PAUSE));
        }
    }
}

/// Waits for the end of a process, for a while.
pub(super) fn wait_for(process: &OwnedFd) {
    let mut end = [PollFd::new(process, PollFlags::IN)];
    let patience = Timespec { tv_sec: PATIENCE, tv_nsec: 0 };
    // Who does not end in this time is in the hands of the kernel.
    let _ = poll(&mut end, Some(&patience));
}

fn descendants(pid: Pid) -> Vec<Pid> {
    let children = |pid| children(pid).unwrap_or_default();
    let mut found = children(pid);
    let mut next = 0;
    while let Some(child) = found.get(next).copied() {
        found.extend(children(child));
        next += 1;
    }
    found
}

/// The children of all threads of a process. One can be missing while another is waited for.
///
/// # Errors
///
/// What the system said, but for threads that have ended.
pub(super) fn children(pid: Pid) -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()))? {
        let text = match std::fs::read_to_string(thread?.path().join("children")) {
            Err(error) if is_gone(&error) => continue,
            text => text?,
        };
        let numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
        found.extend(numbers.filter_map(Pid::from_raw));
    }
    Ok(found)
}

/// Whether an error says that a process, or a thread, is not there any more.
pub(super) fn is_gone(error: &io::Error) -> bool {
    let has_ended = error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error());
    has_ended || error.kind() == io::ErrorKind::NotFound
}

/// The fields of a process's `stat` after its name, from its state on.
fn stat(pid: Pid) -> io::Result<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
    // The name may hold anything, brackets too.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    Ok(rest.split_whitespace().map(str::to_owned).collect())
}

pub(super) fn is_zombie(pid: Pid) -> bool {
    stat(pid).map_or(true, |fields| fields.first().is_none_or(|state| state == "Z"))
}

/// When a process started, in clock ticks since the machine did.
pub(super) fn start_time(pid: Pid) -> io::Result<u64> {
    let fields = stat(pid)?;
    let field = fields.get(19).and_then(|field| field.parse().ok());
    field.ok_or_else(|| io::Error::other("its start time cannot be read"))
}

/// What tells one run of the machine from the next; empty where the system does not say.
pub fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map(|id| id.trim().to_owned()).unwrap_or_default()
}
