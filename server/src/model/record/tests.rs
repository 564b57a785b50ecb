use std::time::Duration;

use super::*;
use crate::model::{
    ExecutionEventType as Type, Name, ToolCallInvoked, ToolCallResult, TurnAttempt, TurnCancelled,
    TurnComplete, TurnFailed, TurnInterrupted, TurnRetry, sha256,
};

const TURN: TurnId = TurnId::from_u64(7);
const CALL: CallId = CallId::from_u64(1);

/// The log of a session, an event each millisecond.
struct Log(Vec<Entry>);

impl Log {
    fn start() -> Self {
        let mut start = TurnStart {
            agent: Some(Name::known("lead")),
            provider: Some("scripted".into()),
            source: Some(Name::known("USER")),
            ..TurnStart::new(TURN, "do it".into(), vec![])
        };
        start.envelope_hash = Some(sha256(&start.envelope(at(10))));
        Self(Vec::new()).with(start)
    }

    fn with(mut self, event: impl Into<Event>) -> Self {
        let seq = 10 + self.0.len() as u64;
        let session = Some(SessionId::from_u128(1));
        self.0.push(Entry { seq, session, at: at(seq), event: event.into() });
        self
    }

    fn called(self) -> Self {
        let args = Json::of(&json!({ "path": "a" })).unwrap();
        let tool = || "read_file".into();
        self.with(ToolCallInvoked { turn_id: TURN, call_id: CALL, tool: tool(), args })
    }

    fn returned(self, end: Result<&str, &str>) -> Self {
        let result = end.ok().map(|text| Json::of(&text).unwrap());
        let error = end.err().map(str::to_owned);
        let tool = "read_file".into();
        self.with(ToolCallResult {
            turn_id: TURN,
            call_id: CALL,
            tool,
            result,
            error,
            reason: None,
        })
    }

    fn retried(self) -> Self {
        self.retried_on(None)
    }

    fn retried_on(self, provider: Option<&str>) -> Self {
        let (class, error) = (FailureClass::Transient, "busy".to_owned());
        let provider = provider.map(Into::into);
        self.with(TurnRetry { turn_id: TURN, attempt: 2, delay_ms: 1, class, error, provider })
    }

    fn attempted(self) -> Self {
        self.with(TurnAttempt { turn_id: TURN, attempt: 2 })
    }

    fn interrupted(self, stage: Stage) -> Self {
        self.with(TurnInterrupted {
            turn_id: TURN,
            agent: Name::known("lead"),
            stage,
            recovery: stage.advice(),
            lost_calls: vec![],
            wakes: true,
        })
    }

    fn completed(self) -> Self {
        let (response, agent) = ("done".into(), Name::known("lead"));
        self.with(TurnComplete { turn_id: TURN, response, agent, answers: vec![] })
    }

    fn failed(self) -> Self {
        let (agent, class) = (Name::known("lead"), FailureClass::Permanent);
        let error = "broken".to_owned();
        self.with(TurnFailed { turn_id: TURN, agent, class, error, messages: vec![] })
    }

    fn record(&self) -> ExecutionRecord {
        ExecutionRecord::of(&self.0, "of the session").unwrap()
    }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::default().after(Duration::from_millis(millis))
}

fn kinds(record: &ExecutionRecord) -> Vec<&'static str> {
    record.events.iter().map(|event| event.kind.as_str()).collect()
}

#[test]
fn a_turn_with_tools_is_recorded_from_its_intent_to_its_answer() {
    let record = Log::start().called().returned(Ok("text")).completed().record();
    let events: Vec<Value> = record
        .events
        .iter()
        .map(|event| json!([event.seq, event.kind.as_str(), event.payload, event.source]))
        .collect();
    let call = CALL.to_string();
    assert_eq!(
        Value::from(events),
        json!([
            [1, "INTENT_RECEIVED", { "intent": "turn", "source": "USER", "messages": [] }, 10],
            [2, "AGENT_ATTEMPT_START", { "agent": "scripted", "strategy": "DIRECT", "index": 0 }, 10],
            [3, "SIDE_EFFECT_INTENTION",
                { "callId": call, "tool": "read_file", "args": { "path": "a" } }, 11],
            [4, "SIDE_EFFECT_COMPLETION",
                { "callId": call, "tool": "read_file", "result": "text" }, 12],
            [5, "AGENT_ATTEMPT_END", { "agent": "scripted", "status": "ok", "exception": null }, 13],
            [6, "ROUTER_DECISION",
                { "agent": "scripted", "intent": "turn", "reason": "direct match" }, 13],
            [7, "FINAL_RESPONSE", { "status": "ok" }, 13],
        ])
    );
    let header = &record.header;
    assert_eq!((header.replayable, header.reason), (true, None));
    assert_eq!(header.envelope_hash, sha256(&record.envelope));
    assert_eq!((record.hash, record.state), (HashMatch::Matches, TurnState::Completed));
    assert_eq!((record.attempts, record.calls, record.end), (1, 1, Some((13, at(13)))));
    let response = record.response.unwrap();
    assert_eq!((response.version, response.status), ("1.0", "ok"));
    assert_eq!((response.payload, response.error), (json!({ "response": "done" }), Value::Null));
    assert_eq!(
        response.metadata,
        json!({
            "agent": "lead", "provider": "scripted", "model": null, "attempts": 1,
            "toolCalls": 1, "durationMs": 3,
        })
    );
    assert!(record.crash_point.is_none());
}

#[test]
fn a_retry_ends_an_attempt_and_the_next_one_has_the_next_index() {
    let record = Log::start().retried().attempted().completed().record();
    let expected = [
        "INTENT_RECEIVED",
        "AGENT_ATTEMPT_START",
        "AGENT_ATTEMPT_END",
        "AGENT_ATTEMPT_START",
        "AGENT_ATTEMPT_END",
        "ROUTER_DECISION",
        "FINAL_RESPONSE",
    ];
    assert_eq!(kinds(&record), expected);
    assert_eq!(record.events[2].payload["exception"]["message"], "busy");
    assert_eq!((&record.events[3].payload["index"], record.attempts), (&json!(1), 2));
    // Older versions did not say when it started.
    assert_eq!(kinds(&Log::start().retried().completed().record()), expected);
}

#[test]
fn a_fallback_is_told_between_the_provider_that_failed_and_the_next() {
    let mut log = Log::start();
    if let Event::TurnStart(start) = &mut log.0[0].event {
        start.provider = Some("z".into());
    }
    let log = log.retried_on(Some("a")).attempted().retried_on(Some("m"));
    let pausing = log.record().crash_point.unwrap();
    assert_eq!((pausing.stage, pausing.agent.as_deref()), (Stage::AfterFailure, Some("a")));
    let record = log.attempted().completed().record();
    let told = |event: &ExecutionEvent| {
        let payload = &event.payload;
        let keys = ["agent", "index", "status", "from", "to", "reason"];
        let said: Vec<Value> = keys.iter().filter_map(|key| payload.get(key).cloned()).collect();
        json!([event.seq, event.kind.as_str(), said])
    };
    assert_eq!(
        record.events[1..].iter().map(told).collect::<Value>(),
        json!([
            [2, "AGENT_ATTEMPT_START", ["z", 0]],
            [3, "AGENT_ATTEMPT_END", ["z", "error"]],
            [4, "FALLBACK_TRIGGERED", ["z", "a"]],
            [5, "AGENT_ATTEMPT_START", ["a", 1]],
            [6, "AGENT_ATTEMPT_END", ["a", "error"]],
            [7, "FALLBACK_TRIGGERED", ["a", "m"]],
            [8, "AGENT_ATTEMPT_START", ["m", 2]],
            [9, "AGENT_ATTEMPT_END", ["m", "ok"]],
            [10, "ROUTER_DECISION", ["m", "fallback success at index 2"]],
            [11, "FINAL_RESPONSE", ["ok"]],
        ])
    );
    assert_eq!(kinds(&record)[0], "INTENT_RECEIVED");
    assert_eq!((record.provider.as_str(), record.start.provider.as_deref()), ("m", Some("z")));
    // The same provider again is no fallback.
    let same = Log::start().retried_on(Some("scripted")).attempted().completed().record();
    assert_eq!(same.decision.unwrap().reason, "direct match");
}

#[test]
fn a_failed_turn_is_replayed_as_a_failure_and_a_cancelled_one_is_not() {
    let failed = Log::start().failed().record();
    assert_eq!((failed.state, failed.header.replayable), (TurnState::Failed, true));
    assert_eq!(failed.decision.unwrap().reason, "routing failed");
    let response = failed.response.unwrap();
    assert_eq!(response.error, json!({ "code": "permanent", "message": "broken" }));
    assert_eq!((response.status, response.payload), ("error", Value::Null));

    let (agent, by) = (Name::known("lead"), Party::User);
    let cancelled = TurnCancelled { turn_id: TURN, agent, by, messages: vec![] };
    let cancelled = Log::start().with(cancelled).record();
    assert_eq!(cancelled.state, TurnState::Cancelled);
    assert_eq!(cancelled.header.reason, Some("execution_cancelled"));
    assert_eq!(cancelled.response.unwrap().status, "cancelled");
}

#[test]
fn a_turn_without_an_end_stands_where_its_last_event_left_it() {
    let running = Log::start().called().record();
    assert_eq!(running.state, TurnState::Running);
    assert_eq!(running.header.reason, Some("execution_incomplete"));
    let during = CrashPoint {
        stage: Stage::DuringAgentExecution,
        recovery: Advice::CheckAgentIdempotency,
        agent: Some("scripted".into()),
    };
    assert_eq!(running.crash_point, Some(during.clone()));

    let unknown = Log::start().called().returned(Err("[Interrupted: outcome unknown]"));
    let interrupted = unknown.interrupted(Stage::DuringAgentExecution).record();
    assert_eq!(interrupted.state, TurnState::Interrupted);
    assert_eq!(interrupted.crash_point, Some(during.clone()));
    assert_eq!(kinds(&interrupted).last(), Some(&"SIDE_EFFECT_FAILURE"));

    let pausing = Log::start().retried().interrupted(Stage::AfterFailure).record();
    let point = pausing.crash_point.unwrap();
    assert_eq!((point.stage, point.recovery), (Stage::AfterFailure, Advice::RetryNextAgent));
    // Where an older version could not tell, the attempt is taken to have started.
    let old = Log::start().retried().interrupted(Stage::DuringAgentExecution).record();
    assert_eq!(old.crash_point, Some(during));
}

#[test]
fn every_stage_of_the_table_is_told_from_the_last_event() {
    let event = |kind, payload| ExecutionEvent { seq: 1, kind, payload, at: at(0), source: 1 };
    let received = event(Type::IntentReceived, json!({}));
    let started = event(Type::AttemptStart, json!({ "agent": "a" }));
    let ended = |status| event(Type::AttemptEnd, json!({ "agent": "a", "status": status }));
    let table = [
        (vec![], "before_start", "safe_to_retry"),
        (vec![received], "after_receive", "safe_to_retry"),
        (vec![started.clone()], "during_agent_execution", "check_agent_idempotency"),
        (
            vec![started, event(Type::SideEffectCompletion, json!({}))],
            "during_agent_execution",
            "check_agent_idempotency",
        ),
        (vec![ended("ok")], "after_success", "response_may_be_lost"),
        (vec![ended("success")], "after_success", "response_may_be_lost"),
        (vec![ended("error")], "after_failure", "retry_next_agent"),
        (vec![event(Type::RouterDecision, json!({}))], "unknown", "manual_inspection"),
    ];
    for (events, stage, recovery) in table {
        let point = crash_point(&events);
        assert_eq!((point.stage.as_str(), point.recovery.as_str()), (stage, recovery));
    }
}

#[test]
fn events_of_others_are_passed_over_and_the_next_turn_ends_what_lost_its_end() {
    let mut log = Log::start();
    log = log.with(TurnFailed {
        turn_id: TurnId::from_u64(8),
        agent: Name::known("lead"),
        class: FailureClass::Permanent,
        error: "of another turn".into(),
        messages: vec![],
    });
    let next = TurnStart::new(TurnId::from_u64(9), "next".into(), vec![]);
    let record = log.with(next).completed().record();
    assert_eq!(record.state, TurnState::Running);
    assert_eq!(kinds(&record), ["INTENT_RECEIVED", "AGENT_ATTEMPT_START"]);
    assert!(ExecutionRecord::of(&Log::start().completed().0[1..], "").is_none());
}

#[test]
fn a_log_that_was_changed_is_noticed() {
    let mut log = Log::start().completed();
    if let Event::TurnStart(start) = &mut log.0[0].event {
        start.prompt = "do it not".into();
    }
    let record = log.record();
    assert_eq!((record.hash, record.header.replayable), (HashMatch::Differs, true));
    assert_ne!(record.header.envelope_hash, sha256(&record.envelope));

    let mut log = Log::start().completed();
    log.0[1].seq = 3;
    let header = log.record().header;
    assert_eq!((header.replayable, header.reason), (false, Some("out_of_order")));
}

#[test]
fn a_turn_of_an_older_version_has_a_record_without_a_hash_to_check() {
    let mut log = Log::start().completed();
    log.0[0].event = TurnStart::new(TURN, "do it".into(), vec![]).into();
    let record = log.record();
    assert_eq!((record.hash, record.header.replayable), (HashMatch::Unknown, true));
    assert_eq!(record.header.envelope_hash, sha256(&record.envelope));
    assert_eq!(record.provider, "of the session");
}
