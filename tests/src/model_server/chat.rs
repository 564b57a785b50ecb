//! OpenAI chat completions.

use serde_json::{Value, json};

use super::Usage;
use super::conversation::{Conversation, list, texts};
use super::render::{Call, Kind, Writer};

pub(super) fn read(body: &Value) -> Conversation {
    let mut conversation = Conversation {
        model: body["model"].as_str().unwrap_or_default().to_owned(),
        stream: body["stream"] == true,
        ..Conversation::default()
    };
    for message in list(&body["messages"]) {
        let texts = texts(&message["content"]);
        match message["role"].as_str() {
            Some("system" | "developer") => conversation.system += &texts.join("\n"),
            Some("user") => texts.into_iter().for_each(|text| conversation.user(text)),
            Some("tool") => conversation.result(texts.join("\n")),
            _ => {}
        }
    }
    for tool in list(&body["tools"]) {
        conversation.offer(&tool["function"]["name"], None);
    }
    conversation
}

/// Of chat completions and of Responses.
pub(super) fn refusal(kind: &str, message: &str) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": null, "code": kind } })
}

pub(super) struct Answer {
    model: String,
    id: String,
    text: String,
    thoughts: String,
    calls: Vec<Value>,
    with_usage: bool,
}

impl Answer {
    pub(super) fn new(model: String, number: usize, body: &Value) -> Self {
        let with_usage = body["stream_options"]["include_usage"] == true;
        let id = format!("gen-{number}");
        Self {
            model,
            id,
            text: String::new(),
            thoughts: String::new(),
            calls: Vec::new(),
            with_usage,
        }
    }

    fn chunk(&self, choices: &Value) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": 1,
            "model": self.model,
            "choices": choices,
        })
    }

    fn chunk_of(&self, delta: &Value, finish: Option<&str>) -> Value {
        self.chunk(&json!([{ "index": 0, "delta": delta, "finish_reason": finish }]))
    }

    fn finish(&self) -> &'static str {
        if self.calls.is_empty() { "stop" } else { "tool_calls" }
    }
}

fn usage() -> Value {
    json!({
        "prompt_tokens": Usage::INPUT,
        "completion_tokens": Usage::OUTPUT,
        "total_tokens": Usage::INPUT + Usage::OUTPUT,
        "prompt_tokens_details": { "cached_tokens": Usage::CACHE_READ },
        "completion_tokens_details": { "reasoning_tokens": 0 },
    })
}

impl Writer for Answer {
    fn open(&mut self) -> Vec<Value> {
        vec![self.chunk_of(&json!({ "role": "assistant", "content": "" }), None)]
    }

    fn begin(&mut self, _: Kind) -> Vec<Value> {
        Vec::new()
    }

    fn delta(&mut self, kind: Kind, text: &str) -> Vec<Value> {
        let delta = match kind {
            Kind::Text => json!({ "content": text }),
            Kind::Thinking => json!({ "content": null, "reasoning_content": text }),
        };
        vec![self.chunk_of(&delta, None)]
    }

    fn end(&mut self, kind: Kind, text: &str) -> Vec<Value> {
        match kind {
            Kind::Text => self.text += text,
            Kind::Thinking => self.thoughts += text,
        }
        Vec::new()
    }

    fn call(&mut self, call: &Call) -> Vec<Value> {
        let index = self.calls.len();
        let function = json!({ "name": call.name, "arguments": call.args.to_string() });
        self.calls.push(json!({ "id": call.id, "type": "function", "function": function }));
        let (start, rest) = call.halves();
        let first = json!({
            "index": index,
            "id": call.id,
            "type": "function",
            "function": { "name": call.name, "arguments": "" },
        });
        let part = |text| json!({ "index": index, "function": { "arguments": text } });
        let parts = [first, part(start), part(rest)];
        let chunks = parts.iter().map(|part| self.chunk_of(&json!({ "tool_calls": [part] }), None));
        chunks.collect()
    }

    fn close(&mut self) -> Vec<Value> {
        let mut events = vec![self.chunk_of(&json!({}), Some(self.finish()))];
        if self.with_usage {
            let mut chunk = self.chunk(&json!([]));
            chunk["usage"] = usage();
            events.push(chunk);
        }
        events
    }

    fn error(&mut self, kind: &str) -> Vec<Value> {
        let mut chunk = self.chunk_of(&json!({ "content": "" }), Some("error"));
        chunk["error"] = json!({ "code": 502, "message": kind });
        vec![chunk]
    }

    fn whole(&self) -> Value {
        let mut message = json!({ "role": "assistant", "content": self.text });
        if !self.thoughts.is_empty() {
            message["reasoning_content"] = json!(self.thoughts);
        }
        if !self.calls.is_empty() {
            message["tool_calls"] = json!(self.calls);
        }
        json!({
            "id": self.id,
            "object": "chat.completion",
            "created": 1,
            "model": self.model,
            "choices": [{ "index": 0, "message": message, "finish_reason": self.finish() }],
            "usage": usage(),
        })
    }
}
