//! What Claude Code writes with `--output-format stream-json`, one JSON object a line.
//!
//! ```text
//!  message_start ─► deltas ─► assistant (a block is finished) ─► message_delta ─► message_stop
//!       ▲                                                                            │
//!       └── user (results of tools) ◄───────────────── or the call broke off: void ──┤
//!                                                                                    ▼
//!                                                                                  result
//! ```
//!
//! Types that are not known are skipped, and the order of keys means nothing. Whether a turn went
//! well is what `is_error` of its result says. One result may be for several messages: what
//! happened to each is told by its id, as [`Answer::Message`].

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::requests::{refusal, response};
use super::usage::Meter;
use crate::model::Timestamp;
use crate::provider::OutputKind;
use crate::provider::activity::{
    Activity, Decision, Event, PermissionKind, PermissionOption, RequestId, TurnOver, carried,
    content, number, text,
};
use crate::provider::failure::{Failed, FailureKind};
use crate::provider::lines::quote;
use crate::provider::meter::Totals;
use crate::provider::progress::{MAX_ID, Progress};

/// Most MCP servers of which the state is remembered.
const MAX_SERVERS: usize = 64;
/// Longest name of one, in bytes.
const MAX_NAME: usize = 1 << 10;

/// What the CLI answers outside of turns.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// What came of a request.
    Control {
        /// The request.
        request: String,
        /// What it gave, or why it was refused.
        outcome: Result<Value, String>,
    },
    /// Where a message is that was given with an id.
    Message {
        /// The message.
        uuid: String,
        /// Where it is.
        state: MessageState,
    },
}

/// Where a message is that was given to the CLI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageState {
    /// It waits for the running turn, or for a pause in it.
    Queued,
    /// It is in the running turn.
    Started,
    /// Its turn is over.
    Completed,
    /// It was taken back.
    Cancelled,
}

/// A question whether a tool may be used.
#[derive(Debug)]
struct Question {
    input: Value,
    /// Rules that spare the question next time, for the life of the process.
    rules: Vec<Value>,
}

/// The call of the model that is streamed.
#[derive(Debug, Default)]
struct Call {
    id: String,
    /// Whether it said how it ended. One that did not broke off.
    ended: bool,
}

/// The output of one process.
#[derive(Debug, Default)]
pub struct Stream {
    turn: Progress<Answer, Question>,
    session: Option<String>,
    servers: BTreeMap<String, bool>,
    call: Call,
    meter: Meter,
    /// What the CLI said in the place of an answer.
    failed: Option<Failed>,
    /// When it said so.
    failed_at: Option<Timestamp>,
    /// When the limit ends by which requests are refused.
    limited_until: Option<Timestamp>,
}

impl Stream {
    /// The output of a process that goes on with what was counted so far.
    pub fn new(totals: Totals) -> Self {
        Self { meter: Meter::new(totals), ..Self::default() }
    }

    /// The CLI's id of the session, once it is known.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// What was counted so far, to be kept with the session.
    pub fn totals(&self) -> Totals {
        self.meter.totals()
    }

    /// The line that answers a question. None if it is not open.
    pub fn answer(&mut self, request: &RequestId, decision: &Decision) -> Option<String> {
        let Question { input, rules } = self.turn.answer(request)?;
        let told = match decision {
            Decision::Allow => json!({"behavior": "allow", "updatedInput": input}),
            Decision::AllowAlways => json!({
                "behavior": "allow", "updatedInput": input, "updatedPermissions": rules,
            }),
            Decision::Reject(why) => json!({"behavior": "deny", "message": why}),
            Decision::Cancel => {
                json!({"behavior": "deny", "message": "the turn is cancelled", "interrupt": true})
            }
        };
        Some(response(&request.to_string(), &told))
    }

    /// The output ended while a turn ran.
    pub fn end(&mut self) -> Vec<Event<Answer>> {
        let (failed, at) = (self.failed.take(), self.failed_at.take());
        let failed = self.limited(failed.unwrap_or_else(Failed::ended), at);
        self.turn.over(TurnOver::Failed(failed));
        self.turn.take()
    }

    /// What a line says.
    pub fn read(&mut self, line: &str) -> Vec<Event<Answer>> {
        self.turn.begin(line);
        match serde_json::from_str::<Value>(line) {
            Ok(message) if message.is_object() => self.message(&message),
            _ => self.turn.stray(line),
        }
        self.turn.take()
    }

    fn message(&mut self, message: &Value) {
        // A subagent's words are for the agent that called it; its tools are shown.
        let is_own = message.get("parent_tool_use_id").is_none_or(Value::is_null);
        match text(message, "type") {
            "system" => self.system(message),
            "stream_event" if is_own => self.streamed(&message["event"]),
            "assistant" => self.assistant(message, is_own),
            "user" => self.tool_results(message),
            "control_request" => self.asked(message),
            "control_cancel_request" => {
                self.turn.withdraw(&RequestId::Text(text(message, "request_id").to_owned()));
            }
            "control_response" => self.control_answered(&message["response"]),
            "command_lifecycle" => self.message_moved(message),
            "rate_limit_event" => {
                self.limited_until = limited_until(&message["rate_limit_info"]);
                self.turn.alive();
            }
            "result" => self.result(message),
            _ => self.turn.alive(),
        }
    }

    fn system(&mut self, message: &Value) {
        match text(message, "subtype") {
            "init" => self.init(message),
            "api_retry" => {
                self.turn.void();
                let kind = message["error_status"].as_i64().and_then(FailureKind::of_status);
                let error = text(message, "error");
                let failure =
                    kind.or_else(|| FailureKind::of_name(error)).unwrap_or(FailureKind::Network);
                self.turn.push(Activity::Retrying {
                    attempt: u32::try_from(number(message, "attempt")).unwrap_or(u32::MAX),
                    delay: message["retry_delay_ms"]
                        .as_f64()
                        .and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok()),
                    failure,
                    // It says so of whatever has no name.
                    message: if error == "unknown" { String::new() } else { error.to_owned() },
                });
            }
            "permission_denied" => {
                let notice = text(message, "message").to_owned();
                self.turn.push(Activity::Notice(notice));
            }
            "compact_boundary" => {
                let tokens = number(&message["compact_metadata"], "pre_tokens");
                let notice = format!("compacted its conversation, which had {tokens} tokens");
                self.turn.push(Activity::Notice(notice));
            }
            _ => self.turn.alive(),
        }
    }

    /// Comes at the start of every turn; only what is new in it is told.
    fn init(&mut self, message: &Value) {
        self.turn.alive();
        let session = text(message, "session_id");
        if !session.is_empty() && self.session.as_deref() != Some(session) {
            self.session = Some(session.to_owned());
            self.turn.push(Activity::Session(session.to_owned()));
        }
        for server in message["mcp_servers"].as_array().into_iter().flatten() {
            let ok = match text(server, "status") {
                "connected" => true,
                "pending" => continue,
                _ => false,
            };
            let name = text(server, "name").to_owned();
            if self.servers.get(&name) != Some(&ok)
                && self.servers.len() < MAX_SERVERS
                && name.len() <= MAX_NAME
            {
                self.servers.insert(name.clone(), ok);
                self.turn.push(Activity::McpServer { name, ok });
            }
        }
    }

    /// An event of the model's own stream.
    fn streamed(&mut self, event: &Value) {
        match text(event, "type") {
            "message_start" => {
                self.turn.void();
                let message = &event["message"];
                self.call = Call { id: text(message, "id").to_owned(), ended: false };
                self.meter.begin(&message["usage"]);
            }
            "content_block_delta" => {
                let delta = &event["delta"];
                return match text(delta, "type") {
                    "text_delta" => self.turn.delta(OutputKind::Text, text(delta, "text")),
                    "thinking_delta" => {
                        self.turn.delta(OutputKind::Thinking, text(delta, "thinking"));
                    }
                    _ => self.turn.alive(),
                };
            }
            "message_delta" => {
                self.call.ended = true;
                let used = self.meter.say(&event["usage"]);
                if !used.is_zero() {
                    return self.turn.push(Activity::Used(used));
                }
            }
            "message_stop" if !self.call.ended => self.turn.void(),
            _ => {}
        }
        self.turn.alive();
    }

    fn assistant(&mut self, line: &Value, is_own: bool) {
        let message = &line["message"];
        let is_error = !line["error"].is_null() || line["is_api_error_message"] == true;
        if is_own && is_error && text(message, "model") == "<synthetic>" {
            self.turn.void();
            self.failed = Some(failure(line, content(&message["content"])));
            self.failed_at = text(line, "timestamp").parse().ok();
            return self.turn.alive();
        }
        if is_own && text(message, "id") != self.call.id {
            // It was called again without a stream.
            self.turn.void();
        }
        for block in message["content"].as_array().into_iter().flatten() {
            match text(block, "type") {
                "text" if is_own => {
                    self.turn.text(OutputKind::Text, text(block, "text").to_owned());
                }
                "thinking" if is_own => {
                    self.turn.text(OutputKind::Thinking, text(block, "thinking").to_owned());
                }
                "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                    self.turn.start(text(block, "id"), text(block, "name"), &block["input"]);
                }
                "mcp_tool_result" | "web_search_tool_result" => self.tool_result(block),
                _ => self.turn.alive(),
            }
        }
    }

    fn tool_results(&mut self, line: &Value) {
        self.turn.alive();
        if line["isReplay"] == true {
            return;
        }
        for block in line["message"]["content"].as_array().into_iter().flatten() {
            if text(block, "type") == "tool_result" {
                self.tool_result(block);
            }
        }
    }

    fn tool_result(&mut self, block: &Value) {
        let ok = block["is_error"] != true;
        self.turn.end(text(block, "tool_use_id"), ok, content(&block["content"]));
    }

    /// A request of the CLI.
    fn asked(&mut self, message: &Value) {
        let (id, asked) = (text(message, "request_id"), &message["request"]);
        if id.len() > MAX_ID {
            return self.turn.alive();
        }
        let request = RequestId::Text(id.to_owned());
        if text(asked, "subtype") != "can_use_tool" {
            let refused = format!("{} is not supported", quote(text(asked, "subtype").as_bytes()));
            return self.turn.push(Event::Write(refusal(id, &refused)));
        }
        if !self.turn.can_ask(&request) {
            let refused = json!({"behavior": "deny", "message": "too many questions are open, or this one is too long"});
            return self.turn.push(Event::Write(response(id, &refused)));
        }
        let option = |id: &str, name: &str, kind| PermissionOption {
            id: id.to_owned(),
            name: name.to_owned(),
            kind,
        };
        let rules = rules_of_session(&asked["permission_suggestions"]);
        let mut options = vec![option("allow", "Allow", PermissionKind::AllowOnce)];
        if !rules.is_empty() {
            options.push(option("allow_always", "Always allow", PermissionKind::AllowAlways));
        }
        options.push(option("deny", "Deny", PermissionKind::RejectOnce));
        let told = Activity::Permission {
            request: request.clone(),
            id: asked["tool_use_id"].as_str().map(str::to_owned),
            tool: text(asked, "tool_name").to_owned(),
            input: carried(&asked["input"]),
            options,
        };
        self.turn.ask(&request, Question { input: asked["input"].clone(), rules }, told);
    }

    fn control_answered(&mut self, answer: &Value) {
        let outcome = match text(answer, "subtype") {
            "success" => Ok(answer["response"].clone()),
            _ => Err(text(answer, "error").to_owned()),
        };
        let request = text(answer, "request_id").to_owned();
        self.turn.push(Event::Answer(Answer::Control { request, outcome }));
    }

    fn message_moved(&mut self, message: &Value) {
        let state = match text(message, "state") {
            "queued" => MessageState::Queued,
            "started" => MessageState::Started,
            "completed" => MessageState::Completed,
            "cancelled" => MessageState::Cancelled,
            _ => return self.turn.alive(),
        };
        let uuid = text(message, "command_uuid").to_owned();
        self.turn.push(Event::Answer(Answer::Message { uuid, state }));
    }

    fn result(&mut self, result: &Value) {
        let used = self.meter.result(result);
        if !used.is_zero() {
            self.turn.push(Activity::Used(used));
        }
        self.call = Call::default();
        let (failed, at) = (self.failed.take(), self.failed_at.take());
        if result["is_error"] == false {
            return self.turn.complete(result["result"].as_str().map(str::to_owned));
        }
        let reason = text(result, "terminal_reason");
        if reason.starts_with("aborted") {
            return self.turn.over(TurnOver::Cancelled);
        }
        let errors = result["errors"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let errors = errors.collect::<Vec<_>>().join("; ");
        let message = match (errors.is_empty(), text(result, "result")) {
            (false, _) => errors,
            (true, "") => format!("it failed: {}", text(result, "subtype")),
            (true, said) => said.to_owned(),
        };
        let failed = match text(result, "subtype") {
            "error_max_budget_usd" => Failed::new(FailureKind::Budget, message),
            "error_max_turns" => Failed::new(FailureKind::Limit, message),
            _ => failed.unwrap_or_else(|| failure(result, message)),
        };
        let failed = self.limited(failed, at);
        self.turn.over(TurnOver::Failed(failed));
    }

    /// A failure at an instant, with how long the limit behind it holds on, if that is told.
    fn limited(&self, mut failed: Failed, at: Option<Timestamp>) -> Failed {
        if failed.kind == FailureKind::RateLimit
            && failed.retry_after.is_none()
            && let (Some(until), Some(at)) = (self.limited_until, at)
        {
            let left = until.as_micros().saturating_sub(at.as_micros());
            let left = u64::try_from(left).ok().filter(|left| *left > 0);
            failed.retry_after = left.map(Duration::from_micros);
        }
        failed
    }
}

/// When the limit of a subscription ends by which requests are refused: none that is only near, or
/// beyond which they are paid for.
fn limited_until(told: &Value) -> Option<Timestamp> {
    let is_paid = text(told, "overageStatus").starts_with("allowed");
    if text(told, "status") != "rejected" || is_paid {
        return None;
    }
    let seconds = told["resetsAt"].as_i64()?;
    Some(Timestamp::from_micros(seconds.checked_mul(1_000_000)?))
}

/// The suggested rules that allow what is asked about, to be kept by the process alone. Other
/// suggestions go further than the question: a mode allows other tools, too. Other destinations
/// are settings files, which the process does not read.
fn rules_of_session(suggestions: &Value) -> Vec<Value> {
    let mut rules = suggestions.as_array().cloned().unwrap_or_default();
    rules.retain(|rule| text(rule, "type") == "addRules" && text(rule, "behavior") == "allow");
    for rule in &mut rules {
        rule["destination"] = json!("session");
    }
    rules
}

/// A failure by what a line says of it beside its words.
fn failure(line: &Value, message: String) -> Failed {
    let by_words = FailureKind::of_text(&message);
    let kind = match by_words {
        Some(
            kind @ (FailureKind::Overflow
            | FailureKind::Gone
            | FailureKind::Network
            | FailureKind::NotFound),
        ) => kind,
        _ => FailureKind::of_name(text(line, "api_error_type"))
            .or_else(|| line["api_error_status"].as_i64().and_then(FailureKind::of_status))
            .or_else(|| FailureKind::of_name(text(line, "error")))
            .or(by_words)
            .unwrap_or(FailureKind::Other),
    };
    Failed::new(kind, message)
}
