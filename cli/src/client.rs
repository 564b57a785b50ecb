//! Reaching the daemon.
#![allow(clippy::disallowed_methods, reason = "looks for sockets and starts the daemon")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use substrat_proto::MAX_MESSAGE_BYTES;
use substrat_proto::v1::agent_service_client::AgentServiceClient;
use substrat_proto::v1::attach_service_client::AttachServiceClient;
use substrat_proto::v1::daemon_service_client::DaemonServiceClient;
use substrat_proto::v1::exec_service_client::ExecServiceClient;
use substrat_proto::v1::provider_service_client::ProviderServiceClient;
use substrat_proto::v1::session_service_client::SessionServiceClient;
use substrat_proto::v1::workspace_service_client::WorkspaceServiceClient;
use tonic::transport::Endpoint;

use crate::args::Global;
use crate::bounded::Bounded;
use crate::commands::daemon;
use crate::error::{Error, Kind};

/// Where a daemon is, and how to ask it.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) home: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) timeout: Option<Duration>,
    pub(crate) start: bool,
}

impl Place {
    pub(crate) fn new(global: &Global) -> Result<Self, Error> {
        let home = match &global.home {
            Some(home) => home.clone(),
            None => std::env::home_dir()
                .ok_or_else(|| Error::invalid("there is no home folder; give one with --home"))?
                .join(".substrat"),
        };
        let socket = global.socket.clone().unwrap_or_else(|| home.join("substratd.sock"));
        Ok(Self { home, socket, timeout: global.timeout, start: global.start })
    }

    /// Connects; starts the daemon where that is wanted.
    pub(crate) async fn connect(&self) -> Result<Client, Error> {
        match self.try_connect().await {
            Err(_) if self.start || daemon::starts_by_itself(&self.home) => {
                daemon::start(self).await?;
                self.try_connect().await
            }
            other => other,
        }
    }

    /// Connects to a daemon that runs.
    pub(crate) async fn try_connect(&self) -> Result<Client, Error> {
        let socket = followed(&self.socket);
        let uri: tonic::transport::Uri = hyperlocal::Uri::new(&socket, "/").into();
        let mut endpoint = Endpoint::from(uri);
        if let Some(timeout) = self.timeout {
            endpoint = endpoint.timeout(timeout);
        }
        let channel = endpoint.connect_with_connector(hyperlocal::UnixConnector).await;
        let channel = channel.map_err(|_| self.unreachable())?;
        Ok(Client { channel: Bounded::new(channel) })
    }

    /// Gives an answer the time that the caller gave, with all attempts to get it.
    pub(crate) async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match self.timeout {
            Some(timeout) => {
                tokio::time::timeout(timeout, answer).await.map_err(|_| Error::late())?
            }
            None => answer.await,
        }
    }

    fn unreachable(&self) -> Error {
        let socket = self.socket.display();
        match self.socket.symlink_metadata() {
            Ok(_) => Error::unreachable(format!("the daemon does not answer on {socket}")),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                let hint = "run as the user that the daemon runs as";
                Error::new(Kind::Denied, format!("{socket} belongs to another user"), hint)
            }
            Err(_) => Error::unreachable(format!("the daemon does not run: there is no {socket}")),
        }
    }
}

/// What a link to a socket leads to: a path that is too long for a socket address is one.
fn followed(socket: &Path) -> PathBuf {
    std::fs::read_link(socket).unwrap_or_else(|_| socket.to_owned())
}

/// A connection to a daemon.
#[derive(Clone)]
pub(crate) struct Client {
    channel: Bounded,
}

macro_rules! services {
    ($($name:ident: $service:ident,)+) => {
        impl Client {
            $(
                pub(crate) fn $name(&self) -> $service<Bounded> {
                    $service::new(self.channel.clone())
                        .max_encoding_message_size(MAX_MESSAGE_BYTES)
                        .max_decoding_message_size(usize::MAX)
                }
            )+
        }
    };
}

services! {
    agents: AgentServiceClient,
    attach: AttachServiceClient,
    daemon: DaemonServiceClient,
    exec: ExecServiceClient,
    providers: ProviderServiceClient,
    sessions: SessionServiceClient,
    workspaces: WorkspaceServiceClient,
}

/// A new idempotency key.
pub(crate) fn request_id() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}
