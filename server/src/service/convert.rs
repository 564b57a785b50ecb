//! From the model to the wire. Wire types stop in this room.

use prost_types::value::Kind as JsonKind;
use prost_types::{ListValue, Struct, Value as WireValue};
use serde_json::Value;
use substrat_proto::v1;

use super::sandbox::Confinement;
use super::{budget, folder};
use crate::model::{
    Activity, Agent, AgentId, Entry, Gate, Kind, Message, MessageEnqueued, Multicast, Party,
    Reminder, Scope, Session, SessionState, State, Subscription, Timestamp, Turn, Usage,
};

pub(super) fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    let micros = at.as_micros();
    prost_types::Timestamp {
        seconds: micros.div_euclid(1_000_000),
        nanos: i32::try_from(micros.rem_euclid(1_000_000) * 1000).unwrap_or(0),
    }
}

pub(super) fn agent(state: &State, agent: &Agent, confinement: &Confinement) -> v1::Agent {
    let activity = match agent.activity {
        Activity::Terminated => v1::AgentState::Terminated,
        _ if agent.is_waiting() => v1::AgentState::Waiting,
        Activity::Idle => v1::AgentState::Idle,
        Activity::Busy(_) | Activity::Waiting(..) => v1::AgentState::Busy,
    };
    let permits = match agent.gate {
        Gate::Open => 0,
        Gate::Gated { permits } => permits,
    };
    v1::Agent {
        id: agent.id.to_string(),
        name: agent.name.to_string(),
        path: state.path(agent),
        parent_id: agent.parent.map(|id| id.to_string()).unwrap_or_default(),
        session_id: agent.session.id.to_string(),
        provider: agent.session.provider.to_string(),
        model: agent.session.model.as_deref().unwrap_or_default().to_owned(),
        role: agent.role.clone(),
        instructions: agent.instructions.to_string(),
        workspace_id: agent.workspace.map(|id| id.to_string()).unwrap_or_default(),
        workspace_subdir: agent.workspace_subdir.clone(),
        workspace_access: match agent.workspace {
            Some(_) => folder::mode(agent.workspace_access).into(),
            None => v1::LinkMode::Unspecified.into(),
        },
        state: activity.into(),
        gated: agent.gate != Gate::Open,
        permits,
        inbox_size: agent.inbox.len() as u32,
        child_count: agent.children.len() as u32,
        metadata: agent.metadata.clone().into_iter().collect(),
        create_time: Some(timestamp(agent.created_at)),
        activity_time: Some(timestamp(agent.active_at)),
        turn_id: agent.turn().map(|turn| turn.id.to_string()).unwrap_or_default(),
        queued: state.is_queued(agent),
        turns: Some(v1::TurnCounts {
            completed: agent.turns.completed,
            failed: agent.turns.failed,
            cancelled: agent.turns.cancelled,
            interrupted: agent.turns.interrupted,
        }),
        last_sequence: agent.session.last_seq,
        usage: Some(budget::usage(agent.usage())),
        tree_usage: Some(budget::usage(agent.tree_usage())),
        budget: budget::of(agent, Scope::Agent),
        tree_budget: budget::of(agent, Scope::Tree),
        budget_excess: budget::excess(state, agent),
        sandbox: Some(confinement.of_agent(agent)),
        open_permissions: agent.questions().len() as u32,
    }
}

/// As in a list: without the instructions.
pub(super) fn agent_brief(state: &State, one: &Agent, confinement: &Confinement) -> v1::Agent {
    v1::Agent { instructions: String::new(), ..agent(state, one, confinement) }
}

pub(super) fn turn(agent: &Agent, turn: &Turn) -> v1::Turn {
    v1::Turn {
        id: turn.id.to_string(),
        start_time: Some(timestamp(turn.at)),
        sequence: turn.seq,
        message_ids: turn.messages.iter().map(ToString::to_string).collect(),
        open_tools: turn.calls.iter().map(|call| call.tool.to_string()).collect(),
        waiting_for: agent.wait().map(|wait| wait.request.to_string()).unwrap_or_default(),
        cancelling: turn.cancelling.is_some(),
        usage: Some(budget::usage(Usage { turns: 1, ..turn.usage })),
        native_tools: turn.backend.uses.iter().map(|open| open.tool.to_string()).collect(),
        stall: turn.backend.stall.as_ref().map(|stall| v1::Stall {
            start_time: Some(timestamp(stall.since())),
            tool: stall.tool.as_deref().unwrap_or_default().to_owned(),
        }),
    }
}

fn kind(kind: Kind) -> v1::MessageKind {
    match kind {
        Kind::Request => v1::MessageKind::Request,
        Kind::Response => v1::MessageKind::Response,
        Kind::Notification => v1::MessageKind::Notification,
        Kind::Multicast => v1::MessageKind::Multicast,
        Kind::Error => v1::MessageKind::Error,
    }
}

pub(super) fn reminder(reminder: &Reminder) -> v1::Reminder {
    v1::Reminder {
        id: reminder.id.to_string(),
        reason: reminder.reason.to_string(),
        due_time: Some(timestamp(reminder.due)),
        every_seconds: reminder.every.unwrap_or_default(),
    }
}

pub(super) fn subscription(state: &State, subscription: &Subscription) -> v1::Subscription {
    v1::Subscription {
        id: subscription.id.to_string(),
        target: path(state, subscription.target),
        transition: format!("{}->{}", subscription.from, subscription.to),
        once: subscription.once,
    }
}

pub(super) fn multicast(state: &State, multicast: &Multicast) -> v1::Multicast {
    let (answered, open): (Vec<_>, Vec<_>) = multicast.copies.iter().partition(|one| one.answered);
    v1::Multicast {
        id: multicast.id.to_string(),
        answered: u32::try_from(answered.len()).unwrap_or(u32::MAX),
        open: open.iter().map(|copy| path(state, copy.recipient)).collect(),
        end_time: Some(timestamp(multicast.until)),
    }
}

fn path(state: &State, id: AgentId) -> String {
    state.agent(id).map(|agent| state.path(agent)).unwrap_or_default()
}

pub(super) fn message(message: &Message, recipient: Party, recipient_name: &str) -> v1::Message {
    v1::Message {
        id: message.id.to_string(),
        sender_id: message.sender.to_string(),
        sender: message.sender_name.to_string(),
        recipient_id: recipient.to_string(),
        recipient: recipient_name.to_owned(),
        kind: kind(message.kind).into(),
        text: message.text.to_string(),
        reply_to: message.reply_to.map(|id| id.to_string()).unwrap_or_default(),
        metadata: message.metadata.clone().into_iter().collect(),
        create_time: Some(timestamp(message.at)),
        sequence: message.seq,
        set_aside: message.set_aside,
    }
}

pub(super) fn enqueued(sequence: u64, data: &MessageEnqueued) -> v1::Message {
    v1::Message {
        id: data.message_id.to_string(),
        sender_id: data.sender.to_string(),
        sender: data.sender_name.to_string(),
        recipient_id: data.recipient.to_string(),
        recipient: data.recipient_name.to_string(),
        kind: kind(data.kind).into(),
        text: data.payload.to_string(),
        reply_to: data.reply_to.map(|id| id.to_string()).unwrap_or_default(),
        metadata: data.metadata.clone().into_iter().collect(),
        create_time: Some(timestamp(data.timestamp)),
        sequence,
        set_aside: false,
    }
}

pub(super) fn session(state: &State, agent: &Agent, confinement: &Confinement) -> v1::Session {
    let Session { id, provider, model, created_at, suspended_at, saved, events, .. } =
        &agent.session;
    let stands = match agent.session.state {
        SessionState::Created => v1::SessionState::Created,
        SessionState::Active => v1::SessionState::Active,
        SessionState::Suspending => v1::SessionState::Suspending,
        SessionState::Suspended => v1::SessionState::Suspended,
        SessionState::Terminated => v1::SessionState::Terminated,
    };
    v1::Session {
        id: id.to_string(),
        agent_id: agent.id.to_string(),
        agent_path: state.path(agent),
        state: stands.into(),
        provider: provider.to_string(),
        model: model.as_deref().unwrap_or_default().to_owned(),
        create_time: Some(timestamp(*created_at)),
        suspend_time: suspended_at.map(timestamp),
        provider_state_size: saved.as_ref().map_or(0, crate::model::Blob::size),
        event_count: *events,
        last_sequence: agent.session.last_seq,
        sandbox: Some(confinement.of_agent(agent)),
    }
}

pub(super) fn event(entry: &Entry, agent: Option<AgentId>) -> v1::Event {
    v1::Event {
        sequence: entry.seq,
        session_id: entry.session.map(|id| id.to_string()).unwrap_or_default(),
        time: Some(timestamp(entry.at)),
        r#type: entry.event.name().to_owned(),
        data: Some(object(entry.event.data())),
        agent_id: agent.map(|id| id.to_string()).unwrap_or_default(),
    }
}

/// A JSON object on the wire; anything else becomes an empty one.
pub(super) fn object(value: Value) -> Struct {
    match value {
        Value::Object(map) => {
            Struct { fields: map.into_iter().map(|(key, value)| (key, json(value))).collect() }
        }
        _ => Struct::default(),
    }
}

/// JSON on the wire. Numbers become doubles.
pub(super) fn json(value: Value) -> WireValue {
    let kind = match value {
        Value::Null => JsonKind::NullValue(0),
        Value::Bool(value) => JsonKind::BoolValue(value),
        Value::Number(number) => JsonKind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => JsonKind::StringValue(text),
        Value::Array(values) => {
            let values = values.into_iter().map(json).collect();
            JsonKind::ListValue(ListValue { values })
        }
        object_value @ Value::Object(_) => JsonKind::StructValue(object(object_value)),
    };
    WireValue { kind: Some(kind) }
}

/// JSON from the wire. Numbers without a fraction become integers.
pub(super) fn from_object(object: Struct) -> Value {
    Value::Object(object.fields.into_iter().map(|(key, value)| (key, from_json(value))).collect())
}

fn from_json(value: WireValue) -> Value {
    /// Up to here every integer is a double.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value.kind {
        None | Some(JsonKind::NullValue(_)) => Value::Null,
        Some(JsonKind::BoolValue(value)) => Value::Bool(value),
        Some(JsonKind::NumberValue(number)) if number.fract() == 0.0 && number.abs() <= EXACT => {
            Value::from(number as i64)
        }
        Some(JsonKind::NumberValue(number)) => Value::from(number),
        Some(JsonKind::StringValue(text)) => Value::String(text),
        Some(JsonKind::StructValue(object)) => from_object(object),
        Some(JsonKind::ListValue(list)) => {
            Value::Array(list.values.into_iter().map(from_json).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_survives_the_wire() {
        let value = serde_json::json!({
            "text": "größe", "n": 3, "x": 1.5, "no": null, "list": [true, {"deep": -7}],
        });
        assert_eq!(from_object(object(value.clone())), value);
    }

    #[test]
    fn numbers_that_no_double_holds_come_close() {
        let exact = 9_007_199_254_740_992_i64;
        for number in [0, -1, exact, -exact] {
            let value = serde_json::json!({ "n": number });
            assert_eq!(from_object(object(value.clone())), value);
        }
        let beyond = from_object(object(serde_json::json!({ "n": i64::MAX })));
        assert_eq!(beyond["n"].as_f64(), Some(i64::MAX as f64));
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let value = WireValue { kind: Some(JsonKind::NumberValue(odd)) };
            assert_eq!(from_json(value), Value::Null, "JSON has no {odd}");
        }
        assert_eq!(from_json(WireValue { kind: None }), Value::Null);
        assert_eq!(object(Value::from(3)), Struct::default());
    }

    #[test]
    fn times_before_and_after_the_epoch_are_exact() {
        for (micros, seconds, nanos) in [
            (0, 0, 0),
            (1_500_000, 1, 500_000_000),
            (-1, -1, 999_999_000),
            (-1_000_000, -1, 0),
            (i64::MAX, i64::MAX / 1_000_000, 775_807_000),
        ] {
            let wire = timestamp(Timestamp::from_micros(micros));
            assert_eq!((wire.seconds, wire.nanos), (seconds, nanos), "{micros}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_and_any_small_number_survive(key: String, text: String, n: i32, x: f32) {
            let x = f64::from(if x.is_finite() { x } else { 0.5 }) + 0.25;
            let value = serde_json::json!({ (key): [text, n, { "x": x }] });
            let back = from_object(object(value.clone()));
            let same = back == value || x.fract() == 0.0;
            proptest::prop_assert!(same, "{} became {}", value, back);
        }
    }
}
