//! Groups of processes that the kernel bounds, counts and ends as one.
//!
//! ```text
//! the daemon's own cgroup
//! └── substrat-<home>        of one daemon; swept when the next one starts on the home
//!     └── <workspace>        has the limits, which all launches share
//!         └── <launch>       is ended and counted as one
//! ```
//!
//! In version 1 there is such a tree in the hierarchy of each controller.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sha2::{Digest, Sha256};

use super::cgroup_v2::PROCS;
use super::machine::Machine;
use super::{Controller, Hit, bytes, cgroup_v1, cgroup_v2, files, processes};
use crate::model::{LimitKind, Limits, WorkspaceId};

/// The stretch of time in which processor time is dealt out, in microseconds.
pub(super) const PERIOD_MICROS: u64 = 100_000;

/// Least processor time in a period that the kernel takes, in microseconds.
const MIN_QUOTA_MICROS: u64 = 1_000;

/// How often a group is looked through for processes to end. Each time finds those that were
/// started since, and they can start none once they are told.
const KILL_ROUNDS: u32 = 100;

/// Processes that are held open at once while they are ended.
const AT_ONCE: usize = 64;

/// How long leftovers are waited for.
const SWEEP: Duration = Duration::from_secs(10);

/// Version of the kernel's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy for each controller.
    V1,
    /// One hierarchy.
    V2,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "cgroup v1",
            Self::V2 => "cgroup v2",
        })
    }
}

/// The cgroups of this daemon. Clones are the same.
#[derive(Debug, Clone)]
pub enum Cgroups {
    /// There are groups that the daemon may make.
    Usable(Arc<Tree>),
    /// There are none, for this reason.
    Absent(String),
}

/// The daemon's own groups, removed with it where they are empty.
#[derive(Debug)]
pub struct Tree {
    pub(super) version: Version,
    pub(super) hierarchies: Vec<Hierarchy>,
    /// Groups whose processes were ended but are not gone. Held while groups are made or removed.
    buried: Mutex<Vec<PathBuf>>,
}

/// The daemon's own group in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    pub(super) base: PathBuf,
    pub(super) controllers: BTreeSet<Controller>,
}

/// A value for a file of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) file: &'static str,
    pub(super) value: String,
    /// What it means if the kernel does not have the file.
    pub(super) absent: Absent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    Fails,
    IsFine,
}

impl Setting {
    pub(super) fn required(file: &'static str, value: impl Into<String>) -> Self {
        Self { file, value: value.into(), absent: Absent::Fails }
    }

    pub(super) fn optional(file: &'static str, value: impl Into<String>) -> Self {
        Self { file, value: value.into(), absent: Absent::IsFine }
    }
}

/// What the kernel counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    /// Processes ended for want of memory.
    pub(super) oom_kills: u64,
    /// Processes and threads that could not be started.
    pub(super) refused: u64,
}

/// Microseconds of processor time in a period.
pub(super) fn quota_micros(cpu_millis: u32) -> u64 {
    (u64::from(cpu_millis) * PERIOD_MICROS / 1000).max(MIN_QUOTA_MICROS)
}

/// The number after a key at the start of a line; zero where there is none.
pub(super) fn count(text: &str, key: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let found = lines.find(|(name, _)| *name == key);
    found.and_then(|(_, value)| value.trim().parse().ok()).unwrap_or_default()
}

/// What a sweep found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    /// Processes that were ended.
    pub ended: usize,
    /// Those that are still there.
    pub left: Vec<u32>,
}

impl Cgroups {
    /// Finds groups that the daemon on this home may make, and makes its own. In version 2 the
    /// daemon moves into a leaf of its group for this.
    pub fn detect(home: &Path) -> Self {
        Self::on(&Machine::this(), home)
    }

    pub(super) fn on(machine: &Machine, home: &Path) -> Self {
        let name = name_of(home);
        let usable = |version, hierarchies| {
            Self::Usable(Arc::new(Tree { version, hierarchies, buried: Mutex::default() }))
        };
        match cgroup_v2::set_up(machine, &name) {
            Ok(hierarchy) => usable(Version::V2, vec![hierarchy]),
            Err(unified) => match cgroup_v1::set_up(machine, &name) {
                Ok(hierarchies) => usable(Version::V1, hierarchies),
                Err(separate) if separate.is_empty() => Self::Absent(unified),
                Err(separate) => Self::Absent(format!("{unified}; {separate}")),
            },
        }
    }

    /// Groups that no controller bounds, in a folder that is there.
    #[cfg(test)]
    pub(super) fn bare(version: Version, base: PathBuf) -> Self {
        let hierarchies = vec![Hierarchy { base, controllers: BTreeSet::new() }];
        Self::Usable(Arc::new(Tree { version, hierarchies, buried: Mutex::default() }))
    }

    /// Which controllers bound the groups, by which version.
    pub fn controllers(&self) -> Option<(Version, BTreeSet<Controller>)> {
        let Self::Usable(tree) = self else {
            return None;
        };
        let all = tree.hierarchies.iter().flat_map(|hierarchy| &hierarchy.controllers);
        Some((tree.version, all.copied().collect()))
    }

    /// A new group for a launch in a workspace, whose limits are set to these; none where there
    /// are no groups. `launch` names it: letters, digits, `-` and `_`, never used before.
    pub fn enter(
        &self,
        workspace: WorkspaceId,
        launch: &str,
        limits: &Limits,
    ) -> io::Result<Option<Group>> {
        let Self::Usable(tree) = self else {
            return Ok(None);
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if launch.is_empty() || !launch.chars().all(plain) {
            let text = format!("{launch:?} is no name of a group");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut group = Group::unmade(tree.clone(), &workspace.to_string());
        let made = {
            let mut buried = tree.lock();
            bury(&mut buried, Vec::new());
            group.make(launch, limits)
        };
        // If it could not be made, what there is of it is removed here.
        made.map(|()| Some(group))
    }

    /// Sets new limits on the launches of a workspace that run. Version 1 refuses less memory
    /// than is held; version 2 ends processes for it.
    pub fn update(&self, workspace: WorkspaceId, limits: &Limits) -> io::Result<()> {
        let Self::Usable(tree) = self else {
            return Ok(());
        };
        let _groups = tree.lock();
        for hierarchy in &tree.hierarchies {
            let dir = hierarchy.base.join(workspace.to_string());
            if dir.is_dir() {
                tree.set(&dir, hierarchy, limits)?;
            }
        }
        Ok(())
    }

    /// Ends and removes what an earlier daemon on this home left, and waits until it is gone.
    /// Call it before the first launch.
    pub async fn sweep(&self) -> io::Result<Swept> {
        let Self::Usable(tree) = self else {
            return Ok(Swept::default());
        };
        let left = |tree: &Tree| -> Vec<PathBuf> {
            tree.hierarchies.iter().flat_map(|hierarchy| files::folders(&hierarchy.base)).collect()
        };
        let workspaces = left(tree);
        let ended = members(&workspaces).len();
        kill(tree.version, &workspaces)?;
        // Who does not end in time is told of.
        let _ = tokio::time::timeout(SWEEP, emptied(&workspaces)).await;
        let mut buried = tree.lock();
        bury(&mut buried, workspaces.iter().flat_map(|dir| files::tree(dir)).collect());
        Ok(Swept { ended, left: members(&workspaces).into_iter().collect() })
    }
}

/// The name of the groups of the daemon on a home.
fn name_of(home: &Path) -> String {
    let digest = Sha256::digest(home.as_os_str().as_encoded_bytes());
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("substrat-{hex}")
}

impl Tree {
    fn lock(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.buried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, dir: &Path, hierarchy: &Hierarchy, limits: &Limits) -> io::Result<()> {
        let settings = match self.version {
            Version::V1 => cgroup_v1::settings(&hierarchy.controllers, limits),
            Version::V2 => cgroup_v2::settings(&hierarchy.controllers, limits),
        };
        for Setting { file, value, absent } in settings {
            match files::write(&dir.join(file), &value) {
                Err(error) if absent == Absent::Fails => return Err(error),
                _ => (),
            }
        }
        Ok(())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        bury(&mut self.lock(), Vec::new());
        for hierarchy in &self.hierarchies {
            files::remove_dir(&hierarchy.base);
        }
    }
}

/// The group of one launch. Dropped, it ends what is in it and is removed: at once if it is
/// empty, with the next group that comes or goes if not.
#[derive(Debug)]
pub struct Group {
    tree: Arc<Tree>,
    /// The workspace's folders, one in each hierarchy.
    above: Vec<PathBuf>,
    /// Its own.
    launch: Vec<PathBuf>,
    before: Counts,
    /// What was counted when it was told to end: from then on every fork is refused.
    at_kill: OnceLock<Counts>,
}

impl Group {
    fn unmade(tree: Arc<Tree>, workspace: &str) -> Self {
        let above = tree.hierarchies.iter().map(|hierarchy| hierarchy.base.join(workspace));
        Self {
            above: above.collect(),
            launch: Vec::new(),
            before: Counts::default(),
            at_kill: OnceLock::new(),
            tree,
        }
    }

    fn make(&mut self, launch: &str, limits: &Limits) -> io::Result<()> {
        for (hierarchy, dir) in self.tree.hierarchies.iter().zip(&self.above) {
            files::make_dir(dir)?;
            self.tree.set(dir, hierarchy, limits)?;
            if self.tree.version == Version::V2 {
                cgroup_v2::hand_down(dir, &hierarchy.controllers)?;
            }
            let own = dir.join(launch);
            files::make_new_dir(&own)?;
            self.launch.push(own);
        }
        self.before = self.counts();
        Ok(())
    }

    /// Puts a process in, with all that it starts from now on. What it started before stays out.
    pub fn add(&self, pid: u32) -> io::Result<()> {
        self.entrances().try_for_each(|file| files::write(&file, &pid.to_string()))
    }

    /// Whether a process is in, in every hierarchy.
    pub fn is_in(&self, pid: u32) -> bool {
        let listed = |dir: &PathBuf| {
            let text = files::text(&dir.join(PROCS));
            text.lines().any(|line| line.trim().parse() == Ok(pid))
        };
        self.launch.iter().all(listed)
    }

    /// Files into each of which a process writes `0` to enter the group itself.
    pub fn entrances(&self) -> impl Iterator<Item = PathBuf> {
        self.launch.iter().map(|dir| dir.join(PROCS))
    }

    /// The processes in it, those in groups below included.
    pub fn members(&self) -> BTreeSet<u32> {
        members(&self.launch)
    }

    /// Ends all that is in it; nothing in it can start a process any more. Does not wait.
    pub fn kill(&self) -> io::Result<()> {
        self.at_kill.get_or_init(|| self.counts());
        kill(self.tree.version, &self.launch)
    }

    /// Waits until it is empty.
    pub async fn emptied(&self) -> io::Result<()> {
        emptied(&self.launch).await
    }

    /// The limits that were hit since the launch, one hit for each kind. Refused forks are the
    /// workspace's in version 2 since Linux 6.11: all launches that ran then tell of them.
    pub fn hits(&self, limits: &Limits) -> Vec<Hit> {
        let mut now = self.counts();
        if let Some(at_kill) = self.at_kill.get() {
            now.refused = at_kill.refused;
        }
        let mut hits = Vec::new();
        if now.oom_kills > self.before.oom_kills {
            let detail = limits.memory.map_or_else(
                || "the kernel ended a process for want of memory".to_owned(),
                |most| format!("the kernel ended a process that wanted more than {}", bytes(most)),
            );
            hits.push(Hit { kind: LimitKind::Memory, ends: true, detail });
        }
        if now.refused > self.before.refused {
            let detail = limits.processes.map_or_else(
                || "the kernel refused to start a process".to_owned(),
                |most| format!("the kernel refused to start more than {most} processes"),
            );
            hits.push(Hit { kind: LimitKind::Processes, ends: false, detail });
        }
        hits
    }

    fn counts(&self) -> Counts {
        match self.tree.version {
            Version::V1 => cgroup_v1::counts(&self.launch),
            Version::V2 => cgroup_v2::counts(&self.above, &self.launch),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Nothing more can be done about an error here; the next sweep finds what stays.
        let _ = self.kill();
        let mut buried = self.tree.lock();
        let mut dirs: Vec<PathBuf> = self.launch.iter().flat_map(|dir| files::tree(dir)).collect();
        dirs.extend(self.above.iter().cloned());
        bury(&mut buried, dirs);
    }
}

/// Removes groups, and those that could not be removed before; keeps those whose processes are
/// not gone. A workspace's group stays as long as there are launches in it.
fn bury(buried: &mut Vec<PathBuf>, dirs: Vec<PathBuf>) {
    buried.extend(dirs);
    buried.sort();
    buried.dedup();
    // Deeper ones first.
    buried.reverse();
    buried.retain(|dir| !files::remove_dir(dir));
}

/// The processes in groups and those below them.
fn members(dirs: &[PathBuf]) -> BTreeSet<u32> {
    let trees = dirs.iter().flat_map(|dir| files::tree(dir));
    let listed = trees.flat_map(|dir| {
        let text = files::text(&dir.join(PROCS));
        text.lines().filter_map(|line| line.trim().parse().ok()).collect::<Vec<u32>>()
    });
    // Zero stands for processes that this one cannot see.
    listed.filter(|pid| *pid != 0).collect()
}

/// Tells all processes in groups to end.
fn kill(version: Version, dirs: &[PathBuf]) -> io::Result<()> {
    // Since Linux 5.14 the kernel does it at once.
    if version == Version::V2 {
        let kill = |dir: &PathBuf| files::write(&dir.join("cgroup.kill"), "1");
        if dirs.iter().all(|dir| dir.join("cgroup.kill").exists() && kill(dir).is_ok()) {
            return Ok(());
        }
    }
    // Where processes are counted, none can be started from now on.
    for dir in dirs.iter().filter(|dir| dir.join("pids.max").exists()) {
        files::write(&dir.join("pids.max"), "0")?;
    }
    let mut told = BTreeMap::new();
    for _ in 0..KILL_ROUNDS {
        if kill_new(dirs, &mut told)? == 0 {
            return Ok(());
        }
    }
    Err(io::Error::other("processes are started faster than they are ended"))
}

/// Tells those to end that were not told yet, known by number and start; returns how many.
fn kill_new(dirs: &[PathBuf], told: &mut BTreeMap<u32, u64>) -> io::Result<usize> {
    let listed: Vec<u32> = members(dirs).into_iter().collect();
    let mut new = 0;
    for some in listed.chunks(AT_ONCE) {
        let mut open = Vec::new();
        for pid in some {
            let start = processes::start(*pid);
            if start.is_some() && told.get(pid) != start.as_ref() {
                open.extend(open_process(*pid)?.map(|process| (*pid, start, process)));
            }
        }
        // Between the list and the opening a number may have passed to a stranger, who is in no
        // later list; whoever is in it is a member, or was opened as one who has ended.
        let still = members(dirs);
        for (pid, start, process) in open.into_iter().filter(|(pid, ..)| still.contains(pid)) {
            match pidfd_send_signal(&process, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => told.extend(start.map(|at| (pid, at))),
                Err(error) => return Err(error.into()),
            };
            new += 1;
        }
    }
    Ok(new)
}

fn open_process(pid: u32) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Ok(None);
    };
    match pidfd_open(pid, PidfdFlags::NONBLOCK) {
        Ok(process) => Ok(Some(process)),
        // Gone, or a thread whose process is ended through its leader.
        Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Waits until groups are empty.
async fn emptied(dirs: &[PathBuf]) -> io::Result<()> {
    loop {
        let Some(pid) = members(dirs).pop_first() else {
            return Ok(());
        };
        if let Some(process) = open_process(pid)? {
            // If it is a stranger's by now, the group is empty sooner than the stranger ends.
            if members(dirs).contains(&pid) {
                tokio::task::spawn_blocking(move || ended_or_late(&process)).await??;
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until a process has ended, but not for long: the thread must be free when the daemon
/// stops.
fn ended_or_late(process: &OwnedFd) -> io::Result<()> {
    let most = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    // It can be read when the process has ended.
    match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&most)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
