//! What `codex app-server` and its client write: JSON-RPC without the field `jsonrpc`.
//!
//! ```text
//!  initialize ─► initialized ─► thread/start | thread/resume ─► turn/start ─► … ─► turn/completed
//!                                                                  ▲   turn/steer, turn/interrupt │
//!                                                                  └──────────────────────────────┘
//! ```
//!
//! `turn/start` is answered at once; the turn is over with `turn/completed`. Both sides ask, with
//! ids that collide. What the server asks and nobody here can answer is refused. Usage is counted
//! over the thread.
//!
//! The server may begin turns of its own, such as those of a goal. Ours is the one that the answer
//! to `turn/start` names, even if it ran before: then the prompt was added to it. What is said of a
//! turn while that answer is awaited waits too, since it is not known whose that turn is. A turn
//! that is not ours is ended, and nothing but its usage is taken.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::items::{attempt, camel_usage, completed, failed, started};
use crate::provider::OutputKind;
use crate::provider::activity::{
    Activity, Decision, Event, PermissionKind, PermissionOption, RequestId, TurnOver, carried, text,
};
use crate::provider::failure::{Failed, FailureKind};
use crate::provider::jsonrpc::{self, Calls, METHOD_NOT_FOUND, Message};
use crate::provider::meter::Totals;
use crate::provider::progress::Progress;

/// Most warnings and MCP servers that are remembered, so that they are told once.
const MAX_TOLD: usize = 64;
/// Longest one that is remembered, in bytes.
const MAX_REMEMBERED: usize = 1 << 10;
/// Most bytes that wait until it is known whose turn they are of.
const MAX_HELD: usize = 1 << 20;
/// What is told of a turn that nobody asked for.
const UNASKED: &str = "Codex began a turn of its own; it was ended";

/// A request to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// The first one.
    Initialize,
    /// Begin a thread, or go on with one.
    Thread,
    /// Begin a turn.
    Turn,
    /// Add to the running turn.
    Steer,
    /// End a turn.
    Interrupt,
    /// Tell the models.
    Models,
    /// Anything else.
    Other,
}

/// What a request came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The request.
    pub call: Call,
    /// Its result, or why there is none.
    pub outcome: Result<Value, Failed>,
}

/// How a thread is begun, or gone on with.
#[derive(Debug, Clone, PartialEq)]
pub struct Thread<'a> {
    /// The thread to go on with; none for a new one.
    pub resume: Option<&'a str>,
    /// The model; none for the configured one.
    pub model: Option<&'a str>,
    /// Where it works.
    pub cwd: &'a str,
    /// When the client is asked: `untrusted`, `on-request`, `never`.
    pub approval: &'a str,
    /// The server's own sandbox: `read-only`, `workspace-write`, `danger-full-access`.
    pub sandbox: &'a str,
    /// What the agent is told to be.
    pub instructions: Option<&'a str>,
    /// Settings by their dotted names, such as MCP servers.
    pub config: Value,
}

/// What the server asks.
#[derive(Debug)]
enum Question {
    /// Whether a command may run, or files be changed.
    Approval,
    /// Whether an MCP tool may be used; whether that can be kept for the session.
    McpTool { can_keep: bool },
    /// For rights of the sandbox.
    Rights(Value),
}

/// Whose a turn is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// The one that was asked for.
    Ours,
    /// One that nobody asked for.
    Other,
    /// Either: one was asked for, and which it is was not said yet.
    Unknown,
}

/// The connection to one process.
#[derive(Debug)]
pub struct Client {
    turn: Progress<Answer, Question>,
    calls: Calls<Call>,
    thread: Option<String>,
    /// The turn that was asked for, while it runs.
    running: Option<String>,
    /// Lines of a turn of which it is not known whose it is.
    held: String,
    /// Whether there were more of them than are held.
    is_broken: bool,
    totals: Totals,
    warned: BTreeSet<String>,
    servers: BTreeMap<String, bool>,
    failed: Option<Failed>,
}

impl Client {
    /// A connection that goes on with what was counted so far.
    pub fn new(totals: Totals) -> Self {
        Self {
            turn: Progress::default(),
            calls: Calls::new(false),
            thread: None,
            running: None,
            held: String::new(),
            is_broken: false,
            totals,
            warned: BTreeSet::new(),
            servers: BTreeMap::new(),
            failed: None,
        }
    }

    /// The thread, once it is known.
    pub fn thread(&self) -> Option<&str> {
        self.thread.as_deref()
    }

    /// Whether what it says of a turn was lost, so that it can be given no other one.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Whether a command may go on though its turn is over, as those do that it runs beside.
    pub fn left_tools(&self) -> bool {
        self.turn.left_tools()
    }

    /// What was counted so far, to be kept with the thread.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The first lines.
    pub fn initialize(&mut self, version: &str) -> String {
        let client = json!({"name": "substrat", "title": "Substrat", "version": version});
        let first = self.calls.call(Call::Initialize, "initialize", &json!({"clientInfo": client}));
        format!("{first}{}", self.calls.notification("initialized", None))
    }

    /// Asks for the models, or for those that come after a part of them.
    pub fn list_models(&mut self, cursor: Option<&str>) -> String {
        self.calls.call(Call::Models, "model/list", &json!({"cursor": cursor}))
    }

    /// Begins a thread, or goes on with one.
    pub fn open(&mut self, thread: &Thread<'_>) -> String {
        let mut params = json!({
            "cwd": thread.cwd, "approvalPolicy": thread.approval, "sandbox": thread.sandbox,
        });
        if let Some(model) = thread.model {
            params["model"] = json!(model);
        }
        if let Some(instructions) = thread.instructions {
            params["developerInstructions"] = json!(instructions);
        }
        if thread.config.as_object().is_some_and(|config| !config.is_empty()) {
            params["config"] = thread.config.clone();
        }
        let method = match thread.resume {
            Some(id) => {
                params["threadId"] = json!(id);
                "thread/resume"
            }
            None => "thread/start",
        };
        self.calls.call(Call::Thread, method, &params)
    }

    /// Begins a turn. None before the thread is known.
    pub fn start(&mut self, prompt: &str) -> Option<String> {
        let params = json!({"threadId": self.thread.as_ref()?, "input": input(prompt)});
        Some(self.calls.call(Call::Turn, "turn/start", &params))
    }

    /// Adds to the running turn. None if none is known to run.
    pub fn steer(&mut self, text: &str) -> Option<String> {
        let (thread, turn) = (self.thread.as_ref()?, self.running.as_ref()?);
        let params = json!({"threadId": thread, "expectedTurnId": turn, "input": input(text)});
        Some(self.calls.call(Call::Steer, "turn/steer", &params))
    }

    /// Ends the running turn. None if none is known to run.
    pub fn interrupt(&mut self) -> Option<String> {
        let params = json!({"threadId": self.thread.as_ref()?, "turnId": self.running.as_ref()?});
        Some(self.calls.call(Call::Interrupt, "turn/interrupt", &params))
    }

    /// The line that answers a question. None if it is not open.
    pub fn answer(&mut self, request: &RequestId, decision: &Decision) -> Option<String> {
        let answer = match self.turn.answer(request)? {
            Question::Approval => json!({"decision": match decision {
                Decision::Allow => "accept",
                Decision::AllowAlways => "acceptForSession",
                Decision::Reject(_) => "decline",
                Decision::Cancel => "cancel",
            }}),
            Question::McpTool { can_keep } => match decision {
                Decision::AllowAlways if can_keep => {
                    json!({"action": "accept", "content": {}, "_meta": {"persist": "session"}})
                }
                Decision::Allow | Decision::AllowAlways => {
                    json!({"action": "accept", "content": {}})
                }
                Decision::Reject(_) => json!({"action": "decline"}),
                Decision::Cancel => json!({"action": "cancel"}),
            },
            Question::Rights(rights) => match decision {
                Decision::Allow => json!({"permissions": rights, "scope": "turn"}),
                Decision::AllowAlways => json!({"permissions": rights, "scope": "session"}),
                Decision::Reject(_) | Decision::Cancel => json!({"permissions": {}}),
            },
        };
        Some(self.calls.answer(request, &answer))
    }

    /// The output ended while a turn ran.
    pub fn end(&mut self) -> Vec<Event<Answer>> {
        let failed = self.failed.take().unwrap_or_else(Failed::ended);
        self.running = None;
        self.held.clear();
        self.turn.over(TurnOver::Failed(failed));
        self.turn.take()
    }

    /// A request whose line a test found in a capture.
    #[cfg(test)]
    pub(super) fn expect(&mut self, id: i64, call: Call) {
        self.calls.expect(id, call);
    }

    /// What a line says.
    pub fn read(&mut self, line: &str) -> Vec<Event<Answer>> {
        self.hear(line);
        self.turn.take()
    }

    fn hear(&mut self, line: &str) {
        self.turn.begin(line);
        match jsonrpc::read(line) {
            Some(Message::Request { id, method, params }) => self.asked(&id, &method, &params),
            Some(Message::Notification { method, params }) => self.heard(line, &method, &params),
            Some(Message::Response { id, result }) => match self.calls.take(&id) {
                Some(call) => self.answered(call, result),
                None => self.turn.alive(),
            },
            None => self.turn.stray(line),
        }
    }

    fn answered(&mut self, call: Call, result: Result<Value, jsonrpc::Error>) {
        let outcome = result.map_err(|error| {
            let kind = FailureKind::of_text(&error.message);
            // The server refuses what it does not understand; nothing of it passes by itself.
            Failed::new(kind.unwrap_or(FailureKind::InvalidRequest), error.message)
        });
        match (call, &outcome) {
            (Call::Thread, Ok(result)) => self.opened(text(&result["thread"], "id")),
            (Call::Turn, Ok(result)) => {
                self.failed = None;
                self.running = Some(text(&result["turn"], "id").to_owned());
            }
            (Call::Turn, Err(failed)) => self.turn.over(TurnOver::Failed(failed.clone())),
            _ => {}
        }
        self.turn.push(Event::Answer(Answer { call, outcome }));
        if call == Call::Turn {
            for line in std::mem::take(&mut self.held).lines() {
                self.hear(line);
            }
        }
    }

    fn opened(&mut self, thread: &str) {
        if !thread.is_empty() && self.thread.as_deref() != Some(thread) {
            self.thread = Some(thread.to_owned());
            self.turn.push(Activity::Session(thread.to_owned()));
        }
    }

    /// Whose the turn is that a message is of.
    fn whose(&self, params: &Value) -> Whose {
        let turn = turn_of(params);
        match &self.running {
            // What is of no turn is of the thread.
            _ if turn.is_empty() => Whose::Ours,
            Some(running) if running == turn => Whose::Ours,
            _ if self.calls.open().any(|call| *call == Call::Turn) => Whose::Unknown,
            _ => Whose::Other,
        }
    }

    /// Whether a message is of another thread: agents of an agent have threads of their own.
    fn is_elsewhere(&self, params: &Value) -> bool {
        let (thread, own) = (params["threadId"].as_str(), self.thread.as_deref());
        thread.is_some_and(|thread| own.is_some_and(|own| own != thread))
    }

    fn heard(&mut self, line: &str, method: &str, params: &Value) {
        if self.is_elsewhere(params) {
            return self.turn.alive();
        }
        match self.whose(params) {
            Whose::Ours => self.notified(method, params),
            // It is counted over the thread, whichever turn it is of.
            _ if method == "thread/tokenUsage/updated" => self.notified(method, params),
            Whose::Unknown => self.hold(line),
            Whose::Other if method == "turn/started" => self.end_unasked(turn_of(params)),
            Whose::Other => self.turn.alive(),
        }
    }

    /// Keeps a line until it is known whose turn it is of. With more than is held the turn fails,
    /// since a part of it could not be told.
    fn hold(&mut self, line: &str) {
        if self.is_broken {
            return self.turn.alive();
        }
        if self.held.len() + line.len() < MAX_HELD {
            self.held.push_str(line);
            self.held.push('\n');
            return self.turn.alive();
        }
        self.is_broken = true;
        self.held.clear();
        let problem =
            format!("it wrote more than {MAX_HELD} bytes before it said which turn was begun");
        self.turn.over(TurnOver::Failed(Failed::new(FailureKind::Protocol, problem)));
    }

    /// Ends a turn that nobody asked for. If it is over by itself, the server refuses that.
    fn end_unasked(&mut self, turn: &str) {
        let has_room = self.calls.open().count() < MAX_TOLD && turn.len() <= MAX_REMEMBERED;
        let Some(thread) = self.thread.as_ref().filter(|_| has_room) else {
            return self.turn.alive();
        };
        let params = json!({"threadId": thread, "turnId": turn});
        let line = self.calls.call(Call::Interrupt, "turn/interrupt", &params);
        self.turn.push(Event::Write(line));
        self.turn.push(Activity::Notice(UNASKED.to_owned()));
    }

    fn notified(&mut self, method: &str, params: &Value) {
        match method {
            "item/started" => started(&mut self.turn, &params["item"]),
            "item/completed" => completed(&mut self.turn, &params["item"]),
            "item/agentMessage/delta" => self.turn.delta(OutputKind::Text, text(params, "delta")),
            "item/reasoning/textDelta" | "item/reasoning/summaryTextDelta" => {
                self.turn.delta(OutputKind::Thinking, text(params, "delta"));
            }
            "thread/tokenUsage/updated" => {
                let total = camel_usage(&params["tokenUsage"]["total"]);
                let used = self.totals.advance(total);
                if used.is_zero() {
                    self.turn.alive();
                } else {
                    self.turn.push(Activity::Used(used));
                }
            }
            "mcpServer/startupStatus/updated" => self.server(params),
            "warning" => self.warning(text(params, "message")),
            "error" => self.error(params),
            "serverRequest/resolved" => match serde_json::from_value(params["requestId"].clone()) {
                Ok(request) => self.turn.withdraw(&request),
                Err(_) => self.turn.alive(),
            },
            "turn/completed" => self.turn_completed(&params["turn"]),
            _ => self.turn.alive(),
        }
    }

    fn server(&mut self, params: &Value) {
        let name = text(params, "name").to_owned();
        let ok = match text(params, "status") {
            "ready" => true,
            "failed" | "cancelled" => false,
            _ => return self.turn.alive(),
        };
        let is_known = self.servers.get(&name) == Some(&ok);
        let has_room = self.servers.len() < MAX_TOLD && name.len() <= MAX_REMEMBERED;
        if is_known || !(has_room || self.servers.contains_key(&name)) {
            return self.turn.alive();
        }
        self.servers.insert(name.clone(), ok);
        self.turn.push(Activity::McpServer { name, ok });
    }

    /// The same ones come in every turn.
    fn warning(&mut self, message: &str) {
        let has_room = self.warned.len() < MAX_TOLD && message.len() <= MAX_REMEMBERED;
        if has_room && self.warned.insert(message.to_owned()) {
            self.turn.push(Activity::Notice(message.to_owned()));
        } else {
            self.turn.alive();
        }
    }

    fn error(&mut self, params: &Value) {
        let error = &params["error"];
        let mut found = failed(error);
        if params["willRetry"] != true {
            self.failed = Some(found);
            return self.turn.alive();
        }
        self.turn.void();
        let attempt = attempt(&found.message).unwrap_or(1);
        if let Some(details) = error["additionalDetails"].as_str() {
            found = Failed::of_text(details, found.kind);
        }
        self.turn.push(Activity::Retrying {
            attempt,
            delay: found.retry_after,
            failure: found.kind,
            message: found.message,
        });
    }

    fn turn_completed(&mut self, turn: &Value) {
        self.running = None;
        let said = self.failed.take();
        match text(turn, "status") {
            "completed" => self.turn.complete(None),
            "interrupted" => self.turn.over(TurnOver::Cancelled),
            _ => {
                let failed = match &turn["error"] {
                    Value::Null => {
                        said.unwrap_or_else(|| Failed::new(FailureKind::Other, "the turn failed"))
                    }
                    error => failed(error),
                };
                self.turn.over(TurnOver::Failed(failed));
            }
        }
    }

    /// The server asks.
    fn asked(&mut self, id: &RequestId, method: &str, params: &Value) {
        let (question, tool, input) = match method {
            "item/commandExecution/requestApproval" => {
                let input = json!({"command": params["command"], "cwd": params["cwd"]});
                (Question::Approval, "shell".to_owned(), input)
            }
            "item/fileChange/requestApproval" => {
                let input = json!({"reason": params["reason"], "grantRoot": params["grantRoot"]});
                (Question::Approval, "apply_patch".to_owned(), input)
            }
            "item/permissions/requestApproval" => {
                let rights = params["permissions"].clone();
                let input = json!({"permissions": rights, "reason": params["reason"]});
                (Question::Rights(rights), "permissions".to_owned(), input)
            }
            "mcpServer/elicitation/request" if is_mcp_approval(params) => {
                let meta = &params["_meta"];
                let persist = meta["persist"].as_array().into_iter().flatten();
                let can_keep = persist.into_iter().any(|scope| scope == "session");
                let tool = format!("{}.{}", text(params, "serverName"), text(meta, "tool_name"));
                (Question::McpTool { can_keep }, tool, meta["tool_params"].clone())
            }
            // An MCP server asks the user, who is not here.
            "mcpServer/elicitation/request" => {
                let answer = self.calls.answer(id, &json!({"action": "decline"}));
                return self.turn.push(Event::Write(answer));
            }
            _ => {
                let refusal = self.calls.unsupported(id, method);
                return self.turn.push(Event::Write(refusal));
            }
        };
        let refused = if self.whose(params) == Whose::Other && !self.is_elsewhere(params) {
            Some("nobody asked for its turn")
        } else {
            let can_ask = self.turn.can_ask(id);
            (!can_ask).then_some("too many questions are open, or this one is too long")
        };
        if let Some(why) = refused {
            let refusal = self.calls.refuse(id, METHOD_NOT_FOUND, why);
            return self.turn.push(Event::Write(refusal));
        }
        let can_keep = !matches!(question, Question::McpTool { can_keep: false });
        let told = Activity::Permission {
            request: id.clone(),
            id: params["itemId"].as_str().map(str::to_owned),
            tool,
            input: carried(&input),
            options: options(can_keep),
        };
        self.turn.ask(id, question, told);
    }
}

/// The turn that a message is of; empty if it is of none.
fn turn_of(params: &Value) -> &str {
    params["turnId"].as_str().unwrap_or_else(|| text(&params["turn"], "id"))
}

fn is_mcp_approval(params: &Value) -> bool {
    params["_meta"]["codex_approval_kind"] == "mcp_tool_call"
}

fn input(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

fn options(can_keep: bool) -> Vec<PermissionOption> {
    let mut options = vec![("accept", "Allow", PermissionKind::AllowOnce)];
    if can_keep {
        options.push(("acceptForSession", "Allow for the session", PermissionKind::AllowAlways));
    }
    options.push(("decline", "Decline", PermissionKind::RejectOnce));
    let option = |(id, name, kind): (&str, &str, _)| PermissionOption {
        id: id.to_owned(),
        name: name.to_owned(),
        kind,
    };
    options.into_iter().map(option).collect()
}
