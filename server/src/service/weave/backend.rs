//! What a watcher sees of what the backend of a turn does.

use serde_json::{Value, json};
use substrat_proto::v1;
use substrat_proto::v1::attach_response::Item;

use super::super::{convert, permission};
use crate::model::{Entry, Event, Json, TurnRetry};

/// Longest error of a failed attempt that is told, in characters.
const MAX_ERROR: usize = 200;

/// None for an event that is about no backend.
pub(super) fn backend(agent_id: String, entry: &Entry) -> Option<Item> {
    Some(match &entry.event {
        Event::ToolUseStarted(data) => Item::ToolCallStarted(v1::ToolCallStarted {
            agent_id,
            turn_id: data.turn_id.to_string(),
            call_id: data.use_id.to_string(),
            tool: data.tool.to_string(),
            arguments: Some(arguments(&data.input)),
            native: true,
        }),
        Event::ToolUseEnded(data) => {
            let (result, error) = match data.ok {
                true => (Some(convert::json(Value::from(data.output.clone()))), String::new()),
                false if data.output.is_empty() => (None, "it failed".to_owned()),
                false => (None, data.output.clone()),
            };
            Item::ToolCallFinished(v1::ToolCallFinished {
                agent_id,
                turn_id: data.turn_id.to_string(),
                call_id: data.use_id.to_string(),
                tool: data.tool.to_string(),
                result,
                error,
                native: true,
            })
        }
        Event::TurnNotice(data) => Item::ProcessNotice(v1::ProcessNotice {
            agent_id,
            turn_id: data.turn_id.to_string(),
            event: entry.event.name().to_owned(),
            text: data.text.clone(),
        }),
        Event::TurnRetry(data) => Item::ProcessNotice(v1::ProcessNotice {
            agent_id,
            turn_id: data.turn_id.to_string(),
            event: entry.event.name().to_owned(),
            text: retry(data),
        }),
        Event::TurnStalled(data) => {
            let tool = data.tool.as_ref().map(|tool| format!(", while {tool} runs"));
            let (seconds, tool) = (data.silent_ms / 1000, tool.unwrap_or_default());
            Item::ProcessNotice(v1::ProcessNotice {
                agent_id,
                turn_id: data.turn_id.to_string(),
                event: entry.event.name().to_owned(),
                text: format!("nothing was heard for {seconds} s{tool}"),
            })
        }
        Event::PermissionAsked(data) => Item::PermissionRequested(v1::PermissionRequested {
            permission: Some(permission::asked(agent_id, data, entry.at)),
        }),
        Event::PermissionAnswered(data) => {
            Item::PermissionResolved(permission::answered(agent_id, data))
        }
        Event::PermissionWithdrawn(data) => Item::PermissionResolved(v1::PermissionResolved {
            agent_id,
            turn_id: data.turn_id.to_string(),
            permission_id: data.permission_id.to_string(),
            ..Default::default()
        }),
        _ => return None,
    })
}

/// Why an attempt failed, and who is asked next, in a line.
fn retry(data: &TurnRetry) -> String {
    let error = data.error.trim();
    let first: String = error.lines().next().unwrap_or_default().chars().take(MAX_ERROR).collect();
    let more = if first.len() < error.len() { "…" } else { "" };
    let class = data.class.as_str();
    let next = match &data.provider {
        Some(provider) => format!("asking {provider}"),
        None => "trying again".to_owned(),
    };
    // What is over at once needs not be told.
    let wait = match data.delay_ms.div_ceil(1000) {
        0 | 1 => String::new(),
        seconds => format!(" in {seconds} s"),
    };
    format!("{class}: {first}{more}; {next}{wait}")
}

/// Arguments of a tool, which are an object on the wire.
fn arguments(input: &Json) -> prost_types::Struct {
    match serde_json::from_str(input.get()).unwrap_or_default() {
        Value::Null => prost_types::Struct::default(),
        object @ Value::Object(_) => convert::object(object),
        other => convert::object(json!({ "input": other })),
    }
}
