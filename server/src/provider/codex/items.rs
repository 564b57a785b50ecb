//! What both protocols of Codex call an item, and what they say of usage and of errors. One writes
//! names in `camelCase`, the other in `snake_case`.

use serde_json::{Value, json};

use crate::model::Usage;
use crate::provider::OutputKind;
use crate::provider::activity::{Activity, content, text};
use crate::provider::failure::{Failed, FailureKind, body};
use crate::provider::meter::openai;
use crate::provider::progress::Progress;

/// An item of a turn.
pub(super) enum Item<'a> {
    /// Words of the agent.
    Output(OutputKind, String),
    /// A tool and its arguments.
    Tool(String, Value),
    /// Something that went wrong, and did not end the turn.
    Problem(&'a str),
    /// The conversation was summed up, to fit the model.
    Compaction,
    /// Anything else.
    Other,
}

/// What an item is.
pub(super) fn item(item: &Value) -> Item<'_> {
    let kind = text(item, "type").replace('_', "").to_lowercase();
    let part = |key: &str| item.get(key).cloned().unwrap_or_default();
    match kind.as_str() {
        "agentmessage" => Item::Output(OutputKind::Text, text(item, "text").to_owned()),
        "reasoning" => {
            let said = ["text", "content", "summary"].map(|key| content(&part(key)));
            let said = said.into_iter().find(|said| !said.is_empty()).unwrap_or_default();
            Item::Output(OutputKind::Thinking, said)
        }
        "commandexecution" => Item::Tool("shell".to_owned(), json!({"command": part("command")})),
        "mcptoolcall" => {
            let name = format!("{}.{}", text(item, "server"), text(item, "tool"));
            Item::Tool(name, part("arguments"))
        }
        "dynamictoolcall" => Item::Tool(text(item, "tool").to_owned(), part("arguments")),
        "filechange" => Item::Tool("apply_patch".to_owned(), json!({"changes": part("changes")})),
        "websearch" => Item::Tool("web_search".to_owned(), json!({"query": part("query")})),
        "contextcompaction" => Item::Compaction,
        "error" => Item::Problem(text(item, "message")),
        _ => Item::Other,
    }
}

/// An item begins.
pub(super) fn started<A, Q>(turn: &mut Progress<A, Q>, value: &Value) {
    match item(value) {
        Item::Tool(name, input) => turn.start(text(value, "id"), &name, &input),
        _ => turn.alive(),
    }
}

/// An item is done.
pub(super) fn completed<A, Q>(turn: &mut Progress<A, Q>, value: &Value) {
    match item(value) {
        Item::Output(kind, said) => turn.text(kind, said),
        Item::Tool(name, input) => {
            let id = text(value, "id");
            if !turn.is_running(id) {
                turn.start(id, &name, &input);
            }
            let (ok, output) = outcome(value);
            turn.end(id, ok, output);
        }
        Item::Problem(problem) => turn.push(Activity::Notice(problem.to_owned())),
        Item::Compaction => turn.push(Activity::Notice("compacted its conversation".to_owned())),
        Item::Other => turn.alive(),
    }
}

/// What a tool came to.
fn outcome(item: &Value) -> (bool, String) {
    let status = text(item, "status");
    let exit = item.get("exit_code").or_else(|| item.get("exitCode")).and_then(Value::as_i64);
    let ok = !matches!(status, "failed" | "declined") && exit.unwrap_or_default() == 0;
    let output = ["aggregated_output", "aggregatedOutput", "result", "contentItems"]
        .iter()
        .filter_map(|key| item.get(*key))
        .map(content)
        .find(|output| !output.is_empty());
    let error = || match &item["error"] {
        Value::Object(error) => error.get("message").map(content),
        _ => None,
    };
    let output = output.or_else(error).unwrap_or_else(|| match (exit, status) {
        (Some(exit), _) if exit != 0 => format!("exit {exit}"),
        (_, "declined") => "declined".to_owned(),
        _ => String::new(),
    });
    (ok, output)
}

/// Tokens, as `exec` names them.
pub(super) fn snake_usage(counts: &Value) -> Usage {
    let names =
        ["input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens"];
    openai(counts, names)
}

/// Tokens, as the app-server names them.
pub(super) fn camel_usage(counts: &Value) -> Usage {
    openai(counts, ["inputTokens", "cachedInputTokens", "cacheWriteInputTokens", "outputTokens"])
}

/// An error of a turn. It comes with a code, or with words alone: the body of the endpoint's
/// answer if that was a refusal.
pub(super) fn failed(error: &Value) -> Failed {
    let message = text(error, "message");
    let (name, status) = match &error["codexErrorInfo"] {
        Value::String(name) => (name.as_str(), None),
        Value::Object(info) => match info.iter().next() {
            Some((name, more)) => (name.as_str(), more["httpStatusCode"].as_i64()),
            None => ("", None),
        },
        _ => ("", None),
    };
    let refused = body(message);
    let kind = match (FailureKind::of_text(message), FailureKind::of_name(name)) {
        // Its names do not tell this from what is wrong.
        (Some(kind @ FailureKind::NotFound), _) => kind,
        (_, Some(kind)) if !(kind == FailureKind::Network && status.is_some()) => kind,
        (Some(kind), _) if status.is_none() => kind,
        (_, by_name) => status
            .and_then(FailureKind::of_status)
            .or(by_name)
            .or(refused.is_some().then_some(FailureKind::InvalidRequest))
            .unwrap_or(FailureKind::Other),
    };
    Failed::new(kind, refused.unwrap_or_else(|| message.to_owned()))
}

/// Which attempt failed, by `Reconnecting... 1/5`.
pub(super) fn attempt(message: &str) -> Option<u32> {
    let rest = message.strip_prefix("Reconnecting... ")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit())?;
    rest[..digits].parse().ok()
}
