//! What providers tell of their processes.

use super::Plan;
use crate::model::{
    AgentId, LimitHit, LimitKind, Outcome, ProcessExited, SandboxOff, TurnId, TurnStderr,
    WorkspaceId,
};

/// Most bytes of what a process wrote to its standard error that are kept: its end.
const MAX_STDERR: usize = 16 << 10;
/// Most bytes of a sentence.
const MAX_TEXT: usize = 1 << 10;

impl Plan<'_, '_> {
    /// Notes what was written in the running turn.
    pub(super) fn report_stderr(
        &mut self,
        id: AgentId,
        turn_id: TurnId,
        text: &str,
        bytes: u64,
    ) -> Outcome {
        let agent = self.state.live_agent(id).filter(|agent| agent.turn_is(turn_id).is_some());
        let Some(agent) = agent else { return Outcome::Done };
        let start = text.ceil_char_boundary(text.len().saturating_sub(MAX_STDERR));
        let text = text[start..].to_owned();
        self.push(agent.session.id, TurnStderr { turn_id, text, bytes });
        Outcome::Turn(turn_id)
    }

    /// Notes the end of a process, of the running turn or between turns.
    pub(super) fn report_exit(
        &mut self,
        id: AgentId,
        turn: Option<TurnId>,
        pid: u32,
        status: String,
        reason: Option<String>,
    ) -> Outcome {
        let Some(agent) = self.state.agent(id) else { return Outcome::Done };
        let turn_id = turn.filter(|turn| agent.turn_is(*turn).is_some());
        let (status, reason) = (clip(status), reason.map(clip));
        let exited = ProcessExited { turn_id, pid, status, reason, workspace_id: None };
        self.push(agent.session.id, exited);
        Outcome::Done
    }

    /// Notes that a process met a limit, in the running turn or between turns; one of no agent in
    /// the daemon's own log.
    pub(super) fn report_limit(
        &mut self,
        id: Option<AgentId>,
        turn: Option<TurnId>,
        workspace: Option<WorkspaceId>,
        limit: LimitKind,
        detail: String,
    ) -> Outcome {
        let Some(id) = id else { return self.report_limit_of_user(workspace, limit, detail) };
        let Some(agent) = self.state.agent(id) else { return Outcome::Done };
        let theirs = || self.state.world(agent).map(|world| world.workspace);
        let Some(workspace_id) = workspace.or_else(theirs) else { return Outcome::Done };
        let turn_id = turn.filter(|turn| agent.turn_is(*turn).is_some());
        let detail = clip(detail);
        self.push(agent.session.id, LimitHit { turn_id, workspace_id, limit, detail });
        Outcome::Done
    }

    /// Notes that a command of a user met a limit of a workspace.
    fn report_limit_of_user(
        &mut self,
        workspace: Option<WorkspaceId>,
        limit: LimitKind,
        detail: String,
    ) -> Outcome {
        let known = workspace.and_then(|id| self.state.workspace(id));
        if let Some(workspace_id) = known.map(|workspace| workspace.id) {
            let detail = clip(detail);
            self.push(None, LimitHit { turn_id: None, workspace_id, limit, detail });
        }
        Outcome::Done
    }

    /// Notes that the running turn has a process outside of any sandbox.
    pub(super) fn report_unsandboxed(
        &mut self,
        id: AgentId,
        turn_id: TurnId,
        reason: String,
    ) -> Outcome {
        let agent = self.state.live_agent(id).filter(|agent| agent.turn_is(turn_id).is_some());
        let Some(agent) = agent else { return Outcome::Done };
        self.push(agent.session.id, SandboxOff { turn_id, reason: clip(reason) });
        Outcome::Turn(turn_id)
    }
}

fn clip(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}
