//! `substratd`, the Substrat daemon.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use prost::Message;
use substrat_server::daemon::{Config, Options, environment, run};
use substrat_server::launcher;

/// Runs teams of LLM agents as durable, supervised sessions on this machine.
///
/// Usually started by "substratctl daemon start".
#[derive(Parser)]
#[command(name = "substratd", version)]
struct Args {
    /// Home folder
    #[arg(long, env = "SUBSTRAT_HOME", value_name = "DIR")]
    home: Option<PathBuf>,
    /// API socket [default: substratd.sock in the home]
    #[arg(long, env = "SUBSTRAT_SOCKET", value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Sets a configuration value, such as slots.default=8
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Logs to the home and says "ready" on stdout
    #[arg(long)]
    background: bool,
    /// Writes the effective configuration to stdout, as an encoded
    /// substrat.v1.GetConfigResponse, and exits
    #[arg(long)]
    print_config: bool,
}

fn main() -> ExitCode {
    // What the daemon starts as the first process of an agent's: no option, and not for people.
    if std::env::args_os().nth(1).is_some_and(|first| first == "init") {
        return launcher::init::main();
    }
    let args = Args::parse();
    let Some(home) = args.home.or_else(|| Some(std::env::home_dir()?.join(".substrat"))) else {
        return fail("there is no home folder; give one with --home");
    };
    if args.print_config {
        let config = match Config::load(&home, environment(), &args.set) {
            Ok(config) => config.show().encode_to_vec(),
            Err(error) => return fail(&error.to_string()),
        };
        return match std::io::stdout().write_all(&config) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string()),
        };
    }
    let options = Options { home, socket: args.socket, set: args.set, background: args.background };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(error: &str) -> ExitCode {
    // Nothing is left to be done about a stderr that is gone.
    let _ = writeln!(std::io::stderr(), "substratd: {error}");
    ExitCode::FAILURE
}
