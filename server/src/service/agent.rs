//! AgentService.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use substrat_proto::v1;
use substrat_proto::v1::agent_service_server::AgentService;
use tonic::{Code, Request, Response, Status};

use super::sandbox::Confinement;
use super::status::{Reason, invalid, refused, rejected, status, unanswered, unreadable};
use super::{Api, budget, convert, folder, permission, request};
use crate::engine::{Answer, Waiting};
use crate::model::{
    Agent, AgentId, Answered, Command, Entry, Event, FailureClass, MessageId, NewAgent, Outcome,
    Party, Rejection, State, TurnId,
};
use crate::provider::Objection;

/// Longest wait for a message in USER's inbox.
const MAX_INBOX_WAIT: Duration = Duration::from_secs(3600);
/// Most messages of an inbox that an inspection shows.
const INSPECTED_MESSAGES: usize = 100;
/// Most messages that a request may name.
const MAX_MESSAGE_IDS: usize = 1000;

impl Api {
    /// An agent by its id, as it is now.
    async fn agent_now(&self, id: AgentId) -> Result<v1::Agent, Status> {
        let known = self.confinement().await;
        let found = self
            .engine
            .read(move |state| state.agent(id).map(|agent| convert::agent(state, agent, &known)));
        let found = found.await.map_err(|no| refused(&no))?;
        found.ok_or_else(|| rejected(&Rejection::no_agent(id)))
    }

    /// Something of the agent that a reference means.
    pub(super) async fn of_agent<R: Send + 'static>(
        &self,
        reference: String,
        read: impl FnOnce(&State, &Agent) -> R + Send + 'static,
    ) -> Result<R, Status> {
        let found = self
            .engine
            .read(move |state| state.resolve_any(&reference).map(|agent| read(state, agent)));
        found.await.map_err(|no| refused(&no))?.map_err(|no| rejected(&no))
    }

    /// Does a mutation that comes to an agent, and returns it as it is now.
    async fn change_agent(
        &self,
        command: Command,
        key: Option<crate::model::Request>,
    ) -> Result<v1::Agent, Status> {
        match self.engine.execute(command, key).await.map_err(|no| refused(&no))? {
            Outcome::Agent(id) => self.agent_now(id).await,
            other => Err(odd(&other)),
        }
    }

    fn check_with_provider(
        &self,
        provider: &str,
        instructions: &str,
        model: Option<&str>,
    ) -> Result<(), Status> {
        let provider = if provider.is_empty() { super::DEFAULT_PROVIDER } else { provider };
        let Some(known) = self.engine.providers().get(provider) else {
            return Ok(()); // the core says which there are
        };
        known.provider.check(instructions, model).map_err(|objection| match objection {
            Objection::Instructions(error) => {
                let message = match instructions.trim() {
                    "" => "no instructions were given".to_owned(),
                    _ => format!("the script does not run: {error}"),
                };
                let hint = "a scripted agent's instructions are a script with fn turn(prompt); \
                            see docs/scripted.md";
                status(Code::InvalidArgument, Reason::ScriptInvalid, message, hint)
            }
            Objection::Model(problem) => {
                let hint = "give one with --model: that of a program agent is its command line, \
                            such as 'python3 agent.py'; others have names";
                status(Code::InvalidArgument, Reason::ModelInvalid, problem, hint)
            }
        })
    }

    /// Checks instructions and model of a new agent. Where they fail, a name or a reference that would
    /// be refused comes first; not where they do not, since a repeated request is no duplicate.
    async fn check_new(&self, new: &v1::CreateAgentRequest) -> Result<(), Status> {
        let (mut provider, mut model) = (new.provider.clone(), request::given(new.model.clone()));
        if !new.parent.is_empty() && (provider.is_empty() || model.is_none()) {
            let (theirs, inherited) = self.of_agent(new.parent.clone(), backend).await?;
            if provider.is_empty() {
                provider = theirs.to_string();
            }
            if *theirs == *provider {
                model = model.or(inherited.map(|model| model.to_string()));
            }
        }
        let checked = self.check_with_provider(&provider, &new.instructions, model.as_deref());
        if checked.is_err() {
            let (name, parent) = (new.name.clone(), request::given(new.parent.clone()));
            let workspace = request::given(new.workspace.clone());
            let placed = self.engine.read(move |state| {
                let parent = parent.map(|reference| state.resolve(&reference)).transpose()?;
                state.free_name(&name, parent)?;
                workspace.map_or(Ok(()), |name| state.resolve_workspace(&name).map(drop))
            });
            placed.await.map_err(|no| refused(&no))?.map_err(|no| rejected(&no))?;
        }
        checked
    }

    /// Waits for the answer to a message.
    async fn answer_to(&self, sent: Waiting) -> Result<v1::SendMessageResponse, Status> {
        let name = self.agent_name(sent.agent).await?;
        let answer = match sent.answered {
            Some(answered) => self.past_answer(sent.agent, answered).await?,
            None => sent.answer.await.map_err(|_| {
                let hint = "send it again with the same request id";
                status(Code::Unavailable, Reason::Draining, "the daemon has stopped", hint)
            })?,
        };
        match answer {
            Answer::Completed { turn, response, sequence } => Ok(v1::SendMessageResponse {
                message_id: sent.message.to_string(),
                answered: true,
                answer: response.to_string(),
                turn_id: turn.to_string(),
                sequence,
            }),
            other => Err(unanswered(&name, &other)),
        }
    }

    async fn agent_name(&self, id: AgentId) -> Result<String, Status> {
        let name = self.engine.read(move |state| state.agent(id).map(|agent| state.path(agent)));
        Ok(name.await.map_err(|no| refused(&no))?.unwrap_or_default())
    }

    /// How a turn ended that is over, from the log.
    async fn past_answer(&self, agent: AgentId, answered: Answered) -> Result<Answer, Status> {
        let span = self.engine.read(move |state| state.agent(agent).map(super::events::span));
        let span = span.await.map_err(|no| refused(&no))?;
        let span = span.ok_or_else(|| rejected(&Rejection::no_agent(agent)))?;
        let Answered { turn, seq } = answered;
        let found = self.archived(vec![span], seq, seq + 1).await?;
        Ok(found.first().and_then(|entry| answer_in(entry, turn)).unwrap_or(Answer::Failed {
            turn,
            class: FailureClass::Permanent,
            error: "the log does not hold its end any more".to_owned(),
        }))
    }

    /// Events from the logs, once all that is durable is in them.
    pub(super) async fn archived(
        &self,
        spans: Vec<crate::engine::Span>,
        from: u64,
        end: u64,
    ) -> Result<Vec<Entry>, Status> {
        let archive = self.engine.archive().clone();
        archive.settled().await;
        let read = tokio::task::spawn_blocking(move || archive.read(&spans, from, end));
        read.await
            .unwrap_or_else(|panic| Err(std::io::Error::other(panic)))
            .map_err(|error| unreadable(&error))
    }
}

fn answer_in(entry: &Entry, turn: TurnId) -> Option<Answer> {
    match &entry.event {
        Event::TurnComplete(data) => {
            let (response, sequence) = (data.response.clone(), entry.seq);
            Some(Answer::Completed { turn, response, sequence })
        }
        Event::TurnFailed(data) => {
            Some(Answer::Failed { turn, class: data.class, error: data.error.clone() })
        }
        Event::TurnCancelled(_) => Some(Answer::Cancelled { turn }),
        _ => None,
    }
}

/// The provider of an agent, and its model.
fn backend(_: &State, agent: &Agent) -> (Arc<str>, Option<Arc<str>>) {
    (agent.session.provider.clone(), agent.session.model.clone())
}

pub(super) fn odd(outcome: &Outcome) -> Status {
    rejected(&Rejection::Bug { what: format!("the command came to {outcome:?}") })
}

#[tonic::async_trait]
impl AgentService for Api {
    async fn create_agent(
        &self,
        request: Request<v1::CreateAgentRequest>,
    ) -> Result<Response<v1::CreateAgentResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("CreateAgent", &message.request_id, &message)?;
        self.check_new(&message).await?;
        let command = Command::CreateAgent {
            agent: NewAgent {
                name: message.name,
                provider: request::given(message.provider),
                model: request::given(message.model),
                instructions: message.instructions.into(),
                role: message.role,
                workspace: request::given(message.workspace),
                workspace_subdir: request::given(message.workspace_subdir),
                workspace_access: folder::access(message.workspace_access, "workspace_access")?,
                metadata: message.metadata.into_iter().collect(),
                budgets: budget::given(message.budget, message.tree_budget),
            },
            parent: request::given(message.parent),
        };
        let agent = self.change_agent(command, key).await?;
        Ok(Response::new(v1::CreateAgentResponse { agent: Some(agent) }))
    }

    async fn get_agent(
        &self,
        request: Request<v1::GetAgentRequest>,
    ) -> Result<Response<v1::GetAgentResponse>, Status> {
        let known = self.confinement().await;
        let read = move |state: &State, agent: &Agent| convert::agent(state, agent, &known);
        let agent = self.of_agent(request.into_inner().agent, read).await?;
        Ok(Response::new(v1::GetAgentResponse { agent: Some(agent) }))
    }

    async fn list_agents(
        &self,
        request: Request<v1::ListAgentsRequest>,
    ) -> Result<Response<v1::ListAgentsResponse>, Status> {
        let message = request.into_inner();
        let size = request::page_size(message.page_size, 1000)?;
        let after = request::page_token(&message.page_token)?;
        let known = self.confinement().await;
        let listed = self.engine.read(move |state| {
            let agents = state
                .agents_after(after)
                .filter(|agent| message.show_terminated || agent.is_live())
                .map(|agent| (agent.session.first_seq, convert::agent_brief(state, agent, &known)));
            request::page(agents, size)
        });
        let (agents, next_page_token) = listed.await.map_err(|no| refused(&no))?;
        Ok(Response::new(v1::ListAgentsResponse { agents, next_page_token }))
    }

    async fn update_agent(
        &self,
        request: Request<v1::UpdateAgentRequest>,
    ) -> Result<Response<v1::UpdateAgentResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("UpdateAgent", &message.request_id, &message)?;
        let mask: Vec<String> = match message.update_mask {
            Some(mask) if !mask.paths.is_empty() => mask.paths,
            _ => [
                ("instructions", !message.instructions.is_empty()),
                ("role", !message.role.is_empty()),
                ("metadata", !message.metadata.is_empty()),
            ]
            .iter()
            .chain(&budget::set_fields(message.budget, message.tree_budget))
            .filter(|(_, set)| *set)
            .map(|(name, _)| (*name).to_owned())
            .collect(),
        };
        let known = |path: &str| {
            ["instructions", "role", "metadata"].contains(&path) || budget::is_field(path)
        };
        if let Some(odd) = mask.iter().find(|path| !known(path)) {
            return Err(invalid(format!(
                "update_mask names {:?}; only instructions, role, metadata, budget and tree_budget \
                 can be changed",
                request::clip(odd)
            )));
        }
        let named = |name: &str| mask.iter().any(|path| path == name);
        if named("instructions") {
            let (provider, model) = self.of_agent(message.agent.clone(), backend).await?;
            self.check_with_provider(&provider, &message.instructions, model.as_deref())?;
        }
        let metadata: BTreeMap<String, Option<String>> = if named("metadata") {
            let labels = message.metadata.into_iter();
            labels.map(|(key, value)| (key, request::given(value))).collect()
        } else {
            BTreeMap::new()
        };
        let command = Command::UpdateAgent {
            agent: message.agent,
            instructions: named("instructions").then(|| message.instructions.into()),
            role: named("role").then_some(message.role),
            metadata,
            budgets: budget::changes(&mask, message.budget, message.tree_budget),
        };
        let agent = self.change_agent(command, key).await?;
        Ok(Response::new(v1::UpdateAgentResponse { agent: Some(agent) }))
    }

    async fn send_message(
        &self,
        request: Request<v1::SendMessageRequest>,
    ) -> Result<Response<v1::SendMessageResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("SendMessage", &message.request_id, &message)?;
        let command = Command::SendMessage {
            agent: message.agent,
            text: message.text.into(),
            metadata: message.metadata.into_iter().collect(),
        };
        let response = if message.no_wait {
            let posted = self.engine.post(command, key).await.map_err(|no| refused(&no))?;
            let (message_id, sequence) = (posted.0.to_string(), posted.1);
            v1::SendMessageResponse { message_id, sequence, ..Default::default() }
        } else {
            let sent = self.engine.send(command, key).await.map_err(|no| refused(&no))?;
            self.answer_to(sent).await?
        };
        Ok(Response::new(response))
    }

    async fn cancel_turn(
        &self,
        request: Request<v1::CancelTurnRequest>,
    ) -> Result<Response<v1::CancelTurnResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("CancelTurn", &message.request_id, &message)?;
        let turn = request::given(message.turn_id).map(|id| request::turn_id(&id)).transpose()?;
        let command = Command::CancelTurn { agent: message.agent, turn };
        match self.engine.execute(command, key).await.map_err(|no| refused(&no))? {
            Outcome::Turn(turn) => {
                Ok(Response::new(v1::CancelTurnResponse { turn_id: turn.to_string() }))
            }
            other => Err(odd(&other)),
        }
    }

    async fn inspect_agent(
        &self,
        request: Request<v1::InspectAgentRequest>,
    ) -> Result<Response<v1::InspectAgentResponse>, Status> {
        let message = request.into_inner();
        let count = match message.recent {
            0 => 20,
            1..=1000 => message.recent as usize,
            _ => return Err(invalid("recent must be between 0 and 1,000")),
        };
        let known = self.confinement().await;
        let (id, session, mut response) = self
            .of_agent(message.agent, move |state, agent| {
                (agent.id, agent.session.id, inspection(state, agent, &known))
            })
            .await?;
        if !self.engine.is_silent(id) {
            // What is streamed is in no log, and a sign of life all the same.
            response.turn.iter_mut().for_each(|turn| turn.stall = None);
        }
        let archive = self.engine.archive().clone();
        archive.settled().await;
        let recent = tokio::task::spawn_blocking(move || archive.tail(session, count)).await;
        let recent = recent
            .unwrap_or_else(|panic| Err(std::io::Error::other(panic)))
            .map_err(|error| unreadable(&error))?;
        let latest_first = recent.iter().rev().map(|entry| (0, convert::event(entry, Some(id))));
        response.recent = request::page(latest_first, count).0;
        response.recent.reverse();
        Ok(Response::new(response))
    }

    async fn gate_agent(
        &self,
        request: Request<v1::GateAgentRequest>,
    ) -> Result<Response<v1::GateAgentResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("GateAgent", &message.request_id, &message)?;
        let agent = self.change_agent(Command::Gate { agent: message.agent }, key).await?;
        Ok(Response::new(v1::GateAgentResponse { agent: Some(agent) }))
    }

    async fn ungate_agent(
        &self,
        request: Request<v1::UngateAgentRequest>,
    ) -> Result<Response<v1::UngateAgentResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("UngateAgent", &message.request_id, &message)?;
        let agent = self.change_agent(Command::Ungate { agent: message.agent }, key).await?;
        Ok(Response::new(v1::UngateAgentResponse { agent: Some(agent) }))
    }

    async fn retry_messages(
        &self,
        request: Request<v1::RetryMessagesRequest>,
    ) -> Result<Response<v1::RetryMessagesResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("RetryMessages", &message.request_id, &message)?;
        let (agent, messages) = (message.agent, message_ids(&message.message_ids)?);
        let agent = self.change_agent(Command::RetryMessages { agent, messages }, key).await?;
        Ok(Response::new(v1::RetryMessagesResponse { agent: Some(agent) }))
    }

    async fn discard_messages(
        &self,
        request: Request<v1::DiscardMessagesRequest>,
    ) -> Result<Response<v1::DiscardMessagesResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("DiscardMessages", &message.request_id, &message)?;
        let (agent, messages) = (message.agent, message_ids(&message.message_ids)?);
        if messages.is_empty() {
            return Err(invalid("message_ids: name the messages to discard"));
        }
        let agent = self.change_agent(Command::DiscardMessages { agent, messages }, key).await?;
        Ok(Response::new(v1::DiscardMessagesResponse { agent: Some(agent) }))
    }

    async fn permit_turn(
        &self,
        request: Request<v1::PermitTurnRequest>,
    ) -> Result<Response<v1::PermitTurnResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("PermitTurn", &message.request_id, &message)?;
        let agent = self.change_agent(Command::PermitTurn { agent: message.agent }, key).await?;
        Ok(Response::new(v1::PermitTurnResponse { agent: Some(agent) }))
    }

    async fn answer_permission(
        &self,
        request: Request<v1::AnswerPermissionRequest>,
    ) -> Result<Response<v1::AnswerPermissionResponse>, Status> {
        self.answer_question(request.into_inner()).await.map(Response::new)
    }

    async fn terminate_agent(
        &self,
        request: Request<v1::TerminateAgentRequest>,
    ) -> Result<Response<v1::TerminateAgentResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("TerminateAgent", &message.request_id, &message)?;
        let command = Command::Terminate { agent: message.agent, recursive: message.recursive };
        match self.engine.execute(command, key).await.map_err(|no| refused(&no))? {
            Outcome::Agents(ids) => {
                let agent_ids = ids.iter().map(ToString::to_string).collect();
                Ok(Response::new(v1::TerminateAgentResponse { agent_ids }))
            }
            other => Err(odd(&other)),
        }
    }

    async fn list_inbox(
        &self,
        request: Request<v1::ListInboxRequest>,
    ) -> Result<Response<v1::ListInboxResponse>, Status> {
        let message = request.into_inner();
        let size = request::page_size(message.page_size, 100)?;
        let after = request::page_token(&message.page_token)?;
        let wait = match message.wait.map(Duration::try_from) {
            None => Duration::ZERO,
            Some(Ok(wait)) => wait.min(MAX_INBOX_WAIT),
            Some(Err(_)) => return Err(invalid("wait is negative")),
        };
        let until = tokio::time::Instant::now() + wait;
        let mut news = self.engine.feed().watch();
        loop {
            news.borrow_and_update();
            let listed = self.engine.read(move |state| {
                let inbox = state.user_inbox().iter().filter(|message| message.seq > after);
                let messages = inbox
                    .map(|message| (message.seq, convert::message(message, Party::User, "USER")));
                request::page(messages, size)
            });
            let (messages, next_page_token) = listed.await.map_err(|no| refused(&no))?;
            let arrived = !messages.is_empty()
                || tokio::time::timeout_at(until, news.changed()).await.is_err();
            if arrived {
                return Ok(Response::new(v1::ListInboxResponse { messages, next_page_token }));
            }
        }
    }

    async fn ack_inbox(
        &self,
        request: Request<v1::AckInboxRequest>,
    ) -> Result<Response<v1::AckInboxResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("AckInbox", &message.request_id, &message)?;
        let messages = message_ids(&message.message_ids)?;
        let command = Command::AckInbox { messages };
        match self.engine.execute(command, key).await.map_err(|no| refused(&no))? {
            Outcome::Removed(count) => {
                Ok(Response::new(v1::AckInboxResponse { removed: count as i32 }))
            }
            other => Err(odd(&other)),
        }
    }
}

/// Ids of messages as a request has them.
fn message_ids(ids: &[String]) -> Result<Vec<MessageId>, Status> {
    if ids.len() > MAX_MESSAGE_IDS {
        return Err(invalid(format!("at most {MAX_MESSAGE_IDS} messages can be named at once")));
    }
    let ids: Result<_, _> = ids.iter().map(|id| id.parse()).collect();
    ids.map_err(|error| invalid(format!("message_ids: {error}")))
}

fn inspection(state: &State, agent: &Agent, known: &Confinement) -> v1::InspectAgentResponse {
    let (party, name) = (Party::Agent(agent.id), agent.name.as_str());
    let inbox = agent.inbox.iter().map(|message| (0, convert::message(message, party, name)));
    let children = agent.children.iter().filter_map(|id| state.agent(*id));
    v1::InspectAgentResponse {
        agent: Some(convert::agent(state, agent, known)),
        turn: agent.turn().map(|turn| convert::turn(agent, turn)),
        inbox: request::page(inbox, INSPECTED_MESSAGES).0,
        children: children.map(|child| convert::agent_brief(state, child, known)).collect(),
        recent: Vec::new(),
        reminders: agent.reminders.iter().map(convert::reminder).collect(),
        subscriptions: agent
            .subscriptions
            .iter()
            .map(|one| convert::subscription(state, one))
            .collect(),
        multicasts: agent.multicasts.iter().map(|one| convert::multicast(state, one)).collect(),
        permissions: permission::open(agent),
    }
}
