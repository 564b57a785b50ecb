//! Who may message whom: parent, child or sibling. Roots also USER.

use super::name::PARENT_ALIAS;
use super::{Agent, AgentId, Party, Rejection, State};

impl State {
    /// The agents one hop away: children first, then siblings, then the parent. A name that fits
    /// several means the first of them.
    fn neighbours<'a>(&'a self, of: &'a Agent) -> impl Iterator<Item = &'a Agent> {
        let parent = of.parent.and_then(|id| self.live_agent(id));
        let siblings = parent.map_or(&[][..], |parent| &parent.children);
        of.children
            .iter()
            .chain(siblings.iter().filter(move |id| **id != of.id))
            .filter_map(|id| self.live_agent(*id))
            .chain(parent)
    }

    /// The siblings of an agent.
    pub(super) fn team<'a>(&'a self, of: &'a Agent) -> impl Iterator<Item = AgentId> + 'a {
        let parent = of.parent.and_then(|id| self.live_agent(id));
        let siblings = parent.map_or(&[][..], |parent| &parent.children);
        siblings.iter().copied().filter(move |id| *id != of.id)
    }

    /// The recipient that an agent means, if it may message it.
    pub(super) fn route(&self, sender: &Agent, recipient: &str) -> Result<Party, Rejection> {
        if recipient.eq_ignore_ascii_case("USER") {
            return match sender.parent {
                None => Ok(Party::User),
                Some(_) => Err(Rejection::UserNotReachable { sender: sender.name.clone() }),
            };
        }
        self.neighbour(sender, recipient).map(|agent| Party::Agent(agent.id))
    }

    /// The agent one hop away that an agent means, by name or id.
    pub(super) fn neighbour<'a>(
        &'a self,
        sender: &'a Agent,
        name: &str,
    ) -> Result<&'a Agent, Rejection> {
        let named = self.neighbours(sender).find(|agent| agent.name.as_str() == name);
        let found = named.or_else(|| {
            self.neighbours(sender).find(|agent| agent.id.to_string() == name).or_else(|| {
                let parent = sender.parent.filter(|_| name.eq_ignore_ascii_case(PARENT_ALIAS))?;
                self.live_agent(parent)
            })
        });
        if let Some(agent) = found {
            return Ok(agent);
        }
        if sender.name.as_str() == name || sender.id.to_string() == name {
            return Err(Rejection::SelfSend { sender: sender.name.clone() });
        }
        if let Some(ended) = self.ended_neighbour(sender, name) {
            return Err(Rejection::AgentTerminated { name: ended.name.clone() });
        }
        match self.resolve(name) {
            Err(rejection @ Rejection::AgentNotFound { .. }) => Err(rejection),
            _ => Err(Rejection::NotANeighbour {
                sender: sender.name.clone(),
                recipient: name.to_owned(),
            }),
        }
    }

    /// The child or sibling that an agent means and that has ended: by name the latest, or by id.
    /// Looks through all agents, so only after the live ones. A parent outlives its children.
    fn ended_neighbour(&self, sender: &Agent, name: &str) -> Option<&Agent> {
        let id = name.parse::<AgentId>().ok();
        let near = |agent: &Agent| {
            agent.parent.is_some_and(|parent| parent == sender.id || Some(parent) == sender.parent)
        };
        let meant = |agent: &Agent| agent.name.as_str() == name || Some(agent.id) == id;
        self.agents().rev().find(|agent| !agent.is_live() && meant(agent) && near(agent))
    }

    /// The child that an agent means, by name or id.
    pub(super) fn child<'a>(&'a self, of: &'a Agent, name: &str) -> Result<&'a Agent, Rejection> {
        let found = self.neighbour(of, name)?;
        if found.parent == Some(of.id) {
            return Ok(found);
        }
        Err(Rejection::NotAChild { agent: of.name.clone(), other: found.name.clone() })
    }

    /// Whether `agent` waits for `target`, directly or through others.
    pub(super) fn waits_for(&self, agent: &Agent, target: AgentId) -> bool {
        let chain = std::iter::successors(Some(agent), |agent| {
            self.agent(agent.wait().filter(|wait| wait.over.is_none())?.recipient)
        });
        // A wait is only entered when it closes no circle, so the chain ends.
        chain.skip(1).any(|agent| agent.id == target)
    }
}
