//! Idempotency: which mutations were done under which key, and what they came to.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::{
    AgentId, CallId, MessageId, PermissionId, Rejection, SessionId, Timestamp, TurnId, WorkspaceId,
};

/// The idempotency key of a mutation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The key, as the client chose it.
    pub id: String,
    /// A digest of what is asked.
    pub fingerprint: String,
}

/// What a mutation came to. Recorded with its key, so that a repetition returns the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// An agent was created or changed.
    Agent(AgentId),
    /// Agents were ended, leaves first.
    Agents(Vec<AgentId>),
    /// A message was sent.
    Message {
        /// The recipient.
        agent: AgentId,
        /// The message.
        message: MessageId,
        /// Sequence of the event that enqueued it; 0 in journals that do not tell it.
        #[serde(default)]
        sequence: u64,
    },
    /// A tool was called.
    Call(CallId),
    /// The end of a turn was asked for.
    Turn(TurnId),
    /// A session was changed or deleted.
    Session(SessionId),
    /// A workspace was created, changed or deleted.
    Workspace(WorkspaceId),
    /// A question of a backend was asked or answered.
    Permission(PermissionId),
    /// It was denied without having been asked: the turn has asked too much.
    Denied,
    /// So many were removed.
    Removed(u32),
    /// Nothing to tell.
    Done,
}

/// Where the answer to a recorded message or tool call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// The turn.
    pub turn: TurnId,
    /// Sequence of the event that ended the turn of the message, or of the result of the call.
    pub seq: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    id: String,
    fingerprint: String,
    expires: Timestamp,
    outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answered: Option<Answered>,
}

/// What is asked with a key, if an answer to it comes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Asked {
    Message(MessageId),
    Call(CallId),
}

impl Asked {
    fn with(outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::Message { message, .. } => Some(Self::Message(*message)),
            Outcome::Call(call) => Some(Self::Call(*call)),
            _ => None,
        }
    }
}

/// The keys that are remembered, oldest first: those of USER, or those of one agent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "VecDeque<Record>", into = "VecDeque<Record>")]
pub struct Requests {
    records: VecDeque<Record>,
    /// Records that were ever dropped from the front: an index minus this is a place in `records`.
    dropped: u64,
    by_id: FxHashMap<String, u64>,
    by_asked: FxHashMap<Asked, u64>,
}

impl Requests {
    /// Most keys of USER that are remembered, whatever their age: about 16 MiB.
    pub const MAX: usize = 65_536;
    /// Most keys of an agent that are remembered, whatever their age: about 1 MiB.
    pub const MAX_OF_AGENT: usize = 4_096;

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// What was done under this key: nothing yet, or its outcome.
    pub fn find(&self, request: &Request) -> Result<Option<&Outcome>, Rejection> {
        match self.record(request) {
            None => Ok(None),
            Some(record) if record.fingerprint == request.fingerprint => Ok(Some(&record.outcome)),
            Some(_) => Err(Rejection::RequestIdReused { id: request.id.clone() }),
        }
    }

    /// Where the answer to the message or call under this key stands.
    pub fn answered(&self, request: &Request) -> Option<Answered> {
        self.record(request)?.answered
    }

    fn record(&self, request: &Request) -> Option<&Record> {
        let place = self.by_id.get(&request.id)? - self.dropped;
        self.records.get(place as usize)
    }

    pub(super) fn insert(
        &mut self,
        now: Timestamp,
        (id, fingerprint): (&str, &str),
        expires: Timestamp,
        outcome: &Outcome,
        most: usize,
    ) {
        while self.records.len() >= most
            || self.records.front().is_some_and(|record| record.expires <= now)
        {
            self.drop_oldest();
        }
        let place = self.dropped + self.records.len() as u64;
        if let Some(asked) = Asked::with(outcome) {
            self.by_asked.insert(asked, place);
        }
        self.by_id.insert(id.to_owned(), place);
        self.records.push_back(Record {
            id: id.to_owned(),
            fingerprint: fingerprint.to_owned(),
            expires,
            outcome: outcome.clone(),
            answered: None,
        });
    }

    fn drop_oldest(&mut self) {
        let Some(record) = self.records.pop_front() else { return };
        self.dropped += 1;
        self.by_id.remove(&record.id);
        if let Some(asked) = Asked::with(&record.outcome) {
            self.by_asked.remove(&asked);
        }
    }

    pub(super) fn set_answered(&mut self, message: MessageId, answered: Answered) {
        self.answer(Asked::Message(message), answered);
    }

    pub(super) fn set_returned(&mut self, call: CallId, answered: Answered) {
        self.answer(Asked::Call(call), answered);
    }

    /// The recorded calls, and whether each has returned.
    #[cfg(test)]
    pub(super) fn calls(&self) -> impl Iterator<Item = (CallId, Option<Answered>)> {
        self.records.iter().filter_map(|record| match record.outcome {
            Outcome::Call(call) => Some((call, record.answered)),
            _ => None,
        })
    }

    fn answer(&mut self, asked: Asked, answered: Answered) {
        let Some(place) = self.by_asked.get(&asked) else { return };
        if let Some(record) = self.records.get_mut((place - self.dropped) as usize) {
            record.answered = Some(answered);
        }
    }
}

impl PartialEq for Requests {
    fn eq(&self, other: &Self) -> bool {
        self.records == other.records
    }
}

impl Eq for Requests {}

impl From<VecDeque<Record>> for Requests {
    fn from(records: VecDeque<Record>) -> Self {
        let mut requests = Self { records, ..Self::default() };
        for (place, record) in (0..).zip(&requests.records) {
            requests.by_id.insert(record.id.clone(), place);
            if let Some(asked) = Asked::with(&record.outcome) {
                requests.by_asked.insert(asked, place);
            }
        }
        requests
    }
}

impl From<Requests> for VecDeque<Record> {
    fn from(requests: Requests) -> Self {
        requests.records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: u32) -> Request {
        Request { id: format!("key-{id}"), fingerprint: "f".to_owned() }
    }

    #[test]
    fn keys_are_found_until_they_expire_and_survive_a_snapshot() {
        let mut requests = Requests::default();
        for id in 0..10 {
            let (now, end) = (Timestamp::from_micros(id), Timestamp::from_micros(id + 5));
            let (key, outcome) = (format!("key-{id}"), Outcome::Removed(id as u32));
            requests.insert(now, (&key, "f"), end, &outcome, Requests::MAX);
        }
        assert_eq!(requests.find(&request(4)), Ok(None), "expired at 9");
        assert_eq!(requests.find(&request(5)), Ok(Some(&Outcome::Removed(5))));
        let other = Request { fingerprint: "g".to_owned(), ..request(5) };
        assert!(matches!(requests.find(&other), Err(Rejection::RequestIdReused { .. })));

        let kept: Requests = VecDeque::from(requests).into();
        assert_eq!(kept.find(&request(9)), Ok(Some(&Outcome::Removed(9))));
    }

    #[test]
    fn an_answer_is_found_by_the_key_of_its_message() {
        let mut requests = Requests::default();
        let message = MessageId::from_u128(9);
        let outcome = Outcome::Message { agent: AgentId::from_u128(8), message, sequence: 3 };
        let end = Timestamp::from_micros(9);
        requests.insert(Timestamp::default(), ("key-1", "f"), end, &outcome, Requests::MAX);
        let answered = Answered { turn: TurnId::from_u64(3), seq: 12 };
        requests.set_answered(message, answered);
        assert_eq!(requests.answered(&request(1)), Some(answered));
    }

    #[test]
    fn the_oldest_keys_of_an_agent_make_room_for_new_ones() {
        let mut requests = Requests::default();
        let end = Timestamp::from_micros(9);
        for id in 0..4_u64 {
            let (key, outcome) = (format!("key-{id}"), Outcome::Call(CallId::from_u64(id)));
            requests.insert(Timestamp::default(), (&key, "f"), end, &outcome, 2);
        }
        assert_eq!(requests.find(&request(1)), Ok(None));
        assert_eq!(requests.find(&request(2)), Ok(Some(&Outcome::Call(CallId::from_u64(2)))));
        let answered = Answered { turn: TurnId::from_u64(3), seq: 12 };
        requests.set_returned(CallId::from_u64(0), answered);
        requests.set_returned(CallId::from_u64(3), answered);
        assert_eq!(requests.answered(&request(2)), None);
        assert_eq!(requests.answered(&request(3)), Some(answered));
    }
}
