//! Anthropic Messages.

use serde_json::{Value, json};

use super::Usage;
use super::conversation::{Conversation, list, texts};
use super::render::{Call, Kind, Writer};

pub(super) fn read(body: &Value) -> Conversation {
    let mut conversation = Conversation {
        model: body["model"].as_str().unwrap_or_default().to_owned(),
        stream: body["stream"] == true,
        system: texts(&body["system"]).join("\n"),
        ..Conversation::default()
    };
    for message in list(&body["messages"]) {
        for text in texts(&message["content"]).into_iter().filter_map(folded) {
            conversation.user(text);
        }
        if message["role"] != "user" {
            continue;
        }
        if let Some(text) = message["content"].as_str() {
            conversation.user(text);
        }
        for block in list(&message["content"]) {
            match block["type"].as_str() {
                Some("text") => conversation.user(block["text"].as_str().unwrap_or_default()),
                Some("tool_result") => conversation.result(texts(&block["content"]).join("\n")),
                _ => {}
            }
        }
    }
    for tool in list(&body["tools"]) {
        conversation.offer(&tool["name"], None);
    }
    conversation
}

/// What the user said while Claude Code was at work, which it passes on in words of its own.
fn folded(text: &str) -> Option<&str> {
    let said = text.split("The user sent a new message while you were working:\n").nth(1)?;
    said.split("\n\nThis is how Claude Code").next()
}

pub(super) fn refusal(kind: &str, message: &str) -> Value {
    json!({
        "type": "error",
        "error": { "type": kind, "message": message },
        "request_id": "req_refused",
    })
}

pub(super) struct Answer {
    model: String,
    id: String,
    content: Vec<Value>,
}

impl Answer {
    pub(super) fn new(model: String, number: usize) -> Self {
        Self { model, id: format!("msg_{number}"), content: Vec::new() }
    }

    fn message(&self, content: &[Value], stop: Option<&str>, output: u64) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": stop,
            "stop_sequence": null,
            "usage": {
                "input_tokens": Usage::INPUT,
                "cache_creation_input_tokens": Usage::CACHE_WRITE,
                "cache_read_input_tokens": Usage::CACHE_READ,
                "output_tokens": output,
            },
        })
    }

    fn stop(&self) -> &'static str {
        let called = self.content.iter().any(|block| block["type"] == "tool_use");
        if called { "tool_use" } else { "end_turn" }
    }

    fn event_of_delta(&self, delta: &Value) -> Value {
        json!({ "type": "content_block_delta", "index": self.content.len(), "delta": delta })
    }

    fn start(&self, block: &Value) -> Value {
        json!({ "type": "content_block_start", "index": self.content.len(), "content_block": block })
    }

    /// Ends the block that was being sent.
    fn finish(&mut self, block: Value) -> Value {
        let event = json!({ "type": "content_block_stop", "index": self.content.len() });
        self.content.push(block);
        event
    }

    fn signature(&self) -> String {
        format!("signature-{}-{}", self.id, self.content.len())
    }
}

impl Writer for Answer {
    fn open(&mut self) -> Vec<Value> {
        let message = self.message(&[], None, 1);
        vec![json!({ "type": "message_start", "message": message }), json!({ "type": "ping" })]
    }

    fn begin(&mut self, kind: Kind) -> Vec<Value> {
        vec![self.start(&match kind {
            Kind::Text => json!({ "type": "text", "text": "" }),
            Kind::Thinking => json!({ "type": "thinking", "thinking": "", "signature": "" }),
        })]
    }

    fn delta(&mut self, kind: Kind, text: &str) -> Vec<Value> {
        vec![self.event_of_delta(&match kind {
            Kind::Text => json!({ "type": "text_delta", "text": text }),
            Kind::Thinking => json!({ "type": "thinking_delta", "thinking": text }),
        })]
    }

    fn end(&mut self, kind: Kind, text: &str) -> Vec<Value> {
        if kind == Kind::Text {
            return vec![self.finish(json!({ "type": "text", "text": text }))];
        }
        let signature = self.signature();
        let block = json!({ "type": "thinking", "thinking": text, "signature": signature });
        let delta = json!({ "type": "signature_delta", "signature": signature });
        vec![self.event_of_delta(&delta), self.finish(block)]
    }

    fn call(&mut self, call: &Call) -> Vec<Value> {
        let block = |input: &Value| json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input });
        let json = |part| json!({ "type": "input_json_delta", "partial_json": part });
        let (start, rest) = call.halves();
        vec![
            self.start(&block(&json!({}))),
            self.event_of_delta(&json(start)),
            self.event_of_delta(&json(rest)),
            self.finish(block(&call.args)),
        ]
    }

    fn close(&mut self) -> Vec<Value> {
        let delta = json!({ "stop_reason": self.stop(), "stop_sequence": null });
        let usage = json!({ "output_tokens": Usage::OUTPUT });
        vec![
            json!({ "type": "message_delta", "delta": delta, "usage": usage }),
            json!({ "type": "message_stop" }),
        ]
    }

    fn error(&mut self, kind: &str) -> Vec<Value> {
        let kind = if kind.ends_with("_error") { kind.to_owned() } else { format!("{kind}_error") };
        let error = json!({ "type": kind, "message": kind });
        vec![json!({ "type": "error", "error": error })]
    }

    fn whole(&self) -> Value {
        self.message(&self.content, Some(self.stop()), Usage::OUTPUT)
    }
}
