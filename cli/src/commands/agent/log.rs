//! `substratctl agent log`.

use super::Context;
use crate::commands::events::{Wanted, show};
use crate::error::Error;

/// Show the events of an agent.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The agent; a terminated one by its id
    agent: String,
    /// Go on with new events
    #[arg(long, short)]
    follow: bool,
    /// First sequence to show
    #[arg(long, value_name = "SEQ")]
    from: Option<u64>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<(), Error> {
    let wanted = Wanted {
        agent: args.agent,
        follow: args.follow,
        from: Some(args.from.unwrap_or(1)),
        types: Vec::new(),
    };
    show(context, wanted).await
}
