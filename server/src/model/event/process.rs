//! The data of events about processes of providers.

use serde::{Deserialize, Serialize};

use crate::model::{LimitKind, TurnId, WorkspaceId};

data! {
    /// Data of `turn.stderr`.
    TurnStderr {
        /// The turn.
        turn_id: TurnId,
        /// The end of what was written.
        text: String,
        /// Bytes that were written.
        bytes: u64,
    }

    /// Data of `process.exited`.
    ProcessExited {
        /// The turn in which it was; absent between turns.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn_id: Option<TurnId>,
        /// Its id on the host.
        pid: u32,
        /// How it ended: `exit 3`, `signal 9 (SIGKILL)`; `unknown` where no daemon saw it.
        status: String,
        /// Why it was ended; absent if nobody ended it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The workspace that it was in, if it was of no agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workspace_id: Option<WorkspaceId>,
    }

    /// Data of `limit.hit`.
    LimitHit {
        /// The turn in which it was; absent between turns.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn_id: Option<TurnId>,
        /// The workspace whose limit it is.
        workspace_id: WorkspaceId,
        /// Which limit.
        limit: LimitKind,
        /// What happened.
        detail: String,
    }

    /// Data of `sandbox.off`.
    SandboxOff {
        /// The turn whose process ran without a sandbox.
        turn_id: TurnId,
        /// Why.
        reason: String,
    }
}
