//! Room on the disk for what file tools write: they are no processes that could be watched and
//! ended, so they ask before.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::fstatvfs;

use super::{bytes, disk};
use crate::model::{LimitKind, Limits, WorkspaceId};
use crate::workspace::{Counted, NoRoom, Room, Taken, Want};

/// Between two counts of the files of a workspace that has room.
const PAUSE: Duration = Duration::from_secs(1);
/// A count takes no more than one part in so many of the time where there is room.
const COUNT_SHARE: u32 = 20;

/// Keeps what file tools write within the limits of workspaces, and out of the reserve.
#[derive(Debug)]
pub struct Rooms {
    /// Limits of workspaces that name none.
    defaults: Limits,
    /// Bytes that are not to be used up on a filesystem of a size.
    reserve: fn(u64) -> u64,
    tallies: Mutex<BTreeMap<WorkspaceId, Arc<Mutex<Tally>>>>,
}

/// What the files of a workspace take, as far as that is known.
#[derive(Debug, Default)]
struct Tally {
    /// The last count of them; none if they never were counted.
    counted: Option<Count>,
    /// Bytes that were found.
    found: u64,
    /// Bytes that tools took since.
    taken: u64,
    /// Those of which nobody knows yet whether they are written: a count may miss them.
    pending: u64,
}

/// When the files of a workspace were counted.
#[derive(Debug, Clone, Copy)]
struct Count {
    begun: Instant,
    ended: Instant,
}

/// Bytes that a tool is about to write.
#[derive(Debug)]
struct Pending {
    tally: Arc<Mutex<Tally>>,
    bytes: u64,
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.pending = tally.pending.saturating_sub(self.bytes);
    }
}

impl Tally {
    /// Whether the last count says little of what is there now.
    fn is_old(&self) -> bool {
        self.counted.is_none_or(|Count { begun, ended }| {
            ended.elapsed() >= PAUSE.max((ended - begun) * COUNT_SHARE)
        })
    }

    /// Whether what was there at an instant was counted, or what came later.
    fn is_since(&self, instant: Instant) -> bool {
        self.counted.is_some_and(|count| count.begun >= instant)
    }

    fn count(&mut self, root: &Path) {
        let begun = Instant::now();
        match disk::measure(root, &AtomicBool::new(false)) {
            Ok(usage) => (self.found, self.taken) = (usage.bytes, self.pending),
            Err(error) => {
                tracing::warn!(root = %root.display(), %error, "cannot count the files of a workspace");
            }
        }
        self.counted = Some(Count { begun, ended: Instant::now() });
    }

    fn has(&self, growth: u64, most: u64) -> bool {
        self.found.saturating_add(self.taken).saturating_add(growth) <= most
    }
}

impl Rooms {
    /// Rooms in workspaces that have these limits where they name none.
    pub fn new(defaults: Limits) -> Self {
        Self::with_reserve(defaults, disk::reserve)
    }

    pub(super) fn with_reserve(defaults: Limits, reserve: fn(u64) -> u64) -> Self {
        Self { defaults, reserve, tallies: Mutex::default() }
    }

    /// Where a workspace is tallied.
    fn tally(&self, workspace: WorkspaceId) -> Arc<Mutex<Tally>> {
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        // One that nobody uses and that is to be counted anew says nothing.
        tallies.retain(|_, tally| {
            let tells = |tally: &Mutex<Tally>| tally.lock().is_ok_and(|tally| !tally.is_old());
            Arc::strong_count(tally) > 1 || tells(tally)
        });
        tallies.entry(workspace).or_default().clone()
    }

    /// Room on the filesystem.
    fn on_disk(&self, want: &Want<'_>) -> Result<(), NoRoom> {
        // A filesystem that does not tell is not asked further; writing says what it does.
        let Ok(stat) = fstatvfs(want.folder) else { return Ok(()) };
        // In memory, some have no size.
        if stat.f_blocks == 0 {
            return Ok(());
        }
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        let reserve = (self.reserve)(stat.f_blocks.saturating_mul(stat.f_frsize));
        if free >= reserve.saturating_add(want.growth) {
            return Ok(());
        }
        let (free, reserve) = (bytes(free), bytes(reserve));
        let detail = format!("{free} are free on the disk, of which {reserve} are kept");
        Err(NoRoom { kind: LimitKind::Disk, detail })
    }

    /// Room in a workspace, which is taken.
    fn in_workspace(&self, want: &Want<'_>, counted: &Counted) -> Result<Taken, NoRoom> {
        let Some(most) = counted.limits.or(self.defaults).disk else { return Ok(Box::new(())) };
        let (root, asked) = (&counted.root, Instant::now());
        let shared = self.tally(counted.workspace);
        let mut tally = shared.lock().unwrap_or_else(PoisonError::into_inner);
        if tally.is_old() {
            tally.count(root);
        }
        // Who has removed files before it asked is not refused for them. Those that waited for a
        // count by another, and asked before it, share it.
        if !tally.has(want.growth, most) && !tally.is_since(asked) {
            tally.count(root);
        }
        if !tally.has(want.growth, most) {
            let taken = bytes(tally.found.saturating_add(tally.taken));
            let (more, most) = (bytes(want.growth), bytes(most));
            let detail = format!(
                "the files take {taken}, and {more} more were to be written; {most} are allowed"
            );
            return Err(NoRoom { kind: LimitKind::Disk, detail });
        }
        tally.taken = tally.taken.saturating_add(want.growth);
        tally.pending = tally.pending.saturating_add(want.growth);
        drop(tally);
        Ok(Box::new(Pending { tally: shared, bytes: want.growth }))
    }
}

impl Room for Rooms {
    fn take(&self, want: &Want<'_>) -> Result<Taken, NoRoom> {
        let limits = want.world.limits.or(self.defaults);
        if let Some(most) = limits.file_size.filter(|most| want.size > *most) {
            let (size, most) = (bytes(want.size), bytes(most));
            let detail = format!("the file would have {size}; {most} are allowed");
            return Err(NoRoom { kind: LimitKind::FileSize, detail });
        }
        // What takes no more than before makes room, if anything.
        if want.growth == 0 {
            return Ok(Box::new(()));
        }
        self.on_disk(want)?;
        match &want.counted {
            Some(counted) => self.in_workspace(want, counted),
            None => Ok(Box::new(())),
        }
    }
}
