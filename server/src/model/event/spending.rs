//! The data of events about usage and budgets.

use serde::{Deserialize, Serialize};

use crate::model::{AgentId, Excess, Measure, MessageId, Name, Scope, TurnId, Usage};

/// Data of `usage.reported`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageReported {
    /// The turn that used it.
    pub turn_id: TurnId,
    /// What was used since the last report; what is zero is absent.
    #[serde(flatten)]
    pub usage: Usage,
}

/// Data of `budget.changed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetChanged {
    /// Whose use it limits.
    pub scope: Scope,
    /// What it counts.
    pub measure: Measure,
    /// How much may be used; null for no limit.
    pub limit: Option<u64>,
}

/// Data of `budget.warning`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetWarning {
    /// Name of the agent that has the budget.
    pub agent: Name,
    /// Whose use it limits.
    pub scope: Scope,
    /// What it counts.
    pub measure: Measure,
    /// How much was used.
    pub used: u64,
    /// How much may be used.
    pub limit: u64,
}

/// Data of `budget.exhausted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetExhausted {
    /// Name of the agent that has the budget.
    pub agent: Name,
    /// Whose use it limits.
    pub scope: Scope,
    /// What it counts.
    pub measure: Measure,
    /// How much was used.
    pub used: u64,
    /// How much may be used.
    pub limit: u64,
}

/// Data of `turn.refused`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnRefused {
    /// Name of the agent.
    pub agent: Name,
    /// Whose use the budget limits.
    pub scope: Scope,
    /// The agent that has the budget.
    pub whose: AgentId,
    /// Its name.
    pub whose_name: Name,
    /// What the budget counts.
    pub measure: Measure,
    /// How much was used.
    pub used: u64,
    /// How much may be used.
    pub limit: u64,
    /// The messages that wait for the turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<MessageId>,
}

impl TurnRefused {
    /// The budget that is used up.
    pub fn excess(&self) -> Excess {
        Excess {
            scope: self.scope,
            whose: self.whose,
            whose_name: self.whose_name.clone(),
            measure: self.measure,
            used: self.used,
            limit: self.limit,
        }
    }
}

/// Data of `budget.released`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetReleased {}
