//! The way out of a sandbox that has no network: an HTTP proxy that leads to allowed endpoints
//! and nowhere else.
//!
//! The daemon holds a listener that was bound inside the sandbox's network namespace, and connects
//! from its own. So it is the daemon that resolves names, and what a process in the sandbox sends
//! chooses among the allowed endpoints and decides nothing else. `docs/network.md` is for users.

mod address;
mod connection;
mod endpoint;
mod head;
mod relay;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tracing::{debug, error};

pub use endpoint::{Endpoint, EndpointError, Host};

/// Where the proxy listens, inside the sandbox.
pub const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 3128);

/// The proxy as a URL, for programs in the sandbox.
const URL: &str = "http://127.0.0.1:3128";

/// The variables that tell programs in the sandbox of the proxy.
pub const ENVIRONMENT: [(&str, &str); 8] = [
    ("HTTPS_PROXY", URL),
    ("https_proxy", URL),
    ("HTTP_PROXY", URL),
    ("http_proxy", URL),
    ("ALL_PROXY", URL),
    ("all_proxy", URL),
    ("NO_PROXY", ""),
    ("no_proxy", ""),
];

/// Connections at once; a further one waits until one ends.
const MAX_CONNECTIONS: usize = 256;
/// Lookups of names at once: each holds a thread.
const MAX_LOOKUPS: usize = 4;
/// Different refusals that are told; a program that tries the whole world is not.
const MAX_TOLD: usize = 64;
/// Pause after the system could not hand over a connection, such as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection that was refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// The endpoint is not on the list.
    #[error(
        "{endpoint} is not allowed from this sandbox; the setting that would allow it is \
         sandbox.endpoints = [\"{endpoint}\"]"
    )]
    NotAllowed {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// The name is on the list, but leads to the host itself or a network around it.
    #[error(
        "{endpoint} resolves to {address}, which is no public address; it is reached only where \
         sandbox.endpoints names the address itself, or localhost"
    )]
    Internal {
        /// The endpoint.
        endpoint: Endpoint,
        /// What its name resolves to.
        address: IpAddr,
    },
}

/// Looks a name up; the port is passed on.
type Resolve =
    Box<dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// What the connections of one sandbox share.
struct Shared {
    allowed: Vec<Endpoint>,
    resolve: Resolve,
    is_public: fn(IpAddr) -> bool,
    on_refused: Box<dyn Fn(&Refusal) + Send + Sync>,
    told: Mutex<BTreeSet<Refusal>>,
}

impl Shared {
    /// Tells of a refusal, once.
    fn refused(&self, refusal: &Refusal) {
        {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.len() >= MAX_TOLD || !told.insert(refusal.clone()) {
                return;
            }
        }
        (self.on_refused)(refusal);
    }
}

/// The proxy of one sandbox. Dropped, it closes its listener and all connections.
#[derive(Debug)]
pub struct Egress {
    tasks: JoinSet<()>,
}

impl Egress {
    /// Serves a listener that was bound in the sandbox. Must be called within a tokio runtime.
    ///
    /// `on_refused` is told of each refusal once, and of 64 at most; it must not block.
    ///
    /// # Errors
    ///
    /// What the system says when the listener cannot be waited for.
    pub fn serve(
        listener: std::net::TcpListener,
        allowed: Vec<Endpoint>,
        on_refused: impl Fn(&Refusal) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let shared = Shared {
            allowed,
            resolve: system_resolver(),
            is_public: address::is_public,
            on_refused: Box::new(on_refused),
            told: Mutex::default(),
        };
        Self::start(listener, shared)
    }

    fn start(listener: std::net::TcpListener, shared: Shared) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::new(shared)));
        Ok(Self { tasks })
    }

    /// Closes the listener and all connections, and returns when they are closed.
    pub async fn close(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Takes connections as long as it is not dropped; they end with it.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= MAX_CONNECTIONS {
            note(connections.join_next().await);
        }
        tokio::select! {
            ended = connections.join_next(), if !connections.is_empty() => note(ended),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection::serve(stream, Arc::clone(&shared)));
                }
                Err(error) => {
                    debug!(%error, "no connection could be taken from a sandbox");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

fn note(ended: Option<Result<(), JoinError>>) {
    if let Some(Err(error)) = ended {
        error!(%error, "a connection of a sandbox broke off");
    }
}

/// Looks names up as the host does.
fn system_resolver() -> Resolve {
    let lookups = Arc::new(Semaphore::new(MAX_LOOKUPS));
    Box::new(move |name, port| {
        let lookups = Arc::clone(&lookups);
        Box::pin(async move {
            let permit = lookups.acquire_owned().await.map_err(io::Error::other)?;
            let lookup = tokio::task::spawn_blocking(move || {
                // Held by the thread: it goes on when nobody waits for it any more.
                let _permit = permit;
                std::net::ToSocketAddrs::to_socket_addrs(&(name.as_str(), port))
                    .map(Iterator::collect)
            });
            lookup.await.map_err(io::Error::other)?
        })
    })
}
