//! The data of events about what a backend does in a turn.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Json;
use crate::model::{Choice, PermissionId, TurnId};

data! {
    /// Data of `turn.said`.
    TurnSaid {
        /// The turn.
        turn_id: TurnId,
        /// What the model said before it went on.
        text: Arc<str>,
    }

    /// Data of `tool_use.started`.
    ToolUseStarted {
        /// The turn.
        turn_id: TurnId,
        /// The backend's name for the use.
        use_id: Arc<str>,
        /// The tool, by the backend's name for it.
        tool: Arc<str>,
        /// Its arguments.
        input: Json,
    }

    /// Data of `tool_use.ended`.
    ToolUseEnded {
        /// The turn.
        turn_id: TurnId,
        /// The use.
        use_id: Arc<str>,
        /// The tool.
        tool: Arc<str>,
        /// Whether it did what it should.
        ok: bool,
        /// What it gave.
        output: String,
    }

    /// Data of `turn.notice`.
    TurnNotice {
        /// The turn.
        turn_id: TurnId,
        /// What the backend tells people.
        text: String,
    }

    /// Data of `turn.stalled`.
    TurnStalled {
        /// The turn.
        turn_id: TurnId,
        /// For how many milliseconds nothing was heard of the backend.
        silent_ms: u64,
        /// The tool of the backend that runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool: Option<Arc<str>>,
    }

    /// Data of `permission.asked`.
    PermissionAsked {
        /// Identity of the question.
        permission_id: PermissionId,
        /// The turn.
        turn_id: TurnId,
        /// The tool use that it is about, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        use_id: Option<Arc<str>>,
        /// The tool, by the backend's name for it.
        tool: Arc<str>,
        /// Its arguments.
        input: Json,
        /// What the backend offers as answers.
        options: Vec<Choice>,
    }

    /// Data of `permission.answered`.
    PermissionAnswered {
        /// The question.
        permission_id: PermissionId,
        /// The turn.
        turn_id: TurnId,
        /// The answer.
        decision: Permit,
        /// Who gave it.
        by: AnsweredBy,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    }

    /// Data of `permission.withdrawn`.
    PermissionWithdrawn {
        /// The question.
        permission_id: PermissionId,
        /// The turn.
        turn_id: TurnId,
    }
}

words! {
    /// The answer to a question.
    Permit {
        /// Yes.
        Allow = "allow",
        /// Yes, and do not ask again.
        Always = "always",
        /// No.
        Deny = "deny",
    }

    /// Who answered a question.
    AnsweredBy {
        /// A person.
        User = "user",
        /// The settings of the provider.
        Policy = "policy",
    }

    /// What an answer that a backend offers means.
    ChoiceKind {
        /// Yes.
        AllowOnce = "allow_once",
        /// Yes, and do not ask again.
        AllowAlways = "allow_always",
        /// No.
        RejectOnce = "reject_once",
        /// No, and do not ask again.
        RejectAlways = "reject_always",
    }
}
