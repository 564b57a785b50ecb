//! Gemini's generateContent.

use serde_json::{Value, json};

use super::Usage;
use super::conversation::{Conversation, list, texts};
use super::render::{Call, Kind, Writer};

/// The path has the model and whether to stream.
pub(super) fn read(path: &str, body: &Value) -> Conversation {
    let rest = path.split("/models/").nth(1).unwrap_or_default();
    let mut conversation = Conversation {
        model: rest.split(':').next().unwrap_or_default().to_owned(),
        stream: rest.contains(":streamGenerateContent"),
        system: texts(&body["systemInstruction"]["parts"]).join("\n"),
        ..Conversation::default()
    };
    for content in list(&body["contents"]).iter().filter(|content| content["role"] == "user") {
        for part in list(&content["parts"]) {
            if let Some(text) = part["text"].as_str() {
                conversation.user(text);
            } else if let Some(response) = part.get("functionResponse") {
                let output = &response["response"]["output"];
                let text = output.as_str().map(str::to_owned);
                conversation.result(text.unwrap_or_else(|| response["response"].to_string()));
            }
        }
    }
    for tool in list(&body["tools"]).iter().flat_map(|tool| list(&tool["functionDeclarations"])) {
        conversation.offer(&tool["name"], None);
    }
    conversation
}

pub(super) fn refusal(status: u16, message: &str) -> Value {
    let name = match status {
        400 | 413 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        402 | 403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 | 529 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    };
    json!({ "error": { "code": status, "message": message, "status": name } })
}

pub(super) struct Answer {
    model: String,
    id: String,
    parts: Vec<Value>,
}

impl Answer {
    pub(super) fn new(model: String, number: usize) -> Self {
        Self { model, id: format!("response-{number}"), parts: Vec::new() }
    }

    fn response(&self, parts: &[Value], finish: Option<&str>) -> Value {
        let mut candidate = json!({ "index": 0, "content": { "role": "model", "parts": parts } });
        if let Some(finish) = finish {
            candidate["finishReason"] = json!(finish);
        }
        json!({
            "candidates": [candidate],
            "modelVersion": self.model,
            "responseId": self.id,
            "usageMetadata": {
                "promptTokenCount": Usage::INPUT,
                "cachedContentTokenCount": Usage::CACHE_READ,
                "candidatesTokenCount": Usage::OUTPUT,
                "totalTokenCount": Usage::INPUT + Usage::OUTPUT,
            },
        })
    }
}

fn part(kind: Kind, text: &str) -> Value {
    match kind {
        Kind::Text => json!({ "text": text }),
        Kind::Thinking => json!({ "text": text, "thought": true }),
    }
}

impl Writer for Answer {
    fn open(&mut self) -> Vec<Value> {
        Vec::new()
    }

    fn begin(&mut self, _: Kind) -> Vec<Value> {
        Vec::new()
    }

    fn delta(&mut self, kind: Kind, text: &str) -> Vec<Value> {
        vec![self.response(&[part(kind, text)], None)]
    }

    fn end(&mut self, kind: Kind, text: &str) -> Vec<Value> {
        self.parts.push(part(kind, text));
        Vec::new()
    }

    fn call(&mut self, call: &Call) -> Vec<Value> {
        let call =
            json!({ "functionCall": { "id": call.id, "name": call.name, "args": call.args } });
        self.parts.push(call.clone());
        vec![self.response(&[call], None)]
    }

    fn close(&mut self) -> Vec<Value> {
        vec![self.response(&[json!({ "text": "" })], Some("STOP"))]
    }

    fn error(&mut self, kind: &str) -> Vec<Value> {
        vec![refusal(503, kind)]
    }

    fn whole(&self) -> Value {
        self.response(&self.parts, Some("STOP"))
    }
}
