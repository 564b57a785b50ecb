//! One turn of a command-line agent, from its prompt to what ends it.
//!
//! ```text
//!            cancelled
//!  running ─────────────► stopping: in words ──► SIGINT ──► SIGTERM ──► SIGKILL
//!     │ it says so            │ it says so, or its end
//!     ▼                       ▼
//!   over ◄────────────────────┘
//! ```

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable, BoxFuture, FutureExt};
use futures_util::stream::FuturesUnordered;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep_until};

use super::{Dialogue, Step, kept};
use crate::launcher::Exit;
use crate::model::{TurnId, Usage};
use crate::provider::activity::{
    Activity, Decision, Event, PermissionOption, RequestId, TurnOver, own_tool,
};
use crate::provider::failure::{Failed, FailureKind, missing_program};
use crate::provider::process::{Ask, End, GRACE, PIPE_END, Running};
use crate::provider::secret::Secrets;
use crate::provider::{Addition, Question, TurnIo};

/// Bytes that are read at once.
const PIECE: usize = 64 << 10;

/// Bytes that are read of what was written since the last turn, before this one begins.
const MAX_BETWEEN: usize = 4 << 20;

/// What is known of a process whose task ended with the runtime.
const GONE: End = End { exit: Exit::Gone, limit: None };

/// A process and what is said to it.
pub(super) struct Live {
    pub(super) running: Running,
    pub(super) dialogue: Box<dyn Dialogue>,
    /// The kind of agent that it is.
    pub(super) kind: &'static str,
    /// What is not to be told.
    pub(super) secrets: Secrets,
}

/// What a turn came to.
pub(super) enum Came {
    /// It is over; and whether the process can be given another turn.
    Over(TurnOver, bool),
    /// The process ended without having read of it: another one can be given it.
    Untaken,
}

type Answer = (RequestId, Decision);

/// A turn that runs.
struct Work<'a> {
    live: &'a mut Live,
    io: &'a Arc<dyn TurnIo>,
    /// Bytes that it was given before it wrote anything.
    given: usize,
    /// Whether another process can be given the turn, unless this one read of it.
    can_move: bool,
    answers: FuturesUnordered<BoxFuture<'static, Option<Answer>>>,
    questions: BTreeMap<RequestId, AbortHandle>,
    /// A message that the turn does not take yet.
    held: Option<Addition>,
    /// Those that it was told of and has not answered.
    added: VecDeque<Addition>,
    /// What is done next, and when, once the turn is being stopped.
    stop: Option<Option<(Ask, Instant)>>,
    /// Whether it was ended with a signal.
    struck: bool,
    over: Option<TurnOver>,
    /// Whether it was to be told more than it reads.
    is_deaf: bool,
    /// Whether nothing more can be read.
    read_all: bool,
    end: Option<End>,
    /// Until when the other is waited for, when output or process has ended.
    patience: Option<Instant>,
    /// Whether it reads nothing after the prompt.
    is_single: bool,
    /// When it last wrote something.
    heard: Instant,
}

/// Runs a turn.
pub(super) async fn run(
    live: &mut Live,
    is_single: bool,
    (turn, prompt): (TurnId, &str),
    io: &Arc<dyn TurnIo>,
) -> Came {
    let can_move = !std::mem::replace(&mut live.running.fresh, false);
    let mut work = Work {
        live,
        io,
        given: 0,
        can_move,
        answers: FuturesUnordered::new(),
        questions: BTreeMap::new(),
        held: None,
        added: VecDeque::new(),
        stop: None,
        struck: false,
        over: None,
        is_deaf: false,
        read_all: false,
        end: None,
        patience: None,
        is_single,
        heard: Instant::now(),
    };
    match work.catch_up() {
        Ok(()) => work.begin(turn, prompt),
        Err(problem) => work.broken(problem).await,
    }
    let mut piece = vec![0; PIECE];
    loop {
        if let Err(problem) = work.take_lines() {
            work.broken(problem).await;
        }
        work.add();
        if work.is_deaf && work.over.is_none() {
            work.broken("it does not read what it is told".to_owned()).await;
        }
        if let Some(over) = work.over.take() {
            return work.finish(over);
        }
        let is_closed = work.read_all && work.patience.is_none_or(is_past);
        if work.read_all && (work.end.is_some() || is_closed) {
            return work.ended_early().await;
        }
        work.step(&mut piece).await;
    }
}

fn is_past(at: Instant) -> bool {
    at <= Instant::now()
}

/// A prompt that is one: a CLI would take a slash at its beginning for a command of its own, such
/// as one that forgets the conversation.
fn worded(prompt: &str) -> Cow<'_, str> {
    match prompt.trim_start().starts_with('/') {
        true => format!("Message from USER:\n{prompt}").into(),
        false => prompt.into(),
    }
}

impl Work<'_> {
    fn begin(&mut self, turn: TurnId, prompt: &str) {
        let before = self.live.running.input.waiting();
        let steps = self.live.dialogue.start(turn, &worded(prompt));
        self.take(steps);
        self.given = self.live.running.input.waiting() - before;
    }

    /// Waits for what comes next.
    async fn step(&mut self, piece: &mut [u8]) {
        let next_ask = self.stop.flatten().map(|(_, at)| at);
        if self.is_single && !self.live.running.input.is_waiting() {
            self.live.running.close_input();
        }
        let quiet = self.live.dialogue.quiet().map(|quiet| self.heard + quiet);
        let wake = [next_ask, self.patience, quiet].into_iter().flatten().min();
        let Running { input, stdout, lines, ended, .. } = &mut self.live.running;
        let (writing, is_full) = (input.is_waiting(), input.is_full());
        // What is left of one that has ended is no more than a pipe holds.
        let may_read = !self.read_all && (!is_full || self.end.is_some());
        let may_add = self.held.is_none() && self.stop.is_none() && !is_full;
        let end = async { ended.wait_for(Option::is_some).await.ok().and_then(|end| end.clone()) };
        tokio::select! {
            biased;
            () = self.io.cancelled().cancelled(), if self.stop.is_none() => self.begin_stop(),
            () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => self.woken(),
            read = stdout.read(piece), if may_read => match read {
                Ok(count) if count > 0 => {
                    lines.push(&piece[..count]);
                    self.heard = Instant::now();
                }
                _ => {
                    self.read_all = true;
                    self.patience = Some(Instant::now() + GRACE);
                }
            },
            () = input.write(), if writing => {}
            addition = self.io.addition(), if may_add => {
                self.held = Some(addition);
            }
            Some(answer) = self.answers.next(), if !self.answers.is_empty() => {
                if let Some((request, decision)) = answer {
                    self.answered(&request, &decision);
                }
            }
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
        if self.end.is_some() && self.patience.is_some_and(is_past) {
            // Only what never was the program's own can still hold its output.
            self.read_all = true;
        }
        let quiet = self.live.dialogue.quiet();
        if quiet.is_some_and(|quiet| is_past(self.heard + quiet)) {
            let steps = self.live.dialogue.was_quiet();
            self.take(steps);
        }
        let Some((ask, at)) = self.stop.flatten().filter(|(_, at)| is_past(*at)) else { return };
        self.live.running.ask(ask);
        self.struck = true;
        let next = match ask {
            Ask::Interrupt => Some(Ask::Terminate),
            Ask::Terminate => Some(Ask::Kill),
            Ask::Kill => None,
        };
        self.stop = Some(next.map(|next| (next, at + self.io.patience())));
    }

    fn begin_stop(&mut self) {
        self.live.running.because("its turn was stopped");
        let words = self.live.dialogue.interrupt();
        let patience = words.as_ref().map(|_| self.io.patience()).unwrap_or_default();
        if let Some(words) = words {
            self.write(&words);
        }
        self.stop = Some(Some((Ask::Interrupt, Instant::now() + patience)));
        // Who is asked need not answer any more.
        for question in std::mem::take(&mut self.questions).into_values() {
            question.abort();
        }
    }

    /// Tells the turn of a message, as soon as it takes one. What it never takes stays where it is.
    fn add(&mut self) {
        let Some(addition) = self.held.take_if(|_| self.stop.is_none() && self.over.is_none())
        else {
            return;
        };
        match self.live.dialogue.add(&addition.text) {
            Some(line) => {
                self.write(&line);
                self.added.push_back(addition);
            }
            None => self.held = Some(addition),
        }
    }

    fn write(&mut self, line: &str) {
        self.is_deaf |= !self.live.running.input.add(line);
    }

    /// Takes what was written since the last turn, which belongs to none, also what came with the
    /// end of that. Of more than is usual the rest is left to the turn.
    fn catch_up(&mut self) -> Result<(), String> {
        let mut used = Usage::default();
        let caught = self.read_between(&mut used);
        if !used.is_zero() {
            self.io.report_usage(used);
        }
        caught
    }

    fn read_between(&mut self, used: &mut Usage) -> Result<(), String> {
        let mut piece = vec![0; PIECE];
        for _ in 0..MAX_BETWEEN / PIECE {
            while let Some(line) = self.live.running.lines.next() {
                for step in self.live.dialogue.read(&line.map_err(|broken| broken.to_string())?) {
                    match step {
                        Event::Activity(Activity::Used(more)) => *used = used.plus(more),
                        Event::Activity(Activity::Permission { request, .. }) => {
                            self.answered(&request, &Decision::Cancel);
                        }
                        Event::Activity(notice @ Activity::Notice(_)) => {
                            self.io.tell(hidden(notice, &self.live.secrets));
                        }
                        Event::Write(line) => self.write(&line),
                        _ => {}
                    }
                }
            }
            let Running { input, stdout, lines, .. } = &mut self.live.running;
            if input.is_full() {
                break;
            }
            let Ok(count @ 1..) = stdout.try_read(&mut piece) else { break };
            lines.push(&piece[..count]);
        }
        Ok(())
    }

    /// Takes the lines that are there.
    fn take_lines(&mut self) -> Result<(), String> {
        while self.over.is_none() {
            let line = match self.live.running.lines.next() {
                None if self.read_all => self.live.running.lines.last(),
                line => line,
            };
            let Some(line) = line else { return Ok(()) };
            self.can_move = false;
            let steps = self.live.dialogue.read(&line.map_err(|broken| broken.to_string())?);
            self.take(steps);
        }
        Ok(())
    }

    fn take(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Event::Activity(activity) => self.happened(activity),
                Event::Write(line) => self.write(&line),
                Event::Over(over) => {
                    self.over.get_or_insert(over);
                }
                Event::Answer(never) => match never {},
            }
        }
    }

    fn happened(&mut self, activity: Activity) {
        match activity {
            Activity::Permission { request, id, tool, input, options } => {
                if self.stop.is_some() {
                    return self.answered(&request, &Decision::Cancel);
                }
                if own_tool(&tool).is_some() {
                    // The daemon looks at every call of these itself.
                    return self.answered(&request, &Decision::Allow);
                }
                let (io, asked) = (self.io.clone(), request.clone());
                let secrets = &self.live.secrets;
                let hide = |option: PermissionOption| PermissionOption {
                    id: secrets.hide(&option.id),
                    name: secrets.hide(&option.name),
                    ..option
                };
                let question = Question {
                    call: id.map(|id| secrets.hide(&id)),
                    tool: secrets.hide(&tool),
                    input: secrets.hide_in(input),
                    options: options.into_iter().map(hide).collect(),
                };
                let (abort, registration) = AbortHandle::new_pair();
                let answer = async move { (asked, io.ask(question).await) };
                let answer = Abortable::new(answer, registration).map(Result::ok);
                self.answers.push(answer.boxed());
                self.questions.insert(request, abort);
            }
            Activity::Withdrawn { request } => {
                if let Some(question) = self.questions.remove(&request) {
                    question.abort();
                }
            }
            Activity::Session(id) => {
                self.io.tell(Activity::Session(id));
                if let Some(state) = kept::write(&self.live.dialogue.kept(), self.live.kind) {
                    self.io.save(state);
                }
            }
            Activity::Added(outcome) => match (self.added.pop_front(), outcome) {
                (Some(addition), Ok(())) => self.io.taken_in(addition),
                (Some(_), Err(problem)) => {
                    let text = format!("it did not take a message in, which comes next: {problem}");
                    self.io.tell(Activity::Notice(self.live.secrets.hide(&text)));
                }
                (None, _) => self.io.alive(),
            },
            told => self.io.tell(hidden(told, &self.live.secrets)),
        }
    }

    fn answered(&mut self, request: &RequestId, decision: &Decision) {
        self.questions.remove(request);
        if let Some(line) = self.live.dialogue.answer(request, decision) {
            self.write(&line);
        }
    }

    /// What a turn came to that the process says is over.
    fn finish(&mut self, over: TurnOver) -> Came {
        let over = match over {
            _ if self.stop.is_some() => TurnOver::Cancelled,
            TurnOver::Completed { response } => {
                TurnOver::Completed { response: self.live.secrets.hide(&response) }
            }
            TurnOver::Failed(failed) => {
                let message = self.live.secrets.hide(&failed.message);
                TurnOver::Failed(Failed { message, ..failed })
            }
            TurnOver::Cancelled => {
                // Nobody here asked for that.
                TurnOver::Failed(Failed::new(FailureKind::Killed, "it was interrupted from inside"))
            }
        };
        let is_ready = self.live.dialogue.is_ready();
        Came::Over(over, is_ready && !self.struck && self.end.is_none() && !self.read_all)
    }

    /// What it came to when the process, or its output, ended without a word.
    async fn ended_early(&mut self) -> Came {
        let input = &self.live.running.input;
        if self.can_move && self.end.is_some() && input.is_untouched(self.given) {
            return Came::Untaken;
        }
        let has_session = self.live.dialogue.has_session();
        let steps = self.live.dialogue.end();
        self.take(steps);
        let Some(end) = self.end.clone() else {
            let problem = "it closed its output before its turn was done";
            self.end = Some(self.live.running.kill(problem).await);
            return self.finish(TurnOver::Failed(Failed::new(FailureKind::Killed, problem)));
        };
        let failed = match self.over.take() {
            Some(TurnOver::Failed(failed)) => failed,
            _ => Failed::ended(),
        };
        let lacks = (!has_session && failed.kind == FailureKind::Killed)
            .then(|| lacking(end.exit, &self.live.running.complaints()))
            .flatten();
        let failed =
            lacks.unwrap_or_else(|| explained(failed, &end, &self.live.running.last_words()));
        self.finish(TurnOver::Failed(failed))
    }

    /// Ends a process that broke the protocol.
    async fn broken(&mut self, problem: String) {
        self.end = Some(self.live.running.kill("it broke the protocol").await);
        let steps = self.live.dialogue.end();
        self.take(steps);
        self.over = Some(TurnOver::Failed(Failed::new(FailureKind::Protocol, problem)));
    }
}

/// The failure of a process that ended before its session was open, where it says that a program is
/// missing. It may say more after that, such as where it was.
fn lacking(exit: Exit, words: &str) -> Option<Failed> {
    let is_shells = |line: &&str| {
        [": not found", ": No such file or directory"].iter().any(|end| line.ends_with(*end))
    };
    let said = match exit {
        // What a shell, and env, end with where they found no command.
        Exit::Code(127) => {
            missing_program(words).or_else(|| words.lines().map(str::trim).rfind(is_shells))
        }
        Exit::Code(_) => missing_program(words),
        _ => None,
    }?;
    let message = format!("it ended before its session was open: {exit}; it wrote: {said}");
    Some(Failed::new(FailureKind::Missing, message))
}

/// A failure by what the end of its process says, where the process said nothing itself.
fn explained(failed: Failed, end: &End, words: &str) -> Failed {
    if failed.kind != FailureKind::Killed {
        return failed;
    }
    let mut message = format!("it ended before its turn was done: {}", end.exit);
    if let Some(hit) = &end.limit {
        message += &format!("; it met a limit of its workspace: {}", hit.detail);
    }
    if !words.is_empty() {
        message += &format!("; its standard error ends with:\n{words}");
    }
    let kind = match end.exit {
        // It ended itself, for a reason that it may have told.
        Exit::Code(_) => FailureKind::of_text(words).unwrap_or(FailureKind::Killed),
        _ => FailureKind::Killed,
    };
    Failed::new(kind, message)
}

/// What is told, without keys.
fn hidden(activity: Activity, secrets: &Secrets) -> Activity {
    match activity {
        Activity::Text { kind, text } => Activity::Text { kind, text: secrets.hide(&text) },
        Activity::Notice(text) => Activity::Notice(secrets.hide(&text)),
        Activity::ToolStarted { id, tool, input } => {
            let (id, tool) = (secrets.hide(&id), secrets.hide(&tool));
            Activity::ToolStarted { id, tool, input: secrets.hide_in(input) }
        }
        Activity::ToolEnded { id, ok, output } => {
            Activity::ToolEnded { id: secrets.hide(&id), ok, output: secrets.hide(&output) }
        }
        Activity::Retrying { attempt, delay, failure, message } => {
            let message = secrets.hide(&message);
            Activity::Retrying { attempt, delay, failure, message }
        }
        Activity::McpServer { name, ok } => Activity::McpServer { name: secrets.hide(&name), ok },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FailureClass;

    #[test]
    fn one_that_ends_at_its_start_may_say_which_program_is_missing() {
        let node = "node:internal/modules/cjs/loader:1143\n  throw err;\n\n\
                    Error: Cannot find module '@openai/codex/bin/codex.js'\n\
                    Require stack:\n- /a/index.js\n    at b\n}\n\nNode.js v22.0.0\n";
        let told = |exit, words: &str| {
            lacking(exit, words).map(|failed| (failed.kind.class(), failed.message))
        };
        let gone = |exit: &str, said: &str| {
            let message = format!("it ended before its session was open: {exit}; it wrote: {said}");
            Some((FailureClass::ProviderGone, message))
        };
        let module = "Error: Cannot find module '@openai/codex/bin/codex.js'";
        assert_eq!(told(Exit::Code(1), node), gone("exit 1", module));
        let shell = "agent: 3: exec: claude: not found";
        assert_eq!(told(Exit::Code(127), shell), gone("exit 127", shell));
        assert_eq!(told(Exit::Code(1), shell), None);
        assert_eq!(told(Exit::Code(127), "no"), None);
        assert_eq!(told(Exit::Signal(9), node), None);
    }
}
