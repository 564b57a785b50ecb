//! A conversation as bare models know it, and what a model answers to it.

use std::sync::Arc;

use serde_json::Value;

use crate::model::{Json, Usage};
use crate::provider::history::{History, Item};

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
pub(super) struct Answer {
    /// What it said.
    pub(super) reply: Reply,
    /// Why it stopped.
    pub(super) stop: Stop,
    /// What it used.
    pub(super) usage: Usage,
    /// What the backend says that it cost, in millionths of a US dollar.
    pub(super) cost: Option<u64>,
}

/// The messages of a conversation up to the running turn, and what the agent is told in it.
pub(super) fn messages(history: History, prompt: Arc<str>) -> Vec<Message> {
    let mut messages = Vec::new();
    for item in history.turns.into_iter().flat_map(|turn| turn.items) {
        push(&mut messages, item);
    }
    if history.cut > 0 {
        match messages.first_mut() {
            Some(Message::User(text)) => *text = format!("{CUT}\n\n{text}").into(),
            _ => messages.insert(0, Message::User(CUT.into())),
        }
    }
    messages.push(Message::User(prompt));
    messages
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

/// Makes a conversation shorter: leaves out the older half of its turns, or, where there is
/// nothing more to leave out, the middle of its longest texts. False if nothing can be done.
pub(super) fn compact(messages: &mut Vec<Message>) -> bool {
    let starts = |messages: &[Message]| -> Vec<usize> {
        let is_start =
            |(at, message): (usize, &Message)| matches!(message, Message::User(_)).then_some(at);
        messages.iter().enumerate().filter_map(is_start).collect()
    };
    let turns = starts(messages);
    // The last is what the agent is told now.
    if let [_, .., _] = turns[..] {
        let from = turns[turns.len() / 2];
        messages.drain(..from);
        if let Some(Message::User(text)) = messages.first_mut()
            && !text.starts_with(CUT)
        {
            *text = format!("{CUT}\n\n{text}").into();
        }
        return true;
    }
    shorten_results(messages)
}

/// Longest result of a call that is never shortened, in bytes.
const SHORT: usize = 4 << 10;

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
