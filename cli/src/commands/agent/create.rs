//! `substratctl agent create`.
#![allow(clippy::disallowed_methods, reason = "reads instructions from a file")]

use std::path::Path;

use substrat_proto::v1;

use super::Context;
use crate::client::{Client, request_id};
use crate::error::{Error, Kind};
use crate::output::{line, note};

/// Create an agent.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Its name, unique among its siblings
    name: String,
    /// Provider [default: the parent's, or scripted]
    #[arg(long)]
    provider: Option<String>,
    /// Model [default: the parent's, or the provider's]
    #[arg(long)]
    model: Option<String>,
    /// What it is told to be, or @FILE to read it from a file (@- for stdin)
    #[arg(long, value_name = "TEXT|@FILE")]
    instructions: Option<String>,
    /// Advisory role, such as worker or reviewer
    #[arg(long)]
    role: Option<String>,
    /// Parent agent; without one it is a root
    #[arg(long, value_name = "AGENT")]
    parent: Option<String>,
    /// Workspace, by name [default: the parent's]
    #[arg(long)]
    workspace: Option<String>,
    /// Folder of the workspace that is to be all it sees
    #[arg(long, value_name = "PATH")]
    workspace_subdir: Option<String>,
    /// Let it only read in its workspace [default: as its parent there, else all]
    #[arg(long, conflicts_with = "rw")]
    ro: bool,
    /// Let it read and write in its workspace, whatever its parent may
    #[arg(long)]
    rw: bool,
    /// A label; may be given more than once
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = super::update::label)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    budgets: super::budget::Budgets,
    /// Repeating a command with the same id does it once
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
}

/// Instructions as they were given, or from the file that was named.
pub(super) fn instructions(given: &str) -> Result<String, Error> {
    let Some(path) = given.strip_prefix('@') else { return Ok(given.to_owned()) };
    let read = match path {
        "-" => std::io::read_to_string(std::io::stdin()),
        path => std::fs::read_to_string(path),
    };
    read.map_err(|error| {
        let hint = "give the text itself, or @ and the path of a UTF-8 file";
        Error::new(Kind::Invalid, format!("instructions from {path:?}: {error}"), hint)
    })
}

/// Says that the folder which an agent is to see is not there yet: its name may be mistyped.
async fn note_missing(client: &Client, agent: &v1::Agent) {
    let request = v1::GetWorkspaceRequest { workspace: agent.workspace_id.clone() };
    // The agent is there, whatever else can be told.
    let Ok(found) = client.workspaces().get_workspace(request).await else { return };
    let Some(workspace) = found.into_inner().workspace else { return };
    if is_missing(&workspace, &agent.workspace_subdir) {
        let (folder, name) = (&agent.workspace_subdir, &workspace.name);
        let made = format!("it is made when {} starts", agent.path);
        note(&format!("note: {folder}/ does not exist in {name} yet; {made}"));
    }
}

/// Whether a folder is not there in the root of a workspace. It counts as there where this process
/// cannot see that, or where a link or another workspace shows it.
fn is_missing(workspace: &v1::Workspace, folder: &str) -> bool {
    let root = Path::new(&workspace.root);
    let shows = |link: &v1::Link| Path::new(folder).starts_with(&link.mount_path);
    if workspace.view.is_some() || workspace.links.iter().any(shows) || !root.is_dir() {
        return false;
    }
    let found = root.join(folder).symlink_metadata();
    found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

pub(super) async fn run(context: &Context, args: Args) -> Result<(), Error> {
    let instructions = args.instructions.map(|given| instructions(&given)).transpose()?;
    let names_folder = args.workspace_subdir.is_some();
    let request = v1::CreateAgentRequest {
        name: args.name,
        parent: args.parent.unwrap_or_default(),
        provider: args.provider.unwrap_or_default(),
        model: args.model.unwrap_or_default(),
        instructions: instructions.unwrap_or_default(),
        role: args.role.unwrap_or_default(),
        workspace: args.workspace.unwrap_or_default(),
        workspace_subdir: args.workspace_subdir.unwrap_or_default(),
        workspace_access: match (args.ro, args.rw) {
            (true, _) => v1::LinkMode::ReadOnly,
            (false, true) => v1::LinkMode::ReadWrite,
            (false, false) => v1::LinkMode::Unspecified,
        }
        .into(),
        metadata: args.labels.into_iter().collect(),
        request_id: args.request_id.unwrap_or_else(request_id),
        budget: Some(args.budgets.own()),
        tree_budget: Some(args.budgets.tree()),
    };
    let client = context.connect().await?;
    let response = client.agents().create_agent(request).await?.into_inner();
    context.output.response(&response, |response| {
        if let Some(agent) = &response.agent {
            line(&format!("created {} ({})", agent.path, agent.id));
        }
    })?;
    if let Some(agent) = response.agent.filter(|_| names_folder && !context.output.is_json()) {
        note_missing(&client, &agent).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_missing_only_where_that_is_seen() {
        let root = env!("CARGO_MANIFEST_DIR").to_owned();
        let link = v1::Link { mount_path: "docs".to_owned(), ..Default::default() };
        let desk = v1::Workspace { root, links: vec![link], ..Default::default() };
        for folder in ["srcs", "src/none", "docs-new"] {
            assert!(is_missing(&desk, folder), "{folder}");
        }
        for folder in ["", "src", "src/commands", "docs", "docs/none"] {
            assert!(!is_missing(&desk, folder), "{folder}");
        }
        let view = v1::Workspace { view: Some(v1::WorkspaceView::default()), ..desk.clone() };
        let elsewhere = v1::Workspace { root: "/no/such/root".to_owned(), ..desk };
        for unseen in [view, elsewhere] {
            assert!(!is_missing(&unseen, "srcs"), "{}", unseen.root);
        }
    }
}
