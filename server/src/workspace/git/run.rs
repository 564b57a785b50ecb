//! Running one short command: what git needs of whoever starts processes.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// A command that ends by itself. It has no input, and no environment but what is named here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// What is run, found on the `PATH` of `env`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where it runs.
    pub cwd: PathBuf,
    /// How long it may take.
    pub timeout: Duration,
    /// Bytes that are kept of each of its outputs; what exceeds them is read and dropped.
    pub max_output: usize,
}

/// What a command left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Output {
    /// Its exit status; none if a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to stdout.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr.
    pub stderr: Vec<u8>,
    /// Whether it wrote more to stdout than was kept.
    pub is_cut: bool,
}

/// Why a command has no output.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no such program.
    #[error("there is no such program")]
    Missing,
    /// It was ended when its time was over.
    #[error("it did not end in time")]
    TimedOut,
    /// The system said something else.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Runs commands to their end. It blocks.
pub trait Run: Send + Sync {
    /// Runs a command, and ends it with all that it started when its time is over.
    ///
    /// # Errors
    ///
    /// [`RunError`]; a command that ran and failed is none.
    fn run(&self, command: &Command) -> Result<Output, RunError>;
}

/// Runs commands as processes of the daemon, in a process group of their own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Direct;

/// What a thread that waits for a part of a process tells.
enum Part {
    Stdout(Vec<u8>, bool),
    Stderr(Vec<u8>),
    Exited,
}

impl Run for Direct {
    fn run(&self, command: &Command) -> Result<Output, RunError> {
        #[expect(clippy::disallowed_methods, reason = "until the launcher runs commands too")]
        let mut process = std::process::Command::new(&command.program);
        process
            .args(&command.args)
            .env_clear()
            .envs(command.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&command.cwd)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = process.spawn().map_err(|error| match error.kind() {
            // A folder that is not there looks the same.
            io::ErrorKind::NotFound if command.cwd.is_dir() => RunError::Missing,
            _ => RunError::Io(error),
        })?;
        let group = Pid::from_child(&child);
        let output = wait(&mut child, group, command);
        if output.is_err() {
            // Not reaped yet, so the number is still its own.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let status = child.wait()?;
        Ok(Output { code: status.code(), ..output? })
    }
}

/// Waits until a process has exited and nobody holds its outputs any more. It is not reaped.
fn wait(child: &mut Child, pid: Pid, command: &Command) -> Result<Output, RunError> {
    let deadline = Instant::now() + command.timeout;
    let most = command.max_output;
    let (tell, told) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        let tell = tell.clone();
        std::thread::spawn(move || {
            let (bytes, is_cut) = read_bounded(stdout, most);
            tell.send(Part::Stdout(bytes, is_cut))
        });
    }
    if let Some(stderr) = child.stderr.take() {
        let tell = tell.clone();
        std::thread::spawn(move || tell.send(Part::Stderr(read_bounded(stderr, most).0)));
    }
    std::thread::spawn(move || {
        let exited = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(pid), exited), Err(rustix::io::Errno::INTR)) {}
        tell.send(Part::Exited)
    });
    let mut output = Output::default();
    loop {
        match told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Part::Stdout(bytes, is_cut)) => (output.stdout, output.is_cut) = (bytes, is_cut),
            Ok(Part::Stderr(bytes)) => output.stderr = bytes,
            Ok(Part::Exited) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => return Err(RunError::TimedOut),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(output),
        }
    }
}

/// Reads to the end, and keeps so many bytes at most. Returns whether there were more.
fn read_bounded(mut from: impl Read, most: usize) -> (Vec<u8>, bool) {
    let mut kept = Vec::new();
    // What was read before an error counts.
    let _ = from.by_ref().take(most as u64).read_to_end(&mut kept);
    let dropped = io::copy(&mut from, &mut io::sink()).unwrap_or_default();
    (kept, dropped > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, timeout: Duration) -> Result<Output, RunError> {
        Direct.run(&Command {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("A".into(), "b".into()), ("PATH".into(), "/usr/bin:/bin".into())],
            cwd: "/".into(),
            timeout,
            max_output: 10,
        })
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_command_has_the_environment_that_it_is_given_and_bounded_outputs() {
        let output = shell("echo $A$HOME; pwd; echo oh >&2; exit 3", LONG).unwrap();
        assert_eq!((output.code, output.is_cut), (Some(3), false));
        assert_eq!((output.stdout, output.stderr), (b"b\n/\n".to_vec(), b"oh\n".to_vec()));
        let output = shell("head -c 1000000 /dev/zero", LONG).unwrap();
        assert_eq!((output.stdout.len(), output.is_cut, output.code), (10, true, Some(0)));
        assert_eq!(shell("kill -9 $$", LONG).unwrap().code, None);
    }

    #[test]
    fn a_command_that_does_not_end_is_ended_with_what_it_started() {
        for script in ["sleep 1000", "sleep 1000 & exit 0", "exec >&- 2>&-; sleep 1000"] {
            let ended = shell(script, Duration::from_millis(50));
            assert!(matches!(ended, Err(RunError::TimedOut)), "{script}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_missing() {
        let missing = Command {
            program: "no-such-program".into(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: "/".into(),
            timeout: LONG,
            max_output: 10,
        };
        assert!(matches!(Direct.run(&missing), Err(RunError::Missing)));
        let nowhere = Command { cwd: "/no/such/folder".into(), ..missing };
        assert!(matches!(Direct.run(&nowhere), Err(RunError::Io(_))));
    }
}
