//! Tool calls. A tool that only concerns the core is decided here, and its intent, its effect and
//! its result are one record. A tool that works on files gets its intent recorded, runs as an
//! effect, and comes back with [`Command::FinishTool`](crate::model::Command).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::Plan;
use super::agent::check_text;
use super::message::Letter;
use crate::model::recent::{describe, describe_self};
use crate::model::turn::Turn;
use crate::model::{
    Access, Agent, AgentCompleting, AgentId, CallId, CheckInbox, Complete, Expiry, GateAction,
    Json, Kind, Message, MessageCollected, MessageId, NewAgent, Outcome, Party, Rejection,
    SendMessage, SpawnAgent, Tool, ToolCallInvoked, ToolCallResult, TurnId, TurnWaiting,
    WaitExpired,
};

/// Most bytes of messages that `check_inbox` returns; at least one message is always returned.
const MAX_READ: usize = 256 << 10;

/// How a tool call goes on.
enum Next {
    /// It is done.
    Done(Value),
    /// It is done when its effect is.
    Effect,
    /// It is done when an answer is there.
    Wait,
}

impl Plan<'_, '_> {
    pub(super) fn call_tool(
        &mut self,
        id: AgentId,
        turn: Option<TurnId>,
        (call_id, tool, args): (CallId, Arc<str>, Json),
        objection: Option<Rejection>,
    ) -> Result<Outcome, Rejection> {
        let agent = self.state.live_agent(id).ok_or_else(|| Rejection::no_agent(id))?;
        let running = agent.turn().filter(|running| turn.is_none_or(|id| id == running.id));
        // Nor may what an attempt left behind that failed call anything before the next.
        let running = running
            .filter(|running| running.cancelling.is_none() && running.next_attempt.is_none());
        let Some(running) = running else {
            return Err(Rejection::NoTurn { name: agent.name.clone(), turn });
        };
        let (session, turn_id) = (agent.session.id, running.id);
        let parsed = Tool::parse(&tool, args.get());
        self.push(session, ToolCallInvoked { turn_id, call_id, tool: tool.clone(), args });
        let parsed = objection.map_or(parsed, Err);
        let next = parsed.and_then(|parsed| self.run_tool(agent, running, call_id, parsed));
        let (result, error, reason) = match next {
            Ok(Next::Effect | Next::Wait) => return Ok(Outcome::Call(call_id)),
            Ok(Next::Done(value)) => {
                (Some(Json::of(&value).unwrap_or_else(|_| Json::null())), None, None)
            }
            Err(no) => (None, Some(explain(&no)), Some(no.code().to_owned())),
        };
        self.push(session, ToolCallResult { turn_id, call_id, tool, result, error, reason });
        Ok(Outcome::Call(call_id))
    }

    fn run_tool(
        &mut self,
        agent: &Agent,
        turn: &Turn,
        call: CallId,
        tool: Tool,
    ) -> Result<Next, Rejection> {
        if tool.is_on_files() {
            return match agent.workspace {
                Some(_) => Ok(Next::Effect),
                None => Err(Rejection::NoWorkspace { name: agent.name.clone() }),
            };
        }
        let done = match tool {
            Tool::SendMessage(args) => return self.tool_send(agent, turn, call, args),
            Tool::Broadcast(args) => self.tool_broadcast(agent, args)?,
            Tool::CheckInbox(args) => self.tool_check_inbox(agent, turn, &args),
            Tool::SpawnAgent(args) => self.tool_spawn(agent, turn, args)?,
            Tool::InspectAgent(args) if args.name == agent.name.as_str() => {
                describe_self(self.state, agent)
            }
            Tool::InspectAgent(args) => {
                let other = self.state.neighbour(agent, &args.name)?;
                if other.parent == Some(agent.id) {
                    // What it did last stands in its log.
                    return Ok(Next::Effect);
                }
                describe(self.state, other)
            }
            Tool::ListChildren(_) => {
                let children = agent.children.iter().filter_map(|id| self.state.live_agent(*id));
                let children: Vec<Value> =
                    children.map(|child| describe(self.state, child)).collect();
                json!({ "children": children })
            }
            Tool::Complete(args) => self.tool_complete(agent, turn, args)?,
            Tool::Poke(args) => self.tool_poke(agent, &args.agent_name)?,
            Tool::RemindMe(args) => self.tool_remind_me(agent, args)?,
            Tool::CancelReminder(args) => self.tool_cancel_reminder(agent, &args)?,
            Tool::Subscribe(args) => self.tool_subscribe(agent, &args)?,
            Tool::Unsubscribe(args) => self.tool_unsubscribe(agent, &args)?,
            Tool::SetAgentMetadata(args) => self.tool_set_metadata(agent, args)?,
            Tool::GateAgent(args) => self.tool_gate(agent, &args.agent_name, GateAction::Gate)?,
            Tool::UngateAgent(args) => {
                self.tool_gate(agent, &args.agent_name, GateAction::Ungate)?
            }
            Tool::PermitTurn(args) => self.tool_permit(agent, &args.agent_name)?,
            tool @ (Tool::CreateWorkspace(_)
            | Tool::DeleteWorkspace(_)
            | Tool::ListWorkspaces(_)
            | Tool::LinkDir(_)
            | Tool::UnlinkDir(_)
            | Tool::LinkFrom(_)) => self.workspace_tool(agent, tool)?,
            Tool::ReadFile(_) | Tool::WriteFile(_) | Tool::ListFiles(_) | Tool::RunCommand(_) => {
                Value::Null
            }
        };
        Ok(Next::Done(done))
    }

    fn tool_send(
        &mut self,
        agent: &Agent,
        turn: &Turn,
        call_id: CallId,
        args: SendMessage,
    ) -> Result<Next, Rejection> {
        check_text(&args.text, self.cx.policy.max_text)?;
        let to = self.state.route(agent, &args.recipient)?;
        if let Some(asked) = &args.reply_to {
            return self.tool_reply(agent, to, asked, args.text).map(Next::Done);
        }
        let recipient = to.agent().and_then(|id| self.state.live_agent(id));
        let sync = args.sync && recipient.is_some();
        self.check_room(to)?;
        if let Some(recipient) = recipient
            && sync
            && self.state.waits_for(recipient, agent.id)
        {
            let (sender, recipient) = (agent.name.clone(), recipient.name.clone());
            return Err(Rejection::WouldDeadlock { sender, recipient });
        }
        let kind = if sync { Kind::Request } else { Kind::Notification };
        let mut letter = Letter::new(Party::Agent(agent.id), to, kind, args.text);
        if let Some(seconds) = args.timeout.filter(|_| sync) {
            letter.metadata.insert("timeout".into(), seconds.to_string());
        }
        letter.set_priority(args.priority);
        let message_id = self.enqueue(letter);
        let (true, Some(recipient)) = (sync, recipient) else {
            return Ok(Next::Done(json!({ "status": "sent", "message_id": message_id })));
        };
        if agent.wait().is_some() {
            // A turn waits for one answer at a time.
            return Ok(Next::Done(pending(message_id)));
        }
        self.wait_for(agent, turn, call_id, (message_id, recipient.id), args.timeout);
        Ok(Next::Wait)
    }

    /// Answers a message before the turn that it is in ends.
    fn tool_reply(
        &mut self,
        agent: &Agent,
        to: Party,
        asked: &str,
        text: String,
    ) -> Result<Value, Rejection> {
        let found = agent.inbox.iter().find(|message| message.id.to_string() == *asked);
        let id = || asked.chars().take(80).collect();
        let Some(message) = found.filter(|message| message.sender == to) else {
            return Err(Rejection::NothingToAnswer { id: id() });
        };
        if !message.kind.wants_answer() || message.answered {
            return Err(Rejection::NoAnswerWanted { id: id(), answered: message.answered });
        }
        let message_id = self.enqueue(Letter {
            reply_to: Some(message.id),
            ..Letter::new(Party::Agent(agent.id), to, Kind::Response, text)
        });
        Ok(json!({ "status": "answered", "message_id": message_id }))
    }

    fn wait_for(
        &mut self,
        agent: &Agent,
        turn: &Turn,
        call_id: CallId,
        (message_id, recipient): (MessageId, AgentId),
        timeout: Option<u32>,
    ) {
        let policy = self.cx.policy;
        let timeout = timeout.map(|seconds| Duration::from_secs(seconds.into()));
        let limit =
            policy.providers.get(&agent.session.provider).and_then(|known| known.call_limit);
        let (wait, on_expiry) = match (timeout, limit) {
            (Some(timeout), Some(limit)) if limit < timeout => (Some(limit), Expiry::Pending),
            (None, Some(limit)) => (Some(limit), Expiry::Pending),
            (timeout, _) => (timeout, Expiry::Timeout),
        };
        let (session, turn_id) = (agent.session.id, turn.id);
        let until = wait.map(|wait| self.cx.now.after(wait));
        self.bootstrap_children_except(agent, turn_id, recipient);
        self.push(
            session,
            TurnWaiting { turn_id, call_id, message_id, recipient, until, on_expiry },
        );
        if self.state.busy_and_waiting().1 >= policy.max_waiting {
            self.push(session, WaitExpired { turn_id, call_id, outcome: Expiry::Pending });
        }
    }

    fn tool_check_inbox(&mut self, agent: &Agent, turn: &Turn, args: &CheckInbox) -> Value {
        let kind = args.kind.map(Kind::from);
        let awaited = agent.answer().map(|answer| answer.id);
        // What may have to be refused is in a turn of its own, and what a call waits for comes
        // with that.
        let wanted = |message: &&Message| {
            !message.is_suspect()
                && Some(message.id) != awaited
                && kind.is_none_or(|kind| kind == message.kind)
                && args.sender.as_ref().is_none_or(|name| {
                    message.sender_name.as_str() == name || message.sender.to_string() == *name
                })
        };
        let mut bytes = 0;
        let fits = |message: &&Message| {
            let first = bytes == 0;
            bytes += message.text.len().max(1);
            first || bytes <= MAX_READ
        };
        let messages: Vec<&Message> = agent.unread().filter(wanted).take_while(fits).collect();
        let more = agent.unread().filter(wanted).count() - messages.len();
        for message in &messages {
            let (message_id, turn_id) = (message.id, turn.id);
            self.push(agent.session.id, MessageCollected { message_id, turn_id, told: None });
        }
        json!({ "messages": messages.into_iter().map(show).collect::<Vec<_>>(), "more": more })
    }

    fn tool_spawn(
        &mut self,
        agent: &Agent,
        turn: &Turn,
        args: SpawnAgent,
    ) -> Result<Value, Rejection> {
        let name = args.name.clone();
        let new = NewAgent {
            name: args.name,
            provider: args.provider,
            model: args.model,
            instructions: args.instructions.into(),
            role: args.role.unwrap_or_default(),
            workspace: args.workspace,
            workspace_subdir: args.workspace_subdir,
            workspace_access: args.workspace_access.map(Access::from),
            metadata: args.metadata,
            budgets: Vec::new(),
        };
        let id = self.create(new, Some(agent), Some(turn.id))?;
        Ok(json!({ "status": "accepted", "agent_id": id, "name": name }))
    }

    fn tool_complete(
        &mut self,
        agent: &Agent,
        turn: &Turn,
        args: Complete,
    ) -> Result<Value, Rejection> {
        check_text(&args.result, self.cx.policy.max_text)?;
        if agent.parent.is_none() {
            return Err(Rejection::NoParent { name: agent.name.clone() });
        }
        if !agent.children.is_empty() {
            return Err(Rejection::AgentHasChildren {
                name: agent.name.clone(),
                children: agent.children.len(),
            });
        }
        let result = args.result.into();
        self.push(agent.session.id, AgentCompleting { turn_id: turn.id, result });
        Ok(json!({ "status": "completing" }))
    }

    pub(super) fn finish_tool(
        &mut self,
        id: AgentId,
        turn_id: TurnId,
        call_id: CallId,
        result: Result<Json, String>,
    ) -> Outcome {
        let Some(agent) = self.state.live_agent(id) else { return Outcome::Done };
        let call = agent
            .turn_is(turn_id)
            .and_then(|turn| turn.calls.iter().find(|call| call.id == call_id));
        let Some(call) = call else { return Outcome::Done };
        let tool = call.tool.clone();
        let (result, error) = match result {
            Ok(value) => (Some(value), None),
            Err(error) => (None, Some(error)),
        };
        self.push(
            agent.session.id,
            ToolCallResult { turn_id, call_id, tool, result, error, reason: None },
        );
        Outcome::Turn(turn_id)
    }
}

/// What a call returns whose answer comes later.
pub(in crate::model) fn pending(request: MessageId) -> Value {
    json!({
        "status": "pending",
        "message_id": request,
        "note": "the answer comes as a message; end your turn to wait for it",
    })
}

/// A message as a model reads it.
pub(in crate::model) fn show(message: &Message) -> Value {
    json!({
        "message_id": message.id,
        "from": message.sender_name,
        "kind": message.kind,
        "text": message.text,
        "reply_to": message.reply_to,
    })
}

/// A rejection as a model reads it.
fn explain(rejection: &Rejection) -> String {
    format!("{rejection}; {}", rejection.hint())
}
