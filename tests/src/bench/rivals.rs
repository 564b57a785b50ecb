//! What the same kind of socket does with nothing behind it: a bare tonic echo, a bare tonic
//! stream.

use std::path::{Path, PathBuf};

use futures_util::stream::{self, BoxStream, StreamExt};
use substrat_proto::v1;
use substrat_proto::v1::attach_response::Item;
use substrat_proto::v1::attach_service_server::{AttachService, AttachServiceServer};
use substrat_proto::v1::tool_service_server::{ToolService, ToolServiceServer};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, Streaming};

/// Answers with nothing but what was asked.
struct Echo;

#[tonic::async_trait]
impl ToolService for Echo {
    type WatchToolsStream = BoxStream<'static, Result<v1::WatchToolsResponse, Status>>;

    async fn watch_tools(
        &self,
        _: Request<v1::WatchToolsRequest>,
    ) -> Result<Response<Self::WatchToolsStream>, Status> {
        Err(Status::unimplemented("nothing to watch"))
    }

    async fn list_tools(
        &self,
        _: Request<v1::ListToolsRequest>,
    ) -> Result<Response<v1::ListToolsResponse>, Status> {
        Ok(Response::new(v1::ListToolsResponse::default()))
    }

    async fn call_tool(
        &self,
        request: Request<v1::CallToolRequest>,
    ) -> Result<Response<v1::CallToolResponse>, Status> {
        let error = request.into_inner().name;
        Ok(Response::new(v1::CallToolResponse { error, ..Default::default() }))
    }
}

#[tonic::async_trait]
impl AttachService for Echo {
    type AttachStream = BoxStream<'static, Result<v1::AttachResponse, Status>>;

    async fn attach(
        &self,
        _: Request<Streaming<v1::AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let deltas = (0..).map(|index| {
            let text = "12345678".to_owned();
            let delta = v1::OutputDelta { turn: 1, index, kind: 1, text };
            let item = Some(Item::OutputDelta(delta));
            Ok(v1::AttachResponse { sequence: 0, time: None, item })
        });
        Ok(Response::new(stream::iter(deltas).boxed()))
    }
}

/// Serves the rivals in a process of its own, as the daemon is one: this binary again.
pub(crate) struct Rival {
    pub(crate) socket: PathBuf,
    child: std::process::Child,
    _folder: tempfile::TempDir,
}

impl Rival {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("rival.sock");
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .arg("serve-rival")
            .arg(&socket)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        Self { socket, child, _folder: folder }
    }
}

impl Rival {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves until it is killed.
pub(crate) fn serve(socket: &Path) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let listener = UnixListener::bind(socket).unwrap();
        println!("ready");
        tonic::transport::Server::builder()
            .add_service(ToolServiceServer::new(Echo))
            .add_service(AttachServiceServer::new(Echo))
            .serve_with_incoming(UnixListenerStream::new(listener))
            .await
            .unwrap();
    });
}
