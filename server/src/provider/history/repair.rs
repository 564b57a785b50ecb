//! Making a conversation valid.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{EMPTY, End, Item, NO_ANSWER, Turn, is_blank};
use crate::model::{CallId, Json, TurnId};

/// The result of a call that has none.
const MISSING: &str = "[Error: tool result missing]";
/// The same, where USER cancelled the turn.
const ABORTED: &str = "[Aborted by user]";
/// The same, where the daemon died during the turn.
const UNKNOWN: &str = "[Interrupted: outcome unknown]";
/// What stands first in a conversation that does not begin with what the agent was told.
const BEGINNING: &str = "[The beginning of this conversation is missing.]";

/// What a repair did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A call had no result and got one.
    Missing(CallId),
    /// A result had no call and was removed.
    Orphan(CallId),
    /// A call or a result was there before and was removed.
    Duplicate(CallId),
    /// A result was moved to its call.
    Moved(CallId),
    /// A text of white space was removed or replaced.
    Empty(TurnId),
    /// Two texts of the assistant in a row were joined.
    Joined(TurnId),
    /// A text was put where a model expects one.
    Inserted(TurnId),
}

/// Makes a conversation valid, and says how. What is valid stays as it is:
///
/// - It begins with what the agent was told, and ends with what the agent said.
/// - Between two texts that the agent was told, and between a result and such a text, stands one
///   that it said: models whose templates want the roles to alternate refuse anything else. It
///   never says two texts in a row.
/// - No text is only white space.
/// - Each call is made once. Calls that stand in a row within a turn are followed there by their
///   results, in the order of the calls, and no result stands anywhere else.
pub fn repair(turns: Vec<Turn>) -> (Vec<Turn>, Vec<Change>) {
    let mut repair = Repair::default();
    repair.look_at(&turns);
    for (number, turn) in turns.into_iter().enumerate() {
        repair.shells.push((turn.id, turn.end, turn.stand_in));
        repair.turn(number, turn.items);
    }
    repair.close();
    repair.find_moved();
    repair.finish()
}

/// What the last item so far is.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Last {
    #[default]
    Nothing,
    User,
    Assistant,
    Result,
}

/// An item of the new conversation.
struct Placed {
    turn: usize,
    /// Where it stood before; none for what was put in.
    from: Option<usize>,
    item: Item,
}

#[derive(Default)]
struct Repair {
    /// Identity and end of each turn.
    shells: Vec<(TurnId, End, Option<Arc<str>>)>,
    /// Where the first result of each call stands, in which turn, and what it is.
    results: BTreeMap<CallId, (usize, usize, Result<Json, String>)>,
    called: BTreeSet<CallId>,
    /// Calls in a row that have no results yet.
    row: Vec<CallId>,
    position: usize,
    last: Last,
    placed: Vec<Placed>,
    changes: Vec<Change>,
}

impl Repair {
    /// Finds the results.
    fn look_at(&mut self, turns: &[Turn]) {
        let items = || turns.iter().flat_map(|turn| &turn.items);
        let calls = items().filter_map(|item| match item {
            Item::Call { id, .. } => Some(*id),
            _ => None,
        });
        let calls: BTreeSet<CallId> = calls.collect();
        let turn_of = |(turn, items): (usize, &Turn)| vec![turn; items.items.len()];
        let numbers = turns.iter().enumerate().flat_map(turn_of);
        for ((position, item), turn) in items().enumerate().zip(numbers) {
            let Item::Result { id, outcome } = item else { continue };
            if !calls.contains(id) {
                self.changes.push(Change::Orphan(*id));
            } else if self.results.contains_key(id) {
                self.changes.push(Change::Duplicate(*id));
            } else {
                self.results.insert(*id, (position, turn, outcome.clone()));
            }
        }
    }

    fn turn(&mut self, turn: usize, items: Vec<Item>) {
        for item in items {
            let from = self.position;
            self.position += 1;
            match item {
                Item::Call { id, tool, args } => {
                    if !self.called.insert(id) {
                        self.changes.push(Change::Duplicate(id));
                        continue;
                    }
                    self.begin(turn);
                    self.row.push(id);
                    self.place(turn, Some(from), Item::Call { id, tool, args });
                }
                Item::Result { id, .. } => {
                    if self.row.contains(&id) {
                        self.end_row(turn);
                    }
                }
                Item::User(text) => {
                    self.end_row(turn);
                    self.told(turn, from, text);
                }
                Item::Assistant(text) => {
                    self.end_row(turn);
                    self.said(turn, from, text);
                }
            }
        }
        self.end_row(turn);
    }

    fn place(&mut self, turn: usize, from: Option<usize>, item: Item) {
        self.last = match &item {
            Item::User(_) => Last::User,
            Item::Assistant(_) => Last::Assistant,
            // Its result follows.
            Item::Call { .. } | Item::Result { .. } => Last::Result,
        };
        self.placed.push(Placed { turn, from, item });
    }

    fn insert(&mut self, turn: usize, item: Item) {
        self.changes.push(Change::Inserted(self.shells[turn].0));
        self.place(turn, None, item);
    }

    /// Sees to it that the agent was told something.
    fn begin(&mut self, turn: usize) {
        if self.last == Last::Nothing {
            self.insert(turn, Item::User(BEGINNING.into()));
        }
    }

    /// Sees to it that the agent had the last word, if there was any.
    fn close(&mut self) {
        let turn = self.placed.last().map(|placed| placed.turn);
        if let (Last::User | Last::Result, Some(turn)) = (self.last, turn) {
            self.insert(turn, Item::Assistant(NO_ANSWER.into()));
        }
    }

    /// Puts the results of the calls in the row behind them.
    fn end_row(&mut self, turn: usize) {
        for id in std::mem::take(&mut self.row) {
            let (from, outcome) = match self.results.remove(&id) {
                Some((from, of, outcome)) => {
                    if of != turn {
                        self.changes.push(Change::Moved(id));
                    }
                    (Some(from), outcome)
                }
                None => {
                    self.changes.push(Change::Missing(id));
                    let error = match self.shells[turn].1 {
                        End::Cancelled => ABORTED,
                        End::Interrupted => UNKNOWN,
                        End::Completed | End::Failed | End::Running => MISSING,
                    };
                    (None, Err(error.to_owned()))
                }
            };
            self.place(turn, from, Item::Result { id, outcome });
        }
    }

    fn told(&mut self, turn: usize, from: usize, mut text: Arc<str>) {
        if is_blank(&text) {
            self.changes.push(Change::Empty(self.shells[turn].0));
            text = EMPTY.into();
        }
        self.close();
        self.place(turn, Some(from), Item::User(text));
    }

    fn said(&mut self, turn: usize, from: usize, text: Arc<str>) {
        if is_blank(&text) {
            self.changes.push(Change::Empty(self.shells[turn].0));
            return;
        }
        if let Some(Placed { item: Item::Assistant(before), .. }) = self.placed.last_mut() {
            *before = format!("{before}\n\n{text}").into();
            self.changes.push(Change::Joined(self.shells[turn].0));
            return;
        }
        self.begin(turn);
        self.place(turn, Some(from), Item::Assistant(text));
    }

    /// Notes which results stood elsewhere in their turn: behind what now follows, or before what now comes
    /// first.
    fn find_moved(&mut self) {
        let mut least_after = vec![usize::MAX; self.placed.len() + 1];
        for (at, placed) in self.placed.iter().enumerate().rev() {
            least_after[at] = placed.from.unwrap_or(usize::MAX).min(least_after[at + 1]);
        }
        let mut most = None;
        for (at, placed) in self.placed.iter().enumerate() {
            if let (Item::Result { id, .. }, Some(from)) = (&placed.item, placed.from)
                && (most > Some(from) || least_after[at + 1] < from)
                && !self.changes.contains(&Change::Moved(*id))
            {
                self.changes.push(Change::Moved(*id));
            }
            most = most.max(placed.from);
        }
    }

    /// The turns that still hold something.
    fn finish(self) -> (Vec<Turn>, Vec<Change>) {
        let mut turns: Vec<Turn> = Vec::new();
        let mut open = None;
        for Placed { turn, item, .. } in self.placed {
            if open != Some(turn) {
                let (id, end, stand_in) = self.shells[turn].clone();
                turns.push(Turn { id, end, stand_in, items: Vec::new() });
                open = Some(turn);
            }
            if let Some(last) = turns.last_mut() {
                last.items.push(item);
            }
        }
        (turns, self.changes)
    }
}
