//! The loop around the core: it waits, the core decides, the journal makes durable, and what
//! follows is released in order.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::answers::{Answers, unanswered};
use super::attendance::Attendance;
use super::by_agent::ByAgent;
use super::calls::Calls;
use super::core::{Core, Release, Staged};
use super::handle::{Answer, Done, Errand, Handle, Input, Refusal, Report, Shared, Told};
use super::permission::Questions;
use super::runner::Runners;
use super::{Archive, CheckpointDone, Clock, Feed, Limits, Outputs, Parts, Sink, ToolSockets};
use crate::journal::{self, Completion, Journal};
use crate::model::{
    Command, Effect, IdSource, MessageId, Outcome, Policy, Rejection, Request, Snapshot, State,
};
use crate::workspace::Files;

/// Bytes of what is written at the end of one agent, at most.
const LONGEST_END: u64 = 4 << 10;
/// Inputs that are decided before the batch goes to the journal.
const MAX_BATCH: usize = 512;
/// How long a turn that was asked to end may take before its session is closed: longer than a
/// program takes that has to be killed.
const CANCEL_GRACE: Duration = Duration::from_secs(20);
/// Longest time that running turns may go on when the daemon stops: what is asked for beyond it
/// would not fit the clock.
const LONGEST_DRAIN: Duration = Duration::from_secs(365 * 86_400);
/// How long nothing has to happen before an idle checkpoint.
const IDLE: Duration = Duration::from_secs(30);
/// Bytes of journal that make an idle checkpoint worth it.
const IDLE_BYTES: u64 = 256 << 10;
/// How soon to look again whether a backlog went down.
const BACKLOG_RETRY: Duration = Duration::from_millis(2);

/// The journal failed: nothing more is acknowledged, and the process must end.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the journal failed; nothing more is acknowledged: {0}")]
pub struct Fatal(#[from] journal::Error);

/// The engine ended because it was told to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Sequence of the last event, `daemon.stopped`.
    pub sequence: u64,
}

/// A batch on its way to the disk, and what follows from it.
struct InFlight {
    completion: Option<Completion>,
    release: Release,
    checkpoint: Option<(u64, Vec<u8>, Option<CheckpointDone>)>,
}

struct Drain {
    until: Instant,
    cancelled: bool,
    /// Sessions that did not end were closed.
    closed: bool,
    /// Whoever still has something to tell is not waited for any more.
    abandons: bool,
    /// The last event was staged.
    stopped: bool,
}

/// The engine before it runs.
pub struct Engine {
    driver: Driver,
    effects: Vec<Effect>,
}

pub(super) struct Driver {
    pub(super) core: Core,
    pub(super) handle: Handle,
    pub(super) runners: Runners,
    pub(super) sockets: Arc<dyn ToolSockets>,
    pub(super) files: Files,
    pub(super) shells: Arc<dyn super::Shells>,
    pub(super) calls: Calls,
    pub(super) questions: Questions,
    answers: Answers,
    inputs: mpsc::Receiver<Input>,
    reports: mpsc::UnboundedReceiver<Report>,
    journal: Journal,
    full: watch::Receiver<bool>,
    sink: Box<dyn Sink>,
    limits: Limits,
    pub(super) clock: Clock,
    in_flight: VecDeque<InFlight>,
    /// Bytes of journal since the last checkpoint was taken.
    since_checkpoint: u64,
    checkpoint_bytes: u64,
    checkpoint_wanted: Vec<CheckpointDone>,
    idle_since: Instant,
    drain: Option<Drain>,
    /// Errands that are not over.
    errands: usize,
}

impl Engine {
    /// An engine that goes on from a state, with what is to be done in the world first.
    pub fn new(
        state: State,
        effects: Vec<Effect>,
        policy: Policy,
        ids: Box<dyn IdSource + Send>,
        archive: Arc<dyn Archive>,
        parts: Parts,
    ) -> (Self, Handle) {
        let (input_sender, inputs) = mpsc::channel(4096);
        let (report_sender, reports) = mpsc::unbounded_channel();
        let mut ids = ids;
        let shared = Shared {
            feed: Feed::new(state.seq()),
            outputs: Outputs::default(),
            archive,
            providers: parts.providers,
            files: parts.files.clone(),
            shells: parts.shells.clone(),
            pulses: ByAgent::default(),
            secrets: ByAgent::default(),
            attendance: Attendance::default(),
            draining: watch::Sender::new(false),
            calls: AtomicU64::new(ids.next_u128() as u64),
            history_bytes: parts.limits.history_bytes,
        };
        let handle =
            Handle { inputs: input_sender, reports: report_sender, shared: Arc::new(shared) };
        let driver = Driver {
            core: Core::new(state, policy, ids, parts.limits.max_record),
            handle: handle.clone(),
            runners: Runners::default(),
            sockets: parts.sockets,
            files: parts.files,
            shells: parts.shells,
            calls: Calls::default(),
            questions: Questions::default(),
            answers: Answers::default(),
            inputs,
            reports,
            full: parts.journal.watch_full(),
            journal: parts.journal,
            sink: parts.sink,
            checkpoint_bytes: parts.limits.checkpoint_bytes,
            limits: parts.limits,
            clock: parts.clock,
            in_flight: VecDeque::new(),
            since_checkpoint: 0,
            checkpoint_wanted: Vec::new(),
            idle_since: Instant::now(),
            drain: None,
            errands: 0,
        };
        (Self { driver, effects }, handle)
    }

    /// Runs until it is drained or fails.
    pub async fn run(self) -> Result<Ended, Fatal> {
        let Self { mut driver, effects } = self;
        for effect in effects {
            driver.act(effect);
        }
        let ended = driver.run().await;
        driver.runners.close_all();
        ended
    }
}

impl Driver {
    async fn run(&mut self) -> Result<Ended, Fatal> {
        loop {
            let full = self.journal.is_full();
            let accepting = full || self.backlog() < self.limits.max_backlog;
            let wake = self.next_wake(accepting);
            tokio::select! {
                biased;
                durable = front(&mut self.in_flight) => {
                    durable?;
                    self.release_front();
                }
                report = self.reports.recv(), if !full => {
                    if let Some(report) = report {
                        self.report(report);
                    }
                }
                input = self.inputs.recv(), if accepting => {
                    if let Some(input) = input {
                        self.input(input);
                    }
                }
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)),
                    if wake.is_some() => self.woken(),
                changed = self.full.changed() => {
                    // The journal outlives this loop.
                    let _ = changed;
                }
            }
            self.take_more();
            self.stage();
            if let Some(ended) = self.ended() {
                return Ok(ended);
            }
        }
    }

    /// Decides what else is there already, so that it goes into the same batch.
    fn take_more(&mut self) {
        if !self.journal.is_full() {
            for _ in 0..MAX_BATCH {
                match self.reports.try_recv() {
                    Ok(report) => self.report(report),
                    Err(_) => break,
                }
            }
        }
        if self.backlog() < self.limits.max_backlog {
            for _ in 0..MAX_BATCH {
                match self.inputs.try_recv() {
                    Ok(input) => self.input(input),
                    Err(_) => break,
                }
            }
        }
    }

    fn backlog(&self) -> u64 {
        self.journal.queued_bytes() + self.sink.backlog()
    }

    fn next_wake(&self, accepting: bool) -> Option<Instant> {
        let wait =
            self.core.state().next_deadline().map(|at| Instant::now() + at.since((self.clock)()));
        let idle = (self.since_checkpoint >= IDLE_BYTES).then(|| self.idle_since + IDLE);
        let drain = self.drain.as_ref().filter(|drain| !drain.stopped).map(|drain| drain.until);
        let retry = (!accepting).then(|| Instant::now() + BACKLOG_RETRY);
        [wait, idle, drain, retry].into_iter().flatten().min()
    }

    fn woken(&mut self) {
        let time = Instant::now();
        if self.core.state().next_deadline().is_some_and(|at| at <= (self.clock)()) {
            self.command(Command::Tick);
        }
        if self.since_checkpoint >= IDLE_BYTES && time >= self.idle_since + IDLE {
            self.checkpoint_bytes = 0;
        }
        if let Some(drain) = self.drain.as_mut().filter(|drain| time >= drain.until) {
            if !drain.cancelled {
                drain.cancelled = true;
                drain.until = time + CANCEL_GRACE;
                self.command(Command::CancelAll);
            } else if !drain.stopped {
                drain.until = time + CANCEL_GRACE;
                drain.abandons = std::mem::replace(&mut drain.closed, true);
                self.close_live_sessions();
            }
        }
    }

    /// Closes the sessions that did not end when they were asked to.
    fn close_live_sessions(&mut self) {
        let agents = self.core.state().agents();
        let live = agents.filter(|agent| agent.turn().is_some());
        let live: Vec<_> = live.map(|agent| (agent.id, agent.session.id)).collect();
        for (agent, session) in live {
            self.runners.close(session, "it did not end in time when the daemon stopped");
            let reason = "it did not end in time when the daemon stopped".to_owned();
            let attended = self.attended(agent);
            self.command(Command::Crash { session, reason, attended });
        }
    }

    /// Something that is waited for when the daemon stops.
    pub(super) fn errand(&mut self) -> Errand {
        self.errands += 1;
        Errand::new(&self.handle.reports)
    }

    pub(super) fn command(&mut self, command: Command) {
        if let Err(rejection) = self.decide(command, None) {
            tracing::error!(%rejection, "the core rejected a command of the daemon itself");
        }
    }

    pub(super) fn decide(
        &mut self,
        command: Command,
        request: Option<&Request>,
    ) -> Result<Outcome, Rejection> {
        let (now, answers) = ((self.clock)(), &self.answers);
        self.core.submit_attended(command, request, now, &|id| answers.is_attended(id))
    }

    fn report(&mut self, report: Report) {
        match report {
            Report::Command(Command::FinishTurn { agent, turn, end, .. }) => {
                let attended = self.attended(agent);
                self.command(Command::FinishTurn { agent, turn, end, attended });
            }
            Report::Command(Command::Crash { session, reason, .. }) => {
                self.runners.forget(session);
                let agent = self.core.state().agent_of(session).map(|agent| agent.id);
                let attended = agent.map(|agent| self.attended(agent)).unwrap_or_default();
                self.command(Command::Crash { session, reason, attended });
            }
            Report::Command(command) => self.command(command),
            Report::Attempt { agent, turn, told } => {
                self.command(Command::StartAttempt { agent, turn });
                // A runner that was closed does not wait any more.
                self.core.tell(Box::new(move || {
                    let _ = told.send(());
                }));
            }
            Report::Call(new) => self.call(new),
            Report::Marked(marked) => self.marked(marked),
            Report::Ask(ask) => self.ask(ask),
            Report::CallerLeft(agent) => self.caller_left(agent),
            Report::ErrandOver => self.errands = self.errands.saturating_sub(1),
            Report::SetPolicy(policy) => {
                let draining = self.core.policy_mut().draining;
                *self.core.policy_mut() = Policy { draining, ..policy };
                // What waits for a slot may have one now.
                self.command(Command::Tick);
            }
        }
    }

    /// Messages in the running turn of an agent whose senders wait for the answer right now.
    fn attended(&self, agent: crate::model::AgentId) -> Vec<MessageId> {
        let turn = self.core.state().agent(agent).and_then(|agent| agent.turn());
        let messages = turn.map_or(&[][..], |turn| &turn.messages);
        messages.iter().copied().filter(|id| self.answers.is_attended(*id)).collect()
    }

    fn input(&mut self, input: Input) {
        match input {
            Input::Submit { command, request, told, attend } => {
                self.submit(command, request.as_ref(), told, attend);
            }
            Input::Read(read) => {
                let tell = read(self.core.state());
                self.core.tell(tell);
            }
            Input::Checkpoint(done) => self.checkpoint_wanted.push(done),
            Input::Drain { limit, running } => {
                let (busy, waiting) = self.core.state().busy_and_waiting();
                // Whoever asked may have gone.
                let _ = running.send((busy + waiting) as u32);
                self.begin_drain(limit);
            }
        }
    }

    /// Begins to stop. Told again, it only stops sooner.
    fn begin_drain(&mut self, limit: Option<Duration>) {
        let wait = limit.unwrap_or(self.limits.drain).min(LONGEST_DRAIN);
        let until = Instant::now() + wait;
        match &mut self.drain {
            Some(drain) => drain.until = drain.until.min(until),
            None => {
                let (cancelled, closed, abandons, stopped) = (false, false, false, false);
                self.drain = Some(Drain { until, cancelled, closed, abandons, stopped });
                self.core.policy_mut().draining = true;
                self.handle.shared.draining.send_replace(true);
                self.command(Command::Drain);
            }
        }
    }

    /// Whether the end of all agents fits into what the journal has left: no command that makes
    /// room is longer, nor are many of them together.
    fn has_kept_room(&self) -> bool {
        self.journal.has_kept_room(self.core.state().agents().len() as u64 * LONGEST_END)
    }

    fn submit(
        &mut self,
        command: Command,
        request: Option<&Request>,
        told: Told,
        attend: Option<oneshot::Sender<Answer>>,
    ) {
        if self.journal.is_full() && !(command.makes_room() && self.has_kept_room()) {
            // Whoever asked may have gone.
            let _ = told.send(Err(Refusal::DiskFull));
            return;
        }
        let answered = request.and_then(|request| self.core.state().requests().answered(request));
        let outcome = self.decide(command, request);
        if let (Ok(Outcome::Message { agent, message, .. }), Some(attend)) = (&outcome, attend)
            && answered.is_none()
        {
            let state = self.core.state();
            if let Some(answer) = unanswered(state, *agent, *message) {
                // Told after what was asked is told; whoever waited may have gone.
                self.core.tell(Box::new(move || drop(attend.send(answer))));
            } else {
                self.answers.wait(*message, attend);
            }
        }
        let done = outcome.map(|outcome| Done { outcome, answered });
        self.core.tell(Box::new(move || {
            let _ = told.send(done.map_err(Refusal::Rejected));
        }));
    }

    /// Hands what was staged to the journal.
    fn stage(&mut self) {
        let staged = self.core.take();
        let Staged { records, release } = match staged {
            Some(staged) => staged,
            None if self.checkpoint_due() => {
                Staged { records: Vec::new(), release: Release::default() }
            }
            None => return,
        };
        let bytes: u64 = records.iter().map(|record| record.lines.len() as u64).sum();
        if bytes > 0 {
            self.since_checkpoint += bytes;
            self.idle_since = Instant::now();
        }
        let completion = (!records.is_empty()).then(|| {
            let entries = records.iter();
            self.journal
                .append(entries.map(|record| (record.sequence, &record.lines[..], record.events)))
        });
        let checkpoint = if self.checkpoint_due() { self.snapshot() } else { None };
        match self.in_flight.back_mut() {
            Some(last) if completion.is_none() && checkpoint.is_none() => {
                last.release.append(release);
            }
            _ => self.in_flight.push_back(InFlight { completion, release, checkpoint }),
        }
        // What has nothing to wait for is released at once.
        while self.in_flight.front().is_some_and(|front| front.completion.is_none()) {
            self.release_front();
        }
    }

    fn checkpoint_due(&self) -> bool {
        !self.checkpoint_wanted.is_empty()
            || (self.since_checkpoint > 0 && self.since_checkpoint >= self.checkpoint_bytes)
    }

    fn snapshot(&mut self) -> Option<(u64, Vec<u8>, Option<CheckpointDone>)> {
        let mut state = Vec::new();
        if let Err(error) = Snapshot::write(self.core.state(), &mut state) {
            tracing::error!(%error, "the state could not be written for a checkpoint");
            return None;
        }
        self.since_checkpoint = 0;
        // A large state is not written again before as much has happened.
        self.checkpoint_bytes = self.limits.checkpoint_bytes.max(2 * state.len() as u64);
        let wanted = std::mem::take(&mut self.checkpoint_wanted);
        let done = (!wanted.is_empty()).then(|| self.tell_all(wanted));
        Some((self.core.state().seq(), state, done))
    }

    /// Passes on what a checkpoint comes to, to everyone who asked for it.
    fn tell_all(&self, wanted: Vec<CheckpointDone>) -> CheckpointDone {
        let (done, written) = oneshot::channel::<Result<(), String>>();
        self.runners.spawn(async move {
            // A writer that is gone says nothing, and neither does this then.
            let Ok(result) = written.await else { return };
            for asked in wanted {
                // Whoever asked may have gone.
                let _ = asked.send(result.clone());
            }
        });
        done
    }

    fn release_front(&mut self) {
        let Some(InFlight { release, checkpoint, .. }) = self.in_flight.pop_front() else { return };
        let Release { commit, tell, effects } = release;
        let removed = commit.removed.clone();
        let commit = Arc::new(commit);
        for effect in &effects {
            match effect {
                // Before the turn is published, so that who sees it start finds its output.
                Effect::StartTurn { agent, seq, .. } => {
                    drop(self.handle.outputs().begin(*agent, *seq));
                }
                // Before anybody makes a workspace that is to lie there.
                Effect::RemoveFolder { workspace, root, git } => {
                    self.files.begin_removal(*workspace, root, git.as_ref());
                }
                _ => {}
            }
        }
        if !commit.lines.is_empty() {
            self.sink.commit(&commit);
            self.answer(&commit);
            self.handle.shared.feed.publish(commit);
        }
        if let Some((sequence, state, done)) = checkpoint {
            self.sink.checkpoint(sequence, state, done);
        }
        for tell in tell {
            tell();
        }
        for effect in effects {
            self.act(effect);
        }
        for session in removed {
            let (over, removal) = (self.runners.over(session), self.sink.removal(session));
            self.runners.spawn(async move {
                over.await;
                // It tells what it cannot remove by itself.
                let _ = tokio::task::spawn_blocking(removal).await;
            });
        }
    }

    /// Tells those who wait for answers how turns ended.
    fn answer(&mut self, commit: &crate::model::Commit) {
        for line in &commit.lines {
            if line.entry.event.ends_turn()
                && let Some(agent) = line.agent
            {
                self.handle.outputs().end(agent, line.entry.seq);
            }
        }
        self.answers.take(commit);
    }

    /// Takes the last steps of a drain as they become possible.
    fn ended(&mut self) -> Option<Ended> {
        let drain = self.drain.as_mut()?;
        if drain.stopped {
            let sequence = self.core.state().seq();
            return self.in_flight.is_empty().then_some(Ended { sequence });
        }
        let all_told = self.errands == 0 || drain.abandons;
        if !self.core.state().has_live_sessions() && all_told && self.in_flight.is_empty() {
            drain.stopped = true;
            self.command(Command::Stopped);
            self.checkpoint_bytes = 0;
            self.stage();
        }
        None
    }
}

/// Resolves when the batch at the front is durable; never while there is none.
fn front(
    in_flight: &mut VecDeque<InFlight>,
) -> impl Future<Output = Result<(), journal::Error>> + '_ {
    std::future::poll_fn(move |context| {
        let completion = in_flight.front_mut().and_then(|front| front.completion.as_mut());
        let Some(completion) = completion else { return std::task::Poll::Pending };
        Pin::new(completion).poll(context).map(|told| told.unwrap_or(Err(journal::Error::Closed)))
    })
}
