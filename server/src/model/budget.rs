//! Budgets: how much an agent, or an agent and all its descendants, may use.
//!
//! What is used is booked to the agent and to the tree of each of its ancestors. A budget is
//! looked at before a turn starts, never while one runs: the last turn may go beyond it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Agent, AgentId, BudgetChanged, Name, State, Usage};

/// Percent of a budget at which a warning is told.
const WARN_AT: u128 = 80;

/// Whose use a budget limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// That of the agent itself.
    Agent,
    /// That of the agent and all its descendants, those that ended included.
    Tree,
}

/// What a budget counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Tokens; see [`Usage::tokens`].
    Tokens,
    /// Millionths of a US dollar.
    Cost,
    /// Turns that start.
    Turns,
}

/// How much of a budget is used, as far as it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Less than 80 %.
    #[default]
    Low,
    /// 80 % or more.
    Warning,
    /// All of it.
    Exhausted,
}

impl Level {
    /// The level of a use.
    pub(super) fn of(used: u64, most: u64) -> Self {
        if used >= most {
            Self::Exhausted
        } else if u128::from(used) * 100 >= u128::from(most) * WARN_AT {
            Self::Warning
        } else {
            Self::Low
        }
    }
}

/// One limit of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Whose use it limits.
    pub scope: Scope,
    /// What it counts.
    pub measure: Measure,
    /// How much may be used.
    pub most: u64,
    /// What was told of its use.
    #[serde(default)]
    pub told: Level,
}

/// What an agent used, and what it may use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// What the agent itself used, without turns: those are counted by how they ended.
    #[serde(skip_serializing_if = "Usage::is_zero")]
    spent: Usage,
    /// What descendants used whose sessions are deleted.
    #[serde(skip_serializing_if = "Usage::is_zero")]
    gone: Usage,
    /// What the agent and all its descendants used; derived.
    #[serde(skip)]
    tree: Usage,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    limits: Vec<Limit>,
    /// Whether a used-up budget keeps it from starting turns, and that was told.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    held: bool,
}

impl Account {
    /// Whether there is nothing in it that a snapshot must hold.
    pub(super) fn is_blank(&self) -> bool {
        *self == Self { tree: self.tree, ..Self::default() }
    }

    /// Its limits, by scope and measure.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// Whether a used-up budget keeps it from starting turns.
    pub fn is_held(&self) -> bool {
        self.held
    }

    pub(super) fn hold(&mut self) {
        self.held = true;
    }

    pub(super) fn tell(&mut self, scope: Scope, measure: Measure, level: Level) {
        let mut limits = self.limits.iter_mut();
        if let Some(limit) = limits.find(|one| one.scope == scope && one.measure == measure) {
            limit.told = level;
        }
    }

    /// Ends it with its agent: what was used stays.
    pub(super) fn close(&mut self) {
        self.limits = Vec::new();
        self.held = false;
    }
}

/// Sets or removes a limit. What was told of the old one does not count for the new one.
pub(super) fn change(limits: &mut Vec<Limit>, changed: &BudgetChanged) {
    let BudgetChanged { scope, measure, limit } = *changed;
    limits.retain(|one| (one.scope, one.measure) != (scope, measure));
    if let Some(most) = limit {
        let place = limits.partition_point(|one| (one.scope, one.measure) < (scope, measure));
        limits.insert(place, Limit { scope, measure, most, told: Level::Low });
    }
}

/// A budget that is used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excess {
    /// Whose use it limits.
    pub scope: Scope,
    /// The agent that has the budget.
    pub whose: AgentId,
    /// Its name.
    pub whose_name: Name,
    /// What it counts.
    pub measure: Measure,
    /// How much was used.
    pub used: u64,
    /// How much may be used.
    pub limit: u64,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measure, used, limit, .. } = self;
        let tree = if self.scope == Scope::Tree { "the tree of " } else { "" };
        let what = match measure {
            Measure::Tokens => "token",
            Measure::Cost => "cost",
            Measure::Turns => "turn",
        };
        write!(f, "the {what} budget of {tree}{:?} is used up: ", self.whose_name)?;
        match measure {
            Measure::Cost => write!(f, "${} of ${}", Usd(*used), Usd(*limit)),
            Measure::Tokens | Measure::Turns => write!(f, "{used} of {limit}"),
        }
    }
}

/// Millionths of a US dollar as dollars, with two digits after the point or as many as it takes.
struct Usd(u64);

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:06}", self.0 % 1_000_000);
        let shown = digits.trim_end_matches('0').len().max(2);
        write!(f, "{}.{}", self.0 / 1_000_000, &digits[..shown])
    }
}

impl Usage {
    /// How much of a measure.
    pub fn of(&self, measure: Measure) -> u64 {
        match measure {
            Measure::Tokens => self.tokens(),
            Measure::Cost => self.cost_micro_usd,
            Measure::Turns => self.turns,
        }
    }
}

impl Agent {
    /// What it used itself.
    pub fn usage(&self) -> Usage {
        let running = u64::from(self.turn().is_some());
        let super::TurnCounts { completed, failed, cancelled, interrupted } = self.turns;
        let turns = completed + failed + cancelled + interrupted + running;
        Usage { turns, ..self.account.spent }
    }

    /// What it and all its descendants used, those that ended included.
    pub fn tree_usage(&self) -> Usage {
        self.account.tree
    }

    /// What counts in a scope.
    pub fn usage_in(&self, scope: Scope) -> Usage {
        match scope {
            Scope::Agent => self.usage(),
            Scope::Tree => self.tree_usage(),
        }
    }

    /// A budget allows turns again that held it.
    pub(super) fn release(&mut self, seq: u64) {
        self.account.held = false;
        if self.turn().is_none() && self.unread().next().is_some() {
            self.want_turn(seq);
        }
    }
}

impl State {
    /// The agent and its ancestors, upwards.
    pub(super) fn lineage<'a>(&'a self, agent: &'a Agent) -> impl Iterator<Item = &'a Agent> {
        std::iter::successors(Some(agent), |one| self.agent(one.parent?))
    }

    /// The used-up budget that keeps an agent from starting a turn: its own, or that of the tree
    /// of an ancestor.
    pub fn excess(&self, agent: &Agent) -> Option<Excess> {
        self.excess_with(agent, None)
    }

    /// The same as it will be when an agent has other limits.
    pub(super) fn excess_with(
        &self,
        agent: &Agent,
        other: Option<(AgentId, &[Limit])>,
    ) -> Option<Excess> {
        self.lineage(agent).find_map(|one| {
            let limits = match other {
                Some((id, limits)) if id == one.id => limits,
                _ => one.account.limits(),
            };
            let bind = |limit: &&Limit| limit.scope == Scope::Tree || one.id == agent.id;
            limits.iter().filter(bind).find_map(|limit| {
                let used = one.usage_in(limit.scope).of(limit.measure);
                (used >= limit.most).then(|| Excess {
                    scope: limit.scope,
                    whose: one.id,
                    whose_name: one.name.clone(),
                    measure: limit.measure,
                    used,
                    limit: limit.most,
                })
            })
        })
    }

    /// Books what an agent used to it and to the trees that it is in.
    pub(super) fn book(&mut self, id: AgentId, usage: Usage) {
        if let Some(agent) = self.agents.get_mut(&id) {
            // The turns are counted by how they end.
            agent.account.spent = agent.account.spent.plus(Usage { turns: 0, ..usage });
        }
        self.book_to_trees(id, usage);
    }

    fn book_to_trees(&mut self, from: AgentId, usage: Usage) {
        let mut next = Some(from);
        while let Some(agent) = next.and_then(|id| self.agents.get_mut(&id)) {
            agent.account.tree = agent.account.tree.plus(usage);
            next = agent.parent;
        }
    }

    /// Books what the snapshot of an agent says that it used to the trees that it is in.
    pub(super) fn restore_usage(&mut self, id: AgentId) {
        let Some(agent) = self.agents.get(&id) else { return };
        let used = agent.usage().plus(agent.account.gone);
        if !used.is_zero() {
            self.book_to_trees(id, used);
        }
    }

    /// Keeps what an agent and its descendants used when its session is deleted. Where the session
    /// is not `known`, since its log is gone, it was not booked yet.
    pub(super) fn keep_usage(&mut self, parent: AgentId, usage: Usage, known: bool) {
        if let Some(parent) = self.agents.get_mut(&parent) {
            parent.account.gone = parent.account.gone.plus(usage);
        }
        if !known {
            self.book_to_trees(parent, usage);
        }
    }

    pub(super) fn change_budget(&mut self, id: AgentId, changed: &BudgetChanged) {
        if let Some(agent) = self.agents.get_mut(&id) {
            change(&mut agent.account.limits, changed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_reached_exactly() {
        let levels = [(0, Level::Low), (79, Level::Low), (80, Level::Warning)];
        for (used, level) in levels.into_iter().chain([(99, Level::Warning)]) {
            assert_eq!(Level::of(used, 100), level, "{used} of 100");
        }
        assert_eq!(Level::of(100, 100), Level::Exhausted);
        assert_eq!(Level::of(0, 0), Level::Exhausted, "nothing may be used");
        assert_eq!(Level::of(u64::MAX / 2, u64::MAX), Level::Low);
        assert_eq!(Level::of(u64::MAX, u64::MAX), Level::Exhausted);
    }

    #[test]
    fn money_is_shown_exactly() {
        let shown = [(0, "0.00"), (1, "0.000001"), (500_000, "0.50"), (1_234_500, "1.2345")];
        for (micros, text) in shown {
            assert_eq!(Usd(micros).to_string(), text);
        }
    }

    #[test]
    fn usage_stops_at_the_largest_number() {
        let most = Usage { input_tokens: u64::MAX, output_tokens: 1, ..Usage::default() };
        assert_eq!(most.plus(most).input_tokens, u64::MAX);
        assert_eq!(most.tokens(), u64::MAX);
    }
}
