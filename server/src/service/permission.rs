//! Questions of backends, and their answers.

use std::collections::BTreeSet;

use substrat_proto::v1;
use tonic::Status;

use super::status::{invalid, refused};
use super::{Api, convert, request};
use crate::model::{
    Agent, AgentId, ChoiceKind, Command, OpenPermission, Outcome, Permission, PermissionAnswer,
    PermissionAnswered, PermissionAsked, PermissionId, Permit, State, Timestamp, TurnId,
};

/// Longest reason, in bytes.
const MAX_REASON: usize = 4096;

/// The questions of an agent that are not answered yet, oldest first.
pub(super) fn open(agent: &Agent) -> Vec<v1::Permission> {
    let Some(turn) = agent.turn() else { return Vec::new() };
    let on_wire =
        |open: &OpenPermission| on_wire(agent.id.to_string(), turn.id, &open.permission, open.at);
    agent.questions().iter().map(on_wire).collect()
}

/// A question that was asked now.
pub(super) fn asked(agent: String, data: &PermissionAsked, at: Timestamp) -> v1::Permission {
    let permission = Permission {
        id: data.permission_id,
        use_id: data.use_id.clone(),
        tool: data.tool.clone(),
        input: data.input.clone(),
        options: data.options.clone(),
    };
    on_wire(agent, data.turn_id, &permission, at)
}

fn on_wire(agent: String, turn: TurnId, one: &Permission, at: Timestamp) -> v1::Permission {
    let options = one.options.iter().map(|option| v1::PermissionOption {
        id: option.id.clone(),
        name: option.name.clone(),
        kind: ChoiceKind::as_str(option.kind).to_owned(),
    });
    v1::Permission {
        id: one.id.to_string(),
        agent_id: agent,
        turn_id: turn.to_string(),
        call_id: one.use_id.as_deref().unwrap_or_default().to_owned(),
        tool: one.tool.to_string(),
        input: serde_json::from_str(one.input.get()).ok().map(convert::json),
        options: options.collect(),
        create_time: Some(convert::timestamp(at)),
    }
}

/// An answer that was given now.
pub(super) fn answered(agent_id: String, data: &PermissionAnswered) -> v1::PermissionResolved {
    let verdict = match data.decision {
        Permit::Allow => v1::PermissionVerdict::Allow,
        Permit::Always => v1::PermissionVerdict::Always,
        Permit::Deny => v1::PermissionVerdict::Deny,
    };
    v1::PermissionResolved {
        agent_id,
        turn_id: data.turn_id.to_string(),
        permission_id: data.permission_id.to_string(),
        verdict: verdict.into(),
        by: data.by.as_str().to_owned(),
        reason: data.reason.clone().unwrap_or_default(),
    }
}

/// An answer as a request has it.
pub(super) fn answer(verdict: i32, reason: String) -> Result<PermissionAnswer, Status> {
    let decision = match v1::PermissionVerdict::try_from(verdict) {
        Ok(v1::PermissionVerdict::Allow) => Permit::Allow,
        Ok(v1::PermissionVerdict::Always) => Permit::Always,
        Ok(v1::PermissionVerdict::Deny) => Permit::Deny,
        Ok(v1::PermissionVerdict::Unspecified) | Err(_) => {
            return Err(invalid("verdict must be allow, always or deny"));
        }
    };
    if reason.len() > MAX_REASON {
        return Err(invalid(format!("reason must have at most {MAX_REASON} bytes")));
    }
    Ok(PermissionAnswer { decision, reason: request::given(reason) })
}

/// The id of a question as a request has it.
pub(super) fn id(text: &str) -> Result<PermissionId, Status> {
    text.parse()
        .map_err(|_| invalid(format!("permission_id: not an id: {:?}", request::clip(text))))
}

impl Api {
    pub(super) async fn answer_question(
        &self,
        message: v1::AnswerPermissionRequest,
    ) -> Result<v1::AnswerPermissionResponse, Status> {
        let key = request::key("AnswerPermission", &message.request_id, &message)?;
        let permission = request::given(message.permission_id).map(|text| id(&text)).transpose()?;
        let answer = answer(message.verdict, message.reason)?;
        let command = Command::AnswerPermission { agent: message.agent, permission, answer };
        match self.engine.execute(command, key).await.map_err(|no| refused(&no))? {
            Outcome::Permission(id) => {
                Ok(v1::AnswerPermissionResponse { permission_id: id.to_string() })
            }
            other => Err(super::agent::odd(&other)),
        }
    }
}

impl Api {
    /// Answers a question of one of these agents.
    pub(super) async fn decide(
        &self,
        watched: BTreeSet<AgentId>,
        decision: v1::PermissionDecision,
    ) -> Result<(), Status> {
        let asked = id(&decision.permission_id)?;
        let asks = move |state: &State| {
            let has =
                |agent: &&Agent| agent.questions().iter().any(|open| open.permission.id == asked);
            let agents = watched.iter().filter_map(|id| state.agent(*id));
            let asking = agents.clone().find(has).or_else(|| agents.clone().next());
            asking.map(|agent| agent.id.to_string())
        };
        let agent = self.engine.read(asks).await.map_err(|no| refused(&no))?;
        let message = v1::AnswerPermissionRequest {
            agent: agent.unwrap_or_default(),
            permission_id: decision.permission_id,
            verdict: decision.verdict,
            reason: decision.reason,
            request_id: decision.request_id,
        };
        self.answer_question(message).await.map(drop)
    }
}
