//! The verbs, a file each.

pub(crate) mod agent;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod demo;
pub(crate) mod events;
pub(crate) mod inbox;
pub(crate) mod mcp;
pub(crate) mod provider;
pub(crate) mod session;
pub(crate) mod turn;
pub(crate) mod workspace;

use clap::CommandFactory;

use crate::args::{Args, Command, Global};
use crate::client::{Client, Place};
use crate::error::Error;
use crate::output::Output;

/// What every verb works with.
pub(crate) struct Context {
    pub(crate) place: Place,
    pub(crate) output: Output,
}

impl Context {
    fn new(global: &Global) -> Result<Self, Error> {
        Ok(Self { place: Place::new(global)?, output: Output::new(global) })
    }

    pub(crate) async fn connect(&self) -> Result<Client, Error> {
        self.place.connect().await
    }
}

/// Runs a command.
pub(crate) async fn run(args: Args) -> Result<(), Error> {
    let context = Context::new(&args.global)?;
    match args.command {
        Command::Daemon(command) => daemon::run(&context, command).await,
        Command::Agent(command) => agent::run(&context, command).await,
        Command::Session(command) => session::run(&context, command).await,
        Command::Turn(command) => turn::run(&context, command).await,
        Command::Workspace(command) => workspace::run(&context, command).await,
        Command::Inbox(args) => inbox::run(&context, &args).await,
        Command::Events(args) => events::run(&context, args).await,
        Command::Provider(command) => provider::run(&context, command).await,
        Command::Config(command) => config::run(&context, command).await,
        Command::Demo(args) => demo::run(&context, args).await,
        Command::Mcp(args) => mcp::run(&context, args).await,
        Command::Completions { shell } => {
            let mut command = Args::command();
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "substratctl", &mut script);
            crate::output::write(&String::from_utf8_lossy(&script));
            Ok(())
        }
    }
}
