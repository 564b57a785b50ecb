//! What Substrat and a program say to each other: one JSON object a line. `docs/program.md`
//! documents each field.

use std::time::Duration;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::lines::quote;
use crate::model::{FailureClass, Json, Message, MessageId, ToolSpec, TurnId, Usage};
use crate::provider::{Failure, Prompt};

/// Longest state that is kept, in bytes of JSON.
const MAX_STATE: usize = 256 << 10;
/// How deep arguments may be nested: what stands in a log must be readable, with what is around
/// it.
const MAX_DEPTH: usize = 100;

/// What a program is told.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ToProgram<'a> {
    /// Run a turn.
    Turn {
        turn: TurnId,
        agent: &'a str,
        prompt: &'a str,
        messages: Vec<Received<'a>>,
        /// In the first turn of a process.
        #[serde(skip_serializing_if = "Option::is_none")]
        instructions: Option<&'a str>,
        /// In the first turn of a process.
        #[serde(skip_serializing_if = "Option::is_none")]
        tools: Option<Vec<Offered<'a>>>,
        /// What the last turn that was done left.
        state: Option<&'a RawValue>,
    },
    /// What a tool call came to.
    Result {
        id: &'a RawValue,
        #[serde(flatten)]
        outcome: CallOutcome<'a>,
    },
    /// End the turn.
    Cancel,
}

/// What a tool call came to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallOutcome<'a> {
    /// Its result.
    Result(&'a Json),
    /// Why it has none.
    Error(&'a str),
}

/// A message of a turn.
#[derive(Debug, Serialize)]
pub(super) struct Received<'a> {
    id: MessageId,
    from: &'a str,
    kind: &'static str,
    text: &'a str,
    reply_to: Option<MessageId>,
}

/// A tool.
#[derive(Debug, Serialize)]
pub(super) struct Offered<'a> {
    name: &'static str,
    description: &'static str,
    input_schema: &'a Value,
}

impl<'a> ToProgram<'a> {
    /// The turn of a prompt. The first one that a process is given says who it is.
    pub(super) fn turn(
        prompt: &'a Prompt,
        state: Option<&'a RawValue>,
        instructions: Option<&'a str>,
    ) -> Self {
        let offered = |tool: &&'static ToolSpec| Offered {
            name: tool.name,
            description: tool.description,
            input_schema: &tool.schema,
        };
        let received = |message: &'a Message| Received {
            id: message.id,
            from: message.sender_name.as_str(),
            kind: message.kind.as_str(),
            text: &message.text,
            reply_to: message.reply_to,
        };
        Self::Turn {
            turn: prompt.turn,
            agent: prompt.agent.as_str(),
            prompt: &prompt.text,
            messages: prompt.messages.iter().map(received).collect(),
            instructions,
            tools: instructions.map(|_| prompt.tools.iter().map(offered).collect()),
            state,
        }
    }

    /// Adds it to what is to be written, as a line.
    pub(super) fn write_to(&self, bytes: &mut Vec<u8>) -> Result<(), Failure> {
        let written = serde_json::to_writer(&mut *bytes, self);
        bytes.push(b'\n');
        written.map_err(|error| Failure::permanent(format!("this cannot be told: {error}")))
    }
}

/// What a program says.
#[derive(Debug, Clone)]
pub enum Said {
    /// A piece of the answer.
    Text(String),
    /// A piece of its thoughts.
    Thinking(String),
    /// A tool call.
    Call {
        /// Names its result.
        id: Box<RawValue>,
        /// The tool.
        tool: String,
        /// Its arguments.
        args: Json,
    },
    /// What it used since it last said so.
    Usage(Usage),
    /// The turn is done.
    Done {
        /// The answer.
        response: String,
        /// To be kept for the next turn; none for what was kept before.
        state: Option<Box<RawValue>>,
    },
    /// The turn failed.
    Error(Failure),
}

#[derive(Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(rename = "type")]
    _kind: IgnoredAny,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    #[serde(rename = "type")]
    _kind: IgnoredAny,
    id: Box<RawValue>,
    tool: String,
    #[serde(default)]
    args: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Used {
    #[serde(rename = "type")]
    _kind: IgnoredAny,
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
    #[serde(default)]
    cache_read_tokens: u64,
    #[serde(default)]
    cache_write_tokens: u64,
    #[serde(default)]
    cost_micro_usd: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Done {
    #[serde(rename = "type")]
    _kind: IgnoredAny,
    response: String,
    #[serde(default)]
    state: Option<Box<RawValue>>,
}

/// What a program may say of its failure; other classes are the daemon's to say.
#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "snake_case")]
enum Class {
    Transient,
    #[default]
    Permanent,
    Overflow,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Failed {
    #[serde(rename = "type")]
    _kind: IgnoredAny,
    message: String,
    #[serde(default)]
    class: Class,
    #[serde(default)]
    retry_after_seconds: Option<u64>,
}

/// Reads a line.
///
/// # Errors
///
/// What is wrong with it, in one line.
pub fn parse(line: &str) -> Result<Said, String> {
    let bad = |error: serde_json::Error| bad_line(line, &error.to_string());
    let Kind { kind } = serde_json::from_str(line).map_err(bad)?;
    Ok(match kind.as_str() {
        "text" => Said::Text(read::<Text>(line)?.text),
        "thinking" => Said::Thinking(read::<Text>(line)?.text),
        "call" => {
            let Call { id, tool, args, .. } = read(line)?;
            let args = args.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
            if depth(&args) > MAX_DEPTH {
                let problem = format!("args are nested more than {MAX_DEPTH} deep");
                return Err(bad_line(line, &problem));
            }
            Said::Call { id, tool, args: Json::of(&args).map_err(bad)? }
        }
        "usage" => {
            let used: Used = read(line)?;
            Said::Usage(Usage {
                input_tokens: used.input_tokens,
                output_tokens: used.output_tokens,
                cache_read_tokens: used.cache_read_tokens,
                cache_write_tokens: used.cache_write_tokens,
                cost_micro_usd: used.cost_micro_usd,
                ..Usage::default()
            })
        }
        "done" => {
            let Done { response, state, .. } = read(line)?;
            if let Some(size) = state.as_ref().map(|state| state.get().len())
                && size > MAX_STATE
            {
                let problem = format!("a state of {size} bytes; {MAX_STATE} are allowed");
                return Err(bad_line(line, &problem));
            }
            Said::Done { response, state }
        }
        "error" => {
            let Failed { message, class, retry_after_seconds, .. } = read(line)?;
            let class = match class {
                Class::Transient => FailureClass::Transient,
                Class::Permanent => FailureClass::Permanent,
                Class::Overflow => FailureClass::Overflow,
            };
            let retry_after = retry_after_seconds.map(Duration::from_secs);
            Said::Error(Failure { class, message, retry_after })
        }
        _ => return Err(bad_line(line, "its type is none that is known")),
    })
}

fn read<T: DeserializeOwned>(line: &str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| bad_line(line, &error.to_string()))
}

fn bad_line(line: &str, problem: &str) -> String {
    // It may hold a name of a field as the program wrote it.
    let problem = problem[..problem.floor_char_boundary(200)].replace(char::is_control, " ");
    format!(
        "it wrote what is no message of the protocol: {problem}: \"{}\"",
        quote(line.as_bytes())
    )
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or(0),
        Value::Object(entries) => 1 + entries.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
