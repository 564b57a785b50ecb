//! WorkspaceService.

use substrat_proto::v1;
use substrat_proto::v1::workspace_service_server::WorkspaceService;
use tonic::{Request, Response, Status};

use super::status::{invalid, refused, rejected};
use super::{Api, convert, request};
use crate::model::{Access, Command, NewWorkspace, Outcome, Rejection, State, WorkspaceId};

impl Api {
    async fn workspace_now(&self, id: WorkspaceId) -> Result<v1::Workspace, Status> {
        self.workspace(id.to_string()).await
    }

    /// The folder is made behind the record; who is told of the workspace finds it there.
    async fn make_folder(&self, id: WorkspaceId) -> Result<(), Status> {
        let root = move |state: &State| state.workspace(id).map(|found| found.root.clone());
        let root = self.engine.read(root).await.map_err(|no| refused(&no))?;
        if let Some(root) = root {
            let files = self.files.clone();
            // What goes wrong is in the daemon's log, and is tried again when a file is touched.
            let _ = tokio::task::spawn_blocking(move || files.create_root(&root)).await;
        }
        Ok(())
    }

    async fn workspace(&self, reference: String) -> Result<v1::Workspace, Status> {
        let files = self.files.clone();
        let found = self.engine.read(move |state| {
            state
                .resolve_workspace(&reference)
                .map(|workspace| convert::workspace(state, &files, workspace))
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

#[tonic::async_trait]
impl WorkspaceService for Api {
    async fn create_workspace(
        &self,
        request: Request<v1::CreateWorkspaceRequest>,
    ) -> Result<Response<v1::CreateWorkspaceResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("CreateWorkspace", &message.request_id, &message)?;
        let parent = request::given(message.parent);
        let new = NewWorkspace { parent, ..NewWorkspace::named(message.name) };
        let command = Command::CreateWorkspace { new };
        let id = self.change_workspace(command, key).await?;
        let workspace = self.workspace_now(id).await?;
        self.make_folder(id).await?;
        Ok(Response::new(v1::CreateWorkspaceResponse { workspace: Some(workspace) }))
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
        let files = self.files.clone();
        let listed = self.engine.read(move |state| {
            let workspaces = (1..)
                .zip(state.workspaces())
                .filter(|(place, _)| *place > after)
                .map(|(place, one)| (place, convert::workspace(state, &files, one)));
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
        let mode = match v1::LinkMode::try_from(message.mode) {
            Ok(v1::LinkMode::Unspecified | v1::LinkMode::ReadOnly) => Access::ReadOnly,
            Ok(v1::LinkMode::ReadWrite) => Access::ReadWrite,
            Err(_) => return Err(invalid("mode is not a LinkMode")),
        };
        let files = self.files.clone();
        let path = message.host_path;
        let checked = tokio::task::spawn_blocking(move || files.check_link(&path)).await;
        let host_path = checked
            .unwrap_or_else(|panic| Err(Rejection::Bug { what: panic.to_string() }))
            .map_err(|no| rejected(&no))?;
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
        let command = Command::UnlinkDirectory {
            workspace: message.workspace,
            mount_path: message.mount_path,
        };
        let id = self.change_workspace(command, key).await?;
        let workspace = self.workspace_now(id).await?;
        Ok(Response::new(v1::UnlinkDirectoryResponse { workspace: Some(workspace) }))
    }

    async fn delete_workspace(
        &self,
        request: Request<v1::DeleteWorkspaceRequest>,
    ) -> Result<Response<v1::DeleteWorkspaceResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("DeleteWorkspace", &message.request_id, &message)?;
        let command = Command::DeleteWorkspace { workspace: message.workspace, force: false };
        let id = self.change_workspace(command, key).await?;
        Ok(Response::new(v1::DeleteWorkspaceResponse { workspace_id: id.to_string() }))
    }
}
