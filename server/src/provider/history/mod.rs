//! The conversation of a session as a bare model needs it, folded from the session's log.
//!
//! `docs/history.md` is the reference. A turn is what it was asked, its tool calls with their
//! results and what was said between them, and its answer, or in brackets how else it ended. A turn that did not complete gives its
//! messages back, and they come again with a later turn; so its prompt stands in the conversation
//! only where all of its messages were withdrawn. Its calls stay in any case: what they did is
//! done.
//!
//! [`repair`] makes whatever comes in valid for every model, and is run before every send.

mod repair;
mod retelling;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::FailureClass;
use crate::model::{CallId, Entry, Event, Json, MessageId, TurnId};

pub use repair::{Change, repair};
pub use retelling::{retell, retell_missed};

/// Stands for an answer that is empty, or is not there.
const NO_ANSWER: &str = "[No answer]";
/// Stands for a prompt of white space.
const EMPTY: &str = "[Empty message]";
/// What a turn was asked whose messages come again.
const AGAIN: &str = "[What this turn was asked comes again in a later one.]";
/// What the earlier attempts of the running turn were asked.
const ATTEMPT: &str = "[An earlier attempt at what comes next.]";

/// The conversation up to the running turn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct History {
    /// Turns, oldest first.
    pub turns: Vec<Turn>,
    /// How many turns before them are left out, since they would not fit.
    pub cut: u64,
}

/// What was said and done in a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// Identity.
    pub id: TurnId,
    /// How it ended.
    pub end: End,
    /// The provider that stood in for the session's own, if one did.
    pub stand_in: Option<Arc<str>>,
    /// What was said and done, in order.
    pub items: Vec<Item>,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With an answer.
    Completed,
    /// With an error.
    Failed,
    /// USER cancelled it.
    Cancelled,
    /// By the end of the daemon.
    Interrupted,
    /// It runs: these are its earlier attempts.
    Running,
}

/// A piece of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// What the agent was told.
    User(Arc<str>),
    /// What it said.
    Assistant(Arc<str>),
    /// A tool that it called.
    Call {
        /// Identity.
        id: CallId,
        /// Name of the tool.
        tool: Arc<str>,
        /// Its arguments.
        args: Json,
    },
    /// What a call came to.
    Result {
        /// The call.
        id: CallId,
        /// A value, or why there is none.
        outcome: Result<Json, String>,
    },
}

/// Bytes that an item counts beside its texts.
const OVERHEAD: usize = 64;

impl Item {
    /// What it counts towards the limit, in bytes.
    pub fn bytes(&self) -> usize {
        OVERHEAD
            + match self {
                Self::User(text) | Self::Assistant(text) => text.len(),
                Self::Call { tool, args, .. } => tool.len() + args.get().len(),
                Self::Result { outcome: Ok(value), .. } => value.get().len(),
                Self::Result { outcome: Err(error), .. } => error.len(),
            }
    }
}

impl Turn {
    /// What it counts towards the limit, in bytes.
    pub fn bytes(&self) -> usize {
        self.items.iter().map(Item::bytes).sum()
    }
}

impl History {
    /// The newest turns that fit into `limit` bytes together, of an agent that has ended `ended`
    /// turns.
    pub fn newest(mut turns: Vec<Turn>, limit: usize, ended: u64) -> Self {
        turns.drain(..turns.len() - fitting(&turns, limit));
        let kept = turns.iter().filter(|turn| turn.end != End::Running).count() as u64;
        turns.retain(|turn| !turn.items.is_empty());
        Self { turns, cut: ended.saturating_sub(kept) }
    }

    /// Whether the session's own provider, of whatever kind it was then, completed a turn of it,
    /// or did something in an earlier attempt at the running one.
    pub fn has_own(&self) -> bool {
        let is_own = |turn: &Turn| turn.stand_in.is_none();
        let counts = |turn: &Turn| matches!(turn.end, End::Completed | End::Running);
        self.turns.iter().any(|turn| is_own(turn) && counts(turn))
    }
}

/// How many of the newest turns fit into `limit` bytes together.
fn fitting(turns: &[Turn], limit: usize) -> usize {
    let mut bytes = 0;
    let fit = turns.iter().rev().take_while(|turn| {
        bytes += turn.bytes();
        bytes <= limit
    });
    fit.count()
}

/// What an event counts towards the limit, in bytes; none if no conversation holds it.
pub fn weight(event: &Event) -> Option<usize> {
    let bytes = match event {
        Event::TurnStart(data) => data.prompt.len(),
        Event::ToolCallInvoked(data) => data.tool.len() + data.args.get().len(),
        Event::ToolCallResult(data) => {
            let result = data.result.as_ref().map_or(0, |result| result.get().len());
            result + data.error.as_ref().map_or(0, String::len)
        }
        Event::TurnSaid(data) => data.text.len(),
        Event::MessageCollected(data) => data.told.as_ref()?.len(),
        Event::TurnComplete(data) => data.response.len(),
        Event::TurnFailed(data) => data.error.len(),
        Event::TurnRetry(data) => data.error.len(),
        Event::TurnCancelled(_) | Event::TurnInterrupted(_) | Event::MessageDiscarded(_) => 0,
        _ => return None,
    };
    Some(bytes)
}

/// Folds the events of a session's log into turns. What stands before the first `turn.start` is
/// passed over. Of the `running` turn only the attempts that failed are taken. A turn that adds
/// nothing to the conversation has no items.
pub fn fold(entries: impl IntoIterator<Item = Entry>, running: TurnId) -> Vec<Turn> {
    let mut turns = Vec::new();
    let mut open: Option<Open> = None;
    for entry in entries {
        if let Event::TurnStart(data) = entry.event {
            // Only a log that lost lines has a turn without an end.
            turns.extend(open.take().map(|turn| turn.end(End::Interrupted, None)));
            open = Some(Open {
                id: data.turn_id,
                prompt: data.prompt,
                messages: data.messages,
                items: Vec::new(),
                failed_attempts: None,
                stand_in: None,
            });
            continue;
        }
        let Some(mut turn) = open.take() else { continue };
        match turn.take(entry.event) {
            Some((end, said)) => turns.push(turn.end(end, said)),
            None => open = Some(turn),
        }
    }
    if let Some(mut turn) = open {
        let end = if turn.id == running { End::Running } else { End::Interrupted };
        let mut said = None;
        if end == End::Running {
            let (calls, why) = turn.failed_attempts.take().unwrap_or_default();
            turn.items.truncate(calls);
            said = Some(why.into());
        }
        turns.push(turn.end(end, said));
    }
    turns
}

/// A turn whose end is not read yet.
struct Open {
    id: TurnId,
    prompt: Arc<str>,
    /// Those of its prompt that may come again.
    messages: Vec<MessageId>,
    /// What it said, its calls and their results.
    items: Vec<Item>,
    /// How many items its failed attempts have, and why the last of them failed.
    failed_attempts: Option<(usize, String)>,
    /// The provider of its last attempt, if it is not the session's own.
    stand_in: Option<Arc<str>>,
}

impl Open {
    /// Takes an event; how the turn ends with it, and with which words.
    fn take(&mut self, event: Event) -> Option<(End, Option<Arc<str>>)> {
        match event {
            Event::ToolCallInvoked(data) if data.turn_id == self.id => {
                let (id, tool, args) = (data.call_id, data.tool, data.args);
                self.items.push(Item::Call { id, tool, args });
            }
            Event::ToolCallResult(data) if data.turn_id == self.id => {
                let outcome = match (data.result, data.error) {
                    (_, Some(error)) => Err(error),
                    (result, None) => Ok(result.unwrap_or_else(Json::null)),
                };
                self.items.push(Item::Result { id: data.call_id, outcome });
            }
            Event::TurnSaid(data) if data.turn_id == self.id => {
                self.items.push(Item::Assistant(data.text));
            }
            Event::MessageCollected(data) if data.turn_id == self.id => {
                self.items.extend(data.told.map(Item::User));
            }
            Event::TurnRetry(data) if data.turn_id == self.id => {
                let why = failed("attempt", data.class, &data.error);
                self.failed_attempts = Some((self.items.len(), why));
                self.stand_in = data.provider.or(self.stand_in.take());
            }
            Event::MessageDiscarded(data) => self.messages.retain(|id| *id != data.message_id),
            Event::TurnComplete(data) if data.turn_id == self.id => {
                return Some((End::Completed, Some(data.response)));
            }
            Event::TurnFailed(data) if data.turn_id == self.id => {
                let why = failed("turn", data.class, &data.error);
                return Some((End::Failed, Some(why.into())));
            }
            Event::TurnCancelled(data) if data.turn_id == self.id => {
                return Some((End::Cancelled, None));
            }
            Event::TurnInterrupted(data) if data.turn_id == self.id => {
                return Some((End::Interrupted, None));
            }
            _ => {}
        }
        None
    }

    fn end(self, end: End, said: Option<Arc<str>>) -> Turn {
        let asked = match end {
            End::Running => Some(ATTEMPT),
            End::Completed => None,
            End::Failed | End::Cancelled | End::Interrupted => {
                (!self.messages.is_empty()).then_some(AGAIN)
            }
        };
        let mut own = self.items;
        if end != End::Completed {
            // A message that was taken in comes again with those of the prompt.
            own.retain(|item| !matches!(item, Item::User(_)));
        }
        let called = own.iter().any(|item| matches!(item, Item::Call { .. }));
        if asked.is_some() && !called {
            return Turn { id: self.id, end, stand_in: self.stand_in, items: Vec::new() };
        }
        let prompt = if is_blank(&self.prompt) { EMPTY.into() } else { self.prompt };
        let said = said.unwrap_or_else(|| match end {
            End::Cancelled => "[USER cancelled the turn.]".into(),
            _ => {
                "[The daemon stopped during the turn. Calls whose outcome is unknown may have had \
                 effects.]"
                    .into()
            }
        });
        let said = if is_blank(&said) { NO_ANSWER.into() } else { said };
        let mut items = vec![Item::User(asked.map_or(prompt, Arc::from))];
        items.extend(own);
        items.push(Item::Assistant(said));
        Turn { id: self.id, end, stand_in: self.stand_in, items: joined(items) }
    }
}

/// Makes one of texts of the assistant that follow each other.
fn joined(items: Vec<Item>) -> Vec<Item> {
    let mut joined: Vec<Item> = Vec::with_capacity(items.len());
    for item in items {
        match (joined.last_mut(), &item) {
            (Some(Item::Assistant(before)), Item::Assistant(text)) => {
                *before = format!("{before}\n\n{text}").into();
            }
            _ => joined.push(item),
        }
    }
    joined
}

fn failed(what: &str, class: FailureClass, error: &str) -> String {
    format!("[The {what} failed ({}): {error}]", class.as_str())
}

/// Whether a model would refuse a text for holding nothing.
fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}
