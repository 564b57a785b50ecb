//! `substratctl workspace`: folders that agents work in.

mod exec;

use std::path::PathBuf;

use clap::Subcommand;
use substrat_proto::v1;

use super::Context;
use crate::bounded::Bounded;
use crate::client::request_id;
use crate::error::Error;
use crate::output::{Table, line, short_id};
use crate::time;

/// Folders that agents work in.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create a workspace
    Create {
        /// Its name
        name: String,
        /// Workspace in whose folder it lies
        #[arg(long, value_name = "WORKSPACE")]
        parent: Option<String>,
    },
    /// List workspaces
    List,
    /// Show a workspace
    Show {
        /// Name or id
        workspace: String,
    },
    /// Show a host folder inside a workspace
    Link {
        /// Name or id
        workspace: String,
        /// Folder on the host
        host_path: PathBuf,
        /// Where it is seen, relative to the root of the workspace
        mount_path: String,
        /// For reading and writing
        #[arg(long, conflicts_with = "ro")]
        rw: bool,
        /// For reading only [default]
        #[arg(long)]
        ro: bool,
    },
    /// Remove a link; the host folder stays
    Unlink {
        /// Name or id
        workspace: String,
        /// Where it is seen
        mount_path: String,
    },
    Exec(exec::Args),
    /// Delete a workspace with its files; linked folders stay
    Delete {
        /// Name or id
        workspace: String,
    },
}

pub(crate) async fn run(context: &Context, command: Command) -> Result<(), Error> {
    let client = context.connect().await?;
    let mut service = client.workspaces();
    let output = context.output;
    let request_id = request_id();
    match command {
        Command::Create { name, parent } => {
            let parent = parent.unwrap_or_default();
            let request = v1::CreateWorkspaceRequest { name, parent, request_id };
            let response = service.create_workspace(request).await?.into_inner();
            output.response(&response, |r| said("created", r.workspace.as_ref()))
        }
        Command::List => list(context, service).await,
        Command::Show { workspace } => {
            let request = v1::GetWorkspaceRequest { workspace };
            let response = service.get_workspace(request).await?.into_inner();
            output.response(&response, |response| show(response.workspace.as_ref()))
        }
        Command::Link { workspace, host_path, mount_path, rw, ro: _ } => {
            // The daemon does not know this process's current folder.
            let host_path = std::path::absolute(&host_path)?;
            let Some(host_path) = host_path.to_str().map(str::to_owned) else {
                return Err(Error::invalid("the path of the host folder is not UTF-8"));
            };
            let mode = if rw { v1::LinkMode::ReadWrite } else { v1::LinkMode::ReadOnly };
            let mode = mode.into();
            let request =
                v1::LinkDirectoryRequest { workspace, host_path, mount_path, mode, request_id };
            let response = service.link_directory(request).await?.into_inner();
            output.response(&response, |r| said("linked into", r.workspace.as_ref()))
        }
        Command::Unlink { workspace, mount_path } => {
            let request = v1::UnlinkDirectoryRequest { workspace, mount_path, request_id };
            let response = service.unlink_directory(request).await?.into_inner();
            output.response(&response, |r| said("unlinked from", r.workspace.as_ref()))
        }
        Command::Exec(args) => exec::run(context, args).await,
        Command::Delete { workspace } => {
            let name = workspace.clone();
            let request = v1::DeleteWorkspaceRequest { workspace, request_id };
            let response = service.delete_workspace(request).await?.into_inner();
            output.response(&response, |_| line(&format!("deleted {name}")))
        }
    }
}

type Service = v1::workspace_service_client::WorkspaceServiceClient<Bounded>;

async fn list(context: &Context, mut service: Service) -> Result<(), Error> {
    let mut found = v1::ListWorkspacesResponse::default();
    loop {
        let page_token = std::mem::take(&mut found.next_page_token);
        let request = v1::ListWorkspacesRequest { page_size: 1000, page_token };
        let page = service.list_workspaces(request).await?.into_inner();
        found.workspaces.extend(page.workspaces);
        found.next_page_token = page.next_page_token;
        if found.next_page_token.is_empty() {
            break;
        }
    }
    context.output.response(&found, |found| {
        let mut table = Table::new(&["WORKSPACE", "LINKS", "AGENTS", "CREATED", "ID"]);
        for workspace in &found.workspaces {
            table.row(vec![
                workspace.name.clone(),
                workspace.links.len().to_string(),
                workspace.agent_ids.len().to_string(),
                time::ago(workspace.create_time.as_ref()),
                short_id(&workspace.id),
            ]);
        }
        let nothing = "no workspaces; create one with \"substratctl workspace create NAME\"";
        table.print(context.output, nothing);
    })
}

fn said(what: &str, workspace: Option<&v1::Workspace>) {
    if let Some(workspace) = workspace {
        line(&format!("{what} {} ({})", workspace.name, workspace.id));
    }
}

fn show(workspace: Option<&v1::Workspace>) {
    let Some(workspace) = workspace else { return };
    line(&format!("workspace  {} ({})", workspace.name, workspace.id));
    line(&format!("root       {}", workspace.root));
    for link in &workspace.links {
        let mode = match link.mode() {
            v1::LinkMode::ReadWrite => "rw",
            v1::LinkMode::ReadOnly | v1::LinkMode::Unspecified => "ro",
        };
        line(&format!("link       {} ({mode}) → {}", link.mount_path, link.host_path));
    }
    for agent in &workspace.agent_ids {
        line(&format!("agent      {agent}"));
    }
    line(&format!("created    {}", time::date(workspace.create_time.as_ref())));
}
