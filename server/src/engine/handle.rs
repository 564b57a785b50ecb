//! How everyone else talks to the engine.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, oneshot, watch};

use super::attendance::Attendance;
use super::by_agent::ByAgent;
use super::calls::NewCall;
use super::core::Tell;
use super::output::Outputs;
use super::permission::Ask;
use super::pulse::Pulses;
use super::telling::Marked;
use super::{Archive, CheckpointDone, Feed, Shells};
use crate::model::{
    Agent, AgentId, Answered, CallFailure, Command, Excess, FailureClass, Json, MessageId, Outcome,
    Policy, Rejection, Request, State, ToolSpec, TurnId, offered,
};
use crate::provider::Registry;
use crate::provider::registry::Entry;
use crate::provider::secret::Secrets;
use crate::workspace::Files;

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The core said no.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The disk is full.
    #[error("the disk is full")]
    DiskFull,
    /// The engine is gone.
    #[error("the daemon has stopped")]
    Stopped,
}

/// How the turn ended that a message was in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// With an answer.
    Completed {
        /// The turn.
        turn: TurnId,
        /// The final text.
        response: Arc<str>,
        /// Sequence of its `turn.complete`.
        sequence: u64,
    },
    /// With an error.
    Failed {
        /// The turn.
        turn: TurnId,
        /// Class of the failure.
        class: FailureClass,
        /// What failed.
        error: String,
    },
    /// Cancelled.
    Cancelled {
        /// The turn.
        turn: TurnId,
    },
    /// The message lies in the inbox since a turn did not complete, and the agent does not go on by
    /// itself.
    Left,
    /// A budget that is used up keeps the turn from starting; the message waits in the inbox.
    Refused(Excess),
    /// USER discarded the message.
    Discarded,
    /// The agent ended before it came to the message.
    Terminated,
}

/// A mutation that is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) outcome: Outcome,
    /// For a repeated message: the turn that it was in, if that has ended.
    pub(super) answered: Option<Answered>,
}

/// Why a tool call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It was not made: there is no turn to make it in, for one.
    #[error("{0}; {hint}", hint = .0.hint())]
    Refused(Rejection),
    /// It was made, and was refused or failed.
    #[error("{}", .0.error)]
    Failed(CallFailure),
    /// It was made before, and its result cannot be read from the log.
    #[error("the result of the call cannot be read: {0}")]
    Unreadable(String),
}

/// How a tool call ended.
pub type CallEnd = Result<Json, CallError>;

pub(super) type Told = oneshot::Sender<Result<Done, Refusal>>;

/// Looks at the state, and comes back with word to the caller.
pub(super) type Read = Box<dyn FnOnce(&State) -> Tell + Send>;

/// What clients ask.
pub(super) enum Input {
    Submit {
        command: Command,
        request: Option<Request>,
        told: Told,
        /// Who waits for the answer to the message that is sent with this.
        attend: Option<oneshot::Sender<Answer>>,
    },
    Read(Read),
    Checkpoint(CheckpointDone),
    Drain {
        limit: Option<std::time::Duration>,
        running: oneshot::Sender<u32>,
    },
}

/// What runners and tools report.
pub(super) enum Report {
    Command(Command),
    /// The next attempt at a turn is about to start; told when it is durable.
    Attempt {
        agent: AgentId,
        turn: TurnId,
        told: oneshot::Sender<()>,
    },
    Call(NewCall),
    /// Something that a backend does, with its place in the output.
    Marked(Marked),
    /// A backend asks something.
    Ask(Ask),
    /// The core works by this from now on.
    SetPolicy(Policy),
    /// A caller of this agent's tools went away without waiting for the result.
    CallerLeft(AgentId),
    /// An [`Errand`] is over.
    ErrandOver,
}

/// Something that runs beside the loop and may have something to tell: a daemon that stops ends
/// after all that it tells before this is dropped.
pub(super) struct Errand(mpsc::UnboundedSender<Report>);

impl Errand {
    pub(super) fn new(reports: &mpsc::UnboundedSender<Report>) -> Self {
        Self(reports.clone())
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        // An engine that is gone waits for nobody.
        let _ = self.0.send(Report::ErrandOver);
    }
}

/// Whether the daemon is stopping.
pub type Draining = watch::Receiver<bool>;

/// A message that was sent.
#[derive(Debug)]
pub struct Waiting {
    /// The recipient.
    pub agent: AgentId,
    /// The message.
    pub message: MessageId,
    /// Sequence of the event that enqueued it.
    pub sequence: u64,
    /// For a repeated request: the turn that it was in, if that has ended.
    pub answered: Option<Answered>,
    /// Resolves when the turn that it is in ends.
    pub answer: oneshot::Receiver<Answer>,
}

/// A handle on the engine; clones share it.
#[derive(Clone)]
pub struct Handle {
    pub(super) inputs: mpsc::Sender<Input>,
    pub(super) reports: mpsc::UnboundedSender<Report>,
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) feed: Feed,
    pub(super) outputs: Outputs,
    pub(super) archive: Arc<dyn Archive>,
    pub(super) providers: Registry,
    pub(super) files: Files,
    pub(super) shells: Arc<dyn Shells>,
    pub(super) pulses: Pulses,
    pub(super) secrets: ByAgent<Mutex<Secrets>>,
    pub(super) attendance: Attendance,
    pub(super) draining: watch::Sender<bool>,
    pub(super) calls: AtomicU64,
    pub(super) history_bytes: usize,
}

impl Handle {
    /// Does a mutation. Returns when it is durable.
    pub async fn execute(
        &self,
        command: Command,
        request: Option<Request>,
    ) -> Result<Outcome, Refusal> {
        self.begin(command, request).await?.await
    }

    /// Hands a mutation over: what is handed over first is decided first. What is returned
    /// resolves when it is durable.
    pub async fn begin(
        &self,
        command: Command,
        request: Option<Request>,
    ) -> Result<impl Future<Output = Result<Outcome, Refusal>> + use<>, Refusal> {
        let done = self.submit(command, request, None).await?;
        Ok(async { Ok(durable(done).await?.outcome) })
    }

    /// Sends a message, and waits until it is durable. The answer is waited for with what is
    /// returned; whoever drops that lets the answer go to USER's inbox.
    pub async fn send(
        &self,
        command: Command,
        request: Option<Request>,
    ) -> Result<Waiting, Refusal> {
        self.begin_send(command, request).await?.await
    }

    /// Sends a message whose answer goes to USER's inbox. Returns it, and the sequence of its event,
    /// when it is durable.
    pub async fn post(
        &self,
        command: Command,
        request: Option<Request>,
    ) -> Result<(MessageId, u64), Refusal> {
        let done = durable(self.submit(command, request, None).await?).await?;
        match done.outcome {
            Outcome::Message { message, sequence, .. } => Ok((message, sequence)),
            other => Err(no_message(&other)),
        }
    }

    /// As [`Handle::begin`], for a message.
    pub async fn begin_send(
        &self,
        command: Command,
        request: Option<Request>,
    ) -> Result<impl Future<Output = Result<Waiting, Refusal>> + use<>, Refusal> {
        let (attend, answer) = oneshot::channel();
        let done = self.submit(command, request, Some(attend)).await?;
        Ok(async {
            let done = durable(done).await?;
            match done.outcome {
                Outcome::Message { agent, message, sequence } => {
                    Ok(Waiting { agent, message, sequence, answered: done.answered, answer })
                }
                other => Err(no_message(&other)),
            }
        })
    }

    async fn submit(
        &self,
        command: Command,
        request: Option<Request>,
        attend: Option<oneshot::Sender<Answer>>,
    ) -> Result<oneshot::Receiver<Result<Done, Refusal>>, Refusal> {
        let (told, done) = oneshot::channel();
        let input = Input::Submit { command, request, told, attend };
        self.inputs.send(input).await.map_err(|_| Refusal::Stopped)?;
        Ok(done)
    }

    /// Reads the state. What is returned is durable.
    pub async fn read<R: Send + 'static>(
        &self,
        read: impl FnOnce(&State) -> R + Send + 'static,
    ) -> Result<R, Refusal> {
        let (sender, receiver) = oneshot::channel();
        let read = Input::Read(Box::new(move |state| {
            let result = read(state);
            Box::new(move || {
                // Whoever asked may have gone.
                let _ = sender.send(result);
            })
        }));
        self.inputs.send(read).await.map_err(|_| Refusal::Stopped)?;
        receiver.await.map_err(|_| Refusal::Stopped)
    }

    /// Writes a checkpoint. Returns when it is durable.
    pub async fn checkpoint(&self) -> Result<Result<(), String>, Refusal> {
        let (done, written) = oneshot::channel();
        self.inputs.send(Input::Checkpoint(done)).await.map_err(|_| Refusal::Stopped)?;
        written.await.map_err(|_| Refusal::Stopped)
    }

    /// Begins to stop: no new turn starts, running ones may go on for `limit` (none: as
    /// configured). Returns how many turns run.
    pub async fn drain(&self, limit: Option<std::time::Duration>) -> Result<u32, Refusal> {
        let (running, told) = oneshot::channel();
        self.inputs.send(Input::Drain { limit, running }).await.map_err(|_| Refusal::Stopped)?;
        told.await.map_err(|_| Refusal::Stopped)
    }

    /// Whether the daemon is stopping.
    pub fn draining(&self) -> Draining {
        self.shared.draining.subscribe()
    }

    /// Has the core work by another policy from now on.
    pub fn set_policy(&self, policy: Policy) {
        // An engine that is gone decides nothing any more.
        let _ = self.reports.send(Report::SetPolicy(policy));
    }

    /// The newest durable events.
    pub fn feed(&self) -> &Feed {
        &self.shared.feed
    }

    /// The outputs of running turns.
    pub fn outputs(&self) -> &Outputs {
        &self.shared.outputs
    }

    /// Whether nothing has been heard of an agent's backend for long.
    pub fn is_silent(&self, agent: AgentId) -> bool {
        self.shared.pulses.is_silent(agent)
    }

    /// Older events.
    pub fn archive(&self) -> &Arc<dyn Archive> {
        &self.shared.archive
    }

    /// The providers.
    pub fn providers(&self) -> &Registry {
        &self.shared.providers
    }

    /// The tools that an agent is offered.
    pub fn offered(&self, agent: &Agent) -> Vec<&'static ToolSpec> {
        let own = self.providers().get(&agent.session.provider);
        let has_tools = |own: Entry| own.provider.info().capabilities.native_tools;
        offered(agent, own.is_some_and(has_tools)).collect()
    }
}

fn no_message(other: &Outcome) -> Refusal {
    Refusal::Rejected(Rejection::Bug { what: format!("sending a message came to {other:?}") })
}

async fn durable(done: oneshot::Receiver<Result<Done, Refusal>>) -> Result<Done, Refusal> {
    done.await.map_err(|_| Refusal::Stopped)?
}
