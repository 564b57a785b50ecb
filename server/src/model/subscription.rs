//! Subscriptions: an agent is told when one near it goes from one state to another.
//!
//! [`State::apply`](super::State::apply) notes each transition that somebody watches as a
//! [`Notice`] of the subscriber; `next_step` makes a message of it, in the same journal entry.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::id::Text;
use super::{AgentId, Rejection, State, SubscriptionFired, SubscriptionId, ToolSubscribe};

/// What an agent is doing, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Doing {
    /// No turn runs, and it waits for nobody.
    Idle,
    /// A turn runs.
    Busy,
    /// Blocked on an answer, in a turn or between turns.
    Waiting,
    /// Ended for good.
    Terminated,
}

impl Doing {
    const ALL: [Self; 4] = [Self::Idle, Self::Busy, Self::Waiting, Self::Terminated];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Waiting => "waiting",
            Self::Terminated => "terminated",
        }
    }
}

/// One side of a transition to watch for: a state, or any (`*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern(Option<Doing>);

impl Pattern {
    fn fits(self, doing: Doing) -> bool {
        self.0.is_none_or(|wanted| wanted == doing)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.map_or("*", Doing::as_str))
    }
}

/// Text that is no state.
#[derive(Debug, thiserror::Error)]
#[error("not a state: {0:?}")]
pub struct InvalidState(String);

impl FromStr for Pattern {
    type Err = InvalidState;

    fn from_str(text: &str) -> Result<Self, InvalidState> {
        let word = Doing::ALL.into_iter().find(|doing| doing.as_str() == text);
        match word {
            Some(word) => Ok(Self(Some(word))),
            None if text == "*" => Ok(Self(None)),
            None => Err(InvalidState(text.to_owned())),
        }
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text::<Self>::new())
    }
}

/// Reads a transition such as `busy->idle` or `*->terminated`.
pub(super) fn transition(text: &str) -> Result<(Pattern, Pattern), Rejection> {
    let read = || {
        let (from, to) = text.split_once("->")?;
        Some((from.trim().parse().ok()?, to.trim().parse().ok()?))
    };
    read().ok_or_else(|| Rejection::TransitionInvalid { text: text.chars().take(80).collect() })
}

/// A subscription, in the agent that is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    /// Identity.
    pub id: SubscriptionId,
    /// Whom it watches.
    pub target: AgentId,
    /// From which state.
    pub from: Pattern,
    /// To which state.
    pub to: Pattern,
    /// Whether it ends with the first time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
    /// Times that it could not tell since the inbox was full.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
pub(super) fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Subscription {
    /// Whether it tells of a transition. The end of who is watched is always told: nothing else
    /// comes after it.
    pub(super) fn tells(&self, from: Doing, to: Doing) -> bool {
        to == Doing::Terminated || (self.from.fits(from) && self.to.fits(to))
    }
}

/// A transition that a subscriber is still to be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The state before.
    pub from: Doing,
    /// The state after.
    pub to: Doing,
    /// How many agents were woken one after the other by nothing but such notices, this one
    /// included.
    #[serde(default)]
    pub hops: u32,
}

/// Notices that may wake agents one after the other: beyond it, they wake each other in a circle.
pub(super) const MAX_HOPS: u32 = 16;
/// Metadata key of the message of a notice that says how many there were.
pub(super) const HOPS: &str = "hops";

impl State {
    pub(super) fn watch(&mut self, subscriber: AgentId, data: &ToolSubscribe) {
        let Some(agent) = self.agents.get_mut(&subscriber) else { return };
        agent.subscriptions.push(Subscription {
            id: data.subscription_id,
            target: data.target_id,
            from: data.from,
            to: data.to,
            once: data.once,
            missed: 0,
        });
        let watchers = self.watchers.entry(data.target_id).or_default();
        watchers.insert((subscriber, data.subscription_id));
    }

    pub(super) fn unwatch(&mut self, subscriber: AgentId, id: SubscriptionId) {
        let Some(agent) = self.agents.get_mut(&subscriber) else { return };
        let Some(place) = agent.subscriptions.iter().position(|one| one.id == id) else { return };
        let subscription = agent.subscriptions.remove(place);
        agent.notices.retain(|notice| notice.subscription != id);
        self.forget_watcher(subscription.target, (subscriber, id));
    }

    pub(super) fn forget_watcher(&mut self, target: AgentId, watcher: (AgentId, SubscriptionId)) {
        if let Some(watchers) = self.watchers.get_mut(&target) {
            watchers.remove(&watcher);
            if watchers.is_empty() {
                self.watchers.remove(&target);
            }
        }
    }

    /// Notes for those who watch an agent that it went from another state to the one it is in. To
    /// them, a turn that was interrupted and runs `again` by itself never stopped.
    pub(super) fn note_transition(&mut self, id: AgentId, from: Doing, again: bool) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        let to = agent.doing();
        if to == from {
            return;
        }
        let from = agent.seen_as.take().unwrap_or(from);
        if again && agent.ready.is_some() {
            agent.seen_as = Some(from);
            return;
        }
        if to == from {
            return;
        }
        let hops = agent.hops + 1;
        for (subscriber, subscription) in self.watchers.get(&id).cloned().unwrap_or_default() {
            let Some(agent) = self.agents.get_mut(&subscriber) else { continue };
            let wanted = agent.subscriptions.iter().find(|one| one.id == subscription);
            if wanted.is_some_and(|one| one.tells(from, to)) {
                agent.notices.push(Notice { subscription, from, to, hops });
                self.reindex(subscriber);
            }
        }
    }

    pub(super) fn told_transition(&mut self, subscriber: AgentId, data: &SubscriptionFired) {
        let id = data.subscription_id;
        let Some(agent) = self.agents.get_mut(&subscriber) else { return };
        let place = agent.notices.iter().position(|notice| notice.subscription == id);
        if let Some(place) = place {
            agent.notices.remove(place);
        }
        if let Some(subscription) = agent.subscriptions.iter_mut().find(|one| one.id == id) {
            subscription.missed = if data.told { 0 } else { subscription.missed + 1 };
        }
        if data.ended {
            self.unwatch(subscriber, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transitions_are_read_or_refused() {
        for text in ["busy->idle", "* -> terminated", "*->*", "waiting->busy"] {
            let (from, to) = transition(text).unwrap();
            assert_eq!(format!("{from}->{to}"), text.replace(' ', ""));
        }
        for text in ["", "busy", "busy->", "busy->gone", "Busy->idle", "busy=>idle", "a->b->c"] {
            assert!(transition(text).is_err(), "{text:?}");
        }
    }
}
