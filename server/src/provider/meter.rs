//! Counters that backends let run on, of which only differences are booked.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::Usage;

/// What a backend counted in all for a session, as it last said. To be kept with what the session
/// is resumed from, since some count on across processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Totals(Usage);

impl Totals {
    /// Takes a new total, and gives what came since the last one. A total that is lower in anything
    /// was counted from zero again.
    pub fn advance(&mut self, total: Usage) -> Usage {
        let last = std::mem::replace(&mut self.0, total);
        if fits(last, total) { minus(total, last) } else { total }
    }

    /// Takes a new total of the cost, in US dollars, and gives what came since.
    pub fn advance_cost(&mut self, usd: f64) -> Usage {
        let total = micro_usd(usd);
        let last = std::mem::replace(&mut self.0.cost_micro_usd, total);
        let cost_micro_usd = total.checked_sub(last).unwrap_or(total);
        Usage { cost_micro_usd, ..Usage::default() }
    }

    /// Begins at zero.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Takes a new total whose difference is known already.
    pub fn set(&mut self, total: Usage) {
        self.0 = total;
    }
}

fn fits(part: Usage, whole: Usage) -> bool {
    minus(part, whole).is_zero()
}

/// What of one is not in the other.
pub fn minus(whole: Usage, part: Usage) -> Usage {
    Usage {
        input_tokens: whole.input_tokens.saturating_sub(part.input_tokens),
        output_tokens: whole.output_tokens.saturating_sub(part.output_tokens),
        cache_read_tokens: whole.cache_read_tokens.saturating_sub(part.cache_read_tokens),
        cache_write_tokens: whole.cache_write_tokens.saturating_sub(part.cache_write_tokens),
        cost_micro_usd: whole.cost_micro_usd.saturating_sub(part.cost_micro_usd),
        turns: 0,
    }
}

/// More US dollars than any turn costs. What claims more would use up every budget for good.
const MAX_USD: f64 = 1e5;

/// Millionths of a US dollar. What is no amount of money is none.
pub fn micro_usd(usd: f64) -> u64 {
    if usd > MAX_USD {
        tracing::warn!(usd, "a cost that cannot be is not counted");
        return 0;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates; no number becomes 0"
    )]
    let micro = (usd * 1e6).round() as u64;
    micro
}

/// Tokens as OpenAI counts them: what came from a cache is part of what was read. The names of the
/// counters are given, of which any may be missing.
pub(super) fn openai(counts: &Value, [input, cached, written, output]: [&str; 4]) -> Usage {
    let number = |key: &str| super::activity::number(counts, key);
    let (cached, written) = (number(cached), number(written));
    Usage {
        input_tokens: number(input).saturating_sub(cached).saturating_sub(written),
        output_tokens: number(output),
        cache_read_tokens: cached,
        cache_write_tokens: written,
        ..Usage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(input_tokens: u64, output_tokens: u64) -> Usage {
        Usage { input_tokens, output_tokens, ..Usage::default() }
    }

    #[test]
    fn differences_are_booked_and_a_new_count_from_zero() {
        let mut totals = Totals::default();
        assert_eq!(totals.advance(tokens(10, 4)), tokens(10, 4));
        assert_eq!(totals.advance(tokens(10, 4)), tokens(0, 0));
        let kept = serde_json::to_string(&totals).unwrap();
        let mut totals: Totals = serde_json::from_str(&kept).unwrap();
        assert_eq!(totals.advance(tokens(15, 9)), tokens(5, 5));
        assert_eq!(totals.advance(tokens(20, 3)), tokens(20, 3), "it began anew");
        assert_eq!(totals.advance_cost(0.5).cost_micro_usd, 500_000);
        assert_eq!(totals.advance_cost(0.75).cost_micro_usd, 250_000);
        assert_eq!(totals.advance_cost(0.25).cost_micro_usd, 250_000);
    }

    #[test]
    fn what_is_no_amount_of_money_is_none() {
        assert_eq!([f64::NAN, -1.0, f64::NEG_INFINITY].map(micro_usd), [0; 3]);
        assert_eq!([f64::INFINITY, 1e300, 100_001.0].map(micro_usd), [0; 3]);
        assert_eq!(micro_usd(0.000_46), 460);
    }
}
