//! Messages and who sends them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::id::{InvalidId, Text};
use super::subscription::{HOPS, is_zero};
use super::{AgentId, MessageEnqueued, MessageId, Name, Timestamp};

impl MessageEnqueued {
    /// Whether USER wants it to be taken in by a turn that runs.
    pub fn steers(&self) -> bool {
        self.sender == Party::User && self.metadata.get("steer").is_some_and(|when| when == "now")
    }
}

/// Either end of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// The daemon; 32 zeros as text.
    System,
    /// The person; 31 zeros and a 1 as text.
    User,
    /// An agent.
    Agent(AgentId),
}

impl Party {
    /// The agent, if it is one.
    pub fn agent(self) -> Option<AgentId> {
        match self {
            Self::Agent(id) => Some(id),
            Self::System | Self::User => None,
        }
    }

    fn id(self) -> AgentId {
        match self {
            Self::System => AgentId::from_u128(0),
            Self::User => AgentId::from_u128(1),
            Self::Agent(id) => id,
        }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id().fmt(f)
    }
}

impl fmt::Debug for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("SYSTEM"),
            Self::User => f.write_str("USER"),
            Self::Agent(id) => id.fmt(f),
        }
    }
}

impl FromStr for Party {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let id: AgentId = text.parse()?;
        Ok(match id.as_u128() {
            0 => Self::System,
            1 => Self::User,
            _ => Self::Agent(id),
        })
    }
}

impl Serialize for Party {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.id().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Party {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text::<Self>::new())
    }
}

/// What a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Wants an answer.
    Request,
    /// Answers a request or a multicast.
    Response,
    /// Wants no answer.
    Notification,
    /// One of the copies sent to every sibling; wants an answer.
    Multicast,
    /// Tells that something failed.
    Error,
}

impl Kind {
    /// Whether the answer of the turn that it is delivered in goes back to its sender.
    pub fn wants_answer(self) -> bool {
        matches!(self, Self::Request | Self::Multicast)
    }

    /// The name in the logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
            Self::Notification => "notification",
            Self::Multicast => "multicast",
            Self::Error => "error",
        }
    }
}

/// Where in its inbox a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Before all that are not high.
    High,
    /// In order of arrival.
    Normal,
}

/// A message in an inbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Identity.
    pub id: MessageId,
    /// Sequence of the event that enqueued it.
    pub seq: u64,
    /// When it was enqueued.
    pub at: Timestamp,
    /// Who sent it.
    pub sender: Party,
    /// The sender's name when it was sent.
    pub sender_name: Name,
    /// What it is for.
    pub kind: Kind,
    /// The text.
    pub text: Arc<str>,
    /// The message that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<MessageId>,
    /// Known keys are `priority` and `timeout`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Whether its sender has been answered already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answered: bool,
    /// How many turns with it were refused by their backends since it was last let through.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub refusals: u32,
    /// Sequence of the event with which USER last wanted a turn with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried: Option<u64>,
    /// Whether it is in no further turn, since it was refused too often.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub set_aside: bool,
}

impl Message {
    /// Since when a turn with it is wanted.
    pub(super) fn since(&self) -> u64 {
        self.retried.unwrap_or(self.seq)
    }

    /// Whether it may be why a turn was refused: then its next turn has it alone.
    pub(super) fn is_suspect(&self) -> bool {
        self.refusals > 0
    }

    /// For a notice of a transition, how many of them led to it; 0 for any other message.
    pub(super) fn hops(&self) -> u32 {
        self.metadata.get(HOPS).and_then(|hops| hops.parse().ok()).unwrap_or(0)
    }

    /// Where it stands in its inbox.
    pub fn priority(&self) -> Priority {
        match self.metadata.get("priority").map(String::as_str) {
            Some("high") => Priority::High,
            _ => Priority::Normal,
        }
    }
}
