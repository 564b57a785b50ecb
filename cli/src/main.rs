//! `substratctl`, the command line of Substrat. A file for each verb under `commands/`.

mod args;
mod client;
mod commands;
mod error;
mod output;
mod time;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Args;
use crate::error::Error;

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&Error::failed(error.to_string()), true),
    };
    let verbose = args.global.verbose;
    let result = runtime.block_on(commands::run(args));
    // What still reads from the terminal must not keep the process.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error, verbose),
    }
}

fn report(error: &Error, verbose: bool) -> ExitCode {
    output::complain(error, verbose);
    ExitCode::from(error.exit_code())
}
