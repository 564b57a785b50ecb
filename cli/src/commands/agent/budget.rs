//! Budgets: how they are given and shown.

use std::str::FromStr;

use substrat_proto::v1;

use crate::output::count;

/// A limit that is set, or that is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit(Option<u64>);

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let number = text.parse().map_err(|_| "a whole number or none fits")?;
        Ok(Self(Some(number)))
    }
}

/// Reads dollars as a limit in millionths.
fn usd(text: &str) -> Result<Limit, String> {
    const FITS: &str = "dollars such as 2.50, with at most six digits after the point, or none fit";
    if text == "none" {
        return Ok(Limit(None));
    }
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 6 || whole.len() + part.len() == 0 {
        return Err(FITS.to_owned());
    }
    let micros = format!("{whole}{part:0<6}").parse().map_err(|_| FITS)?;
    Ok(Limit(Some(micros)))
}

/// What an agent may use.
#[derive(clap::Args)]
pub(super) struct Budgets {
    /// Tokens that it may use: input, output and cache writes
    #[arg(long, value_name = "COUNT|none", allow_negative_numbers = true)]
    budget_tokens: Option<Limit>,
    /// Dollars that it may cost
    #[arg(long, value_name = "USD|none", value_parser = usd, allow_negative_numbers = true)]
    budget_usd: Option<Limit>,
    /// Turns that it may take
    #[arg(long, value_name = "COUNT|none", allow_negative_numbers = true)]
    budget_turns: Option<Limit>,
    /// Tokens that it and all its descendants may use
    #[arg(long, value_name = "COUNT|none", allow_negative_numbers = true)]
    tree_budget_tokens: Option<Limit>,
    /// Dollars that it and all its descendants may cost
    #[arg(long, value_name = "USD|none", value_parser = usd, allow_negative_numbers = true)]
    tree_budget_usd: Option<Limit>,
    /// Turns that it and all its descendants may take
    #[arg(long, value_name = "COUNT|none", allow_negative_numbers = true)]
    tree_budget_turns: Option<Limit>,
}

fn budget(tokens: Option<Limit>, usd: Option<Limit>, turns: Option<Limit>) -> v1::Budget {
    let most = |limit: Option<Limit>| limit.and_then(|limit| limit.0);
    v1::Budget { tokens: most(tokens), cost_micro_usd: most(usd), turns: most(turns) }
}

impl Budgets {
    /// The budget of the agent.
    pub(super) fn own(&self) -> v1::Budget {
        budget(self.budget_tokens, self.budget_usd, self.budget_turns)
    }

    /// The budget of its tree.
    pub(super) fn tree(&self) -> v1::Budget {
        budget(self.tree_budget_tokens, self.tree_budget_usd, self.tree_budget_turns)
    }

    /// Whether each is given, with its path in an update mask.
    pub(super) fn given(&self) -> [(bool, &'static str); 6] {
        [
            (self.budget_tokens.is_some(), "budget.tokens"),
            (self.budget_usd.is_some(), "budget.cost_micro_usd"),
            (self.budget_turns.is_some(), "budget.turns"),
            (self.tree_budget_tokens.is_some(), "tree_budget.tokens"),
            (self.tree_budget_usd.is_some(), "tree_budget.cost_micro_usd"),
            (self.tree_budget_turns.is_some(), "tree_budget.turns"),
        ]
    }
}

/// Millionths of a dollar as dollars.
fn dollars(micros: u64) -> String {
    let digits = format!("{:06}", micros % 1_000_000);
    let shown = digits.trim_end_matches('0').len().max(2);
    format!("${}.{}", micros / 1_000_000, &digits[..shown])
}

/// How a number is shown.
type Show = fn(u64) -> String;

fn plain(number: u64) -> String {
    number.to_string()
}

/// What counts as tokens.
fn tokens(usage: &v1::Usage) -> u64 {
    let sum = usage.input_tokens.saturating_add(usage.output_tokens);
    sum.saturating_add(usage.cache_write_tokens)
}

/// What was used, such as `2 turns, 1500 tokens (1000 in, 500 out), $0.03`.
pub(super) fn usage(usage: &v1::Usage) -> String {
    let mut text = format!("{}, {}", count(usage.turns, "turn"), count(tokens(usage), "token"));
    let parts = [
        (usage.input_tokens, "in"),
        (usage.output_tokens, "out"),
        (usage.cache_write_tokens, "cache writes"),
        (usage.cache_read_tokens, "cache reads beside them"),
    ];
    let parts = parts.iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = parts.map(|(number, word)| format!("{number} {word}")).collect();
    if !parts.is_empty() {
        text += &format!(" ({})", parts.join(", "));
    }
    if usage.cost_micro_usd > 0 {
        text += &format!(", {}", dollars(usage.cost_micro_usd));
    }
    text
}

/// How much of a budget is used, such as `800 of 1000 tokens (80 %)`.
pub(super) fn shares(usage: Option<&v1::Usage>, budget: Option<&v1::Budget>) -> Vec<String> {
    let (usage, budget) = (usage.copied().unwrap_or_default(), budget.copied().unwrap_or_default());
    let measures: [(u64, Option<u64>, &str, Show); 3] = [
        (tokens(&usage), budget.tokens, " tokens", plain),
        (usage.cost_micro_usd, budget.cost_micro_usd, "", dollars),
        (usage.turns, budget.turns, " turns", plain),
    ];
    let limited = measures.iter().filter_map(|(used, most, word, show)| {
        let most = (*most)?;
        let percent = match most {
            0 => 100,
            most => u128::from(*used) * 100 / u128::from(most),
        };
        Some(format!("{} of {}{word} ({percent} %)", show(*used), show(most)))
    });
    limited.collect()
}

/// The budget that keeps an agent from starting turns.
pub(super) fn excess(excess: &v1::BudgetExcess) -> String {
    let (what, show): (_, Show) = match excess.measure() {
        v1::BudgetMeasure::Cost => ("cost", dollars),
        v1::BudgetMeasure::Turns => ("turn", plain),
        v1::BudgetMeasure::Tokens | v1::BudgetMeasure::Unspecified => ("token", plain),
    };
    let tree = match excess.scope() {
        v1::BudgetScope::Tree => "the tree of ",
        v1::BudgetScope::Agent | v1::BudgetScope::Unspecified => "",
    };
    let (used, limit) = (show(excess.used), show(excess.limit));
    format!("the {what} budget of {tree}{} is used up: {used} of {limit}", excess.agent_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_are_read_exactly() {
        for (text, micros) in
            [("2.50", 2_500_000), ("0.000001", 1), (".5", 500_000), ("3", 3_000_000), ("0", 0)]
        {
            assert_eq!(usd(text), Ok(Limit(Some(micros))), "{text}");
        }
        assert_eq!(usd("none"), Ok(Limit(None)));
        for bad in ["", ".", "-1", "1,5", "1e3", "0.0000001", "99999999999999999999", "$1"] {
            assert!(usd(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn usage_and_budgets_are_shown_in_words() {
        let used = v1::Usage {
            input_tokens: 1000,
            output_tokens: 500,
            cost_micro_usd: 30_000,
            turns: 1,
            ..Default::default()
        };
        assert_eq!(usage(&used), "1 turn, 1500 tokens (1000 in, 500 out), $0.03");
        assert_eq!(usage(&v1::Usage::default()), "0 turns, 0 tokens");
        let budget = v1::Budget { tokens: Some(2000), cost_micro_usd: Some(0), turns: None };
        let shown = shares(Some(&used), Some(&budget));
        assert_eq!(shown, ["1500 of 2000 tokens (75 %)", "$0.03 of $0.00 (100 %)"]);
    }
}
