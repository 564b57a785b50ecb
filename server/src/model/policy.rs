//! What the configuration lets the core do. Handed in with every command; not part of the state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits and choices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The providers that there are.
    pub providers: BTreeMap<Arc<str>, ProviderPolicy>,
    /// Provider of a root that names none.
    pub default_provider: Arc<str>,
    /// Longest text of a message or of instructions, in bytes.
    pub max_text: usize,
    /// Most messages in the inbox of an agent.
    pub max_inbox: usize,
    /// Most messages in USER's inbox.
    pub max_user_inbox: usize,
    /// Bytes of text from which on an inbox takes no more.
    pub max_inbox_bytes: usize,
    /// Most live agents.
    pub max_agents: usize,
    /// Most agents on the way from a root to a leaf, both included.
    pub max_depth: usize,
    /// Most turns blocked on an answer at once; a further one is answered "pending".
    pub max_waiting: usize,
    /// Most reminders of an agent.
    pub max_reminders: usize,
    /// Most subscriptions of an agent.
    pub max_subscriptions: usize,
    /// How long answers to a broadcast are collected that names no time.
    pub multicast_timeout: Duration,
    /// Turns that may be interrupted in a row before an agent is not woken by itself any more.
    pub max_setbacks: u32,
    /// Who is told of a recovery.
    pub resume: Resume,
    /// How long a repeated request is answered from memory.
    pub request_retention: Duration,
    /// Whether no new turn starts any more.
    pub draining: bool,
}

/// What is known of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderPolicy {
    /// Live instances at most.
    pub slots: usize,
    /// Longest time that one of its tool calls may block; a longer one is answered "pending".
    pub call_limit: Option<Duration>,
}

/// Which agents get a recovery prompt after the daemon died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resume {
    /// Roots whose team lost a turn.
    #[default]
    Roots,
    /// Every agent that lost a turn, too.
    All,
    /// Nobody.
    None,
}

impl Policy {
    /// Live instances of a provider at most. One that is not configured has a slot, in which the
    /// turns of its agents fail and say so.
    pub(super) fn slots(&self, provider: &str) -> usize {
        self.providers.get(provider).map_or(1, |provider| provider.slots)
    }
}
