//! One turn of a program, from its line to what ends it.
//!
//! ```text
//!            cancelled, or its time is up
//!  running ──────────────────────────────► stopping ──► SIGINT ──► SIGTERM ──► SIGKILL
//!     │ done                                  │ done, error, or its end
//!     ▼                                       ▼
//!  finishing ── its calls have come back ─► over
//! ```

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::FuturesUnordered;
use serde_json::value::RawValue;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep_until, timeout};

use super::protocol::{CallOutcome, Said, ToProgram, parse};
use crate::launcher::Exit;
use crate::model::{FailureClass, Json, Usage};
use crate::provider::process::{Ask, End, GRACE, MAX_WAITING, PIPE_END, Running};
use crate::provider::{Failure, OutputKind, TurnIo};

/// Tool calls at once; a program that makes more waits.
const MAX_CALLS: usize = 16;
/// Bytes that are read at once.
const PIECE: usize = 64 << 10;
/// Between two reports of what was used: each is an event.
const USAGE_PAUSE: Duration = Duration::from_secs(1);

/// What is known of a process whose task ended with the runtime.
const GONE: End = End { exit: Exit::Gone, limit: None };

/// What a turn came to.
pub(super) enum Came {
    /// It is done.
    Done { response: String, state: Option<Box<RawValue>> },
    /// It was cancelled.
    Cancelled { keep: bool },
    /// It failed.
    Failed { failure: Failure, keep: bool },
    /// The process ended without having read of it: another one can be given it.
    Untaken,
}

impl Came {
    fn failed(failure: Failure) -> Self {
        Self::Failed { failure, keep: false }
    }

    /// Whether the process can be given another turn.
    pub(super) fn keeps(&self) -> bool {
        match self {
            Self::Done { .. } => true,
            Self::Cancelled { keep } | Self::Failed { keep, .. } => *keep,
            Self::Untaken => false,
        }
    }
}

/// Why a turn is being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Cancelled,
    TimeUp(Duration),
}

/// A turn that is being stopped.
struct Stop {
    why: Why,
    /// What is done when the time comes.
    next: Option<(Ask, Instant)>,
}

type Call = (Box<RawValue>, Result<Json, String>);

/// A turn that runs.
struct Work<'a> {
    running: &'a mut Running,
    io: &'a Arc<dyn TurnIo>,
    /// Bytes of the line that it was given.
    given: usize,
    /// Whether another process can be given the turn, unless this one read of it.
    can_move: bool,
    time_up: Option<(Instant, Duration)>,
    calls: FuturesUnordered<BoxFuture<'static, Call>>,
    used: Meter,
    stop: Option<Stop>,
    /// The answer, for which only calls are waited.
    answer: Option<(String, Option<Box<RawValue>>)>,
    /// Whether nothing more can be read.
    read_all: bool,
    end: Option<End>,
    /// Until when the other is waited for, when output or process has ended.
    patience: Option<Instant>,
}

/// Runs a turn.
pub(super) async fn run(
    running: &mut Running,
    line: &ToProgram<'_>,
    io: &Arc<dyn TurnIo>,
    limit: Option<Duration>,
) -> Came {
    let bytes = running.input.queue();
    let before = bytes.len();
    if let Err(failure) = line.write_to(bytes) {
        return Came::failed(failure);
    }
    let given = bytes.len() - before;
    let mut work = Work {
        given,
        can_move: !std::mem::replace(&mut running.fresh, false),
        running,
        io,
        time_up: limit.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit))),
        calls: FuturesUnordered::new(),
        used: Meter::new(io.clone()),
        stop: None,
        answer: None,
        read_all: false,
        end: None,
        patience: None,
    };
    let mut piece = vec![0; PIECE];
    loop {
        if let Some(came) = work.take_lines() {
            return match came {
                Ok(came) => came,
                Err(problem) => work.broken(&problem).await,
            };
        }
        if let Some(came) = work.over() {
            return came;
        }
        if work.read_all && work.listens() && work.end.is_some() {
            return work.ended_early();
        }
        if work.read_all && work.listens() && work.patience.is_none_or(is_past) {
            return work.closed().await;
        }
        if work.can_move && work.running.input.is_closed() {
            return work.deaf().await;
        }
        work.step(&mut piece).await;
    }
}

fn is_past(at: Instant) -> bool {
    at <= Instant::now()
}

impl Work<'_> {
    /// Whether it takes what the program says: not after its answer, or where it has made as many
    /// calls as it may.
    fn listens(&self) -> bool {
        self.answer.is_none() && self.calls.len() < MAX_CALLS
    }

    /// Waits for what comes next.
    async fn step(&mut self, piece: &mut [u8]) {
        let may_read = !self.read_all
            && self.listens()
            && (self.running.input.waiting() < MAX_WAITING || self.end.is_some());
        let next_ask = self.stop.as_ref().and_then(|stop| stop.next);
        let timers = [
            next_ask.map(|(_, at)| at),
            self.time_up.filter(|_| self.stop.is_none()).map(|(at, _)| at),
            self.patience.filter(|_| self.listens()),
            self.used.due(),
        ];
        let wake = timers.into_iter().flatten().min();
        let Running { input, stdout, lines, ended, .. } = &mut *self.running;
        let writing = input.is_waiting();
        let end = async { ended.wait_for(Option::is_some).await.ok().and_then(|end| end.clone()) };
        tokio::select! {
            biased;
            () = self.io.cancelled().cancelled(), if self.stop.is_none() => {
                self.begin_stop(Why::Cancelled);
            }
            () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => self.woken(),
            () = input.write(), if writing => {}
            Some((id, result)) = self.calls.next(), if !self.calls.is_empty() => {
                self.returned(&id, &result);
            }
            read = stdout.read(piece), if may_read => match read {
                Ok(count) if count > 0 => lines.push(&piece[..count]),
                _ => {
                    self.read_all = true;
                    self.patience = Some(Instant::now() + GRACE);
                }
            },
            end = end, if self.end.is_none() => {
                self.end = Some(end.unwrap_or(GONE));
                if !self.read_all {
                    self.patience = Some(Instant::now() + PIPE_END);
                }
            }
        }
    }

    /// Does what it is time for.
    fn woken(&mut self) {
        if self.used.due().is_some_and(is_past) {
            self.used.report();
        }
        if let Some((_, limit)) = self.time_up.filter(|(at, _)| self.stop.is_none() && is_past(*at))
        {
            self.begin_stop(Why::TimeUp(limit));
        }
        if self.end.is_some() && self.listens() && self.patience.is_some_and(is_past) {
            // Only what never was the program's own can still hold its output.
            self.read_all = true;
        }
        let Some(stop) = &mut self.stop else { return };
        if let Some((ask, at)) = stop.next.filter(|(_, at)| is_past(*at)) {
            self.running.ask(ask);
            let next = match ask {
                Ask::Interrupt => Some(Ask::Terminate),
                Ask::Terminate => Some(Ask::Kill),
                Ask::Kill => None,
            };
            stop.next = next.map(|next| (next, at + self.io.patience()));
        }
    }

    fn begin_stop(&mut self, why: Why) {
        let reason = match why {
            Why::Cancelled => "its turn was cancelled",
            Why::TimeUp(_) => "the time of its turn was up",
        };
        self.running.because(reason);
        // There is nothing in it that could not be told.
        let _ = ToProgram::Cancel.write_to(self.running.input.queue());
        self.stop =
            Some(Stop { why, next: Some((Ask::Interrupt, Instant::now() + self.io.patience())) });
    }

    /// Takes the lines that are there, as far as calls have room.
    fn take_lines(&mut self) -> Option<Result<Came, String>> {
        while self.listens() {
            let line = match self.running.lines.next() {
                None if self.read_all => self.running.lines.last()?,
                line => line?,
            };
            let said = match line.map_err(|broken| broken.to_string()).and_then(|line| parse(&line))
            {
                Ok(said) => said,
                // What it says when it is ended may break off.
                Err(_) if self.stop.is_some() && self.end.is_some() => continue,
                Err(problem) => return Some(Err(problem)),
            };
            if let Some(came) = self.take(said) {
                return Some(Ok(came));
            }
        }
        None
    }

    fn take(&mut self, said: Said) -> Option<Came> {
        self.can_move = false;
        self.io.alive();
        match said {
            Said::Text(text) => self.io.emit(OutputKind::Text, &text),
            Said::Thinking(text) => self.io.emit(OutputKind::Thinking, &text),
            Said::Usage(usage) => self.used.add(usage),
            Said::Call { id, tool, args } => {
                let io = self.io.clone();
                let call = async move { (id, io.call_tool(&tool, args).await) };
                self.calls.push(call.boxed());
            }
            Said::Done { .. } | Said::Error(_) if self.stop.is_some() => {
                return Some(self.stopped(self.end.is_none()));
            }
            Said::Done { response, state } => self.answer = Some((response, state)),
            Said::Error(failure) => return Some(Came::Failed { failure, keep: true }),
        }
        None
    }

    /// Writes what a call came to.
    fn returned(&mut self, id: &RawValue, result: &Result<Json, String>) {
        if self.calls.len() + 1 == MAX_CALLS && self.end.is_some() && !self.read_all {
            // It is read again only now.
            self.patience = Some(Instant::now() + PIPE_END);
        }
        let outcome = match result {
            Ok(result) => CallOutcome::Result(result),
            Err(error) => CallOutcome::Error(error),
        };
        let line = ToProgram::Result { id, outcome };
        // It is made of what was JSON before.
        let _ = line.write_to(self.running.input.queue());
    }

    /// What a turn came to that was stopped.
    fn stopped(&self, keep: bool) -> Came {
        match self.stop.as_ref().map(|stop| stop.why) {
            Some(Why::TimeUp(limit)) => {
                let message = format!(
                    "the turn was not done after {} s; a turn may take as long as \
                     program.turn_seconds says",
                    limit.as_secs()
                );
                Came::Failed { failure: Failure::permanent(message), keep }
            }
            _ => Came::Cancelled { keep },
        }
    }

    /// What it came to if all is there.
    fn over(&mut self) -> Option<Came> {
        if self.stop.is_some() && self.answer.is_some() {
            return Some(self.stopped(self.end.is_none()));
        }
        if !self.calls.is_empty() {
            return None;
        }
        let (response, state) = self.answer.take()?;
        Some(Came::Done { response, state })
    }

    /// What it came to when the process ended without an answer.
    fn ended_early(&self) -> Came {
        let Some(End { exit, limit }) = &self.end else { return Came::Untaken };
        if self.stop.is_some() {
            return self.stopped(false);
        }
        if self.can_move && self.running.input.is_untouched(self.given) {
            return Came::Untaken;
        }
        let why = match limit {
            Some(hit) => format!("; it met a limit of its workspace: {}", hit.detail),
            None => String::new(),
        };
        let failed = format!("the program ended before its turn was done: {exit}{why}");
        Came::failed(Failure::new(FailureClass::Killed, self.with_last_words(failed)))
    }

    fn with_last_words(&self, failed: String) -> String {
        match self.running.last_words() {
            words if words.is_empty() => failed,
            words => format!("{failed}; its standard error ends with:\n{words}"),
        }
    }

    /// Ends a process that takes no more turns.
    async fn deaf(&mut self) -> Came {
        // It may be just about to end.
        if timeout(GRACE, self.running.wait()).await.is_err() {
            self.running.stop("it closed its input").await;
        }
        Came::Untaken
    }

    /// Ends a process that closed its output.
    async fn closed(&mut self) -> Came {
        self.running.kill("it closed its output before its turn was done").await;
        if self.stop.is_some() {
            return self.stopped(false);
        }
        let failed = "the program closed its output before its turn was done".to_owned();
        Came::failed(Failure::new(FailureClass::Killed, self.with_last_words(failed)))
    }

    /// Ends a process that broke the protocol.
    async fn broken(&mut self, problem: &str) -> Came {
        self.running.kill("it broke the protocol").await;
        if self.stop.is_some() {
            return self.stopped(false);
        }
        let failed = format!("the program broke the protocol: {problem}");
        Came::failed(Failure::new(FailureClass::Protocol, self.with_last_words(failed)))
    }
}

/// Tells what was used, now and then.
struct Meter {
    io: Arc<dyn TurnIo>,
    used: Usage,
    /// When the next report may come.
    next: Option<Instant>,
}

impl Meter {
    fn new(io: Arc<dyn TurnIo>) -> Self {
        Self { io, used: Usage::default(), next: None }
    }

    fn add(&mut self, usage: Usage) {
        self.used = self.used.plus(usage);
        if self.next.is_none_or(is_past) {
            self.report();
        }
    }

    /// When something is to be reported.
    fn due(&self) -> Option<Instant> {
        self.next.filter(|_| !self.used.is_zero())
    }

    fn report(&mut self) {
        if !self.used.is_zero() {
            self.io.report_usage(std::mem::take(&mut self.used));
            self.next = Some(Instant::now() + USAGE_PAUSE);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.report();
    }
}
