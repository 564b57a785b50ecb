//! A program that runs. A task of its own reads its standard error, hears of limits and of its
//! end, and tells them at once, between turns too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::stderr::Tail;
use crate::launcher::limits::Hit;
use crate::launcher::{Ends, Error, Exit, Flaw, Launch, Launched, Launcher, Process};
use crate::model::{FailureClass, World};
use crate::provider::lines::Lines;
use crate::provider::{Failure, TurnIo};

/// How long something that is about to happen is waited for.
pub(in crate::provider) const GRACE: Duration = Duration::from_secs(5);
/// How long the end of a pipe is waited for whose process has ended.
pub(in crate::provider) const PIPE_END: Duration = Duration::from_secs(1);

/// Bytes that are read between two turns of one that writes blank lines.
const MAX_BLANKS: usize = 64 << 10;
/// Bytes that may wait to be read by it before its output waits.
pub(in crate::provider) const MAX_WAITING: usize = 1 << 20;
/// Bytes that may wait to be read by it at all, beside a line.
const MAX_UNREAD: usize = 8 << 20;

/// What its task is asked for.
#[derive(Debug)]
enum Task {
    /// To ask it to end.
    End(Ask),
    /// To read what it has written to its standard error by now.
    Stderr(oneshot::Sender<()>),
}

/// How it is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::provider) enum Ask {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGKILL, to all that it started too.
    Kill,
}

/// How it ended.
#[derive(Debug, Clone)]
pub(in crate::provider) struct End {
    pub(in crate::provider) exit: Exit,
    /// Which limit ended it.
    pub(in crate::provider) limit: Option<Hit>,
}

/// What its task shares with its session.
struct Shared {
    stderr: Mutex<Tail>,
    /// Where news is told.
    io: Mutex<Arc<dyn TurnIo>>,
    /// Why it is to end.
    reason: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing under these locks can be left half done by a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program that runs, until this is dropped.
pub(in crate::provider) struct Running {
    /// What it sees.
    pub(in crate::provider) world: Option<World>,
    /// Whether no turn was given to it.
    pub(in crate::provider) fresh: bool,
    /// Why it has no sandbox, if it has none.
    pub(in crate::provider) unsandboxed: Option<String>,
    pub(in crate::provider) input: Input,
    pub(in crate::provider) stdout: pipe::Receiver,
    pub(in crate::provider) lines: Lines,
    pub(in crate::provider) ended: watch::Receiver<Option<End>>,
    asks: mpsc::UnboundedSender<Task>,
    shared: Arc<Shared>,
    /// Holds the process.
    _task: JoinSet<()>,
}

/// What it is to read.
#[derive(Default)]
pub(in crate::provider) struct Input {
    pipe: Option<pipe::Sender>,
    /// Whether nobody reads it.
    closed: bool,
    bytes: Vec<u8>,
    written: usize,
    /// Bytes of the longest line that was queued.
    longest: usize,
}

impl Input {
    /// Adds a line to what is to be written. False if too much waits.
    pub(in crate::provider) fn add(&mut self, line: &str) -> bool {
        if self.closed {
            return true;
        }
        self.longest = self.longest.max(line.len());
        if self.waiting() > MAX_UNREAD + self.longest {
            return false;
        }
        self.queue().extend_from_slice(line.as_bytes());
        true
    }

    /// Whether so much waits, beside one line, that nothing more is to be made of its output.
    pub(in crate::provider) fn is_full(&self) -> bool {
        !self.closed && self.waiting() > MAX_WAITING + self.longest
    }

    /// Adds to what is to be written.
    pub(in crate::provider) fn queue(&mut self) -> &mut Vec<u8> {
        self.bytes.drain(..self.written);
        self.written = 0;
        &mut self.bytes
    }

    /// Whether there is something that can be written.
    pub(in crate::provider) fn is_waiting(&self) -> bool {
        !self.closed && self.written < self.bytes.len()
    }

    /// Whether nobody reads it.
    pub(in crate::provider) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Bytes that wait.
    pub(in crate::provider) fn waiting(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Writes some. Nothing is lost when this is dropped.
    pub(in crate::provider) async fn write(&mut self) {
        let Some(pipe) = &mut self.pipe else { return self.closed = true };
        match pipe.write(&self.bytes[self.written..]).await {
            Ok(count) => self.written += count,
            // A program need not read what it is told.
            Err(_) => self.closed = true,
        }
    }

    /// Whether the last so many bytes that were queued are all unread.
    pub(in crate::provider) fn is_untouched(&self, bytes: usize) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        let in_pipe = rustix::io::ioctl_fionread(pipe).unwrap_or(0);
        usize::try_from(in_pipe).unwrap_or(0) + self.waiting() >= bytes
    }
}

impl Running {
    /// Starts it. `named` says where a command that is not found is named.
    pub(in crate::provider) async fn start(
        launcher: &Launcher,
        launch: Launch,
        lines: Lines,
        named: &str,
        io: &Arc<dyn TurnIo>,
    ) -> Result<Self, Failure> {
        let world = launch.world.clone();
        let Launched { process, ends, unsandboxed } =
            launcher.start(launch).await.map_err(|error| refused(&error, named))?;
        let Ends::Pipes { stdin, stdout, stderr } = ends else {
            return Err(Failure::permanent("the program has no pipes"));
        };
        let (asks, asked) = mpsc::unbounded_channel();
        let (tell, ended) = watch::channel(None);
        let shared = Arc::new(Shared {
            stderr: Mutex::default(),
            io: Mutex::new(io.clone()),
            reason: Mutex::default(),
        });
        let mut task = JoinSet::new();
        task.spawn(attend(process, stderr, asked, shared.clone(), tell));
        let input = Input { pipe: Some(stdin), ..Input::default() };
        Ok(Self {
            world,
            fresh: true,
            unsandboxed,
            input,
            stdout,
            lines,
            ended,
            asks,
            shared,
            _task: task,
        })
    }

    /// Closes its input: most programs end then.
    pub(in crate::provider) fn close_input(&mut self) {
        self.input.pipe = None;
    }

    /// Where its news is told.
    pub(in crate::provider) fn io(&self) -> Arc<dyn TurnIo> {
        lock(&self.shared.io).clone()
    }

    /// Has news told to this turn from now on.
    pub(in crate::provider) fn tell(&self, io: &Arc<dyn TurnIo>) {
        *lock(&self.shared.io) = io.clone();
    }

    /// How long it has between two steps towards its end.
    fn patience(&self) -> Duration {
        lock(&self.shared.io).patience()
    }

    /// Asks it to end.
    pub(in crate::provider) fn ask(&self, ask: Ask) {
        // One that has ended has nothing to be asked.
        let _ = self.asks.send(Task::End(ask));
    }

    /// Says why it is to end, unless that was said.
    pub(in crate::provider) fn because(&self, reason: &str) {
        lock(&self.shared.reason).get_or_insert_with(|| reason.to_owned());
    }

    /// How it ended, if it did.
    pub(in crate::provider) fn end(&self) -> Option<End> {
        self.ended.borrow().clone()
    }

    /// Whether it has written, or ended its output, when it had nothing to say. A few blank lines
    /// say nothing; who writes them without end is not read without end.
    pub(in crate::provider) fn spoke_unasked(&mut self) -> bool {
        let mut piece = [0; 4096];
        for _ in 0..MAX_BLANKS / piece.len() {
            match self.stdout.try_read(&mut piece) {
                Ok(0) => return true,
                Ok(count) => self.lines.push(&piece[..count]),
                Err(_) => return self.lines.has_more(),
            }
            if self.lines.has_more() {
                return true;
            }
        }
        true
    }

    /// Takes what it wrote to its standard error, and how many bytes that was.
    pub(in crate::provider) async fn take_stderr(&self) -> Option<(String, u64)> {
        let (read, done) = oneshot::channel();
        // Of one that has ended all is read.
        if self.asks.send(Task::Stderr(read)).is_ok() {
            let _ = done.await;
        }
        lock(&self.shared.stderr).take()
    }

    /// All that is kept of what it wrote to its standard error.
    pub(in crate::provider) fn complaints(&self) -> String {
        lock(&self.shared.stderr).kept()
    }

    /// The last lines that it wrote to its standard error.
    pub(in crate::provider) fn last_words(&self) -> String {
        lock(&self.shared.stderr).last_words()
    }

    /// Ends it: closes its input, and asks more and more firmly.
    pub(in crate::provider) async fn stop(&mut self, reason: &str) -> End {
        self.because(reason);
        self.close_input();
        match timeout(self.patience(), self.wait()).await {
            Ok(end) => end,
            Err(_) => self.terminate(reason).await,
        }
    }

    /// Ends it without further ado, but not at once.
    pub(in crate::provider) async fn terminate(&mut self, reason: &str) -> End {
        self.because(reason);
        self.ask(Ask::Terminate);
        match timeout(self.patience(), self.wait()).await {
            Ok(end) => end,
            Err(_) => self.kill(reason).await,
        }
    }

    /// Ends it at once.
    pub(in crate::provider) async fn kill(&mut self, reason: &str) -> End {
        self.because(reason);
        self.ask(Ask::Kill);
        self.wait().await
    }

    /// Waits for its end.
    pub(in crate::provider) async fn wait(&mut self) -> End {
        let ended = self.ended.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        // Its task tells of its end before it ends itself, unless it was ended with the runtime.
        ended.unwrap_or(End { exit: Exit::Gone, limit: None })
    }
}

/// Attends to a process until it has ended and all is told of it.
async fn attend(
    mut process: Process,
    mut stderr: pipe::Receiver,
    mut asks: mpsc::UnboundedReceiver<Task>,
    shared: Arc<Shared>,
    ended: watch::Sender<Option<End>>,
) {
    let mut waiting = process.take_hits();
    let mut hits: Vec<Hit> = Vec::new();
    let tell = |hit: &Hit| lock(&shared.io).report_limit(hit.kind, &hit.detail);
    let (mut piece, mut open) = (vec![0; 16 << 10], true);
    let exit = loop {
        tokio::select! {
            exit = process.wait() => break exit,
            Some(task) = asks.recv() => match task {
                Task::End(Ask::Interrupt) => process.interrupt(),
                Task::End(Ask::Terminate) => process.terminate(),
                Task::End(Ask::Kill) => break process.kill().await,
                Task::Stderr(done) => {
                    let mut left = rustix::io::ioctl_fionread(&stderr).unwrap_or(0);
                    while left > 0
                        && let Ok(count) = stderr.read(&mut piece).await
                        && count > 0
                    {
                        lock(&shared.stderr).push(&piece[..count]);
                        left = left.saturating_sub(count as u64);
                    }
                    // A turn that was dropped does not wait.
                    let _ = done.send(());
                }
            },
            Some(hit) = waiting.recv() => {
                tell(&hit);
                hits.push(hit);
            }
            read = stderr.read(&mut piece), if open => match read {
                Ok(count) if count > 0 => lock(&shared.stderr).push(&piece[..count]),
                _ => open = false,
            },
        }
    };
    let rest = async {
        while let Ok(count) = stderr.read(&mut piece).await
            && count > 0
        {
            lock(&shared.stderr).push(&piece[..count]);
        }
    };
    // Nothing of it is left that could write; only what never was its own can hold the pipe.
    let _ = timeout(PIPE_END, rest).await;
    while let Some(hit) = waiting.recv().await {
        tell(&hit);
        hits.push(hit);
    }
    let limit = process.explain(exit, &hits);
    if let Some(limit) = limit.as_ref().filter(|limit| !hits.contains(limit)) {
        tell(limit);
    }
    let reason = match (&limit, lock(&shared.reason).clone()) {
        (Some(limit), _) => Some(limit.detail.clone()),
        (None, reason) => reason,
    };
    let pid = u32::try_from(process.pid()).unwrap_or_default();
    lock(&shared.io).report_exit(pid, &exit.to_string(), reason.as_deref());
    ended.send_replace(Some(End { exit, limit }));
}

/// Why a program was not started, and what to do about it.
fn refused(error: &Error, named: &str) -> Failure {
    let (class, next) = match error {
        Error::DiskFull => (FailureClass::Sandbox, "; make room there"),
        Error::Unavailable(no) if !no.is_lasting() => {
            (FailureClass::Sandbox, "; the daemon's log may say more")
        }
        Error::Unavailable(_) => (
            FailureClass::Sandbox,
            "; or let programs run without one, with sandbox.policy = \"preferred\"",
        ),
        Error::Mount { .. }
        | Error::Command { of_folder: true, .. }
        | Error::Command { flaw: Flaw::Busy, .. } => {
            let message = format!("{error}; {}", error.hint());
            return Failure { class: FailureClass::Sandbox, message, retry_after: None };
        }
        Error::TooManyMounts { .. } => (FailureClass::Sandbox, "; remove links"),
        Error::Command { flaw: Flaw::Missing, .. } => (FailureClass::Permanent, named),
        Error::Command { .. } => {
            let message = format!("{error}; {}", error.hint());
            return Failure { class: FailureClass::Permanent, message, retry_after: None };
        }
        Error::Setup { .. } => (FailureClass::Sandbox, "; the daemon's log may say more"),
    };
    Failure { class, message: format!("{error}{next}"), retry_after: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_does_not_read_is_bounded() {
        let (mut input, line) = (Input::default(), "x".repeat(1 << 20));
        let mut lines = 0;
        while input.add(&line) {
            lines += 1;
            assert_eq!(input.is_full(), lines > 2, "{lines}");
        }
        assert_eq!((lines, input.waiting()), (10, 10 << 20));
        input.closed = true;
        assert!(input.add(&line) && !input.is_full());
        assert_eq!(input.waiting(), 10 << 20, "nobody reads it");
    }
}
