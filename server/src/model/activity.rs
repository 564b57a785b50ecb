//! What the backend of a running turn does, as far as the state keeps it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::subscription::is_zero;
use super::{
    Agent, Blob, ChoiceKind, Entry, Event, Json, MessageId, PermissionId, Permit, Timestamp,
};

/// A tool of the backend that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolUse {
    /// The backend's name for the use.
    pub id: Arc<str>,
    /// The tool.
    pub tool: Arc<str>,
}

/// An answer that a backend offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Names it to the backend.
    pub id: String,
    /// What the backend calls it.
    pub name: String,
    /// What it means.
    pub kind: ChoiceKind,
}

/// A question whether a tool may be used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Permission {
    /// Identity.
    pub id: PermissionId,
    /// The tool use that it is about, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_id: Option<Arc<str>>,
    /// The tool, by the backend's name for it.
    pub tool: Arc<str>,
    /// Its arguments.
    pub input: Json,
    /// What the backend offers as answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<Choice>,
}

impl Eq for Permission {}

/// A question that is not answered yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenPermission {
    /// When it was asked.
    pub at: Timestamp,
    /// The question.
    pub permission: Permission,
}

/// An answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionAnswer {
    /// The answer.
    pub decision: Permit,
    /// Why.
    pub reason: Option<String>,
}

/// Nothing is heard of a backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// When it was noticed.
    pub at: Timestamp,
    /// How long nothing had been heard then, in milliseconds.
    pub silent_ms: u64,
    /// The tool of the backend that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Arc<str>>,
}

impl Stall {
    /// When something was heard last.
    pub fn since(&self) -> Timestamp {
        let silent = i64::try_from(self.silent_ms.saturating_mul(1000)).unwrap_or(i64::MAX);
        Timestamp::from_micros(self.at.as_micros().saturating_sub(silent))
    }
}

/// What is known of the backend of a running turn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Backend {
    /// Its tools that run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<ToolUse>,
    /// How many uses of its tools were logged.
    #[serde(default)]
    pub started: u32,
    /// How many notices were logged.
    #[serde(default)]
    pub notices: u32,
    /// What it asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<OpenPermission>,
    /// How many questions were logged.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub asked: u32,
    /// That nothing is heard of it, until the next event of the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<Stall>,
}

impl Backend {
    pub(super) fn is_blank(&self) -> bool {
        *self == Self::default()
    }
}

/// What a runner tells of a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// A text that something followed.
    Said(Arc<str>),
    /// A tool of the backend starts.
    UseStarted {
        /// Names the use.
        id: Arc<str>,
        /// The tool.
        tool: Arc<str>,
        /// Its arguments.
        input: Json,
    },
    /// It ended.
    UseEnded {
        /// The use.
        id: Arc<str>,
        /// Whether it did what it should.
        ok: bool,
        /// What it gave.
        output: String,
    },
    /// Something for people.
    Notice(String),
    /// Nothing was heard for so many milliseconds.
    Stalled(u64),
    /// The backend took a message in while the turn ran.
    TookIn {
        /// The message.
        message: MessageId,
        /// What the backend was told.
        text: Arc<str>,
    },
    /// What the session is to be resumed from.
    Saved(Blob),
}

impl Agent {
    /// Questions of the running turn that are not answered yet.
    pub fn questions(&self) -> &[OpenPermission] {
        self.turn().map_or(&[], |turn| &turn.backend.questions)
    }

    pub(super) fn apply_to_backend(&mut self, entry: &Entry) {
        let Some(backend) = self.turn_mut().map(|turn| &mut turn.backend) else { return };
        match &entry.event {
            Event::ToolUseStarted(data) => {
                backend.started += 1;
                let (id, tool) = (data.use_id.clone(), data.tool.clone());
                backend.uses.push(ToolUse { id, tool });
            }
            Event::ToolUseEnded(data) => backend.uses.retain(|one| one.id != data.use_id),
            Event::TurnNotice(_) => backend.notices += 1,
            Event::TurnStalled(data) => {
                let (silent_ms, tool) = (data.silent_ms, data.tool.clone());
                backend.stall = Some(Stall { at: entry.at, silent_ms, tool });
            }
            Event::PermissionAsked(data) => {
                backend.asked += 1;
                backend.questions.push(OpenPermission {
                    at: entry.at,
                    permission: Permission {
                        id: data.permission_id,
                        use_id: data.use_id.clone(),
                        tool: data.tool.clone(),
                        input: data.input.clone(),
                        options: data.options.clone(),
                    },
                });
            }
            Event::PermissionAnswered(data) => backend.close(data.permission_id),
            Event::PermissionWithdrawn(data) => backend.close(data.permission_id),
            _ => {}
        }
    }
}

impl Backend {
    fn close(&mut self, id: PermissionId) {
        self.questions.retain(|open| open.permission.id != id);
    }
}
