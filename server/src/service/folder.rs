//! Workspaces on the wire.

use substrat_proto::v1;
use tonic::Status;

use super::convert::timestamp;
use super::sandbox::Confinement;
use super::status::invalid;
use crate::launcher::Launcher;
use crate::model::{Access, Limits, State, Workspace};
use crate::workspace::Files;

/// The fields of an update that change limits.
pub(super) const LIMITS: [&str; 6] = [
    "limits.memory_bytes",
    "limits.cpu_millis",
    "limits.processes",
    "limits.open_files",
    "limits.file_size_bytes",
    "limits.disk_bytes",
];

pub(super) fn mode(access: Access) -> v1::LinkMode {
    match access {
        Access::ReadOnly => v1::LinkMode::ReadOnly,
        Access::ReadWrite => v1::LinkMode::ReadWrite,
    }
}

/// The access that a field asks for; none if it is not set.
pub(super) fn access(mode: i32, field: &str) -> Result<Option<Access>, Status> {
    match v1::LinkMode::try_from(mode) {
        Ok(v1::LinkMode::Unspecified) => Ok(None),
        Ok(v1::LinkMode::ReadOnly) => Ok(Some(Access::ReadOnly)),
        Ok(v1::LinkMode::ReadWrite) => Ok(Some(Access::ReadWrite)),
        Err(_) => Err(invalid(format!("{field} is not a LinkMode"))),
    }
}

/// The limits that are set.
pub(super) fn limits(given: Option<v1::WorkspaceLimits>) -> Limits {
    let given = given.unwrap_or_default();
    Limits::default().changed_by(all(given))
}

fn all(given: v1::WorkspaceLimits) -> Limits {
    Limits {
        memory: Some(given.memory_bytes),
        cpu_millis: Some(given.cpu_millis),
        processes: Some(given.processes),
        open_files: Some(given.open_files),
        file_size: Some(given.file_size_bytes),
        disk: Some(given.disk_bytes),
    }
}

/// The limits that an update names; those that it sets to 0 go.
pub(super) fn named_limits(
    given: Option<v1::WorkspaceLimits>,
    named: impl Fn(&str) -> bool,
) -> Limits {
    let all = all(given.unwrap_or_default());
    let [memory, cpu_millis, processes, open_files, file_size, disk] = LIMITS.map(named);
    Limits {
        memory: all.memory.filter(|_| memory),
        cpu_millis: all.cpu_millis.filter(|_| cpu_millis),
        processes: all.processes.filter(|_| processes),
        open_files: all.open_files.filter(|_| open_files),
        file_size: all.file_size.filter(|_| file_size),
        disk: all.disk.filter(|_| disk),
    }
}

/// The fields of limits that are not 0.
pub(super) fn set_limits(given: Option<v1::WorkspaceLimits>) -> [(&'static str, bool); 6] {
    let given = given.unwrap_or_default();
    let set = [
        given.memory_bytes > 0,
        given.cpu_millis > 0,
        given.processes > 0,
        given.open_files > 0,
        given.file_size_bytes > 0,
        given.disk_bytes > 0,
    ];
    let mut fields = LIMITS.map(|name| (name, false));
    for (field, set) in fields.iter_mut().zip(set) {
        field.1 = set;
    }
    fields
}

fn shown_limits(limits: Limits) -> v1::WorkspaceLimits {
    v1::WorkspaceLimits {
        memory_bytes: limits.memory.unwrap_or_default(),
        cpu_millis: limits.cpu_millis.unwrap_or_default(),
        processes: limits.processes.unwrap_or_default(),
        open_files: limits.open_files.unwrap_or_default(),
        file_size_bytes: limits.file_size.unwrap_or_default(),
        disk_bytes: limits.disk.unwrap_or_default(),
    }
}

pub(super) fn workspace(
    state: &State,
    files: &Files,
    launcher: &Launcher,
    confinement: &Confinement,
    workspace: &Workspace,
) -> v1::Workspace {
    let links = workspace.links.iter().map(|(mount, link)| v1::Link {
        host_path: files.path_of(&link.source).to_string_lossy().into_owned(),
        mount_path: mount.clone(),
        mode: mode(link.mode).into(),
        via_id: link.via.map(|id| id.to_string()).unwrap_or_default(),
    });
    let world = state.workspace_world(workspace);
    let root = world.at("").map(|root| files.path_of(&root.source)).unwrap_or_default();
    v1::Workspace {
        id: workspace.id.to_string(),
        name: workspace.name.to_string(),
        parent_id: workspace.parent.map(|id| id.to_string()).unwrap_or_default(),
        root: root.to_string_lossy().into_owned(),
        links: links.collect(),
        agent_ids: state.users_of(workspace.id).map(|agent| agent.id.to_string()).collect(),
        create_time: Some(timestamp(workspace.created_at)),
        network: workspace.network,
        env: workspace.env.clone(),
        limits: (!workspace.limits.is_empty()).then(|| shown_limits(workspace.limits)),
        view: workspace.view.as_ref().map(|view| v1::WorkspaceView {
            workspace_id: view.of.to_string(),
            subdir: view.subdir.clone(),
            mode: mode(view.access).into(),
        }),
        git: workspace.git.as_ref().map(|git| v1::WorkspaceGit {
            repo: git.repo.clone(),
            branch: git.branch.clone(),
            created_branch: git.created_branch,
        }),
        owner_id: workspace.owner.map(|id| id.to_string()).unwrap_or_default(),
        limits_in_force: launcher.limits_in_force(world.limits),
        sandbox: Some(confinement.of_workspace()),
    }
}
