//! Holding launches to the limits of their workspaces.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, pidfd_send_signal};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::limits::{
    Cgroups, Group, Hit, Means, ProcessCount, Rlimits, Space, Ward, Wardens, in_force,
};
use super::{Error, HOME, Launch};
use crate::model::{Limits, Source, WorkspaceId, World};

/// Hits that may wait to be read: each kind is told once, and once more for an end.
const HITS: usize = 8;

/// What holds all launches of a daemon to their limits.
#[derive(Debug)]
pub(super) struct Bounds {
    cgroups: Cgroups,
    wardens: Arc<Wardens>,
    tasks: TaskTracker,
    /// Limits of workspaces that name none.
    defaults: Limits,
    /// Those of workspaces in which something runs.
    current: Mutex<BTreeMap<WorkspaceId, watch::Sender<Limits>>>,
}

/// The limits of a launch before it runs.
pub(super) struct Bound {
    pub(super) rlimits: Rlimits,
    group: Option<Arc<Group>>,
    limits: watch::Receiver<Limits>,
    means: Means,
    workspace: WorkspaceId,
    root: PathBuf,
    /// Other workspaces in which it writes: root and limits.
    shares: Vec<(WorkspaceId, PathBuf, Limits)>,
    /// A limit that is hit before it begins.
    full: Option<Hit>,
}

impl Bound {
    /// Puts what was just started into the group, beside what else there is to wait for: the
    /// kernel takes some milliseconds.
    pub(super) fn enter(&self, pid: Option<u32>) -> Entering {
        let (group, pid) = (self.group.clone(), pid);
        Entering(tokio::task::spawn_blocking(move || match (group, pid) {
            (Some(group), Some(pid)) => group.add(pid),
            _ => Ok(()),
        }))
    }

    /// Makes sure that the first process is in the group: it may have been started before.
    pub(super) async fn entered(&self, entering: Entering, init: Pid) -> Result<(), Error> {
        let step = "entering its control group";
        let entered = entering.0.await.map_err(io::Error::other).flatten();
        let Some(group) = &self.group else { return Ok(()) };
        let init = init.as_raw_nonzero().get().unsigned_abs();
        if entered.is_err() || !group.is_in(init) {
            group.add(init).map_err(Error::step(step))?;
        }
        Ok(())
    }
}

/// A process on its way into a group.
pub(super) struct Entering(tokio::task::JoinHandle<io::Result<()>>);

/// Watches a launch until this is dropped.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) hits: mpsc::Receiver<Hit>,
    limits: watch::Receiver<Limits>,
    /// Ends the warden.
    ended: Option<DropGuard>,
    _group: Option<Arc<Group>>,
}

impl Watched {
    /// Of a launch without limits.
    pub(super) fn nothing() -> Self {
        let (hits, limits) = (mpsc::channel(1).1, watch::channel(Limits::default()).1);
        Self { hits, limits, ended: None, _group: None }
    }

    /// The limits that it is held to now.
    pub(super) fn limits(&self) -> Limits {
        *self.limits.borrow()
    }

    /// Has the warden look a last time. The hits end after that.
    pub(super) fn end(&mut self) {
        self.ended = None;
    }
}

impl Bounds {
    pub(super) fn new(home: &Path, defaults: Limits) -> Self {
        Self {
            cgroups: Cgroups::detect(home),
            wardens: Arc::new(Wardens::default()),
            tasks: TaskTracker::new(),
            defaults,
            current: Mutex::default(),
        }
    }

    fn current(&self) -> MutexGuard<'_, BTreeMap<WorkspaceId, watch::Sender<Limits>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn means(&self, sandboxed: bool) -> Means {
        let count = match (rustix::process::geteuid().is_root(), sandboxed) {
            (true, _) => ProcessCount::Nobody,
            (false, true) => ProcessCount::Sandbox,
            (false, false) => ProcessCount::User,
        };
        Means::new(&self.cgroups, count)
    }

    /// The limits of a workspace and how they are held, a line each.
    pub(super) fn in_force(&self, limits: Limits, sandboxed: bool) -> Vec<String> {
        in_force(&limits.or(self.defaults), &self.means(sandboxed))
    }

    /// What holds limits here, in words.
    pub(super) fn summary(&self) -> String {
        match (&self.cgroups, self.cgroups.controllers()) {
            (_, Some((version, controllers))) => {
                let names: Vec<String> = controllers.iter().map(ToString::to_string).collect();
                format!("{version} ({}), rlimits", names.join(", "))
            }
            (Cgroups::Absent(why), None) => format!("rlimits and watching: {why}"),
            (Cgroups::Usable(_), None) => "rlimits and watching".to_owned(),
        }
    }

    /// Sets new limits on what runs in a workspace.
    pub(super) fn update(&self, workspace: WorkspaceId, limits: Limits) -> io::Result<()> {
        let limits = limits.or(self.defaults);
        let mut current = self.current();
        current.retain(|_, limits| limits.receiver_count() > 0);
        if let Some(sender) = current.get(&workspace) {
            sender.send_replace(limits);
        }
        self.cgroups.update(workspace, &limits)
    }

    /// Ends what an earlier daemon left in groups.
    pub(super) async fn sweep(&self) -> io::Result<usize> {
        self.cgroups.sweep().await.map(|swept| swept.ended)
    }

    /// Prepares the limits of a launch.
    pub(super) async fn prepare(
        &self,
        launch: &Launch,
        path_of: impl Fn(&Source) -> PathBuf,
        sandboxed: bool,
    ) -> Result<Bound, Error> {
        // Nothing of what sees no workspace is on a disk.
        let root = launch.world.as_ref().map(|world| path_of(&world.counted)).unwrap_or_default();
        let shares = launch.world.iter().flat_map(World::shares).filter_map(|share| {
            let disk = share.limits.or(self.defaults).disk?;
            let limits = Limits { disk: Some(disk), ..Limits::default() };
            Some((share.workspace, path_of(&share.counted), limits))
        });
        let shares: Vec<_> = shares.collect();
        let named = launch.world.as_ref().map(|world| world.limits).unwrap_or_default();
        // What has no workspace is bounded on its own.
        let alone = WorkspaceId::from_u128(rand::random());
        let workspace = launch.world.as_ref().map_or(alone, |world| world.workspace);
        let limits = named.or(self.defaults);
        let means = self.means(sandboxed);
        let name = format!("{:016x}", rand::random::<u64>());
        let group = self.cgroups.enter(workspace, &name, &limits);
        let group = group.map_err(Error::step("making its control group"))?.map(Arc::new);
        // Who has a home of its own needs to write there, and lives long enough to be watched.
        let has_home = launch.binds.iter().any(|bind| bind.at == HOME);
        let Space { largest_file, hit: full } = match &launch.world {
            Some(_) if !has_home => {
                let mut space = self.wardens.space(workspace, &root, &limits).await;
                for (workspace, root, limits) in &shares {
                    if space.hit.is_none() {
                        space = self.wardens.space(*workspace, root, limits).await;
                    }
                }
                space
            }
            _ => Space::default(),
        };
        let smaller = |most: u64| limits.file_size.map_or(most, |named| named.min(most));
        let file_size = largest_file.map(smaller).or(limits.file_size);
        let held = Limits { file_size, ..limits };
        let rlimits = Rlimits::of(&held, &means, &Rlimits::available(), workspace.as_u128());
        let limits = {
            let mut current = self.current();
            current.retain(|_, limits| limits.receiver_count() > 0);
            let sender = current.entry(workspace).or_insert_with(|| watch::Sender::new(limits));
            sender.send_replace(limits);
            sender.subscribe()
        };
        Ok(Bound { rlimits, group, limits, means, workspace, root, shares, full })
    }

    /// Watches a launch from now on. `kill` ends all of its processes at once.
    pub(super) fn watch(
        &self,
        bound: Bound,
        pid: Pid,
        kill: Box<dyn Fn() + Send + Sync>,
    ) -> Watched {
        let (tell, hits) = mpsc::channel(HITS);
        let ended = CancellationToken::new();
        let limits = bound.limits.clone();
        let top = pid.as_raw_nonzero().get().unsigned_abs();
        let kill: Arc<dyn Fn() + Send + Sync> = kill.into();
        for (workspace, root, limits) in bound.shares {
            let kill = kill.clone();
            let warden = self.wardens.watch(Ward {
                workspace,
                root,
                top,
                limits: watch::channel(limits).1,
                means: bound.means.clone(),
                group: None,
                kill: Box::new(move || kill()),
                full: None,
                is_guest: true,
                hits: tell.clone(),
                ended: ended.clone(),
            });
            self.tasks.spawn(warden.run());
        }
        let warden = self.wardens.watch(Ward {
            workspace: bound.workspace,
            root: bound.root,
            top,
            limits: bound.limits,
            means: bound.means,
            group: bound.group.clone(),
            kill: Box::new(move || kill()),
            full: bound.full,
            is_guest: false,
            hits: tell,
            ended: ended.clone(),
        });
        self.tasks.spawn(warden.run());
        Watched { hits, limits, ended: Some(ended.drop_guard()), _group: bound.group }
    }
}

/// Ends a sandbox by its first process.
pub(super) fn killer(init: std::os::fd::OwnedFd) -> Box<dyn Fn() + Send + Sync> {
    Box::new(move || {
        // Fails only for one that has ended.
        let _ = pidfd_send_signal(&init, rustix::process::Signal::KILL);
    })
}
