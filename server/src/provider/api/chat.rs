//! A conversation as bare models know it, and what a model answers to it.

use std::sync::Arc;

use serde_json::Value;

use crate::model::{Json, TurnId, Usage};
use crate::provider::history::{History, Item, Turn};

/// Stands for turns that are left out of a conversation.
const CUT: &str = "[Earlier turns of this conversation are left out.]";

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Message {
    /// What the agent was told.
    User(Arc<str>),
    /// What the model said.
    Assistant(Reply),
    /// What its calls came to, in their order.
    Results(Vec<CallResult>),
}

/// What a model said in one answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Reply {
    /// Text.
    pub(super) text: String,
    /// What its backend wants back unchanged as long as the turn lasts, in the backend's form.
    pub(super) opaque: Vec<Value>,
    /// Tools that it called.
    pub(super) calls: Vec<Call>,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    /// Identity among the calls of the conversation.
    pub(super) id: String,
    /// Name of the tool.
    pub(super) tool: String,
    /// Its arguments as the model wrote them, which need not be JSON.
    pub(super) args: String,
}

impl Call {
    /// Its arguments.
    ///
    /// # Errors
    ///
    /// What is wrong with them, for the model to read.
    pub(super) fn parsed(&self) -> Result<Json, String> {
        let text = match self.args.trim() {
            "" => "{}",
            text => text,
        };
        serde_json::from_str(text).map_err(|error| format!("the arguments are no JSON: {error}"))
    }

    /// Its arguments as an object; an empty one where they are none.
    pub(super) fn object(&self) -> Value {
        let value = serde_json::from_str(&self.args);
        value.ok().filter(Value::is_object).unwrap_or_else(|| Value::Object(Default::default()))
    }
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallResult {
    /// The call.
    pub(super) id: String,
    /// A value as JSON, or why there is none.
    pub(super) outcome: Result<String, String>,
}

impl CallResult {
    /// Its text, for a model to read.
    pub(super) fn text(&self) -> &str {
        match &self.outcome {
            Ok(text) | Err(text) => text,
        }
    }
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// It is done, or waits for its calls.
    Done,
    /// It has more to say when it is asked again.
    Paused,
    /// It may not write more.
    Length,
    /// It, or whoever watches over it, refuses.
    Refused,
    /// The conversation has grown too long.
    Overflow,
}

/// An answer of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What it said.
    pub(super) reply: Reply,
    /// Why it stopped.
    pub(super) stop: Stop,
    /// What it used.
    pub(super) usage: Usage,
    /// What the backend says that it cost, in millionths of a US dollar.
    pub(super) cost: Option<u64>,
}

/// A conversation up to the running turn, and in it, as far as the model is told it.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) messages: Vec<Message>,
    /// The turns in it and where they begin, oldest first. The last one runs.
    starts: Vec<(TurnId, usize)>,
    /// How many turns are left out because they did not fit.
    left_out: usize,
    /// The turn up to which long results are shortened.
    shortened: Option<TurnId>,
}

/// How a conversation was made to fit, for the turns after it: each begins where the last one did,
/// so that a model's cache of it stays of use.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fitted {
    /// The oldest turn that was told.
    from: Option<TurnId>,
    /// The turn up to which long results were shortened.
    shortened: Option<TurnId>,
}

impl Conversation {
    /// The conversation of a turn and what the agent is told in it, made as short as it was when it
    /// fitted last.
    pub(super) fn new(
        history: History,
        (turn, prompt): (TurnId, Arc<str>),
        fitted: Fitted,
    ) -> Self {
        let (mut messages, mut starts) = (Vec::new(), Vec::new());
        let mut long = 0;
        for Turn { id, items, .. } in history.turns {
            starts.push((id, messages.len()));
            items.into_iter().for_each(|item| push(&mut messages, item));
            if fitted.shortened.is_some_and(|last| id.seq() <= last.seq()) {
                long = messages.len();
            }
        }
        starts.push((turn, messages.len()));
        messages.push(Message::User(prompt));
        let shortened = fitted.shortened.filter(|_| shorten_results(&mut messages[..long]));
        let mut conversation = Self { messages, starts, left_out: 0, shortened };
        // A turn that came to nothing is not in the conversation: then it is the one after it.
        let mut starts = conversation.starts.iter();
        let from = fitted.from.and_then(|first| starts.position(|(id, _)| id.seq() >= first.seq()));
        match from {
            Some(from) if from > 0 => conversation.leave_out(from),
            _ if history.cut > 0 => conversation.mark_cut(),
            _ => {}
        }
        conversation
    }

    /// How it fits, once it does.
    pub(super) fn fitted(&self) -> Fitted {
        let oldest = self.starts.first().filter(|_| self.left_out > 0);
        Fitted { from: oldest.map(|(id, _)| *id), shortened: self.shortened }
    }

    /// What is kept from the model, for people to read.
    pub(super) fn notice(&self) -> Option<String> {
        let turns = match self.left_out {
            0 => None,
            1 => Some("1 earlier turn is left out".to_owned()),
            turns => Some(format!("{turns} earlier turns are left out")),
        };
        let results = self.shortened.map(|_| "long results of tools are shortened".to_owned());
        let what: Vec<String> = turns.into_iter().chain(results).collect();
        let what = Some(what.join(", and ")).filter(|what| !what.is_empty())?;
        Some(format!("the conversation is longer than the model takes: {what} for it"))
    }

    /// Makes it shorter: leaves out the older half of its turns, or, where there is nothing more to
    /// leave out, the middle of its longest texts. False if nothing can be done.
    pub(super) fn compact(&mut self) -> bool {
        if self.starts.len() > 1 {
            self.leave_out(self.starts.len() / 2);
            return true;
        }
        let changed = shorten_results(&mut self.messages);
        if changed {
            self.shortened = self.starts.last().map(|(id, _)| *id);
        }
        changed
    }

    /// Leaves out so many of the oldest turns.
    fn leave_out(&mut self, turns: usize) {
        let Some((_, from)) = self.starts.get(turns).copied() else { return };
        self.messages.drain(..from);
        self.starts.drain(..turns);
        self.starts.iter_mut().for_each(|(_, start)| *start -= from);
        self.left_out += turns;
        self.mark_cut();
    }

    /// Tells the model that it is not told all.
    fn mark_cut(&mut self) {
        if let Some(Message::User(text)) = self.messages.first_mut()
            && !text.starts_with(CUT)
        {
            *text = format!("{CUT}\n\n{text}").into();
        }
    }
}

fn push(messages: &mut Vec<Message>, item: Item) {
    match (item, messages.last_mut()) {
        (Item::User(text), _) => messages.push(Message::User(text)),
        (Item::Assistant(text), Some(Message::Assistant(reply))) if reply.calls.is_empty() => {
            reply.text.push_str(&text);
        }
        (Item::Assistant(text), _) => {
            let reply = Reply { text: text.as_ref().to_owned(), ..Reply::default() };
            messages.push(Message::Assistant(reply));
        }
        (Item::Call { id, tool, args }, last) => {
            let call = Call {
                id: id.to_string(),
                tool: tool.as_ref().to_owned(),
                args: args.get().to_owned(),
            };
            match last {
                Some(Message::Assistant(reply)) => reply.calls.push(call),
                _ => {
                    let reply = Reply { calls: vec![call], ..Reply::default() };
                    messages.push(Message::Assistant(reply));
                }
            }
        }
        (Item::Result { id, outcome }, last) => {
            let outcome = outcome.map(|value| value.get().to_owned());
            let result = CallResult { id: id.to_string(), outcome };
            match last {
                Some(Message::Results(results)) => results.push(result),
                _ => messages.push(Message::Results(vec![result])),
            }
        }
    }
}

/// Longest result of a call that is never shortened, in bytes.
const SHORT: usize = 4 << 10;

/// Leaves out the middle of long results. False if there are none.
fn shorten_results(messages: &mut [Message]) -> bool {
    let mut changed = false;
    for message in messages {
        let Message::Results(results) = message else { continue };
        for result in results.iter_mut().filter(|result| result.text().len() > SHORT) {
            let short = shortened(result.text());
            result.outcome = match &result.outcome {
                Ok(_) => Ok(short),
                Err(_) => Err(short),
            };
            changed = true;
        }
    }
    changed
}

/// A text without its middle.
fn shortened(text: &str) -> String {
    let head = text.floor_char_boundary(SHORT / 4);
    let tail = text.ceil_char_boundary(text.len() - SHORT / 4);
    let left_out = tail - head;
    format!("{}\n[{left_out} bytes are left out here.]\n{}", &text[..head], &text[tail..])
}
