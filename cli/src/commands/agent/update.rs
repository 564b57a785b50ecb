//! `substratctl agent update`.

use std::collections::BTreeMap;

use clap::ArgGroup;
use substrat_proto::v1;

use super::Context;
use super::create::instructions;
use crate::client::request_id;
use crate::error::Error;
use crate::output::line;

/// Change instructions, role, labels or budgets.
#[derive(clap::Args)]
#[command(group = ArgGroup::new("changes").required(true).multiple(true)
    .args(["instructions", "role", "labels", "budget_tokens", "budget_usd", "budget_turns",
        "tree_budget_tokens", "tree_budget_usd", "tree_budget_turns"]))]
pub(crate) struct Args {
    /// The agent
    agent: String,
    /// New instructions, or @FILE; they hold from the next turn on
    #[arg(long, value_name = "TEXT|@FILE")]
    instructions: Option<String>,
    /// New role
    #[arg(long)]
    role: Option<String>,
    /// A label to set, or to remove with an empty value; may be given more than once
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    budgets: super::budget::Budgets,
}

/// Reads a label.
pub(super) fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("KEY=VALUE fits")?;
    Ok((key.to_owned(), value.to_owned()))
}

pub(super) async fn run(context: &Context, args: Args) -> Result<(), Error> {
    let mut paths = Vec::new();
    let mut changed = |set: bool, name: &str| {
        if set {
            paths.push(name.to_owned());
        }
    };
    changed(args.instructions.is_some(), "instructions");
    changed(args.role.is_some(), "role");
    changed(!args.labels.is_empty(), "metadata");
    for (given, path) in args.budgets.given() {
        changed(given, path);
    }
    let given = args.instructions.map(|given| instructions(&given)).transpose()?;
    let request = v1::UpdateAgentRequest {
        agent: args.agent,
        instructions: given.unwrap_or_default(),
        role: args.role.unwrap_or_default(),
        metadata: args.labels.into_iter().collect::<BTreeMap<_, _>>(),
        update_mask: Some(prost_types::FieldMask { paths }),
        request_id: request_id(),
        budget: Some(args.budgets.own()),
        tree_budget: Some(args.budgets.tree()),
    };
    let client = context.connect().await?;
    let response = client.agents().update_agent(request).await?.into_inner();
    context.output.response(&response, |response| {
        if let Some(agent) = &response.agent {
            line(&format!("updated {}", agent.path));
        }
    })
}
