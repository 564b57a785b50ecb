//! Connections of clients: at most so many at once, so that files stay for the daemon itself, and
//! none of clients that say nothing.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{Stream, unfold};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::{Connected, UdsConnectInfo};

/// How long to wait after a connection could not be accepted.
const RETRY: Duration = Duration::from_millis(200);
/// How long a client has for its greeting. Whether it lives is asked once it has greeted.
const GREETING: Duration = Duration::from_secs(10);
/// Bytes of the greeting (RFC 9113, section 3.4).
const GREETING_BYTES: usize = 24;

/// Accepts connections, at most `most` at once: others wait until one ends.
pub(super) fn incoming(
    listener: UnixListener,
    most: usize,
) -> impl Stream<Item = io::Result<Connection>> {
    let permits = Arc::new(Semaphore::new(most));
    unfold((listener, permits), |(listener, permits)| async move {
        if permits.available_permits() == 0 {
            tracing::warn!("as many clients are connected as may be; others wait");
        }
        // The semaphore is never closed.
        let permit = permits.clone().acquire_owned().await.ok()?;
        let mut told = false;
        let stream = loop {
            match listener.accept().await {
                Ok((stream, _)) => break stream,
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::error!(%error, "a connection could not be accepted");
                    }
                    sleep(RETRY).await;
                }
            }
        };
        let greeting = Some(Box::pin(sleep(GREETING)));
        let connection = Connection { stream, greeting, heard: 0, _permit: permit };
        Some((Ok(connection), (listener, permits)))
    })
}

/// A connection that counts as long as it lives.
pub(super) struct Connection {
    stream: UnixStream,
    /// The time that is left for the greeting; none once it was read.
    greeting: Option<Pin<Box<Sleep>>>,
    /// Bytes that were read of the greeting.
    heard: usize,
    _permit: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> UdsConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let Some(greeting) = &mut self.greeting else { return read };
        if read.is_pending() {
            return match greeting.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                Poll::Pending => Poll::Pending,
            };
        }
        self.heard += buffer.filled().len() - before;
        if self.heard >= GREETING_BYTES {
            self.greeting = None;
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// What is read of a client that says this and then stands still for an hour.
    async fn read(said: &[u8]) -> io::Result<usize> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let mut incoming = Box::pin(incoming(UnixListener::bind(&path).unwrap(), 1));
        let mut client = UnixStream::connect(&path).await.unwrap();
        client.write_all(said).await.unwrap();
        let mut connection = incoming.next().await.unwrap().unwrap();
        let mut bytes = vec![0; said.len() + 1];
        let all =
            tokio::time::timeout(Duration::from_secs(3600), connection.read_exact(&mut bytes));
        all.await.unwrap_or(Ok(said.len()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_greet_is_dropped() {
        let greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        assert_eq!(greeting.len(), GREETING_BYTES);
        for mute in [&greeting[..0], &greeting[..23]] {
            assert_eq!(read(mute).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(read(greeting).await.unwrap(), GREETING_BYTES);
    }
}
