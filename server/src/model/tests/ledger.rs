//! Keeps its own books about usage and budgets, and compares them with those of the core.

use std::collections::BTreeMap;

use crate::model::*;

#[derive(Debug, Default, Clone)]
struct Book {
    parent: Option<AgentId>,
    own: Usage,
    tree: Usage,
    /// How much may be used, and how often a warning and the end of it were told.
    limits: BTreeMap<(Scope, Measure), (u64, u32, u32)>,
    held: bool,
    ended: bool,
    deleted: bool,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    books: BTreeMap<AgentId, Book>,
    agents: BTreeMap<SessionId, AgentId>,
    /// Whether something was used below an agent whose session is deleted.
    cut: bool,
}

impl Ledger {
    fn lineage(&self, id: AgentId) -> Vec<AgentId> {
        let up = |id: &AgentId| self.books[id].parent.filter(|id| !self.books[id].deleted);
        std::iter::successors(Some(id), up).collect()
    }

    fn book(&mut self, id: AgentId, usage: Usage) {
        let own = &mut self.books.get_mut(&id).expect("a book").own;
        *own = own.plus(usage);
        for one in self.lineage(id) {
            self.cut |= self.books[&one].parent.is_some_and(|id| self.books[&id].deleted);
            let tree = &mut self.books.get_mut(&one).expect("a book").tree;
            *tree = tree.plus(usage);
        }
    }

    /// Whether some budget that binds an agent is used up.
    fn is_exhausted(&self, id: AgentId) -> bool {
        self.lineage(id).into_iter().any(|one| {
            let book = &self.books[&one];
            book.limits.iter().any(|((scope, measure), (most, ..))| match scope {
                Scope::Agent => one == id && book.own.of(*measure) >= *most,
                Scope::Tree => book.tree.of(*measure) >= *most,
            })
        })
    }

    /// Takes the next event.
    pub(super) fn take(&mut self, entry: &Entry) {
        if let Event::SessionDeleted(data) = &entry.event {
            let id = self.agents[&data.deleted_session_id];
            self.books.get_mut(&id).expect("a book").deleted = true;
        }
        let Some(session) = entry.session else { return };
        if let Event::AgentCreated(data) = &entry.event {
            let parent = data.parent_session_id.map(|session| self.agents[&session]);
            self.agents.insert(session, data.agent_id);
            self.books.insert(data.agent_id, Book { parent, ..Book::default() });
        }
        let Some(id) = self.agents.get(&session).copied() else { return };
        match &entry.event {
            Event::TurnStart(_) => {
                assert!(!self.is_exhausted(id), "a turn starts beyond a budget");
                self.book(id, Usage { turns: 1, ..Usage::default() });
            }
            Event::UsageReported(data) => self.book(id, data.usage),
            Event::MessageEnqueued(data) if data.sender != Party::System => {
                let new = matches!(data.kind, Kind::Request | Kind::Multicast | Kind::Notification);
                assert!(!new || !self.is_exhausted(id), "mail for an agent without a budget");
            }
            _ => self.take_budget(id, &entry.event),
        }
    }

    fn take_budget(&mut self, id: AgentId, event: &Event) {
        let exhausted = self.is_exhausted(id);
        let book = self.books.get_mut(&id).expect("a book");
        match event {
            Event::BudgetChanged(data) => {
                book.limits.remove(&(data.scope, data.measure));
                if let Some(most) = data.limit {
                    book.limits.insert((data.scope, data.measure), (most, 0, 0));
                }
            }
            Event::BudgetWarning(data) => {
                let limit = book.limits.get_mut(&(data.scope, data.measure)).expect("a limit");
                limit.1 += 1;
            }
            Event::BudgetExhausted(data) => {
                let limit = book.limits.get_mut(&(data.scope, data.measure)).expect("a limit");
                limit.2 += 1;
            }
            Event::TurnRefused(_) => {
                assert!(!book.held && exhausted, "refused once, and for a reason");
                book.held = true;
            }
            Event::BudgetReleased(_) => {
                assert!(book.held && !exhausted, "released when there is a reason");
                book.held = false;
            }
            Event::AgentTerminated(_) => {
                book.limits.clear();
                (book.held, book.ended) = (false, true);
            }
            _ => {}
        }
    }

    /// Compares the books.
    pub(super) fn judge(&self, state: &State) {
        for agent in state.agents() {
            let book = &self.books[&agent.id];
            assert_eq!(agent.usage(), book.own, "what {} used", agent.name);
            assert_eq!(agent.tree_usage(), book.tree, "what the tree of {} used", agent.name);
            assert_eq!(agent.account.is_held(), book.held);
            assert_eq!(state.excess(agent).is_some(), self.is_exhausted(agent.id));
            if book.held {
                assert!(self.is_exhausted(agent.id), "{} is held for nothing", agent.name);
                let wants = agent.ready.is_some_and(Ready::is_for_turn);
                assert!(agent.turn().is_none() && !wants, "{} is held", agent.name);
            }
            for ((scope, measure), (most, warned, ended)) in &book.limits {
                let used = u128::from(agent.usage_in(*scope).of(*measure));
                let most = u128::from(*most);
                assert_eq!(*warned, u32::from(used * 100 >= most * 80), "{used} of {most}");
                assert_eq!(*ended, u32::from(used >= most), "{used} of {most}");
            }
        }
        self.judge_sums(state);
    }

    /// A tree used what its agents used, deleted ones included.
    fn judge_sums(&self, state: &State) {
        for agent in state.agents().filter(|agent| agent.is_live()) {
            let within = |id: &&AgentId| {
                std::iter::successors(Some(**id), |id| self.books[id].parent)
                    .any(|id| id == agent.id)
            };
            let sum = self.books.keys().filter(within).map(|id| self.books[id].own);
            let sum = sum.fold(Usage::default(), Usage::plus);
            assert!(self.cut || sum == agent.tree_usage(), "{}", agent.name);
        }
    }
}
