//! Simulated worlds: see `substrat_tests::world`.

#![allow(clippy::expect_used, reason = "a test may panic")]

use substrat_tests::world;

/// Seeds in every run of the suite.
const SEEDS: u64 = 200;

#[test]
fn nothing_acknowledged_is_lost_in_any_world() {
    let (mut deaths, mut events, mut acknowledged, mut answers) = (0, 0, 0, 0);
    for seed in seeds() {
        let world = on_failure_say(seed, || world::run(seed));
        deaths += world.deaths;
        events += world.events;
        acknowledged += world.acknowledged;
        answers += world.answers;
    }
    println!("{deaths} deaths, {events} events, {acknowledged} acknowledged, {answers} answers");
    assert!(deaths > 0 && answers > 0, "the worlds are worth judging");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in [1, 7, 11] {
        assert!(world::run(seed) == world::run(seed), "seed {seed} came to two worlds");
    }
}

/// The seeds to run: those of `SUBSTRAT_SEEDS` (`from..to`), or as many as every run has.
fn seeds() -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("SUBSTRAT_SEEDS") else { return 0..SEEDS };
    let (from, to) = range.split_once("..").expect("SUBSTRAT_SEEDS is from..to");
    from.parse().expect("a number")..to.parse().expect("a number")
}

fn on_failure_say<T>(seed: u64, run: impl FnOnce() -> T + std::panic::UnwindSafe) -> T {
    std::panic::catch_unwind(run).unwrap_or_else(|panic| {
        eprintln!("seed {seed}: run it alone with SUBSTRAT_SEEDS={seed}..{}", seed + 1);
        std::panic::resume_unwind(panic)
    })
}
