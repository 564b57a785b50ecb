//! Anthropic's Messages API. `docs/anthropic.md` is its page.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::chat::{Answer, Call, CallResult, Message, Reply, Stop};
use super::http::{broke_off, said_in};
use super::room::Room;
use super::sse::Event;
use super::{Ask, Dialect, Fold, Piece};
use crate::model::{FailureClass, Usage};
use crate::provider::secret::{Secret, Secrets};
use crate::provider::{Failure, Model, OutputKind};

/// The version of the API that is spoken.
const VERSION: &str = "2023-06-01";
/// Tokens of an answer where the configuration names no number.
const MAX_TOKENS: u64 = 8192;

/// The Messages API.
#[derive(Debug, Clone, Copy)]
pub(super) struct Anthropic;

impl Dialect for Anthropic {
    fn path(&self) -> &'static str {
        "v1/messages"
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("anthropic-version", VERSION)]
    }

    fn key(&self, key: &Secret) -> (&'static str, String) {
        ("x-api-key", key.expose().to_owned())
    }

    fn body(&self, ask: &Ask<'_>) -> Value {
        let mut body = Map::new();
        body.insert("model".into(), ask.model.into());
        body.insert("max_tokens".into(), ask.max_tokens.unwrap_or(MAX_TOKENS).into());
        body.insert("stream".into(), true.into());
        if !ask.instructions.trim().is_empty() {
            let block =
                json!({"type": "text", "text": ask.instructions, "cache_control": cached()});
            body.insert("system".into(), json!([block]));
        }
        let mut tools: Vec<Value> = ask.tools.iter().map(|tool| {
            json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema})
        }).collect();
        if let Some(Value::Object(last)) = tools.last_mut() {
            last.insert("cache_control".into(), cached());
            body.insert("tools".into(), tools.into());
        }
        body.insert("messages".into(), messages(ask.messages).into());
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
            let label = text("display_name").unwrap_or_default();
            let context_tokens = model.get("max_input_tokens").and_then(Value::as_u64).unwrap_or(0);
            Some(Model { id: text("id")?, label, context_tokens })
        };
        models.filter_map(model).collect()
    }

    fn models_path(&self) -> &'static str {
        "v1/models?limit=1000"
    }
}

fn cached() -> Value {
    json!({"type": "ephemeral"})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Messages in the form of the API. Its cache may end with each of the two that were told last: the
/// one before the newest is where it ended with the request before.
fn messages(messages: &[Message]) -> Vec<Value> {
    let mut told: Vec<(&str, Vec<Value>)> = Vec::new();
    let mut names = Names::default();
    for message in messages {
        let (role, blocks) = match message {
            Message::User(said) => ("user", vec![text(said)]),
            Message::Assistant(reply) => ("assistant", assistant(reply, &mut names)),
            Message::Results(results) => {
                let result = |(at, result): (usize, &CallResult)| {
                    json!({
                        "type": "tool_result",
                        "tool_use_id": names.of_last(at),
                        "content": result.text(),
                        "is_error": result.outcome.is_err(),
                    })
                };
                ("user", results.iter().enumerate().map(result).collect())
            }
        };
        match told.last_mut() {
            // Of results and what is said after them the results come first.
            Some((last, before)) if *last == role => before.extend(blocks),
            _ => told.push((role, blocks)),
        }
    }
    for (_, blocks) in told.iter_mut().rev().filter(|(role, _)| *role == "user").take(2) {
        if let Some(Value::Object(block)) = blocks.last_mut() {
            block.insert("cache_control".into(), cached());
        }
    }
    told.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
}

/// Names calls by their place in the conversation. The server's own name of a call is known as long
/// as its turn lasts, and the log's from then on; a cache that knows it by one would not know it by
/// the other.
#[derive(Debug, Default)]
struct Names {
    /// How many calls were made before those of the last answer that has some.
    before: usize,
    all: usize,
}

impl Names {
    /// Takes so many calls of an answer.
    fn take(&mut self, calls: usize) {
        self.before = self.all;
        self.all += calls;
    }

    /// The name of a call of the last answer. Results are in the order of its calls.
    fn of_last(&self, at: usize) -> String {
        format!("call_{}", self.before + at + 1)
    }
}

fn assistant(reply: &Reply, names: &mut Names) -> Vec<Value> {
    names.take(reply.calls.len());
    let says_more = |block: &Value| !matches!(kind(block), "text" | "tool_use");
    if reply.opaque.iter().any(says_more) {
        // The answer as it came, thinking with its signature included.
        let mut blocks = reply.opaque.clone();
        let calls = blocks.iter_mut().filter(|block| kind(block) == "tool_use");
        for (at, call) in calls.enumerate() {
            call["id"] = names.of_last(at).into();
        }
        return blocks;
    }
    let said = (!reply.text.trim().is_empty()).then(|| text(&reply.text));
    let calls = reply.calls.iter().enumerate().map(|(at, call)| {
        let id = names.of_last(at);
        json!({"type": "tool_use", "id": id, "name": call.tool, "input": call.object()})
    });
    said.into_iter().chain(calls).collect()
}

fn kind(block: &Value) -> &str {
    block.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// An answer as it comes.
#[derive(Debug, Default)]
pub struct Folding {
    blocks: BTreeMap<u64, Block>,
    room: Room,
    usage: Usage,
    stop: Option<Stop>,
    is_over: bool,
}

#[derive(Debug)]
struct Block {
    value: Map<String, Value>,
    /// What came of the arguments of a call.
    args: String,
}

impl Block {
    fn append(&mut self, key: &str, more: &str) {
        let value = self.value.entry(key).or_insert_with(|| Value::String(String::new()));
        if let Value::String(text) = value {
            text.push_str(more);
        }
    }

    fn kind(&self) -> &str {
        self.value.get("type").and_then(Value::as_str).unwrap_or_default()
    }

    fn word(&self, key: &str) -> &str {
        self.value.get(key).and_then(Value::as_str).unwrap_or_default()
    }
}

impl Folding {
    fn count(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage else { return };
        let counts = [
            ("input_tokens", &mut self.usage.input_tokens),
            ("output_tokens", &mut self.usage.output_tokens),
            ("cache_read_input_tokens", &mut self.usage.cache_read_tokens),
            ("cache_creation_input_tokens", &mut self.usage.cache_write_tokens),
        ];
        for (name, count) in counts {
            // They are totals, each time.
            if let Some(number) = usage.get(name).and_then(Value::as_u64) {
                *count = number;
            }
        }
    }

    /// Takes the beginning of a block, which came in so many bytes.
    fn start(
        &mut self,
        index: u64,
        value: &Map<String, Value>,
        bytes: usize,
    ) -> Result<(), Failure> {
        self.room.take(bytes)?;
        let block = Block { value: value.clone(), args: String::new() };
        if block.kind() == "tool_use" {
            self.room.take_call()?;
        }
        self.blocks.insert(index, block);
        Ok(())
    }

    fn delta(&mut self, index: u64, delta: &Value) -> Result<Option<Piece>, Failure> {
        let Some(block) = self.blocks.get_mut(&index) else { return Ok(None) };
        let word = |name: &str| delta.get(name).and_then(Value::as_str).unwrap_or_default();
        let (name, kind) = match word("type") {
            "text_delta" => ("text", Some(OutputKind::Text)),
            "thinking_delta" => ("thinking", Some(OutputKind::Thinking)),
            "signature_delta" => ("signature", None),
            "input_json_delta" => ("partial_json", None),
            _ => return Ok(None),
        };
        let more = word(name);
        self.room.take(more.len())?;
        match name {
            "partial_json" => block.args.push_str(more),
            name => block.append(name, more),
        }
        Ok(kind.map(|kind| Piece { kind, text: more.to_owned() }))
    }
}

fn stop(reason: &str) -> Stop {
    match reason {
        "max_tokens" => Stop::Length,
        "pause_turn" => Stop::Paused,
        "refusal" => Stop::Refused,
        "model_context_window_exceeded" => Stop::Overflow,
        _ => Stop::Done,
    }
}

impl Fold for Folding {
    fn event(&mut self, event: &Event, secrets: &Secrets) -> Result<Option<Piece>, Failure> {
        let Ok(data) = serde_json::from_str::<Value>(&event.data) else {
            let message = "the server sent an event that is no JSON";
            return Err(Failure::new(FailureClass::Protocol, message));
        };
        let index = data.get("index").and_then(Value::as_u64).unwrap_or_default();
        match data.get("type").and_then(Value::as_str).unwrap_or(&event.name) {
            "message_start" => self.count(data.pointer("/message/usage")),
            "content_block_start" => {
                if let Some(Value::Object(value)) = data.get("content_block") {
                    self.start(index, value, event.data.len())?;
                }
            }
            "content_block_delta" => {
                let nothing = Value::Null;
                return self.delta(index, data.get("delta").unwrap_or(&nothing));
            }
            "message_delta" => {
                self.count(data.get("usage"));
                let reason = data.pointer("/delta/stop_reason").and_then(Value::as_str);
                self.stop = reason.map(stop).or(self.stop);
            }
            "message_stop" => self.is_over = true,
            "error" => {
                let said = said_in(data.get("error").unwrap_or(&Value::Null));
                return Err(broke_off(&said, secrets));
            }
            _ => {}
        }
        Ok(None)
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn usage(&self) -> Usage {
        self.usage
    }

    fn answer(self: Box<Self>) -> Result<Answer, Failure> {
        if !self.is_over {
            let message = "the connection ended before the answer did";
            return Err(Failure::new(FailureClass::Network, message));
        }
        let mut reply = Reply::default();
        for mut block in self.blocks.into_values() {
            match block.kind() {
                "text" => reply.text.push_str(block.word("text")),
                "tool_use" => {
                    let (id, tool) = (block.word("id").to_owned(), block.word("name").to_owned());
                    let args = std::mem::take(&mut block.args);
                    let call = Call { id, tool, args };
                    block.value.insert("input".into(), call.object());
                    reply.calls.push(call);
                }
                _ => {}
            }
            let is_empty = block.kind() == "text" && block.word("text").trim().is_empty();
            if !is_empty {
                reply.opaque.push(block.value.into());
            }
        }
        let stop = self.stop.unwrap_or(Stop::Done);
        Ok(Answer { reply, stop, usage: self.usage, cost: None })
    }
}
