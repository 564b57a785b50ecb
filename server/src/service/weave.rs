//! Weaving the output of running turns into the events, so that a watcher sees both in the order
//! in which they happened.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use substrat_proto::v1;
use substrat_proto::v1::attach_response::Item;

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

    /// Reads what running turns have put out, as far as the events have come.
    pub(super) fn read_outputs(&mut self) {
        let cursor = self.cursor;
        for following in self.following.values_mut() {
            let unread = following.output.read(&mut following.place, READ);
            following.take(unread, &mut self.ready, |passed, mark| match mark {
                // Its event comes first, and reads up to it.
                Output::Call(id) if !passed.contains(id) => Some(End::Before),
                Output::After(sequence) if *sequence > cursor => Some(End::Before),
                Output::Call(_) | Output::After(_) | Output::Delta { .. } => None,
            });
        }
    }

    /// Waits until a running turn has put out something that can be read now.
    pub(super) async fn changed(&self) {
        let waits = self.following.values().filter(|following| !following.is_blocked(self.cursor));
        let waits: Vec<_> =
            waits.map(|following| Box::pin(following.output.changed(following.place))).collect();
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
            let Output::Delta { index, kind, text } = item else { continue };
            if index < self.next_delta {
                continue;
            }
            if index > self.next_delta {
                let (from_index, to_index) = (self.next_delta, index);
                let lagged = v1::Lagged { turn, from_index, to_index };
                ready.push_back(provisional(Item::Lagged(lagged)));
            }
            self.next_delta = index + 1;
            let kind = match kind {
                OutputKind::Text => v1::OutputKind::Text,
                OutputKind::Thinking => v1::OutputKind::Thinking,
            };
            ready.push_back(provisional(Item::OutputDelta(v1::OutputDelta {
                turn,
                index,
                kind: kind.into(),
                text: text.into(),
            })));
        }
        false
    }

    /// Whether the next item is a mark whose event has not come yet.
    fn is_blocked(&self, cursor: u64) -> bool {
        let mut place = self.place;
        match self.output.read(&mut place, 1).items.first() {
            Some(Output::Call(id)) => !self.passed.contains(id),
            Some(Output::After(sequence)) => *sequence > cursor,
            Some(Output::Delta { .. }) | None => false,
        }
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
        }),
        Event::MessageEnqueued(data) => {
            Item::MessageSeen(v1::MessageSeen { message: Some(convert::enqueued(entry.seq, data)) })
        }
        Event::AgentCrashed(data) => Item::AgentCrashed(v1::AgentCrashed {
            agent_id,
            reason: data.reason.clone(),
            recovered: data.recovered,
        }),
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

#[cfg(test)]
mod tests;
