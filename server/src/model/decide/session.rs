//! Low-level control of sessions.

use super::Plan;
use crate::model::{
    Outcome, Rejection, Saved, SessionDeleted, SessionId, SessionResuming, SessionState,
    SessionSuspending, SuspendReason, SuspendResult,
};

impl Plan<'_, '_> {
    pub(super) fn suspend_session(&mut self, reference: &str) -> Result<Outcome, Rejection> {
        let agent = self.state.resolve_session(reference)?;
        let (session, name) = (&agent.session, agent.name.clone());
        match session.state {
            SessionState::Terminated => return Err(Rejection::SessionTerminated { name }),
            SessionState::Active if agent.turn().is_some() => {
                return Err(Rejection::SessionBusy { name });
            }
            SessionState::Active => {
                self.push(session.id, SessionSuspending { reason: SuspendReason::Requested });
            }
            SessionState::Created | SessionState::Suspending | SessionState::Suspended => {}
        }
        Ok(Outcome::Session(session.id))
    }

    pub(super) fn resume_session(&mut self, reference: &str) -> Result<Outcome, Rejection> {
        let agent = self.state.resolve_session(reference)?;
        match agent.session.state {
            SessionState::Terminated => {
                return Err(Rejection::SessionTerminated { name: agent.name.clone() });
            }
            SessionState::Active => {}
            SessionState::Created | SessionState::Suspending | SessionState::Suspended => {
                if self.cx.policy.draining {
                    return Err(Rejection::Draining);
                }
                self.push(agent.session.id, SessionResuming {});
            }
        }
        Ok(Outcome::Session(agent.session.id))
    }

    pub(super) fn delete_session(&mut self, reference: &str) -> Result<Outcome, Rejection> {
        let agent = self.state.resolve_session(reference)?;
        if agent.is_live() {
            return Err(Rejection::SessionNotTerminated { name: agent.name.clone() });
        }
        let (deleted_session_id, events) = (agent.session.id, agent.session.events);
        let parent = agent.parent.filter(|id| self.state.agent(*id).is_some());
        let usage = parent.map(|_| agent.tree_usage()).unwrap_or_default();
        self.push(None, SessionDeleted { deleted_session_id, events, parent, usage });
        Ok(Outcome::Session(deleted_session_id))
    }

    /// A runner gave the state of its session, or could not.
    pub(super) fn finish_suspend(
        &mut self,
        session: SessionId,
        result: Result<Saved, String>,
    ) -> Outcome {
        let Some(agent) = self.state.agent_of(session) else { return Outcome::Done };
        if agent.session.state != SessionState::Suspending {
            return Outcome::Done;
        }
        let known = agent.session.saved.as_ref();
        let (provider_state, error) = match result {
            Ok(Saved::State(state)) if Some(&state) != known => (Some(state), None),
            Ok(_) => (None, None),
            Err(error) => (None, Some(error)),
        };
        let state_size = provider_state.as_ref().or(known).map_or(0, crate::model::Blob::size);
        self.push(session, SuspendResult { state_size, provider_state, error });
        Outcome::Session(session)
    }
}
