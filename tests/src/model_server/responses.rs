//! OpenAI Responses, as far as Codex speaks it.

use serde_json::{Value, json};

use super::Usage;
use super::conversation::{Conversation, list, texts};
use super::render::{Call, Kind, Writer};

pub(super) fn read(body: &Value) -> Conversation {
    let mut conversation = Conversation {
        model: body["model"].as_str().unwrap_or_default().to_owned(),
        stream: body["stream"] == true,
        system: body["instructions"].as_str().unwrap_or_default().to_owned(),
        ..Conversation::default()
    };
    if let Some(text) = body["input"].as_str() {
        conversation.user(text);
    }
    for item in list(&body["input"]) {
        if item["role"] == "user" {
            for text in texts(&item["content"]) {
                conversation.user(text);
            }
        } else if item["type"] == "function_call_output" {
            let output = &item["output"];
            let known = texts(output);
            let text = if known.is_empty() { output.to_string() } else { known.join("\n") };
            conversation.result(text);
        }
    }
    for tool in list(&body["tools"]) {
        match tool["type"].as_str() {
            Some("namespace") => {
                for inner in list(&tool["tools"]) {
                    conversation.offer(&inner["name"], tool["name"].as_str());
                }
            }
            Some("function") => conversation.offer(&tool["name"], None),
            // Built in to the service, or not called with JSON.
            _ => {}
        }
    }
    conversation
}

pub(super) struct Answer {
    model: String,
    id: String,
    output: Vec<Value>,
    /// Of events.
    sequence: u64,
}

impl Answer {
    pub(super) fn new(model: String, number: usize) -> Self {
        Self { model, id: format!("resp_{number}"), output: Vec::new(), sequence: 0 }
    }

    fn response(&self, status: &str, usage: &Value) -> Value {
        json!({
            "id": self.id,
            "object": "response",
            "created_at": 1,
            "model": self.model,
            "status": status,
            "error": null,
            "output": self.output,
            "usage": usage,
        })
    }

    /// An event of this type, with these fields beside it.
    fn event(&mut self, kind: &str, mut fields: Value) -> Value {
        fields["type"] = json!(kind);
        fields["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        fields
    }

    fn item_id(&self) -> String {
        format!("item_{}_{}", self.id, self.output.len())
    }

    /// An event about a part of the item that is being sent.
    fn part(&mut self, kind: &str, index: &str, mut fields: Value) -> Value {
        fields["item_id"] = json!(self.item_id());
        fields["output_index"] = json!(self.output.len());
        fields[index] = json!(0);
        self.event(kind, fields)
    }

    fn added(&mut self, item: &Value) -> Value {
        let index = self.output.len();
        let fields = json!({ "output_index": index, "item": item });
        self.event("response.output_item.added", fields)
    }

    fn done(&mut self, item: Value) -> Value {
        let index = self.output.len();
        let fields = json!({ "output_index": index, "item": item });
        self.output.push(item);
        self.event("response.output_item.done", fields)
    }

    fn item(&self, kind: Kind, text: Option<&str>) -> Value {
        let status = if text.is_some() { "completed" } else { "in_progress" };
        let id = self.item_id();
        match kind {
            Kind::Text => {
                let part = |text| json!({ "type": "output_text", "text": text, "annotations": [] });
                let content: Vec<Value> = text.map(part).into_iter().collect();
                json!({
                    "type": "message",
                    "id": id,
                    "role": "assistant",
                    "status": status,
                    "content": content,
                })
            }
            Kind::Thinking => {
                let part = |text| json!({ "type": "summary_text", "text": text });
                let summary: Vec<Value> = text.map(part).into_iter().collect();
                json!({ "type": "reasoning", "id": id, "summary": summary })
            }
        }
    }
}

fn usage() -> Value {
    json!({
        "input_tokens": Usage::INPUT,
        "input_tokens_details": { "cached_tokens": Usage::CACHE_READ },
        "output_tokens": Usage::OUTPUT,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": Usage::INPUT + Usage::OUTPUT,
    })
}

impl Writer for Answer {
    fn open(&mut self) -> Vec<Value> {
        let response = self.response("in_progress", &Value::Null);
        vec![self.event("response.created", json!({ "response": response }))]
    }

    fn begin(&mut self, kind: Kind) -> Vec<Value> {
        let item = self.item(kind, None);
        let added = self.added(&item);
        let (name, index, part) = match kind {
            Kind::Text => (
                "response.content_part.added",
                "content_index",
                json!({ "type": "output_text", "text": "", "annotations": [] }),
            ),
            Kind::Thinking => (
                "response.reasoning_summary_part.added",
                "summary_index",
                json!({ "type": "summary_text", "text": "" }),
            ),
        };
        vec![added, self.part(name, index, json!({ "part": part }))]
    }

    fn delta(&mut self, kind: Kind, text: &str) -> Vec<Value> {
        let (name, index) = match kind {
            Kind::Text => ("response.output_text.delta", "content_index"),
            Kind::Thinking => ("response.reasoning_summary_text.delta", "summary_index"),
        };
        vec![self.part(name, index, json!({ "delta": text }))]
    }

    fn end(&mut self, kind: Kind, text: &str) -> Vec<Value> {
        let (name, index) = match kind {
            Kind::Text => ("response.output_text.done", "content_index"),
            Kind::Thinking => ("response.reasoning_summary_text.done", "summary_index"),
        };
        let said = self.part(name, index, json!({ "text": text }));
        let item = self.item(kind, Some(text));
        vec![said, self.done(item)]
    }

    fn call(&mut self, call: &Call) -> Vec<Value> {
        let item = |status, arguments: &str, id: String| {
            let mut item = json!({
                "type": "function_call",
                "id": id,
                "call_id": call.id,
                "name": call.name,
                "arguments": arguments,
                "status": status,
            });
            if let Some(namespace) = &call.namespace {
                item["namespace"] = json!(namespace);
            }
            item
        };
        let (start, rest) = call.halves();
        let all = call.args.to_string();
        let id = self.item_id();
        let mut about = |kind: &str, mut fields: Value| {
            fields["item_id"] = json!(id);
            fields["output_index"] = json!(self.output.len());
            self.event(kind, fields)
        };
        let kind = "response.function_call_arguments";
        vec![
            about(
                "response.output_item.added",
                json!({ "item": item("in_progress", "", id.clone()) }),
            ),
            about(&format!("{kind}.delta"), json!({ "delta": start })),
            about(&format!("{kind}.delta"), json!({ "delta": rest })),
            about(&format!("{kind}.done"), json!({ "arguments": all })),
            self.done(item("completed", &all, id.clone())),
        ]
    }

    fn close(&mut self) -> Vec<Value> {
        let response = self.whole();
        vec![self.event("response.completed", json!({ "response": response }))]
    }

    fn error(&mut self, kind: &str) -> Vec<Value> {
        let mut response = self.response("failed", &Value::Null);
        response["error"] = json!({ "code": kind, "message": kind });
        vec![self.event("response.failed", json!({ "response": response }))]
    }

    fn whole(&self) -> Value {
        self.response("completed", &usage())
    }
}
