//! Bytes between a client and its endpoint.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::head::Body;

/// Bytes that are moved at once.
const PIECE: usize = 16 << 10;
/// How long one side may be silent after the other one has ended. Before that, nothing is too
/// slow: a model may think for long.
const LINGER: Duration = Duration::from_secs(600);

/// Which side of a copy broke.
enum Broken {
    Source,
    Sink,
}

/// Passes bytes on in both directions, until both sides ended or one broke. `rest` was read from
/// the client already. With a request, its head goes first, and all is over when the answer is.
/// Returns whether nothing broke.
pub(super) async fn run(
    client: &mut TcpStream,
    rest: &[u8],
    upstream: &mut TcpStream,
    request: Option<(Vec<u8>, Body)>,
) -> bool {
    let is_request = request.is_some();
    let moved = AtomicU64::new(0);
    let ended = {
        let (client_in, mut client_out) = client.split();
        let (mut upstream_in, mut upstream_out) = upstream.split();
        let mut from_client = rest.chain(client_in);
        let up = async {
            let mut most = u64::MAX;
            if let Some((head, body)) = request {
                upstream_out.write_all(&head).await.map_err(|_| Broken::Sink)?;
                if let Body::Length(length) = body {
                    most = length;
                }
            }
            copy(&mut (&mut from_client).take(most), &mut upstream_out, &moved).await?;
            // What follows is no part of the request, and goes nowhere.
            copy(&mut from_client, &mut tokio::io::sink(), &moved).await?;
            upstream_out.shutdown().await.map_err(|_| Broken::Sink)
        };
        let down = async {
            copy(&mut upstream_in, &mut client_out, &moved).await?;
            client_out.shutdown().await.map_err(|_| Broken::Sink)
        };
        both(up, down, is_request, &moved).await
    };
    if ended.is_err() {
        // An answer that broke off must not look like one that is whole.
        let _ = client.set_zero_linger();
        let _ = upstream.set_zero_linger();
    }
    ended.is_ok()
}

async fn both(
    up: impl Future<Output = Result<(), Broken>>,
    down: impl Future<Output = Result<(), Broken>>,
    is_request: bool,
    moved: &AtomicU64,
) -> Result<(), Broken> {
    tokio::pin!(up, down);
    tokio::select! {
        ended = &mut up => match ended {
            // An endpoint that takes no more may still answer.
            Ok(()) | Err(Broken::Sink) => while_it_moves(down, moved).await,
            Err(Broken::Source) => ended,
        },
        ended = &mut down => match ended {
            Ok(()) if is_request => Ok(()),
            Ok(()) => match while_it_moves(up, moved).await {
                // Nobody is there any more to take what the client still had to say.
                Err(Broken::Sink) => Ok(()),
                other => other,
            },
            Err(_) => ended,
        },
    }
}

/// Waits for the second direction to end.
async fn while_it_moves(
    mut copying: impl Future<Output = Result<(), Broken>> + Unpin,
    moved: &AtomicU64,
) -> Result<(), Broken> {
    loop {
        let before = moved.load(Ordering::Relaxed);
        if let Ok(ended) = timeout(LINGER, &mut copying).await {
            return ended;
        }
        if moved.load(Ordering::Relaxed) == before {
            return Err(Broken::Source);
        }
    }
}

async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    moved: &AtomicU64,
) -> Result<(), Broken> {
    let mut piece = vec![0; PIECE];
    loop {
        let read = from.read(&mut piece).await.map_err(|_| Broken::Source)?;
        if read == 0 {
            return to.flush().await.map_err(|_| Broken::Sink);
        }
        to.write_all(&piece[..read]).await.map_err(|_| Broken::Sink)?;
        moved.fetch_add(read as u64, Ordering::Relaxed);
    }
}
