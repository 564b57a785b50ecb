//! What a request says, whichever API it is in.

use serde_json::Value;

use super::{anthropic, chat, gemini, responses};

/// The APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Api {
    Anthropic,
    Chat,
    Responses,
    Gemini,
}

/// A request, as far as an answer depends on it.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) system: String,
    pub(super) turns: Vec<Turn>,
    pub(super) tools: Vec<Tool>,
}

#[derive(Debug)]
pub(super) enum Turn {
    User(String),
    Result(String),
}

/// A tool that is offered to the model.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    pub(super) name: String,
    /// Responses only: to be repeated in a call.
    pub(super) namespace: Option<String>,
}

/// What agents wrap around texts of their own among the user's.
const ADDED: &[&str] = &[
    "<system-reminder>",
    "<environment_context>",
    "<session_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
];

impl Conversation {
    pub(super) fn read(api: Api, path: &str, body: &Value) -> Self {
        match api {
            Api::Anthropic => anthropic::read(body),
            Api::Chat => chat::read(body),
            Api::Responses => responses::read(body),
            Api::Gemini => gemini::read(path, body),
        }
    }

    /// Adds what the user said, unless the agent did.
    pub(super) fn user(&mut self, text: &str) {
        let text = text.trim();
        if !text.is_empty() && !ADDED.iter().any(|tag| text.starts_with(tag)) {
            self.turns.push(Turn::User(text.to_owned()));
        }
    }

    pub(super) fn result(&mut self, text: String) {
        self.turns.push(Turn::Result(text));
    }

    pub(super) fn offer(&mut self, name: &Value, namespace: Option<&str>) {
        let name = name.as_str().unwrap_or_default().to_owned();
        self.tools.push(Tool { name, namespace: namespace.map(str::to_owned) });
    }

    /// Whether an agent asks for itself and not for its user: with no tools, it is told at once
    /// that titles are its task.
    pub(super) fn is_aside(&self) -> bool {
        let start: String = self.system.chars().take(200).collect();
        self.tools.is_empty() && start.to_lowercase().contains("title")
    }

    /// What the user said, in order.
    pub(super) fn said(&self) -> Vec<&str> {
        let texts = self.turns.iter().filter_map(|turn| match turn {
            Turn::User(text) => Some(text.as_str()),
            Turn::Result(_) => None,
        });
        texts.collect()
    }

    /// Results of tools since the user last spoke.
    pub(super) fn results(&self) -> Vec<&str> {
        let mut found = Vec::new();
        for turn in &self.turns {
            match turn {
                Turn::User(_) => found.clear(),
                Turn::Result(text) => found.push(text.as_str()),
            }
        }
        found
    }

    /// The offered tool that a script means, by the end of its name. The name of its server may
    /// stand before, with however many underscores this agent puts between.
    pub(super) fn tool(&self, name: &str) -> Option<&Tool> {
        let name = single(name);
        let ends = format!("_{name}");
        let exact = self.tools.iter().find(|tool| single(&tool.name) == name);
        exact.or_else(|| self.tools.iter().find(|tool| tool.full().ends_with(&ends)))
    }
}

impl Tool {
    fn full(&self) -> String {
        single(&format!("_{}_{}", self.namespace.as_deref().unwrap_or_default(), self.name))
    }
}

fn single(name: &str) -> String {
    name.replace("__", "_")
}

/// The texts of a content that is a string or a list of blocks.
pub(super) fn texts(content: &Value) -> Vec<&str> {
    match content {
        Value::String(text) => vec![text],
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        _ => Vec::new(),
    }
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
