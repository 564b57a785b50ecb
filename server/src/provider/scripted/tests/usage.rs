//! What scripts say that they used.

use super::*;

/// What a turn with this body reported.
fn used(body: &str) -> Result<Vec<Usage>, String> {
    let io = io(|_, _| Ok(Value::Null));
    let ended = turn(&format!("fn turn(prompt) {{ {body}; }}"), &io);
    ended.map_err(|failure| failure.message)?;
    let used = io.used.lock().unwrap().clone();
    Ok(used)
}

#[test]
fn usage_is_reported_as_it_comes() {
    let first = Usage { input_tokens: 10, output_tokens: 3, ..Usage::default() };
    let body = "usage(10, 3); usage(10, 3, 0.25); usage(10, 3, 2)";
    let dear = |cost_micro_usd| Usage { cost_micro_usd, ..first };
    assert_eq!(used(body), Ok(vec![first, dear(250_000), dear(2_000_000)]));
    let body = "usage(#{ cache_read_tokens: 7, cache_write_tokens: 2, cost_usd: 0.000001 })";
    let cached = Usage {
        cache_read_tokens: 7,
        cache_write_tokens: 2,
        cost_micro_usd: 1,
        ..Usage::default()
    };
    assert_eq!(used(body), Ok(vec![cached]));
}

#[test]
fn usage_that_makes_no_sense_fails_the_turn() {
    for (body, why) in [
        ("usage(-1, 3)", "input_tokens is a whole number from 0 on"),
        ("usage(1, 3, -0.5)", "a cost is a number of US dollars from 0 on"),
        ("usage(1, 3, \"free\")", "a cost is a number"),
        ("usage(#{ output_tokens: 1.5 })", "output_tokens is a whole number"),
        ("usage(#{ tokens: 1 })", "usage has no \"tokens\""),
    ] {
        let failed = used(body).expect_err(body);
        assert!(failed.contains(why), "{body}: {failed}");
    }
}
