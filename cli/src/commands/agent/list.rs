//! `substratctl agent list`.

use std::collections::BTreeMap;

use substrat_proto::v1;

use super::Context;
use super::show::{sandbox_of, state_word, turns, turns_in_words};
use crate::client::Client;
use crate::error::Error;
use crate::output::{Output, Table, line, note, short_id};
use crate::sandbox::{self, Column};
use crate::time;

/// List agents.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Show them as a tree
    #[arg(long)]
    tree: bool,
    /// Show terminated agents, too
    #[arg(long)]
    all: bool,
}

/// All agents, page after page.
pub(crate) async fn all(
    client: &Client,
    show_terminated: bool,
) -> Result<v1::ListAgentsResponse, Error> {
    let mut service = client.agents();
    let mut found = v1::ListAgentsResponse::default();
    loop {
        let page_token = std::mem::take(&mut found.next_page_token);
        let request = v1::ListAgentsRequest { page_size: 1000, page_token, show_terminated };
        let page = service.list_agents(request).await?.into_inner();
        found.agents.extend(page.agents);
        found.next_page_token = page.next_page_token;
        if found.next_page_token.is_empty() {
            return Ok(found);
        }
    }
}

pub(super) async fn run(context: &Context, args: &Args) -> Result<(), Error> {
    let client = context.connect().await?;
    let found = all(&client, args.all).await?;
    context.output.response(&found, |found| {
        if args.tree { tree(context.output, &found.agents) } else { table(context, &found.agents) }
    })?;
    sandbox::warn(&client).await
}

fn table(context: &Context, agents: &[v1::Agent]) {
    let sandboxes = Column::of(agents.iter().map(sandbox_of));
    let headings = &["AGENT", "STATE", "PROVIDER", "INBOX", "TURNS", "ACTIVE", "ID", "SANDBOX"];
    let mut table = Table::new(sandboxes.headings(headings));
    for agent in agents {
        let cells = vec![
            agent.path.clone(),
            state_word(agent),
            agent.provider.clone(),
            agent.inbox_size.to_string(),
            turns(agent),
            time::ago(agent.activity_time.as_ref()),
            short_id(&agent.id),
        ];
        table.row(sandboxes.cells(cells, sandbox_of(agent)));
    }
    table.print(context.output, NONE);
}

const NONE: &str = "no agents; create one with \"substratctl agent create NAME\"";

fn tree(output: Output, agents: &[v1::Agent]) {
    if agents.is_empty() {
        return note(NONE);
    }
    let mut children: BTreeMap<&str, Vec<&v1::Agent>> = BTreeMap::new();
    let known: Vec<&str> = agents.iter().map(|agent| agent.id.as_str()).collect();
    for agent in agents {
        let parent = agent.parent_id.as_str();
        let parent = if known.contains(&parent) { parent } else { "" };
        children.entry(parent).or_default().push(agent);
    }
    branch(output, &children, "", "");
}

fn branch(output: Output, tree: &BTreeMap<&str, Vec<&v1::Agent>>, parent: &str, indent: &str) {
    let children = tree.get(parent).map_or(&[][..], Vec::as_slice);
    for (place, agent) in children.iter().enumerate() {
        let last = place + 1 == children.len();
        let (joint, bar) = match (parent.is_empty(), last) {
            (true, _) => ("", ""),
            (false, true) => ("└─ ", "   "),
            (false, false) => ("├─ ", "│  "),
        };
        let role = if agent.role.is_empty() { "" } else { &format!(" ({})", agent.role) };
        let sandbox = sandbox::lack(sandbox_of(agent));
        let sandbox = sandbox.map(|lack| format!(", sandbox {lack}")).unwrap_or_default();
        let state = format!("{}, {}{sandbox}", state_word(agent), turns_in_words(agent));
        let state = output.dim(&state);
        line(&format!("{indent}{joint}{}{role}  {state}", output.bold(&agent.name)));
        branch(output, tree, &agent.id, &format!("{indent}{bar}"));
    }
}
