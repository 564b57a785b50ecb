//! Usage, budgets, and turns that they keep from starting.

use super::Plan;
use crate::model::budget::{Level, Limit, change};
use crate::model::{
    Agent, AgentId, BudgetChanged, BudgetExhausted, BudgetReleased, BudgetWarning, Excess, Message,
    MessageId, Name, Outcome, Party, Scope, SessionId, TurnId, TurnRefused, Usage, UsageReported,
};

impl Plan<'_, '_> {
    /// Books what a turn used. One that is over may tell of it late.
    pub(super) fn report_usage(&mut self, id: AgentId, turn_id: TurnId, usage: Usage) -> Outcome {
        // A turn counts when it starts.
        let usage = Usage { turns: 0, ..usage };
        let Some(agent) = self.state.agent(id).filter(|_| !usage.is_zero()) else {
            return Outcome::Done;
        };
        self.push(agent.session.id, UsageReported { turn_id, usage });
        self.tell_levels(agent, usage);
        Outcome::Turn(turn_id)
    }

    /// Tells what the budgets of an agent and of its ancestors come to by what it uses now.
    pub(in crate::model) fn tell_levels(&mut self, agent: &Agent, usage: Usage) {
        let state = self.state;
        for one in state.lineage(agent) {
            for limit in one.account.limits() {
                if limit.scope == Scope::Tree || one.id == agent.id {
                    let used = one.usage_in(limit.scope).plus(usage).of(limit.measure);
                    self.tell_level(one.session.id, &one.name, limit, used);
                }
            }
        }
    }

    fn tell_level(&mut self, session: SessionId, name: &Name, limit: &Limit, used: u64) {
        let Limit { scope, measure, most: limit, told } = *limit;
        let (agent, level) = (name.clone(), Level::of(used, limit));
        if told < Level::Warning && level >= Level::Warning {
            let agent = agent.clone();
            self.push(session, BudgetWarning { agent, scope, measure, used, limit });
        }
        if told < Level::Exhausted && level == Level::Exhausted {
            self.push(session, BudgetExhausted { agent, scope, measure, used, limit });
        }
    }

    /// Gives a new agent its budgets.
    pub(super) fn set_budgets(
        &mut self,
        session: SessionId,
        name: &Name,
        changes: &[BudgetChanged],
    ) {
        let mut limits = Vec::new();
        self.change_limits(session, &mut limits, changes);
        for limit in &limits {
            self.tell_level(session, name, limit, 0);
        }
    }

    /// Changes budgets of an agent, and lets those go on whom they held.
    pub(super) fn change_budgets(&mut self, agent: &Agent, changes: &[BudgetChanged]) {
        let (state, session) = (self.state, agent.session.id);
        let mut limits = agent.account.limits().to_vec();
        if !self.change_limits(session, &mut limits, changes) {
            return;
        }
        for limit in &limits {
            let used = agent.usage_in(limit.scope).of(limit.measure);
            self.tell_level(session, &agent.name, limit, used);
        }
        for one in state.leaves_first(agent).into_iter().filter_map(|id| state.agent(id)) {
            let free = || state.excess_with(one, Some((agent.id, &limits))).is_none();
            if one.account.is_held() && free() {
                self.push(one.session.id, BudgetReleased {});
            }
        }
    }

    fn change_limits(
        &mut self,
        session: SessionId,
        limits: &mut Vec<Limit>,
        changes: &[BudgetChanged],
    ) -> bool {
        let before = self.events.len();
        for changed in changes {
            let same =
                |limit: &&Limit| limit.scope == changed.scope && limit.measure == changed.measure;
            if limits.iter().find(same).map(|limit| limit.most) != changed.limit {
                change(limits, changed);
                self.push(session, *changed);
            }
        }
        self.events.len() > before
    }

    /// A turn may not start: its messages stay, and whoever counts on it is told.
    pub(in crate::model) fn refuse_turn(&mut self, agent: &Agent, excess: Excess) {
        let text = format!("no turn of {} may start (budget): {excess}", agent.name);
        let waiting: Vec<&Message> = agent.unread().collect();
        let attended: Vec<MessageId> = waiting
            .iter()
            .filter(|message| message.sender == Party::User && (self.cx.attended)(message.id))
            .map(|message| message.id)
            .collect();
        let Excess { scope, whose, whose_name, measure, used, limit } = excess;
        let messages = waiting.iter().map(|message| message.id).collect();
        let name = agent.name.clone();
        self.push(
            agent.session.id,
            TurnRefused { agent: name, scope, whose, whose_name, measure, used, limit, messages },
        );
        self.tell_those(agent, waiting.into_iter(), &text, &attended);
    }
}
