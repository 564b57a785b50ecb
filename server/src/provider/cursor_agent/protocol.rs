//! What `cursor-agent -p --output-format stream-json --stream-partial-output` writes for a turn.
//!
//! An `assistant` event says by two of its fields what it is:
//!
//! | `timestamp_ms` | `model_call_id` | |
//! |---|---|---|
//! | yes | no | a piece, to be appended |
//! | any | yes | the whole of what was streamed, before a tool is called |
//! | no | no | the whole of what was streamed, or of all that the turn said |
//!
//! A turn went well if a `result` says so; one that failed may end without a word, or with a line
//! of plain text. Nothing can be said to it while it runs. A chat that it does not know it begins
//! anew, with another id: compare [`Stream::session`] with the one that was to be gone on with.

use serde_json::Value;

use crate::model::Usage;
use crate::provider::OutputKind;
use crate::provider::activity::{Activity, Event, TurnOver, content, number, text};
use crate::provider::failure::{Failed, FailureKind};
use crate::provider::progress::Progress;

/// Most bytes of plain text that are kept as its last words.
const MAX_WORDS: usize = 1 << 10;

/// Nothing is asked outside of turns.
pub type Answer = std::convert::Infallible;

/// The output of one process, which runs one turn.
#[derive(Debug, Default)]
pub struct Stream {
    turn: Progress<Answer, ()>,
    session: Option<String>,
    /// Lines of plain text, and errors: what it failed for, if it did.
    words: String,
}

impl Stream {
    /// The chat, once it is known.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// The output ended before the turn did.
    pub fn end(&mut self) -> Vec<Event<Answer>> {
        let failed = match std::mem::take(&mut self.words) {
            words if words.is_empty() => Failed::ended(),
            words => Failed::of_text(words, FailureKind::Other),
        };
        self.turn.over(TurnOver::Failed(failed));
        self.turn.take()
    }

    /// What a line says.
    pub fn read(&mut self, line: &str) -> Vec<Event<Answer>> {
        // Some builds name the stream first.
        let line = ["stdout:", "stderr:"]
            .iter()
            .find_map(|name| line.strip_prefix(name))
            .map_or(line, str::trim_start);
        match serde_json::from_str::<Value>(line) {
            Ok(event) if event.is_object() => self.event(&event),
            _ => {
                self.complained(line);
                self.turn.stray(line);
            }
        }
        self.turn.take()
    }

    fn complained(&mut self, words: &str) {
        let room = MAX_WORDS.saturating_sub(self.words.len());
        if !words.is_empty() && room > 0 {
            if !self.words.is_empty() {
                self.words.push('\n');
            }
            self.words.push_str(&words[..words.floor_char_boundary(room)]);
        }
    }

    fn event(&mut self, event: &Value) {
        self.named(text(event, "session_id"));
        match (text(event, "type"), text(event, "subtype")) {
            ("thinking", "delta") => self.turn.delta(OutputKind::Thinking, text(event, "text")),
            ("thinking", "completed") => {
                self.turn.finish();
                self.turn.alive();
            }
            ("assistant", _) => self.assistant(event),
            ("tool_call", "started") => self.tool_started(event),
            ("tool_call", "completed") => self.tool_completed(event),
            ("system", "error") | ("error", _) => {
                let words = ["message", "error", "text"].map(|key| content(&event[key]));
                self.complained(words.iter().find(|words| !words.is_empty()).map_or("", |w| w));
                self.turn.alive();
            }
            ("result", _) => self.result(event),
            _ => self.turn.alive(),
        }
    }

    fn named(&mut self, session: &str) {
        if !session.is_empty() && self.session.as_deref() != Some(session) {
            self.session = Some(session.to_owned());
            self.turn.push(Activity::Session(session.to_owned()));
        }
    }

    fn assistant(&mut self, event: &Value) {
        let said = content(&event["message"]["content"]);
        let has = |key: &str| event.get(key).is_some_and(|value| !value.is_null());
        if has("timestamp_ms") && !has("model_call_id") {
            return self.turn.delta(OutputKind::Text, &said);
        }
        if said.ends_with(self.turn.provisional()) && !self.turn.provisional().is_empty() {
            // Of all that the turn said, the end.
            self.turn.finish();
        } else if has("model_call_id") || !self.turn.has_said() {
            self.turn.text(OutputKind::Text, said);
        } else {
            // What the turn said, in pieces that are finished already.
            self.turn.finish();
            self.turn.alive();
        }
    }

    fn tool_started(&mut self, event: &Value) {
        match tool(event) {
            Some(Tool { name, input, .. }) => {
                self.turn.start(text(event, "call_id"), &name, input);
            }
            None => self.turn.alive(),
        }
    }

    fn tool_completed(&mut self, event: &Value) {
        let id = text(event, "call_id");
        let Some(Tool { name, input, result }) = tool(event) else { return self.turn.alive() };
        if !self.turn.is_running(id) {
            self.turn.start(id, &name, input);
        }
        let (ok, output) = outcome(result);
        self.turn.end(id, ok, output);
    }

    fn result(&mut self, result: &Value) {
        let used = used(result);
        if !used.is_zero() {
            self.turn.push(Activity::Used(used));
        }
        let said = text(result, "result");
        if result["is_error"] == false && text(result, "subtype") == "success" {
            self.words.clear();
            // Its result is all that the turn said; the answer is what it said last.
            self.turn.finish();
            let alone = !self.turn.has_said() && !said.is_empty();
            if alone {
                self.turn.text(OutputKind::Text, said.to_owned());
            }
            return self.turn.complete(None);
        }
        self.complained(said);
        let words = std::mem::take(&mut self.words);
        let words = if words.is_empty() { "it failed without a word".to_owned() } else { words };
        self.turn.over(TurnOver::Failed(Failed::of_text(words, FailureKind::Other)));
    }
}

/// A tool call.
struct Tool<'a> {
    name: String,
    input: &'a Value,
    result: &'a Value,
}

/// Reads a tool call: what it is stands in the name of the key that holds it.
fn tool(event: &Value) -> Option<Tool<'_>> {
    let call = event["tool_call"].as_object()?;
    if let Some(function) = call.get("function") {
        let name = text(function, "name").to_owned();
        return Some(Tool { name, input: &function["arguments"], result: &function["result"] });
    }
    let (kind, body) = call.iter().find(|(key, _)| key.ends_with("ToolCall"))?;
    let (args, result) = (&body["args"], &body["result"]);
    if kind != "mcpToolCall" {
        return Some(Tool {
            name: kind.trim_end_matches("ToolCall").to_owned(),
            input: args,
            result,
        });
    }
    let server = ["providerIdentifier", "serverIdentifier"].map(|key| text(args, key));
    let server = server.into_iter().find(|server| !server.is_empty());
    let name = match (server, text(args, "toolName")) {
        (Some(server), tool) if !tool.is_empty() => format!("{server}.{tool}"),
        _ => text(args, "name").to_owned(),
    };
    Some(Tool { name, input: &args["args"], result })
}

/// What a tool came to. One that was not allowed is no failure of the turn.
fn outcome(result: &Value) -> (bool, String) {
    if let Some(success) = result.get("success") {
        let ok = success["isError"] != true && success["exitCode"].as_i64().unwrap_or(0) == 0;
        let output = ["content", "stdout"].map(|key| content(&success[key]));
        let error = content(&success["stderr"]);
        let output = output.into_iter().chain([error]).filter(|output| !output.is_empty());
        return (ok, output.collect::<Vec<_>>().join("\n"));
    }
    if let Some(rejected) = result.get("rejected") {
        return match text(rejected, "reason") {
            "" => (false, "it was not allowed".to_owned()),
            reason => (false, format!("it was not allowed: {reason}")),
        };
    }
    let error = &result["error"];
    let words = ["error", "message", "errorMessage"].map(|key| content(&error[key]));
    let words = words.into_iter().find(|words| !words.is_empty());
    (false, words.unwrap_or_else(|| content(error)))
}

/// Some versions count in the result itself, older ones not at all.
fn used(result: &Value) -> Usage {
    let usage = if result["usage"].is_object() { &result["usage"] } else { result };
    Usage {
        input_tokens: number(usage, "inputTokens"),
        output_tokens: number(usage, "outputTokens"),
        cache_read_tokens: number(usage, "cacheReadTokens"),
        cache_write_tokens: number(usage, "cacheWriteTokens"),
        ..Usage::default()
    }
}
