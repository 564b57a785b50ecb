//! `make bench`: every figure beside its raw limit or rival, measured in the same run.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark may panic, and touches what it measures from outside"
)]

mod attach;
mod cli;
mod daemon;
mod figures;
mod journal;
mod providers;
mod rivals;
mod sandbox;
mod turns;
mod wakes;

use figures::Figures;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    if let [role, socket] = wanted.as_slice()
        && role == "serve-rival"
    {
        return rivals::serve(std::path::Path::new(socket));
    }
    let mut figures = Figures::default();
    if wants("journal") {
        journal::run(&mut figures);
    }
    if wants("turns") {
        turns::run(&mut figures);
    }
    if wants("wakes") {
        wakes::run(&mut figures);
    }
    if wants("attach") {
        attach::run(&mut figures);
    }
    if wants("idle") {
        daemon::idle(&mut figures);
    }
    if wants("recovery") {
        daemon::recovery(&mut figures);
    }
    if wants("sandbox") {
        sandbox::run(&mut figures);
    }
    if wants("providers") {
        providers::run(&mut figures);
    }
    if wants("cli") {
        cli::run(&mut figures);
    }
    if !figures.write() {
        std::process::exit(1);
    }
}
