//! The server: takes requests, notes them, and sends what was chosen.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame as BodyFrame, Incoming};
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::conversation::{Api, Conversation};
use super::render::{self, Frame};
use super::requests::{End, Ending, Request};
use super::script::{self, Behaviour, Spent};
use super::{MODEL, TITLE, rules};

/// How long a test waits for a request before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A running server, on a thread of its own so that a test may block. Stopped when dropped.
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What requests and the test share.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Counts what changed in the requests.
    changes: watch::Sender<u64>,
    released: watch::Sender<BTreeSet<String>>,
}

#[derive(Default)]
struct State {
    requests: Vec<Request>,
    queue: VecDeque<Vec<Behaviour>>,
    spent: Spent,
    too_long: Option<String>,
    most: Option<usize>,
}

impl ModelServer {
    /// Starts one on a free port of loopback.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("a socket");
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changes: watch::Sender::new(0),
            released: watch::Sender::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let serving = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                tokio::select! {
                    () = serve(listener, serving) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, shared, stop: Some(stop), thread: Some(thread) }
    }

    /// Such as `http://127.0.0.1:4000`; the OpenAI APIs are below `/v1`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What to do at the next request that no other `next` has taken, instead of what the text
    /// of the user says.
    pub fn next(&self, behaviours: impl IntoIterator<Item = Behaviour>) {
        self.shared.state().queue.push_back(behaviours.into_iter().collect());
    }

    /// From now on, whatever has this text in it is too long.
    pub fn refuse(&self, text: &str) {
        self.shared.state().too_long = Some(text.to_owned());
    }

    /// From now on, a request of more bytes is too long.
    pub fn limit(&self, most: usize) {
        self.shared.state().most = Some(most);
    }

    /// Lets answers go on that are held under this name, and later ones too.
    pub fn release(&self, name: &str) {
        self.shared.released.send_modify(|names| {
            names.insert(name.to_owned());
        });
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.state().requests.clone()
    }

    /// Waits for a request that fits, be it open or ended.
    pub async fn request(&self, fits: impl Fn(&Request) -> bool) -> Request {
        let mut changes = self.shared.changes.subscribe();
        let found = async {
            loop {
                changes.borrow_and_update();
                if let Some(found) = self.shared.state().requests.iter().find(|it| fits(it)) {
                    return found.clone();
                }
                changes.changed().await.expect("the server runs");
            }
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(request) => request,
            Err(_) => panic!("no request fits: {:#?}", self.summary()),
        }
    }

    /// Waits until a request is answered or dropped.
    pub async fn ended(&self, number: usize) -> End {
        self.request(|it| it.number == number && it.end != End::Open).await.end
    }

    /// A line for each request.
    pub fn summary(&self) -> Vec<String> {
        let line = |it: &Request| format!("{} {} {:?}: {:?}", it.method, it.path, it.end, it.user);
        self.shared.state().requests.iter().map(line).collect()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Notes how a request ended, if nothing is noted yet.
    pub(super) fn end(&self, number: usize, end: End) {
        if let Some(request) = self.state().requests.get_mut(number)
            && request.end == End::Open
        {
            request.end = end;
        }
        self.changed();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((socket, _)) = accepted else { continue };
                // Deltas are small, and must not wait for each other.
                let _ = socket.set_nodelay(true);
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    let service = service_fn(|request| answer(Arc::clone(&shared), request));
                    let builder = hyper::server::conn::http1::Builder::new();
                    // A connection that breaks is noted where its request ends.
                    let _ = builder.serve_connection(TokioIo::new(socket), service).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

fn api_of(path: &str) -> Option<Api> {
    match path {
        "/v1/messages" => Some(Api::Anthropic),
        "/v1/chat/completions" => Some(Api::Chat),
        "/v1/responses" => Some(Api::Responses),
        _ if path.contains("/models/") && path.ends_with("enerateContent") => Some(Api::Gemini),
        _ => None,
    }
}

async fn answer(
    shared: Arc<Shared>,
    request: hyper::Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return pending().await };
    let body: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    let api = api_of(head.uri.path()).filter(|_| head.method == "POST");
    let conversation = api.map(|api| Conversation::read(api, head.uri.path(), &body));
    let conversation = conversation.unwrap_or_default();
    let noted = note(&shared, &head, &body, api, &conversation);
    let ending = Ending { shared: Arc::clone(&shared), number: noted.number };
    let Some(api) = api else {
        ending.answered();
        return Ok(other(&head));
    };
    if let Some(why) = rules::broken(api, &body) {
        ending.answered();
        let (kind, _) = render::named(api, 400);
        return Ok(whole(400, &render::refusal(api, 400, kind, &why)));
    }
    let (too_long, most) = {
        let state = shared.state();
        (state.too_long.clone(), state.most)
    };
    let text = body.to_string();
    if too_long.is_some_and(|part| text.contains(&part))
        || most.is_some_and(|most| text.len() > most)
    {
        ending.answered();
        return Ok(refused(api, &Behaviour::Overflow).expect("it is a refusal"));
    }
    let behaviours = if noted.aside {
        vec![Behaviour::Say(TITLE.to_owned())]
    } else {
        let mut state = shared.state();
        let queued = state.queue.pop_front();
        queued.unwrap_or_else(|| script::answer(api, &conversation, &mut state.spent))
    };
    if behaviours.contains(&Behaviour::Hang) {
        return pending().await;
    }
    if let Some(refusal) = behaviours.iter().find_map(|it| refused(api, it)) {
        ending.answered();
        return Ok(refusal);
    }
    let frames = render::frames(api, &conversation, &body, noted.number, &behaviours);
    let kind = if conversation.stream { "text/event-stream" } else { "application/json" };
    let released = shared.released.subscribe();
    let body = StreamBody::new(pieces(frames, released, ending)).boxed_unsync();
    Ok(response(200, kind, body))
}

/// Notes a request.
fn note(
    shared: &Shared,
    head: &hyper::http::request::Parts,
    body: &Value,
    api: Option<Api>,
    conversation: &Conversation,
) -> Request {
    let headers = head.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let mut state = shared.state();
    let request = Request {
        number: state.requests.len(),
        method: head.method.to_string(),
        path: head.uri.to_string(),
        headers: headers.collect(),
        body: body.clone(),
        api,
        aside: api.is_some() && conversation.is_aside(),
        user: conversation.said().last().copied().unwrap_or_default().to_owned(),
        tools: conversation.tools.iter().map(|tool| tool.name.clone()).collect(),
        end: End::Open,
    };
    state.requests.push(request.clone());
    drop(state);
    shared.changed();
    request
}

/// The answer to what is of no API's conversation.
fn other(head: &hyper::http::request::Parts) -> Response<Body> {
    match head.uri.path() {
        "/v1/models" if head.headers.contains_key("anthropic-version") => {
            let model = json!({
                "type": "model",
                "id": MODEL,
                "display_name": MODEL,
                "created_at": "2026-01-01T00:00:00Z",
            });
            let list = json!({ "data": [model], "has_more": false });
            whole(200, &list)
        }
        "/v1/models" => {
            let model =
                json!({ "id": MODEL, "object": "model", "created": 1, "owned_by": "tests" });
            whole(200, &json!({ "object": "list", "data": [model] }))
        }
        "/v1/messages/count_tokens" => whole(200, &json!({ "input_tokens": super::Usage::INPUT })),
        path if path.ends_with(":countTokens") => {
            whole(200, &json!({ "totalTokens": super::Usage::INPUT }))
        }
        path => whole(404, &json!({ "error": { "message": format!("there is no {path}") } })),
    }
}

/// The answer where the stream does not begin.
fn refused(api: Api, behaviour: &Behaviour) -> Option<Response<Body>> {
    let refusal = |status, kind: &str, message: &str| {
        whole(status, &render::refusal(api, status, kind, message))
    };
    match behaviour {
        Behaviour::Status { status, retry_after } => {
            let (kind, message) = render::named(api, *status);
            let mut response = refusal(*status, kind, message);
            if let Some(seconds) = retry_after {
                response.headers_mut().insert("retry-after", (*seconds).into());
            }
            Some(response)
        }
        Behaviour::Overflow => Some(match api {
            Api::Anthropic => {
                let message = "prompt is too long: 210000 tokens > 200000 maximum";
                refusal(400, "invalid_request_error", message)
            }
            Api::Chat | Api::Responses => {
                let message = "This model's maximum context length is 128000 tokens. However, \
                               your messages resulted in 130000 tokens.";
                refusal(400, "context_length_exceeded", message)
            }
            Api::Gemini => {
                let message = "The input token count (1100000) exceeds the maximum number of \
                               tokens allowed (1048576).";
                refusal(400, "", message)
            }
        }),
        Behaviour::Raw { status, content_type, body } => {
            let body = Bytes::copy_from_slice(body);
            Some(response(*status, content_type, full(body)))
        }
        _ => None,
    }
}

fn full(body: Bytes) -> Body {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

fn whole(status: u16, body: &Value) -> Response<Body> {
    response(status, "application/json", full(body.to_string().into()))
}

fn response(status: u16, content_type: &str, body: Body) -> Response<Body> {
    let status = StatusCode::from_u16(status).expect("a status");
    let response = Response::builder().status(status).header("content-type", content_type);
    response.header("request-id", "req_of_a_test").body(body).expect("a response")
}

/// The frames as a body that notes its end.
fn pieces(
    frames: Vec<Frame>,
    released: watch::Receiver<BTreeSet<String>>,
    ending: Ending,
) -> impl Stream<Item = io::Result<BodyFrame<Bytes>>> {
    let state = (VecDeque::from(frames), released, ending);
    stream::unfold(state, |(mut frames, mut released, ending)| async move {
        loop {
            // Lets what came before go out by itself, as from a model; a cut would discard it.
            tokio::task::yield_now().await;
            let piece = match frames.pop_front()? {
                Frame::Bytes(bytes) => Ok(BodyFrame::data(bytes)),
                Frame::Pause(duration) => {
                    tokio::time::sleep(duration).await;
                    continue;
                }
                Frame::Hold(name) => {
                    // The test may have ended, and this with it.
                    let _ = released.wait_for(|names| names.contains(&name)).await;
                    continue;
                }
                Frame::Silence => pending().await,
                Frame::Cut => Err(io::Error::other("the script says so")),
            };
            if frames.is_empty() {
                ending.answered();
            }
            return Some((piece, (frames, released, ending)));
        }
    })
}
