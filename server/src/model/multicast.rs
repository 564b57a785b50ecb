//! Multicasts: one message to every sibling, whose answers are collected.

use serde::{Deserialize, Serialize};

use super::{AgentId, MessageId, MulticastId, Timestamp};

/// One copy of a multicast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// The message.
    pub message: MessageId,
    /// Its recipient.
    pub recipient: AgentId,
    /// Whether it was answered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answered: bool,
    /// Whether that was an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// A multicast whose answers are collected, in the agent that sent it. Until it is over, its
/// answers wait in the inbox and start no turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Multicast {
    /// Identity.
    pub id: MulticastId,
    /// Its copies.
    pub copies: Vec<Sent>,
    /// When the collecting ends.
    pub until: Timestamp,
}

impl Multicast {
    /// Whether all have answered.
    pub(super) fn is_complete(&self) -> bool {
        self.copies.iter().all(|copy| copy.answered)
    }

    /// Whether a message is one of its copies.
    pub(super) fn has(&self, message: MessageId) -> bool {
        self.copies.iter().any(|copy| copy.message == message)
    }
}
