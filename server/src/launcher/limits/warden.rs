//! What the kernel does not hold here is watched: memory and processes where no cgroup counts
//! them, the space of a workspace, and the reserve of its filesystem. What takes too much is
//! ended, and told.
//!
//! A warden is a task of one launch. All wardens look at processes together, and those of one
//! workspace count its files together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::cgroup::Group;
use super::disk::{self, MAX_DEPTH, Usage};
use super::means::{Holder, Means};
use super::processes::{self, Process, Scan};
use super::{Hit, bytes};
use crate::model::{LimitKind, Limits, WorkspaceId};

/// Between two looks at processes.
const LOOK: Duration = Duration::from_millis(100);

/// Between two looks at free space and at what the kernel counted; between two counts of files at
/// least.
const SLOW_LOOK: Duration = Duration::from_secs(1);

/// A count of files takes no more than one part in so many of the time.
const COUNT_SHARE: u32 = 20;

/// Counts of files at once. Each holds up to [`MAX_DEPTH`] folders open.
const COUNTS: usize = 2;

/// Bytes a second that a launch may write while the reserve is used: what it says at its end.
const TRICKLE: u64 = 1 << 20;

/// Makes wardens, and holds what they share. One for a daemon.
#[derive(Debug)]
pub struct Wardens {
    scan: Scan,
    counts: Semaphore,
    workspaces: Mutex<BTreeMap<WorkspaceId, Weak<Shared>>>,
    /// Bytes that are not to be used up on a filesystem of a size.
    reserve: fn(u64) -> u64,
}

/// What the wardens of one workspace share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// First processes of the launches that run.
    tops: Mutex<BTreeSet<u32>>,
    count: tokio::sync::Mutex<Count>,
}

/// The last count of files.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Count {
    /// How many there were.
    pub(super) number: u64,
    /// None if the last one failed.
    pub(super) usage: Option<Usage>,
    /// When the next one may begin.
    next: Option<Instant>,
}

/// A launch to watch.
pub struct Ward {
    /// The workspace, whose launches share their limits.
    pub workspace: WorkspaceId,
    /// Its root on the host, also where the launch sees a part of it: all of it is counted, since
    /// launches share one count.
    pub root: PathBuf,
    /// The first process of the launch; all others descend from it, for as long as it lives.
    pub top: u32,
    /// The limits of the workspace, which may change.
    pub limits: watch::Receiver<Limits>,
    /// What holds them.
    pub means: Means,
    /// The cgroup of the launch, if it has one: what the kernel counts there is told as well.
    pub group: Option<Arc<Group>>,
    /// Ends all processes of the launch at once. Called at most once, and must not block.
    pub kill: Box<dyn Fn() + Send + Sync>,
    /// Where to tell of limits that were hit, each kind once. A channel that holds 8 loses none.
    pub hits: mpsc::Sender<Hit>,
    /// Cancelled when the launch has ended.
    pub ended: CancellationToken,
}

/// The task that watches one launch.
pub struct Warden {
    wardens: Arc<Wardens>,
    shared: Arc<Shared>,
    told: Mutex<BTreeSet<LimitKind>>,
    ward: Ward,
}

impl Default for Wardens {
    fn default() -> Self {
        Self::with_reserve(disk::reserve)
    }
}

impl Wardens {
    pub(super) fn with_reserve(reserve: fn(u64) -> u64) -> Self {
        Self {
            scan: Scan::default(),
            counts: Semaphore::new(COUNTS),
            workspaces: Mutex::default(),
            reserve,
        }
    }

    /// A warden for a launch: from now on it counts among those of its workspace.
    pub fn watch(self: &Arc<Self>, ward: Ward) -> Warden {
        let shared = {
            let mut workspaces = lock(&self.workspaces);
            workspaces.retain(|_, shared| shared.strong_count() > 0);
            let known = workspaces.get(&ward.workspace).and_then(Weak::upgrade);
            let shared = known.unwrap_or_default();
            workspaces.insert(ward.workspace, Arc::downgrade(&shared));
            shared
        };
        lock(&shared.tops).insert(ward.top);
        Warden { wardens: self.clone(), shared, told: Mutex::default(), ward }
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        lock(&self.shared.tops).remove(&self.ward.top);
    }
}

impl Warden {
    /// Watches until the launch has ended, or had to be ended. Cancel it by the token of the ward:
    /// dropped, it tells nothing of what the kernel counted last.
    pub async fn run(self) {
        let hit = tokio::select! {
            biased;
            () = self.ward.ended.cancelled() => None,
            hit = self.watch_processes() => Some(hit),
            hit = self.watch_files() => Some(hit),
            hit = self.watch_space() => Some(hit),
            () = self.watch_group() => None,
        };
        if let Some(hit) = hit {
            (self.ward.kill)();
            self.tell(hit);
            self.ward.ended.cancelled().await;
        }
        self.tell_of_group();
    }

    fn limits(&self) -> Limits {
        *self.ward.limits.borrow()
    }

    fn tell(&self, hit: Hit) {
        let kind = hit.kind;
        if lock(&self.told).insert(kind) && self.ward.hits.try_send(hit).is_err() {
            tracing::debug!(?kind, "nobody heard of a limit");
        }
    }

    fn tell_of_group(&self) {
        if let Some(group) = &self.ward.group {
            group.hits(&self.limits()).into_iter().for_each(|hit| self.tell(hit));
        }
    }

    /// Tells what the kernel counted. Never ends.
    async fn watch_group(&self) {
        let mut looks = every(SLOW_LOOK);
        loop {
            looks.tick().await;
            self.tell_of_group();
        }
    }

    /// Ends with a hit when processes hold too much, or are too many.
    async fn watch_processes(&self) -> Hit {
        let means = &self.ward.means;
        let mut looks = every(LOOK);
        loop {
            looks.tick().await;
            let limits = self.limits();
            let memory = limits.memory.filter(|_| means.memory() == Holder::Watch);
            let processes = limits.processes.filter(|_| means.processes() == Holder::Watch);
            if memory.is_none() && processes.is_none() {
                continue;
            }
            let trees = self.trees().await;
            if let Some(most) = processes
                && let Some(hit) = self.too_many(&trees, most)
            {
                return hit;
            }
            if let Some(most) = memory
                && let Some(hit) = self.too_much(trees, most).await
            {
                return hit;
            }
        }
    }

    /// The processes of all launches of the workspace; those of this one first.
    async fn trees(&self) -> Vec<Vec<Process>> {
        let snapshot = self.wardens.scan.snapshot().await;
        let own = self.ward.top;
        let mut tops = lock(&self.shared.tops).clone();
        tops.remove(&own);
        std::iter::once(own).chain(tops).map(|top| snapshot.tree(top)).collect()
    }

    fn too_many(&self, trees: &[Vec<Process>], most: u32) -> Option<Hit> {
        let counts = trees.iter().map(|tree| tree.iter().map(|process| process.threads).sum());
        let counts: Vec<u64> = counts.collect();
        is_to_end(&counts, u64::from(most)).then(|| Hit {
            kind: LimitKind::Processes,
            detail: format!(
                "{} processes and threads; {most} are allowed",
                counts.iter().sum::<u64>()
            ),
        })
    }

    async fn too_much(&self, trees: Vec<Vec<Process>>, most: u64) -> Option<Hit> {
        let resident = |tree: &Vec<Process>| -> u64 { tree.iter().map(|one| one.resident).sum() };
        // What is resident is cheap to see, and counts shared pages more than once.
        if trees.iter().map(resident).sum::<u64>() <= most {
            return None;
        }
        let exact = move || trees.iter().map(|tree| processes::held(tree)).collect();
        let held: Vec<u64> = tokio::task::spawn_blocking(exact).await.ok()?;
        is_to_end(&held, most).then(|| Hit {
            kind: LimitKind::Memory,
            detail: format!(
                "processes held {}; {} are allowed",
                bytes(held.iter().sum()),
                bytes(most)
            ),
        })
    }

    /// Ends with a hit when the workspace takes too much space, and grew during this launch.
    async fn watch_files(&self) -> Hit {
        let mut limits = self.ward.limits.clone();
        let mut seen = 0;
        // What was there before is not this launch's: it must be able to remove it.
        let mut at_start = None;
        loop {
            // What it returns holds a lock.
            let gone = limits.wait_for(|limits| limits.disk.is_some()).await.is_err();
            if gone && self.limits().disk.is_none() {
                // No limit, and nobody to set one any more.
                return std::future::pending().await;
            }
            let root = &self.ward.root;
            let count = self.shared.count_after(seen, root, &self.wardens.counts).await;
            seen = count.number;
            let (Some(usage), Some(most)) = (count.usage, self.limits().disk) else {
                continue;
            };
            if let Some(hit) = too_large(&usage, at_start.get_or_insert(usage), most) {
                return hit;
            }
        }
    }

    /// Ends with a hit when the reserve of the filesystem is used, and this launch uses it.
    async fn watch_space(&self) -> Hit {
        let mut looks = every(SLOW_LOOK);
        let mut before = None;
        loop {
            looks.tick().await;
            let root = self.ward.root.clone();
            let space = tokio::task::spawn_blocking(move || disk::space(&root)).await;
            let Ok(Ok(space)) = space else {
                continue;
            };
            let reserve = (self.wardens.reserve)(space.total);
            // What was written is looked at in time to know what was written since.
            if space.free >= reserve.saturating_mul(4) {
                before = None;
                continue;
            }
            let tree = self.wardens.scan.snapshot().await.tree(self.ward.top);
            let written = tokio::task::spawn_blocking(move || processes::written(&tree)).await;
            let Ok(written) = written else {
                continue;
            };
            let last = before.replace((space.free, written.clone()));
            let Some((free_before, written_before)) = last else {
                continue;
            };
            let wrote = disk::growth(&written_before, &written);
            if space.free < reserve && space.free < free_before && wrote >= TRICKLE {
                let (free, wrote, reserve) = (bytes(space.free), bytes(wrote), bytes(reserve));
                let detail = format!(
                    "{free} are free on the disk, of which {reserve} are kept, and {wrote} were \
                     written in a second"
                );
                return Hit { kind: LimitKind::Disk, detail };
            }
        }
    }
}

/// Whether the first of those that together take too much is the one to end: no other takes more.
pub(super) fn is_to_end(taken: &[u64], most: u64) -> bool {
    let largest = taken.iter().copied().max().unwrap_or_default();
    taken.iter().sum::<u64>() > most && taken.first() == Some(&largest)
}

/// Whether there is too much below a root, and more than there was.
pub(super) fn too_large(usage: &Usage, at_start: &Usage, most: u64) -> Option<Hit> {
    let detail = if usage.bytes > most.max(at_start.bytes) {
        format!("the files take {}; {} are allowed", bytes(usage.bytes), bytes(most))
    } else if usage.too_deep > at_start.too_deep {
        format!("folders lie in more than {MAX_DEPTH} others, where they are not counted")
    } else if usage.unreadable > at_start.unreadable {
        "folders may not be read, and are not counted".to_owned()
    } else {
        return None;
    };
    Some(Hit { kind: LimitKind::Disk, detail })
}

impl Shared {
    /// The first count after the one with this number. Who asks meanwhile gets the same.
    pub(super) async fn count_after(&self, seen: u64, root: &Path, counts: &Semaphore) -> Count {
        let mut last = self.count.lock().await;
        if last.number > seen {
            return *last;
        }
        if let Some(next) = last.next {
            tokio::time::sleep_until(next).await;
        }
        // It is never closed.
        let _turn = counts.acquire().await;
        let begun = Instant::now();
        let usage = count(root.to_owned()).await;
        let pause = SLOW_LOOK.max(begun.elapsed() * COUNT_SHARE);
        let next = Some(Instant::now() + pause);
        *last = Count { number: last.number + 1, usage, next };
        *last
    }
}

/// Counts files on a thread of its own, which stops when nobody waits any more.
async fn count(root: PathBuf) -> Option<Usage> {
    struct Stop(Arc<AtomicBool>);
    impl Drop for Stop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = Stop(Arc::default());
    let told = stop.0.clone();
    let shown = root.clone();
    let counted = tokio::task::spawn_blocking(move || disk::measure(&root, &told)).await;
    match counted {
        Ok(Ok(usage)) => Some(usage),
        Ok(Err(error)) => {
            tracing::warn!(root = %shown.display(), %error, "cannot count the files of a workspace");
            None
        }
        // The runtime ends.
        Err(_) => None,
    }
}

fn every(period: Duration) -> Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
