//! What a tool is called, and whether it is one of Substrat's.
//!
//! With many agents a model writes the title and the arguments of a call, and so what it likes. A
//! call is one of Substrat's only where the agent's program itself shows that:
//!
//! ```text
//!  Claude Code  the tool in _meta of what it tells, before it asks
//!  Codex        "Tool: SERVER/TOOL" and arguments of just that form, before it asks
//!  Gemini       the title of a question whose answers are those for tools of MCP servers
//!  opencode     the title of a call without arguments, from which a title could be made
//!  others       nothing
//! ```
//!
//! What runs commands, reads, writes or fetches by its kind is never one of Substrat's.

use serde_json::Value;

use crate::provider::activity::{own_tool, text};

/// The answer by which Gemini allows a whole MCP server.
pub(super) const ALL_OF_SERVER: &str = "proceed_always_server";

/// Who made an agent, by its own name for itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Maker {
    Claude,
    Codex,
    Gemini,
    Opencode,
    #[default]
    Other,
}

/// What a message calls a tool.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// Means a tool of Substrat only if it is one.
    pub(super) tool: String,
    pub(super) is_own: bool,
}

impl Maker {
    pub(super) fn of(agent: &str) -> Self {
        let agent = agent.to_lowercase();
        let known = [
            ("claude", Self::Claude),
            ("codex", Self::Codex),
            ("gemini", Self::Gemini),
            ("opencode", Self::Opencode),
        ];
        let maker = known.into_iter().find(|(name, _)| agent.contains(name));
        maker.map_or(Self::Other, |(_, maker)| maker)
    }

    /// Whether what it told of a call before holds when it asks.
    pub(super) fn tells_before(self) -> bool {
        matches!(self, Self::Claude | Self::Codex)
    }

    /// What a message calls its tool; with the answers that are offered, if it asks.
    pub(super) fn name(self, call: &Value, options: &Value) -> Name {
        let tool = match self {
            Self::Claude => call["_meta"]["claudeCode"]["toolName"].as_str().map(str::to_owned),
            Self::Codex => of_codex(call),
            _ => None,
        };
        let is_shown = match self {
            Self::Claude | Self::Codex => tool.is_some(),
            Self::Gemini => {
                let mut options = options.as_array().into_iter().flatten();
                options.any(|option| text(option, "optionId") == ALL_OF_SERVER)
            }
            Self::Opencode => call["rawInput"].as_object().is_some_and(serde_json::Map::is_empty),
            Self::Other => false,
        };
        let tool = tool.unwrap_or_else(|| text(call, "title").to_owned());
        match (own_tool(&tool).is_some(), is_shown && may_be_own(call)) {
            (true, true) => Name { tool, is_own: true },
            // It is seen that this is what somebody called it.
            (true, false) => Name { tool: format!("{tool:?}"), is_own: false },
            (false, _) => Name { tool, is_own: false },
        }
    }
}

/// Whether its kind is that of tools of MCP servers.
pub(super) fn may_be_own(call: &Value) -> bool {
    matches!(text(call, "kind"), "" | "other")
}

fn of_codex(call: &Value) -> Option<String> {
    let input = call["rawInput"].as_object()?;
    let (server, tool) = (input.get("server")?.as_str()?, input.get("tool")?.as_str()?);
    let is_call = input.keys().all(|key| matches!(key.as_str(), "server" | "tool" | "arguments"))
        && text(call, "title") == format!("Tool: {server}/{tool}");
    is_call.then(|| format!("{server}.{tool}"))
}
