//! Callers that go away.

use super::Plan;
use crate::model::{AgentId, CallId, Expiry, Outcome, WaitExpired};

impl Plan<'_, '_> {
    /// Nobody waits for a call any more: if it waits for an answer, that wait is over. A call that
    /// works on files finishes.
    pub(super) fn cancel_call(&mut self, id: AgentId, call_id: CallId) -> Outcome {
        let Some(agent) = self.state.live_agent(id) else { return Outcome::Done };
        let wait = agent.wait().filter(|wait| wait.call == call_id && wait.over.is_none());
        if let (Some(turn), Some(_)) = (agent.turn(), wait) {
            let (turn_id, outcome) = (turn.id, Expiry::Cancelled);
            self.push(agent.session.id, WaitExpired { turn_id, call_id, outcome });
        }
        Outcome::Done
    }
}
