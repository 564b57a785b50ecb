//! `substratctl provider`: backends that run turns.

use clap::Subcommand;
use substrat_proto::v1;

use super::Context;
use crate::error::Error;
use crate::output::{Table, line};
use crate::sandbox::{self, is_off};

/// Backends that run turns.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List providers, and whether they can run here
    List,
}

pub(crate) async fn run(context: &Context, command: Command) -> Result<(), Error> {
    let Command::List = command;
    let client = context.connect().await?;
    let request = v1::ListProvidersRequest {};
    let response = client.providers().list_providers(request).await?.into_inner();
    context.output.response(&response, |response| {
        let mut table = Table::new(&["PROVIDER", "AVAILABLE", "SLOTS", "VERSION", "WHAT IT IS"]);
        for provider in &response.providers {
            let available = match (provider.available, is_off(provider.sandbox.as_ref())) {
                (true, false) => "yes",
                (true, true) => "yes, sandbox OFF",
                (false, _) => "no",
            };
            table.row(vec![
                provider.name.clone(),
                available.to_owned(),
                format!("{} of {}", provider.slots_held, provider.slot_limit),
                provider.version.clone(),
                provider.description.clone(),
            ]);
        }
        table.print(context.output, "no providers");
        for provider in response.providers.iter().filter(|one| !one.available) {
            line(&format!("{} cannot run here: {}", provider.name, provider.problem));
        }
    })?;
    sandbox::warn(&client).await
}
