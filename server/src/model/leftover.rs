//! Processes that a daemon which died left behind.

use super::decide::Draft;
use super::{ProcessExited, SessionId, State, WorkspaceId};

/// A process of which it was recorded that it runs, when the daemon died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leftover {
    /// Its id on the host.
    pub pid: u32,
    /// The session that it was a process of; none for a command of a user.
    pub session: Option<SessionId>,
    /// The workspace that it was in.
    pub workspace: Option<WorkspaceId>,
    /// Whether it still ran, and was ended.
    pub ended: bool,
}

impl Leftover {
    /// Its end as an event, in the state as the daemon that died left it. None for what was
    /// nobody's.
    pub fn told(&self, state: &State) -> Option<Draft> {
        let agent = self.session.and_then(|session| state.agent_of(session));
        let workspace_id = self.workspace.filter(|_| agent.is_none());
        if agent.is_none() && workspace_id.is_none() {
            return None;
        }
        let reason = match self.ended {
            true => "a daemon that died had left it, and the next one ended it",
            false => "it had ended when the daemon started after one that died",
        };
        let exited = ProcessExited {
            turn_id: agent.and_then(|agent| agent.turn()).map(|turn| turn.id),
            pid: self.pid,
            status: "unknown".to_owned(),
            reason: Some(reason.to_owned()),
            workspace_id,
        };
        Some((agent.map(|agent| agent.session.id), exited.into()))
    }
}
