//! Commands of the daemon's own, outside of the sandboxes of agents on purpose: git works on a
//! repository of the user, which no workspace shows. They read what the user reads, and write only
//! where they are to, so that no link of an agent leads them elsewhere. They have no limits, since
//! the space and the files are the user's. All else is as for every launch: init starts them, each is recorded before it
//! runs, and what they leave behind ends with them, with the daemon, or with the next one.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, openat};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::control::Setup;
use super::leftovers::{Records, Whose};
use super::outer::Outer;
use super::process::Waiting;
use super::{Error, Exit, Unavailable, probe};
use crate::workspace::SandboxPolicy;
use crate::workspace::git::{Command, Output, Run, RunError};

/// How long what is cut off has to remove its locks.
const GRACE: Duration = Duration::from_secs(1);
/// How long the end of all of it is waited for.
const STOP: Duration = Duration::from_secs(3);

/// Runs commands outside of every sandbox.
#[derive(Debug)]
pub(super) struct Outside {
    records: Records,
    program: PathBuf,
    /// The user's: what they make in a repository is the user's own.
    umask: Mode,
    policy: SandboxPolicy,
    /// What keeps them from writing elsewhere, once it was found: until then each looks again.
    keeper: OnceCell<PathBuf>,
    /// Whether it was told that nothing does.
    is_told: AtomicBool,
    stopping: CancellationToken,
    running: TaskTracker,
}

impl Outside {
    pub(super) fn new(
        records: Records,
        program: PathBuf,
        umask: Mode,
        policy: SandboxPolicy,
    ) -> Self {
        let (keeper, is_told) = (OnceCell::new(), AtomicBool::new(false));
        let (stopping, running) = (CancellationToken::new(), TaskTracker::new());
        Self { records, program, umask, policy, keeper, is_told, stopping, running }
    }

    /// A command that can write in its own folders alone, or as it is where the policy lets it.
    async fn kept(&self, command: &Command) -> Result<Command, RunError> {
        let program = find(command).ok_or(RunError::Missing)?;
        if self.policy == SandboxPolicy::Off {
            return Ok(command.clone());
        }
        match self.keeper.get_or_try_init(|| self.look(command)).await {
            Ok(keeper) => Ok(behind(keeper, &program, command)),
            Err(no) if may_run_bare(self.policy, &no) => {
                if !self.is_told.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%no, "git is not kept from writing elsewhere");
                }
                Ok(command.clone())
            }
            Err(Unavailable::DiskFull) => Err(RunError::DiskFull),
            Err(no) => Err(RunError::Unkept(no.to_string())),
        }
    }

    async fn look(&self, command: &Command) -> Result<PathBuf, Unavailable> {
        let found = probe::find()?;
        let program = find(&Command { program: "true".into(), ..command.clone() });
        let missing = || Unavailable::Broken("there is no program \"true\" to try it".to_owned());
        let program = program.ok_or_else(missing)?;
        let trial = Command { args: Vec::new(), writes: Vec::new(), ..command.clone() };
        match self.to_its_end(&behind(&found.path, &program, &trial)).await {
            Ok(Some(Output { code: Some(0), .. })) => Ok(found.path),
            Ok(Some(Output { stderr, .. })) if stderr.trim_ascii().is_empty() => {
                Err(Unavailable::Broken("a trial run ended without a word".to_owned()))
            }
            Ok(Some(Output { stderr, .. })) => {
                let said = String::from_utf8_lossy(stderr.trim_ascii()).into_owned();
                Err(probe::explain_said(&found, said))
            }
            // Nobody is told.
            Ok(None) => Err(Unavailable::Broken("the daemon stops".to_owned())),
            Err(RunError::DiskFull) => Err(Unavailable::DiskFull),
            Err(error) => Err(Unavailable::Broken(error.to_string())),
        }
    }

    /// None if it is cut off since the daemon stops.
    async fn to_its_end(&self, command: &Command) -> Result<Option<Output>, RunError> {
        let setup = setup(command, self.umask)?;
        let (child, control) = Outer::bare(&self.program).spawn()?;
        let waiting = Waiting::hello(child, control, &self.records, Whose::default());
        let waiting = waiting.await.map_err(failed)?;
        let nothing = openat(CWD, "/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let (stdout, far_stdout) = io::pipe()?;
        let (stderr, far_stderr) = io::pipe()?;
        let given: [OwnedFd; 3] =
            [nothing.map_err(io::Error::from)?, far_stdout.into(), far_stderr.into()];
        let fds: Vec<_> = given.iter().map(AsFd::as_fd).collect();
        let (mut process, _) = waiting.start(&setup, &fds, None).await.map_err(failed)?;
        // Else their ends would never be read.
        drop(fds);
        drop(given);
        let stdout = bounded(pipe::Receiver::from_owned_fd(stdout.into())?, command.max_output);
        let stderr = bounded(pipe::Receiver::from_owned_fd(stderr.into())?, command.max_output);
        let all = async { tokio::join!(process.wait(), stdout, stderr) };
        let all = tokio::time::timeout(command.timeout, all);
        let Some(ended) = self.stopping.run_until_cancelled(all).await else {
            process.stop(GRACE).await;
            return Ok(None);
        };
        let Ok(ended) = ended else {
            process.stop(GRACE).await;
            return Err(RunError::TimedOut);
        };
        let (exit, (stdout, is_cut), (stderr, _)) = ended;
        let code = match exit {
            Exit::Code(code) => Some(code),
            Exit::Signal(_) => None,
            Exit::Gone => return Err(io::Error::other("it was ended from outside").into()),
        };
        Ok(Some(Output { code, stdout, stderr, is_cut }))
    }
}

impl Run for Outside {
    fn run(&self, command: &Command) -> Result<Output, RunError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        if !command.cwd.is_dir() {
            // To init it would look as if the program were not there.
            return Err(io::Error::from(io::ErrorKind::NotFound).into());
        }
        let running = self.running.token();
        let ended = match self.stopping.is_cancelled() {
            true => Ok(None),
            false => runtime.block_on(pin!(async {
                let command = self.kept(command).await?;
                self.to_its_end(&command).await
            })),
        };
        drop(running);
        match ended {
            Ok(Some(output)) => Ok(output),
            Err(error) if !self.stopping.is_cancelled() => Err(error),
            Ok(None) | Err(_) => loop {
                std::thread::park();
            },
        }
    }

    fn stop(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        self.stopping.cancel();
        self.running.close();
        let ended = async { tokio::time::timeout(STOP, self.running.wait()).await };
        if runtime.block_on(ended).is_err() {
            tracing::warn!("git that runs is left to the next daemon");
        }
    }
}

/// Whether git runs although nothing keeps it from writing elsewhere.
fn may_run_bare(policy: SandboxPolicy, no: &Unavailable) -> bool {
    match policy {
        SandboxPolicy::Off => true,
        SandboxPolicy::Preferred => no.is_lasting(),
        SandboxPolicy::Required => false,
    }
}

/// Where the program of a command lies.
fn find(command: &Command) -> Option<PathBuf> {
    let path = command.env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path)?;
    let mut all = std::env::split_paths(path).map(|folder| folder.join(&command.program));
    all.find(|path| path.is_file())
}

/// A command that bubblewrap keeps from writing elsewhere.
fn behind(keeper: &Path, program: &Path, command: &Command) -> Command {
    let mut args: Vec<OsString> =
        ["--ro-bind", "/", "/", "--dev", "/dev"].map(OsString::from).to_vec();
    for path in &command.writes {
        args.extend(["--bind-try".into(), path.into(), path.into()]);
    }
    args.extend(["--chdir".into(), command.cwd.clone().into(), "--".into(), program.into()]);
    args.extend(command.args.iter().cloned());
    Command { program: keeper.into(), args, ..command.clone() }
}

/// What init is told. The environment is the command's own: nothing of the daemon's is in it.
fn setup(command: &Command, umask: Mode) -> Result<Setup, RunError> {
    let argv = std::iter::once(&command.program).chain(&command.args);
    let argv = argv.map(|word| text(word)).collect::<Result<_, _>>()?;
    let env = command.env.iter().map(|(name, value)| Ok((text(name)?, text(value)?)));
    Ok(Setup {
        argv,
        env: env.collect::<Result<BTreeMap<_, _>, RunError>>()?,
        dir: text(command.cwd.as_os_str())?,
        mounts: Vec::new(),
        in_memory: Vec::new(),
        limits: String::new(),
        egress: false,
        terminal: None,
        umask: Some(umask.bits()),
        sandboxed: false,
    })
}

fn text(word: &OsStr) -> Result<String, RunError> {
    let shown = || io::Error::other(format!("{word:?} is not UTF-8"));
    Ok(word.to_str().ok_or_else(shown)?.to_owned())
}

fn failed(error: Error) -> RunError {
    match error {
        Error::Command { flaw: super::Flaw::Missing, .. } => RunError::Missing,
        Error::DiskFull => RunError::DiskFull,
        error => RunError::Io(io::Error::other(error)),
    }
}

/// Reads to the end, and keeps so many bytes at most. Returns whether there were more.
async fn bounded(mut from: impl AsyncRead + Unpin, most: usize) -> (Vec<u8>, bool) {
    let mut kept = Vec::new();
    // What was read before an error counts.
    let _ = (&mut from).take(most as u64).read_to_end(&mut kept).await;
    let dropped = tokio::io::copy(&mut from, &mut tokio::io::sink()).await.unwrap_or_default();
    (kept, dropped > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_is_let_out_only_where_the_policy_says_so_and_the_reason_stays() {
        let (lasting, passing) = (Unavailable::NotInstalled, Unavailable::Broken("why".to_owned()));
        let of = |policy| (may_run_bare(policy, &lasting), may_run_bare(policy, &passing));
        assert_eq!(of(SandboxPolicy::Off), (true, true));
        assert_eq!(of(SandboxPolicy::Preferred), (true, false));
        assert_eq!(of(SandboxPolicy::Required), (false, false));
        assert!(!may_run_bare(SandboxPolicy::Preferred, &Unavailable::DiskFull));
        assert!(matches!(failed(Error::DiskFull), RunError::DiskFull));
    }
}
