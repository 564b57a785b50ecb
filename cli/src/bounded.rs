//! A connection that says so when a request is too large to be sent.
//!
//! A request that cannot be encoded breaks off its stream, which looks like a lost connection from
//! the outside: only the body of the request knows better.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use prost::bytes::Bytes;
use substrat_proto::{MAX_MESSAGE_BYTES, Refusal};
use tokio::sync::oneshot;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower::{BoxError, Service};

/// A connection to a daemon; clones share it.
#[derive(Clone)]
pub(crate) struct Bounded(Channel);

impl Bounded {
    pub(crate) fn new(channel: Channel) -> Self {
        Self(channel)
    }
}

/// What is told of a request that is larger than the daemon takes.
pub(crate) fn too_large() -> Refusal {
    let text = format!("the request is larger than {MAX_MESSAGE_BYTES} bytes");
    Refusal::new(Code::InvalidArgument, "MESSAGE_TOO_LARGE", text)
        .hint("write it to a file and send the path")
}

impl Service<Request<Body>> for Bounded {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (failed, failure) = oneshot::channel();
        let watch = |body| Body::new(Watched { body, failed: Some(failed) });
        let response = self.0.call(request.map(watch));
        Box::pin(async move {
            tokio::select! {
                biased;
                Ok(status) = failure => Err(status.into()),
                response = response => response.map_err(Into::into),
            }
        })
    }
}

/// The body of a request, which tells why it breaks off.
struct Watched {
    body: Body,
    failed: Option<oneshot::Sender<Status>>,
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Err(status))) = &frame
            && let Some(failed) = self.failed.take()
        {
            let large = status.code() == Code::OutOfRange;
            let status = if large { too_large().into() } else { status.clone() };
            // Nobody waits for a request that was given up.
            let _ = failed.send(status);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
