//! Tool calls of an agent, which agents announce in different orders.
//!
//! ```text
//!  opencode     tool_call (pending) ─► permission ─► update (in_progress, arguments) ─► completed
//!  Claude Code  tool_call (pending) ─► update (arguments) ─► permission ─► completed
//!  Codex        tool_call (in_progress, arguments) ─► permission (another title) ─► completed
//!  Gemini       permission ─► completed
//! ```
//!
//! A call is told when its arguments are known, or when it runs, whatever comes first.

use std::collections::BTreeMap;

use serde_json::Value;

use super::names::{Maker, Name, may_be_own};
use super::reading::output;
use crate::provider::activity::{content, text};
use crate::provider::progress::Progress;

/// Most calls of a turn that are remembered.
const MAX_CALLS: usize = 4096;
/// Longest name that is remembered, in bytes.
const MAX_NAME: usize = 1 << 10;

/// The calls of the running turn.
#[derive(Debug, Default)]
pub(super) struct Tools {
    /// Whose they are.
    pub(super) maker: Maker,
    seen: BTreeMap<String, Seen>,
}

#[derive(Debug)]
struct Seen {
    tool: String,
    is_own: bool,
    ended: bool,
}

impl Tools {
    /// A `tool_call` or a `tool_call_update`.
    pub(super) fn update<A, Q>(&mut self, call: &Value, turn: &mut Progress<A, Q>) {
        let (id, status) = (text(call, "toolCallId"), text(call, "status"));
        let has_ended = matches!(status, "completed" | "failed");
        let name = self.maker.name(call, &Value::Null);
        let Some(seen) = self.see(id, &name) else { return turn.alive() };
        if !seen.ended && !turn.is_running(id) {
            let input = arguments(&call["rawInput"]);
            if !is_empty(input) || has_ended || status == "in_progress" {
                turn.start(id, &seen.tool, input);
            }
        }
        turn.alive();
        if has_ended && !std::mem::replace(&mut seen.ended, true) {
            turn.end(id, status == "completed", output(call));
        }
    }

    /// A call that is asked about, and the answers that are offered. Gives the tool and its
    /// arguments.
    pub(super) fn asked<A, Q>(
        &mut self,
        (call, options): (&Value, &Value),
        turn: &mut Progress<A, Q>,
    ) -> (String, Value) {
        let id = text(call, "toolCallId");
        let is_new = !self.seen.contains_key(id);
        let input = match arguments(&call["rawInput"]) {
            Value::Null => {
                let said = content(&call["content"]);
                serde_json::from_str(&said).unwrap_or(Value::String(said))
            }
            input => input.clone(),
        };
        let name = self.maker.name(call, options);
        let told_before = self.maker.tells_before() && may_be_own(call);
        let Some(seen) = self.see(id, &name) else { return (name.tool, input) };
        if !seen.ended && !turn.is_running(id) && (is_new || !is_empty(&input)) {
            turn.start(id, &seen.tool, &input);
        }
        let holds = !name.is_own && (!seen.is_own || told_before);
        (if holds { seen.tool.clone() } else { name.tool }, input)
    }

    /// The turn is over.
    pub(super) fn clear(&mut self) {
        self.seen.clear();
    }

    fn see(&mut self, id: &str, name: &Name) -> Option<&mut Seen> {
        let is_known = self.seen.contains_key(id);
        if id.is_empty() || id.len() > MAX_NAME || (!is_known && self.seen.len() >= MAX_CALLS) {
            return None;
        }
        let tool = || name.tool[..name.tool.floor_char_boundary(MAX_NAME)].to_owned();
        let new = || Seen { tool: tool(), is_own: name.is_own, ended: false };
        Some(self.seen.entry(id.to_owned()).or_insert_with(new))
    }
}

/// The arguments of a tool. Codex puts those of an MCP tool one deeper, and in a question further
/// down.
fn arguments(input: &Value) -> &Value {
    let asked = &input["request"]["_meta"]["tool_params"];
    match input.get("arguments").filter(|_| input["server"].is_string()) {
        Some(arguments) => arguments,
        None if asked.is_object() => asked,
        None => input,
    }
}

fn is_empty(input: &Value) -> bool {
    match input {
        Value::Null => true,
        Value::Object(entries) => entries.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}
