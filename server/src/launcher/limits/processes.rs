//! Processes as `/proc` shows them: whose child each is, and what it holds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::files;

/// How old a look at all processes may be that is looked at again.
const FRESH: Duration = Duration::from_millis(90);

/// To look takes no more than one part in so many of the time.
const LOOK_SHARE: u32 = 10;

/// One process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) threads: u64,
    /// When it started, in ticks since the machine did: with its number, its identity.
    pub(super) start: u64,
    /// Bytes that it has mapped, whether they are in memory or not.
    pub(super) size: u64,
    /// Bytes of it that are in memory, those included that it shares.
    pub(super) resident: u64,
}

/// Reads a `/proc/PID/stat` (proc_pid_stat(5)). Its second field is in parentheses and may hold
/// anything, parentheses too.
pub(super) fn parse(stat: &[u8], page: u64) -> Option<Process> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let pid = stat.split(|byte| *byte == b' ').next()?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The first of them is the third of all.
    let number = |field: usize| -> Option<u64> { fields.get(field - 3)?.parse().ok() };
    let pages: i64 = fields.get(24 - 3)?.parse().ok()?;
    Some(Process {
        pid: std::str::from_utf8(pid).ok()?.parse().ok()?,
        parent: u32::try_from(number(4)?).ok()?,
        threads: number(20)?,
        start: number(22)?,
        size: number(23)?,
        resident: u64::try_from(pages).unwrap_or_default().saturating_mul(page),
    })
}

pub(super) fn read(pid: u32) -> Option<Process> {
    let stat = files::read(Path::new(&format!("/proc/{pid}/stat"))).ok()?;
    parse(&stat, rustix::param::page_size() as u64)
}

/// When a process started; none if there is no such process.
pub(super) fn start(pid: u32) -> Option<u64> {
    read(pid).map(|process| process.start)
}

/// All processes at one time, by their parents.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    children: BTreeMap<u32, Vec<Process>>,
    all: BTreeMap<u32, Process>,
}

impl Snapshot {
    pub(super) fn new(processes: impl IntoIterator<Item = Process>) -> Self {
        let mut snapshot = Self::default();
        for process in processes {
            snapshot.children.entry(process.parent).or_default().push(process);
            snapshot.all.insert(process.pid, process);
        }
        snapshot
    }

    fn take() -> Self {
        let folders = files::folders(Path::new("/proc"));
        let number = |path: PathBuf| path.file_name()?.to_str()?.parse().ok();
        Self::new(folders.into_iter().filter_map(number).filter_map(read))
    }

    /// A process and all that descend from it.
    pub(super) fn tree(&self, top: u32) -> Vec<Process> {
        let mut found: Vec<Process> = self.all.get(&top).copied().into_iter().collect();
        let mut seen: BTreeSet<u32> = found.iter().map(|process| process.pid).collect();
        let mut next = 0;
        while let Some(process) = found.get(next) {
            let children = self.children.get(&process.pid).into_iter().flatten();
            // Numbers that passed on while the snapshot was taken could close a circle.
            found.extend(children.filter(|child| seen.insert(child.pid)));
            next += 1;
        }
        found
    }
}

/// Looks at all processes, once for all who ask at about the same time.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The last look, and until when it will do.
    last: Mutex<Option<(Instant, Arc<Snapshot>)>>,
}

impl Scan {
    pub(super) async fn snapshot(&self) -> Arc<Snapshot> {
        let mut last = self.last.lock().await;
        let begun = Instant::now();
        if let Some((until, snapshot)) = &*last
            && begun < *until
        {
            return snapshot.clone();
        }
        let taken = tokio::task::spawn_blocking(Snapshot::take).await;
        // A look that failed shows nobody; the next one will.
        let snapshot = Arc::new(taken.unwrap_or_default());
        let until = begun + FRESH.max(begun.elapsed() * LOOK_SHARE);
        *last = Some((until, snapshot.clone()));
        snapshot
    }
}

/// Bytes of memory that processes hold together, each page counted once: shares of shared pages
/// where the kernel tells them, or else what is resident.
pub(super) fn held(processes: &[Process]) -> u64 {
    let share = |process: &Process| {
        let path = format!("/proc/{}/smaps_rollup", process.pid);
        let share = files::read(Path::new(&path)).ok().and_then(|text| value(&text, "Pss:"));
        share.map_or(process.resident, |kib| kib * 1024)
    };
    processes.iter().map(share).sum()
}

/// Bytes of a process that count to its `RLIMIT_DATA`: what it alone can write, in memory or not.
pub(super) fn data(process: &Process) -> Option<u64> {
    let text = files::read(Path::new(&format!("/proc/{}/status", process.pid))).ok()?;
    value(&text, "VmData:").map(|kib| kib * 1024)
}

/// Bytes that processes wrote, by their identities.
pub(super) type Written = BTreeMap<(u32, u64), u64>;

/// Bytes that each process made to be written to a disk since it started; its children that ended
/// count to it.
pub(super) fn written(processes: &[Process]) -> Written {
    let written = processes.iter().filter_map(|process| {
        let text = files::read(Path::new(&format!("/proc/{}/io", process.pid))).ok()?;
        Some(((process.pid, process.start), value(&text, "write_bytes:")?))
    });
    written.collect()
}

/// The number after a name at the start of a line.
fn value(text: &[u8], name: &str) -> Option<u64> {
    let text = String::from_utf8_lossy(text);
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}
