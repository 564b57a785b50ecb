//! Lines that are written to Claude Code with `--input-format stream-json`.

use serde_json::{Value, json};

/// A message for it to work on. The id names it in what the CLI says of its way.
pub fn user(uuid: &str, text: &str) -> String {
    line(&json!({
        "type": "user",
        "message": {"role": "user", "content": text},
        "uuid": uuid,
    }))
}

/// Something that it is to do beside turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control<'a> {
    /// Tells what it can do. Optional.
    Initialize,
    /// Ends the running turn.
    Interrupt,
    /// Goes on with another model.
    SetModel(&'a str),
    /// Asks more, or less.
    SetPermissionMode(&'a str),
    /// Tells which MCP servers are there.
    McpStatus,
}

/// A request to do something, of which the CLI says by its id what came of it.
pub fn control(request: &str, control: Control<'_>) -> String {
    let what = match control {
        Control::Initialize => json!({"subtype": "initialize", "hooks": {}}),
        Control::Interrupt => json!({"subtype": "interrupt"}),
        Control::SetModel(model) => json!({"subtype": "set_model", "model": model}),
        Control::SetPermissionMode(mode) => json!({"subtype": "set_permission_mode", "mode": mode}),
        Control::McpStatus => json!({"subtype": "mcp_status"}),
    };
    line(&json!({"type": "control_request", "request_id": request, "request": what}))
}

/// The answer to a request of the CLI.
pub(super) fn response(request: &str, response: &Value) -> String {
    line(&json!({
        "type": "control_response",
        "response": {"subtype": "success", "request_id": request, "response": response},
    }))
}

/// A refusal of a request of the CLI.
pub(super) fn refusal(request: &str, error: &str) -> String {
    line(&json!({
        "type": "control_response",
        "response": {"subtype": "error", "request_id": request, "error": error},
    }))
}

fn line(message: &Value) -> String {
    format!("{message}\n")
}
