//! `substratctl workspace show`.

use substrat_proto::v1;

use crate::client::Client;
use crate::error::Error;
use crate::output::{Output, line};
use crate::sandbox;
use crate::time;

/// What a workspace is, in a word.
pub(super) fn kind(workspace: &v1::Workspace) -> &'static str {
    match (&workspace.view, &workspace.git) {
        (Some(_), _) => "view",
        (None, Some(_)) => "worktree",
        (None, None) => "folder",
    }
}

fn mode(mode: v1::LinkMode) -> &'static str {
    match mode {
        v1::LinkMode::ReadWrite => "rw",
        v1::LinkMode::ReadOnly | v1::LinkMode::Unspecified => "ro",
    }
}

/// The names of what a workspace refers to by id.
struct Names {
    view_of: String,
    parent: String,
    owner: String,
    agents: Vec<String>,
}

impl Names {
    async fn ask(client: &Client, workspace: &v1::Workspace) -> Self {
        let view_of = workspace.view.as_ref().map(|view| view.workspace_id.clone());
        let mut agents = Vec::new();
        for id in &workspace.agent_ids {
            agents.push(agent(client, id).await);
        }
        Self {
            view_of: other(client, &view_of.unwrap_or_default()).await,
            parent: other(client, &workspace.parent_id).await,
            owner: agent(client, &workspace.owner_id).await,
            agents,
        }
    }
}

/// The name of a workspace, or its id if it is gone.
async fn other(client: &Client, id: &str) -> String {
    let request = v1::GetWorkspaceRequest { workspace: id.to_owned() };
    let found =
        if id.is_empty() { None } else { client.workspaces().get_workspace(request).await.ok() };
    let found = found.and_then(|found| found.into_inner().workspace);
    found.map_or_else(|| id.to_owned(), |found| found.name)
}

/// The path of an agent, or its id if it is gone.
async fn agent(client: &Client, id: &str) -> String {
    let request = v1::GetAgentRequest { agent: id.to_owned() };
    let found = if id.is_empty() { None } else { client.agents().get_agent(request).await.ok() };
    let found = found.and_then(|found| found.into_inner().agent);
    found.map_or_else(|| id.to_owned(), |found| found.path)
}

pub(super) async fn print(
    client: &Client,
    output: Output,
    response: &v1::GetWorkspaceResponse,
) -> Result<(), Error> {
    sandbox::warn(client).await?;
    let Some(workspace) = response.workspace.as_ref().filter(|_| !output.is_json()) else {
        return output.response(response, |_| ());
    };
    let names = Names::ask(client, workspace).await;
    output.response(response, |_| show(workspace, &names))
}

fn show(workspace: &v1::Workspace, names: &Names) {
    line(&format!("workspace  {} ({})", workspace.name, workspace.id));
    line(&format!("root       {}", shown(&workspace.root)));
    let off = sandbox::is_off(workspace.sandbox.as_ref());
    // The tools on files hold them; processes are all over the host.
    let held = if off { ", not enforced on processes: no sandbox" } else { "" };
    if let Some(view) = &workspace.view {
        let within = shown(if view.subdir.is_empty() { "all" } else { &view.subdir });
        let mode = format!("{}{held}", mode(view.mode()));
        line(&format!("view       of {}, {within} ({mode})", names.view_of));
    }
    if !names.parent.is_empty() {
        line(&format!("within     {}", names.parent));
    }
    if let Some(git) = &workspace.git {
        line(&format!("worktree   of {}, branch {}", shown(&git.repo), git.branch));
    }
    if !names.owner.is_empty() {
        line(&format!("made by    {}", names.owner));
    }
    for link in &workspace.links {
        let by = if link.via_id.is_empty() { "" } else { ", by an agent" };
        let mode = mode(link.mode());
        line(&format!(
            "link       {} ({mode}{by}{held}) → {}",
            shown(&link.mount_path),
            shown(&link.host_path)
        ));
    }
    let network = match (workspace.network, off) {
        (true, _) => "on",
        (false, false) => "off",
        (false, true) => "off, but not enforced: no sandbox",
    };
    line(&format!("network    {network}"));
    if let Some(lack) = sandbox::lack_line(workspace.sandbox.as_ref()) {
        line(&format!("sandbox    {lack}"));
    }
    for (name, value) in &workspace.env {
        line(&format!("variable   {name}={}", shown(value)));
    }
    for limit in limits(workspace.limits.as_ref()) {
        line(&format!("limit      {limit}"));
    }
    for limit in &workspace.limits_in_force {
        line(&format!("in force   {limit}"));
    }
    for agent in &names.agents {
        line(&format!("agent      {agent}"));
    }
    line(&format!("created    {}", time::date(workspace.create_time.as_ref())));
}

/// A text on one line.
fn shown(text: &str) -> String {
    if text.chars().any(char::is_control) { format!("{text:?}") } else { text.to_owned() }
}

/// The limits that are named, in words.
fn limits(limits: Option<&v1::WorkspaceLimits>) -> Vec<String> {
    let limits = limits.copied().unwrap_or_default();
    let processors = f64::from(limits.cpu_millis) / 1000.0;
    let all = [
        (limits.memory_bytes > 0, format!("memory {}", size(limits.memory_bytes))),
        (limits.cpu_millis > 0, format!("processors {processors}")),
        (limits.processes > 0, format!("processes {}", limits.processes)),
        (limits.open_files > 0, format!("open files {}", limits.open_files)),
        (limits.file_size_bytes > 0, format!("file size {}", size(limits.file_size_bytes))),
        (limits.disk_bytes > 0, format!("disk space {}", size(limits.disk_bytes))),
    ];
    all.into_iter().filter(|(named, _)| *named).map(|(_, limit)| limit).collect()
}

/// Bytes in the largest unit that says them exactly.
fn size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let fits = units.iter().find(|(_, shift)| bytes >> shift << shift == bytes);
    fits.map_or_else(
        || format!("{bytes} bytes"),
        |(unit, shift)| format!("{} {unit}", bytes >> shift),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_shown_on_one_line() {
        assert_eq!(shown("/srv/my code"), "/srv/my code");
        assert_eq!(shown("/srv/a\nlink       b"), r#""/srv/a\nlink       b""#);
    }

    #[test]
    fn sizes_are_shown_in_their_unit() {
        assert_eq!(size(2 << 30), "2 GiB");
        assert_eq!(size(1536 << 20), "1536 MiB");
        assert_eq!(size(1001), "1001 bytes");
    }
}
