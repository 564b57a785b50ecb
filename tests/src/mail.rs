//! Judging where messages went, from the log of a daemon alone.

use std::collections::{BTreeMap, BTreeSet};

use substrat_proto::v1;

use crate::harness::text;

/// A message, and where it went.
#[derive(Debug, Default, Clone)]
pub struct Mail {
    /// Ids of both ends, and the kind.
    pub sender: String,
    pub recipient: String,
    pub kind: String,
    pub text: String,
    pub reply_to: String,
    /// The turns that were completed with it; an empty one where USER acknowledged it.
    pub delivered: Vec<String>,
    /// Why it was discarded.
    pub discarded: Vec<String>,
}

/// What an agent is doing, as its events tell.
#[derive(Debug, Default)]
pub struct Life {
    pub turn: Option<String>,
    /// Interrupted so often that only a message starts it again.
    pub left_alone: bool,
    pub ended: bool,
}

/// The log of a daemon, and what it says of messages and agents.
#[derive(Debug, Default)]
pub struct Ledger {
    pub events: Vec<v1::Event>,
    pub mail: BTreeMap<String, Mail>,
    pub agents: BTreeMap<String, Life>,
    /// Completed turns, and the messages that were in a turn.
    completed: BTreeSet<String>,
    held: BTreeMap<String, BTreeSet<String>>,
    /// Messages that are in the inboxes, of USER and of agents.
    pub of_user: BTreeSet<String>,
    of_agents: BTreeMap<String, BTreeSet<String>>,
    running: usize,
}

/// The id of USER at either end of a message.
pub const USER: &str = "00000000000000000000000000000001";

impl Ledger {
    /// Takes the next event; asserts that none is missing and none comes twice.
    pub fn take(&mut self, event: v1::Event) {
        assert_eq!(event.sequence, self.events.len() as u64 + 1, "{event:?}");
        self.take_mail(&event);
        self.take_turn(&event);
        self.events.push(event);
    }

    fn take_mail(&mut self, event: &v1::Event) {
        let text = |key| text(event, key).to_owned();
        let id = text("message_id");
        match event.r#type.as_str() {
            "message.enqueued" => {
                let mail = Mail {
                    sender: text("sender"),
                    recipient: text("recipient"),
                    kind: text("kind"),
                    text: text("payload"),
                    reply_to: text("reply_to"),
                    ..Mail::default()
                };
                self.inbox(&mail.recipient).insert(id.clone());
                assert!(self.mail.insert(id, mail).is_none(), "enqueued twice: {event:?}");
            }
            "message.delivered" => self.leave(&id).delivered.push(text("turn_id")),
            "message.discarded" => self.leave(&id).discarded.push(text("reason")),
            "message.collected" => {
                self.held.entry(text("turn_id")).or_default().insert(id);
            }
            _ => {}
        }
    }

    fn inbox(&mut self, recipient: &str) -> &mut BTreeSet<String> {
        match recipient {
            USER => &mut self.of_user,
            agent => self.of_agents.entry(agent.to_owned()).or_default(),
        }
    }

    fn leave(&mut self, id: &str) -> &mut Mail {
        let recipient = self.mail.get(id).map(|mail| mail.recipient.clone());
        let recipient = recipient.unwrap_or_else(|| panic!("{id} was never enqueued"));
        self.inbox(&recipient).remove(id);
        self.mail.get_mut(id).expect("it was enqueued")
    }

    fn take_turn(&mut self, event: &v1::Event) {
        let turn = text(event, "turn_id").to_owned();
        let life = self.agents.entry(event.agent_id.clone()).or_default();
        let ran = life.turn.is_some();
        match event.r#type.as_str() {
            "turn.start" => {
                self.held.entry(turn.clone()).or_default().extend(texts(event, "messages"));
                *life = Life { turn: Some(turn), ..Life::default() };
            }
            "turn.complete" => {
                assert!(self.completed.insert(turn), "completed twice: {event:?}");
                life.turn = None;
            }
            "turn.failed" | "turn.cancelled" => life.turn = None,
            "turn.interrupted" => {
                life.turn = None;
                life.left_alone = !flag(event, "wakes");
            }
            "agent.terminated" => *life = Life { ended: true, ..Life::default() },
            _ => {}
        }
        self.running = self.running + usize::from(life.turn.is_some()) - usize::from(ran);
    }

    /// Whether no turn runs and no inbox of an agent holds anything.
    pub fn is_settled(&self) -> bool {
        self.running == 0 && self.of_agents.values().all(BTreeSet::is_empty)
    }

    /// Agents that someone has to write to before they go on.
    pub fn left_alone(&self) -> Vec<String> {
        let waits = |id: &String| self.of_agents.get(id).is_some_and(|inbox| !inbox.is_empty());
        let agents = self.agents.iter().filter(|(id, life)| life.left_alone && waits(id));
        agents.map(|(id, _)| id.clone()).collect()
    }

    /// Asserts that every message was in exactly one completed turn or was acknowledged by USER
    /// once. Returns those that were discarded instead, once, since their recipient ended.
    pub fn judge(&self) -> Vec<&Mail> {
        let mut discarded = Vec::new();
        for (id, mail) in &self.mail {
            match (mail.delivered.as_slice(), mail.discarded.as_slice()) {
                ([], [reason]) if reason == "terminated" => {
                    assert!(self.agents[&mail.recipient].ended, "{mail:?}");
                    discarded.push(mail);
                }
                ([turn], []) if mail.recipient == USER => assert_eq!(turn, "", "{mail:?}"),
                ([turn], []) => {
                    assert!(self.completed.contains(turn), "{mail:?} was in no completed turn");
                    assert!(self.held[turn].contains(id), "{mail:?} was not in its turn");
                }
                _ => panic!("{id}: {mail:?}"),
            }
        }
        discarded
    }
}

/// The texts of a list in the data of an event.
fn texts(event: &v1::Event, key: &str) -> Vec<String> {
    use prost_types::value::Kind;
    let value = event.data.as_ref().and_then(|data| data.fields.get(key));
    let Some(Kind::ListValue(list)) = value.and_then(|value| value.kind.as_ref()) else {
        return Vec::new();
    };
    let text = |value: &prost_types::Value| match &value.kind {
        Some(Kind::StringValue(text)) => Some(text.clone()),
        _ => None,
    };
    list.values.iter().filter_map(text).collect()
}

fn flag(event: &v1::Event, key: &str) -> bool {
    let value = event.data.as_ref().and_then(|data| data.fields.get(key));
    matches!(
        value.and_then(|value| value.kind.as_ref()),
        Some(prost_types::value::Kind::BoolValue(true))
    )
}
