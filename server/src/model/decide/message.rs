//! Messages: from USER, between agents, and answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Plan;
use super::agent::{check_label, check_text};
use crate::model::{
    Agent, Kind, Message, MessageDelivered, MessageEnqueued, MessageId, Outcome, Party, Rejection,
    Urgency,
};

/// A message to be enqueued.
pub(super) struct Letter {
    pub(super) from: Party,
    pub(super) to: Party,
    pub(super) kind: Kind,
    pub(super) text: Arc<str>,
    pub(super) reply_to: Option<MessageId>,
    pub(super) metadata: BTreeMap<String, String>,
}

impl Letter {
    pub(super) fn new(from: Party, to: Party, kind: Kind, text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        Self { from, to, kind, text, reply_to: None, metadata: BTreeMap::new() }
    }

    pub(super) fn set_priority(&mut self, priority: Option<Urgency>) {
        if priority == Some(Urgency::High) {
            self.metadata.insert("priority".to_owned(), "high".to_owned());
        }
    }
}

impl Plan<'_, '_> {
    pub(super) fn send_from_user(
        &mut self,
        reference: &str,
        text: Arc<str>,
        metadata: BTreeMap<String, String>,
    ) -> Result<Outcome, Rejection> {
        if self.cx.policy.draining {
            return Err(Rejection::Draining);
        }
        let agent = self.state.resolve(reference)?;
        check_text(&text, self.cx.policy.max_text)?;
        for (key, value) in &metadata {
            check_label(key, value)?;
        }
        self.check_room(Party::Agent(agent.id))?;
        let letter = Letter {
            metadata,
            ..Letter::new(Party::User, Party::Agent(agent.id), Kind::Request, text)
        };
        let message = self.enqueue(letter);
        // Events are numbered in the order in which they are pushed.
        let sequence = self.state.seq() + self.events.len() as u64;
        Ok(Outcome::Message { agent: agent.id, message, sequence })
    }

    /// Whether an inbox takes another message: it has room, and no budget keeps its agent from
    /// reading it. Answers are put into it even if it does not: whoever asked made room for them.
    pub(super) fn check_room(&self, recipient: Party) -> Result<(), Rejection> {
        let agent = recipient.agent().and_then(|id| self.state.live_agent(id));
        if let Some(agent) = agent
            && let Some(excess) = self.state.excess(agent)
        {
            return Err(Rejection::BudgetExhausted { name: agent.name.clone(), excess });
        }
        self.check_space(recipient)
    }

    /// Whether an inbox has room for another message.
    pub(super) fn check_space(&self, recipient: Party) -> Result<(), Rejection> {
        let policy = self.cx.policy;
        let agent = recipient.agent().and_then(|id| self.state.live_agent(id));
        let (inbox, most) = match agent {
            Some(agent) => (&agent.inbox, policy.max_inbox),
            None => (self.state.user_inbox(), policy.max_user_inbox),
        };
        let size = |messages: &[&Message]| {
            let bytes: usize = messages.iter().map(|message| message.text.len()).sum();
            (messages.len(), bytes)
        };
        let all: Vec<&Message> = inbox.iter().collect();
        // What is set aside takes no room from what is to be read, and as much at most.
        let read: Vec<&Message> = inbox.iter().filter(|message| !message.set_aside).collect();
        let fits = |(messages, bytes): (usize, usize), times: usize| {
            messages < times * most && bytes < times * policy.max_inbox_bytes
        };
        if fits(size(&read), 1) && fits(size(&all), 2) {
            return Ok(());
        }
        let (name, (messages, bytes)) = (self.state.party_name(recipient), size(&all));
        Err(Rejection::InboxFull { name, messages, bytes })
    }

    /// Puts a message into an inbox.
    pub(super) fn enqueue(&mut self, letter: Letter) -> MessageId {
        let message_id = MessageId::fresh(self.cx.ids);
        let session = letter
            .to
            .agent()
            .and_then(|id| self.state.agent(id))
            .map(|recipient| recipient.session.id);
        self.push(
            session,
            MessageEnqueued {
                message_id,
                sender: letter.from,
                recipient: letter.to,
                kind: letter.kind,
                payload: letter.text,
                timestamp: self.cx.now,
                reply_to: letter.reply_to,
                metadata: letter.metadata,
                sender_name: self.state.party_name(letter.from),
                recipient_name: self.state.party_name(letter.to),
            },
        );
        message_id
    }

    /// Lets the daemon itself say something.
    pub(in crate::model) fn tell(&mut self, to: Party, kind: Kind, text: impl Into<Arc<str>>) {
        self.enqueue(Letter::new(Party::System, to, kind, text));
    }

    /// Answers a message to its sender, if that is still there.
    pub(super) fn answer(&mut self, from: &Agent, asked: &Message, kind: Kind, text: Arc<str>) {
        let there = match asked.sender {
            Party::Agent(id) => self.state.live_agent(id).is_some(),
            Party::User => true,
            Party::System => false,
        };
        if there {
            self.enqueue(Letter {
                reply_to: Some(asked.id),
                ..Letter::new(Party::Agent(from.id), asked.sender, kind, text)
            });
        }
    }

    pub(super) fn ack_inbox(&mut self, messages: &[MessageId]) -> Outcome {
        let mut removed = 0;
        for id in messages {
            if self.state.user_inbox().iter().any(|message| message.id == *id) {
                self.push(None, MessageDelivered { message_id: *id, turn_id: None });
                removed += 1;
            }
        }
        Outcome::Removed(removed)
    }
}
