//! Commands of the daemon's own, outside of every sandbox on purpose: git works on a repository of
//! the user, which no workspace shows. They have no limits either, since the space and the files
//! are the user's. All else is as for every launch: init starts them, each is recorded before it
//! runs, and what they leave behind ends with them, with the daemon, or with the next one.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, openat};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::control::Setup;
use super::leftovers::{Records, Whose};
use super::outer::Outer;
use super::process::Waiting;
use super::{Error, Exit};
use crate::workspace::git::{Command, Output, Run, RunError};

/// How long the end of what is cut off is waited for.
const STOP: Duration = Duration::from_secs(2);

/// Runs commands outside of every sandbox.
#[derive(Debug)]
pub(super) struct Outside {
    records: Records,
    program: PathBuf,
    /// The user's: what they make in a repository is the user's own.
    umask: Mode,
    stopping: CancellationToken,
    running: TaskTracker,
}

impl Outside {
    pub(super) fn new(records: Records, program: PathBuf, umask: Mode) -> Self {
        let (stopping, running) = (CancellationToken::new(), TaskTracker::new());
        Self { records, program, umask, stopping, running }
    }

    async fn to_its_end(&self, command: &Command) -> Result<Output, RunError> {
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
        let Ok(ended) = tokio::time::timeout(command.timeout, all).await else {
            process.kill().await;
            return Err(RunError::TimedOut);
        };
        let (exit, (stdout, is_cut), (stderr, _)) = ended;
        let code = match exit {
            Exit::Code(code) => Some(code),
            Exit::Signal(_) => None,
            Exit::Gone => return Err(io::Error::other("it was ended from outside").into()),
        };
        Ok(Output { code, stdout, stderr, is_cut })
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
        let ended = self.stopping.run_until_cancelled(self.to_its_end(command));
        let ended = runtime.block_on(pin!(ended));
        drop(running);
        match ended {
            Some(ended) => ended,
            None => loop {
                std::thread::park();
            },
        }
    }

    fn stop(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        self.stopping.cancel();
        self.running.close();
        // What is dropped is killed.
        let dropped = async { tokio::time::timeout(STOP, self.running.wait()).await };
        if runtime.block_on(dropped).is_err() {
            tracing::warn!("git that runs is left to the next daemon");
        }
    }
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
        Error::Command { .. } => RunError::Missing,
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
