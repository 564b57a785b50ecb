//! The client's side of the Agent Client Protocol, version 1: JSON-RPC, one message a line.
//!
//! ```text
//!  initialize ─► session/new | load | resume ─► session/prompt ─► updates … ─► its answer
//!                                                     ▲   session/cancel           │
//!                                                     └────────────────────────────┘
//! ```
//!
//! - Messages are read as JSON values of which only what is needed is looked at. The types of the
//!   official crate refuse a whole update for one kind or field that they do not know, and agents
//!   run ahead of it.
//! - There is no final text: what was streamed is the text. A piece is finished when something else
//!   begins, or another message by its id. What comes between two turns is of none.
//! - An agent that loads a session tells its history as updates, before it answers; they are no
//!   output. Gemini goes on with that after its answer, up to its `available_commands_update`: a
//!   prompt is to wait until [`Client::is_settled`], or for as long as the caller's patience lasts,
//!   which it says with [`Client::settle`].
//! - Files and terminals are the agent's own business; what it asks of them is refused.

use serde_json::{Value, json};

use super::names::{ALL_OF_SERVER, Maker};
use super::reading::{Agent, agent, failed, failed_at_first, options, stopped, trouble, used};
use super::requests::{self, McpServer, Open};
use super::tools::Tools;
use crate::provider::OutputKind;
use crate::provider::activity::{
    Activity, Decision, Event, PermissionKind, PermissionOption, RequestId, TurnOver, carried,
    content, text,
};
use crate::provider::failure::{Failed, FailureKind};
use crate::provider::jsonrpc::{self, Calls, Message};
use crate::provider::meter::Totals;
use crate::provider::progress::{MAX_ID, Progress};

/// A request to the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Call {
    Initialize,
    Authenticate,
    /// With the session that is to be gone on with, and whether its history is told.
    Open {
        session: Option<String>,
        replays: bool,
    },
    Prompt,
    Other(&'static str),
}

/// What the agent answers outside of turns.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It is there.
    Ready(Result<Agent, Failed>),
    /// It was authenticated.
    Authenticated(Result<(), Failed>),
    /// The session is open; with its modes and settings, as the agent describes them. A session of
    /// before that could not be opened is gone, whatever the agent says.
    Opened(Result<Value, Failed>),
    /// What another request came to.
    Done(&'static str, Result<(), Failed>),
}

/// The connection to one process, with one session.
#[derive(Debug)]
pub struct Client {
    turn: Progress<Answer, Vec<PermissionOption>>,
    tools: Tools,
    calls: Calls<Call>,
    agent: Agent,
    session: Option<String>,
    /// Whether history is told after the session was opened.
    unsettled: bool,
    /// Of the cost alone.
    totals: Totals,
    warned: String,
    /// The message that is streamed, if the agent names it.
    message: Option<String>,
    /// Whether the agent has done something in the turn.
    acted: bool,
}

impl Client {
    /// A connection that goes on with what was counted so far.
    pub fn new(totals: Totals) -> Self {
        Self {
            turn: Progress::default(),
            tools: Tools::default(),
            calls: Calls::new(true),
            agent: Agent::default(),
            session: None,
            unsettled: false,
            totals,
            warned: String::new(),
            message: None,
            acted: false,
        }
    }

    /// What the agent said of itself.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The session, once it is open.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// What was counted so far, to be kept with the session.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Whether nothing of a session's history is to come any more.
    pub fn is_settled(&self) -> bool {
        !self.unsettled
    }

    /// Whether a tool may go on though its turn is over.
    pub fn left_tools(&self) -> bool {
        self.turn.left_tools()
    }

    /// Takes what comes from now on as output.
    pub fn settle(&mut self) {
        self.unsettled = false;
    }

    /// The first line.
    pub fn initialize(&mut self, version: &str) -> String {
        self.calls.call(Call::Initialize, "initialize", &requests::initialize(version))
    }

    /// Authenticates by one of the agent's methods.
    ///
    /// # Errors
    ///
    /// Which ones it has, if it has not this one.
    pub fn authenticate(&mut self, method: &str) -> Result<String, Failed> {
        let offered = &self.agent.auth_methods;
        if offered.iter().any(|one| one == method) {
            let params = json!({"methodId": method});
            return Ok(self.calls.call(Call::Authenticate, "authenticate", &params));
        }
        let offers = match &offered[..] {
            [] => "nor in any other way that it names".to_owned(),
            offered => format!("auth may be {}", offered.join(", ")),
        };
        let problem = format!("it cannot be authenticated by {method:?}; {offers}");
        Err(Failed::new(FailureKind::Misconfigured, problem))
    }

    /// Opens the session.
    pub fn open(&mut self, open: Open<'_>, cwd: &str, servers: &[McpServer]) -> String {
        let replays = matches!(open, Open::Load(_));
        let call = Call::Open { session: open.session(), replays };
        self.calls.call(call, open.method(), &requests::open(open, cwd, servers))
    }

    /// Begins a turn. None before the session is open.
    pub fn prompt(&mut self, text: &str) -> Option<String> {
        let params = requests::prompt(self.session.as_ref()?, text);
        (self.turn, self.message, self.acted) = (Progress::default(), None, false);
        Some(self.calls.call(Call::Prompt, "session/prompt", &params))
    }

    /// Sets the session's mode. None before it is open.
    pub fn set_mode(&mut self, mode: &str) -> Option<String> {
        let params = json!({"sessionId": self.session.as_ref()?, "modeId": mode});
        Some(self.calls.call(Call::Other("session/set_mode"), "session/set_mode", &params))
    }

    /// Sets one of the session's settings, such as its model. None before it is open.
    pub fn set_option(&mut self, id: &str, value: &str) -> Option<String> {
        let session = self.session.as_ref()?;
        let params = json!({"sessionId": session, "configId": id, "value": value});
        let method = "session/set_config_option";
        Some(self.calls.call(Call::Other(method), method, &params))
    }

    /// Sets the session's model, as agents take it that describe models apart from settings. None
    /// before it is open.
    pub fn set_model(&mut self, model: &str) -> Option<String> {
        let params = json!({"sessionId": self.session.as_ref()?, "modelId": model});
        Some(self.calls.call(Call::Other("session/set_model"), "session/set_model", &params))
    }

    /// Cancels the turn, and every question of it. None before the session is open.
    pub fn cancel(&mut self) -> Option<String> {
        let params = json!({"sessionId": self.session.as_ref()?});
        let mut lines = self.calls.notification("session/cancel", Some(&params));
        for request in self.turn.open_questions() {
            lines.push_str(&self.answer(&request, &Decision::Cancel).unwrap_or_default());
        }
        Some(lines)
    }

    /// The line that answers a question. None if it is not open.
    pub fn answer(&mut self, request: &RequestId, decision: &Decision) -> Option<String> {
        use PermissionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};
        let options = self.turn.answer(request)?;
        let kinds: &[PermissionKind] = match decision {
            Decision::Allow => &[AllowOnce, AllowAlways],
            Decision::AllowAlways => &[AllowAlways, AllowOnce],
            Decision::Reject(_) => &[RejectOnce, RejectAlways],
            Decision::Cancel => &[],
        };
        // Of several of a kind the agent's first, unless that is for more than the tool.
        let of_kind = |kind: &PermissionKind| {
            let options = options.iter().filter(|option| option.kind == *kind);
            options.min_by_key(|option| option.id == ALL_OF_SERVER)
        };
        let outcome = match kinds.iter().find_map(of_kind) {
            Some(option) => json!({"outcome": "selected", "optionId": option.id}),
            None => json!({"outcome": "cancelled"}),
        };
        Some(self.calls.answer(request, &json!({"outcome": outcome})))
    }

    /// The output ended while a turn ran.
    pub fn end(&mut self) -> Vec<Event<Answer>> {
        self.over(TurnOver::Failed(Failed::ended()));
        self.turn.take()
    }

    /// A request whose line a test found in a capture.
    #[cfg(test)]
    pub(super) fn expect(&mut self, id: i64, call: Call) {
        self.calls.expect(id, call);
    }

    /// What a line says.
    pub fn read(&mut self, line: &str) -> Vec<Event<Answer>> {
        self.turn.begin(line);
        match jsonrpc::read(line) {
            Some(Message::Request { id, method, params }) => self.asked(&id, &method, &params),
            Some(Message::Notification { method, params }) if method == "session/update" => {
                self.updated(&params);
            }
            Some(Message::Notification { .. }) => self.turn.alive(),
            Some(Message::Response { id, result }) => match self.calls.take(&id) {
                Some(call) => self.answered(call, result),
                None => self.turn.alive(),
            },
            None => self.turn.stray(line),
        }
        self.turn.take()
    }

    fn answered(&mut self, call: Call, result: Result<Value, jsonrpc::Error>) {
        let read = if call == Call::Prompt && self.acted { failed } else { failed_at_first };
        let result = result.map_err(|error| read(&error));
        let answer = match call {
            Call::Initialize => {
                let result = result.map_err(no_agent);
                Answer::Ready(result.and_then(|result| self.ready(&result)))
            }
            Call::Authenticate => Answer::Authenticated(result.map(drop)),
            Call::Open { session, replays } => {
                Answer::Opened(self.opened(session, replays, result))
            }
            Call::Prompt => return self.prompted(&result),
            Call::Other(method) => Answer::Done(method, result.map(drop)),
        };
        self.turn.push(Event::Answer(answer));
    }

    fn ready(&mut self, result: &Value) -> Result<Agent, Failed> {
        self.agent = agent(result)?;
        self.tools.maker = Maker::of(&self.agent.name);
        if self.agent.name.contains("claude") {
            // It counts the cost of its process; the others that of the session.
            self.totals.reset();
        }
        Ok(self.agent.clone())
    }

    fn opened(
        &mut self,
        session: Option<String>,
        replays: bool,
        result: Result<Value, Failed>,
    ) -> Result<Value, Failed> {
        let result = match result {
            Err(failed)
                if session.is_some()
                    && !matches!(failed.kind, FailureKind::Auth | FailureKind::Missing) =>
            {
                return Err(Failed { kind: FailureKind::Gone, ..failed });
            }
            result => result?,
        };
        let id = result["sessionId"].as_str().map(str::to_owned).or(session);
        let id = id.ok_or_else(|| Failed::new(FailureKind::Protocol, "it named no session"))?;
        self.unsettled = replays && self.agent.name.contains("gemini");
        self.turn.push(Activity::Session(id.clone()));
        self.session = Some(id);
        Ok(result)
    }

    fn prompted(&mut self, result: &Result<Value, Failed>) {
        let over = match result {
            Ok(result) => {
                let used = used(result, &self.agent.name);
                if !used.is_zero() {
                    self.turn.push(Activity::Used(used));
                }
                let failed = trouble(result).filter(|trouble| trouble.is_error);
                failed.map(|trouble| TurnOver::Failed(trouble.failed)).or_else(|| stopped(result))
            }
            Err(failed) => Some(TurnOver::Failed(failed.clone())),
        };
        match over {
            Some(over) => self.over(over),
            None => {
                self.tools.clear();
                self.turn.complete(None);
            }
        }
    }

    fn over(&mut self, over: TurnOver) {
        self.tools.clear();
        self.turn.over(over);
    }

    /// Whether what comes is history.
    fn is_replay(&self) -> bool {
        let loads = |call: &Call| matches!(call, Call::Open { replays: true, .. });
        self.unsettled || self.calls.open().any(loads)
    }

    fn updated(&mut self, params: &Value) {
        let (session, update) = (params["sessionId"].as_str(), &params["update"]);
        let is_other = session.is_some() && self.session.is_some() && session != self.session();
        let kind = text(update, "sessionUpdate");
        if self.is_replay() || is_other {
            if kind == "available_commands_update" && !is_other {
                self.unsettled = false;
            }
            return self.turn.alive();
        }
        self.acted |= matches!(
            kind,
            "agent_message_chunk" | "agent_thought_chunk" | "tool_call" | "tool_call_update"
        );
        match kind {
            "agent_message_chunk" => self.said(OutputKind::Text, update),
            "agent_thought_chunk" => self.said(OutputKind::Thinking, update),
            "tool_call" | "tool_call_update" => self.tools.update(update, &mut self.turn),
            "usage_update" => self.cost(&update["cost"]),
            "session_info_update" => match trouble(update) {
                Some(trouble) => self.warn(trouble.failed.message),
                None => self.turn.alive(),
            },
            _ => self.turn.alive(),
        }
    }

    fn said(&mut self, kind: OutputKind, update: &Value) {
        let said = content(&update["content"]);
        // Codex says what its CLI warns of as if the model had said it.
        let is_warning = said.starts_with("Model metadata for `")
            && said.contains("not found. Defaulting to fallback metadata");
        if is_warning {
            return self.warn(said);
        }
        let message = update["messageId"].as_str().filter(|id| id.len() <= MAX_ID);
        if self.message.as_deref() != message {
            self.message = message.map(str::to_owned);
            self.turn.finish();
        }
        self.turn.delta(kind, &said);
    }

    /// Tells of something once, however often it is said.
    fn warn(&mut self, said: String) {
        self.turn.alive();
        if self.warned != said {
            self.warned.clone_from(&said);
            self.turn.push(Activity::Notice(said));
        }
    }

    fn cost(&mut self, cost: &Value) {
        let usd = cost["amount"].as_f64().filter(|_| text(cost, "currency") == "USD");
        match usd.map(|usd| self.totals.advance_cost(usd)) {
            Some(used) if !used.is_zero() => self.turn.push(Activity::Used(used)),
            _ => self.turn.alive(),
        }
    }

    /// The agent asks.
    fn asked(&mut self, id: &RequestId, method: &str, params: &Value) {
        if method != "session/request_permission" {
            let refusal = self.calls.unsupported(id, method);
            return self.turn.push(Event::Write(refusal));
        }
        if !self.turn.can_ask(id) {
            let cancelled = json!({"outcome": {"outcome": "cancelled"}});
            let answer = self.calls.answer(id, &cancelled);
            return self.turn.push(Event::Write(answer));
        }
        let call = &params["toolCall"];
        let (tool, input) = self.tools.asked((call, &params["options"]), &mut self.turn);
        let options = options(params);
        let told = Activity::Permission {
            request: id.clone(),
            id: call["toolCallId"].as_str().map(str::to_owned),
            tool,
            input: carried(&input),
            options: options.clone(),
        };
        self.turn.ask(id, options, told);
    }
}

/// What it means that a program refused to begin: it was asked nothing yet that could be wrong.
fn no_agent(failed: Failed) -> Failed {
    match failed.kind {
        FailureKind::InvalidRequest | FailureKind::Other => {
            let said = failed.message;
            let problem = format!(
                "it does not begin as an agent of the protocol does ({said}): look at its program \
                 and args"
            );
            Failed::new(FailureKind::Misconfigured, problem)
        }
        _ => failed,
    }
}
