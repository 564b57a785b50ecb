//! The log of one agent, in this daemon's events.
//!
//! What has no counterpart is counted. `send` and its result are the provider's echo of a turn.
//! A turn that nothing ended has failed if another one came after it; the last one of a log is
//! left open, for recovery to interrupt.

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;
use serde_json::Value;

use super::line::{Line, labels, text};
use super::report::Report;
use super::team::Member;
use crate::model::{
    Advice, AgentId, AgentTerminated, Blob, CallId, DiscardReason, EndReason, Event, FailureClass,
    GateAction, IdSource, Json, Kind, MessageDelivered, MessageDiscarded, MessageEnqueued,
    MessageId, MetadataUpdated, Name, Party, Pattern, SessionRestored, SessionSaved, Stage,
    SubscriptionId, SuspendResult, Timestamp, ToolCallInvoked, ToolCallResult, ToolGate,
    ToolPermitTurn, ToolSubscribe, TurnComplete, TurnFailed, TurnId, TurnInterrupted, TurnStart,
};

/// An event and when it happened.
pub(super) type Dated = (Timestamp, Event);

/// What the log of an agent comes to.
pub(super) struct Past {
    /// Its events after its creation, in order.
    pub(super) events: Vec<Dated>,
    /// Whether its last turn has no end.
    pub(super) is_open: bool,
    /// Subscriptions that it still has.
    pub(super) subscriptions: Vec<ToolSubscribe>,
}

/// A turn without an end so far.
struct Open {
    id: TurnId,
    /// Its `turn.start` in the events.
    start: usize,
    /// Its end, which is held back until what was delivered with it is there.
    end: Option<Dated>,
}

/// A message that is in the inbox.
struct Waiting {
    id: MessageId,
    /// Its `message.enqueued` in the events.
    enqueued: usize,
}

pub(super) struct History<'a> {
    member: &'a Member,
    names: &'a BTreeMap<AgentId, Name>,
    ids: &'a mut dyn IdSource,
    report: &'a mut Report,
    /// None for an event that is not to be.
    events: Vec<Option<Dated>>,
    turn: Option<Open>,
    inbox: VecDeque<Waiting>,
    /// Every message so far, and whether it is still in the inbox.
    messages: BTreeMap<MessageId, bool>,
    /// Whether the session is live.
    is_live: bool,
    /// Name of the line before.
    previous: &'a str,
    /// What the provider gave to resume from, by the log.
    saved: Option<Blob>,
    /// The subscriptions that it has, by the ids that they had.
    subscriptions: BTreeMap<String, ToolSubscribe>,
}

#[derive(Deserialize)]
struct Enqueued {
    message_id: MessageId,
    sender: Party,
    kind: Option<String>,
    #[serde(default)]
    payload: String,
    timestamp: Option<String>,
    reply_to: Option<MessageId>,
    metadata: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
struct Call {
    tool: String,
    args: Option<Json>,
    result: Option<Json>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Subscribed {
    target_id: AgentId,
    from: Pattern,
    to: Pattern,
    once: Option<bool>,
}

#[derive(Deserialize)]
struct Label {
    key: String,
    value: Option<Value>,
}

/// Reads a key of the data.
macro_rules! key {
    ($line:expr, $key:ident: $type:ty) => {{
        #[derive(Deserialize)]
        struct Data {
            $key: $type,
        }
        $line.data::<Data>().map(|data| data.$key)
    }};
}

impl<'a> History<'a> {
    /// The past of an agent. `names` are those of all agents.
    pub(super) fn convert(
        member: &'a Member,
        names: &'a BTreeMap<AgentId, Name>,
        ids: &'a mut dyn IdSource,
        report: &'a mut Report,
    ) -> Past {
        let mut history = Self {
            member,
            names,
            ids,
            report,
            events: Vec::with_capacity(member.session.log.lines.len()),
            turn: None,
            inbox: VecDeque::new(),
            messages: BTreeMap::new(),
            is_live: true,
            previous: "",
            saved: None,
            subscriptions: BTreeMap::new(),
        };
        let lines = &member.session.log.lines;
        let mut ended = false;
        for (place, line) in lines.iter().enumerate() {
            if ended {
                history.report.leave(format!("{} after the end of its agent", line.event));
                continue;
            }
            ended = line.event == "agent.terminated";
            history.take(line, &lines[place + 1..]);
            history.previous = &line.event;
        }
        history.finish(ended)
    }

    fn push(&mut self, at: Timestamp, event: impl Into<Event>) {
        self.events.push(Some((at, event.into())));
    }

    /// Takes a line; `after` are those that follow.
    fn take(&mut self, line: &Line, after: &[Line]) {
        match line.event.as_str() {
            "tool.permit_turn" => self.push(line.at, ToolPermitTurn {}),
            "session.restored" => self.restored(line.at),
            "agent.terminated" => self.end(line.at, EndReason::Requested),
            // The agent was made of it already.
            "agent.created" => {}
            echo @ ("send" | "send.result" | "suspend" | "stop" | "stop.result") => {
                self.report.leave(format!("{echo} (the provider's echo)"));
            }
            event => {
                if self.take_data(line, after).is_none() {
                    self.report.leave(format!("{event} (its data does not read)"));
                }
            }
        }
    }

    /// Takes a line by its data; none if that does not read.
    fn take_data(&mut self, line: &Line, after: &[Line]) -> Option<()> {
        let at = line.at;
        match line.event.as_str() {
            "turn.start" => self.start(at, key!(line, prompt: String)?),
            "turn.complete" => self.complete(at, key!(line, response: String)?, after),
            "message.enqueued" => self.enqueue(at, line.data()?),
            "message.delivered" => self.deliver(at, key!(line, message_id: MessageId)?, after),
            "tool.call" => self.call(at, line.data()?),
            "tool.subscribe" | "tool.unsubscribe" => self.subscription(line)?,
            "metadata.updated" => self.label(at, line.data()?),
            "tool.gate" => {
                let action = key!(line, action: GateAction)?;
                self.push(at, ToolGate { action });
            }
            "session.created" => self.native_session(&line.data()?),
            "suspend.result" => self.suspended(at, &line.data()?),
            other => self.report.leave(format!("{other} (unknown)")),
        }
        Some(())
    }

    fn start(&mut self, at: Timestamp, prompt: String) {
        self.close_turn();
        if let Some(lost) = self.turn.take() {
            let messages = self.messages_of(&lost);
            let error = "the Python Substrat noted no end of this turn".to_owned();
            let (agent, class) = (self.member.name.clone(), FailureClass::ProviderGone);
            self.push(at, TurnFailed { turn_id: lost.id, agent, class, error, messages });
        }
        if !self.is_live {
            self.restore(at);
        }
        // Where it will stand is not known yet, so its id does not tell.
        let id = TurnId::from_u64((self.ids.next_u128() >> 64) as u64);
        let start = self.events.len();
        self.push(at, TurnStart::new(id, prompt.into(), Vec::new()));
        self.turn = Some(Open { id, start, end: None });
        self.report.turns += 1;
    }

    fn complete(&mut self, at: Timestamp, response: String, after: &[Line]) {
        let agent = self.member.name.clone();
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.end.is_none()) else {
            return self.report.leave("turn.complete without a turn");
        };
        let event = TurnComplete {
            turn_id: turn.id,
            response: response.into(),
            agent,
            answers: Vec::new(),
        };
        turn.end = Some((at, event.into()));
        // Its messages are delivered after it there, and with it here.
        if !delivers(after) {
            self.close_turn();
        }
    }

    /// Ends the turn whose end was held back.
    fn close_turn(&mut self) {
        if let Some(turn) = self.turn.take_if(|turn| turn.end.is_some()) {
            self.events.push(turn.end);
        }
    }

    fn enqueue(&mut self, at: Timestamp, data: Enqueued) {
        let Enqueued { message_id, sender, kind, payload, timestamp, reply_to, metadata } = data;
        if self.messages.contains_key(&message_id) {
            return self.report.leave("message.enqueued of a message that was there already");
        }
        let kind = match kind.as_deref() {
            Some("response") => Kind::Response,
            Some("notification") => Kind::Notification,
            Some("multicast") => Kind::Multicast,
            Some("error") => Kind::Error,
            _ => Kind::Request,
        };
        let timestamp = timestamp.and_then(|text| text.parse().ok()).unwrap_or(at);
        let sender_name = match sender {
            Party::System => Name::known("SYSTEM"),
            Party::User => Name::known("USER"),
            Party::Agent(id) => self.names.get(&id).cloned().unwrap_or_else(|| Name::known("?")),
        };
        let enqueued = self.events.len();
        self.push(
            at,
            MessageEnqueued {
                message_id,
                sender,
                recipient: Party::Agent(self.member.created.agent_id),
                kind,
                payload: payload.into(),
                timestamp,
                reply_to,
                metadata: labels(metadata),
                sender_name,
                recipient_name: self.member.name.clone(),
            },
        );
        self.inbox.push_back(Waiting { id: message_id, enqueued });
        self.messages.insert(message_id, true);
        self.report.messages += 1;
    }

    fn deliver(&mut self, at: Timestamp, message_id: MessageId, after: &[Line]) {
        let waits = self.messages.get_mut(&message_id).filter(|waits| **waits);
        let Some(waits) = waits else {
            return self.report.leave("message.delivered of a message that was not there");
        };
        *waits = false;
        let place = self.inbox.iter().position(|waiting| waiting.id == message_id);
        let Some(waiting) = place.and_then(|place| self.inbox.remove(place)) else { return };
        let Some(turn) = &self.turn else {
            // An agent that is idle and has no mail must not be woken by it.
            self.events[waiting.enqueued] = None;
            self.report.messages -= 1;
            return self.report.leave("message that was read outside of a turn");
        };
        let (turn_id, start, is_over) = (turn.id, turn.start, turn.end.is_some());
        if is_over
            && waiting.enqueued < start
            && let Some(Some((_, Event::TurnStart(data)))) = self.events.get_mut(start)
        {
            data.messages.push(message_id);
        }
        self.push(at, MessageDelivered { message_id, turn_id: Some(turn_id) });
        if is_over && !delivers(after) {
            self.close_turn();
        }
    }

    fn call(&mut self, at: Timestamp, call: Call) {
        let Some(turn) = self.turn.as_ref().filter(|turn| turn.end.is_none()) else {
            return self.report.leave("tool.call outside of a turn");
        };
        let (turn_id, call_id) = (turn.id, CallId::fresh(self.ids));
        let tool: std::sync::Arc<str> = call.tool.into();
        let args = call.args.unwrap_or_else(Json::null);
        self.push(at, ToolCallInvoked { turn_id, call_id, tool: tool.clone(), args });
        let (result, error) = (call.result, call.error.map(text));
        self.push(at, ToolCallResult { turn_id, call_id, tool, result, error, reason: None });
    }

    fn label(&mut self, at: Timestamp, Label { key, value }: Label) {
        self.push(at, MetadataUpdated { key, value: value.map(text) });
    }

    fn restored(&mut self, at: Timestamp) {
        // The provider and its scheduler both note it, and a turn has begun by then.
        let again = self.previous == "session.restored";
        if again || (self.previous == "turn.start" && self.is_live) {
            return self.report.leave("session.restored (noted twice, or with its turn)");
        }
        self.restore(at);
    }

    fn restore(&mut self, at: Timestamp) {
        let (provider, model) = provider_of(self.member);
        self.push(at, SessionRestored { provider, model });
        self.is_live = true;
    }

    fn suspended(&mut self, at: Timestamp, data: &Value) {
        if let Some(state) = data.get("result").and_then(Value::as_str) {
            self.saved = serde_json::from_value(Value::from(state)).ok().or(self.saved.take());
        }
        let in_turn = self.turn.as_ref().is_some_and(|turn| turn.end.is_none());
        if !self.is_live || in_turn {
            return self.report.leave("suspend.result (noted twice, or within a turn)");
        }
        self.close_turn();
        let state_size = data.get("state_size").and_then(Value::as_u64).unwrap_or(0);
        self.push(at, SuspendResult { state_size, provider_state: None, error: None });
        self.is_live = false;
    }

    /// The session of the provider itself stands in its first line alone until it is suspended.
    fn native_session(&mut self, data: &BTreeMap<String, Value>) {
        if self.saved.is_some() || !data.get("session_id").is_some_and(Value::is_string) {
            return;
        }
        let keys = ["session_id", "model", "workspace", "system_prompt"];
        let state: serde_json::Map<String, Value> = keys
            .into_iter()
            .filter_map(|key| Some((key.to_owned(), data.get(key)?.clone())))
            .collect();
        self.saved = serde_json::to_vec(&state).ok().map(Blob::from);
    }

    /// Whether one for once only has told already is not noted there, so such a one is left out.
    fn subscription(&mut self, line: &Line) -> Option<()> {
        let id = key!(line, subscription_id: String)?;
        if line.event == "tool.unsubscribe" {
            self.subscriptions.remove(&id);
            return Some(());
        }
        let data: Subscribed = line.data()?;
        if data.once.unwrap_or(false) {
            self.report.leave("tool.subscribe (for once only)");
            return Some(());
        }
        let subscription = ToolSubscribe {
            subscription_id: SubscriptionId::fresh(self.ids),
            target: self.names.get(&data.target_id)?.clone(),
            target_id: data.target_id,
            from: data.from,
            to: data.to,
            once: false,
        };
        self.subscriptions.insert(id, subscription);
        Some(())
    }

    /// The agent ends: nothing of it stays open.
    fn end(&mut self, at: Timestamp, reason: EndReason) {
        self.close_turn();
        if let Some(lost) = self.turn.take() {
            self.push(
                at,
                TurnInterrupted {
                    turn_id: lost.id,
                    agent: self.member.name.clone(),
                    stage: Stage::DuringAgentExecution,
                    recovery: Advice::CheckAgentIdempotency,
                    lost_calls: Vec::new(),
                    wakes: false,
                },
            );
        }
        for Waiting { id, .. } in std::mem::take(&mut self.inbox) {
            let reason = DiscardReason::Terminated;
            self.push(at, MessageDiscarded { message_id: id, reason });
        }
        self.push(at, AgentTerminated { agent_id: self.member.created.agent_id, reason });
    }

    /// The messages that a turn without an end was started with, which its `turn.start` gets.
    fn messages_of(&mut self, turn: &Open) -> Vec<MessageId> {
        let Some(Some((_, Event::TurnStart(data)))) = self.events.get_mut(turn.start) else {
            return Vec::new();
        };
        // How a prompt begins that is made of the inbox.
        if data.prompt.starts_with("Message from ") || data.prompt.starts_with("1. From ") {
            let before = self.inbox.iter().filter(|waiting| waiting.enqueued < turn.start);
            data.messages = before.map(|waiting| waiting.id).collect();
        }
        data.messages.clone()
    }

    fn finish(mut self, ended: bool) -> Past {
        self.close_turn();
        let record = &self.member.session.record;
        let last = self.events.iter().rev().flatten().map(|(at, _)| *at).next();
        let at = last.max(record.suspended_at).unwrap_or(self.member.at);
        if let (false, Some(reason)) = (ended, self.member.to_end) {
            self.end(at, reason);
        } else if !ended {
            self.leave_suspended(at);
        }
        self.report.pending += self.inbox.len() as u64;
        let is_open = self.turn.is_some();
        let mut subscriptions: Vec<_> = self.subscriptions.into_values().collect();
        subscriptions.retain(|_| self.member.is_live());
        Past { events: self.events.into_iter().flatten().collect(), is_open, subscriptions }
    }

    /// The session is resumed from what its record says, or else from what its log says.
    fn leave_suspended(&mut self, at: Timestamp) {
        let record = &self.member.session.record;
        let recorded = Some(record.provider_state.clone()).filter(|state| state.size() > 0);
        let mut state = recorded.or_else(|| self.saved.take());
        if &*record.provider_name == "scripted" && state.take().is_some() {
            self.report.leave("provider state of a Python script");
        }
        let state_size = state.as_ref().map_or(0, Blob::size);
        match (self.turn.take(), state) {
            (Some(open), state) => {
                self.messages_of(&open);
                self.turn = Some(open);
                self.report.open_turns += 1;
                if let Some(provider_state) = state {
                    self.push(at, SessionSaved { state_size, provider_state });
                }
            }
            (None, Some(provider_state)) if !self.is_live => {
                self.push(at, SessionSaved { state_size, provider_state });
            }
            (None, provider_state) if self.is_live => {
                self.push(at, SuspendResult { state_size, provider_state, error: None });
            }
            (None, _) => {}
        }
    }
}

/// Whether messages are delivered before the next turn starts.
fn delivers(after: &[Line]) -> bool {
    let turn = after.iter().take_while(|line| {
        !matches!(line.event.as_str(), "turn.start" | "suspend.result" | "agent.terminated")
    });
    turn.into_iter().any(|line| line.event == "message.delivered")
}

/// Provider and model of an agent's session.
pub(super) fn provider_of(member: &Member) -> (std::sync::Arc<str>, Option<std::sync::Arc<str>>) {
    let record = &member.session.record;
    let model = record.model.as_deref().filter(|model| !model.is_empty());
    (record.provider_name.as_str().into(), model.map(Into::into))
}
