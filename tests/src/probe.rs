//! Looking at a daemon's process from outside.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::harness::Daemon;
use crate::watch::PATIENCE;

/// A figure of `/proc/PID/status`.
fn status(pid: u32, key: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("the figure");
    let figure = line.trim_start_matches(':').split_whitespace().next().expect("a number");
    figure.parse().expect("a number")
}

impl Daemon {
    fn proc(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.pid))
    }

    /// The sockets that are open. One of a client that went away may be among them for a
    /// moment, so that a count of them says little; which there are does.
    pub fn open_sockets(&self) -> BTreeSet<PathBuf> {
        let fds = std::fs::read_dir(self.proc("fd")).expect("the process runs");
        let targets = fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).collect()
    }

    /// How many sockets are open that were not.
    pub fn more_sockets(&self, before: &BTreeSet<PathBuf>) -> usize {
        self.open_sockets().difference(before).count()
    }

    /// Open file descriptors.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(self.proc("fd")).expect("the process runs").count()
    }

    /// Threads.
    pub fn threads(&self) -> u64 {
        status(self.pid, "Threads")
    }

    /// The most that was resident, in KiB.
    pub fn peak_kib(&self) -> u64 {
        status(self.pid, "VmHWM")
    }

    /// Resident memory in KiB.
    pub fn resident_kib(&self) -> u64 {
        status(self.pid, "VmRSS")
    }
}

/// Looks again and again until something outside holds, for what sends no word.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what} does not come true");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// How many processes there are whose command line begins so; NUL ends each of its words.
pub fn processes(begin: &str) -> usize {
    let all = std::fs::read_dir("/proc").expect("the system has /proc");
    let lines = all.filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with(begin.as_bytes())).count()
}
