//! Workspaces: found by scope and name there, by a name of the whole daemon here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use super::Options;
use super::history::Dated;
use super::report::Report;
use super::source::{Link, Workspace};
use super::team::{allowed, first_free};
use crate::model::{
    Access, AgentId, IdSource, Name, Source, WorkspaceCreated, WorkspaceId, WorkspaceLinked,
    workspace_path,
};

/// Workspaces by scope and name.
pub(super) type Known = BTreeMap<(AgentId, String), WorkspaceId>;

/// The events of all workspaces. Their files stay where they are.
pub(super) fn convert(
    found: &[Workspace],
    options: &Options<'_>,
    ids: &mut dyn IdSource,
    report: &mut Report,
) -> (Vec<Dated>, Known) {
    let (mut events, mut known) = (Vec::new(), Known::new());
    let mut taken: BTreeSet<Name> = BTreeSet::new();
    for workspace in found {
        let Workspace { name: old, scope, created_at, root, network_access, .. } = workspace;
        let mut wanted = allowed(old, "workspace");
        if taken.contains(&wanted) {
            let scope: String = scope.to_string().chars().take(8).collect();
            wanted = allowed(&format!("{wanted}-{scope}"), "workspace");
        }
        let name = first_free(&wanted, |name| !taken.contains(name));
        if name.as_str() != old {
            report.note(format!("workspace {old:?} of scope {scope} is called {name} now"));
        }
        taken.insert(name.clone());
        let workspace_id = WorkspaceId::fresh(ids);
        known.insert((*scope, old.clone()), workspace_id);
        let folder = WorkspaceCreated::folder(workspace_id, name.clone(), root.clone());
        let created = WorkspaceCreated { network: *network_access, ..folder };
        events.push((*created_at, created.into()));
        events.extend(links(workspace, workspace_id, &name, options, report));
        report.workspaces += 1;
    }
    (events, known)
}

fn links(
    workspace: &Workspace,
    workspace_id: WorkspaceId,
    name: &Name,
    options: &Options<'_>,
    report: &mut Report,
) -> Vec<Dated> {
    let mut mounts: Vec<String> = Vec::new();
    let mut events = Vec::new();
    for link in &workspace.links {
        match check(workspace, link, &mounts, options) {
            Ok((host_path, mount_path, mode)) => {
                mounts.push(mount_path.clone());
                let source = Source::Host(host_path);
                let linked = WorkspaceLinked { workspace_id, source, mount_path, mode, via: None };
                events.push((workspace.created_at, linked.into()));
            }
            Err(problem) => report.note(format!(
                "workspace {name} does not show {:?} at {:?} any more: {problem}",
                link.host_path, link.mount_path
            )),
        }
    }
    events
}

/// A link as this daemon would take it. That its folder exists is not asked.
fn check(
    workspace: &Workspace,
    link: &Link,
    mounts: &[String],
    options: &Options<'_>,
) -> Result<(String, String, Access), String> {
    let mode = match link.mode.as_str() {
        "ro" => Access::ReadOnly,
        "rw" => Access::ReadWrite,
        other => return Err(format!("its mode is {other:?}")),
    };
    let host = Path::new(&link.host_path);
    let plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
    if !host.is_absolute() || !host.components().all(plain) {
        return Err("its folder is not absolute".to_owned());
    }
    let host_path = (options.real)(&link.host_path).unwrap_or_else(|| link.host_path.clone());
    let host = Path::new(&host_path);
    // Where the home was when the workspace was made.
    let made = workspace.root_path.strip_suffix(&workspace.root).map(Path::new);
    for home in std::iter::once(options.home).chain(made) {
        if host.starts_with(home) || home.starts_with(host) {
            return Err("it holds, or lies in, the home or another workspace".to_owned());
        }
    }
    let mount = workspace_path(&link.mount_path).map_err(|no| no.to_string())?;
    if mount.is_empty() {
        return Err("the root of a workspace cannot be a link".to_owned());
    }
    let covers = |one: &str, other: &str| Path::new(other).starts_with(one);
    if mounts.iter().any(|other| covers(other, &mount) || covers(&mount, other)) {
        return Err("another link is seen there".to_owned());
    }
    Ok((host_path, mount, mode))
}
