//! Creating, changing, gating and ending agents.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Plan;
use crate::model::{
    Agent, AgentCreated, AgentId, AgentRef, AgentTerminated, AgentUpdated, BudgetChanged,
    DiscardReason, EndReason, GateAction, Kind, MessageDiscarded, MetadataUpdated, NewAgent,
    Outcome, Party, Rejection, SessionCreated, SessionId, TurnCancelled, TurnId,
};

const MAX_METADATA_KEYS: usize = 64;
const MAX_METADATA_KEY: usize = 64;
const MAX_METADATA_VALUE: usize = 4096;

impl Plan<'_, '_> {
    pub(super) fn create_agent(
        &mut self,
        agent: NewAgent,
        parent: Option<AgentRef>,
    ) -> Result<Outcome, Rejection> {
        let parent = parent.map(|reference| self.state.resolve(&reference)).transpose()?;
        self.create(agent, parent, None).map(Outcome::Agent)
    }

    /// Creates an agent, `spawned_in` a turn of its parent or by USER.
    pub(super) fn create(
        &mut self,
        new: NewAgent,
        parent: Option<&Agent>,
        spawned_in: Option<TurnId>,
    ) -> Result<AgentId, Rejection> {
        let policy = self.cx.policy;
        if policy.draining {
            return Err(Rejection::Draining);
        }
        let name = self.state.free_name(&new.name, parent)?;
        check_text(&new.instructions, policy.max_text)?;
        for (key, value) in &new.metadata {
            check_label(key, value)?;
        }
        if new.metadata.len() > MAX_METADATA_KEYS {
            return Err(too_many_labels());
        }
        self.check_limits(parent)?;
        let provider = match new.provider.as_deref().filter(|name| !name.is_empty()) {
            Some(provider) => provider.into(),
            None => parent.map_or(&policy.default_provider, |p| &p.session.provider).clone(),
        };
        if !policy.providers.contains_key(&provider) {
            let known = policy.providers.keys().map(ToString::to_string).collect();
            return Err(Rejection::ProviderUnknown { name: provider.to_string(), known });
        }
        let model = match new.model.as_deref().filter(|name| !name.is_empty()) {
            Some(model) => Some(Arc::from(model)),
            None => parent
                .filter(|parent| parent.session.provider == provider)
                .and_then(|parent| parent.session.model.clone()),
        };
        let by = parent.filter(|_| spawned_in.is_some());
        let desk = self.desk(by, parent, &new)?;
        let session = SessionId::fresh(self.cx.ids);
        let agent_id = AgentId::fresh(self.cx.ids);
        self.push(session, SessionCreated { provider, model });
        self.push(
            session,
            AgentCreated {
                agent_id,
                name: name.clone(),
                parent_session_id: parent.map(|parent| parent.session.id),
                instructions: new.instructions,
                role: new.role,
                workspace: desk.workspace,
                workspace_subdir: desk.subdir,
                workspace_access: desk.access,
                metadata: new.metadata,
                spawned_in,
            },
        );
        self.set_budgets(session, &name, &new.budgets);
        Ok(agent_id)
    }

    /// Whether the tree has room for an agent under this parent.
    fn check_limits(&self, parent: Option<&Agent>) -> Result<(), Rejection> {
        let policy = self.cx.policy;
        if self.state.live_count() >= policy.max_agents {
            return Err(Rejection::TreeLimit {
                what: "the number of agents",
                limit: policy.max_agents,
            });
        }
        if parent.is_some_and(|parent| self.state.depth(parent) >= policy.max_depth) {
            return Err(Rejection::TreeLimit {
                what: "the depth of the tree",
                limit: policy.max_depth,
            });
        }
        Ok(())
    }

    pub(super) fn update_agent(
        &mut self,
        reference: &str,
        instructions: Option<Arc<str>>,
        role: Option<String>,
        metadata: BTreeMap<String, Option<String>>,
        budgets: &[BudgetChanged],
    ) -> Result<Outcome, Rejection> {
        let agent = self.state.resolve(reference)?;
        if let Some(text) = &instructions {
            check_text(text, self.cx.policy.max_text)?;
        }
        check_metadata(agent, &metadata)?;
        let session = agent.session.id;
        if instructions.is_some() || role.is_some() {
            self.push(session, AgentUpdated { instructions, role });
        }
        for (key, value) in metadata {
            self.push(session, MetadataUpdated { key, value });
        }
        self.change_budgets(agent, budgets);
        Ok(Outcome::Agent(agent.id))
    }

    pub(super) fn gate(&mut self, reference: &str) -> Result<Outcome, Rejection> {
        let agent = self.state.resolve(reference)?;
        self.set_gate(agent, GateAction::Gate);
        Ok(Outcome::Agent(agent.id))
    }

    pub(super) fn ungate(&mut self, reference: &str) -> Result<Outcome, Rejection> {
        let agent = self.state.resolve(reference)?;
        self.set_gate(agent, GateAction::Ungate);
        Ok(Outcome::Agent(agent.id))
    }

    pub(super) fn permit_turn(&mut self, reference: &str) -> Result<Outcome, Rejection> {
        let agent = self.state.resolve(reference)?;
        self.permit(agent)?;
        Ok(Outcome::Agent(agent.id))
    }

    pub(super) fn terminate(
        &mut self,
        reference: &str,
        recursive: bool,
    ) -> Result<Outcome, Rejection> {
        let agent = self.state.resolve(reference)?;
        if !recursive && !agent.children.is_empty() {
            return Err(Rejection::AgentHasChildren {
                name: agent.name.clone(),
                children: agent.children.len(),
            });
        }
        let ended = self.state.leaves_first(agent);
        for id in &ended {
            let Some(one) = self.state.agent(*id) else { continue };
            if let Some(turn) = one.turn() {
                self.close_calls(one, turn, "[Aborted: the agent was terminated]");
                let (turn_id, by) = (turn.id, Party::User);
                let (agent, messages) = (one.name.clone(), turn.messages.clone());
                self.push(one.session.id, TurnCancelled { turn_id, agent, by, messages });
            }
            let reason = if *id == agent.id { EndReason::Requested } else { EndReason::Ancestor };
            self.end_agent(one, reason, &ended);
        }
        if let Some(parent) = agent.parent {
            let text = format!("{} was terminated by USER", agent.name);
            self.tell(Party::Agent(parent), Kind::Error, text);
        }
        Ok(Outcome::Agents(ended))
    }

    /// Ends an agent: who waits for an answer from it is told, unless it is `also_ended`.
    pub(super) fn end_agent(&mut self, agent: &Agent, reason: EndReason, also_ended: &[AgentId]) {
        let delivered = match reason {
            EndReason::Completed => agent.turn().map_or(&[][..], |turn| &turn.messages),
            EndReason::Requested | EndReason::Ancestor => &[],
        };
        for message in &agent.inbox {
            if delivered.contains(&message.id) {
                continue;
            }
            self.push(
                agent.session.id,
                MessageDiscarded { message_id: message.id, reason: DiscardReason::Terminated },
            );
            let waits = message.kind.wants_answer() && !message.answered;
            let knows = match message.sender {
                Party::System => true,
                Party::Agent(id) => also_ended.contains(&id),
                // USER ended it, or waits and is told so.
                Party::User => reason != EndReason::Completed || (self.cx.attended)(message.id),
            };
            if waits && !knows {
                let text = format!("{} ended before it answered", agent.name);
                self.answer(agent, message, Kind::Error, text.into());
            }
        }
        self.push(agent.session.id, AgentTerminated { agent_id: agent.id, reason });
    }
}

/// Checks the length of a text.
pub(super) fn check_text(text: &str, limit: usize) -> Result<(), Rejection> {
    if text.len() <= limit {
        return Ok(());
    }
    Err(Rejection::MessageTooLarge { bytes: text.len(), limit })
}

/// Checks labels that are to be set or removed.
pub(super) fn check_metadata(
    agent: &Agent,
    changes: &BTreeMap<String, Option<String>>,
) -> Result<(), Rejection> {
    for (key, value) in changes {
        check_label(key, value.as_deref().unwrap_or_default())?;
    }
    let added = changes
        .iter()
        .filter(|(key, value)| value.is_some() && !agent.metadata.contains_key(*key))
        .count();
    if agent.metadata.len() + added > MAX_METADATA_KEYS {
        return Err(too_many_labels());
    }
    Ok(())
}

/// Checks a label.
pub(super) fn check_label(key: &str, value: &str) -> Result<(), Rejection> {
    let problem = if key.is_empty() || key.len() > MAX_METADATA_KEY {
        "the key does not have 1 to 64 bytes"
    } else if key.chars().any(char::is_control) {
        "the key contains a control character"
    } else if value.len() > MAX_METADATA_VALUE {
        "the value is longer than 4,096 bytes"
    } else {
        return Ok(());
    };
    Err(Rejection::MetadataInvalid { key: key.chars().take(80).collect(), problem })
}

fn too_many_labels() -> Rejection {
    Rejection::MetadataInvalid { key: "*".into(), problem: "there are more than 64 keys" }
}
