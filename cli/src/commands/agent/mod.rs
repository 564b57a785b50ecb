//! `substratctl agent`: create agents, talk to them, govern them.

mod answer;
mod attach;
mod budget;
mod create;
mod govern;
mod inspect;
pub(crate) mod list;
mod log;
mod mail;
mod send;
mod show;
mod transcript;
mod update;

use clap::Subcommand;

use super::Context;
use crate::error::Error;

pub(crate) use show::state_word;

/// Create agents, talk to them, govern them.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create an agent, a root unless a parent is given
    Create(create::Args),
    /// List agents
    List(list::Args),
    /// Watch an agent live and talk to it
    Attach(attach::Args),
    /// Send a message and wait for the answer
    Send(send::Args),
    /// Show what an agent is doing
    Inspect(inspect::Args),
    /// Answer whether a backend may use a tool
    Answer(answer::Args),
    /// Change instructions, role, labels or budgets
    Update(update::Args),
    /// Let it go on with messages that lie in its inbox
    Retry(mail::Retry),
    /// Remove messages from its inbox, undelivered
    Discard(mail::Discard),
    /// End the running turn
    Cancel(govern::Args),
    /// Hold back new turns
    Gate(govern::Args),
    /// Let turns start again
    Ungate(govern::Args),
    /// Let one turn of a gated agent start
    Permit(govern::Args),
    /// End an agent for good
    Terminate(govern::Terminate),
    /// Show the events of an agent
    Log(log::Args),
    /// Show the conversation of an agent
    Transcript(transcript::Args),
}

pub(crate) async fn run(context: &Context, command: Command) -> Result<(), Error> {
    match command {
        Command::Create(args) => create::run(context, args).await,
        Command::List(args) => list::run(context, &args).await,
        Command::Attach(args) => attach::run(context, args).await,
        Command::Send(args) => send::run(context, args).await,
        Command::Inspect(args) => inspect::run(context, args).await,
        Command::Answer(args) => answer::run(context, args).await,
        Command::Update(args) => update::run(context, args).await,
        Command::Retry(args) => mail::retry(context, args).await,
        Command::Discard(args) => mail::discard(context, args).await,
        Command::Cancel(args) => govern::cancel(context, args).await,
        Command::Gate(args) => govern::gate(context, args).await,
        Command::Ungate(args) => govern::ungate(context, args).await,
        Command::Permit(args) => govern::permit(context, args).await,
        Command::Terminate(args) => govern::terminate(context, args).await,
        Command::Log(args) => log::run(context, args).await,
        Command::Transcript(args) => transcript::run(context, args).await,
    }
}
