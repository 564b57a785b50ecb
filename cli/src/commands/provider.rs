//! `substratctl provider`: backends that run turns.

use clap::Subcommand;
use substrat_proto::v1;

use super::Context;
use crate::client::Client;
use crate::error::Error;
use crate::output::{Table, line};
use crate::sandbox::is_off;

/// Backends that run turns.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List providers, and whether they can run here
    List,
    /// Look closely whether a provider can run here; exits with 1 if it cannot
    Check {
        /// Name of the provider
        provider: String,
    },
    /// List the models that a provider offers
    Models {
        /// Name of the provider
        provider: String,
    },
}

pub(crate) async fn run(context: &Context, command: Command) -> Result<(), Error> {
    let client = context.connect().await?;
    match command {
        Command::List => list(context, &client).await?,
        Command::Check { provider } => check(context, &client, provider).await?,
        Command::Models { provider } => return models(context, &client, provider).await,
    }
    crate::sandbox::warn(&client).await
}

async fn list(context: &Context, client: &Client) -> Result<(), Error> {
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
            let slots = format!("{} of {}", provider.slots_held, provider.slot_limit);
            table.row(vec![
                provider.name.clone(),
                available.to_owned(),
                slots,
                provider.version.clone(),
                provider.description.clone(),
            ]);
        }
        table.print(context.output, "no providers");
        for provider in response.providers.iter().filter(|one| !one.available) {
            line(&format!("{} cannot run here: {}", provider.name, provider.problem));
        }
    })
}

async fn check(context: &Context, client: &Client, provider: String) -> Result<(), Error> {
    let request = v1::CheckProviderRequest { provider };
    let response = client.providers().check_provider(request).await?.into_inner();
    context.output.response(&response, |response| {
        let Some(provider) = &response.provider else { return };
        line(&format!("{}: {}", provider.name, provider.description));
        let version = Some(("version", &provider.version)).filter(|(_, text)| !text.is_empty());
        let facts = provider.facts.iter().map(|fact| (fact.name.as_str(), &fact.value));
        for (name, value) in version.into_iter().chain(facts) {
            line(&format!("  {name}: {value}"));
        }
        if provider.available {
            line("  it can run here");
        }
    })?;
    let problem = response.provider.map(|provider| provider.problem).unwrap_or_default();
    if problem.is_empty() { Ok(()) } else { Err(Error::failed(problem)) }
}

async fn models(context: &Context, client: &Client, provider: String) -> Result<(), Error> {
    let request = v1::ListModelsRequest { provider };
    let response = client.providers().list_models(request).await?.into_inner();
    context.output.response(&response, |response| {
        const HEADINGS: &[&str] = &["MODEL", "NAME", "CONTEXT"];
        // Most tell no context.
        let told = response.models.iter().any(|model| model.context_tokens > 0);
        let shown = if told { HEADINGS } else { &HEADINGS[..2] };
        let mut table = Table::new(shown);
        for model in &response.models {
            let context = match model.context_tokens {
                0 => "-".to_owned(),
                tokens => tokens.to_string(),
            };
            let cells = [model.id.clone(), model.label.clone(), context];
            table.row(cells.into_iter().take(shown.len()).collect());
        }
        table.print(context.output, "no models");
    })
}
