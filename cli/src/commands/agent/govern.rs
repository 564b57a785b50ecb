//! `substratctl agent cancel`, `gate`, `ungate`, `permit` and `terminate`.

use substrat_proto::v1;

use super::Context;
use crate::client::request_id;
use crate::error::Error;
use crate::output::line;

/// An agent.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The agent
    agent: String,
}

/// End an agent for good.
#[derive(clap::Args)]
pub(crate) struct Terminate {
    /// The agent
    agent: String,
    /// End its descendants with it
    #[arg(long)]
    recursive: bool,
}

pub(super) async fn cancel(context: &Context, args: Args) -> Result<(), Error> {
    let client = context.connect().await?;
    let (agent, turn_id) = (args.agent, String::new());
    let request = v1::CancelTurnRequest { agent, turn_id, request_id: request_id() };
    let response = client.agents().cancel_turn(request).await?.into_inner();
    context.output.response(&response, |response| {
        line(&format!("cancelling {}", response.turn_id));
    })
}

pub(super) async fn gate(context: &Context, args: Args) -> Result<(), Error> {
    let client = context.connect().await?;
    let request = v1::GateAgentRequest { agent: args.agent, request_id: request_id() };
    let response = client.agents().gate_agent(request).await?.into_inner();
    context.output.response(&response, |response| said(response.agent.as_ref(), "gated"))
}

pub(super) async fn ungate(context: &Context, args: Args) -> Result<(), Error> {
    let client = context.connect().await?;
    let request = v1::UngateAgentRequest { agent: args.agent, request_id: request_id() };
    let response = client.agents().ungate_agent(request).await?.into_inner();
    context.output.response(&response, |response| said(response.agent.as_ref(), "ungated"))
}

pub(super) async fn permit(context: &Context, args: Args) -> Result<(), Error> {
    let client = context.connect().await?;
    let request = v1::PermitTurnRequest { agent: args.agent, request_id: request_id() };
    let response = client.agents().permit_turn(request).await?.into_inner();
    context.output.response(&response, |response| {
        said(response.agent.as_ref(), "permitted one turn of");
    })
}

fn said(agent: Option<&v1::Agent>, what: &str) {
    if let Some(agent) = agent {
        line(&format!("{what} {}", agent.path));
    }
}

pub(super) async fn terminate(context: &Context, args: Terminate) -> Result<(), Error> {
    let client = context.connect().await?;
    let request = v1::TerminateAgentRequest {
        agent: args.agent.clone(),
        recursive: args.recursive,
        request_id: request_id(),
    };
    let response = client.agents().terminate_agent(request).await?.into_inner();
    context.output.response(&response, |response| match response.agent_ids.len() {
        1 => line(&format!("terminated {}", args.agent)),
        count => line(&format!("terminated {} and {} descendants", args.agent, count - 1)),
    })
}
