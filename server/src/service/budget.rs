//! Usage and budgets on the wire.

use substrat_proto::v1;

use crate::model::{Agent, BudgetChanged, Measure, Scope, State, Usage};

/// The fields of an update that change budgets.
const FIELDS: [(&str, Scope, Measure); 6] = [
    ("budget.tokens", Scope::Agent, Measure::Tokens),
    ("budget.cost_micro_usd", Scope::Agent, Measure::Cost),
    ("budget.turns", Scope::Agent, Measure::Turns),
    ("tree_budget.tokens", Scope::Tree, Measure::Tokens),
    ("tree_budget.cost_micro_usd", Scope::Tree, Measure::Cost),
    ("tree_budget.turns", Scope::Tree, Measure::Turns),
];

pub(super) fn usage(usage: Usage) -> v1::Usage {
    v1::Usage {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cache_read_tokens: usage.cache_read_tokens,
        cache_write_tokens: usage.cache_write_tokens,
        cost_micro_usd: usage.cost_micro_usd,
        turns: usage.turns,
    }
}

/// A budget of an agent; none if it has none.
pub(super) fn of(agent: &Agent, scope: Scope) -> Option<v1::Budget> {
    let mut budget = v1::Budget::default();
    let limits = agent.account.limits().iter().filter(|limit| limit.scope == scope);
    for limit in limits {
        *match limit.measure {
            Measure::Tokens => &mut budget.tokens,
            Measure::Cost => &mut budget.cost_micro_usd,
            Measure::Turns => &mut budget.turns,
        } = Some(limit.most);
    }
    Some(budget).filter(|budget| *budget != v1::Budget::default())
}

/// The budget that keeps an agent from starting turns.
pub(super) fn excess(state: &State, agent: &Agent) -> Option<v1::BudgetExcess> {
    let excess = state.excess(agent).filter(|_| agent.is_live())?;
    let scope = match excess.scope {
        Scope::Agent => v1::BudgetScope::Agent,
        Scope::Tree => v1::BudgetScope::Tree,
    };
    let measure = match excess.measure {
        Measure::Tokens => v1::BudgetMeasure::Tokens,
        Measure::Cost => v1::BudgetMeasure::Cost,
        Measure::Turns => v1::BudgetMeasure::Turns,
    };
    Some(v1::BudgetExcess {
        scope: scope.into(),
        agent_id: excess.whose.to_string(),
        agent_path: state.agent(excess.whose).map(|one| state.path(one)).unwrap_or_default(),
        measure: measure.into(),
        used: excess.used,
        limit: excess.limit,
    })
}

/// The limit that a field of a request holds.
fn limit(scope: Scope, measure: Measure, own: v1::Budget, tree: v1::Budget) -> Option<u64> {
    let budget = if scope == Scope::Agent { own } else { tree };
    match measure {
        Measure::Tokens => budget.tokens,
        Measure::Cost => budget.cost_micro_usd,
        Measure::Turns => budget.turns,
    }
}

/// The limits that are set.
pub(super) fn given(own: Option<v1::Budget>, tree: Option<v1::Budget>) -> Vec<BudgetChanged> {
    let fields = set_fields(own, tree);
    let mask: Vec<String> =
        fields.iter().filter(|(_, set)| *set).map(|(path, _)| (*path).to_owned()).collect();
    changes(&mask, own, tree)
}

/// The fields of budgets, and whether they are set.
pub(super) fn set_fields(
    own: Option<v1::Budget>,
    tree: Option<v1::Budget>,
) -> [(&'static str, bool); 6] {
    let (own, tree) = (own.unwrap_or_default(), tree.unwrap_or_default());
    FIELDS.map(|(path, scope, measure)| (path, limit(scope, measure, own, tree).is_some()))
}

/// Whether a path of an update mask names a budget or a part of one.
pub(super) fn is_field(path: &str) -> bool {
    FIELDS.iter().any(|(field, ..)| names(path, field))
}

fn names(path: &str, field: &str) -> bool {
    path == field || field.split_once('.').is_some_and(|(budget, _)| budget == path)
}

/// What an update changes: what its mask names is set, or removed where it is absent.
pub(super) fn changes(
    mask: &[String],
    own: Option<v1::Budget>,
    tree: Option<v1::Budget>,
) -> Vec<BudgetChanged> {
    let (own, tree) = (own.unwrap_or_default(), tree.unwrap_or_default());
    let named = FIELDS.iter().filter(|(field, ..)| mask.iter().any(|path| names(path, field)));
    named
        .map(|(_, scope, measure)| BudgetChanged {
            scope: *scope,
            measure: *measure,
            limit: limit(*scope, *measure, own, tree),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_names_a_budget_or_a_part_of_it() {
        let own = v1::Budget { tokens: Some(5), turns: Some(2), ..Default::default() };
        let changed = |mask: &[&str]| {
            let mask: Vec<String> = mask.iter().map(|path| (*path).to_owned()).collect();
            assert!(mask.iter().all(|path| is_field(path)));
            let found = changes(&mask, Some(own), None);
            found.iter().map(|one| (one.scope, one.measure, one.limit)).collect::<Vec<_>>()
        };
        assert_eq!(changed(&["budget.tokens"]), [(Scope::Agent, Measure::Tokens, Some(5))]);
        assert_eq!(changed(&["tree_budget.turns"]), [(Scope::Tree, Measure::Turns, None)]);
        assert_eq!(
            changed(&["budget", "budget.turns"]),
            [
                (Scope::Agent, Measure::Tokens, Some(5)),
                (Scope::Agent, Measure::Cost, None),
                (Scope::Agent, Measure::Turns, Some(2)),
            ]
        );
        assert!(!is_field("budget.x") && !is_field("") && !is_field("tokens"));
        assert_eq!(given(Some(own), None).len(), 2);
    }
}
