//! WorkspaceService.

use std::collections::BTreeMap;
use std::io;

use substrat_proto::v1;
use substrat_proto::v1::workspace_service_server::WorkspaceService;
use tonic::{Request, Response, Status};

use super::status::{bug, git_failed, invalid, not_looked_for, refused, rejected, work_left};
use super::uses::Closed;
use super::{Api, folder, request};
use crate::model::{
    Access, Command, Git, Look, NewView, NewWorkspace, Outcome, Rejection, Source, State,
    WorkspaceId, workspace_path,
};
use crate::workspace::Files;

impl Api {
    async fn workspace_now(&self, id: WorkspaceId) -> Result<v1::Workspace, Status> {
        self.workspace(id.to_string()).await
    }

    /// The folder is made behind the record; who is told of the workspace finds it there.
    async fn make_folder(&self, id: WorkspaceId) -> Result<(), Status> {
        // Users neither delete it nor run anything there meanwhile. Agents can.
        let _making = self.uses.close(vec![id]);
        let (root, git) = self.root_of(id).await?;
        let files = self.files.clone();
        let of = (root.clone(), git.clone());
        self.at_git(move || match of {
            (root, Some(git)) => files.add_worktree(&git, &root).map_err(|no| git_failed(&no)),
            (root, None) => {
                // What goes wrong is in the daemon's log, and tried again at the next touch.
                let _ = files.create_root(&root);
                Ok(())
            }
        })
        .await??;
        self.keep_made(id, root, git).await
    }

    /// Makes the folder of a new workspace; one that cannot be made is not there. Goes on when
    /// whoever asked for it has gone.
    async fn make(&self, id: WorkspaceId) -> Result<(), Status> {
        let api = self.clone();
        let making = self.tasks.spawn(async move {
            let Err(no) = api.make_folder(id).await else { return Ok(()) };
            let Ok((root, _)) = api.root_of(id).await else { return Err(no) };
            let files = api.files.clone();
            if !api.at_git(move || files.aside(&root)).await?.is_empty() {
                // What lies there is somebody's.
                return Err(no);
            }
            let undo = Command::DeleteWorkspace { workspace: id.to_string(), force: true };
            if let Err(error) = api.change_workspace(undo, None).await {
                tracing::warn!(workspace = %id, %error, "was not made, and could not be deleted");
            }
            Err(no)
        });
        making.await.map_err(|panic| bug(&panic))?
    }

    /// Does what blocks and may take long, beside few others of that kind: who does anything else
    /// does not wait for it.
    pub(super) async fn at_git<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        // It is never closed.
        let _turn = self.git_turns.acquire().await;
        tokio::task::spawn_blocking(work).await.map_err(|panic| bug(&panic))
    }

    /// Removes what was made for a workspace that was deleted meanwhile: its deletion has found
    /// nothing to remove, or not all.
    pub(super) async fn keep_made(
        &self,
        id: WorkspaceId,
        root: String,
        git: Option<Git>,
    ) -> Result<(), Status> {
        let there = self.engine.read(move |state| state.workspace(id).is_some());
        // One whose engine is gone is there all the same.
        if there.await.map_err(|no| refused(&no))? {
            return Ok(());
        }
        self.remove_folder(id, root, git).await;
        self.root_of(id).await.map(drop)
    }

    /// The root of a workspace, and the worktree that it is.
    async fn root_of(&self, id: WorkspaceId) -> Result<(String, Option<Git>), Status> {
        let root = move |state: &State| {
            let found = state.resolve_workspace(&id.to_string())?;
            Ok((found.root.clone(), found.git.clone()))
        };
        let found = self.engine.read(root).await.map_err(|no| refused(&no))?;
        found.map_err(|no| rejected(&no))
    }

    /// Removes the folder of a workspace that is deleted. Returns what is left of it, in words.
    async fn remove_folder(&self, id: WorkspaceId, root: String, git: Option<Git>) -> String {
        let files = self.files.clone();
        // The engine does the same; who is told that it is deleted finds it gone.
        let gone = move || {
            let gone = files.remove_workspace(id, &root, git.as_ref());
            gone.map_err(|error| not_removed(&files, id, &root, &error))
        };
        match self.at_git(gone).await.unwrap_or_else(|panic| Err(panic.message().to_owned())) {
            Ok(left) => left.unwrap_or_default(),
            Err(error) => {
                tracing::error!(workspace = %id, %error, "its folder could not be removed");
                format!("its folder could not be removed: {error}")
            }
        }
    }

    /// What the deletion of a workspace leaves where its folder was, in words.
    async fn left_in_place(&self, root: String) -> Result<String, Status> {
        let files = self.files.clone();
        let left = tokio::task::spawn_blocking(move || files.left_in_place(&root)).await;
        Ok(left.map_err(|panic| bug(&panic))?.unwrap_or_default())
    }

    /// Removes what was made for a link. The engine does the same; who is told that it is unlinked
    /// finds it gone.
    async fn remove_places(&self, id: WorkspaceId, mount_path: String) -> Result<(), Status> {
        let Ok(mount_path) = workspace_path(&mount_path) else { return Ok(()) };
        let left = move |state: &State| {
            let found = state.workspace(id)?;
            // A request that is repeated may come after the next link.
            let is_linked = found.links.contains_key(&mount_path);
            (!is_linked).then(|| state.places_left(found, &mount_path))
        };
        let places = self.engine.read(left).await.map_err(|no| refused(&no))?.unwrap_or_default();
        let files = self.files.clone();
        let removed = tokio::task::spawn_blocking(move || files.remove_places(&places));
        removed.await.map_err(|panic| bug(&panic))
    }

    /// Holds what runs in a workspace to its limits as they are now.
    async fn limit_what_runs(&self, id: WorkspaceId) -> Result<(), Status> {
        let limits = move |state: &State| {
            state.workspace(id).map(|found| state.workspace_world(found).limits)
        };
        let limits = self.engine.read(limits).await.map_err(|no| refused(&no))?;
        if let Some(Err(error)) = limits.map(|limits| self.launcher.update_limits(id, limits)) {
            // What starts from now on has them; what runs keeps those it can have no less of.
            tracing::warn!(workspace = %id, %error, "limits could not be changed for what runs");
        }
        Ok(())
    }

    /// A Git repository that a workspace is to be a worktree of.
    async fn repository(&self, git: v1::WorkspaceGit, name: &str) -> Result<Git, Status> {
        let files = self.files.clone();
        let path = git.repo;
        // A branch folder of its own: in that of another workspace it could change the other's.
        let branch = request::given(git.branch).unwrap_or_else(|| format!("substrat/{name}/work"));
        self.at_git(move || {
            let real = files.check_folder(&path).map_err(|no| no_repository(&path, no))?;
            files.check_repository(&real, &branch).map_err(|no| git_failed(&no))
        })
        .await?
    }

    /// Refuses what cannot be shown as the disk is now.
    async fn look(&self, looks: Vec<Look>) -> Result<(), Status> {
        let files = self.files.clone();
        let looked =
            tokio::task::spawn_blocking(move || looks.iter().try_for_each(|look| files.look(look)));
        looked.await.map_err(|panic| bug(&panic))?.map_err(|no| rejected(&no))
    }

    /// The real path of a host folder that can be linked there.
    async fn linkable(
        &self,
        link: &v1::LinkDirectoryRequest,
        mode: Access,
    ) -> Result<String, Status> {
        let workspace = link.workspace.clone();
        let found = self.engine.read(move |state| state.resolve_workspace(&workspace).map(drop));
        found.await.map_err(|no| refused(&no))?.map_err(|no| rejected(&no))?;
        let (files, path) = (self.files.clone(), link.host_path.clone());
        let checked = tokio::task::spawn_blocking(move || files.check_link(&path)).await;
        let real = checked.map_err(|panic| bug(&panic))?.map_err(|no| rejected(&no))?;
        let (workspace, mount) = (link.workspace.clone(), link.mount_path.clone());
        let host = real.clone();
        let looks =
            self.engine.read(move |state| state.looks_of_link(&workspace, &host, &mount, mode));
        let looks = looks.await.map_err(|no| refused(&no))?.map_err(|no| rejected(&no))?;
        self.look(looks).await?;
        Ok(real)
    }

    /// The root of a workspace with a folder of its own, and the worktree that it is.
    async fn folder_of(&self, reference: String) -> Result<Option<(String, Option<Git>)>, Status> {
        let found = self.engine.read(move |state| {
            let found = state.resolve_workspace(&reference).ok()?;
            found.view.is_none().then(|| (found.root.clone(), found.git.clone()))
        });
        found.await.map_err(|no| refused(&no))
    }

    /// Lets no command of a user begin in a workspace that is to be deleted until what is returned
    /// is dropped. Refuses where one runs.
    async fn close(&self, reference: String) -> Result<Option<Closed>, Status> {
        let found = self.engine.read(move |state| {
            let found = state.resolve_workspace(&reference).ok()?;
            let ids = state.with_views(found).into_iter().map(|one| one.id).collect::<Vec<_>>();
            Some((found.name.clone(), ids))
        });
        let Some((name, ids)) = found.await.map_err(|no| refused(&no))? else { return Ok(None) };
        let closed = self.uses.close(ids).ok_or_else(|| {
            let by = "a command that runs in it, its making, or another deletion".to_owned();
            rejected(&Rejection::WorkspaceInUse { name, by })
        })?;
        Ok(Some(closed))
    }

    /// Refuses to delete a worktree with work that would be lost.
    async fn check_work_left(&self, git: Git, root: String) -> Result<(), Status> {
        let files = self.files.clone();
        let looked = self.at_git(move || files.work_left(&git, &root)).await?;
        let left = looked.map_err(|no| not_looked_for(&no))?;
        match left.is_empty() {
            true => Ok(()),
            false => Err(work_left(&left)),
        }
    }

    async fn workspace(&self, reference: String) -> Result<v1::Workspace, Status> {
        let known = self.confinement().await;
        let (files, launcher) = (self.files.clone(), self.launcher.clone());
        let found = self.engine.read(move |state| {
            state
                .resolve_workspace(&reference)
                .map(|workspace| folder::workspace(state, &files, &launcher, &known, workspace))
        });
        found.await.map_err(|no| refused(&no))?.map_err(|no| rejected(&no))
    }

    async fn change_workspace(
        &self,
        command: Command,
        key: Option<crate::model::Request>,
    ) -> Result<WorkspaceId, Status> {
        match self.engine.execute(command, key).await.map_err(|no| refused(&no))? {
            Outcome::Workspace(id) => Ok(id),
            other => {
                let what = format!("the command came to {other:?}");
                Err(rejected(&Rejection::Bug { what }))
            }
        }
    }
}

fn no_repository(path: &str, problem: &str) -> Status {
    let problem = format!("{:?} cannot be its repository: {problem}", request::clip(path));
    let hint = "choose a repository that is there, outside of the daemon's home";
    rejected(&Rejection::WorkspaceInvalid { problem, hint })
}

/// Why the folder of a workspace was not removed, and what to do about it.
fn not_removed(files: &Files, id: WorkspaceId, root: &str, error: &io::Error) -> String {
    let folder = |path: String| files.path_of(&Source::Workspaces(path));
    let by_hand = "by hand, as the owner of what is in it or as root";
    // So it is called while it is being removed.
    let moved = folder(format!("removed-{id}"));
    if moved.exists() {
        return format!(
            "{error}; remove what is left, {moved:?}, {by_hand}; the daemon tries again at each \
             start"
        );
    }
    format!("{error}; remove {:?} {by_hand}", folder(root.to_owned()))
}

/// What an update asks for.
fn update(message: v1::UpdateWorkspaceRequest) -> Result<Command, Status> {
    let mask: Vec<String> = match message.update_mask {
        Some(mask) if !mask.paths.is_empty() => mask.paths,
        _ => [
            ("network", message.network),
            ("env", !message.env.is_empty() || !message.unset_env.is_empty()),
        ]
        .iter()
        .chain(&folder::set_limits(message.limits))
        .filter(|(_, set)| *set)
        .map(|(name, _)| (*name).to_owned())
        .collect(),
    };
    let known = |path: &str| ["network", "env"].contains(&path) || folder::LIMITS.contains(&path);
    if let Some(odd) = mask.iter().find(|path| !known(path)) {
        return Err(invalid(format!(
            "update_mask names {:?}; only network, env and the fields of limits can be changed",
            request::clip(odd)
        )));
    }
    let named = |name: &str| mask.iter().any(|path| path == name);
    let mut env = BTreeMap::new();
    if named("env") {
        env.extend(message.unset_env.into_iter().map(|name| (name, None)));
        env.extend(message.env.into_iter().map(|(name, value)| (name, Some(value))));
    }
    Ok(Command::UpdateWorkspace {
        workspace: message.workspace,
        network: named("network").then_some(message.network),
        env,
        limits: folder::named_limits(message.limits, named),
    })
}

#[tonic::async_trait]
impl WorkspaceService for Api {
    async fn create_workspace(
        &self,
        request: Request<v1::CreateWorkspaceRequest>,
    ) -> Result<Response<v1::CreateWorkspaceResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("CreateWorkspace", &message.request_id, &message)?;
        let git = match message.git {
            Some(git) => Some(self.repository(git, &message.name).await?),
            None => None,
        };
        let new = NewWorkspace {
            name: message.name,
            parent: request::given(message.parent),
            view: None,
            git,
            network: message.network,
            env: message.env,
            limits: folder::limits(message.limits),
        };
        if let Some(parent) = new.parent.clone() {
            let name = new.name.clone();
            let looks = self.engine.read(move |state| state.looks_of_nested(&name, &parent));
            self.look(looks.await.map_err(|no| refused(&no))?).await?;
        }
        let command = Command::CreateWorkspace { new };
        let id = self.change_workspace(command, key).await?;
        let workspace = self.workspace_now(id).await?;
        self.make(id).await?;
        Ok(Response::new(v1::CreateWorkspaceResponse { workspace: Some(workspace) }))
    }

    async fn create_view(
        &self,
        request: Request<v1::CreateViewRequest>,
    ) -> Result<Response<v1::CreateViewResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("CreateView", &message.request_id, &message)?;
        let (name, of, subdir) =
            (message.name.clone(), message.workspace.clone(), message.subdir.clone());
        let looks = self.engine.read(move |state| state.looks_of_view(&name, &of, &subdir));
        self.look(looks.await.map_err(|no| refused(&no))?).await?;
        let view = NewView {
            of: message.workspace,
            subdir: message.subdir,
            access: folder::access(message.mode, "mode")?.unwrap_or(Access::ReadOnly),
        };
        let new = NewWorkspace {
            view: Some(view),
            network: message.network,
            ..NewWorkspace::named(message.name)
        };
        let id = self.change_workspace(Command::CreateWorkspace { new }, key).await?;
        let workspace = self.workspace_now(id).await?;
        Ok(Response::new(v1::CreateViewResponse { workspace: Some(workspace) }))
    }

    async fn update_workspace(
        &self,
        request: Request<v1::UpdateWorkspaceRequest>,
    ) -> Result<Response<v1::UpdateWorkspaceResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("UpdateWorkspace", &message.request_id, &message)?;
        let command = update(message)?;
        let id = self.change_workspace(command, key).await?;
        let workspace = self.workspace_now(id).await?;
        self.limit_what_runs(id).await?;
        Ok(Response::new(v1::UpdateWorkspaceResponse { workspace: Some(workspace) }))
    }

    async fn get_workspace(
        &self,
        request: Request<v1::GetWorkspaceRequest>,
    ) -> Result<Response<v1::GetWorkspaceResponse>, Status> {
        let workspace = self.workspace(request.into_inner().workspace).await?;
        Ok(Response::new(v1::GetWorkspaceResponse { workspace: Some(workspace) }))
    }

    async fn list_workspaces(
        &self,
        request: Request<v1::ListWorkspacesRequest>,
    ) -> Result<Response<v1::ListWorkspacesResponse>, Status> {
        let message = request.into_inner();
        let size = request::page_size(message.page_size, 1000)?;
        let after = request::page_token(&message.page_token)?;
        let known = self.confinement().await;
        let (files, launcher) = (self.files.clone(), self.launcher.clone());
        let listed = self.engine.read(move |state| {
            let workspaces = (1..).zip(state.workspaces()).filter(|(place, _)| *place > after).map(
                |(place, one)| (place, folder::workspace(state, &files, &launcher, &known, one)),
            );
            request::page(workspaces, size)
        });
        let (workspaces, next_page_token) = listed.await.map_err(|no| refused(&no))?;
        Ok(Response::new(v1::ListWorkspacesResponse { workspaces, next_page_token }))
    }

    async fn link_directory(
        &self,
        request: Request<v1::LinkDirectoryRequest>,
    ) -> Result<Response<v1::LinkDirectoryResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("LinkDirectory", &message.request_id, &message)?;
        let mode = folder::access(message.mode, "mode")?.unwrap_or(Access::ReadOnly);
        let host_path = self.linkable(&message, mode).await?;
        let command = Command::LinkDirectory {
            workspace: message.workspace,
            host_path,
            mount_path: message.mount_path,
            mode,
        };
        let id = self.change_workspace(command, key).await?;
        let workspace = self.workspace_now(id).await?;
        Ok(Response::new(v1::LinkDirectoryResponse { workspace: Some(workspace) }))
    }

    async fn unlink_directory(
        &self,
        request: Request<v1::UnlinkDirectoryRequest>,
    ) -> Result<Response<v1::UnlinkDirectoryResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("UnlinkDirectory", &message.request_id, &message)?;
        let mount_path = message.mount_path;
        let command = Command::UnlinkDirectory {
            workspace: message.workspace,
            mount_path: mount_path.clone(),
        };
        let id = self.change_workspace(command, key).await?;
        self.remove_places(id, mount_path).await?;
        let workspace = self.workspace_now(id).await?;
        Ok(Response::new(v1::UnlinkDirectoryResponse { workspace: Some(workspace) }))
    }

    async fn delete_workspace(
        &self,
        request: Request<v1::DeleteWorkspaceRequest>,
    ) -> Result<Response<v1::DeleteWorkspaceResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("DeleteWorkspace", &message.request_id, &message)?;
        let folder = self.folder_of(message.workspace.clone()).await?;
        let _closed = self.close(message.workspace.clone()).await?;
        if let (Some((root, Some(git))), false) = (&folder, message.force) {
            self.check_work_left(git.clone(), root.clone()).await?;
        }
        // Afterwards, another workspace may have its folder there.
        let left = match &folder {
            Some((root, None)) => self.left_in_place(root.clone()).await?,
            _ => String::new(),
        };
        let command =
            Command::DeleteWorkspace { workspace: message.workspace, force: message.force };
        let id = self.change_workspace(command, key).await?;
        let warning = match folder {
            Some((root, git)) => self.remove_folder(id, root, git).await,
            None => String::new(),
        };
        let warning = if warning.is_empty() { left } else { warning };
        let workspace_id = id.to_string();
        Ok(Response::new(v1::DeleteWorkspaceResponse { workspace_id, warning }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_folder_is_named_with_what_to_do() {
        let home = tempfile::tempdir().unwrap();
        let all = home.path().join("workspaces");
        let files = Files::new(&all, home.path());
        let id = WorkspaceId::from_u128(1);
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        files.create_root("w/root").unwrap();
        let left = not_removed(&files, id, "w/root", &error);
        assert!(left.contains(&format!("remove {:?} by hand", all.join("w/root"))), "{left}");
        files.begin_removal(id, "w/root", None);
        let left = not_removed(&files, id, "w/root", &error);
        let moved = all.join(format!("removed-{id}"));
        assert!(left.starts_with(&format!("{error}; remove what is left, {moved:?}")), "{left}");
        assert!(left.ends_with("tries again at each start"), "{left}");
    }
}
