//! Weaving the output of running turns into the events, so that a watcher sees both in the order
//! in which they happened.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use substrat_proto::v1;
use substrat_proto::v1::attach_response::Item;

use self::backend::backend;
use super::convert;
use crate::engine::{Item as Output, Outputs, TurnOutput, Unread};
use crate::launcher::Exit;
use crate::model::{AgentId, CallId, Entry, Event};
use crate::provider::OutputKind;

/// Items of output that are read at once.
const READ: usize = 512;

/// The output of a running turn, as far as it was read.
struct Following {
    output: Arc<TurnOutput>,
    place: u64,
    /// Number of the next delta that the client has not seen.
    next_delta: u64,
    /// Tool calls whose place was passed, or whose event the client had before it came.
    passed: BTreeSet<CallId>,
}

/// Where reading goes on after a mark that ended it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Before,
    Behind,
}

/// Turns events and outputs into the items of a stream.
#[derive(Default)]
pub(super) struct Weave {
    following: BTreeMap<AgentId, Following>,
    /// Sequence of the last event that was woven in.
    cursor: u64,
    /// Items to be sent.
    ready: VecDeque<v1::AttachResponse>,
}

impl Weave {
    /// The next item.
    pub(super) fn pop(&mut self) -> Option<v1::AttachResponse> {
        self.ready.pop_front()
    }

    /// Adds an item that stands in no log.
    pub(super) fn push(&mut self, item: Item) {
        self.ready.push_back(v1::AttachResponse { sequence: 0, time: None, item: Some(item) });
    }

    /// Adds an item that an event made.
    pub(super) fn push_event(&mut self, entry: &Entry, item: Item) {
        let time = Some(convert::timestamp(entry.at));
        let sequence = entry.seq;
        self.ready.push_back(v1::AttachResponse { sequence, time, item: Some(item) });
    }

    /// Follows the output of a running turn, whose first deltas and tool calls the client has
    /// seen.
    pub(super) fn follow(
        &mut self,
        agent: AgentId,
        output: Arc<TurnOutput>,
        seen: u64,
        passed: BTreeSet<CallId>,
    ) {
        self.following.insert(agent, Following { output, place: 0, next_delta: seen, passed });
    }

    /// Notes that an event was passed over.
    pub(super) fn pass(&mut self, sequence: u64) {
        self.cursor = self.cursor.max(sequence);
    }

    /// Weaves in an event of a watched agent.
    pub(super) fn event(&mut self, agent: AgentId, entry: &Entry, outputs: &Outputs) {
        match &entry.event {
            Event::TurnStart(_) => {
                let output = outputs.get(agent).filter(|output| output.turn_seq == entry.seq);
                if let Some(output) = output {
                    self.follow(agent, output, 0, BTreeSet::new());
                }
            }
            Event::ToolCallInvoked(data) => self.read_up_to(agent, Some(data.call_id)),
            Event::ToolUseStarted(_)
            | Event::ToolUseEnded(_)
            | Event::TurnNotice(_)
            | Event::TurnRetry(_)
            | Event::PermissionAsked(_) => self.read_up_to_mark(agent, entry.seq),
            event if event.ends_turn() => {
                self.read_up_to(agent, None);
                self.following.remove(&agent);
            }
            _ => {}
        }
        self.pass(entry.seq);
        if let Some(item) = item(agent, entry) {
            self.push_event(entry, item);
        }
    }

    /// Reads the output of a turn up to where a tool call stands, or to its end.
    fn read_up_to(&mut self, agent: AgentId, call: Option<CallId>) {
        let Some(following) = self.following.get_mut(&agent) else { return };
        if call.is_some_and(|call| following.passed.contains(&call)) {
            return;
        }
        loop {
            let unread = following.output.read(&mut following.place, READ);
            let count = unread.items.len();
            let found = following.take(unread, &mut self.ready, |_, mark| match mark {
                Output::Call(id) if call == Some(*id) => Some(End::Behind),
                _ => None,
            });
            if found || count == 0 {
                break;
            }
        }
    }

    /// Reads the output of a turn up to the mark of an event.
    fn read_up_to_mark(&mut self, agent: AgentId, event: u64) {
        let Some(following) = self.following.get_mut(&agent) else { return };
        loop {
            let unread = following.output.read(&mut following.place, READ);
            let count = unread.items.len();
            let found = following.take(unread, &mut self.ready, |_, item| {
                let Output::Mark(mark) = item else { return None };
                match mark.seq() {
                    Some(seq) if seq < event => None,
                    Some(seq) if seq == event => Some(End::Behind),
                    _ => Some(End::Before),
                }
            });
            if found || count == 0 {
                break;
            }
        }
    }

    /// Reads what running turns have put out, as far as the events have come.
    pub(super) fn read_outputs(&mut self) {
        let cursor = self.cursor;
        for following in self.following.values_mut() {
            let unread = following.output.read(&mut following.place, READ);
            following.take(unread, &mut self.ready, |passed, mark| match mark {
                // Its event comes first, and reads up to it.
                Output::Call(id) if !passed.contains(id) => Some(End::Before),
                Output::After(sequence) if *sequence > cursor => Some(End::Before),
                Output::Mark(mark) if mark.seq().is_none_or(|seq| seq > cursor) => {
                    Some(End::Before)
                }
                Output::Call(_)
                | Output::After(_)
                | Output::Mark(_)
                | Output::Replaced { .. }
                | Output::Delta { .. } => None,
            });
        }
    }

    /// Waits until a running turn has put out something that can be read now.
    pub(super) async fn changed(&self) {
        let waits = self.following.values().filter_map(|following| following.wait(self.cursor));
        let waits: Vec<_> = waits.collect();
        if waits.is_empty() {
            return std::future::pending().await;
        }
        futures_util::future::select_all(waits).await;
    }
}

impl Following {
    /// Turns what was read into items, up to a mark that is the end of it. Returns whether there
    /// was one.
    fn take(
        &mut self,
        unread: Unread,
        ready: &mut VecDeque<v1::AttachResponse>,
        mut end: impl FnMut(&BTreeSet<CallId>, &Output) -> Option<End>,
    ) -> bool {
        let turn = self.output.turn_seq;
        let count = unread.items.len() as u64;
        for (position, item) in (1..).zip(unread.items) {
            let end = end(&self.passed, &item);
            if let Output::Call(id) = &item
                && end != Some(End::Before)
            {
                self.passed.insert(*id);
            }
            if let Some(end) = end {
                self.place -= count - position;
                if end == End::Before {
                    self.place -= 1;
                }
                return true;
            }
            let index = match &item {
                Output::Delta { index, .. } => *index,
                Output::Replaced { to, .. } => *to,
                Output::Call(_) | Output::After(_) | Output::Mark(_) => continue,
            };
            if index < self.next_delta {
                continue;
            }
            if index > self.next_delta {
                let (from_index, to_index) = (self.next_delta, index);
                let lagged = v1::Lagged { turn, from_index, to_index };
                ready.push_back(provisional(Item::Lagged(lagged)));
                self.next_delta = index;
            }
            if let Output::Delta { .. } = &item {
                self.next_delta += 1;
            }
            ready.extend(output(turn, item).map(provisional));
        }
        false
    }

    /// What is to be waited for before there is more to read; none if that is an event.
    fn wait(&self, cursor: u64) -> Option<BoxFuture<'_, ()>> {
        let mut place = self.place;
        match self.output.read(&mut place, 1).items.into_iter().next() {
            Some(Output::Call(id)) if !self.passed.contains(&id) => None,
            Some(Output::After(sequence)) if sequence > cursor => None,
            Some(Output::Mark(mark)) => match mark.seq() {
                None => Some(Box::pin(async move { self.output.settled(&mark).await })),
                Some(sequence) if sequence > cursor => None,
                Some(_) => Some(Box::pin(self.output.changed(self.place))),
            },
            _ => Some(Box::pin(self.output.changed(self.place))),
        }
    }
}

/// What a watcher sees of an item of output.
fn output(turn: u64, item: Output) -> Option<Item> {
    let on_wire = |kind: OutputKind| match kind {
        OutputKind::Text => v1::OutputKind::Text.into(),
        OutputKind::Thinking => v1::OutputKind::Thinking.into(),
    };
    match item {
        Output::Delta { index, kind, text } => Some(Item::OutputDelta(v1::OutputDelta {
            turn,
            index,
            kind: on_wire(kind),
            text: text.into(),
        })),
        Output::Replaced { from, to, kind, text } => {
            Some(Item::OutputReplaced(v1::OutputReplaced {
                turn,
                from_index: from,
                to_index: to,
                text: text.into(),
                kind: on_wire(kind),
            }))
        }
        Output::Call(_) | Output::After(_) | Output::Mark(_) => None,
    }
}

fn provisional(item: Item) -> v1::AttachResponse {
    v1::AttachResponse { sequence: 0, time: None, item: Some(item) }
}

/// What a watcher of an agent sees of an event in its log.
fn item(agent: AgentId, entry: &Entry) -> Option<Item> {
    let agent_id = agent.to_string();
    let ended = |turn: crate::model::TurnId, outcome: v1::TurnOutcome| v1::TurnEnded {
        agent_id: agent.to_string(),
        turn_id: turn.to_string(),
        outcome: outcome.into(),
        ..Default::default()
    };
    Some(match &entry.event {
        Event::TurnStart(data) => Item::TurnStarted(v1::TurnStarted {
            agent_id,
            turn_id: data.turn_id.to_string(),
            prompt: data.prompt.to_string(),
        }),
        Event::TurnComplete(data) => Item::TurnEnded(v1::TurnEnded {
            response: data.response.to_string(),
            ..ended(data.turn_id, v1::TurnOutcome::Completed)
        }),
        Event::TurnFailed(data) => Item::TurnEnded(v1::TurnEnded {
            error: data.error.clone(),
            error_class: data.class.as_str().to_owned(),
            ..ended(data.turn_id, v1::TurnOutcome::Failed)
        }),
        Event::TurnCancelled(data) => {
            Item::TurnEnded(ended(data.turn_id, v1::TurnOutcome::Cancelled))
        }
        Event::TurnInterrupted(data) => Item::TurnEnded(v1::TurnEnded {
            error: "the daemon stopped while it ran".to_owned(),
            ..ended(data.turn_id, v1::TurnOutcome::Interrupted)
        }),
        Event::ToolCallInvoked(data) => Item::ToolCallStarted(v1::ToolCallStarted {
            agent_id,
            turn_id: data.turn_id.to_string(),
            call_id: data.call_id.to_string(),
            tool: data.tool.to_string(),
            arguments: serde_json::from_str(data.args.get()).ok().map(convert::object),
            native: false,
        }),
        Event::ToolCallResult(data) => Item::ToolCallFinished(v1::ToolCallFinished {
            agent_id,
            turn_id: data.turn_id.to_string(),
            call_id: data.call_id.to_string(),
            tool: data.tool.to_string(),
            result: data
                .result
                .as_ref()
                .and_then(|result| serde_json::from_str(result.get()).ok())
                .map(convert::json),
            error: data.error.clone().unwrap_or_default(),
            native: false,
        }),
        Event::MessageEnqueued(data) => {
            Item::MessageSeen(v1::MessageSeen { message: Some(convert::enqueued(entry.seq, data)) })
        }
        Event::AgentCrashed(data) => Item::AgentCrashed(v1::AgentCrashed {
            agent_id,
            reason: data.reason.clone(),
            recovered: data.recovered,
        }),
        Event::ToolUseStarted(_)
        | Event::ToolUseEnded(_)
        | Event::TurnNotice(_)
        | Event::TurnRetry(_)
        | Event::TurnStalled(_)
        | Event::PermissionAsked(_)
        | Event::PermissionAnswered(_)
        | Event::PermissionWithdrawn(_) => return backend(agent_id, entry),
        event => Item::ProcessNotice(v1::ProcessNotice { agent_id, ..process(event)? }),
    })
}

/// What a watcher sees of an event about a process: not of one that ended well.
fn process(event: &Event) -> Option<v1::ProcessNotice> {
    let (turn, text) = match event {
        Event::ProcessExited(data) if data.status != Exit::Code(0).to_string() => {
            let why = data.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            (data.turn_id, format!("process {} ended with {}{why}", data.pid, data.status))
        }
        Event::LimitHit(data) => {
            (data.turn_id, format!("limit of {} met: {}", data.limit.as_str(), data.detail))
        }
        Event::SandboxOff(data) => {
            (Some(data.turn_id), format!("runs without a sandbox: {}", data.reason))
        }
        _ => return None,
    };
    let turn_id = turn.map(|turn| turn.to_string()).unwrap_or_default();
    Some(v1::ProcessNotice { turn_id, event: event.name().to_owned(), text, ..Default::default() })
}

mod backend;
#[cfg(test)]
mod tests;
