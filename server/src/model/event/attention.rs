//! The data of events about what an agent wants to be told: transitions, times, collected answers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{
    AgentId, Doing, MulticastId, Name, Pattern, ReminderId, Sent, SubscriptionId, Timestamp,
};

data! {
    /// Data of `tool.subscribe`, in the log of who is told.
    ToolSubscribe {
        /// Identity.
        subscription_id: SubscriptionId,
        /// Name of the agent to watch.
        target: Name,
        /// The agent to watch.
        target_id: AgentId,
        /// From which state; `*` for any.
        from: Pattern,
        /// To which state; `*` for any.
        to: Pattern,
        /// Whether it ends with the first time.
        once: bool,
    }

    /// Data of `tool.unsubscribe`.
    ToolUnsubscribe {
        /// The subscription.
        subscription_id: SubscriptionId,
    }

    /// Data of `subscription.fired`.
    SubscriptionFired {
        /// The subscription.
        subscription_id: SubscriptionId,
        /// The agent that was watched.
        target_id: AgentId,
        /// The state before.
        from: Doing,
        /// The state after.
        to: Doing,
        /// Whether a message says so; false where the inbox was full.
        told: bool,
        /// Whether the subscription ended with it.
        ended: bool,
    }

    /// Data of `reminder.set`.
    ReminderSet {
        /// Identity.
        reminder_id: ReminderId,
        /// What it reminds of.
        reason: Arc<str>,
        /// When it is due.
        due: Timestamp,
        /// Seconds between repetitions; null for once only.
        every: Option<u64>,
    }

    /// Data of `reminder.cancelled`.
    ReminderCancelled {
        /// The reminder.
        reminder_id: ReminderId,
    }

    /// Data of `reminder.fired`.
    ReminderFired {
        /// The reminder.
        reminder_id: ReminderId,
        /// Whether a message says so; false where the one before was not read yet.
        told: bool,
        /// When it is due again; null where it is over.
        next: Option<Timestamp>,
    }

    /// Data of `multicast.sent`, in the sender's log.
    MulticastSent {
        /// Identity.
        multicast_id: MulticastId,
        /// Its copies.
        copies: Vec<Sent>,
        /// When the collecting of answers ends.
        until: Timestamp,
    }

    /// Data of `multicast.ended`.
    MulticastEnded {
        /// The multicast.
        multicast_id: MulticastId,
        /// How many answered.
        answered: u32,
        /// Names of those who failed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failed: Vec<Name>,
        /// Names of those who did not.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        missing: Vec<Name>,
    }
}
