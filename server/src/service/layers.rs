//! What stands around every request: who asks, under which id, and how many at once.

use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tonic::body::Body;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Code, Status};
use tower::steer::Steer;
use tower::util::BoxCloneSyncService;
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
            let hint = "run as the user that the daemon runs as, or have your user id added to its \
                        allow_users";
            let message = "the daemon belongs to another user";
            let refused =
                status(Code::PermissionDenied, Reason::PeerNotAllowed, message, hint).into_http();
            return Box::pin(std::future::ready(Ok(refused)));
        }
        let id = request.headers().get(&REQUEST_ID).cloned().unwrap_or_else(fresh_id);
        let path = request.uri().path();
        let span = tracing::debug_span!("rpc", path, id = id.to_str().unwrap_or("?"));
        let limit = deadline(request.headers());
        let response = self.inner.call(request);
        let answered = async move {
            let started = std::time::Instant::now();
            let in_time = match limit {
                Some(limit) => tokio::time::timeout(limit, response).await.ok(),
                None => Some(response.await),
            };
            let mut response = match in_time {
                Some(response) => response.map_err(Into::into)?,
                None => late().into_http(),
            };
            tracing::debug!(took = ?started.elapsed(), "answered");
            if let Some(status) = explained(response.headers()) {
                response = status.into_http();
            }
            response.headers_mut().insert(REQUEST_ID, id);
            Ok(response)
        };
        Box::pin(answered.instrument(span))
    }
}

/// How long the client waits, as `grpc-timeout` says it: up to eight digits and a unit.
fn deadline(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// What a client is told that waited for as long as it said it would.
fn late() -> Status {
    let message = "there was no answer within the time that the request gave";
    let hint = "what was begun goes on; ask again with the same request_id to get its outcome";
    status(Code::DeadlineExceeded, Reason::DeadlineExceeded, message, hint)
}

/// What was refused before any service saw it, and so has no reason yet.
fn explained(headers: &HeaderMap) -> Option<Status> {
    // Only a response without a body has its status here.
    headers.get(Status::GRPC_STATUS)?;
    let bare = Status::from_header_map(headers).filter(|status| status.details().is_empty())?;
    let (reason, hint) = match bare.code() {
        Code::OutOfRange => (Reason::MessageTooLarge, "send less at once, or the path of a file"),
        Code::Internal => (Reason::MalformedRequest, "send one message as the schema has it"),
        _ => return None,
    };
    Some(status(Code::InvalidArgument, reason, bare.message(), hint))
}

fn fresh_id() -> HeaderValue {
    let text = format!("{:016x}", rand::random::<u64>());
    // Hex digits are a header value.
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("0"))
}

/// Puts a layer around a service for all requests but those that must always get through: whether
/// the daemon is well, how it does, and that it is to stop.
pub(super) fn unless_exempt<S, L>(layer: &L, service: S) -> Exempting
where
    S: Service<Request<Body>, Response = Response<Body>, Error = BoxError> + Clone + Send + Sync,
    S: 'static,
    S::Future: Send + 'static,
    L: Layer<S>,
    L::Service: Service<Request<Body>, Response = Response<Body>, Error = BoxError>,
    L::Service: Clone + Send + Sync + 'static,
    <L::Service as Service<Request<Body>>>::Future: Send + 'static,
{
    let layered = BoxCloneSyncService::new(layer.layer(service.clone()));
    let bare = BoxCloneSyncService::new(service);
    let choose: Choose = |request, _| {
        let path = request.uri().path();
        usize::from(EXEMPT.iter().any(|prefix| path.starts_with(prefix)))
    };
    Steer::new([layered, bare], choose)
}

/// Services that always get through.
const EXEMPT: [&str; 2] = ["/substrat.v1.DaemonService/", "/grpc.health."];

type Boxed = BoxCloneSyncService<Request<Body>, Response<Body>, BoxError>;
type Choose = fn(&Request<Body>, &[Boxed]) -> usize;
/// Two ways to a service.
pub(super) type Exempting = Steer<Boxed, Choose, Request<Body>>;

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
    wire.retry_after = Some(Duration::from_millis(100));
    Box::new(Status::from(wire))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use substrat_proto::Refusal;
    use tokio::sync::Semaphore;
    use tokio::task::JoinSet;
    use tonic::Status;
    use tower::{ServiceBuilder, ServiceExt};

    use super::*;

    async fn echo(_: Request<Body>) -> Result<Response<Body>, BoxError> {
        Ok(Response::new(Body::empty()))
    }

    /// A request of this process.
    fn request() -> Request<Body> {
        let (peer, _) = tokio::net::UnixStream::pair().unwrap();
        let mut request = Request::new(Body::empty());
        let peer_cred = Some(peer.peer_cred().unwrap());
        request.extensions_mut().insert(UdsConnectInfo { peer_addr: None, peer_cred });
        request
    }

    async fn ask(guard: Guard, request: Request<Body>) -> Result<Response<Body>, Refusal> {
        let service = guard.layer(tower::service_fn(echo));
        let response = service.oneshot(request).await.unwrap();
        match Status::from_header_map(response.headers()) {
            Some(status) => Err(Refusal::from(&status)),
            None => Ok(response),
        }
    }

    #[tokio::test]
    async fn only_the_owner_and_those_it_allows_are_let_in() {
        let own = rustix::process::geteuid().as_raw();
        assert!(ask(Guard::for_owner(), request()).await.is_ok());
        assert!(ask(Guard::new(&[own + 1]), request()).await.is_ok());
        let others = Guard { allowed: [own + 1].into() };
        let refused = ask(others, request()).await.unwrap_err();
        assert_eq!((refused.code, &*refused.reason), (Code::PermissionDenied, "PEER_NOT_ALLOWED"));
        let allowed = Guard { allowed: [own + 1, own].into() };
        assert!(ask(allowed, request()).await.is_ok());
    }

    #[tokio::test]
    async fn who_does_not_say_who_it_is_is_refused() {
        let refused = ask(Guard::for_owner(), Request::new(Body::empty())).await.unwrap_err();
        assert_eq!(refused.code, Code::PermissionDenied);
        let mut nobody = Request::new(Body::empty());
        nobody.extensions_mut().insert(UdsConnectInfo { peer_addr: None, peer_cred: None });
        assert_eq!(ask(Guard::for_owner(), nobody).await.unwrap_err().reason, "PEER_NOT_ALLOWED");
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_ends_the_waiting_with_a_reason() {
        let never = tower::service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, BoxError>>()
        });
        let mut hurried = request();
        hurried.headers_mut().insert("grpc-timeout", HeaderValue::from_static("250m"));
        let begun = tokio::time::Instant::now();
        let response = Guard::for_owner().layer(never).oneshot(hurried).await.unwrap();
        assert_eq!(begun.elapsed().as_millis() / 10, 25);
        let told = Refusal::from(&Status::from_header_map(response.headers()).unwrap());
        assert_eq!((told.code, &*told.reason), (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"));
    }

    #[test]
    fn deadlines_are_read_as_they_are_written() {
        let read = |text: &'static str| {
            let headers = [("grpc-timeout".parse().unwrap(), HeaderValue::from_static(text))];
            deadline(&headers.into_iter().collect())
        };
        assert_eq!(read("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(read("99999999n"), Some(Duration::from_nanos(99_999_999)));
        for bad in ["", "S", "5", "1x", "-1S", "100000000S", "1 S"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[tokio::test]
    async fn a_request_keeps_its_id_or_gets_one() {
        let mut with_id = request();
        with_id.headers_mut().insert(REQUEST_ID, HeaderValue::from_static("mine"));
        let response = ask(Guard::for_owner(), with_id).await.unwrap();
        assert_eq!(response.headers()[&REQUEST_ID], "mine");
        let mut ids = Vec::new();
        for _ in 0..2 {
            let response = ask(Guard::for_owner(), request()).await.unwrap();
            ids.push(response.headers()[&REQUEST_ID].clone());
        }
        assert_eq!(ids[0].len(), 16);
        assert_ne!(ids[0], ids[1]);
    }

    #[tokio::test]
    async fn one_request_too_many_is_told_to_come_back() {
        let (started, finish) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let slow = tower::service_fn({
            let (started, finish) = (started.clone(), finish.clone());
            move |_: ()| {
                let (started, finish) = (started.clone(), finish.clone());
                async move {
                    started.add_permits(1);
                    let done = finish.acquire().await.map(drop);
                    done.map_err(BoxError::from)
                }
            }
        });
        let service = ServiceBuilder::new()
            .map_err(shed)
            .load_shed()
            .layer(tower::limit::GlobalConcurrencyLimitLayer::new(1))
            .service(slow);
        let mut first = JoinSet::new();
        first.spawn(service.clone().oneshot(()));
        started.acquire().await.unwrap().forget();
        let error = service.clone().oneshot(()).await.unwrap_err();
        let refused = Refusal::from(&*error.downcast::<Status>().unwrap());
        assert_eq!((refused.code, &*refused.reason), (Code::ResourceExhausted, "OVERLOADED"));
        assert!(refused.retry_after.is_some() && !refused.hint.is_empty());
        finish.add_permits(2);
        first.join_next().await.unwrap().unwrap().unwrap();
        service.oneshot(()).await.unwrap();
    }

    #[test]
    fn another_error_is_not_taken_for_an_overload() {
        let error = shed("something else".into());
        assert_eq!(error.to_string(), "something else");
    }
}
