//! What a backend does in a turn, in one shape for all of them.
//!
//! A parser is a state machine without I/O: it takes a line, and gives [`Event`]s in the order in
//! which they happened. Within a turn the following holds, whatever the backend writes:
//!
//! - a [`Activity::Text`] stands in place of the [`Activity::Delta`]s since the last text, tool or
//!   [`Activity::Void`];
//! - every [`Activity::ToolStarted`] has one [`Activity::ToolEnded`] with its id, before the turn is
//!   over;
//! - every [`Activity::Permission`] is answered, or [`Activity::Withdrawn`];
//! - the sum of [`Activity::Used`] is what was used, however the turn ends.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::OutputKind;
use super::failure::{Failed, FailureKind};
use crate::model::{Json, Usage, catalogue};

/// How deep JSON may be nested that is carried on: what stands in a log must be readable, with
/// what is around it.
const MAX_DEPTH: usize = 100;

/// Something that a backend does while a turn runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Activity {
    /// A provisional piece of output.
    Delta {
        /// What it is.
        kind: OutputKind,
        /// The piece.
        text: String,
    },
    /// A finished piece of output, in place of the provisional one.
    Text {
        /// What it is.
        kind: OutputKind,
        /// All of it.
        text: String,
    },
    /// The provisional piece is void: the model is called again.
    Void,
    /// A tool of the backend's starts.
    ToolStarted {
        /// Names the call.
        id: String,
        /// The tool, by the backend's name for it.
        tool: String,
        /// Its arguments.
        input: Json,
    },
    /// A tool ended.
    ToolEnded {
        /// The call.
        id: String,
        /// Whether it did what it should.
        ok: bool,
        /// What it gave.
        output: String,
    },
    /// The backend asks whether it may, and waits until it is answered.
    Permission {
        /// Names the question.
        request: RequestId,
        /// The tool call that it is about, if known.
        id: Option<String>,
        /// The tool.
        tool: String,
        /// Its arguments.
        input: Json,
        /// What may be answered.
        options: Vec<PermissionOption>,
    },
    /// A question needs no answer any more.
    Withdrawn {
        /// The question.
        request: RequestId,
    },
    /// The backend calls its model again, on its own.
    Retrying {
        /// Which attempt failed, from 1.
        attempt: u32,
        /// How long it waits.
        delay: Option<Duration>,
        /// What went wrong.
        failure: FailureKind,
        /// The same in words.
        message: String,
    },
    /// What was used since the last time.
    Used(Usage),
    /// The backend's name for the session became known.
    Session(String),
    /// Something for people to read.
    Notice(String),
    /// Whether an MCP server can be reached.
    McpServer {
        /// Its name.
        name: String,
        /// Whether it is ready.
        ok: bool,
    },
    /// An addition to the turn was taken in, or why not: the oldest that was not told of.
    Added(Result<(), String>),
    /// Something else that shows that it lives.
    Alive,
}

/// What a line of a backend comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<A> {
    /// Something happens in the turn.
    Activity(Activity),
    /// The turn is over. One that comes when no turn runs is of none.
    Over(TurnOver),
    /// A line that is to be written to the backend.
    Write(String),
    /// What the backend says of something that it was asked outside of turns.
    Answer(A),
}

impl<A> From<Activity> for Event<A> {
    fn from(activity: Activity) -> Self {
        Self::Activity(activity)
    }
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnOver {
    /// With an answer.
    Completed {
        /// The final text.
        response: String,
    },
    /// It was interrupted.
    Cancelled,
    /// It failed.
    Failed(Failed),
}

/// Names a request of a backend.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RequestId {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// What an answer to a question means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionKind {
    /// Yes.
    AllowOnce,
    /// Yes, and do not ask again.
    AllowAlways,
    /// No.
    RejectOnce,
    /// No, and do not ask again.
    RejectAlways,
}

/// A possible answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionOption {
    /// Names it to the backend.
    pub id: String,
    /// What the backend calls it.
    pub name: String,
    /// What it means.
    pub kind: PermissionKind,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Yes.
    Allow,
    /// Yes, and do not ask again; yes where the backend knows no more than that.
    AllowAlways,
    /// No, for a reason that the model is told if the backend carries it.
    Reject(String),
    /// The turn is being cancelled.
    Cancel,
}

/// The tool of Substrat that a backend means by a name for a tool; none for a tool of its own.
/// Each backend names the tools of MCP servers in its own way. Who reads a backend sees to it that
/// a model cannot choose such a name for something else.
pub fn own_tool(name: &str) -> Option<&str> {
    const BEFORE: [&str; 4] = ["mcp__substrat__", "substrat.", "substrat_", "mcp_substrat_"];
    const AFTER: &str = " (substrat MCP Server)";
    let before = BEFORE.iter().filter_map(|before| name.strip_prefix(before));
    let mut named = before.chain(name.strip_suffix(AFTER));
    named.find(|named| catalogue().iter().any(|tool| tool.name == *named))
}

/// JSON of a backend, to be carried on. What is nested too deep is left out.
pub fn carried(value: &Value) -> Json {
    let json = if is_shallow(value, MAX_DEPTH) {
        Json::of(value)
    } else {
        Json::of(&format!("(left out: nested more than {MAX_DEPTH} deep)"))
    };
    json.unwrap_or_else(|_| Json::null())
}

fn is_shallow(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(values) => {
            depth > 0 && values.iter().all(|value| is_shallow(value, depth - 1))
        }
        Value::Object(entries) => {
            depth > 0 && entries.values().all(|value| is_shallow(value, depth - 1))
        }
        _ => true,
    }
}

/// A text in an object; empty if there is none.
pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A number in an object; 0 if there is none.
pub(super) fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or_default()
}

/// The text of content blocks, or of what else stands for them.
pub(super) fn content(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts: Vec<String> = blocks.iter().map(content).filter(|t| !t.is_empty()).collect();
            texts.join("\n")
        }
        Value::Object(block) => match (block.get("text"), block.get("content")) {
            // Some wrap the text, or the block, once more.
            (Some(inner), _) | (None, Some(inner)) => content(inner),
            (None, None) => match block.get("type").and_then(Value::as_str) {
                Some("diff") => format!("changed {}", text(value, "path")),
                Some(kind) => format!("({kind})"),
                None => value.to_string(),
            },
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_of_substrat_are_known_by_every_name_that_backends_have_for_them() {
        for name in [
            "mcp__substrat__send_message",
            "substrat.send_message",
            "substrat_send_message",
            "mcp_substrat_send_message",
            "send_message (substrat MCP Server)",
        ] {
            assert_eq!(own_tool(name), Some("send_message"), "{name}");
        }
        for name in
            ["send_message", "mcp__other__send_message", "substrat_status", "substrat.", "Bash", ""]
        {
            assert_eq!(own_tool(name), None, "{name}");
        }
    }
}
