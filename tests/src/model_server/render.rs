//! From what the model does to the bytes of an answer.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::conversation::{Api, Conversation};
use super::script::Behaviour;
use super::{anthropic, chat, gemini, responses};

/// A piece of an answer's body.
#[derive(Debug, PartialEq)]
pub(super) enum Frame {
    Bytes(Bytes),
    Pause(Duration),
    /// Until the test releases it.
    Hold(String),
    Silence,
    Cut,
}

/// The two kinds of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Thinking,
}

/// A call of an offered tool.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) args: Value,
}

impl Call {
    /// The arguments as JSON in two parts, as they may come.
    pub(super) fn halves(&self) -> (String, String) {
        let text = self.args.to_string();
        let middle = (text.len() / 2..).find(|at| text.is_char_boundary(*at));
        let (start, rest) = text.split_at(middle.unwrap_or(text.len()));
        (start.to_owned(), rest.to_owned())
    }
}

/// Writes one answer in the words of an API. The methods return events of its stream.
pub(super) trait Writer {
    fn open(&mut self) -> Vec<Value>;
    fn begin(&mut self, kind: Kind) -> Vec<Value>;
    fn delta(&mut self, kind: Kind, text: &str) -> Vec<Value>;
    /// `text` is all of it.
    fn end(&mut self, kind: Kind, text: &str) -> Vec<Value>;
    fn call(&mut self, call: &Call) -> Vec<Value>;
    fn close(&mut self) -> Vec<Value>;
    /// An error after the stream began.
    fn error(&mut self, kind: &str) -> Vec<Value>;
    /// The whole answer as one body.
    fn whole(&self) -> Value;
}

fn writer(api: Api, conversation: &Conversation, body: &Value, number: usize) -> Box<dyn Writer> {
    let model = conversation.model.clone();
    match api {
        Api::Anthropic => Box::new(anthropic::Answer::new(model, number)),
        Api::Chat => Box::new(chat::Answer::new(model, number, body)),
        Api::Responses => Box::new(responses::Answer::new(model, number)),
        Api::Gemini => Box::new(gemini::Answer::new(model, number)),
    }
}

/// The body of an answer to the request of this number.
pub(super) fn frames(
    api: Api,
    conversation: &Conversation,
    body: &Value,
    number: usize,
    behaviours: &[Behaviour],
) -> Vec<Frame> {
    let mut render = Render {
        api,
        conversation,
        number,
        writer: writer(api, conversation, body, number),
        frames: Vec::new(),
        slow: None,
    };
    if api == Api::Chat && conversation.stream {
        render.frames.push(Frame::Bytes(Bytes::from_static(b": processing\n\n")));
    }
    let events = render.writer.open();
    render.send(&events);
    for (place, behaviour) in behaviours.iter().enumerate() {
        if render.act(place, behaviour) {
            return render.frames;
        }
    }
    let events = render.writer.close();
    render.send(&events);
    if !conversation.stream {
        let whole = render.writer.whole().to_string();
        render.frames.push(Frame::Bytes(whole.into()));
    } else if api == Api::Chat {
        render.frames.push(Frame::Bytes(Bytes::from_static(b"data: [DONE]\n\n")));
    }
    render.frames
}

struct Render<'a> {
    api: Api,
    conversation: &'a Conversation,
    number: usize,
    writer: Box<dyn Writer>,
    frames: Vec<Frame>,
    slow: Option<Duration>,
}

impl Render<'_> {
    /// Sends events, or nothing where the answer is one body.
    fn send(&mut self, events: &[Value]) {
        if !self.conversation.stream {
            return;
        }
        for data in events {
            let name = match self.api {
                Api::Anthropic | Api::Responses => data["type"].as_str(),
                Api::Chat | Api::Gemini => None,
            };
            let name = name.map(|name| format!("event: {name}\n")).unwrap_or_default();
            self.frames.push(Frame::Bytes(format!("{name}data: {data}\n\n").into()));
        }
    }

    /// Does one thing; whether the answer ends with it.
    fn act(&mut self, place: usize, behaviour: &Behaviour) -> bool {
        match behaviour {
            Behaviour::Say(text) => {
                let results = self.conversation.results();
                let result = results.last().copied().unwrap_or("nothing");
                self.text(Kind::Text, &text.replace("{result}", result));
            }
            Behaviour::Count(to) => {
                let text: String = (1..=*to).map(|number| format!("{number} ")).collect();
                self.text(Kind::Text, &text);
            }
            Behaviour::Think(text) => self.text(Kind::Thinking, text),
            Behaviour::Recall => {
                let said = self.conversation.said();
                let earlier = said.split_last().map(|(_, earlier)| earlier.join(" | "));
                self.text(Kind::Text, &format!("I recall: {}", earlier.unwrap_or_default()));
            }
            Behaviour::Tools => {
                self.text(Kind::Text, &format!("I have: {}", self.tools()));
            }
            Behaviour::Call { tool, args } => self.call(place, tool, args),
            Behaviour::Slow(duration) => self.slow = Some(*duration),
            Behaviour::Hold(name) => self.frames.push(Frame::Hold(name.clone())),
            Behaviour::Stall | Behaviour::Hang => self.frames.push(Frame::Silence),
            Behaviour::Midstream(kind) if self.conversation.stream => {
                let events = self.writer.error(kind);
                self.send(&events);
            }
            // Refusals were given out before; what is left breaks off.
            _ => self.frames.push(Frame::Cut),
        }
        behaviour.ends()
    }

    fn text(&mut self, kind: Kind, text: &str) {
        let deltas: Vec<&str> = text.split_inclusive(' ').collect();
        let count = u32::try_from(deltas.len().max(1)).unwrap_or(u32::MAX);
        let pause = self.slow.take().map(|all| all / count);
        let events = self.writer.begin(kind);
        self.send(&events);
        for delta in deltas {
            self.frames.extend(pause.map(Frame::Pause));
            let events = self.writer.delta(kind, delta);
            self.send(&events);
        }
        let events = self.writer.end(kind, text);
        self.send(&events);
    }

    fn call(&mut self, place: usize, tool: &str, args: &Value) {
        let Some(found) = self.conversation.tool(tool) else {
            let text = format!("No tool {tool} is offered, only: {}", self.tools());
            return self.text(Kind::Text, &text);
        };
        let prefix = if self.api == Api::Anthropic { "toolu" } else { "call" };
        let call = Call {
            id: format!("{prefix}_{}_{place}", self.number),
            name: found.name.clone(),
            namespace: found.namespace.clone(),
            args: args.clone(),
        };
        let events = self.writer.call(&call);
        self.send(&events);
    }

    fn tools(&self) -> String {
        let names: Vec<&str> = self.conversation.tools.iter().map(|it| it.name.as_str()).collect();
        names.join(", ")
    }
}

/// The body of a refusal.
pub(super) fn refusal(api: Api, status: u16, kind: &str, message: &str) -> Value {
    match api {
        Api::Anthropic => anthropic::refusal(kind, message),
        Api::Chat | Api::Responses => chat::refusal(kind, message),
        Api::Gemini => gemini::refusal(status, message),
    }
}

/// What OpenAI says where it has no such model.
const NO_MODEL: &str = "The model `fake-1` does not exist or you do not have access to it.";
/// What Google says.
const NO_GEMINI_MODEL: &str =
    "models/fake-1 is not found for API version v1beta, or is not supported for generateContent.";

/// The name of an HTTP error and what is said of it.
pub(super) fn named(api: Api, status: u16) -> (&'static str, &'static str) {
    let (anthropic, openai, message) = match status {
        400 => ("invalid_request_error", "invalid_request_error", "The request is malformed"),
        401 => ("authentication_error", "invalid_api_key", "The key is not valid"),
        402 => ("billing_error", "insufficient_quota", "There is no credit left"),
        403 => ("permission_error", "permission_denied", "The key may not use this model"),
        404 if api == Api::Gemini => ("", "", NO_GEMINI_MODEL),
        404 => ("not_found_error", "model_not_found", NO_MODEL),
        413 => ("request_too_large", "request_too_large", "The request is too large"),
        429 => ("rate_limit_error", "rate_limit_exceeded", "Too many requests"),
        504 => ("timeout_error", "timeout", "The model took too long"),
        503 | 529 => ("overloaded_error", "server_overloaded", "Overloaded"),
        _ => ("api_error", "server_error", "Something went wrong"),
    };
    (if api == Api::Anthropic { anthropic } else { openai }, message)
}
