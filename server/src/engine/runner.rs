//! Runners: one supervised task for each live session, which owns its provider instance.
//!
//! A runner reports what became of each turn and of its session as commands. A panic in one is
//! caught, told as [`Command::Crash`], and disturbs no other.

use std::hash::BuildHasher;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use rustc_hash::{FxBuildHasher, FxHashMap};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::additions::Additions;
use super::attempts::{Attempts, Link, Next};
use super::by_agent::Kept;
use super::handle::{Errand, Handle, Report};
use super::output::TurnOutput;
use super::pulse::{Patience, Pulse, Watched, watched};
use super::spending::Spending;
use super::telling::Telling;
use super::turn_io::{Io, Settles};
use super::{ToolSocket, ToolSockets};
use crate::model::{
    AgentId, Command, FailureClass, Message, Name, Saved, SessionId, Told, ToolSpec, TurnEnd,
    TurnId, World,
};
use crate::provider::activity::Activity;
use crate::provider::history::{retell, retell_missed};
use crate::provider::registry::{Entry, Providers};
use crate::provider::secret::Secrets;
use crate::provider::{
    Addition, Capabilities, Ended, Failure, Instance, Prompt, Provider, Spec, TurnIo, is_of_agent,
    nothing,
};

/// Word that a backend knows nothing of what was said so far.
const TOLD_ANEW: &str =
    "its provider knows nothing of the conversation so far, and is told it from the log";

/// A turn to be run.
pub(super) struct Turn {
    pub(super) id: TurnId,
    pub(super) prompt: Arc<str>,
    pub(super) messages: Vec<Message>,
    /// What the agent sees.
    pub(super) world: Option<World>,
    /// What it is offered.
    pub(super) tools: Vec<&'static ToolSpec>,
    pub(super) output: Arc<TurnOutput>,
}

enum Job {
    Turn(Turn, CancellationToken, mpsc::UnboundedReceiver<Addition>),
    Suspend,
}

struct Runner {
    jobs: mpsc::UnboundedSender<Job>,
    /// The running turn.
    turn: Option<Current>,
    /// Ends the runner whatever it does, and says why.
    close: oneshot::Sender<&'static str>,
}

/// What reaches a running turn from outside.
struct Current {
    id: TurnId,
    /// Ends it.
    cancel: CancellationToken,
    /// Messages that it is to take in.
    additions: mpsc::UnboundedSender<Addition>,
}

/// The runners of all live sessions.
#[derive(Default)]
pub(super) struct Runners {
    live: FxHashMap<SessionId, Runner>,
    /// Cancelled when nothing of a session runs any more.
    over: FxHashMap<SessionId, CancellationToken>,
    tasks: TaskTracker,
}

/// Whose session is opened.
pub(super) struct Owner {
    pub(super) agent: AgentId,
    pub(super) name: Name,
    pub(super) session: SessionId,
    /// Name of the provider, which need not be there.
    pub(super) provider: Arc<str>,
}

impl Runners {
    /// Opens a session: starts its runner.
    pub(super) fn open(
        &mut self,
        owner: Owner,
        spec: Spec,
        sockets: &Arc<dyn ToolSockets>,
        (handle, errand): (&Handle, Errand),
    ) {
        let (jobs, queue) = mpsc::unbounded_channel();
        let (close, closed) = oneshot::channel();
        let session = owner.session;
        let secrets = handle.shared.secrets.keep(owner.agent, Mutex::default());
        let mut task = Task {
            owner,
            spec,
            sockets: sockets.clone(),
            handle: handle.clone(),
            providers: handle.providers().all(),
            open: None,
            standing_in: None,
            socket: None,
            secrets,
        };
        let over = CancellationToken::new();
        self.over.insert(session, over.clone());
        self.tasks.spawn(async move {
            let (_errand, _over) = (errand, over.drop_guard());
            let ended = {
                let run = AssertUnwindSafe(task.run(queue)).catch_unwind();
                tokio::select! {
                    biased;
                    Ok(why) = closed => Ok(why),
                    ended = run => ended.map(|()| "its session ended"),
                }
            };
            match ended {
                Ok(why) => task.close(why).await,
                Err(panic) => {
                    let reason = panic_text(&*panic);
                    tracing::error!(%session, reason, "a runner crashed");
                    task.close("the task of its session crashed").await;
                    task.report(Command::Crash { session, reason, attended: Vec::new() });
                }
            }
        });
        self.live.insert(session, Runner { jobs, turn: None, close });
    }

    /// Starts a turn on a live session. False if it is not live.
    pub(super) fn start_turn(&mut self, session: SessionId, turn: Turn) -> bool {
        let Some(runner) = self.live.get_mut(&session) else { return false };
        let cancel = CancellationToken::new();
        let (additions, queue) = mpsc::unbounded_channel();
        runner.turn = Some(Current { id: turn.id, cancel: cancel.clone(), additions });
        runner.jobs.send(Job::Turn(turn, cancel, queue)).is_ok()
    }

    fn current(&self, session: SessionId, turn: TurnId) -> Option<&Current> {
        let running = self.live.get(&session).and_then(|runner| runner.turn.as_ref());
        running.filter(|current| current.id == turn)
    }

    /// Has a turn take a message in. One that is over leaves it to the next.
    pub(super) fn add_to_turn(&self, session: SessionId, turn: TurnId, addition: Addition) {
        if let Some(current) = self.current(session, turn) {
            let _ = current.additions.send(addition);
        }
    }

    /// Asks a turn to end.
    pub(super) fn cancel_turn(&self, session: SessionId, turn: TurnId) {
        if let Some(current) = self.current(session, turn) {
            current.cancel.cancel();
        }
    }

    /// Is cancelled when a turn is over; none if it does not run.
    pub(super) fn until_over(&self, session: SessionId, turn: TurnId) -> Option<CancellationToken> {
        self.current(session, turn).map(|current| current.cancel.child_token())
    }

    /// Asks an idle session for its state, and ends it. False if it is not live.
    pub(super) fn suspend(&mut self, session: SessionId) -> bool {
        self.live.remove(&session).is_some_and(|runner| runner.jobs.send(Job::Suspend).is_ok())
    }

    /// Ends a session, whatever it does.
    pub(super) fn close(&mut self, session: SessionId, why: &'static str) {
        if let Some(runner) = self.live.remove(&session) {
            // First, so that the end of its turn is not taken for a cancelled one. A runner that has
            // ended needs not be told.
            let _ = runner.close.send(why);
            if let Some(current) = runner.turn {
                current.cancel.cancel();
            }
        }
    }

    /// Forgets a session whose runner has ended. What its turn started ends with it.
    pub(super) fn forget(&mut self, session: SessionId) {
        let turn = self.live.remove(&session).and_then(|runner| runner.turn);
        if let Some(current) = turn {
            current.cancel.cancel();
        }
    }

    /// Resolves when nothing of a session runs any more that is not opened again.
    pub(super) fn over(&mut self, session: SessionId) -> impl Future<Output = ()> + use<> {
        let over = self.over.remove(&session);
        async move {
            if let Some(over) = over {
                over.cancelled().await;
            }
        }
    }

    /// Runs something beside the sessions that is waited for at the end.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Ends all sessions.
    pub(super) fn close_all(&mut self) {
        let sessions: Vec<SessionId> = self.live.keys().copied().collect();
        for session in sessions {
            self.close(session, "the daemon ended");
        }
        self.tasks.close();
    }
}

/// A number below 1 that differs between turns and attempts, so that retries spread.
fn jitter(turn: TurnId, attempt: u32) -> f64 {
    let hash = FxBuildHasher.hash_one((turn, attempt));
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without text".to_owned())
}

struct Task {
    owner: Owner,
    spec: Spec,
    sockets: Arc<dyn ToolSockets>,
    handle: Handle,
    /// Those that there were when the turn began: what is read again meanwhile disturbs it not.
    providers: Arc<Providers>,
    open: Option<Open>,
    /// That of another provider, while it runs a turn.
    standing_in: Option<Box<dyn Instance>>,
    /// Held while the session is live, if its provider wants one.
    socket: Option<ToolSocket>,
    /// Keys that its backends were given: whatever they started can still call tools with them.
    secrets: Kept<Mutex<Secrets>>,
}

/// An instance of a provider that is open.
struct Open {
    provider: Arc<dyn Provider>,
    instance: Box<dyn Instance>,
    /// Whether it ran the last turn that was completed, so that it missed none.
    is_current: bool,
    /// Whether a command-line agent had the session before, whose own is not to be gone on with.
    forgets: bool,
}

impl Task {
    async fn run(&mut self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        while let Some(job) = jobs.recv().await {
            match job {
                Job::Turn(turn, cancel, additions) => {
                    let id = turn.id;
                    let end = self.turn(turn, &cancel, additions).await;
                    // What it started ends with it.
                    cancel.cancel();
                    self.report(Command::FinishTurn {
                        agent: self.owner.agent,
                        turn: id,
                        end,
                        attended: Vec::new(),
                    });
                }
                Job::Suspend => {
                    let session = self.owner.session;
                    let result = match self.open.take() {
                        Some(open) => open.instance.suspend().await.map_err(|no| no.message),
                        None => Ok(Saved::Unchanged),
                    };
                    self.close("its session was suspended").await;
                    return self.report(Command::FinishSuspend { session, result });
                }
            }
        }
    }

    /// Ends its backends and closes its tool socket. Whoever is told of the session's end after
    /// that can open it again.
    async fn close(&mut self, why: &'static str) {
        let own = self.open.take().map(|open| open.instance);
        for instance in [own, self.standing_in.take()].into_iter().flatten() {
            let close = async { instance.close(why).await };
            if let Err(panic) = AssertUnwindSafe(close).catch_unwind().await {
                let (session, reason) = (self.owner.session, panic_text(&*panic));
                tracing::error!(%session, reason, "a backend crashed as it was closed");
            }
        }
        self.socket = None;
    }

    fn report(&self, command: Command) {
        // An engine that is gone has nobody to tell.
        let _ = self.handle.reports.send(Report::Command(command));
    }

    /// Runs a turn, and again as long as it fails in a way that may pass.
    async fn turn(
        &mut self,
        turn: Turn,
        cancel: &CancellationToken,
        additions: mpsc::UnboundedReceiver<Addition>,
    ) -> TurnEnd {
        let ids = (self.owner.agent, turn.id);
        let telling = Telling::new(ids, self.handle.reports.clone(), turn.output);
        let telling = Arc::new(telling);
        let additions = Arc::new(Additions::new(additions));
        let mut prompt = Prompt {
            text: turn.prompt,
            messages: turn.messages.into(),
            agent: self.owner.name.clone(),
            turn: turn.id,
            world: turn.world,
            tools: turn.tools.into(),
        };
        self.providers = self.handle.providers().all();
        let (own, model) = (&self.owner.provider, self.spec.model.as_ref());
        let mut attempts = Attempts::of(own, model, &self.providers);
        loop {
            let ended = self.attempt(&attempts, &prompt, cancel, (&telling, &additions)).await;
            prompt.text = additions.after(prompt.text);
            let failure = match ended {
                Ok(Ended::Completed { response, saved }) => {
                    // What another would be resumed from is of no use to the session's own.
                    let is_own = attempts.stand_in().is_none();
                    let saved = if is_own { saved } else { Saved::Unchanged };
                    if let Saved::State(state) = &saved {
                        self.spec.saved = Some(state.clone());
                    }
                    telling.complete(&response);
                    break TurnEnd::Completed { response: response.into(), saved };
                }
                Err(failure) if !cancel.is_cancelled() => failure,
                Ok(Ended::Cancelled) | Err(_) => {
                    telling.fail();
                    break TurnEnd::Cancelled;
                }
            };
            telling.fail();
            let jitter = jitter(turn.id, attempts.count);
            let is_own = attempts.stand_in().is_none();
            let anew = is_own && self.open.as_ref().is_some_and(|open| open.instance.may_do_anew());
            let Some(Next { delay, provider }) = attempts.next(&failure, anew, jitter) else {
                let failure = attempts.told(failure);
                break TurnEnd::Failed { class: failure.class, error: failure.message };
            };
            telling.void();
            telling.command_in_place(Command::RetryTurn {
                agent: self.owner.agent,
                turn: turn.id,
                attempt: attempts.count,
                delay_ms: u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
                class: failure.class,
                error: failure.message,
                provider,
            });
            let (reports, agent) = (&self.handle.reports, self.owner.agent);
            let begun = tokio::select! {
                biased;
                begun = begin_attempt(reports, agent, turn.id, delay) => begun,
                () = cancel.cancelled() => false,
            };
            if !begun {
                break TurnEnd::Cancelled;
            }
        }
    }

    /// Makes an attempt, and ends it when nothing is heard of its backend for too long.
    async fn attempt(
        &mut self,
        attempts: &Attempts,
        prompt: &Prompt,
        cancel: &CancellationToken,
        (telling, additions): (&Arc<Telling>, &Arc<Additions>),
    ) -> Result<Ended, Failure> {
        let link = attempts.stand_in();
        let provider = link.map_or(&self.owner.provider, |link| &link.provider);
        let entry = self.entry(provider)?;
        let (common, can) = (entry.common, entry.provider.info().capabilities);
        let (alone, in_tool) = common.patience(can.pulse);
        let (shared, agent) = (&self.handle.shared, self.owner.agent);
        let pulse = shared.pulses.keep(agent, Pulse::new());
        let cancel = cancel.child_token();
        let io = Arc::new(Io {
            agent,
            turn: prompt.turn,
            handle: self.handle.clone(),
            telling: telling.clone(),
            additions: additions.clone(),
            pulse: pulse.clone(),
            secrets: self.secrets.clone(),
            cancel: cancel.clone(),
            common,
            processes: can.processes,
            is_own: link.is_none(),
            spending: Mutex::new(Spending::new()),
            saved: Mutex::default(),
        });
        let _settles = Settles(io.clone());
        let run = self.run_attempt(attempts, prompt.clone(), io.clone());
        let ended = if can.pulse || can.processes {
            let patience = Patience { alone, in_tool };
            let tell = |silent: Duration| {
                let silent = u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
                telling.report(Told::Stalled(silent));
            };
            watched(run, &pulse, patience, &cancel, tell).await
        } else {
            Watched { ended: run.await, abandoned: false }
        };
        // What it started ends with it.
        cancel.cancel();
        if let Some(state) = io.saved().take() {
            self.spec.saved = Some(state);
        }
        if ended.abandoned {
            let asked = match self.standing_in.take() {
                None => self.open.take().map(|open| open.instance),
                standing_in => standing_in,
            };
            if let Some(instance) = asked {
                instance.close("it did not end when nothing was heard of it").await;
            }
        }
        ended.ended
    }

    async fn run_attempt(
        &mut self,
        attempts: &Attempts,
        prompt: Prompt,
        io: Arc<Io>,
    ) -> Result<Ended, Failure> {
        if let Some(link) = attempts.stand_in() {
            return self.stand_in(link, prompt, io).await;
        }
        let ended = self.own_attempt(prompt, io).await;
        ended.map_err(|failure| self.with_kind(failure))
    }

    /// A failure that does not pass, with what may be behind it.
    fn with_kind(&self, mut failure: Failure) -> Failure {
        let own = &self.owner.provider;
        let was = self.providers.get(own).and_then(|entry| entry.was);
        let is_final =
            matches!(failure.class, FailureClass::Permanent | FailureClass::ProviderGone);
        if let Some(kind) = was.filter(|_| is_final) {
            let note = format!(" (before a reload its provider {own:?} was of the kind {kind:?})");
            failure.message.push_str(&note);
        }
        failure
    }

    async fn own_attempt(&mut self, mut prompt: Prompt, io: Arc<Io>) -> Result<Ended, Failure> {
        self.be_open().await?;
        let Some(open) = &mut self.open else {
            return Err(Failure::permanent("the session is not open"));
        };
        if !open.is_current && open.provider.info().capabilities.keeps_history {
            let history = io.history().await?;
            prompt.text = match open.instance.lacks().filter(|_| history.has_own()) {
                Some(most) => {
                    io.tell(Activity::Notice(TOLD_ANEW.to_owned()));
                    retell(&history, most, &prompt.text)
                }
                None => retell_missed(&history, &prompt.text),
            };
        }
        let mut ended = open.instance.turn(prompt, io).await;
        open.is_current = match &mut ended {
            Ok(Ended::Completed { saved, .. }) => {
                if std::mem::take(&mut open.forgets) && *saved == Saved::Unchanged {
                    *saved = Saved::State(nothing());
                }
                true
            }
            _ => open.is_current && open.instance.lacks().is_none(),
        };
        ended
    }

    /// Has another provider run the turn, in a session that ends with it.
    async fn stand_in(
        &mut self,
        link: &Link,
        mut prompt: Prompt,
        io: Arc<Io>,
    ) -> Result<Ended, Failure> {
        let entry = self.entry(&link.provider)?;
        let capabilities = entry.provider.info().capabilities;
        self.have_socket(capabilities)?;
        if capabilities.keeps_history {
            prompt.text = retell(&io.history().await?, usize::MAX, &prompt.text);
        }
        let (model, saved) = (link.model.clone(), None);
        let spec = Spec { model, saved, anew: true, ..self.spec.clone() };
        let instance = entry.provider.open(spec).await?;
        if let Some(own) = &mut self.open {
            own.is_current = false;
        }
        let ended = self.standing_in.insert(instance).turn(prompt, io).await;
        if let Some(instance) = self.standing_in.take() {
            instance.close("it stood in for one turn").await;
        }
        ended
    }

    fn entry(&self, name: &str) -> Result<Entry, Failure> {
        self.providers.get(name).cloned().ok_or_else(|| {
            let message = format!("its provider {name:?} is not configured");
            Failure::new(FailureClass::ProviderGone, message)
        })
    }

    /// Opens the tool socket, if the provider wants one and it is not open.
    fn have_socket(&mut self, capabilities: Capabilities) -> Result<(), Failure> {
        if !capabilities.tool_socket || self.socket.is_some() {
            return Ok(());
        }
        let (agent, session) = (self.owner.agent, self.owner.session);
        let socket = self.sockets.open(agent, session, self.handle.clone());
        let socket = socket.map_err(|error| {
            let message = format!("the tool socket could not be opened: {error}");
            Failure::new(FailureClass::Sandbox, message)
        })?;
        self.spec.tool_socket = Some(socket.path.clone());
        self.socket = Some(socket);
        Ok(())
    }

    /// Opens the session, if it is not open with the provider as it was configured when the turn
    /// began.
    async fn be_open(&mut self) -> Result<(), Failure> {
        let entry = self.entry(&self.owner.provider)?;
        if let Some(open) = self.open.take_if(|open| !Arc::ptr_eq(&open.provider, &entry.provider))
            && let Saved::State(state) = open.instance.suspend().await?
        {
            self.spec.saved = Some(state);
        }
        if self.open.is_some() {
            return Ok(());
        }
        let can = entry.provider.info().capabilities;
        self.have_socket(can)?;
        let mut spec = self.spec.clone();
        let forgets = !can.resumes && spec.saved.take_if(|saved| is_of_agent(saved)).is_some();
        let instance = entry.provider.open(spec).await?;
        self.open = Some(Open { provider: entry.provider, instance, is_current: false, forgets });
        Ok(())
    }
}

/// Returns after a pause, when the log says that the next attempt starts: so one of which it does
/// not say so did nothing. False if the engine is gone.
async fn begin_attempt(
    reports: &mpsc::UnboundedSender<Report>,
    agent: AgentId,
    turn: TurnId,
    pause: Duration,
) -> bool {
    tokio::time::sleep(pause).await;
    let (told, durable) = oneshot::channel();
    reports.send(Report::Attempt { agent, turn, told }).is_ok() && durable.await.is_ok()
}
