//! The envelope of a turn: what was asked of whom, as one JSON object.
//!
//! It follows from the `turn.start` event alone, so it is not stored: reading the log makes it
//! anew, and its hash, which is stored, tells whether the log still says what it said.

use std::sync::Arc;

use super::canonical::{sha256, write_string};
use super::{Agent, MessageId, Name, Timestamp, TurnId, TurnStart};

/// Version of the envelope and of the final response.
pub(super) const RECORD_VERSION: &str = "1.0";
/// What every envelope intends.
pub(super) const INTENT: &str = "turn";
/// How the provider is chosen: it is the one of the session.
pub(super) const STRATEGY: &str = "DIRECT";

/// Whether a hash fits what it was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashMatch {
    /// It does.
    Matches,
    /// The log was changed since.
    Differs,
    /// There is none: the turn was written by an older version.
    Unknown,
}

impl TurnStart {
    /// A start that says no more than every version did.
    pub fn new(turn_id: TurnId, prompt: Arc<str>, messages: Vec<MessageId>) -> Self {
        Self {
            turn_id,
            prompt,
            messages,
            agent: None,
            provider: None,
            model: None,
            source: None,
            priority: None,
            envelope_hash: None,
        }
    }

    /// The same with all that its envelope is made of, and the hash of that.
    pub(super) fn described(mut self, agent: &Agent, at: Timestamp) -> Self {
        let first = self.messages.first().and_then(|id| agent.message(*id));
        self.agent = Some(agent.name.clone());
        self.provider = Some(agent.session.provider.clone());
        self.model.clone_from(&agent.session.model);
        self.source = first.map(|message| message.sender_name.clone());
        self.priority = first.and_then(|message| message.metadata.get("priority").cloned());
        self.envelope_hash = Some(sha256(&self.envelope(at)));
        self
    }

    /// The envelope as canonical JSON. `at` is when the turn started.
    pub fn envelope(&self, at: Timestamp) -> String {
        let mut out = Text(String::with_capacity(self.prompt.len() + 1024));
        let at = at.to_string();
        let (agent, provider) = (self.agent.as_ref().map(Name::as_str), self.provider.as_deref());
        let source = self.source.as_ref().map_or("SYSTEM", Name::as_str);
        // A chain of turns is known by the message that set it off.
        let trace =
            self.messages.first().map_or_else(|| self.turn_id.to_string(), ToString::to_string);
        // The keys stand in the order of the canonical form.
        out.raw(r#"{"context":{"priority":"#).text(self.priority.as_deref().unwrap_or("normal"));
        out.raw(r#","sourceAgent":"#).text(source);
        out.raw(r#","tags":[],"timestamp":"#).text(&at);
        out.raw(r#"},"intent":{"name":"#).text(INTENT);
        out.raw(r#","version":"#).text(RECORD_VERSION);
        out.raw(r#"},"metadata":{"createdAt":"#).text(&at);
        out.raw(r#","identityChain":["#).text(source);
        if let Some(agent) = agent {
            out.raw(",").text(agent);
        }
        out.raw(r#"],"requestId":"#).text(&self.turn_id.to_string());
        out.raw(r#","source":"#).text(source);
        out.raw(r#","traceId":"#).text(&trace);
        out.raw(r#"},"payload":{"agent":"#).text_or_null(agent);
        out.raw(r#","messages":["#);
        for (place, message) in self.messages.iter().enumerate() {
            out.raw(if place == 0 { "" } else { "," }).text(&message.to_string());
        }
        out.raw(r#"],"model":"#).text_or_null(self.model.as_deref());
        out.raw(r#","prompt":"#).text(&self.prompt);
        out.raw(r#"},"routing":{"fallbackAgents":[],"strategy":"#).text(STRATEGY);
        out.raw(r#","targetAgent":"#).text_or_null(provider);
        out.raw(r#"},"routingMetadata":{"decisionPath":[],"retries":0},"version":"#);
        out.text(RECORD_VERSION).raw("}");
        out.0
    }

    /// Whether the hash in the event is that of an envelope.
    pub(super) fn matches(&self, envelope: &str) -> HashMatch {
        match &self.envelope_hash {
            None => HashMatch::Unknown,
            Some(hash) if *hash == sha256(envelope) => HashMatch::Matches,
            Some(_) => HashMatch::Differs,
        }
    }
}

/// Canonical JSON in the making.
struct Text(String);

impl Text {
    fn raw(&mut self, json: &str) -> &mut Self {
        self.0.push_str(json);
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        write_string(&mut self.0, text);
        self
    }

    fn text_or_null(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.text(text),
            None => self.raw("null"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::canonical;

    fn start() -> TurnStart {
        let messages = vec![MessageId::from_u128(7), MessageId::from_u128(8)];
        TurnStart {
            agent: Some(Name::known("lead")),
            provider: Some("scripted".into()),
            model: Some("fast".into()),
            source: Some(Name::known("USER")),
            ..TurnStart::new(TurnId::from_u64(1), "größe \"x\"\u{7f}".into(), messages)
        }
    }

    const AT: Timestamp = Timestamp::from_micros(1_772_107_200_123_456);

    #[test]
    fn an_envelope_has_its_shape_and_is_canonical() {
        let envelope = start().envelope(AT);
        let value: serde_json::Value = serde_json::from_str(&envelope).unwrap();
        assert_eq!(
            value,
            serde_json::json!({
                "version": "1.0",
                "intent": { "name": "turn", "version": "1.0" },
                "payload": {
                    "agent": "lead",
                    "model": "fast",
                    "prompt": "größe \"x\"\u{7f}",
                    "messages": [
                        "00000000000000000000000000000007", "00000000000000000000000000000008",
                    ],
                },
                "context": {
                    "sourceAgent": "USER",
                    "timestamp": "2026-02-26T12:00:00.123456Z",
                    "priority": "normal",
                    "tags": [],
                },
                "metadata": {
                    "requestId": "exec-0000000000000001",
                    "source": "USER",
                    "createdAt": "2026-02-26T12:00:00.123456Z",
                    "traceId": "00000000000000000000000000000007",
                    "identityChain": ["USER", "lead"],
                },
                "routing": {
                    "strategy": "DIRECT", "targetAgent": "scripted", "fallbackAgents": [],
                },
                "routingMetadata": { "decisionPath": [], "retries": 0 },
            })
        );
        assert_eq!(canonical(envelope.as_bytes()).unwrap(), envelope);
        let bare = TurnStart::new(TurnId::from_u64(1), "".into(), vec![]).envelope(AT);
        assert_eq!(canonical(bare.as_bytes()).unwrap(), bare);
    }

    #[test]
    fn the_examples_in_the_documentation_fit_each_other() {
        let events = include_str!("../../../docs/events.md");
        let line = events.lines().find(|line| line.contains("\"envelope_hash\":")).unwrap();
        let entry = crate::model::Entry::decode(line.as_bytes()).unwrap();
        let crate::model::Event::TurnStart(start) = &entry.event else { panic!("{entry:?}") };
        let session = entry.session.unwrap();
        assert_eq!(start.turn_id, TurnId::starting_at(session, entry.seq));
        let envelope = start.envelope(entry.at);
        assert_eq!(start.matches(&envelope), HashMatch::Matches);
        let records = include_str!("../../../docs/execution-records.md");
        let shown = records.split("```json").nth(1).and_then(|rest| rest.split("```").next());
        assert_eq!(canonical(shown.unwrap().as_bytes()), Ok(envelope));
        assert!(records.contains(start.envelope_hash.as_deref().unwrap()));
    }

    #[test]
    fn a_hash_fits_one_envelope_alone() {
        let mut start = start();
        assert_eq!(start.matches(&start.envelope(AT)), HashMatch::Unknown);
        start.envelope_hash = Some(sha256(&start.envelope(AT)));
        assert_eq!(start.matches(&start.envelope(AT)), HashMatch::Matches);
        assert_eq!(
            start.matches(&start.envelope(AT.after(std::time::Duration::from_micros(1)))),
            HashMatch::Differs
        );
        let changed = [
            TurnStart { prompt: "x".into(), ..start.clone() },
            TurnStart { turn_id: TurnId::from_u64(2), ..start.clone() },
            TurnStart { messages: vec![MessageId::from_u128(7)], ..start.clone() },
            TurnStart { agent: Some(Name::known("other")), ..start.clone() },
            TurnStart { provider: None, ..start.clone() },
            TurnStart { model: None, ..start.clone() },
            TurnStart { source: None, ..start.clone() },
            TurnStart { priority: Some("high".into()), ..start.clone() },
            TurnStart { envelope_hash: Some("sha256:0".into()), ..start },
        ];
        for start in changed {
            assert_eq!(start.matches(&start.envelope(AT)), HashMatch::Differs, "{start:?}");
        }
    }
}
