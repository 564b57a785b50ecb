//! What is known of the processes that ran a turn.

use crate::model::{Event, LimitHit, ProcessExited, TurnId};

/// What is known of the processes that ran a turn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProcessReport {
    /// The end of what they wrote to standard error.
    pub stderr: String,
    /// Bytes that they wrote there.
    pub stderr_bytes: u64,
    /// Those that ended.
    pub exits: Vec<ProcessExited>,
    /// Limits that they met.
    pub limits: Vec<LimitHit>,
    /// Why they ran without a sandbox, if they did.
    pub unsandboxed: Option<String>,
}

impl ProcessReport {
    /// Takes an event, if it is about a process of this turn.
    pub(super) fn take(&mut self, turn: TurnId, event: &Event) -> bool {
        match event {
            Event::TurnStderr(data) if data.turn_id == turn => {
                self.stderr.clone_from(&data.text);
                self.stderr_bytes = data.bytes;
            }
            Event::ProcessExited(data) if data.turn_id == Some(turn) => {
                self.exits.push(data.clone());
            }
            Event::LimitHit(data) if data.turn_id == Some(turn) => self.limits.push(data.clone()),
            Event::SandboxOff(data) if data.turn_id == turn => {
                self.unsandboxed = Some(data.reason.clone());
            }
            _ => return false,
        }
        true
    }
}
