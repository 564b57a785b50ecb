//! A daemon from start to end.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::adapters::{FromProjections, Tail, ToProjections};
use super::reload::Live;
use super::{Config, ConfigError, Home, HomeError, environment, logging};
use crate::engine::{
    Ended, Engine, Fatal, Handle, LaunchedShells, Parts, RandomIds, now, sweep_shells,
};
use crate::import;
use crate::journal::{self, Disk, Journal, OsDisk};
use crate::launcher::{Launcher, boot_id, shows, shows_file};
use crate::model::{BadLine, Context, Leftover, SessionId};
use crate::projection::Worker;
use crate::provider::registry::Providers;
use crate::provider::sweep_homes;
use crate::recovery::{self, Recovered, Report};
use crate::service::{About, Api, Sockets, bind};
use crate::workspace::{Files, SandboxPolicy};

/// What a daemon is started with.
#[derive(Debug, Clone)]
pub struct Options {
    /// The home.
    pub home: PathBuf,
    /// The API socket; none for `substratd.sock` in the home.
    pub socket: Option<PathBuf>,
    /// Settings, as `key=value`.
    pub set: Vec<String>,
    /// Whether to log to the home instead of to stderr, leave the terminal, and say on stdout
    /// when it serves.
    pub background: bool,
}

/// Why a daemon did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration cannot be used.
    #[error("the configuration cannot be used: {0}")]
    Config(#[from] ConfigError),
    /// The home cannot be used.
    #[error("the home cannot be used: {0}")]
    Home(#[from] HomeError),
    /// What the disk holds cannot be used.
    #[error("the daemon cannot start from what the disk holds: {}{}", .0, way_out(.0))]
    Recovery(#[from] recovery::Error),
    /// A home of the Python Substrat could not be taken over.
    #[error("the home of the Python Substrat cannot be taken over: {0}; it is as it was")]
    Import(#[from] import::Error),
    /// The journal failed.
    #[error(transparent)]
    Fatal(#[from] Fatal),
    /// The projections failed.
    #[error("the logs of agents cannot be written: {0}; the next start mends them")]
    Projection(#[from] crate::projection::Error),
    /// The API could not be served.
    #[error("the API cannot be served: {0}")]
    Serve(String),
    /// The API socket cannot be bound.
    #[error("the socket {path} cannot be bound: {error}; give another with --socket")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The system refused something.
    #[error("{what}: {error}")]
    Io {
        /// What was done.
        what: &'static str,
        /// What the system said.
        error: std::io::Error,
    },
}

/// What a person can do about data that cannot be used.
fn way_out(error: &recovery::Error) -> &'static str {
    match error {
        recovery::Error::Journal(journal::Error::Full) => "; make room and start again",
        recovery::Error::Journal(journal::Error::Version { .. }) => "; start a newer daemon",
        recovery::Error::Event { error: BadLine::Unknown(_), .. } => {
            "; a newer daemon wrote it: start that one"
        }
        recovery::Error::Journal(journal::Error::Corrupt { .. })
        | recovery::Error::Event { .. }
        | recovery::Error::JournalMissing
        | recovery::Error::JournalBehind { .. }
        | recovery::Error::Projection(_) => {
            "; nothing was changed. Restore the home from a backup, or see \
             docs/errors/JOURNAL_DAMAGED.md for what can be saved by hand"
        }
        recovery::Error::Journal(_) => "",
    }
}

fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> RunError {
    move |error| RunError::Io { what, error }
}

/// How long git that makes or removes a worktree may take when the daemon stops.
const FINISH: Duration = Duration::from_secs(5);

/// Runs a daemon until it is told to stop.
pub fn run(options: &Options) -> Result<(), RunError> {
    // Whatever this process creates is its owner's alone.
    let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let home = Home::take(&options.home, crate::VERSION)?;
    let looked = Config::load(home.path(), environment(), &options.set).map_err(RunError::from);
    let looked = looked.and_then(|config| {
        check_hidden(&home, &config, options.socket.as_deref()).map(|()| config)
    });
    let config = match looked {
        Ok(config) => config,
        Err(error) => {
            home.leave();
            return Err(error);
        }
    };
    let log = if options.background {
        // Leads its own session, so that no terminal takes it along. Fails only for a leader,
        // which it then is.
        let _ = rustix::process::setsid();
        Some(logging::open(home.path()).map_err(io("opening the log"))?)
    } else {
        None
    };
    let stderr = log.as_ref().map(std::fs::File::try_clone).transpose();
    let stderr = stderr.map_err(io("opening the log"))?;
    logging::start(config.log_level(), log);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(config.blocking_threads())
        // Scripts recurse on these threads; only what they touch takes memory.
        .thread_stack_size(config.scripted().stack_bytes())
        .thread_name("substratd")
        .build()
        .map_err(io("starting the runtime"))?;
    let result = runtime.block_on(serve(options, &home, &config, umask, stderr));
    if let Err(error) = &result {
        tracing::error!(%error, "the daemon ends");
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Lets as many files be open as the system allows. Returns how many that is.
fn open_files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    if let Some(maximum) = limit.maximum {
        let raised = Rlimit { current: Some(maximum), maximum: Some(maximum) };
        // What the system does not allow is done without.
        let _ = setrlimit(Resource::Nofile, raised);
    }
    let current = getrlimit(Resource::Nofile).current.unwrap_or(4096);
    usize::try_from(current).unwrap_or(usize::MAX)
}

/// How many of the open files may be logs of agents.
fn log_files() -> usize {
    (open_files() / 4).clamp(16, 1024)
}

/// How many of the open files may be connections of clients. The rest is for the journal, and for
/// what agents open.
fn connections() -> usize {
    (open_files() / 2).clamp(16, 8192)
}

struct Started {
    recovered: Recovered,
    took: Duration,
    disk: Arc<dyn Disk>,
    ids: RandomIds,
}

/// Brings back what was there.
fn recover(
    home: &Home,
    config: &Config,
    providers: &Providers,
    leftovers: &[Leftover],
) -> Result<Started, RunError> {
    let begun = Instant::now();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(home.path()));
    disk.create_dir(journal::DIR).map_err(io("creating the journal folder"))?;
    let mut ids = RandomIds::from_os().map_err(io("seeding the identities"))?;
    take_over(home, config, &disk, &mut ids)?;
    disk.create_dir(crate::projection::DIR).map_err(io("creating the agents folder"))?;
    disk.sync_dir("").map_err(io("syncing the home"))?;
    let options = recovery::Options {
        journal: config.journal(),
        max_open_files: log_files(),
        boot: boot_id(),
    };
    let policy = config.policy(providers);
    let mut context = Context { now: now(), policy: &policy, ids: &mut ids, attended: &|_| false };
    let replayed = recovery::scan(disk.clone(), options)?.replay()?;
    let recovered = replayed.telling(leftovers).reconcile(&mut context, crate::VERSION)?;
    let took = begun.elapsed();
    let Report { clean, replayed, interrupted_turns, .. } = recovered.report;
    tracing::info!(clean, replayed, interrupted_turns, ?took, "recovered");
    let sessions: BTreeSet<SessionId> =
        recovered.state.agents().map(|agent| agent.session.id).collect();
    sweep_homes(&home.path().join("providers"), |id| sessions.contains(&id));
    sweep_shells(&home.path().join("shells"), |id| sessions.contains(&id));
    Ok(Started { recovered, took, disk, ids })
}

/// Takes over what the Python Substrat left, if it did.
fn take_over(
    home: &Home,
    config: &Config,
    disk: &Arc<dyn Disk>,
    ids: &mut RandomIds,
) -> Result<(), RunError> {
    import::finish(&**disk)?;
    if !import::is_waiting(&**disk)? {
        return Ok(());
    }
    let _lock = home.lock_out_python()?;
    let options = import::Options {
        home: home.path(),
        real: &super::home::real,
        journal: config.journal(),
        max_open_files: log_files(),
    };
    let report = import::take_over(disk, &options, now(), ids)?;
    let summary = report.summary();
    tracing::info!(summary, report = import::REPORT_PATH, "took over a home");
    Ok(())
}

/// Refuses a home, or a socket elsewhere, that lies where every process of an agent looks.
fn check_hidden(home: &Home, config: &Config, socket: Option<&Path>) -> Result<(), RunError> {
    let shown = config.sandbox().system_paths;
    if let Some(shown) = shows(home.path(), &shown) {
        return Err(HomeError::Shown { path: home.path().to_owned(), shown }.into());
    }
    let within = socket.and_then(|socket| shows_file(socket, &shown).zip(Some(socket)));
    let Some((shown, socket)) = within else { return Ok(()) };
    let error = format!("every process of an agent is shown {}", shown.display());
    Err(RunError::Socket { path: socket.to_owned(), error: std::io::Error::other(error) })
}

async fn serve(
    options: &Options,
    home: &Home,
    config: &Config,
    umask: rustix::fs::Mode,
    stderr: Option<std::fs::File>,
) -> Result<(), RunError> {
    let files = Files::new(home.path().join("workspaces"), home.path());
    let files = files.hiding(options.socket.as_deref());
    let socket = options.socket.clone().unwrap_or_else(|| home.path().join("substratd.sock"));
    // Before anything is written. Who connects now is served in a moment.
    let users = config.allowed_users();
    let (listener, bound) = bind(&socket, !users.is_empty())
        .map_err(|error| RunError::Socket { path: socket.clone(), error })?;
    let (launcher, leftovers) = launcher(home, config, files, umask).await?;
    let files = launcher.files();
    let live = Arc::new(Live::new(home.path(), &options.set, config.clone(), &launcher)?);
    let providers = live.registry().all();
    let Started { recovered, took, disk, ids } = recover(home, config, &providers, &leftovers)?;
    launcher.forget_leftovers().map_err(io("forgetting what an earlier daemon left"))?;
    let Recovered { state, effects, writer, projector, report } = recovered;
    let journal = Journal::start(writer).map_err(io("starting the journal"))?;
    let (failed, projection_failed) = oneshot::channel();
    let worker =
        Worker::start(disk.clone(), journal.clone(), projector, report.checkpoint, |error| {
            // Nobody listens when the daemon ends anyway.
            let _ = failed.send(error);
        })
        .map_err(io("starting the projections"))?;
    let (journal_handle, worker_handle) = (journal.clone(), worker.clone());
    let tail = Arc::new(Tail { journal, worker, at_checkpoint: AtomicU64::new(0) });
    let shells = LaunchedShells::new(launcher.clone(), &home.path().join("shells"));
    let shells = shells.map_err(io("making the folder of shells"))?;
    let parts = Parts {
        journal: journal_handle.clone(),
        sink: Box::new(ToProjections::new(&worker_handle, &tail, home.path())),
        providers: live.registry().clone(),
        files: files.clone(),
        shells: Arc::new(shells),
        sockets: Arc::new(Sockets::new(home.path().join("run"))),
        limits: config.limits(),
        clock: Arc::new(now),
    };
    let archive = Arc::new(FromProjections { disk, worker: worker_handle.clone() });
    let policy = config.policy(&providers);
    let (engine, handle) = Engine::new(state, effects, policy, Box::new(ids), archive, parts);
    live.tell(handle.clone());
    let about = about(home, live.clone(), config, launcher.clone(), (report, took), tail);
    let made = files.clone();
    let api = Api::new(handle.clone(), files, launcher.clone(), about);
    let mut beside = std::pin::pin!(beside(&launcher, api.clone()));
    let (stop, stopped) = oneshot::channel::<()>();
    let mut server = std::pin::pin!(api.serve(listener, &users, async move {
        // A dropped sender means the same.
        let _ = stopped.await;
    }));
    let mut engine = std::pin::pin!(engine.run());
    let mut signals = std::pin::pin!(obey_signals(handle, live)?);
    ready(&socket, stderr)?;
    tracing::info!(socket = %socket.display(), "serving");
    let ended = tokio::select! {
        ended = &mut engine => ended.map_err(RunError::from),
        served = &mut server => Err(RunError::Serve(match served {
            Ok(()) => "the server ended by itself".to_owned(),
            Err(error) => error.to_string(),
        })),
        Ok(error) = projection_failed => Err(error.into()),
        never = &mut beside => match never {},
        () = &mut signals => Err(RunError::Serve("the signals ended".to_owned())),
    };
    drop(bound);
    let sequence = or_finish(ended, &made).await?.sequence;
    // Streams that watch end with the server; they get a moment to say goodbye.
    let _ = stop.send(());
    let _ = tokio::time::timeout(Duration::from_millis(500), server).await;
    close(journal_handle, worker_handle, made).await?;
    tracing::info!(sequence, "stopped cleanly");
    Ok(())
}

/// Where the engine failed, nothing is written any more; the daemon's own git is waited for.
async fn or_finish(ended: Result<Ended, RunError>, files: &Files) -> Result<Ended, RunError> {
    if ended.is_err() {
        let files = files.clone();
        at_end(move || files.finish(FINISH)).await?;
    }
    ended
}

/// Has what is durable written where it belongs, and ends its threads and the daemon's own git.
async fn close(journal: Journal, worker: Worker, files: Files) -> Result<(), RunError> {
    let work = move || {
        worker.close();
        journal.close();
        files.finish(FINISH);
    };
    at_end(work).await
}

/// Does what blocks on a thread of its own: those of the runtime may all be waiting for git.
async fn at_end(work: impl FnOnce() + Send + 'static) -> Result<(), RunError> {
    let (closed, closing) = oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    let thread = std::thread::Builder::new().name("close".to_owned()).spawn(move || {
        let _inside = runtime.enter();
        work();
        // Who asked waits.
        let _ = closed.send(());
    });
    thread.map_err(io("closing the home"))?;
    closing.await.map_err(|_| RunError::Serve("closing the home crashed".to_owned()))
}

/// What starts the processes of agents. Those of a daemon that was killed are ended.
async fn launcher(
    home: &Home,
    config: &Config,
    files: Files,
    umask: rustix::fs::Mode,
) -> Result<(Launcher, Vec<Leftover>), RunError> {
    let program = std::env::current_exe().map_err(io("finding this program"))?;
    let folder = home.path().join("run");
    let (settings, endpoints) = (config.sandbox(), config.endpoints());
    let launcher = Launcher::new(&folder, &program, files, settings, endpoints, umask)
        .map_err(io("preparing to start processes"))?;
    launcher.adopt().map_err(io("adopting what processes leave"))?;
    let (leftovers, others) =
        launcher.end_leftovers().await.map_err(io("ending what an earlier daemon left"))?;
    let ended = leftovers.iter().filter(|left| left.ended).count() + others;
    if ended > 0 {
        tracing::warn!(processes = ended, "ended what an earlier daemon left");
    }
    Ok((launcher, leftovers))
}

/// Says whether processes can be kept in a sandbox here. Who starts the first one does not wait
/// for that.
async fn probe(launcher: &Launcher) {
    if launcher.settings().policy == SandboxPolicy::Off {
        tracing::warn!("processes of agents run without a sandbox: sandbox.policy is \"off\"");
    } else {
        match launcher.sandbox().await {
            Ok(found) => tracing::info!(bubblewrap = %found.path.display(), "the sandbox works"),
            Err(error) => tracing::warn!(%error, "there is no sandbox here"),
        }
    }
}

/// What is done beside serving: it says whether there is a sandbox, looks after what falls to the
/// daemon, and finishes what an earlier daemon was making when it was killed.
async fn beside(launcher: &Launcher, api: Api) -> Infallible {
    let (never, (), ()) =
        tokio::join!(launcher.look_after(), probe(launcher), api.finish_worktrees());
    never
}

fn about(
    home: &Home,
    configuration: Arc<Live>,
    config: &Config,
    launcher: Launcher,
    (recovery, recovery_took): (Report, Duration),
    tail: Arc<Tail>,
) -> About {
    let same = tail.clone();
    About {
        home: home.path().to_owned(),
        started: now(),
        recovery,
        recovery_took,
        imported: super::home::first_line(home.path(), import::REPORT_PATH),
        configuration,
        connections: connections(),
        silence: config.attach_silence(),
        journal: Box::new(move || same.status()),
        sandbox: Box::new(move || launcher.report()),
        mended: Box::new(move || tail.mended()),
    }
}

/// Lets go of the terminal, and says that the daemon serves: who hears that finds nothing of his
/// own held.
fn ready(socket: &Path, stderr: Option<std::fs::File>) -> Result<(), RunError> {
    let Some(stderr) = stderr else { return Ok(()) };
    #[expect(clippy::disallowed_methods, reason = "opens the null device")]
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    let null = null.map_err(io("opening /dev/null"))?;
    rustix::stdio::dup2_stdin(&null).map_err(|error| io("leaving stdin")(error.into()))?;
    rustix::stdio::dup2_stderr(&stderr).map_err(|error| io("leaving stderr")(error.into()))?;
    let mut stdout = std::io::stdout();
    let line = format!("ready {} {}\n", std::process::id(), socket.display());
    // Whoever started it may have gone; the daemon stays.
    let _ = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
    rustix::stdio::dup2_stdout(&null).map_err(|error| io("leaving stdout")(error.into()))?;
    Ok(())
}

/// Drains at the first SIGTERM or SIGINT, and stops at once at the second. Reads the configuration
/// again at SIGHUP.
fn obey_signals(handle: Handle, live: Arc<Live>) -> Result<impl Future<Output = ()>, RunError> {
    let mut term = signal(SignalKind::terminate()).map_err(io("listening for SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(io("listening for SIGINT"))?;
    let mut hangup = signal(SignalKind::hangup()).map_err(io("listening for SIGHUP"))?;
    Ok(async move {
        let mut limit = None;
        loop {
            tokio::select! {
                Some(()) = term.recv() => {}
                Some(()) = interrupt.recv() => {}
                Some(()) = hangup.recv() => {
                    if let Err(error) = live.again() {
                        tracing::error!(%error, "SIGHUP: the configuration stays as it was");
                    }
                    continue;
                }
                else => return,
            }
            tracing::info!(?limit, "told to stop");
            // An engine that is gone has stopped already.
            let _ = handle.drain(limit).await;
            limit = Some(Duration::ZERO);
        }
    })
}
