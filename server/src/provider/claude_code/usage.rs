//! What Claude Code says of what was used.
//!
//! While a turn runs, each call of the model tells its tokens; the result tells those of the turn,
//! with what was lost between (calls that broke off, subagents) and the cost. Newer versions give
//! the difference since the last result; in older ones `modelUsage` and `total_cost_usd` run on,
//! over the process or over the session.

use serde_json::Value;

use crate::model::Usage;
use crate::provider::activity::number;
use crate::provider::meter::{Totals, micro_usd, minus};

/// What was used and told so far.
#[derive(Debug, Default)]
pub(super) struct Meter {
    totals: Totals,
    /// Whether the process gave a result.
    has_result: bool,
    /// What the call of the model that is streamed used.
    call: Usage,
    /// What was told of it.
    told: Usage,
    /// What was told since the last result.
    told_in_turn: Usage,
}

impl Meter {
    pub(super) fn new(totals: Totals) -> Self {
        Self { totals, ..Self::default() }
    }

    /// What is to be kept with the session.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// A call of the model begins.
    pub(super) fn begin(&mut self, usage: &Value) {
        (self.call, self.told) = (tokens(usage), Usage::default());
    }

    /// The call says what it used so far. Gives what is new of it.
    pub(super) fn say(&mut self, usage: &Value) -> Usage {
        let said = tokens(usage);
        // It may name only some of its counters, and they run on.
        self.call = Usage {
            input_tokens: self.call.input_tokens.max(said.input_tokens),
            output_tokens: said.output_tokens,
            cache_read_tokens: self.call.cache_read_tokens.max(said.cache_read_tokens),
            cache_write_tokens: self.call.cache_write_tokens.max(said.cache_write_tokens),
            ..Usage::default()
        };
        let new = minus(self.call, self.told);
        self.told = self.told.plus(new);
        self.told_in_turn = self.told_in_turn.plus(new);
        new
    }

    /// The turn ends. Gives what was not told of it yet.
    pub(super) fn result(&mut self, result: &Value) -> Usage {
        let total = Usage {
            cost_micro_usd: micro_usd(
                result.get("total_cost_usd").and_then(Value::as_f64).unwrap_or_default(),
            ),
            ..models(result.get("modelUsage"))
        };
        let first = !std::mem::replace(&mut self.has_result, true);
        let since = match result.get("model_usage_since_last_result") {
            Some(since) if since.is_object() => {
                self.totals.set(total);
                models(Some(since))
            }
            _ => {
                // What a process counts in all at its first result is what the turn used: it did
                // not count on from an earlier one.
                let turn = tokens(result.get("usage").unwrap_or(&Value::Null));
                if first && turn == (Usage { cost_micro_usd: 0, ..total }) {
                    self.totals.reset();
                }
                self.totals.advance(total)
            }
        };
        let told = std::mem::take(&mut self.told_in_turn);
        (self.call, self.told) = Default::default();
        minus(since, told)
    }
}

/// Tokens as the model's API counts them.
fn tokens(usage: &Value) -> Usage {
    Usage {
        input_tokens: number(usage, "input_tokens"),
        output_tokens: number(usage, "output_tokens"),
        cache_read_tokens: number(usage, "cache_read_input_tokens"),
        cache_write_tokens: number(usage, "cache_creation_input_tokens"),
        ..Usage::default()
    }
}

/// What all models used together.
fn models(models: Option<&Value>) -> Usage {
    let used = |usage: &Value| Usage {
        input_tokens: number(usage, "inputTokens"),
        output_tokens: number(usage, "outputTokens"),
        cache_read_tokens: number(usage, "cacheReadInputTokens"),
        cache_write_tokens: number(usage, "cacheCreationInputTokens"),
        cost_micro_usd: micro_usd(usage.get("costUSD").and_then(Value::as_f64).unwrap_or_default()),
        turns: 0,
    };
    let models = models.and_then(Value::as_object).into_iter().flatten();
    models.map(|(_, usage)| used(usage)).fold(Usage::default(), Usage::plus)
}
