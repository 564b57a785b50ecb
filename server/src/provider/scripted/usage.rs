//! What a script says that it used, in place of a model.

use rhai::{Dynamic, Engine, Map};

use super::host::{Error, report_usage};
use crate::model::Usage;

pub(super) fn register(engine: &mut Engine) {
    engine.register_fn("usage", |input: i64, output: i64| {
        report_usage(Usage {
            input_tokens: tokens("input_tokens", &input.into())?,
            output_tokens: tokens("output_tokens", &output.into())?,
            ..Usage::default()
        })
    });
    engine.register_fn("usage", |input: i64, output: i64, cost: Dynamic| {
        report_usage(Usage {
            input_tokens: tokens("input_tokens", &input.into())?,
            output_tokens: tokens("output_tokens", &output.into())?,
            cost_micro_usd: micro_usd(&cost)?,
            ..Usage::default()
        })
    });
    engine.register_fn("usage", |used: Map| report_usage(read(&used)?));
}

fn read(used: &Map) -> Result<Usage, Error> {
    let mut usage = Usage::default();
    for (key, value) in used {
        let place = match key.as_str() {
            "input_tokens" => &mut usage.input_tokens,
            "output_tokens" => &mut usage.output_tokens,
            "cache_read_tokens" => &mut usage.cache_read_tokens,
            "cache_write_tokens" => &mut usage.cache_write_tokens,
            "cost_usd" => {
                usage.cost_micro_usd = micro_usd(value)?;
                continue;
            }
            _ => {
                return Err(format!(
                    "usage has no {key:?}; there are: input_tokens, output_tokens, \
                     cache_read_tokens, cache_write_tokens, cost_usd"
                )
                .into());
            }
        };
        *place = tokens(key, value)?;
    }
    Ok(usage)
}

fn tokens(key: &str, value: &Dynamic) -> Result<u64, Error> {
    let number = value.as_int().ok().and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| format!("{key} is a whole number from 0 on").into())
}

fn micro_usd(value: &Dynamic) -> Result<u64, Error> {
    let usd = value.as_float().or_else(|_| value.as_int().map(|whole| whole as f64));
    match usd {
        // A cast stops at the largest number.
        Ok(usd) if usd >= 0.0 => Ok((usd * 1e6).round() as u64),
        _ => Err("a cost is a number of US dollars from 0 on".into()),
    }
}
