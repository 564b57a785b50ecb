//! The API: adapters between gRPC and the engine, and the socket that they are served on.

mod agent;
mod attach;
mod budget;
mod convert;
mod daemon;
mod events;
mod exec;
mod folder;
mod incoming;
mod layers;
mod mend;
mod permission;
mod provider;
mod request;
mod sandbox;
mod session;
mod socket;
mod status;
mod tool;
mod turn;
mod uses;
mod weave;
mod workspace;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use substrat_proto::v1;
use tokio::net::UnixListener;
use tokio_util::task::TaskTracker;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tower::ServiceBuilder;
use tower::limit::GlobalConcurrencyLimitLayer;

use crate::engine::Handle;
use crate::launcher::Launcher;
use crate::model::Timestamp;
use crate::recovery::Report;
use crate::workspace::{Files, SandboxReport};

pub use status::Reason;
pub use tool::Sockets;

/// Provider of a root that names none.
pub const DEFAULT_PROVIDER: &str = "scripted";
/// The services of the API.
const SERVICES: [&str; 7] = [
    "substrat.v1.AgentService",
    "substrat.v1.AttachService",
    "substrat.v1.SessionService",
    "substrat.v1.WorkspaceService",
    "substrat.v1.ExecService",
    "substrat.v1.ProviderService",
    "substrat.v1.DaemonService",
];
/// Requests that are answered at once; waiting for the answer to a message counts, streams do
/// not.
const MAX_REQUESTS: usize = 16_384;

/// How the journal and the checkpoint are doing.
#[derive(Debug, Clone, Copy, Default)]
pub struct JournalStatus {
    /// Sequence of the last durable event.
    pub durable: u64,
    /// Sequence of the last checkpoint.
    pub checkpoint: u64,
    /// Segment files.
    pub segments: u32,
    /// Bytes since the last checkpoint.
    pub tail_bytes: u64,
    /// Commits so far.
    pub commits: u64,
    /// Whether the disk is full.
    pub full: bool,
}

/// What was found wrong with the files of agents.
#[derive(Debug, Clone, Default)]
pub struct Mended {
    /// Files that differed from what they should have been.
    pub repaired: usize,
    /// Folders that were set aside, relative to the home.
    pub quarantined: Vec<String>,
}

/// The configuration, as it is in force.
pub trait Configuration: Send + Sync {
    /// The settings.
    fn show(&self) -> v1::GetConfigResponse;
    /// Live instances of a provider at most.
    fn slots(&self, provider: &str) -> usize;
    /// Reads it again. The error says what is wrong with it; then nothing has changed.
    fn reload(&self) -> BoxFuture<'_, Result<v1::ReloadConfigResponse, String>>;
}

/// What the daemon tells of itself.
pub struct About {
    /// Its home.
    pub home: PathBuf,
    /// When it started to serve.
    pub started: Timestamp,
    /// What recovery found.
    pub recovery: Report,
    /// How long recovery took.
    pub recovery_took: Duration,
    /// What was taken over from the Python Substrat, if that was.
    pub imported: Option<String>,
    /// Clients that may be connected at once.
    pub connections: usize,
    /// The configuration.
    pub configuration: Arc<dyn Configuration>,
    /// After how long a client that says nothing is taken for dead.
    pub silence: Duration,
    /// How the journal is doing.
    pub journal: Box<dyn Fn() -> JournalStatus + Send + Sync>,
    /// How processes of agents are kept inside their workspaces.
    pub sandbox: Box<dyn Fn() -> SandboxReport + Send + Sync>,
    /// What was found wrong with the files of agents.
    pub mended: Box<dyn Fn() -> Mended + Send + Sync>,
}

/// How many requests have git work on worktrees at once.
const GIT_TURNS: usize = 8;
/// How many requests have a provider checked or list its models at once: most start a program.
const ASKING_TURNS: usize = 4;

/// The services; clones share them.
#[derive(Clone)]
pub struct Api {
    engine: Handle,
    files: Files,
    launcher: Launcher,
    uses: uses::Uses,
    /// Held by who has git work on worktrees.
    git_turns: Arc<tokio::sync::Semaphore>,
    /// Held by who has a provider checked or list its models.
    asking_turns: Arc<tokio::sync::Semaphore>,
    /// What goes on when whoever asked for it has gone; it ends with the engine.
    tasks: TaskTracker,
    about: Arc<About>,
}

impl Api {
    /// The services of an engine.
    pub fn new(engine: Handle, files: Files, launcher: Launcher, about: About) -> Self {
        let uses = uses::Uses::default();
        let git_turns = Arc::new(tokio::sync::Semaphore::new(GIT_TURNS));
        let asking_turns = Arc::new(tokio::sync::Semaphore::new(ASKING_TURNS));
        let (tasks, about) = (TaskTracker::new(), Arc::new(about));
        Self { engine, files, launcher, uses, git_turns, asking_turns, tasks, about }
    }

    /// Serves until `stop` resolves, and then until the running requests have ended.
    pub async fn serve(
        self,
        listener: UnixListener,
        allowed_users: &[u32],
        stop: impl Future<Output = ()>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let (health, health_service) = tonic_health::server::health_reporter();
        let services = || SERVICES.iter().chain([&""]);
        for service in services() {
            health.set_service_status(service, ServingStatus::Serving).await;
        }
        let mut draining = self.engine.draining();
        let told = async move {
            // The sender lives as long as the engine; nothing is told of one that is gone.
            if draining.wait_for(|draining| *draining).await.is_ok() {
                for service in services() {
                    health.set_service_status(service, ServingStatus::NotServing).await;
                }
            }
        };
        let connections = incoming::incoming(listener, self.about.connections);
        let shedding = ServiceBuilder::new()
            .map_err(layers::shed)
            .load_shed()
            .layer(GlobalConcurrencyLimitLayer::new(MAX_REQUESTS))
            .into_inner();
        let layer = ServiceBuilder::new()
            .layer_fn(move |service| layers::unless_exempt(&shedding, service))
            .layer(layers::Guard::new(allowed_users))
            .into_inner();
        macro_rules! limited {
            ($server:path) => {
                <$server>::new(self.clone())
                    .max_decoding_message_size(substrat_proto::MAX_MESSAGE_BYTES)
                    .max_encoding_message_size(usize::MAX)
            };
        }
        let served = Server::builder()
            // A client that does not even read is noticed by this.
            .http2_keepalive_interval(Some(self.about.silence / 3))
            .http2_keepalive_timeout(Some(self.about.silence))
            .layer(layer)
            .add_service(health_service)
            .add_service(reflection_v1()?)
            .add_service(reflection_v1alpha()?)
            .add_service(limited!(v1::agent_service_server::AgentServiceServer<Self>))
            .add_service(limited!(v1::attach_service_server::AttachServiceServer<Self>))
            .add_service(limited!(v1::session_service_server::SessionServiceServer<Self>))
            .add_service(limited!(v1::workspace_service_server::WorkspaceServiceServer<Self>))
            .add_service(limited!(v1::exec_service_server::ExecServiceServer<Self>))
            .add_service(limited!(v1::provider_service_server::ProviderServiceServer<Self>))
            .add_service(limited!(v1::daemon_service_server::DaemonServiceServer<Self>))
            .serve_with_incoming_shutdown(connections, stop);
        let mut served = std::pin::pin!(served);
        tokio::select! {
            served = &mut served => return Ok(served?),
            () = told => {}
        }
        served.await?;
        self.tasks.close();
        self.tasks.wait().await;
        Ok(())
    }
}

/// The bound API socket, which is removed when this is dropped.
pub struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        socket::remove(&self.0);
    }
}

/// Binds the API socket. Others may connect if it is `shared`; who they are is looked at then.
pub fn bind(path: &Path, shared: bool) -> std::io::Result<(UnixListener, Bound)> {
    let listener = socket::bind(path, if shared { 0o666 } else { 0o600 })?;
    Ok((listener, Bound(path.to_owned())))
}

/// The schema of everything that is served.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    let builder = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(substrat_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name("grpc.health.v1.Health");
    SERVICES.iter().fold(builder, |builder, service| builder.with_service_name(*service))
}

type ReflectionError = tonic_reflection::server::Error;

fn reflection_v1() -> Result<
    tonic_reflection::server::v1::ServerReflectionServer<
        impl tonic_reflection::server::v1::ServerReflection,
    >,
    ReflectionError,
> {
    reflection().build_v1()
}

fn reflection_v1alpha() -> Result<
    tonic_reflection::server::v1alpha::ServerReflectionServer<
        impl tonic_reflection::server::v1alpha::ServerReflection,
    >,
    ReflectionError,
> {
    reflection().build_v1alpha()
}
