//! Indexes over the agents: who holds a slot, who waits for one, who could give one up.
//!
//! Derived from the agents by [`Agent::wanted_place`](super::Agent) and never stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{AgentId, Timestamp};

/// Where one agent stands in the indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    /// Its key in the queue for a slot, or to go on with the one it holds.
    pub(super) queue: Option<u64>,
    /// Its key among the idle live sessions, least recently used first.
    pub(super) idle: Option<u64>,
    /// Whether it holds a slot.
    pub(super) held: bool,
    /// Whether its session is being suspended.
    pub(super) suspending: bool,
    /// Whether its session is idle and must be reopened.
    pub(super) stale: bool,
    /// When its wait is over, or something else is due.
    pub(super) deadline: Option<Timestamp>,
    /// Whether it is to be told something.
    pub(super) news: bool,
    /// Whether a turn runs unblocked.
    pub(super) busy: bool,
    /// Whether it is blocked on an answer.
    pub(super) waiting: bool,
}

/// The slots of one provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pool {
    pub(super) held: usize,
    pub(super) suspending: usize,
    pub(super) queue: BTreeSet<(u64, AgentId)>,
    pub(super) idle: BTreeSet<(u64, AgentId)>,
}

/// How the slots of a provider are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolUse {
    /// Slots held, those that are being freed included.
    pub held: usize,
    /// Slots that are being freed.
    pub suspending: usize,
    /// Agents that want to go on.
    pub queued: usize,
}

/// The indexes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Slots {
    pub(super) pools: BTreeMap<Arc<str>, Pool>,
    pub(super) stale: BTreeSet<AgentId>,
    pub(super) news: BTreeSet<AgentId>,
    pub(super) deadlines: BTreeSet<(Timestamp, AgentId)>,
    pub(super) busy: usize,
    pub(super) waiting: usize,
}

impl Slots {
    /// Moves an agent from one place to another.
    pub(super) fn move_agent(&mut self, provider: &Arc<str>, id: AgentId, old: Place, new: Place) {
        if old == new {
            return;
        }
        if !self.pools.contains_key(provider) {
            self.pools.insert(provider.clone(), Pool::default());
        }
        if let Some(pool) = self.pools.get_mut(provider) {
            change(&mut pool.queue, old.queue, new.queue, id);
            change(&mut pool.idle, old.idle, new.idle, id);
            count(&mut pool.held, old.held, new.held);
            count(&mut pool.suspending, old.suspending, new.suspending);
            if *pool == Pool::default() {
                self.pools.remove(provider);
            }
        }
        change(&mut self.deadlines, old.deadline, new.deadline, id);
        count(&mut self.busy, old.busy, new.busy);
        count(&mut self.waiting, old.waiting, new.waiting);
        flag(&mut self.stale, new.stale, id);
        flag(&mut self.news, new.news, id);
    }
}

fn change<K: Ord + Copy>(
    set: &mut BTreeSet<(K, AgentId)>,
    old: Option<K>,
    new: Option<K>,
    id: AgentId,
) {
    if old == new {
        return;
    }
    if let Some(key) = old {
        set.remove(&(key, id));
    }
    if let Some(key) = new {
        set.insert((key, id));
    }
}

fn flag(set: &mut BTreeSet<AgentId>, on: bool, id: AgentId) {
    if on {
        set.insert(id);
    } else {
        set.remove(&id);
    }
}

fn count(total: &mut usize, old: bool, new: bool) {
    *total = *total + usize::from(new) - usize::from(old);
}
