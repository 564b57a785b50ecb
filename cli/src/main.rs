//! `substratctl`, the command line of Substrat. A file for each verb under `commands/`.
#![allow(rustdoc::broken_intra_doc_links, reason = "comments of flags are their help texts")]

mod args;
mod bounded;
mod client;
mod commands;
mod error;
mod escape;
mod output;
mod sandbox;
mod time;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Format, Global};
use crate::error::{Error, Kind};

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&Error::failed(error.to_string()), &args.global),
    };
    let global = args.global.clone();
    let result = runtime.block_on(commands::run(args));
    // What still reads from the terminal must not keep the process.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error, &global),
    }
}

fn report(error: &Error, global: &Global) -> ExitCode {
    if let Kind::Exited(code) = error.kind {
        return ExitCode::from(code);
    }
    match global.output {
        Format::Json => output::complain_in_json(error),
        Format::Table => output::complain(error, global.verbose),
    }
    ExitCode::from(error.exit_code())
}
