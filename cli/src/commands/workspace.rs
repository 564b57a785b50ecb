//! `substratctl workspace`: folders that agents work in.

mod exec;
mod settings;
mod show;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use substrat_proto::v1;

use super::Context;
use crate::bounded::Bounded;
use crate::client::{Client, request_id};
use crate::error::{Error, Kind};
use crate::output::{Output, Table, line, note, short_id};
use crate::sandbox::{self, Column};
use crate::time;

use settings::{Limits, Switch, variable, variables};

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
        /// Let processes in it reach the network
        #[arg(long)]
        network: bool,
        /// A variable in the environment of its processes; may be given more than once
        #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
        env: Vec<(String, String)>,
        #[command(flatten)]
        limits: Limits,
        /// Git repository that it is to be a worktree of
        #[arg(long, value_name = "REPO")]
        git: Option<PathBuf>,
        /// Branch to check out [default: substrat/NAME/work]
        #[arg(long, requires = "git")]
        branch: Option<String>,
    },
    /// Change network, variables or limits, for processes that start from then on
    Set {
        /// Name or id
        workspace: String,
        /// Whether processes in it reach the network
        #[arg(long, value_name = "on|off")]
        network: Option<Switch>,
        /// A variable to set; may be given more than once
        #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
        env: Vec<(String, String)>,
        /// A variable to remove; may be given more than once
        #[arg(long, value_name = "NAME")]
        unset_env: Vec<String>,
        #[command(flatten)]
        limits: Limits,
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
    /// Create a view: a window on a workspace, or on a folder of it
    View {
        /// Workspace that is shown, by name or id
        workspace: String,
        /// Name of the view
        #[arg(long)]
        name: String,
        /// Folder that is shown [default: all]
        #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
        subdir: String,
        /// For reading and writing
        #[arg(long, conflicts_with = "ro")]
        rw: bool,
        /// For reading only [default]
        #[arg(long)]
        ro: bool,
        /// Let processes in it reach the network
        #[arg(long)]
        network: bool,
    },
    /// Delete a workspace with its files and its views; linked folders stay
    Delete {
        /// Name or id
        workspace: String,
        /// Even if work in a Git worktree that is nowhere else is lost
        #[arg(long)]
        force: bool,
    },
}

pub(crate) async fn run(context: &Context, command: Command) -> Result<(), Error> {
    let client = context.connect().await?;
    let mut service = client.workspaces();
    let output = context.output;
    let request_id = request_id();
    match command {
        Command::Create { name, parent, network, env, limits, git, branch } => {
            let request = v1::CreateWorkspaceRequest {
                name,
                parent: parent.unwrap_or_default(),
                request_id,
                network,
                env: variables(env, &[])?,
                limits: limits.given(),
                git: git.map(|repo| worktree(&repo, branch)).transpose()?,
            };
            let response = service.create_workspace(request).await?.into_inner();
            output.response(&response, |r| said("created", r.workspace.as_ref()))
        }
        Command::Set { workspace, network, env, unset_env, limits } => {
            let request = v1::UpdateWorkspaceRequest {
                workspace,
                network: network == Some(Switch::On),
                update_mask: Some(settings::mask(network, &env, &unset_env, &limits)?),
                env: variables(env, &unset_env)?,
                unset_env,
                limits: limits.given(),
                request_id,
            };
            let response = service.update_workspace(request).await?.into_inner();
            output.response(&response, |r| said("changed", r.workspace.as_ref()))
        }
        Command::List => list(context, &client, service).await,
        Command::Show { workspace } => {
            let request = v1::GetWorkspaceRequest { workspace };
            let response = service.get_workspace(request).await?.into_inner();
            show::print(&client, output, &response).await
        }
        Command::Link { workspace, host_path, mount_path, rw, ro: _ } => {
            let host_path = absolute(&host_path)?;
            let mode = mode(rw).into();
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
        Command::View { workspace, name, subdir, rw, ro: _, network } => {
            let mode = mode(rw).into();
            let request =
                v1::CreateViewRequest { workspace, name, subdir, mode, network, request_id };
            let response = service.create_view(request).await?.into_inner();
            output.response(&response, |r| said("created", r.workspace.as_ref()))
        }
        Command::Delete { workspace, force } => {
            let request = v1::DeleteWorkspaceRequest { workspace, request_id, force };
            delete(output, service, request).await
        }
    }
}

fn mode(rw: bool) -> v1::LinkMode {
    if rw { v1::LinkMode::ReadWrite } else { v1::LinkMode::ReadOnly }
}

/// A path of the host as the daemon, which does not know this process's current folder, takes it.
fn absolute(path: &Path) -> Result<String, Error> {
    let path = std::path::absolute(path)?;
    let not_text = || Error::invalid("the path of the host folder is not UTF-8");
    path.to_str().map(str::to_owned).ok_or_else(not_text)
}

fn worktree(repo: &Path, branch: Option<String>) -> Result<v1::WorkspaceGit, Error> {
    check_repository(repo)?;
    let (repo, branch) = (absolute(repo)?, branch.unwrap_or_default());
    Ok(v1::WorkspaceGit { repo, branch, created_branch: false })
}

/// Refuses what is meant as something else than a folder, and is none.
fn check_repository(repo: &Path) -> Result<(), Error> {
    let Some(text) = repo.to_str().filter(|_| !repo.exists()) else { return Ok(()) };
    let of_host = |(host, _): (&str, &str)| host.contains('@') && !host.contains('/');
    let (problem, hint) = if text.starts_with('~') {
        ("is no folder", "write it without quotes: a shell puts the home folder in place of ~")
    } else if text.contains("://") || text.split_once(':').is_some_and(of_host) {
        ("is no folder of this machine", "clone it first, and name the folder of the clone")
    } else {
        return Ok(());
    };
    Err(Error::new(Kind::Invalid, format!("{text:?} {problem}"), hint))
}

type Service = v1::workspace_service_client::WorkspaceServiceClient<Bounded>;

/// All workspaces.
async fn all(service: &mut Service) -> Result<v1::ListWorkspacesResponse, Error> {
    let mut found = v1::ListWorkspacesResponse::default();
    loop {
        let page_token = std::mem::take(&mut found.next_page_token);
        let request = v1::ListWorkspacesRequest { page_size: 1000, page_token };
        let page = service.list_workspaces(request).await?.into_inner();
        found.workspaces.extend(page.workspaces);
        found.next_page_token = page.next_page_token;
        if found.next_page_token.is_empty() {
            return Ok(found);
        }
    }
}

async fn list(context: &Context, client: &Client, mut service: Service) -> Result<(), Error> {
    let found = all(&mut service).await?;
    context.output.response(&found, |found| {
        let sandboxes = Column::of(found.workspaces.iter().map(|one| one.sandbox.as_ref()));
        let headings =
            &["WORKSPACE", "KIND", "NETWORK", "LINKS", "AGENTS", "CREATED", "ID", "SANDBOX"];
        let mut table = Table::new(sandboxes.headings(headings));
        for workspace in &found.workspaces {
            let cells = vec![
                workspace.name.clone(),
                show::kind(workspace).to_owned(),
                match (workspace.network, sandbox::is_off(workspace.sandbox.as_ref())) {
                    (true, _) => "on",
                    (false, false) => "off",
                    (false, true) => "not enforced",
                }
                .to_owned(),
                workspace.links.len().to_string(),
                workspace.agent_ids.len().to_string(),
                time::ago(workspace.create_time.as_ref()),
                short_id(&workspace.id),
            ];
            table.row(sandboxes.cells(cells, workspace.sandbox.as_ref()));
        }
        let nothing = "no workspaces; create one with \"substratctl workspace create NAME\"";
        table.print(context.output, nothing);
    })?;
    sandbox::warn(client).await
}

async fn delete(
    output: Output,
    mut service: Service,
    request: v1::DeleteWorkspaceRequest,
) -> Result<(), Error> {
    let name = request.workspace.clone();
    // What goes with it has no name afterwards. It is deleted even if that cannot be told.
    let before = if output.is_json() { None } else { all(&mut service).await.ok() };
    let before = before.unwrap_or_default().workspaces;
    let response = service.delete_workspace(request).await?.into_inner();
    output.response(&response, |response| deleted(&name, &before, response))
}

/// The names of the views of a workspace, and of theirs.
fn views_of<'a>(all: &'a [v1::Workspace], id: &'a str) -> Vec<&'a str> {
    let (mut ids, mut names) = (vec![id], Vec::new());
    while let Some(id) = ids.pop() {
        let shows = |view: &v1::WorkspaceView| view.workspace_id == id;
        for view in all.iter().filter(|one| one.view.as_ref().is_some_and(shows)) {
            ids.push(&view.id);
            names.push(view.name.as_str());
        }
    }
    names
}

fn deleted(name: &str, before: &[v1::Workspace], response: &v1::DeleteWorkspaceResponse) {
    let views = views_of(before, &response.workspace_id);
    let with = match views.as_slice() {
        [] => String::new(),
        [view] => format!(", with its view {view}"),
        views => format!(", with its views {}", views.join(", ")),
    };
    line(&format!("deleted {name}{with}"));
    if !response.warning.is_empty() {
        note(&format!("warning: {}", response.warning));
    }
}

fn said(what: &str, workspace: Option<&v1::Workspace>) {
    if let Some(workspace) = workspace {
        line(&format!("{what} {} ({})", workspace.name, workspace.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_folder_is_told_from_a_repository() {
        let no = |repo: &str| check_repository(Path::new(repo)).err().map(|no| no.hint);
        for remote in ["https://host.example/x.git", "git@host.example:x.git", "me@host:a/b"] {
            assert!(no(remote).is_some_and(|hint| hint.starts_with("clone it first")), "{remote}");
        }
        for quoted in ["~", "~/repo", "~me/repo"] {
            assert!(no(quoted).is_some_and(|hint| hint.contains("without quotes")), "{quoted}");
        }
        for folder in ["/", ".", "no/such", "/no/such@a:b", "a:b"] {
            assert_eq!(no(folder), None, "{folder}");
        }
    }

    #[test]
    fn views_of_views_go_with_a_workspace() {
        let workspace = |id: &str, of: &str| v1::Workspace {
            id: id.to_owned(),
            name: format!("name of {id}"),
            view: (!of.is_empty())
                .then(|| v1::WorkspaceView { workspace_id: of.to_owned(), ..Default::default() }),
            ..Default::default()
        };
        let all = [
            workspace("1", ""),
            workspace("2", "1"),
            workspace("3", "2"),
            workspace("4", ""),
            workspace("5", "4"),
        ];
        assert_eq!(views_of(&all, "1"), ["name of 2", "name of 3"]);
        assert_eq!(views_of(&all, "4"), ["name of 5"]);
        assert_eq!(views_of(&all, "5"), [""; 0]);
    }
}
