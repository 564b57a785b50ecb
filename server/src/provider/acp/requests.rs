//! What an agent is asked.

use serde_json::{Value, json};

/// The version of the protocol that is spoken here.
pub const VERSION: u64 = 1;

/// An MCP server that the agent is to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpServer {
    /// A program that it starts.
    Stdio {
        /// The name of the server.
        name: String,
        /// The program, by its absolute path.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// What is added to its environment.
        env: Vec<(String, String)>,
    },
    /// A URL. Only for agents that say that they can.
    Http {
        /// The name of the server.
        name: String,
        /// Where it is.
        url: String,
        /// Headers of each request.
        headers: Vec<(String, String)>,
    },
}

impl McpServer {
    pub(super) fn to_json(&self) -> Value {
        let pairs = |pairs: &[(String, String)]| -> Vec<Value> {
            pairs.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
        };
        match self {
            Self::Stdio { name, command, args, env } => {
                json!({"name": name, "command": command, "args": args, "env": pairs(env)})
            }
            Self::Http { name, url, headers } => {
                json!({"type": "http", "name": name, "url": url, "headers": pairs(headers)})
            }
        }
    }
}

/// How a session comes to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open<'a> {
    /// A new one.
    New,
    /// One of before, of which the agent tells the history again.
    Load(&'a str),
    /// One of before, without its history.
    Resume(&'a str),
}

impl Open<'_> {
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::New => "session/new",
            Self::Load(_) => "session/load",
            Self::Resume(_) => "session/resume",
        }
    }

    pub(super) fn session(self) -> Option<String> {
        match self {
            Self::New => None,
            Self::Load(id) | Self::Resume(id) => Some(id.to_owned()),
        }
    }
}

pub(super) fn initialize(version: &str) -> Value {
    json!({
        "protocolVersion": VERSION,
        // The agent sees to files and commands itself.
        "clientCapabilities": {
            "fs": {"readTextFile": false, "writeTextFile": false},
            "terminal": false,
            // Codex's adapter tells who says so of failures, and all others that all is well.
            "_meta": {"jetbrains": {"air": {"version": 1, "capabilities": ["sessionFailure"]}}},
        },
        "clientInfo": {"name": "substrat", "title": "Substrat", "version": version},
    })
}

pub(super) fn open(open: Open<'_>, cwd: &str, servers: &[McpServer]) -> Value {
    let servers: Vec<Value> = servers.iter().map(McpServer::to_json).collect();
    let mut params = json!({"cwd": cwd, "mcpServers": servers});
    if let Some(session) = open.session() {
        params["sessionId"] = json!(session);
    }
    params
}

pub(super) fn prompt(session: &str, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}
