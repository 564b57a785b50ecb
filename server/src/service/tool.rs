//! ToolService, and the sockets that it is served on: one for each agent, and nothing else there.

use std::io;
use std::path::{Path, PathBuf};

use substrat_proto::v1;
use substrat_proto::v1::tool_service_server::{ToolService, ToolServiceServer};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};

use super::status::{invalid, rejected};
use super::{convert, incoming, layers, socket};
use crate::engine::{CallError, Handle, SocketGuard, ToolSockets};
use crate::model::{AgentId, Json, SessionId, catalogue};

/// The tools of one agent. Who reaches this is that agent; there is no way to say otherwise.
struct Tools {
    agent: AgentId,
    engine: Handle,
}

#[tonic::async_trait]
impl ToolService for Tools {
    async fn list_tools(
        &self,
        _: Request<v1::ListToolsRequest>,
    ) -> Result<Response<v1::ListToolsResponse>, Status> {
        let tools = catalogue().iter().map(|tool| v1::Tool {
            name: tool.name.to_owned(),
            description: tool.description.to_owned(),
            input_schema: Some(convert::object(tool.schema.clone())),
        });
        Ok(Response::new(v1::ListToolsResponse { tools: tools.collect() }))
    }

    async fn call_tool(
        &self,
        request: Request<v1::CallToolRequest>,
    ) -> Result<Response<v1::CallToolResponse>, Status> {
        let message = request.into_inner();
        let args = convert::from_object(message.arguments.unwrap_or_default());
        let args = Json::of(&args).map_err(|error| invalid(error.to_string()))?;
        let response = match self.engine.call_tool(self.agent, None, &message.name, args).await {
            Ok(result) => {
                let value = serde_json::from_str(result.get()).unwrap_or_default();
                v1::CallToolResponse { result: Some(convert::json(value)), error: String::new() }
            }
            Err(CallError::Failed(error)) => v1::CallToolResponse { result: None, error },
            Err(CallError::Refused(rejection)) => return Err(rejected(&rejection)),
        };
        Ok(Response::new(response))
    }
}

/// Tool sockets in a folder.
pub struct Sockets {
    folder: PathBuf,
    tasks: TaskTracker,
}

/// Connections to one tool socket at once.
const CONNECTIONS: usize = 16;

impl Sockets {
    /// Tool sockets in this folder, which is made if it is not there.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), tasks: TaskTracker::new() }
    }
}

/// Removes a socket when its session is not live any more.
struct Guard {
    path: PathBuf,
    _stop: DropGuard,
}

impl Drop for Guard {
    fn drop(&mut self) {
        socket::remove(&self.path);
    }
}

impl ToolSockets for Sockets {
    fn open(&self, agent: AgentId, session: SessionId, handle: Handle) -> io::Result<SocketGuard> {
        socket::private_folder(&self.folder)?;
        let path = path(&self.folder, session);
        let incoming = incoming::incoming(socket::bind(&path, 0o600)?, CONNECTIONS);
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let tools = ToolServiceServer::new(Tools { agent, engine: handle })
            .max_decoding_message_size(substrat_proto::MAX_MESSAGE_BYTES);
        let server = tonic::transport::Server::builder()
            .layer(layers::Guard::for_owner())
            .add_service(tools);
        self.tasks.spawn(async move {
            if let Err(error) = server.serve_with_incoming_shutdown(incoming, stopped).await {
                tracing::error!(%agent, %error, "a tool socket failed");
            }
        });
        Ok(Box::new(Guard { path, _stop: stop.drop_guard() }))
    }
}

/// Where the tool socket of a session is.
fn path(folder: &Path, session: SessionId) -> PathBuf {
    folder.join(format!("{session}.sock"))
}
