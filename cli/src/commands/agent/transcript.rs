//! `substratctl agent transcript`.

use substrat_proto::v1;

use super::Context;
use crate::error::Error;
use crate::output::write;

/// Show the conversation of an agent.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The agent; a terminated one by its id
    agent: String,
    /// Go on with new lines
    #[arg(long, short)]
    follow: bool,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<(), Error> {
    let client = context.connect().await?;
    let request = v1::ReadTranscriptRequest { agent: args.agent, follow: args.follow };
    let mut lines = client.sessions().read_transcript(request).await?.into_inner();
    while let Some(response) = lines.message().await? {
        context.output.item(&response, |response| write(&response.text))?;
    }
    Ok(())
}
