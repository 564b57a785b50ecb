//! Starting processes: the one place from which any program of an agent is run.
//!
//! ```text
//!  Launch ─► open what is seen ─► bubblewrap ─► init ─► command
//!             (file descriptors)    (argv)        │
//!                 Process ◄── a socket ───────────┘
//! ```
//!
//! A [`Launch`] says what is run and what it sees; the [`Launcher`] opens that, has bubblewrap
//! build the sandbox, and tells the first process inside, [`init`], what to do. Without a sandbox
//! it is the same but for bubblewrap. The [`Process`] that comes of it ends, with all that it
//! started, when it is dropped, and when the daemon dies.

mod bounds;
mod bubblewrap;
mod control;
pub mod egress;
mod ends;
mod error;
mod family;
pub mod init;
mod leftovers;
pub mod limits;
mod outer;
mod outside;
mod probe;
mod process;
mod shell;
mod system;
mod terminal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::bounds::Bounds;
use self::bubblewrap::EXCLUDES;
pub use self::bubblewrap::{Bound, HOME, Part, Plan, TOOL_SOCKET, WORKSPACE, argv};
use self::control::Setup;
use self::egress::Endpoint;
pub use self::ends::Ends;
use self::ends::pipes;
pub use self::error::{Error, Flaw, Unavailable};
pub use self::family::spawn;
pub use self::leftovers::boot_id;
use self::leftovers::{Records, Whose};
use self::limits::Rooms;
use self::outer::Outer;
use self::outside::Outside;
pub use self::probe::Bubblewrap;
use self::process::Waiting;
pub use self::process::{Exit, Process};
use self::system::System;
pub use self::system::{shows, shows_file};
pub use self::terminal::Terminal;
use crate::model::{Access, Leftover, Limits, SessionId, Source, WorkspaceId, World};
use crate::workspace::{Files, Open, SandboxPolicy, SandboxReport, SandboxSettings, Unseen};
use rustix::fs::Mode;

/// Where programs are looked for.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// After how long a sandbox that was not found is looked for again by who tells of it.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Variables of the daemon that a process is given: how to speak and what time it is.
const INHERITED: &[&str] = &["LANG", "LANGUAGE", "TZ"];

/// A folder or file of the host that a process needs beside its workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// Where it lies on the host.
    pub host: PathBuf,
    /// Where it is seen: an absolute path outside of the workspace.
    pub at: String,
    /// What may be done there.
    pub access: Access,
    /// Whether symbolic links on the way to it are followed: only where no agent can write one.
    pub follows_links: bool,
}

/// Something to be run.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The session that it is a process of; none for a command of a user.
    pub session: Option<SessionId>,
    /// Variables beside the usual ones and those of the workspace.
    pub env: BTreeMap<String, String>,
    /// What it sees; none for an empty workspace that is gone with the process.
    pub world: Option<World>,
    /// Working directory, as a normal path in the workspace.
    pub dir: String,
    /// Empty folders that it needs, at absolute paths outside of the workspace.
    pub private: Vec<String>,
    /// What else it needs; some of it may lie in those.
    pub binds: Vec<Bind>,
    /// What git leaves out in its worktree, as a file of patterns.
    pub excludes: Option<String>,
    /// The tool socket of its agent on the host.
    pub tool_socket: Option<PathBuf>,
    /// What it reaches through the daemon's proxy where it does not see the network, beside what
    /// the settings name for all.
    pub endpoints: Vec<Endpoint>,
    /// Size of its terminal, in rows and columns; none for pipes.
    pub terminal: Option<(u16, u16)>,
}

/// A process with the near ends of its input and output.
#[derive(Debug)]
pub struct Launched {
    /// The process.
    pub process: Process,
    /// Its input and output.
    pub ends: Ends,
    /// Why it runs without a sandbox, if it does.
    pub unsandboxed: Option<String>,
}

/// Starts processes. Clones are the same launcher.
#[derive(Debug, Clone)]
pub struct Launcher {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    files: Files,
    settings: SandboxSettings,
    /// What every process reaches that does not see the network.
    endpoints: Vec<Endpoint>,
    records: Records,
    /// Where the sandbox's own files of `/etc` are.
    etc: PathBuf,
    /// The daemon's program: the first process of every launch.
    program: PathBuf,
    ready: tokio::sync::Mutex<Option<Arc<Ready>>>,
    /// What was found when a sandbox was last looked for.
    known: Mutex<Option<Known>>,
    /// Held by who looks because it is to be told.
    looking: tokio::sync::Mutex<()>,
    bounds: Bounds,
}

/// What came of looking for a sandbox.
#[derive(Debug)]
struct Known {
    found: Result<Bubblewrap, Unavailable>,
    at: Instant,
}

/// What every sandbox is made with.
#[derive(Debug)]
struct Ready {
    bubblewrap: Bubblewrap,
    system: System,
    /// This program, which is the first process of a sandbox.
    init: PathBuf,
    tmp_bytes: u64,
}

impl Launcher {
    /// A launcher that keeps its own files in a folder. `program` is the daemon's;
    /// `endpoints` are reached by every process; `umask` is the user's, which git has.
    pub fn new(
        folder: &Path,
        program: &Path,
        files: Files,
        settings: SandboxSettings,
        endpoints: Vec<Endpoint>,
        umask: Mode,
    ) -> io::Result<Self> {
        let records = Records::new(folder.join("processes"))?;
        let etc = folder.join("system");
        let ready = tokio::sync::Mutex::new(None);
        let program = keep(program, &folder.join("init"))?;
        let git = Outside::new(records.clone(), program.clone(), umask, settings.policy);
        let room = Rooms::new(settings.limits);
        let files = files.with_git(Arc::new(git)).with_room(Arc::new(room));
        let bounds = Bounds::new(folder, settings.limits);
        let (known, looking) = (Mutex::default(), tokio::sync::Mutex::default());
        let inner = Inner {
            files,
            settings,
            endpoints,
            records,
            etc,
            program,
            ready,
            known,
            looking,
            bounds,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Makes this process the one to which what its descendants leave falls. Its children are
    /// started by launchers, by [`spawn`], or were there before.
    ///
    /// # Errors
    ///
    /// What the system said.
    pub fn adopt(&self) -> io::Result<()> {
        family::adopt()
    }

    /// Looks after what falls to this process, for as long as it runs.
    pub async fn look_after(&self) -> Infallible {
        family::watch().await
    }

    /// Ends the processes that a daemon which was killed left. Returns what was recorded of them,
    /// and how many were ended beside those. To be called before any is started.
    pub async fn end_leftovers(&self) -> io::Result<(Vec<Leftover>, usize)> {
        let records = self.inner.records.clone();
        let left = tokio::task::spawn_blocking(move || records.end_all()).await??;
        Ok((left, self.inner.bounds.sweep().await?))
    }

    /// Forgets what a daemon which was killed left, once it is told durably. To be called before
    /// any process is started.
    pub fn forget_leftovers(&self) -> io::Result<()> {
        self.inner.records.forget_all()
    }

    /// Whether processes are kept in a sandbox, as far as that was looked for.
    pub fn report(&self) -> SandboxReport {
        let policy = self.inner.settings.policy;
        let limits = self.inner.bounds.summary();
        let report = SandboxReport { policy, limits, ..SandboxReport::default() };
        let known = self.known();
        match (policy, known.as_ref().map(|known| &known.found)) {
            (SandboxPolicy::Off, _) => {
                SandboxReport { reason: "sandbox.policy is \"off\"".to_owned(), ..report }
            }
            (_, Some(Ok(found))) => {
                SandboxReport { in_force: true, bubblewrap: found.version.clone(), ..report }
            }
            (_, Some(Err(no))) => {
                let may_pass = !no.is_lasting();
                SandboxReport { reason: no.to_string(), may_pass, ..report }
            }
            (_, None) => SandboxReport { reason: "not looked for yet".to_owned(), ..report },
        }
    }

    /// The same, looked for if it was not, or not found some time ago.
    pub async fn seen(&self) -> SandboxReport {
        if self.is_unknown() {
            let _alone = self.inner.looking.lock().await;
            if self.is_unknown() {
                // The report says what came of it.
                let _ = self.ready().await;
            }
        }
        self.report()
    }

    fn is_unknown(&self) -> bool {
        let old = |known: &Known| known.found.is_err() && known.at.elapsed() > LOOK_AGAIN;
        self.inner.settings.policy != SandboxPolicy::Off && self.known().as_ref().is_none_or(old)
    }

    /// Limits as they are in force in a workspace that names these, and how, a line each.
    pub fn limits_in_force(&self, named: Limits) -> Vec<String> {
        let lacks = |known: &Known| known.found.as_ref().is_err_and(Unavailable::is_lasting);
        let failed = || self.known().as_ref().is_some_and(lacks);
        let sandboxed = match self.inner.settings.policy {
            SandboxPolicy::Required => true,
            SandboxPolicy::Preferred => !failed(),
            SandboxPolicy::Off => false,
        };
        self.inner.bounds.in_force(named, sandboxed)
    }

    /// Sets new limits on what runs in a workspace.
    pub fn update_limits(&self, workspace: WorkspaceId, named: Limits) -> io::Result<()> {
        self.inner.bounds.update(workspace, named)
    }

    /// The files of workspaces, with git run by this launcher.
    pub fn files(&self) -> Files {
        self.inner.files.clone()
    }

    /// Its settings.
    pub fn settings(&self) -> &SandboxSettings {
        &self.inner.settings
    }

    /// Whether there is a sandbox here, and which. It is looked for until one is found.
    pub async fn sandbox(&self) -> Result<Bubblewrap, Unavailable> {
        self.ready().await.map(|ready| ready.bubblewrap.clone())
    }

    /// Whether the next process is kept in a sandbox, if it is started at all.
    pub async fn confines(&self) -> bool {
        match self.inner.settings.policy {
            SandboxPolicy::Off => false,
            SandboxPolicy::Preferred => !self.ready().await.is_err_and(|no| no.is_lasting()),
            SandboxPolicy::Required => true,
        }
    }

    /// Whether every sandbox shows a path of the host.
    pub fn shows(&self, path: &Path) -> bool {
        shows(path, &self.inner.settings.system_paths).is_some()
    }

    async fn ready(&self) -> Result<Arc<Ready>, Unavailable> {
        let found = self.look().await;
        let known = found.as_ref().map(|ready| ready.bubblewrap.clone()).map_err(Clone::clone);
        *self.known() = Some(Known { found: known, at: Instant::now() });
        found
    }

    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look(&self) -> Result<Arc<Ready>, Unavailable> {
        let mut known = self.inner.ready.lock().await;
        if let Some(ready) = &*known {
            return Ok(ready.clone());
        }
        let inner = self.inner.clone();
        let looked = tokio::task::spawn_blocking(move || {
            // First: a disk that is full does not hide that there is none.
            let bubblewrap = probe::find()?;
            let system = System::look(&inner.etc, &inner.settings.system_paths);
            let system = system.map_err(|error| Unavailable::write(&error))?;
            Ok((bubblewrap, system))
        });
        let (bubblewrap, system) =
            looked.await.map_err(|error| Unavailable::Broken(error.to_string()))??;
        let tmp_bytes = self.inner.settings.tmp_bytes;
        let init = self.inner.program.clone();
        let ready = Arc::new(Ready { bubblewrap, system, init, tmp_bytes });
        self.try_out(&ready).await?;
        Ok(known.insert(ready).clone())
    }

    /// Starts a process in a sandbox, to see whether that works here.
    async fn try_out(&self, ready: &Ready) -> Result<(), Unavailable> {
        let launch = Launch { argv: vec!["true".to_owned()], ..Launch::default() };
        let tried = self.start_in(Some(ready), launch, Vec::new()).await;
        let mut launched = tried.map_err(|error| probe::explain(&ready.bubblewrap, &error))?;
        match launched.process.wait().await {
            Exit::Code(0) => Ok(()),
            other => Err(Unavailable::Broken(format!("a trial run came to {other}"))),
        }
    }

    /// Starts a process.
    ///
    /// # Errors
    ///
    /// See [`Error`]; nothing of the process is left then.
    pub async fn start(&self, mut launch: Launch) -> Result<Launched, Error> {
        let (ready, unsandboxed) = match self.inner.settings.policy {
            SandboxPolicy::Off => (None, Some("sandbox.policy is \"off\"".to_owned())),
            policy => match (self.ready().await, policy) {
                (Ok(ready), _) => (Some(ready), None),
                (Err(no), SandboxPolicy::Preferred) if no.is_lasting() => {
                    (None, Some(no.to_string()))
                }
                (Err(Unavailable::DiskFull), _) => return Err(Error::DiskFull),
                (Err(no), _) => return Err(Error::Unavailable(no)),
            },
        };
        let open = match &launch.world {
            Some(World { mounts, .. }) if mounts.len() > World::MAX_MOUNTS => {
                let (count, limit) = (mounts.len(), World::MAX_MOUNTS);
                return Err(Error::TooManyMounts { count, limit });
            }
            Some(world) => {
                let (files, world) = (self.inner.files.clone(), world.clone());
                let opening = tokio::task::spawn_blocking(move || files.open(&world)).await;
                let opened = opening.map_err(|error| Error::step("opening it")(error.into()))?;
                opened.map_err(unseen)?
            }
            None => Vec::new(),
        };
        let open = match (&launch.world, &ready) {
            (Some(world), Some(_)) => {
                let open = self.inner.files.with_git_files(open, world).map_err(unseen)?;
                self.add_git(&mut launch).await?;
                open
            }
            _ => open,
        };
        let mut launched = self.start_in(ready.as_deref(), launch, open).await?;
        launched.unsandboxed = unsandboxed;
        Ok(launched)
    }

    /// Shows a worktree its repository.
    async fn add_git(&self, launch: &mut Launch) -> Result<(), Error> {
        let Some(world) = &launch.world else { return Ok(()) };
        let (Some(git), Some(root)) = (world.git.clone(), world.mounts.get("").cloned()) else {
            return Ok(());
        };
        let Source::Workspaces(path) = root.source else { return Ok(()) };
        let (files, repo) = (self.inner.files.clone(), git.repo.clone());
        let mounted: Vec<String> =
            world.mounts.keys().filter(|at| !at.is_empty()).cloned().collect();
        let looked =
            tokio::task::spawn_blocking(move || files.git_inside(&git, &path, &mounted, EXCLUDES));
        let looked = looked.await;
        let looked =
            looked.map_err(|error| Error::step("looking at its repository")(error.into()))?;
        let unseen = |problem: String| Error::Mount { path: repo.clone(), problem, link: None };
        let inside = looked.map_err(|no| unseen(no.to_string()))?;
        let at = inside.common_dir.to_string_lossy().into_owned();
        launch.private.push(at);
        launch.excludes = inside.excludes;
        for (host, access) in inside.shown {
            // What is below the workspace is the agent's to change while this is mounted.
            if host.starts_with(WORKSPACE) {
                return Err(unseen(format!("it lies below {WORKSPACE}, which is another inside")));
            }
            let at = host.to_str().ok_or_else(|| unseen("its path is not UTF-8".to_owned()))?;
            let (at, access) = (at.to_owned(), access.min(root.access));
            launch.binds.push(Bind { host, at, access, follows_links: false });
        }
        for (name, value) in inside.env {
            if let (Ok(name), Ok(value)) = (name.into_string(), value.into_string()) {
                launch.env.entry(name).or_insert(value);
            }
        }
        Ok(())
    }

    async fn start_in(
        &self,
        ready: Option<&Ready>,
        launch: Launch,
        open: Vec<Open>,
    ) -> Result<Launched, Error> {
        let mounts = open.iter().filter(|open| ready.is_some() && !open.path.is_empty());
        let mounts = mounts.enumerate().map(|(n, at)| (bubblewrap::aside(n), at.path.clone()));
        let mounts = mounts.collect();
        let outer = match ready {
            Some(ready) => Outer::sandbox(ready, &launch, open)?,
            None => Outer::bare(&self.inner.program),
        };
        let (pipes, given) = match launch.terminal {
            None => pipes().map_err(Error::step("making its input"))?,
            Some(_) => (None, Vec::new()),
        };
        let inner = &self.inner;
        let path_of = |source: &Source| inner.files.path_of(source);
        let bound = inner.bounds.prepare(&launch, path_of, ready.is_some()).await?;
        let (child, control) = outer.spawn().map_err(Error::step("starting it"))?;
        let entering = bound.enter(child.id());
        let workspace = launch.world.as_ref().map(|world| world.workspace);
        let whose = Whose { session: launch.session, workspace };
        let waiting = Waiting::hello(child, control, &inner.records, whose).await?;
        bound.entered(entering, waiting.pid).await?;
        let mut endpoints = inner.endpoints.clone();
        endpoints.extend(launch.endpoints.iter().cloned());
        let online = launch.world.as_ref().is_some_and(|world| world.network);
        let egress = ready.is_some() && !online && !endpoints.is_empty();
        let setup = self.setup(&launch, mounts, bound.rlimits.to_string(), ready, egress);
        let given: Vec<_> = given.iter().map(AsFd::as_fd).collect();
        let (mut process, beside) =
            waiting.start(&setup, &given, Some((&inner.bounds, bound))).await?;
        let mut beside = beside.into_iter();
        let ends = match pipes {
            Some(pipes) => pipes,
            None => {
                let near = beside.next().ok_or_else(|| io::Error::other("it was not made"));
                let terminal = near.and_then(Terminal::new);
                Ends::Terminal(terminal.map_err(Error::step("taking its terminal"))?)
            }
        };
        if let Some(listener) = beside.next() {
            process.lead_out(listener.into(), endpoints)?;
        }
        Ok(Launched { process, ends, unsandboxed: None })
    }

    fn setup(
        &self,
        launch: &Launch,
        mounts: Vec<(String, String)>,
        limits: String,
        ready: Option<&Ready>,
        egress: bool,
    ) -> Setup {
        let sandboxed = ready.is_some();
        let mut env: BTreeMap<String, String> = BTreeMap::new();
        let inherited = INHERITED.iter().map(|name| (*name).to_owned());
        env.extend(inherited.filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))));
        let mut set = |name: &str, value: &str| _ = env.insert(name.to_owned(), value.to_owned());
        let home = self.home(launch, sandboxed);
        set("PATH", PATH);
        set("HOME", if sandboxed { HOME } else { &home });
        set("USER", "agent");
        set("LOGNAME", "agent");
        set("SHELL", "/bin/sh");
        set("TMPDIR", "/tmp");
        if egress {
            egress::ENVIRONMENT.iter().for_each(|(name, value)| set(name, value));
        }
        if launch.terminal.is_some() {
            set("TERM", "xterm-256color");
        }
        if let Some(socket) = &launch.tool_socket {
            let host = socket.to_string_lossy();
            set("SUBSTRAT_TOOL_SOCKET", if sandboxed { TOOL_SOCKET } else { &host });
        }
        env.extend(launch.world.iter().flat_map(|world| world.env.clone()));
        env.extend(launch.env.clone());
        let root = if sandboxed { WORKSPACE } else { &home };
        Setup {
            argv: launch.argv.clone(),
            env,
            dir: if launch.dir.is_empty() {
                root.to_owned()
            } else {
                format!("{root}/{}", launch.dir)
            },
            mounts,
            in_memory: ready.map_or_else(Vec::new, |ready| {
                let home = launch.binds.iter().all(|bind| bind.at != HOME);
                let usual = bubblewrap::InMemory { workspace: launch.world.is_none(), home };
                bubblewrap::files_in_memory(ready.tmp_bytes, usual, &launch.private)
            }),
            limits,
            egress,
            terminal: launch.terminal,
            umask: None,
            sandboxed,
        }
    }

    /// Where a process without a sandbox starts: the root of its workspace.
    fn home(&self, launch: &Launch, sandboxed: bool) -> String {
        self.root_of(launch.world.as_ref().filter(|_| !sandboxed))
    }

    /// Where the root of a workspace lies on the host.
    pub fn root_of(&self, world: Option<&World>) -> String {
        let root = world.and_then(|world| world.mounts.get(""));
        let path = root.map(|root| self.inner.files.path_of(&root.source));
        path.map_or_else(|| "/tmp".to_owned(), |path| path.to_string_lossy().into_owned())
    }
}

fn unseen(no: Unseen) -> Error {
    let Unseen { path, problem, link } = no;
    Error::Mount { path, problem, link }
}

/// Gives a program a second name, under which it stays when its file is replaced. Where that is
/// not allowed, or its file lies on another filesystem, it is used by its own: a copy would take
/// space from the journal.
#[expect(clippy::disallowed_methods, reason = "a file for a run of the daemon")]
fn keep(program: &Path, kept: &Path) -> io::Result<PathBuf> {
    match std::fs::remove_file(kept) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    Ok(match std::fs::hard_link(program, kept) {
        Ok(()) => kept.to_owned(),
        Err(_) => program.to_owned(),
    })
}

/// The number of an open descriptor, for a command line.
fn number(fd: &impl AsRawFd) -> i32 {
    fd.as_raw_fd()
}
