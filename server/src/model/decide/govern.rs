//! What an agent does to those near it: wakes them, labels them, holds them back.

use serde_json::{Value, json};

use super::Plan;
use super::agent::check_metadata;
use super::message::Letter;
use crate::model::{
    Agent, Gate, GateAction, Kind, MetadataUpdated, Party, Rejection, SetAgentMetadata, ToolGate,
    ToolPermitTurn,
};

/// Metadata key of the message that a poke sends.
const POKE: &str = "poke";

impl Plan<'_, '_> {
    pub(super) fn tool_poke(&mut self, agent: &Agent, name: &str) -> Result<Value, Rejection> {
        let other = self.state.neighbour(agent, name)?;
        if other.turn().is_some() || other.ready.is_some() {
            return Ok(json!({ "status": "awake already" }));
        }
        let (from, to) = (Party::Agent(agent.id), Party::Agent(other.id));
        let is_poke = |message: &crate::model::Message| {
            message.sender == from && message.metadata.contains_key(POKE)
        };
        if other.unread().any(is_poke) && !other.has_mail() {
            return Ok(json!({ "status": "poked already" }));
        }
        self.check_room(to)?;
        let text = format!("{} pokes you: go on with your work", agent.name);
        let mut letter = Letter::new(from, to, Kind::Notification, text);
        letter.metadata.insert(POKE.to_owned(), "true".to_owned());
        let message_id = self.enqueue(letter);
        Ok(json!({ "status": "poked", "message_id": message_id }))
    }

    pub(super) fn tool_set_metadata(
        &mut self,
        agent: &Agent,
        args: SetAgentMetadata,
    ) -> Result<Value, Rejection> {
        let own = agent.name.as_str() == args.agent_name;
        let other = if own { agent } else { self.state.child(agent, &args.agent_name)? };
        let SetAgentMetadata { key, value, .. } = args;
        check_metadata(other, &[(key.clone(), value.clone())].into())?;
        self.push(other.session.id, MetadataUpdated { key, value });
        Ok(json!({ "status": "set" }))
    }

    pub(super) fn tool_gate(
        &mut self,
        agent: &Agent,
        name: &str,
        action: GateAction,
    ) -> Result<Value, Rejection> {
        let child = self.state.child(agent, name)?;
        self.set_gate(child, action);
        Ok(json!({ "status": match action {
            GateAction::Gate => "gated",
            GateAction::Ungate => "ungated",
        } }))
    }

    pub(super) fn tool_permit(&mut self, agent: &Agent, name: &str) -> Result<Value, Rejection> {
        let child = self.state.child(agent, name)?;
        self.permit(child)?;
        Ok(json!({ "status": "permitted" }))
    }

    /// Closes or opens a gate. One that is so already stays so.
    pub(super) fn set_gate(&mut self, agent: &Agent, action: GateAction) {
        if (agent.gate == Gate::Open) == (action == GateAction::Gate) {
            self.push(agent.session.id, ToolGate { action });
        }
    }

    /// Permits one turn of a gated agent.
    pub(super) fn permit(&mut self, agent: &Agent) -> Result<(), Rejection> {
        if agent.gate == Gate::Open {
            return Err(Rejection::AgentNotGated { name: agent.name.clone() });
        }
        self.push(agent.session.id, ToolPermitTurn {});
        Ok(())
    }
}
