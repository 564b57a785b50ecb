//! Hostile programs in the sandbox, on the real bubblewrap, as root and as an ordinary user. Each
//! attempt fails or is bounded, as seen from inside and from outside. `docs/security.md` lists
//! them all.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

#[path = "escape/calls.rs"]
mod calls;
#[path = "escape/ends.rs"]
mod ends;
#[path = "escape/files.rs"]
mod files;
#[path = "escape/kernel.rs"]
mod kernel;
#[path = "escape/limits.rs"]
mod limits;
#[path = "escape/links.rs"]
mod links;
#[path = "escape/network.rs"]
mod network;
#[path = "escape/page.rs"]
mod page;
#[path = "escape/processes.rs"]
mod processes;
#[path = "escape/races.rs"]
mod races;
#[path = "escape/worktrees.rs"]
mod worktrees;

/// The other half of the suite.
#[test]
fn the_whole_suite_holds_for_an_ordinary_user() {
    substrat_tests::hostile::run_again_as_ordinary_user(
        "the_whole_suite_holds_for_an_ordinary_user",
    );
}
