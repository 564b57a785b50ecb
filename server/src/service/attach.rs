//! AttachService: one stream that shows an agent, or a subtree, live.

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, FuturesOrdered, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use substrat_proto::Refusal as Wire;
use substrat_proto::v1;
use substrat_proto::v1::attach_open::Start;
use substrat_proto::v1::attach_request::Request as Asked;
use substrat_proto::v1::attach_response::Item;
use substrat_proto::v1::attach_service_server::AttachService;
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tonic::{Code, Request, Response, Status, Streaming};

use super::events::{Seen, Source, span};
use super::sandbox::Confinement;
use super::status::{Reason, invalid, refused, status, unreadable};
use super::weave::Weave;
use super::{Api, convert, permission, request};
use crate::engine::{Answer, Attending, Span};
use crate::model::{Agent, AgentId, Command, Entry, Event, Party, State};

/// Events that are woven in at once.
const STEP: usize = 256;
/// Inputs of one client that may be on their way to the journal.
const MAX_INPUTS: usize = 256;

#[tonic::async_trait]
impl AttachService for Api {
    type AttachStream = BoxStream<'static, Result<v1::AttachResponse, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let mut requests = request.into_inner();
        let first = requests.message().await?.and_then(|first| first.request);
        let Some(Asked::Open(open)) = first else {
            return Err(invalid("the first request of Attach must be an open"));
        };
        let attached = Attached::open(self.clone(), open, requests).await?;
        let items = stream::unfold(Some(attached), |attached| async {
            let mut attached = attached?;
            match attached.next().await {
                Ok(Some(item)) => Some((Ok(item), Some(attached))),
                Ok(None) => None,
                Err(status) => Some((Err(status), None)),
            }
        });
        Ok(Response::new(items.boxed()))
    }
}

/// What the stream is opened with, read from the state at once.
struct Opening {
    agent: v1::Agent,
    id: AgentId,
    span: Span,
    sequence: u64,
    watched: BTreeSet<AgentId>,
    permissions: Vec<v1::Permission>,
    /// Running turns of watched agents: the sequences of their starts.
    turns: Vec<(Span, u64)>,
}

impl Opening {
    fn read(state: &State, agent: &Agent, tree: bool, known: &Confinement) -> Self {
        let within =
            |other: &&Agent| other.id == agent.id || (tree && state.is_within(other.id, agent.id));
        let watched: Vec<&Agent> = state.agents().filter(within).collect();
        let running = |agent: &&Agent| agent.turn().map(|turn| (span(agent), turn.seq));
        Self {
            agent: convert::agent(state, agent, known),
            id: agent.id,
            span: span(agent),
            sequence: state.seq(),
            turns: watched.iter().filter_map(running).collect(),
            permissions: watched.iter().flat_map(|agent| permission::open(agent)).collect(),
            watched: watched.iter().map(|agent| agent.id).collect(),
        }
    }
}

type Input = BoxFuture<'static, (v1::InputResult, Option<oneshot::Receiver<Answer>>)>;

/// An open stream.
struct Attached {
    api: Api,
    agent: AgentId,
    tree: bool,
    watched: BTreeSet<AgentId>,
    source: Source,
    weave: Weave,
    requests: Option<Streaming<v1::AttachRequest>>,
    /// Inputs on their way to the journal, in the order in which they came.
    inputs: FuturesOrdered<Input>,
    /// Held so that answers are known to be seen here, and need not go to USER's inbox.
    answers: FuturesUnordered<oneshot::Receiver<Answer>>,
    /// Held while somebody is there who can answer questions.
    attending: Option<Attending>,
    heartbeat: tokio::time::Interval,
    heard: Instant,
    draining: crate::engine::Draining,
    told_draining: bool,
}

/// What happened while the stream had nothing to send.
enum Woken {
    News,
    Request(Result<Option<v1::AttachRequest>, Status>),
    Input(v1::InputResult, Option<oneshot::Receiver<Answer>>),
    Answered,
    Draining,
    Heartbeat,
}

impl Attached {
    async fn open(
        api: Api,
        open: v1::AttachOpen,
        requests: Streaming<v1::AttachRequest>,
    ) -> Result<Self, Status> {
        let tree = open.tree;
        let known = api.confinement().await;
        let read = move |state: &State, agent: &Agent| Opening::read(state, agent, tree, &known);
        let opening = api.of_agent(open.agent.clone(), read).await?;
        let cursor = match open.start {
            None => opening.sequence,
            Some(Start::AfterSequence(sequence)) if sequence > opening.sequence => {
                return Err(invalid("after_sequence lies in the future"));
            }
            Some(Start::AfterSequence(sequence)) => sequence,
            Some(Start::LastTurns(count @ 1..=1000)) => {
                last_turns(&api, opening.span, count as usize, opening.sequence).await?
            }
            Some(Start::LastTurns(_)) => {
                return Err(invalid("last_turns must be between 1 and 1,000"));
            }
        };
        let mut heartbeat = interval(api.about.silence / 3);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        heartbeat.reset();
        let mut attached = Self {
            agent: opening.id,
            tree,
            watched: opening.watched,
            source: Source::new(api.clone(), cursor),
            weave: Weave::default(),
            requests: Some(requests),
            inputs: FuturesOrdered::new(),
            answers: FuturesUnordered::new(),
            attending: open.answers_permissions.then(|| api.engine.attend(opening.id, tree)),
            heartbeat,
            heard: Instant::now(),
            draining: api.engine.draining(),
            told_draining: false,
            api,
        };
        attached.weave.pass(cursor);
        attached.weave.push(Item::Attached(v1::Attached {
            agent: Some(opening.agent),
            cursor,
            daemon_start_time: Some(convert::timestamp(attached.api.about.started)),
            permissions: opening.permissions,
        }));
        let seen = (open.seen_turn, open.seen_deltas);
        attached.join_turns(opening.turns, cursor, seen, open.start.is_none()).await?;
        Ok(attached)
    }

    /// Follows the turns that run already and whose start lies before the cursor. A client that
    /// comes anew is told that they run.
    async fn join_turns(
        &mut self,
        turns: Vec<(Span, u64)>,
        cursor: u64,
        (seen_turn, seen_deltas): (u64, u64),
        is_new: bool,
    ) -> Result<(), Status> {
        for (span, turn) in turns.into_iter().filter(|(_, turn)| *turn <= cursor) {
            let Some(agent) = span.agent else { continue };
            let output = self.api.engine.outputs().get(agent);
            let output = output.filter(|output| output.turn_seq == turn);
            let mut passed = BTreeSet::new();
            for entry in self.api.archived(vec![span], turn, cursor + 1).await? {
                match &entry.event {
                    Event::TurnStart(_) if is_new => {
                        self.weave.event(agent, &entry, self.api.engine.outputs());
                    }
                    Event::ToolCallInvoked(data) => drop(passed.insert(data.call_id)),
                    _ => {}
                }
            }
            if let Some(output) = output {
                let seen = if turn == seen_turn { seen_deltas } else { 0 };
                self.weave.follow(agent, output, seen, passed);
            }
        }
        Ok(())
    }

    /// The next item; none when the client has gone.
    async fn next(&mut self) -> Result<Option<v1::AttachResponse>, Status> {
        loop {
            if let Some(item) = self.weave.pop() {
                return Ok(Some(item));
            }
            self.read_events().await?;
            self.weave.read_outputs();
            if let Some(item) = self.weave.pop() {
                return Ok(Some(item));
            }
            match self.wait().await? {
                Woken::News | Woken::Answered => {}
                Woken::Request(Ok(Some(request))) => self.request(request).await?,
                // A client that says nothing more still watches; one whose stream broke is gone.
                Woken::Request(Ok(None)) => (self.requests, self.attending) = (None, None),
                Woken::Request(Err(_)) => return Ok(None),
                Woken::Input(result, answer) => {
                    self.answers.extend(answer);
                    self.weave.push(Item::InputResult(result));
                }
                Woken::Draining => {
                    self.told_draining = true;
                    self.weave.push(Item::DaemonDraining(v1::DaemonDraining {}));
                }
                Woken::Heartbeat => self.beat()?,
            }
        }
    }

    async fn wait(&mut self) -> Result<Woken, Status> {
        let has_room = self.has_room();
        let requests = async {
            match &mut self.requests {
                Some(requests) if has_room => requests.message().await,
                _ => std::future::pending().await,
            }
        };
        let told = self.told_draining;
        let draining = async {
            if told {
                return std::future::pending().await;
            }
            // The sender lives as long as the engine's handle, which this holds.
            let _ = self.draining.wait_for(|draining| *draining).await;
        };
        tokio::select! {
            // What it said is read before it is found silent: where it reads slowly, this has not
            // been asked for long.
            biased;
            request = requests => Ok(Woken::Request(request)),
            _ = self.heartbeat.tick() => Ok(Woken::Heartbeat),
            () = draining => Ok(Woken::Draining),
            news = self.source.changed() => news.map(|()| Woken::News),
            () = self.weave.changed() => Ok(Woken::News),
            Some((result, answer)) = self.inputs.next() => Ok(Woken::Input(result, answer)),
            Some(_) = self.answers.next() => Ok(Woken::Answered),
        }
    }

    /// Whether it is listened to.
    fn has_room(&self) -> bool {
        self.inputs.len() < MAX_INPUTS
    }

    fn beat(&mut self) -> Result<(), Status> {
        let silence = self.api.about.silence;
        if self.requests.is_some() && self.has_room() && self.heard.elapsed() > silence {
            let seconds = silence.as_secs();
            let message = format!("the client was silent for {seconds} s and is taken for dead");
            let hint = "send a heartbeat every 5 seconds; attach again with your cursor";
            return Err(status(Code::Aborted, Reason::PeerSilent, message, hint));
        }
        self.weave.push(Item::Heartbeat(v1::Heartbeat {}));
        Ok(())
    }

    async fn request(&mut self, request: v1::AttachRequest) -> Result<(), Status> {
        self.heard = Instant::now();
        match request.request {
            Some(Asked::Input(input)) => self.input(input).await,
            Some(Asked::Cancel(cancel)) => self.cancel(cancel).await,
            Some(Asked::Decision(decision)) => self.decision(decision),
            Some(Asked::Heartbeat(_)) | None => {}
            Some(Asked::Open(_)) => return Err(invalid("the stream is open already")),
        }
        Ok(())
    }

    async fn input(&mut self, input: v1::AttachInput) {
        let request_id = input.request_id.clone();
        let message = v1::SendMessageRequest {
            agent: self.agent.to_string(),
            text: input.text,
            ..Default::default()
        };
        let key = request::key("AttachInput", &request_id, &message);
        let command = Command::SendMessage {
            agent: message.agent,
            text: message.text.into(),
            metadata: Default::default(),
        };
        let begun = match key {
            Ok(key) => self.api.engine.begin_send(command, key).await.map_err(|no| refused(&no)),
            Err(status) => Err(status),
        };
        let sent = async {
            let sent = match begun {
                Ok(sent) => sent.await.map_err(|no| refused(&no)),
                Err(status) => Err(status),
            };
            match sent {
                Ok(sent) => {
                    let message_id = sent.message.to_string();
                    let result = v1::InputResult { request_id, message_id, ..Default::default() };
                    (result, Some(sent.answer))
                }
                Err(status) => (refusal(request_id, &status), None),
            }
        };
        self.inputs.push_back(sent.boxed());
    }

    /// Answers a question of a watched agent.
    fn decision(&mut self, decision: v1::PermissionDecision) {
        let (api, watched) = (self.api.clone(), self.watched.clone());
        let request_id = decision.request_id.clone();
        let done = async move {
            let result = match api.decide(watched, decision).await {
                Ok(()) => v1::InputResult { request_id, ..Default::default() },
                Err(status) => refusal(request_id, &status),
            };
            (result, None)
        };
        self.inputs.push_back(done.boxed());
    }

    async fn cancel(&mut self, cancel: v1::AttachCancel) {
        let turn = request::given(cancel.turn_id).map(|id| request::turn_id(&id)).transpose();
        let begun = match turn {
            Ok(turn) => {
                let command = Command::CancelTurn { agent: self.agent.to_string(), turn };
                self.api.engine.begin(command, None).await.map_err(|no| refused(&no))
            }
            Err(no) => Err(no),
        };
        let done = async {
            let done = match begun {
                Ok(done) => done.await.map_err(|no| refused(&no)),
                Err(no) => Err(no),
            };
            let result = match done {
                Ok(_) => v1::InputResult::default(),
                Err(no) => refusal(String::new(), &no),
            };
            (result, None)
        };
        self.inputs.push_back(done.boxed());
    }

    /// Weaves in the events that there are.
    async fn read_events(&mut self) -> Result<(), Status> {
        let found = match self.source.next(STEP) {
            Ok(found) => found,
            Err(behind) => {
                let watched = self.watched.clone();
                let spans = self.api.engine.read(move |state| nearby(state, &watched)).await;
                let spans = spans.map_err(|no| refused(&no))?;
                let found = self.source.catch_up(behind, spans).await?;
                self.weave.pass(self.source.cursor);
                found
            }
        };
        for seen in found {
            self.event(seen).await?;
        }
        Ok(())
    }

    async fn event(&mut self, (entry, agent): Seen) -> Result<(), Status> {
        if let Event::AgentCreated(data) = &entry.event
            && self.tree
            && let Some(parent) = data.parent_session_id
        {
            let watched = self.watched.clone();
            let is_ours = self.api.engine.read(move |state| {
                state.agent_of(parent).is_some_and(|parent| watched.contains(&parent.id))
            });
            if is_ours.await.map_err(|no| refused(&no))? {
                self.watched.insert(data.agent_id);
            }
        }
        match agent.filter(|agent| self.watched.contains(agent)) {
            Some(agent) => {
                self.weave.event(agent, &entry, self.api.engine.outputs());
                if changes_state(&entry.event) {
                    self.state_changed(agent, &entry).await?;
                }
            }
            None => {
                self.weave.pass(entry.seq);
                self.elsewhere(&entry);
            }
        }
        Ok(())
    }

    /// What a watcher sees of an event in another log.
    fn elsewhere(&mut self, entry: &Entry) {
        match &entry.event {
            Event::MessageEnqueued(data) => {
                let ours = matches!(data.sender, Party::Agent(id) if self.watched.contains(&id));
                if ours {
                    let message = Some(convert::enqueued(entry.seq, data));
                    self.weave.push_event(entry, Item::MessageSeen(v1::MessageSeen { message }));
                }
            }
            Event::DaemonRecovered(data) => {
                let recovered = v1::DaemonRecovered {
                    interrupted_turns: data.interrupted_turns,
                    returned_messages: data.returned_messages,
                };
                self.weave.push_event(entry, Item::DaemonRecovered(recovered));
            }
            _ => {}
        }
    }

    async fn state_changed(&mut self, agent: AgentId, entry: &Entry) -> Result<(), Status> {
        let known = self.api.confinement().await;
        let now = self.api.engine.read(move |state| {
            state.agent(agent).map(|agent| convert::agent_brief(state, agent, &known))
        });
        let agent = now.await.map_err(|no| refused(&no))?;
        let event = entry.event.name().to_owned();
        self.weave.push_event(entry, Item::StateChanged(v1::StateChanged { agent, event }));
        Ok(())
    }
}

fn refusal(request_id: String, status: &Status) -> v1::InputResult {
    let wire = Wire::from(status);
    let error = match wire.hint.as_str() {
        "" => wire.message,
        hint => format!("{}; {hint}", wire.message),
    };
    v1::InputResult { request_id, message_id: String::new(), reason: wire.reason, error }
}

fn changes_state(event: &Event) -> bool {
    matches!(
        event,
        Event::AgentCreated(_)
            | Event::AgentUpdated(_)
            | Event::AgentTerminated(_)
            | Event::MetadataUpdated(_)
            | Event::SessionOpened(_)
            | Event::SessionRestored(_)
            | Event::SuspendResult(_)
            | Event::ToolGate(_)
            | Event::ToolPermitTurn(_)
            | Event::MessageSetAside(_)
            | Event::MessageRetried(_)
            | Event::TurnWaiting(_)
            | Event::TurnResumed(_)
            | Event::TurnRefused(_)
            | Event::BudgetChanged(_)
            | Event::BudgetWarning(_)
            | Event::BudgetExhausted(_)
            | Event::BudgetReleased(_)
    )
}

/// The logs in which events about these agents stand: their own, those of the agents one hop away
/// (which hold the messages that they sent), and the daemon's.
fn nearby(state: &State, watched: &BTreeSet<AgentId>) -> Vec<Span> {
    let parents: BTreeSet<AgentId> =
        watched.iter().filter_map(|id| state.agent(*id)?.parent).collect();
    let near = |agent: &&Agent| {
        watched.contains(&agent.id)
            || parents.contains(&agent.id)
            || agent.parent.is_some_and(|id| watched.contains(&id) || parents.contains(&id))
    };
    let own = Span { session: None, agent: None, first: 1, last: state.seq() };
    state.agents().filter(near).map(span).chain([own]).collect()
}

/// The sequence before the last so many turns of an agent.
async fn last_turns(api: &Api, span: Span, count: usize, now: u64) -> Result<u64, Status> {
    let Some(session) = span.session else { return Ok(now) };
    let archive = api.engine.archive().clone();
    archive.settled().await;
    let mut wanted = 64;
    loop {
        let (archive, most) = (archive.clone(), wanted);
        let read = tokio::task::spawn_blocking(move || archive.tail(session, most)).await;
        let tail = read
            .unwrap_or_else(|panic| Err(std::io::Error::other(panic)))
            .map_err(|error| unreadable(&error))?;
        let starts: Vec<u64> = tail
            .iter()
            .filter(|entry| matches!(entry.event, Event::TurnStart(_)))
            .map(|entry| entry.seq)
            .collect();
        if starts.len() >= count {
            return Ok(starts[starts.len() - count] - 1);
        }
        if tail.len() < wanted {
            return Ok(starts.first().map_or(now, |first| first - 1));
        }
        wanted *= 4;
    }
}
