//! Everything durable that the daemon knows, and how to find things in it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap};
use serde::{Deserialize, Serialize};

use super::directory::Directory;
use super::slots::Slots;
use super::{
    Agent, AgentId, Message, Name, Party, PoolUse, Rejection, Requests, Session, SessionId,
    SubscriptionId, Timestamp, Workspace, WorkspaceId,
};

/// All durable state: a fold over the events so far, changed by [`State::apply`] alone.
#[derive(Debug, Default)]
pub struct State {
    /// Sequence of the last event that was applied.
    pub(super) seq: u64,
    /// Whether the last event is the end of a daemon that stopped cleanly.
    pub(super) clean: bool,
    /// Agents in the order of their creation, terminated ones included.
    pub(super) agents: IndexMap<AgentId, Agent, FxBuildHasher>,
    pub(super) by_session: FxHashMap<SessionId, AgentId>,
    /// Sessions whose agents do not exist yet.
    pub(super) embryos: BTreeMap<SessionId, Session>,
    /// Live agents by name.
    pub(super) names: BTreeMap<Name, Vec<AgentId>>,
    /// Live agents.
    pub(super) live: usize,
    pub(super) workspaces: IndexMap<WorkspaceId, Workspace, FxBuildHasher>,
    /// USER's inbox, oldest first.
    pub(super) user_inbox: VecDeque<Message>,
    pub(super) requests: Requests,
    /// Derived from the agents.
    pub(super) slots: Slots,
    /// Who watches an agent, and by which subscription; derived from the agents.
    pub(super) watchers: BTreeMap<AgentId, BTreeSet<(AgentId, SubscriptionId)>>,
    /// Derived from the agents and the workspaces.
    pub(super) directory: Directory,
}

impl State {
    /// Sequence of the last event.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Whether nothing happened since a daemon stopped cleanly, or ever.
    pub fn is_clean(&self) -> bool {
        self.clean || self.seq == 0
    }

    /// Agents in the order of their creation, terminated ones included.
    pub fn agents(&self) -> impl DoubleEndedIterator<Item = &Agent> + ExactSizeIterator {
        self.agents.values()
    }

    /// The agents that were created after the one whose log starts at a sequence.
    pub fn agents_after(&self, first_seq: u64) -> impl Iterator<Item = &Agent> {
        let slice = self.agents.as_slice();
        let place = slice.partition_point(|_, agent| agent.session.first_seq <= first_seq);
        slice[place..].values()
    }

    /// An agent.
    pub fn agent(&self, id: AgentId) -> Option<&Agent> {
        self.agents.get(&id)
    }

    /// A live agent.
    pub fn live_agent(&self, id: AgentId) -> Option<&Agent> {
        self.agent(id).filter(|agent| agent.is_live())
    }

    /// The agent of a session.
    pub fn agent_of(&self, session: SessionId) -> Option<&Agent> {
        self.agent(*self.by_session.get(&session)?)
    }

    /// How many agents are live.
    pub fn live_count(&self) -> usize {
        self.live
    }

    /// How many live agents run a turn, and how many are blocked on an answer.
    pub fn busy_and_waiting(&self) -> (usize, usize) {
        (self.slots.busy, self.slots.waiting)
    }

    /// How the slots of a provider are used.
    pub fn pool(&self, provider: &str) -> PoolUse {
        self.slots.pools.get(provider).map_or(PoolUse::default(), |pool| PoolUse {
            held: pool.held,
            suspending: pool.suspending,
            queued: pool.queue.len(),
        })
    }

    /// Whether an agent has work and waits for a slot.
    pub fn is_queued(&self, agent: &Agent) -> bool {
        agent.place.queue.is_some()
    }

    /// Whether any session is live or about to be suspended.
    pub fn has_live_sessions(&self) -> bool {
        self.slots.busy > 0 || self.slots.pools.values().any(|pool| pool.held > 0)
    }

    /// When the first wait is over.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.slots.deadlines.first().map(|(at, _)| *at)
    }

    /// USER's inbox, oldest first.
    pub fn user_inbox(&self) -> &VecDeque<Message> {
        &self.user_inbox
    }

    /// Mutations of USER with idempotency keys.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// The same of an agent's tool calls, or of USER.
    pub fn requests_of<'a>(&'a self, caller: Option<&'a Agent>) -> &'a Requests {
        caller.map_or(&self.requests, |agent| &agent.requests)
    }

    /// The names from the root to the agent, joined by `/`.
    pub fn path(&self, agent: &Agent) -> String {
        let mut path = String::new();
        self.write_path(agent, &mut path);
        path
    }

    fn write_path(&self, agent: &Agent, path: &mut String) {
        if let Some(parent) = agent.parent.and_then(|id| self.agent(id)) {
            self.write_path(parent, path);
            path.push('/');
        }
        // Writing to a String cannot fail.
        let _ = write!(path, "{}", agent.name);
    }

    /// How many agents stand between the top and this one, both included.
    pub(super) fn depth(&self, agent: &Agent) -> usize {
        1 + agent.parent.and_then(|id| self.agent(id)).map_or(0, |parent| self.depth(parent))
    }

    /// The agent and its live descendants, each after its descendants.
    pub(super) fn leaves_first(&self, agent: &Agent) -> Vec<AgentId> {
        let mut order: Vec<AgentId> = agent
            .children
            .iter()
            .filter_map(|child| self.agent(*child))
            .flat_map(|child| self.leaves_first(child))
            .collect();
        order.push(agent.id);
        order
    }

    /// Whether `agent` is `top` or one of its descendants.
    pub fn is_within(&self, agent: AgentId, top: AgentId) -> bool {
        std::iter::successors(Some(agent), |id| self.agent(*id)?.parent).any(|id| id == top)
    }

    /// The live child of `parent` (or live root) with this name.
    pub(super) fn named(&self, parent: Option<AgentId>, name: &str) -> Option<&Agent> {
        let ids = self.names.get(name)?;
        ids.iter().filter_map(|id| self.agent(*id)).find(|agent| agent.parent == parent)
    }

    /// A name that a new agent may have under this parent.
    pub fn free_name(&self, text: &str, parent: Option<&Agent>) -> Result<Name, Rejection> {
        let name = Name::of_agent(text)?;
        let taken = self
            .named(parent.map(|parent| parent.id), text)
            .or_else(|| parent.filter(|parent| parent.name == name));
        match taken {
            Some(other) => Err(Rejection::AgentExists { path: self.path(other) }),
            None => Ok(name),
        }
    }

    /// The live agent that a person means.
    pub fn resolve(&self, reference: &str) -> Result<&Agent, Rejection> {
        let mut parts = reference.split('/');
        let mut found = self.named(None, parts.next().unwrap_or_default());
        for part in parts {
            found = found.and_then(|agent| self.named(Some(agent.id), part));
        }
        if let Some(agent) = found {
            return Ok(agent);
        }
        let named: Vec<&Agent> = self
            .names
            .get(reference)
            .into_iter()
            .flatten()
            .filter_map(|id| self.agent(*id))
            .collect();
        match named.as_slice() {
            [agent] => Ok(agent),
            [] => self.by_prefix(reference, true),
            several => Err(self.ambiguous(reference, several)),
        }
    }

    /// As [`State::resolve`], but an id may name a terminated agent, too.
    pub fn resolve_any(&self, reference: &str) -> Result<&Agent, Rejection> {
        match self.resolve(reference) {
            Err(Rejection::AgentNotFound { .. } | Rejection::AgentTerminated { .. }) => {
                self.by_prefix(reference, false)
            }
            other => other,
        }
    }

    fn by_prefix(&self, reference: &str, live: bool) -> Result<&Agent, Rejection> {
        let fits: Vec<&Agent> =
            self.agents().filter(|agent| has_prefix(agent.id, reference)).take(4).collect();
        match fits.as_slice() {
            [] => {
                Err(Rejection::AgentNotFound { reference: reference.chars().take(200).collect() })
            }
            [agent] if live && !agent.is_live() => {
                Err(Rejection::AgentTerminated { name: agent.name.clone() })
            }
            [agent] => Ok(agent),
            several => Err(self.ambiguous(reference, several)),
        }
    }

    fn ambiguous(&self, reference: &str, agents: &[&Agent]) -> Rejection {
        let paths = agents.iter().take(3).map(|agent| self.path(agent)).collect();
        Rejection::AgentAmbiguous { reference: reference.to_owned(), paths }
    }

    /// The agent of the session that a person means, by id or unique prefix.
    pub fn resolve_session(&self, reference: &str) -> Result<&Agent, Rejection> {
        let mut fits = self.agents().filter(|agent| has_prefix(agent.session.id, reference));
        match (fits.next(), fits.next()) {
            (Some(agent), None) => Ok(agent),
            _ => Err(Rejection::SessionNotFound { reference: reference.to_owned() }),
        }
    }

    /// The workspace that a person means, by name, id or unique prefix of the id.
    pub fn resolve_workspace(&self, reference: &str) -> Result<&Workspace, Rejection> {
        let exact = self.workspace_named(reference);
        let exact = exact.or_else(|| self.workspace(reference.parse().ok()?));
        if let Some(found) = exact {
            return Ok(found);
        }
        let mut fits = self.workspaces().filter(|workspace| has_prefix(workspace.id, reference));
        match (fits.next(), fits.next()) {
            (Some(workspace), None) => Ok(workspace),
            _ => Err(Rejection::WorkspaceNotFound {
                reference: reference.chars().take(200).collect(),
            }),
        }
    }

    /// The name of either end of a message.
    pub(super) fn party_name(&self, party: Party) -> Name {
        match party {
            Party::System => Name::known("SYSTEM"),
            Party::User => Name::known("USER"),
            Party::Agent(id) => {
                self.agent(id).map_or_else(|| Name::known("?"), |agent| agent.name.clone())
            }
        }
    }
}

/// The shortest prefix of an id that is taken for one.
const MIN_PREFIX: usize = 4;

fn has_prefix(id: impl std::fmt::Display, prefix: &str) -> bool {
    prefix.len() >= MIN_PREFIX && id.to_string().starts_with(&prefix.to_ascii_lowercase())
}

/// One line of a snapshot. The lines of a snapshot in their order make a [`State`].
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Part<A, E, W, M, R> {
    State { seq: u64, clean: bool },
    Agent(A),
    Embryo(E),
    Workspace(W),
    Message(M),
    Requests(R),
}

type OwnedPart = Part<Box<Agent>, Session, Workspace, Message, Requests>;
type PartOf<'a> = Part<&'a Agent, &'a Session, &'a Workspace, &'a Message, &'a Requests>;

/// A state as lines of JSON.
pub struct Snapshot;

impl Snapshot {
    /// Appends the lines of a state.
    pub fn write(state: &State, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let head = PartOf::State { seq: state.seq, clean: state.clean };
        let parts = std::iter::once(head)
            .chain(state.agents.values().map(PartOf::Agent))
            .chain(state.embryos.values().map(PartOf::Embryo))
            .chain(state.workspaces.values().map(PartOf::Workspace))
            .chain(state.user_inbox.iter().map(PartOf::Message))
            .chain(std::iter::once(PartOf::Requests(&state.requests)));
        for part in parts {
            serde_json::to_writer(&mut *out, &part)?;
            out.push(b'\n');
        }
        Ok(())
    }

    /// Takes the next line into a state under construction.
    pub fn read_line(state: &mut State, line: &[u8]) -> Result<(), serde_json::Error> {
        match serde_json::from_slice::<OwnedPart>(line)? {
            Part::State { seq, clean } => (state.seq, state.clean) = (seq, clean),
            Part::Agent(agent) => state.restore_agent(*agent),
            Part::Embryo(session) => {
                state.embryos.insert(session.id, session);
            }
            Part::Workspace(workspace) => state.insert_workspace(workspace),
            Part::Message(message) => state.user_inbox.push_back(message),
            Part::Requests(requests) => state.requests = requests,
        }
        Ok(())
    }
}

impl State {
    pub(super) fn restore_agent(&mut self, agent: Agent) {
        let id = agent.id;
        self.by_session.insert(agent.session.id, id);
        for subscription in &agent.subscriptions {
            self.watchers.entry(subscription.target).or_default().insert((id, subscription.id));
        }
        if agent.is_live() {
            self.live += 1;
            self.names.entry(agent.name.clone()).or_default().push(id);
            self.directory.enter(&agent);
        }
        self.agents.insert(id, agent);
        self.restore_usage(id);
        self.reindex(id);
    }

    /// Brings the indexes up to date with an agent.
    pub(super) fn reindex(&mut self, id: AgentId) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        let new = agent.wanted_place();
        let old = std::mem::replace(&mut agent.place, new);
        self.slots.move_agent(&agent.session.provider, id, old, new);
    }
}

impl PartialEq for State {
    /// Compares what is durable; indexes follow from it.
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq
            && self.clean == other.clean
            && self.agents.as_slice() == other.agents.as_slice()
            && self.embryos == other.embryos
            && self.workspaces.as_slice() == other.workspaces.as_slice()
            && self.user_inbox == other.user_inbox
            && self.requests == other.requests
            && self.slots == other.slots
            && self.watchers == other.watchers
            && self.directory == other.directory
    }
}
