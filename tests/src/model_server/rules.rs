//! What the real services refuse, though a model could answer: calls of tools without their
//! results, and results without their calls.

use std::collections::BTreeSet;

use serde_json::Value;

use super::conversation::{Api, list};

/// Why a request is refused, with 400.
pub(super) fn broken(api: Api, body: &Value) -> Option<String> {
    match api {
        Api::Anthropic => anthropic(body),
        Api::Chat => chat(body),
        Api::Responses => responses(body),
        Api::Gemini => None,
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Blocks of a type in a turn.
fn blocks<'a>(turn: &[&'a Value], kind: &str) -> Vec<&'a Value> {
    turn.iter().copied().filter(|block| block["type"] == kind).collect()
}

/// The blocks of each turn, of the user and the assistant in turns, from the user's.
fn turns(body: &Value) -> Result<Vec<Vec<&Value>>, String> {
    let mut turns: Vec<Vec<&Value>> = Vec::new();
    let mut last = "";
    let roles = ["user", "assistant"];
    let messages = list(&body["messages"]).iter();
    for message in messages.filter(|message| roles.contains(&text(message, "role"))) {
        let role = text(message, "role");
        if role != last {
            if last.is_empty() && role != "user" {
                return Err("messages: first message must use the \"user\" role".to_owned());
            }
            last = role;
            turns.push(Vec::new());
        }
        if let Some(turn) = turns.last_mut() {
            turn.extend(list(&message["content"]));
        }
        if message["content"] == "" {
            return Err("messages: text content must be non-empty".to_owned());
        }
    }
    if turns.is_empty() {
        return Err("messages: at least one message is required".to_owned());
    }
    Ok(turns)
}

fn anthropic(body: &Value) -> Option<String> {
    if !body["max_tokens"].is_u64() {
        return Some("max_tokens: Field required".to_owned());
    }
    let turns = match turns(body) {
        Ok(turns) => turns,
        Err(why) => return Some(why),
    };
    let empty = |block: &&&Value| text(block, "text").trim().is_empty();
    if turns.iter().any(|turn| blocks(turn, "text").iter().any(|block| empty(&block))) {
        return Some("messages: text content blocks must be non-empty".to_owned());
    }
    let mut seen = BTreeSet::new();
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for turn in &turns {
        let results = blocks(turn, "tool_result");
        let answered: BTreeSet<&str> =
            results.iter().map(|block| text(block, "tool_use_id")).collect();
        if let Some(id) = open.difference(&answered).next() {
            return Some(format!(
                "messages: `tool_use` ids were found without `tool_result` blocks immediately \
                 after: {id}. Each `tool_use` block must have a corresponding `tool_result` block \
                 in the next message."
            ));
        }
        if let Some(id) = answered.difference(&open).next() {
            return Some(format!("messages: unexpected `tool_use_id` in `tool_result`: {id}"));
        }
        let leading = turn.iter().take_while(|block| block["type"] == "tool_result").count();
        if leading < results.len() {
            return Some("messages: `tool_result` blocks must come first".to_owned());
        }
        open = blocks(turn, "tool_use").iter().map(|block| text(block, "id")).collect();
        if let Some(id) = open.iter().find(|id| !seen.insert(**id)) {
            return Some(format!("messages: `tool_use` ids must be unique: {id}"));
        }
    }
    let id = open.first()?;
    Some(format!("messages: `tool_use` without `tool_result`: {id}"))
}

fn chat(body: &Value) -> Option<String> {
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for message in list(&body["messages"]) {
        if message["role"] == "tool" {
            let id = text(message, "tool_call_id");
            if !open.remove(id) {
                return Some(format!(
                    "messages with role 'tool' must be a response to a preceding message with \
                     'tool_calls': {id}"
                ));
            }
            continue;
        }
        if !open.is_empty() {
            break;
        }
        open = list(&message["tool_calls"]).iter().map(|call| text(call, "id")).collect();
    }
    let id = open.first()?;
    Some(format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to \
         each 'tool_call_id': {id}"
    ))
}

fn responses(body: &Value) -> Option<String> {
    let ids = |kind: &str| -> BTreeSet<&str> {
        let items = list(&body["input"]).iter();
        items.filter(|item| item["type"] == kind).map(|item| text(item, "call_id")).collect()
    };
    let (calls, outputs) = (ids("function_call"), ids("function_call_output"));
    if let Some(id) = calls.difference(&outputs).next() {
        return Some(format!("No tool output found for function call {id}."));
    }
    let id = outputs.difference(&calls).next()?;
    Some(format!("No tool call found for function call output with call_id {id}."))
}
