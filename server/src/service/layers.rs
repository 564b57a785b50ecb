//! What stands around every request: who asks, under which id, and how many at once.

use std::task::{Context, Poll};

use http::{HeaderName, HeaderValue, Request, Response};
use tonic::Code;
use tonic::body::Body;
use tonic::transport::server::UdsConnectInfo;
use tower::{BoxError, Layer, Service};
use tracing::Instrument;

use super::status::{Reason, status};

/// The header with the id of a request: taken over from the client, or made here; returned.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Checks who asks, and gives every request an id and a span.
#[derive(Clone)]
pub(super) struct Guard {
    allowed: std::sync::Arc<[u32]>,
}

impl Guard {
    /// Lets the daemon's own user in, and these.
    pub(super) fn new(allowed: &[u32]) -> Self {
        let own = rustix::process::geteuid().as_raw();
        Self { allowed: allowed.iter().copied().chain([own]).collect() }
    }

    /// Lets only the daemon's own user in.
    pub(super) fn for_owner() -> Self {
        Self::new(&[])
    }

    fn allows<B>(&self, request: &Request<B>) -> bool {
        let peer = request.extensions().get::<UdsConnectInfo>();
        let user = peer.and_then(|peer| peer.peer_cred).map(|credentials| credentials.uid());
        user.is_some_and(|user| self.allowed.contains(&user))
    }
}

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { guard: self.clone(), inner }
    }
}

/// A service behind a [`Guard`].
#[derive(Clone)]
pub(super) struct Guarded<S> {
    guard: Guard,
    inner: S,
}

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error: Into<BoxError>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = futures_util::future::BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if !self.guard.allows(&request) {
            let hint = "run as the user that the daemon runs as, or let it allow your user id";
            let message = "the daemon belongs to another user";
            let refused =
                status(Code::PermissionDenied, Reason::PeerNotAllowed, message, hint).into_http();
            return Box::pin(std::future::ready(Ok(refused)));
        }
        let id = request.headers().get(&REQUEST_ID).cloned().unwrap_or_else(fresh_id);
        let path = request.uri().path();
        let span = tracing::debug_span!("rpc", path, id = id.to_str().unwrap_or("?"));
        let response = self.inner.call(request);
        let answered = async move {
            let started = std::time::Instant::now();
            let mut response = response.await.map_err(Into::into)?;
            tracing::debug!(took = ?started.elapsed(), "answered");
            response.headers_mut().insert(REQUEST_ID, id);
            Ok(response)
        };
        Box::pin(answered.instrument(span))
    }
}

fn fresh_id() -> HeaderValue {
    let text = format!("{:016x}", rand::random::<u64>());
    // Hex digits are a header value.
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("0"))
}

/// What a client is told whose request was shed.
pub(super) fn shed(error: BoxError) -> BoxError {
    if !error.is::<tower::load_shed::error::Overloaded>() {
        return error;
    }
    let mut wire = substrat_proto::Refusal::new(
        Code::ResourceExhausted,
        Reason::Overloaded.as_str(),
        "too many requests at once",
    )
    .hint("wait a little and try again");
    wire.retry_after = Some(std::time::Duration::from_millis(100));
    Box::new(tonic::Status::from(wire))
}
