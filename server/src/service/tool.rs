//! ToolService, and the sockets that it is served on: one for each agent, and nothing else there.

use std::io;
use std::path::{Path, PathBuf};

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, stream};
use substrat_proto::v1;
use substrat_proto::v1::tool_service_server::{ToolService, ToolServiceServer};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};

use super::status::{Reason, invalid, refused, rejected, unreadable};
use super::{convert, incoming, layers, request, socket};
use crate::engine::{CallError, Handle, ToolSocket, ToolSockets};
use crate::model::{AgentId, CallFailure, Json, Rejection, SessionId, ToolSpec};

/// The tools of one agent. Who reaches this is that agent; there is no way to say otherwise.
#[derive(Clone)]
struct Tools {
    agent: AgentId,
    engine: Handle,
    /// Cancelled when the session is not live any more.
    stop: CancellationToken,
}

impl Tools {
    /// The tools that the agent is offered.
    async fn offered(&self) -> Result<Vec<&'static ToolSpec>, Status> {
        let (id, engine) = (self.agent, self.engine.clone());
        let tools = self.engine.read(move |state| {
            state.live_agent(id).map(|agent| engine.offered(agent)).ok_or(Rejection::no_agent(id))
        });
        tools.await.map_err(|no| refused(&no))?.map_err(|no| rejected(&no))
    }
}

fn on_wire(tools: &[&ToolSpec]) -> Vec<v1::Tool> {
    let tools = tools.iter().map(|tool| v1::Tool {
        name: tool.name.to_owned(),
        description: tool.description.to_owned(),
        input_schema: Some(convert::object(tool.schema.clone())),
    });
    tools.collect()
}

/// One that watches the tools of an agent.
struct Watcher {
    tools: Tools,
    news: watch::Receiver<u64>,
    /// Sequence of the last event that was looked at.
    cursor: u64,
    /// What was sent last.
    sent: Option<Vec<&'static str>>,
}

impl Watcher {
    fn new(tools: Tools) -> Self {
        let news = tools.engine.feed().watch();
        Self { tools, news, cursor: 0, sent: None }
    }

    /// The list when it is another one than before; none when the session is over.
    async fn next(&mut self) -> Result<Option<Vec<v1::Tool>>, Status> {
        loop {
            self.cursor = *self.news.borrow_and_update();
            let tools = self.tools.offered().await?;
            let names = tools.iter().map(|tool| tool.name).collect();
            if self.sent.as_ref() != Some(&names) {
                self.sent = Some(names);
                return Ok(Some(on_wire(&tools)));
            }
            if !self.concerned().await {
                return Ok(None);
            }
        }
    }

    /// Waits until something happens in the agent's log; false when the session is over.
    async fn concerned(&mut self) -> bool {
        loop {
            tokio::select! {
                biased;
                () = self.tools.stop.cancelled() => return false,
                changed = self.news.changed() => if changed.is_err() { return false },
            }
            let last = *self.news.borrow_and_update();
            let mut own = false;
            let read = self.tools.engine.feed().read(self.cursor, |line| {
                own |= line.agent == Some(self.tools.agent);
                !own
            });
            self.cursor = last;
            // What is not in memory any more may have been its own.
            if own || read.is_err() {
                return true;
            }
        }
    }
}

#[tonic::async_trait]
impl ToolService for Tools {
    type WatchToolsStream = BoxStream<'static, Result<v1::WatchToolsResponse, Status>>;

    async fn list_tools(
        &self,
        _: Request<v1::ListToolsRequest>,
    ) -> Result<Response<v1::ListToolsResponse>, Status> {
        let tools = on_wire(&self.offered().await?);
        Ok(Response::new(v1::ListToolsResponse { tools }))
    }

    async fn watch_tools(
        &self,
        _: Request<v1::WatchToolsRequest>,
    ) -> Result<Response<Self::WatchToolsStream>, Status> {
        let lists = stream::try_unfold(Watcher::new(self.clone()), |mut watcher| async move {
            let tools = watcher.next().await?;
            Ok(tools.map(|tools| (v1::WatchToolsResponse { tools }, watcher)))
        });
        Ok(Response::new(lists.boxed()))
    }

    async fn call_tool(
        &self,
        request: Request<v1::CallToolRequest>,
    ) -> Result<Response<v1::CallToolResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("CallTool", &message.request_id, &message)?;
        let args = convert::from_object(message.arguments.unwrap_or_default());
        let args = Json::of(&args).map_err(|error| invalid(error.to_string()))?;
        let called = self.engine.call_tool(self.agent, None, &message.name, args, key);
        let response = match called.await {
            Ok(result) => {
                let value = serde_json::from_str(result.get()).unwrap_or_default();
                let result = Some(convert::json(value));
                v1::CallToolResponse { result, ..Default::default() }
            }
            Err(CallError::Failed(CallFailure { error, reason })) => {
                let reason = reason.unwrap_or_else(|| Reason::ToolFailed.as_str().to_owned());
                v1::CallToolResponse { result: None, error, reason }
            }
            Err(CallError::Refused(rejection)) => return Err(rejected(&rejection)),
            Err(CallError::Unreadable(error)) => return Err(unreadable(&io::Error::other(error))),
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
    fn open(&self, agent: AgentId, session: SessionId, handle: Handle) -> io::Result<ToolSocket> {
        socket::private_folder(&self.folder)?;
        let path = path(&self.folder, session);
        let incoming = incoming::incoming(socket::bind(&path, 0o600)?, CONNECTIONS);
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let tools = Tools { agent, engine: handle, stop: stop.clone() };
        let tools = ToolServiceServer::new(tools)
            .max_decoding_message_size(substrat_proto::MAX_MESSAGE_BYTES);
        let server = tonic::transport::Server::builder()
            .layer(layers::Guard::for_owner())
            .add_service(tools);
        self.tasks.spawn(async move {
            if let Err(error) = server.serve_with_incoming_shutdown(incoming, stopped).await {
                tracing::error!(%agent, %error, "a tool socket failed");
            }
        });
        let guard = Box::new(Guard { path: path.clone(), _stop: stop.drop_guard() });
        Ok(ToolSocket { path, guard })
    }
}

/// Where the tool socket of a session is.
fn path(folder: &Path, session: SessionId) -> PathBuf {
    folder.join(format!("{session}.sock"))
}
