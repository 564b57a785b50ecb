//! What the kernel does not hold here is watched: memory and processes where no cgroup counts
//! them, the space of a workspace, and the reserve of its filesystem. What takes too much is
//! ended, and told. What the kernel refuses without counting it is told by what processes have.
//!
//! A warden is a task of one launch. All wardens look at processes together, and those of one
//! workspace count its files together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::cgroup::Group;
use super::disk::{self, MAX_DEPTH, Usage};
use super::means::{Holder, Means};
use super::processes::{self, Process, Scan};
use super::refusing::Refusing;
use super::{Hit, bytes};
use crate::model::{LimitKind, Limits, WorkspaceId};

/// Between two looks at processes.
const LOOK: Duration = Duration::from_millis(100);

/// Between two looks at free space and at what the kernel counted; between two counts of files at
/// least.
const SLOW_LOOK: Duration = Duration::from_secs(1);

/// A count of files takes no more than one part in so many of the time.
const COUNT_SHARE: u32 = 20;

/// A count that takes longer is waited for by nobody.
const QUICK: Duration = Duration::from_millis(50);

/// A workspace that takes too much may be counted more often: what was removed is to be seen.
const FULL_SHARE: u32 = 4;

/// Workspaces of which is known what they take while nothing runs in them.
const KNOWN: usize = 4096;

/// Counts of files at once. Each holds up to [`MAX_DEPTH`] folders open.
const COUNTS: usize = 2;

/// Bytes a second that a launch may write while the reserve is used: what it says at its end.
const TRICKLE: u64 = 1 << 20;

/// Makes wardens, and holds what they share. One for a daemon.
#[derive(Debug)]
pub struct Wardens {
    scan: Scan,
    counts: Semaphore,
    workspaces: Mutex<BTreeMap<WorkspaceId, Arc<Shared>>>,
    /// Bytes that are not to be used up on a filesystem of a size.
    reserve: fn(u64) -> u64,
}

/// What the wardens of one workspace share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// First processes of the launches that run.
    tops: Mutex<BTreeSet<u32>>,
    /// The last count.
    count: Mutex<Count>,
    /// Held by who counts.
    counting: tokio::sync::Mutex<()>,
}

/// The last count of files.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Count {
    /// How many there were.
    pub(super) number: u64,
    /// None if the last one failed.
    pub(super) usage: Option<Usage>,
    /// When it ended, and how long it took.
    last: Option<(Instant, Duration)>,
}

impl Count {
    /// When the next one may begin that takes no more than one part in so many of the time.
    fn next(&self, share: u32) -> Option<Instant> {
        self.last.map(|(at, took)| at + took * share)
    }

    fn may_begin(&self, share: u32) -> bool {
        self.next(share).is_none_or(|next| next <= Instant::now())
    }
}

/// What a launch may write, as far as there is space.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes of the largest file that it may write, if there is a bound for lack of space.
    pub largest_file: Option<u64>,
    /// What is told of that at once.
    pub hit: Option<Hit>,
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
    /// A limit that was hit before it began.
    pub full: Option<Hit>,
    /// Whether it belongs to another workspace, and only writes here: its files are watched, and it
    /// is not one of those who share all limits.
    pub is_guest: bool,
    /// Where to tell of limits that were hit, each kind once, and once more when processes are
    /// ended for it. A channel that holds 8 loses none.
    pub hits: mpsc::Sender<Hit>,
    /// Cancelled when the launch has ended.
    pub ended: CancellationToken,
}

/// The task that watches one launch.
pub struct Warden {
    wardens: Arc<Wardens>,
    shared: Arc<Shared>,
    told: Mutex<Told>,
    /// What the kernel refuses, as the launch began.
    refusing: Refusing,
    /// What there was at the first count: that is not this launch's, and it must be able to remove
    /// it.
    at_start: Mutex<Option<Usage>>,
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

    /// What the wardens of a workspace share.
    pub(super) fn shared(&self, workspace: WorkspaceId) -> Arc<Shared> {
        let mut workspaces = lock(&self.workspaces);
        if workspaces.len() >= KNOWN {
            workspaces.retain(|_, shared| Arc::strong_count(shared) > 1);
        }
        workspaces.entry(workspace).or_default().clone()
    }

    /// A warden for a launch: from now on it counts among those of its workspace.
    pub fn watch(self: &Arc<Self>, ward: Ward) -> Warden {
        let shared = self.shared(ward.workspace);
        if !ward.is_guest {
            lock(&shared.tops).insert(ward.top);
        }
        let (told, at_start) = (Mutex::default(), Mutex::default());
        let refusing = Refusing::of(&ward.limits.borrow(), &ward.means);
        Warden { wardens: self.clone(), shared, told, refusing, at_start, ward }
    }

    /// What a launch may write that is about to begin. A workspace that takes too much lets it
    /// remove files, and write none: launches that end before they are looked at twice would fill
    /// the disk one after the other.
    pub async fn space(&self, workspace: WorkspaceId, root: &Path, limits: &Limits) -> Space {
        if let Some(most) = limits.disk {
            let shared = self.shared(workspace);
            let known = shared.known();
            let is_full = |count: &Count| count.usage.is_some_and(|usage| usage.bytes > most);
            let (quick, full) =
                (known.last.is_some_and(|(_, took)| took <= QUICK), is_full(&known));
            let now = match quick || full {
                // One that was never counted is not waited for.
                true => {
                    shared
                        .count_now(root, if full { FULL_SHARE } else { COUNT_SHARE }, &self.counts)
                        .await
                }
                false => known,
            };
            if let Some(usage) = now.usage.filter(|_| is_full(&now)) {
                let (taken, most) = (bytes(usage.bytes), bytes(most));
                let detail = format!(
                    "the files take {taken}; {most} are allowed: until some are removed, none can \
                     be written"
                );
                let hit = Some(Hit { kind: LimitKind::Disk, ends: false, detail });
                return Space { largest_file: Some(0), hit };
            }
        }
        let root = root.to_owned();
        match tokio::task::spawn_blocking(move || disk::space(&root)).await {
            Ok(Ok(space)) => self.near_reserve(space),
            // The warden is told the same, and says it.
            _ => Space::default(),
        }
    }

    /// Near the reserve one file does not use it up, and in it none takes much. Else there is no
    /// bound: it would be one on the size of files, not on what is added to them, and so on large
    /// ones that are there already, and on those of other filesystems that are linked.
    fn near_reserve(&self, space: disk::Space) -> Space {
        let reserve = (self.reserve)(space.total);
        if space.total == 0 || space.free >= reserve.saturating_mul(4) {
            return Space::default();
        }
        let Some(left) = space.free.checked_sub(reserve).filter(|left| *left > TRICKLE) else {
            let (free, kept) = (bytes(space.free), bytes(reserve));
            let detail = format!(
                "{free} are free on the disk, of which {kept} are kept: files can be written up to \
                 {}",
                bytes(TRICKLE)
            );
            let hit = Some(Hit { kind: LimitKind::Disk, ends: false, detail });
            return Space { largest_file: Some(TRICKLE), hit };
        };
        Space { largest_file: Some(left), hit: None }
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
        if let Some(hit) = &self.ward.full {
            self.tell(hit.clone());
        }
        let hit = tokio::select! {
            biased;
            () = self.ward.ended.cancelled() => None,
            hit = self.watch_files() => Some(hit),
            hit = self.watch_rest(), if !self.ward.is_guest => hit,
        };
        if let Some(hit) = hit {
            (self.ward.kill)();
            self.tell(hit);
            self.ward.ended.cancelled().await;
        }
        self.tell_of_group();
        self.tell_of_files().await;
    }

    /// Counts what a launch left that ended before it was looked at, and tells of it.
    async fn tell_of_files(&self) {
        let Some(most) = self.limits().disk else { return };
        let known = self.shared.known();
        if known.last.is_some_and(|(_, took)| took > QUICK) || !known.may_begin(COUNT_SHARE) {
            return;
        }
        let count = self.shared.count_now(&self.ward.root, COUNT_SHARE, &self.wardens.counts).await;
        let at_start = lock(&self.at_start).or(known.usage).unwrap_or_default();
        if let Some(hit) = count.usage.and_then(|usage| too_large(&usage, &at_start, most)) {
            // It ended by itself.
            self.tell(Hit { ends: false, ..hit });
        }
    }

    /// Watches all but files.
    async fn watch_rest(&self) -> Option<Hit> {
        tokio::select! {
            biased;
            hit = self.watch_processes() => Some(hit),
            hit = self.watch_space() => Some(hit),
            () = self.watch_group() => None,
        }
    }

    fn limits(&self) -> Limits {
        *self.ward.limits.borrow()
    }

    fn tell(&self, hit: Hit) {
        let kind = hit.kind;
        let is_news = lock(&self.told).take(&hit);
        if is_news && self.ward.hits.try_send(hit).is_err() {
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
            let refusing = self.refusing.except(|kind| lock(&self.told).has(kind));
            if memory.is_none() && processes.is_none() && refusing.is_empty() {
                continue;
            }
            let trees = self.trees().await;
            let own = trees.first().cloned().unwrap_or_default();
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
            self.tell_of_refusals(refusing, own).await;
        }
    }

    /// Tells who has all that the kernel lets it have.
    async fn tell_of_refusals(&self, refusing: Refusing, own: Vec<Process>) {
        if refusing.is_empty() {
            return;
        }
        let look = move || refusing.hits(&own, processes::data);
        // A look that failed shows nobody; the next one will.
        let hits = tokio::task::spawn_blocking(look).await.unwrap_or_default();
        hits.into_iter().for_each(|hit| self.tell(hit));
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
            ends: true,
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
            ends: true,
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
            let at_start = *lock(&self.at_start).get_or_insert(usage);
            if let Some(hit) = too_large(&usage, &at_start, most) {
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
                return Hit { kind: LimitKind::Disk, ends: true, detail };
            }
        }
    }
}

/// What was told of a launch.
#[derive(Debug, Default)]
pub(super) struct Told(BTreeSet<(LimitKind, bool)>);

impl Told {
    fn has(&self, kind: LimitKind) -> bool {
        [false, true].into_iter().any(|ends| self.0.contains(&(kind, ends)))
    }

    /// Whether a hit says more than was told: who was refused something may be ended later.
    pub(super) fn take(&mut self, hit: &Hit) -> bool {
        let ended = self.0.contains(&(hit.kind, true));
        !ended && (hit.ends || !self.has(hit.kind)) && self.0.insert((hit.kind, hit.ends))
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
    Some(Hit { kind: LimitKind::Disk, ends: true, detail })
}

impl Shared {
    fn known(&self) -> Count {
        *lock(&self.count)
    }

    /// The first count after the one with this number. Who asks meanwhile gets the same.
    pub(super) async fn count_after(&self, seen: u64, root: &Path, counts: &Semaphore) -> Count {
        let known = self.known();
        if known.number > seen {
            return known;
        }
        if let Some((at, took)) = known.last {
            tokio::time::sleep_until(at + SLOW_LOOK.max(took * COUNT_SHARE)).await;
        }
        let _counting = self.counting.lock().await;
        let known = self.known();
        if known.number > seen { known } else { self.renew(root, counts).await }
    }

    /// A count of now, or the last one if another may not begin yet or runs.
    async fn count_now(&self, root: &Path, share: u32, counts: &Semaphore) -> Count {
        match self.counting.try_lock() {
            Ok(_counting) if self.known().may_begin(share) => self.renew(root, counts).await,
            _ => self.known(),
        }
    }

    async fn renew(&self, root: &Path, counts: &Semaphore) -> Count {
        // It is never closed.
        let _turn = counts.acquire().await;
        let begun = Instant::now();
        let usage = count(root.to_owned()).await;
        let last = Some((Instant::now(), begun.elapsed()));
        let mut known = lock(&self.count);
        *known = Count { number: known.number + 1, usage, last };
        *known
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
