//! What became durable together, ready to be published and projected.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::transcript;
use super::{AgentId, Entry, Event, SessionId, SessionRecord, State};

/// An event with its line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The event.
    pub entry: Entry,
    /// Its line, with the newline.
    pub text: Bytes,
    /// The agent of its session; none for the daemon's own log.
    pub agent: Option<AgentId>,
}

/// Events that became durable together, and what follows from them for the files of agents.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Commit {
    /// The events, in order.
    pub lines: Vec<Line>,
    /// Lines for transcripts, in order.
    pub transcript: Vec<(SessionId, String)>,
    /// Sessions whose records changed, as they are now.
    pub sessions: BTreeMap<SessionId, SessionRecord>,
    /// Sessions that are gone.
    pub removed: Vec<SessionId>,
}

impl Commit {
    /// Adds an event that was just applied to `state`.
    pub fn push(&mut self, state: &State, entry: Entry, text: Bytes) {
        self.transcript.extend(transcript::lines(state, &entry));
        let agent = entry.session.and_then(|session| state.agent_of(session));
        match &entry.event {
            Event::SessionDeleted(data) => self.removed.push(data.deleted_session_id),
            event if changes_record(event) => {
                if let Some(agent) = agent {
                    let record = agent.session.record();
                    self.sessions.insert(record.id, record);
                }
            }
            _ => {}
        }
        let agent = agent.map(|agent| agent.id);
        self.lines.push(Line { entry, text, agent });
    }

    /// Sequence of the last event; none if there is no event.
    pub fn last(&self) -> Option<u64> {
        self.lines.last().map(|line| line.entry.seq)
    }
}

fn changes_record(event: &Event) -> bool {
    matches!(
        event,
        Event::AgentCreated(_)
            | Event::AgentTerminated(_)
            | Event::SessionOpened(_)
            | Event::SessionRestored(_)
            | Event::SessionSuspending(_)
            | Event::SuspendResult(_)
            | Event::SessionSaved(_)
    )
}
