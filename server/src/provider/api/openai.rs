//! OpenAI's chat completions, and what many servers make of them. `docs/openai.md` is its page.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::chat::{Answer, Call, CallResult, Message, Reply, Stop};
use super::http::{bearer, broke_off, said_in};
use super::room::Room;
use super::sse::Event;
use super::{Ask, Dialect, Fold, Piece};
use crate::model::{FailureClass, Usage};
use crate::provider::meter::micro_usd;
use crate::provider::secret::{Secret, Secrets};
use crate::provider::{Failure, Model, OutputKind};

/// Bytes that a piece of `reasoning_details` counts beside its JSON.
const DETAIL: usize = 64;

/// Chat completions, as a server wants them.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenAi {
    /// Whether it is asked to tell what an answer used: some refuse the question.
    pub(super) stream_usage: bool,
    pub(super) max_tokens_as: MaxTokensAs,
}

/// How a server calls the bound of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MaxTokensAs {
    /// As most do.
    #[default]
    MaxTokens,
    /// As OpenAI does for its newer models.
    MaxCompletionTokens,
}

impl MaxTokensAs {
    fn as_str(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

impl Dialect for OpenAi {
    fn path(&self) -> &'static str {
        "chat/completions"
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn key(&self, key: &Secret) -> (&'static str, String) {
        bearer(key)
    }

    fn body(&self, ask: &Ask<'_>) -> Value {
        let mut body = Map::new();
        body.insert("model".into(), ask.model.into());
        body.insert("stream".into(), true.into());
        if self.stream_usage {
            body.insert("stream_options".into(), json!({"include_usage": true}));
        }
        if let Some(tokens) = ask.max_tokens {
            body.insert(self.max_tokens_as.as_str().into(), tokens.into());
        }
        let mut messages = Vec::new();
        if !ask.instructions.trim().is_empty() {
            messages.push(json!({"role": "system", "content": ask.instructions}));
        }
        for message in ask.messages {
            add(&mut messages, message);
        }
        body.insert("messages".into(), messages.into());
        let tools = ask.tools.iter().map(|tool| {
            let (name, about) = (tool.name, tool.description);
            let function = json!({"name": name, "description": about, "parameters": tool.schema});
            json!({"type": "function", "function": function})
        });
        let tools: Vec<Value> = tools.collect();
        if !tools.is_empty() {
            body.insert("tools".into(), tools.into());
        }
        body.extend(ask.extra.clone());
        body.into()
    }

    fn fold(&self) -> Box<dyn Fold> {
        Box::new(Folding::default())
    }

    fn models(&self, page: &Value) -> Vec<Model> {
        let models = page.get("data").and_then(Value::as_array).into_iter().flatten();
        let model = |model: &Value| {
            let text = |name: &str| model.get(name).and_then(Value::as_str).map(str::to_owned);
            // The names under which the servers that tell it do so.
            let tokens = ["context_length", "max_model_len"];
            let tokens = tokens.iter().find_map(|name| model.get(name).and_then(Value::as_u64));
            let label = text("name").unwrap_or_default();
            Some(Model { id: text("id")?, label, context_tokens: tokens.unwrap_or(0) })
        };
        models.filter_map(model).collect()
    }

    fn models_path(&self) -> &'static str {
        "models"
    }
}

/// A message in the form of the API.
fn add(messages: &mut Vec<Value>, message: &Message) {
    match message {
        Message::User(text) => messages.push(json!({"role": "user", "content": text})),
        Message::Assistant(reply) => {
            let calls = reply.calls.iter().map(|call| {
                // Arguments that are none would be refused from now on.
                let args = match serde_json::from_str::<Value>(&call.args) {
                    Ok(Value::Object(_)) => call.args.clone(),
                    _ => "{}".to_owned(),
                };
                let function = json!({"name": call.tool, "arguments": args});
                json!({"id": call.id, "type": "function", "function": function})
            });
            let calls: Vec<Value> = calls.collect();
            let mut told = Map::new();
            told.insert("role".into(), "assistant".into());
            let text = Some(reply.text.clone()).filter(|text| !text.is_empty());
            told.insert("content".into(), text.map_or(Value::Null, Value::from));
            if !calls.is_empty() {
                told.insert("tool_calls".into(), calls.into());
            }
            if !reply.opaque.is_empty() {
                told.insert("reasoning_details".into(), reply.opaque.clone().into());
            }
            messages.push(told.into());
        }
        Message::Results(results) => {
            let result = |result: &CallResult| {
                let text = match &result.outcome {
                    Ok(text) => text.clone(),
                    Err(error) => format!("Error: {error}"),
                };
                json!({"role": "tool", "tool_call_id": result.id, "content": text})
            };
            messages.extend(results.iter().map(result));
        }
    }
}

/// An answer as it comes.
#[derive(Debug, Default)]
pub struct Folding {
    reply: Reply,
    room: Room,
    /// Where in the calls an index of the stream is.
    indices: Vec<u64>,
    usage: Usage,
    cost: Option<u64>,
    finish: Option<String>,
    is_done: bool,
}

impl Folding {
    fn count(&mut self, usage: &Value) {
        let number = |path: &str| usage.pointer(path).and_then(Value::as_u64);
        let cached = number("/prompt_tokens_details/cached_tokens").unwrap_or(0);
        let read = number("/prompt_tokens").unwrap_or(0);
        self.usage = Usage {
            // Tokens from the cache are among them.
            input_tokens: read.saturating_sub(cached),
            cache_read_tokens: cached,
            output_tokens: number("/completion_tokens").unwrap_or(0),
            ..Usage::default()
        };
        let cost = usage.get("cost").and_then(Value::as_f64);
        self.cost = cost.map(micro_usd).or(self.cost);
    }

    /// Takes a fragment of a call.
    fn call(&mut self, fragment: &Value) -> Result<(), Failure> {
        let word = |path: &str| fragment.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (id, name) = (word("/id"), word("/function/name"));
        let args = match fragment.pointer("/function/arguments") {
            Some(Value::String(text)) => Cow::from(text),
            // A whole object, of a server that did not make a text of it.
            Some(object @ Value::Object(_)) => Cow::from(object.to_string()),
            _ => Cow::default(),
        };
        self.room.take(id.len() + name.len() + args.len())?;
        let given = fragment.get("index").and_then(Value::as_u64);
        let known = given.and_then(|given| self.indices.iter().position(|index| *index == given));
        let at = match known {
            Some(at) => at,
            // One without an index goes on with the last call, unless it begins another.
            None if given.is_none() && !self.reply.calls.is_empty() && name.is_empty() => {
                self.reply.calls.len() - 1
            }
            None => {
                self.room.take_call()?;
                self.indices.push(given.unwrap_or(u64::MAX - self.indices.len() as u64));
                let call = Call { id: String::new(), tool: String::new(), args: String::new() };
                self.reply.calls.push(call);
                self.reply.calls.len() - 1
            }
        };
        let call = &mut self.reply.calls[at];
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        // Some servers repeat a name, others split it.
        if call.tool != name {
            call.tool.push_str(name);
        }
        call.args.push_str(&args);
        Ok(())
    }

    fn delta(&mut self, delta: &Value) -> Result<Option<Piece>, Failure> {
        let calls = delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
        for fragment in calls {
            self.call(fragment)?;
        }
        let details = delta.get("reasoning_details").and_then(Value::as_array);
        for detail in details.into_iter().flatten() {
            self.room.take(DETAIL + detail.to_string().len())?;
            self.reply.opaque.push(detail.clone());
        }
        let text = |name: &str| delta.get(name).and_then(Value::as_str).filter(|t| !t.is_empty());
        if let Some(said) = text("content").or_else(|| text("refusal")) {
            self.room.take(said.len())?;
            self.reply.text.push_str(said);
            return Ok(Some(Piece { kind: OutputKind::Text, text: said.to_owned() }));
        }
        let thought = text("reasoning").or_else(|| text("reasoning_content"));
        self.room.take(thought.map_or(0, str::len))?;
        Ok(thought.map(|text| Piece { kind: OutputKind::Thinking, text: text.to_owned() }))
    }
}

impl Fold for Folding {
    fn event(&mut self, event: &Event, secrets: &Secrets) -> Result<Option<Piece>, Failure> {
        if event.data.trim() == "[DONE]" {
            self.is_done = true;
            return Ok(None);
        }
        let Ok(data) = serde_json::from_str::<Value>(&event.data) else {
            let message = "the server sent an event that is no JSON";
            return Err(Failure::new(FailureClass::Protocol, message));
        };
        if let Some(error) = data.get("error").filter(|error| !error.is_null()) {
            return Err(broke_off(&said_in(error), secrets));
        }
        if let Some(usage) = data.get("usage").filter(|usage| !usage.is_null()) {
            self.count(usage);
        }
        let Some(choice) = data.pointer("/choices/0") else { return Ok(None) };
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.finish = Some(reason.to_owned());
        }
        // A server that does not stream sends the whole message.
        let delta = choice.get("delta").or_else(|| choice.get("message"));
        delta.map_or(Ok(None), |delta| self.delta(delta))
    }

    fn is_over(&self) -> bool {
        self.is_done
    }

    fn usage(&self) -> Usage {
        self.usage
    }

    fn answer(self: Box<Self>) -> Result<Answer, Failure> {
        let mut reply = self.reply;
        let stop = match self.finish.as_deref() {
            None if !self.is_done => {
                let message = "the connection ended before the answer did";
                return Err(Failure::new(FailureClass::Network, message));
            }
            Some("error") => {
                let message = "the server broke off without a word why";
                return Err(Failure::new(FailureClass::Transient, message));
            }
            Some("content_filter") => Stop::Refused,
            Some("length") => Stop::Length,
            // As some servers tell apart from it.
            Some("model_length" | "model_context_window_exceeded") => Stop::Overflow,
            _ => Stop::Done,
        };
        if reply.text.is_empty() && reply.calls.is_empty() && stop == Stop::Done {
            // Some servers answer so while a model is being loaded.
            let message = "the model answered nothing at all";
            return Err(Failure::new(FailureClass::Transient, message));
        }
        for (number, call) in reply.calls.iter_mut().enumerate() {
            if call.id.is_empty() {
                call.id = format!("call_{number}");
            }
        }
        Ok(Answer { reply, stop, usage: self.usage, cost: self.cost })
    }
}
