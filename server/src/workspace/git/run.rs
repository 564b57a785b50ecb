//! Running one short command: what git needs of whoever starts processes.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

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
    /// Folders that it may write in. Where there is a sandbox, it can write nowhere else: what a
    /// link that an agent put there leads to stays as it is.
    pub writes: Vec<PathBuf>,
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
    /// It could not be recorded.
    #[error("the disk of the daemon's home is full")]
    DiskFull,
    /// The sandbox that keeps it to its folders cannot be had.
    #[error("it cannot be kept from writing elsewhere: {0}")]
    Unkept(String),
    /// The system said something else.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Runs commands to their end. It blocks.
pub trait Run: std::fmt::Debug + Send + Sync {
    /// Runs a command, and ends it with all that it started when its time is over.
    ///
    /// # Errors
    ///
    /// [`RunError`]; a command that ran and failed is none.
    fn run(&self, command: &Command) -> Result<Output, RunError>;

    /// Ends what runs. Who waits for it, or asks for more, waits until the process ends: to go on
    /// would take for a failure what was cut off.
    fn stop(&self) {}
}

/// Runs nothing: where there is nobody to start processes.
#[derive(Debug, Clone, Copy)]
pub struct Nobody;

impl Run for Nobody {
    fn run(&self, _: &Command) -> Result<Output, RunError> {
        Err(RunError::Io(io::Error::other("there is nobody to start it")))
    }
}

/// Runs commands as processes of a test.
#[cfg(test)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Direct;

#[cfg(test)]
impl Run for Direct {
    fn run(&self, command: &Command) -> Result<Output, RunError> {
        #[expect(clippy::disallowed_methods, reason = "a test has no launcher")]
        let mut process = std::process::Command::new(&command.program);
        let env = command.env.iter().map(|(name, value)| (name, value));
        process.args(&command.args).env_clear().envs(env).current_dir(&command.cwd);
        let mut output = process.stdin(std::process::Stdio::null()).output()?;
        let is_cut = output.stdout.len() > command.max_output;
        output.stdout.truncate(command.max_output);
        let (code, stdout, stderr) = (output.status.code(), output.stdout, output.stderr);
        Ok(Output { code, stdout, stderr, is_cut })
    }
}
