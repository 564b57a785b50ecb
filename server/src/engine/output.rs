//! The output of running turns, in memory: provisional text that no log holds.
//!
//! A turn's output is a list of deltas with marks between them that say where tool calls stood, so
//! that a watcher can weave it into the events without a delta ever overtaking one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use crate::model::{AgentId, CallId};
use crate::provider::OutputKind;

/// Most bytes of text that are kept for a turn.
const MAX_BYTES: usize = 1 << 20;
/// Most items that are kept for a turn.
const MAX_ITEMS: usize = 65_536;

/// A piece of output, or where something else stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A piece of output.
    Delta {
        /// Its number in the turn, from 0.
        index: u64,
        /// What it is.
        kind: OutputKind,
        /// The text.
        text: Box<str>,
    },
    /// Pieces of a kind are void, and a text stands in their place.
    Replaced {
        /// Number of the first of them.
        from: u64,
        /// Number of the first piece after them.
        to: u64,
        /// Which kind.
        kind: OutputKind,
        /// What stands in their place; empty for nothing.
        text: Box<str>,
    },
    /// A tool call stands here: its `tool_call.invoked` comes before what follows.
    Call(CallId),
    /// An event with this sequence comes before what follows.
    After(u64),
    /// The same of an event that is not decided yet.
    Mark(Mark),
}

/// The sequence of an event, as soon as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark(Arc<OnceLock<u64>>);

impl Mark {
    /// The sequence.
    pub fn seq(&self) -> Option<u64> {
        self.0.get().copied()
    }
}

#[derive(Default)]
struct Buffer {
    items: VecDeque<Item>,
    bytes: usize,
    /// Items that went out at the front.
    dropped: u64,
    /// Deltas so far.
    deltas: u64,
}

/// The output of one turn.
pub struct TurnOutput {
    /// Sequence of its `turn.start`.
    pub turn_seq: u64,
    buffer: Mutex<Buffer>,
    changed: Notify,
}

/// What a watcher reads at once.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// Items from the place on.
    pub items: Vec<Item>,
    /// Whether items before them went out unread.
    pub skipped: bool,
}

impl TurnOutput {
    /// The output of a turn that starts.
    pub fn new(turn_seq: u64) -> Self {
        Self { turn_seq, buffer: Mutex::default(), changed: Notify::new() }
    }

    fn buffer(&self) -> MutexGuard<'_, Buffer> {
        // Nothing under this lock can be left half done by a panic.
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a piece of output, and returns its number.
    pub fn push_delta(&self, kind: OutputKind, text: &str) -> u64 {
        let mut buffer = self.buffer();
        let index = buffer.deltas;
        buffer.deltas += 1;
        buffer.bytes += text.len();
        buffer.items.push_back(Item::Delta { index, kind, text: text.into() });
        buffer.trim();
        drop(buffer);
        self.changed.notify_waiters();
        index
    }

    /// Puts a text in place of the pieces of a kind from one on.
    pub fn replace(&self, from: u64, kind: OutputKind, text: &str) {
        let mut buffer = self.buffer();
        let to = buffer.deltas;
        buffer.bytes += text.len();
        buffer.items.push_back(Item::Replaced { from, to, kind, text: text.into() });
        buffer.trim();
        drop(buffer);
        self.changed.notify_waiters();
    }

    /// Adds the mark of an event that is to be decided.
    pub fn mark(&self) -> Mark {
        let mark = Mark::default();
        self.push_mark(Item::Mark(mark.clone()));
        mark
    }

    /// Says which event a mark is of.
    pub fn settle(&self, mark: &Mark, seq: u64) {
        // One that is settled stays so.
        let _ = mark.0.set(seq);
        self.changed.notify_waiters();
    }

    /// Waits until a mark is settled.
    pub async fn settled(&self, mark: &Mark) {
        let changed = self.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        if mark.seq().is_none() {
            changed.await;
        }
    }

    /// Adds a mark.
    pub fn push_mark(&self, mark: Item) {
        let mut buffer = self.buffer();
        buffer.items.push_back(mark);
        buffer.trim();
        drop(buffer);
        self.changed.notify_waiters();
    }

    /// Reads at most `limit` items from a place on, and moves the place behind them.
    pub fn read(&self, place: &mut u64, limit: usize) -> Unread {
        let buffer = self.buffer();
        let skipped = *place < buffer.dropped;
        let from = place.saturating_sub(buffer.dropped).min(buffer.items.len() as u64) as usize;
        let to = buffer.items.len().min(from + limit);
        let items: Vec<Item> = buffer.items.range(from..to).cloned().collect();
        *place = buffer.dropped + to as u64;
        Unread { items, skipped }
    }

    /// Waits until there is something after a place.
    pub async fn changed(&self, place: u64) {
        let changed = self.changed.notified();
        tokio::pin!(changed);
        // Registered before the look, so that nothing in between is missed.
        changed.as_mut().enable();
        let behind = {
            let buffer = self.buffer();
            buffer.dropped + buffer.items.len() as u64 > place
        };
        if !behind {
            changed.await;
        }
    }
}

impl Buffer {
    fn trim(&mut self) {
        while self.bytes > MAX_BYTES || self.items.len() > MAX_ITEMS {
            let Some(item) = self.items.pop_front() else { return };
            self.dropped += 1;
            if let Item::Delta { text, .. } | Item::Replaced { text, .. } = item {
                self.bytes -= text.len();
            }
        }
    }
}

/// The outputs of all running turns.
#[derive(Default)]
pub struct Outputs {
    turns: Mutex<FxHashMap<AgentId, Arc<TurnOutput>>>,
}

impl Outputs {
    fn turns(&self) -> MutexGuard<'_, FxHashMap<AgentId, Arc<TurnOutput>>> {
        // Nothing under this lock can be left half done by a panic.
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the output of a turn; that of the turn before is forgotten.
    pub fn begin(&self, agent: AgentId, turn_seq: u64) -> Arc<TurnOutput> {
        let output = Arc::new(TurnOutput::new(turn_seq));
        self.turns().insert(agent, output.clone());
        output
    }

    /// Forgets the output of the turn that ended at a sequence, unless a later one has begun. Who
    /// reads it still holds it.
    pub fn end(&self, agent: AgentId, end_seq: u64) {
        let mut turns = self.turns();
        if turns.get(&agent).is_some_and(|output| output.turn_seq < end_seq) {
            turns.remove(&agent);
        }
    }

    /// The output of an agent's running turn.
    pub fn get(&self, agent: AgentId) -> Option<Arc<TurnOutput>> {
        self.turns().get(&agent).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_reader_gets_what_is_left_and_is_told_of_the_gap() {
        let output = TurnOutput::new(1);
        let text = "x".repeat(MAX_BYTES / 4);
        for _ in 0..6 {
            output.push_delta(OutputKind::Text, &text);
        }
        let mut place = 0;
        let unread = output.read(&mut place, 3);
        assert!(unread.skipped);
        assert!(matches!(unread.items[0], Item::Delta { index: 2, .. }));
        let unread = output.read(&mut place, 3);
        assert!(!unread.skipped && unread.items.len() == 1);
        assert_eq!(output.read(&mut place, 3), Unread::default());
    }
}
