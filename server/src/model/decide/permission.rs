//! Questions of backends: whether a tool may be used.
//!
//! A question is open from `permission.asked` to `permission.answered` or `permission.withdrawn`,
//! at the latest to the end of its turn. The first answer counts.

use super::Plan;
use super::activity::{MAX_NAME, bounded, carried, name};
use crate::model::{
    AgentId, AnsweredBy, Choice, Outcome, Permission, PermissionAnswer, PermissionAnswered,
    PermissionAsked, PermissionId, PermissionWithdrawn, Permit, Rejection, TurnId, TurnNotice,
};

/// Most questions of a turn that are open at once.
pub(in crate::model) const MAX_OPEN: usize = 64;
/// Most questions of a turn that are logged: two events each.
pub(in crate::model) const MAX_ASKED: u32 = 1000;
/// Most answers that are carried of those that a backend offers.
const MAX_OPTIONS: usize = 16;
/// Most bytes of a reason.
const MAX_REASON: usize = 4 << 10;

impl Plan<'_, '_> {
    /// Notes a question, and its answer if the settings have one.
    pub(super) fn ask_permission(
        &mut self,
        id: AgentId,
        turn_id: TurnId,
        asked: Permission,
        policy: Option<PermissionAnswer>,
    ) -> Outcome {
        let Some(agent) = self.state.live_agent(id) else { return Outcome::Done };
        let Some(turn) = agent.turn_is(turn_id) else { return Outcome::Done };
        if turn.backend.asked >= MAX_ASKED {
            return Outcome::Denied;
        }
        let Permission { id: permission_id, use_id, tool, input, options } = asked;
        let options = options.into_iter().take(MAX_OPTIONS).map(|option| Choice {
            id: bounded(&option.id, MAX_NAME),
            name: bounded(&option.name, MAX_NAME),
            kind: option.kind,
        });
        let data = PermissionAsked {
            permission_id,
            turn_id,
            use_id: use_id.as_ref().map(name),
            tool: name(&tool),
            input: carried(input),
            options: options.collect(),
        };
        self.push(agent.session.id, data);
        let is_full = turn.backend.questions.len() >= MAX_OPEN;
        let too_many = || PermissionAnswer {
            decision: Permit::Deny,
            reason: Some(format!("{MAX_OPEN} other questions are open")),
        };
        if let Some(answer) = policy.or_else(|| is_full.then(too_many)) {
            self.push(
                agent.session.id,
                answered(permission_id, turn_id, answer, AnsweredBy::Policy),
            );
        }
        if turn.backend.asked + 1 == MAX_ASKED {
            let text = format!("asked {MAX_ASKED} times; what it asks further is denied");
            self.push(agent.session.id, TurnNotice { turn_id, text });
        }
        Outcome::Permission(permission_id)
    }

    /// Answers a question by the settings, or takes it back. One that is not open stays as it is.
    pub(super) fn settle_permission(
        &mut self,
        id: AgentId,
        permission_id: PermissionId,
        answer: Option<PermissionAnswer>,
    ) -> Outcome {
        let Some(agent) = self.state.live_agent(id) else { return Outcome::Done };
        let Some(turn) = agent.turn() else { return Outcome::Done };
        if agent.questions().iter().any(|open| open.permission.id == permission_id) {
            let (session, turn_id) = (agent.session.id, turn.id);
            match answer {
                Some(answer) => {
                    self.push(
                        session,
                        answered(permission_id, turn_id, answer, AnsweredBy::Policy),
                    );
                }
                None => self.push(session, PermissionWithdrawn { permission_id, turn_id }),
            }
        }
        Outcome::Permission(permission_id)
    }

    /// Answers a question for USER: the only open one, if none is named.
    pub(super) fn answer_permission(
        &mut self,
        reference: &str,
        permission: Option<PermissionId>,
        answer: PermissionAnswer,
    ) -> Result<Outcome, Rejection> {
        let agent = self.state.resolve(reference)?;
        let name = || agent.name.clone();
        let open = match (permission, agent.questions()) {
            (Some(id), open) => open.iter().find(|open| open.permission.id == id),
            (None, [] | [_]) => agent.questions().first(),
            (None, open) => {
                let open = open.iter().map(|open| open.permission.id.to_string()).collect();
                return Err(Rejection::PermissionAmbiguous { open });
            }
        };
        let (Some(open), Some(turn)) = (open, agent.turn()) else {
            return Err(Rejection::PermissionNotOpen { name: name(), permission });
        };
        let id = open.permission.id;
        self.push(agent.session.id, answered(id, turn.id, answer, AnsweredBy::User));
        Ok(Outcome::Permission(id))
    }
}

fn answered(
    permission_id: PermissionId,
    turn_id: TurnId,
    answer: PermissionAnswer,
    by: AnsweredBy,
) -> PermissionAnswered {
    let reason = answer.reason.filter(|reason| !reason.trim().is_empty());
    let reason = reason.map(|reason| bounded(&reason, MAX_REASON));
    PermissionAnswered { permission_id, turn_id, decision: answer.decision, by, reason }
}
