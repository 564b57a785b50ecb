//! What turns use up: tokens, money, and turns themselves.

use serde::{Deserialize, Serialize};

/// What was used, as the provider reported it. Sums stop at the largest number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens that the model read anew.
    #[serde(skip_serializing_if = "is_zero")]
    pub input_tokens: u64,
    /// Tokens that it wrote.
    #[serde(skip_serializing_if = "is_zero")]
    pub output_tokens: u64,
    /// Tokens that it read from its cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read_tokens: u64,
    /// Tokens that it read and put into its cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// Money, in millionths of a US dollar.
    #[serde(skip_serializing_if = "is_zero")]
    pub cost_micro_usd: u64,
    /// Turns that started.
    #[serde(skip_serializing_if = "is_zero")]
    pub turns: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Usage {
    /// One turn and nothing else.
    pub(super) const TURN: Self = Self {
        input_tokens: 0,
        output_tokens: 0,
        cache_read_tokens: 0,
        cache_write_tokens: 0,
        cost_micro_usd: 0,
        turns: 1,
    };

    /// Whether nothing was used.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cache_read_tokens: self.cache_read_tokens.saturating_add(other.cache_read_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
            cost_micro_usd: self.cost_micro_usd.saturating_add(other.cost_micro_usd),
            turns: self.turns.saturating_add(other.turns),
        }
    }

    /// Tokens as a budget counts them. What is read from the cache is left out: it costs about a
    /// tenth, and every step of a long turn reads the same again.
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens).saturating_add(self.cache_write_tokens)
    }
}
