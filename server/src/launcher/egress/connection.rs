//! One connection from a sandbox, from its head to its end.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::head::{self, Fault, Request, Way};
use super::{Endpoint, Host, Refusal, Shared, relay};

/// How long a name may take to be looked up, and how long an address to answer.
const REACH_TIME: Duration = Duration::from_secs(10);
/// Addresses of a name that are tried.
const MAX_ADDRESSES: usize = 4;
/// How much of a client that was refused is still read, and for how long: one that writes when
/// its connection closes would lose the answer.
const LAST_BYTES: u64 = 1 << 20;
const LAST_TIME: Duration = Duration::from_secs(2);

/// Why a request was not served.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the name of {0} was not found: {1}")]
    NotFound(Endpoint, io::Error),
    #[error("{0} cannot be reached: {1}")]
    Unreachable(Endpoint, io::Error),
    #[error("{0} did not answer in time")]
    TimedOut(Endpoint),
}

impl Problem {
    fn status(&self) -> &'static str {
        match self {
            Self::Fault(Fault::Slow) => "408 Request Timeout",
            Self::Fault(Fault::TooLarge) => "431 Request Header Fields Too Large",
            Self::Fault(Fault::Ended | Fault::NotHttp(_) | Fault::Unfit(_) | Fault::Target(_)) => {
                "400 Bad Request"
            }
            Self::Refused(_) => "403 Forbidden",
            Self::NotFound(..) | Self::Unreachable(..) => "502 Bad Gateway",
            Self::TimedOut(_) => "504 Gateway Timeout",
        }
    }
}

/// Serves the one request of a connection.
pub(super) async fn serve(mut client: TcpStream, shared: Arc<Shared>) {
    let served = match head::read(&mut client).await {
        Ok((request, rest)) => pass_on(&mut client, request, &rest, &shared).await,
        Err(fault) => Err(fault.into()),
    };
    let problem = match served {
        Ok(true) => return hang_up(client).await,
        // Its sockets say so when they are dropped.
        Ok(false) => return,
        Err(problem) => problem,
    };
    if let Problem::Refused(refusal) = &problem {
        shared.refused(refusal);
    }
    let text = format!("substrat: {problem}\n");
    let answer = format!(
        "HTTP/1.1 {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{text}",
        problem.status(),
        text.len(),
    );
    // A client that takes no answer has left, or stays until the time is over.
    let _ = timeout(LAST_TIME, client.write_all(answer.as_bytes())).await;
    hang_up(client).await;
}

/// Closes a connection so that what was written arrives.
async fn hang_up(mut client: TcpStream) {
    if client.shutdown().await.is_ok() {
        let rest =
            async { tokio::io::copy(&mut client.take(LAST_BYTES), &mut tokio::io::sink()).await };
        let _ = timeout(LAST_TIME, rest).await;
    }
}

/// Serves a request, and returns whether nothing broke.
async fn pass_on(
    client: &mut TcpStream,
    request: Request,
    rest: &[u8],
    shared: &Shared,
) -> Result<bool, Problem> {
    let Request { target, way } = request;
    if !shared.allowed.iter().any(|endpoint| endpoint.covers(&target)) {
        return Err(Refusal::NotAllowed { endpoint: target }.into());
    }
    let mut upstream = reach(&target, shared).await?;
    let request = match way {
        Way::Tunnel => {
            // A client that left is seen by the relay.
            let _ = client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await;
            None
        }
        Way::Forward { head, body } => Some((head, body)),
    };
    Ok(relay::run(client, rest, &mut upstream, request).await)
}

/// Connects to an allowed endpoint.
async fn reach(target: &Endpoint, shared: &Shared) -> Result<TcpStream, Problem> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses(target, shared).await? {
        match timeout(REACH_TIME, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Small pieces of streamed text must not wait for each other.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    match last.kind() {
        io::ErrorKind::TimedOut => Err(Problem::TimedOut(target.clone())),
        _ => Err(Problem::Unreachable(target.clone(), last)),
    }
}

/// The addresses of an endpoint. What the list names as an address, or as this host, leads there;
/// any other name leads to public addresses only, whatever its owner says.
async fn addresses(target: &Endpoint, shared: &Shared) -> Result<Vec<SocketAddr>, Problem> {
    let port = target.port;
    let name = match &target.host {
        Host::Address(address) => return Ok(vec![SocketAddr::new(*address, port)]),
        Host::Name(name) if name == "localhost" => {
            let local = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
            return Ok(local.map(|address| SocketAddr::new(address, port)).to_vec());
        }
        Host::Name(name) | Host::Below(name) => name.clone(),
    };
    let found = match timeout(REACH_TIME, (shared.resolve)(name, port)).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Err(Problem::NotFound(target.clone(), error)),
        Err(_) => return Err(Problem::TimedOut(target.clone())),
    };
    let (public, internal): (Vec<SocketAddr>, Vec<SocketAddr>) =
        found.into_iter().partition(|address| (shared.is_public)(address.ip()));
    match internal.first() {
        Some(address) if public.is_empty() => {
            Err(Refusal::Internal { endpoint: target.clone(), address: address.ip() }.into())
        }
        _ => Ok(public.into_iter().take(MAX_ADDRESSES).collect()),
    }
}
