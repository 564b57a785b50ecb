//! The execution record of a turn: what was asked, what was tried, what was done on the way, and
//! how it ended. It is not stored: it is folded from the events of the turn.
//!
//! Its events are numbered by a clock of their own that starts at 1 and ticks once for each; the
//! time of day orders nothing.

mod process;

use std::sync::Arc;

use serde_json::{Value, json};

use super::envelope::{HashMatch, INTENT, RECORD_VERSION, STRATEGY};
use super::{
    Advice, CallId, Entry, Event, FailureClass, Json, Party, SessionId, Stage, Timestamp, TurnId,
    TurnStart,
};

pub use process::ProcessReport;

/// How far a turn has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnState {
    /// It has not ended.
    Running,
    /// It ended with an answer.
    Completed,
    /// It ended with an error.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// The daemon ended under it.
    Interrupted,
}

/// The kinds of what happens in an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionEventType {
    /// It was asked for.
    IntentReceived,
    /// A provider is asked.
    AttemptStart,
    /// The provider is done, or has failed.
    AttemptEnd,
    /// The next provider is asked, since the one before it failed.
    FallbackTriggered,
    /// A tool is about to be called.
    SideEffectIntention,
    /// The tool returned.
    SideEffectCompletion,
    /// The tool failed, or nobody knows what became of it.
    SideEffectFailure,
    /// It is clear whose answer counts.
    RouterDecision,
    /// The end.
    FinalResponse,
}

impl ExecutionEventType {
    /// The name in a record.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IntentReceived => "INTENT_RECEIVED",
            Self::AttemptStart => "AGENT_ATTEMPT_START",
            Self::AttemptEnd => "AGENT_ATTEMPT_END",
            Self::FallbackTriggered => "FALLBACK_TRIGGERED",
            Self::SideEffectIntention => "SIDE_EFFECT_INTENTION",
            Self::SideEffectCompletion => "SIDE_EFFECT_COMPLETION",
            Self::SideEffectFailure => "SIDE_EFFECT_FAILURE",
            Self::RouterDecision => "ROUTER_DECISION",
            Self::FinalResponse => "FINAL_RESPONSE",
        }
    }

    /// Whether it happens within an attempt, and does not tell how far that has come.
    fn is_side_effect(self) -> bool {
        matches!(
            self,
            Self::SideEffectIntention | Self::SideEffectCompletion | Self::SideEffectFailure
        )
    }
}

/// One thing that happened in an execution.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionEvent {
    /// Its number by the clock of the execution, from 1.
    pub seq: u64,
    /// What kind of thing.
    pub kind: ExecutionEventType,
    /// What happened.
    pub payload: Value,
    /// When, for people.
    pub at: Timestamp,
    /// Sequence of the event in the log that says so.
    pub source: u64,
}

/// What stands above everything else in a record.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionHeader {
    /// The turn.
    pub id: TurnId,
    /// When it started.
    pub created: Timestamp,
    /// The hash that was recorded; of a turn that has none, the hash of the envelope as it is.
    pub envelope_hash: String,
    /// Whether the answer can be given again from the record.
    pub replayable: bool,
    /// Why not.
    pub reason: Option<&'static str>,
}

/// Whose answer counts, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct RouterDecision {
    /// The provider.
    pub agent: String,
    /// What was intended.
    pub intent: &'static str,
    /// Why.
    pub reason: String,
    /// When it was decided.
    pub at: Timestamp,
}

/// How an execution ended.
#[derive(Debug, Clone, PartialEq)]
pub struct FinalResponse {
    /// Version of its shape.
    pub version: &'static str,
    /// `ok`, `error` or `cancelled`.
    pub status: &'static str,
    /// The answer: `response`.
    pub payload: Value,
    /// What it took.
    pub metadata: Value,
    /// What failed: `code` and `message`; null if nothing did.
    pub error: Value,
}

/// Where an execution that has no end stands.
#[derive(Debug, Clone, PartialEq)]
pub struct CrashPoint {
    /// How far it had come.
    pub stage: Stage,
    /// What may be done about it.
    pub recovery: Advice,
    /// The provider that was at work.
    pub agent: Option<String>,
}

/// The record of one turn.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionRecord {
    /// What stands above everything else.
    pub header: ExecutionHeader,
    /// Sequence of its `turn.start`.
    pub seq: u64,
    /// Its `turn.start`.
    pub start: TurnStart,
    /// Its envelope, as canonical JSON.
    pub envelope: String,
    /// Whether the recorded hash fits the envelope.
    pub hash: HashMatch,
    /// The provider that was asked last.
    pub provider: String,
    /// How far it has come.
    pub state: TurnState,
    /// Whose answer counts; none while there is none.
    pub decision: Option<RouterDecision>,
    /// What happened, in order.
    pub events: Vec<ExecutionEvent>,
    /// How it ended; none if it did not.
    pub response: Option<FinalResponse>,
    /// Where it stands, if it has no end.
    pub crash_point: Option<CrashPoint>,
    /// Sequence and time of the event that ended it.
    pub end: Option<(u64, Timestamp)>,
    /// How often a provider was asked.
    pub attempts: u32,
    /// How many tools were called.
    pub calls: u32,
    /// What is known of the processes that ran it.
    pub processes: ProcessReport,
}

impl ExecutionRecord {
    /// The record of the turn that starts with the first of these events of one log.
    pub fn of<'a>(entries: impl IntoIterator<Item = &'a Entry>, provider: &str) -> Option<Self> {
        let mut entries = entries.into_iter();
        let mut recorder = Recorder::start(entries.next()?, provider)?;
        for entry in entries {
            if recorder.take(entry).is_break() {
                break;
            }
        }
        Some(recorder.finish())
    }
}

/// Where an execution stands, by what happened last.
pub fn crash_point(events: &[ExecutionEvent]) -> CrashPoint {
    let last = events.iter().rev().find(|event| !event.kind.is_side_effect());
    let stage = match last.map(|event| event.kind) {
        None => Stage::BeforeStart,
        Some(ExecutionEventType::IntentReceived) => Stage::AfterReceive,
        Some(ExecutionEventType::AttemptStart) => Stage::DuringAgentExecution,
        Some(ExecutionEventType::AttemptEnd) => {
            match last.and_then(|event| event.payload["status"].as_str()) {
                // Records that were made elsewhere have either.
                Some("ok" | "success") => Stage::AfterSuccess,
                _ => Stage::AfterFailure,
            }
        }
        Some(_) => Stage::Unknown,
    };
    let agent = last.and_then(|event| event.payload["agent"].as_str()).map(str::to_owned);
    CrashPoint { stage, recovery: stage.advice(), agent }
}

/// Folds the events of a turn into its record.
pub struct Recorder {
    record: ExecutionRecord,
    session: Option<SessionId>,
    /// Whether a provider is at work.
    trying: bool,
    /// The provider of the next attempt, if a failure named one.
    next: Option<Arc<str>>,
    /// Sequence of the last event of the log.
    last: u64,
    ordered: bool,
}

/// Whether there is more to come.
pub type More = std::ops::ControlFlow<()>;

const GO_ON: More = More::Continue(());
const OVER: More = More::Break(());

impl Recorder {
    /// Begins with a `turn.start`; none for any other event. `provider` is that of the session:
    /// older versions did not record it.
    pub fn start(entry: &Entry, provider: &str) -> Option<Self> {
        let Event::TurnStart(start) = &entry.event else { return None };
        let envelope = start.envelope(entry.at);
        let hash = start.matches(&envelope);
        let envelope_hash = start.envelope_hash.clone().unwrap_or_else(|| super::sha256(&envelope));
        let header = ExecutionHeader {
            id: start.turn_id,
            created: entry.at,
            envelope_hash,
            replayable: false,
            reason: Some("execution_incomplete"),
        };
        let record = ExecutionRecord {
            header,
            seq: entry.seq,
            start: start.clone(),
            envelope,
            hash,
            provider: start.provider.as_deref().unwrap_or(provider).to_owned(),
            state: TurnState::Running,
            decision: None,
            events: Vec::new(),
            response: None,
            crash_point: None,
            end: None,
            attempts: 0,
            calls: 0,
            processes: ProcessReport::default(),
        };
        let (session, last) = (entry.session, entry.seq);
        let mut recorder = Self { record, session, trying: false, next: None, last, ordered: true };
        let payload = json!({
            "intent": INTENT,
            "source": start.source,
            "messages": start.messages,
        });
        recorder.push(entry, ExecutionEventType::IntentReceived, payload);
        recorder.start_attempt(entry);
        Some(recorder)
    }

    /// Takes the next event of the same log. Breaks where the turn is over.
    pub fn take(&mut self, entry: &Entry) -> More {
        if entry.session != self.session {
            return GO_ON;
        }
        self.ordered &= entry.seq > self.last;
        self.last = entry.seq;
        let id = self.record.header.id;
        match &entry.event {
            Event::ToolCallInvoked(data) if data.turn_id == id => {
                self.go_on_trying(entry);
                self.record.calls += 1;
                let mut payload = call(data.call_id, &data.tool);
                payload["args"] = value(&data.args);
                self.push(entry, ExecutionEventType::SideEffectIntention, payload);
            }
            Event::ToolCallResult(data) if data.turn_id == id => {
                let mut payload = call(data.call_id, &data.tool);
                let kind = match &data.error {
                    Some(error) => {
                        payload["error"] = error.as_str().into();
                        ExecutionEventType::SideEffectFailure
                    }
                    None => {
                        payload["result"] = data.result.as_ref().map_or(Value::Null, value);
                        ExecutionEventType::SideEffectCompletion
                    }
                };
                self.push(entry, kind, payload);
            }
            Event::TurnRetry(data) if data.turn_id == id => {
                self.go_on_trying(entry);
                self.end_attempt(entry, &failure(data.class, &data.error));
                self.next.clone_from(&data.provider);
            }
            Event::TurnAttempt(data) if data.turn_id == id => self.go_on_trying(entry),
            // Only what was lost can stand between a turn and the next one.
            Event::TurnStart(_) => return OVER,
            _ if self.record.processes.take(id, &entry.event) => {}
            _ => return self.take_end(entry),
        }
        GO_ON
    }

    fn take_end(&mut self, entry: &Entry) -> More {
        let id = self.record.header.id;
        match &entry.event {
            Event::TurnComplete(data) if data.turn_id == id => {
                self.go_on_trying(entry);
                self.end_attempt(entry, &Value::Null);
                self.decide(entry, self.success());
                let payload = json!({ "response": data.response });
                self.respond(entry, TurnState::Completed, "ok", payload, Value::Null);
            }
            Event::TurnFailed(data) if data.turn_id == id => {
                let error = failure(data.class, &data.error);
                self.end_attempt(entry, &error);
                self.decide(entry, "routing failed".to_owned());
                self.respond(entry, TurnState::Failed, "error", Value::Null, error);
            }
            Event::TurnCancelled(data) if data.turn_id == id => {
                let by = match data.by {
                    Party::User => "USER",
                    Party::System => "SYSTEM",
                    Party::Agent(_) => "an agent",
                };
                let error = json!({ "code": "cancelled", "message": format!("cancelled by {by}") });
                self.end_attempt(entry, &error);
                self.respond(entry, TurnState::Cancelled, "cancelled", Value::Null, error);
            }
            Event::TurnInterrupted(data) if data.turn_id == id => {
                // Older versions did not say when the next attempt started: it had, to be safe.
                if data.stage == Stage::DuringAgentExecution {
                    self.go_on_trying(entry);
                }
                self.record.state = TurnState::Interrupted;
                self.record.end = Some((entry.seq, entry.at));
            }
            _ => return GO_ON,
        }
        OVER
    }

    /// The record of what was taken so far.
    pub fn finish(self) -> ExecutionRecord {
        let mut record = self.record;
        let reason = match record.state {
            _ if !self.ordered => Some("out_of_order"),
            TurnState::Completed | TurnState::Failed => None,
            TurnState::Cancelled => Some("execution_cancelled"),
            TurnState::Running | TurnState::Interrupted => {
                record.crash_point = Some(crash_point(&record.events));
                Some("execution_incomplete")
            }
        };
        record.header.replayable = reason.is_none();
        record.header.reason = reason;
        record
    }

    fn push(&mut self, entry: &Entry, kind: ExecutionEventType, payload: Value) {
        let seq = self.record.events.len() as u64 + 1;
        let event = ExecutionEvent { seq, kind, payload, at: entry.at, source: entry.seq };
        self.record.events.push(event);
    }

    fn start_attempt(&mut self, entry: &Entry) {
        let from = self.record.provider.clone();
        if let Some(to) = self.next.take().filter(|to| **to != *from) {
            self.record.provider = to.as_ref().to_owned();
            let payload = json!({ "from": from, "to": to });
            self.push(entry, ExecutionEventType::FallbackTriggered, payload);
        }
        let (agent, index) = (&self.record.provider, self.record.attempts);
        let payload = json!({ "agent": agent, "strategy": STRATEGY, "index": index });
        self.record.attempts += 1;
        self.trying = true;
        self.push(entry, ExecutionEventType::AttemptStart, payload);
    }

    /// Starts the next attempt, if none runs.
    fn go_on_trying(&mut self, entry: &Entry) {
        if !self.trying {
            self.start_attempt(entry);
        }
    }

    /// Ends the attempt that runs, if one does.
    fn end_attempt(&mut self, entry: &Entry, exception: &Value) {
        if !std::mem::take(&mut self.trying) {
            return;
        }
        let status = if exception.is_null() { "ok" } else { "error" };
        let agent = &self.record.provider;
        let payload = json!({ "agent": agent, "status": status, "exception": exception });
        self.push(entry, ExecutionEventType::AttemptEnd, payload);
    }

    /// Why the provider that answered was asked.
    fn success(&self) -> String {
        let fell_back =
            |event: &ExecutionEvent| event.kind == ExecutionEventType::FallbackTriggered;
        if self.record.events.iter().any(fell_back) {
            let index = self.record.attempts.saturating_sub(1);
            format!("fallback success at index {index}")
        } else {
            "direct match".to_owned()
        }
    }

    fn decide(&mut self, entry: &Entry, reason: String) {
        let agent = self.record.provider.clone();
        let payload = json!({ "agent": agent, "intent": INTENT, "reason": reason });
        self.record.decision = Some(RouterDecision { agent, intent: INTENT, reason, at: entry.at });
        self.push(entry, ExecutionEventType::RouterDecision, payload);
    }

    fn respond(
        &mut self,
        entry: &Entry,
        state: TurnState,
        status: &'static str,
        payload: Value,
        error: Value,
    ) {
        self.push(entry, ExecutionEventType::FinalResponse, json!({ "status": status }));
        let record = &mut self.record;
        let took = entry.at.since(record.header.created);
        let metadata = json!({
            "agent": record.start.agent,
            "provider": record.provider,
            "model": record.start.model,
            "attempts": record.attempts,
            "toolCalls": record.calls,
            "durationMs": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        });
        record.state = state;
        record.end = Some((entry.seq, entry.at));
        record.response =
            Some(FinalResponse { version: RECORD_VERSION, status, payload, metadata, error });
    }
}

fn call(id: CallId, tool: &str) -> Value {
    json!({ "callId": id, "tool": tool })
}

fn failure(class: FailureClass, message: &str) -> Value {
    json!({ "code": class.as_str(), "message": message })
}

fn value(json: &Json) -> Value {
    serde_json::from_str(json.get()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
