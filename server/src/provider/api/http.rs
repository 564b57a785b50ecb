//! Requests to a model's API: sending them, and telling what went wrong.

use std::time::Duration;

use reqwest::header::{DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::sse::{Event, Events};
use crate::model::FailureClass;
use crate::provider::Failure;
use crate::provider::failure::FailureKind;
use crate::provider::secret::{Secret, Secrets};

/// How long a server may take to be reached.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest error that is read, in bytes.
const MAX_ERROR: usize = 64 << 10;
/// Longest part of an error that is told, in bytes.
const MAX_TOLD: usize = 2000;
/// Longest answer that is no stream, in bytes.
const MAX_BODY: usize = 16 << 20;

/// A server that speaks HTTP, and how it is spoken to.
#[derive(Debug, Clone)]
pub(super) struct Server {
    client: Client,
    base: Url,
    headers: HeaderMap,
}

/// What an API says of an error, in whatever shape it does.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// Its kind: a word, or a number.
    pub(super) kind: String,
    pub(super) message: String,
}

impl Said {
    /// The status that it names.
    fn status(&self) -> Option<u16> {
        let mut words = self.kind.split(' ').filter_map(|word| word.parse().ok());
        words.find(|status| is_failure(*status))
    }

    /// What its name means.
    fn name(&self) -> Option<FailureKind> {
        self.kind.split(' ').find_map(FailureKind::of_name)
    }

    /// Whether it tells of an error at all.
    fn is_error(&self) -> bool {
        !self.message.is_empty() || self.status().is_some() || self.name().is_some()
    }
}

/// A server's base address as it is configured.
///
/// # Errors
///
/// What is wrong with it.
pub(super) fn parse_base(text: &str) -> Result<Url, String> {
    let mut url = Url::parse(text).map_err(|error| format!("no URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err("it must begin with http:// or https://, and name a host".to_owned());
    }
    if url.password().is_some() || !url.username().is_empty() || url.query().is_some() {
        return Err("it may hold no user, password or query".to_owned());
    }
    let path = format!("{}/", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

/// Headers as they are configured.
///
/// # Errors
///
/// What is wrong with them.
pub(super) fn parse_headers<'a>(
    headers: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Result<HeaderMap, String> {
    let mut parsed = HeaderMap::new();
    for (name, value) in headers {
        let value = HeaderValue::from_str(value);
        let (Ok(header), Ok(mut value)) = (HeaderName::from_bytes(name.as_bytes()), value) else {
            return Err(format!("{name:?} is no header"));
        };
        value.set_sensitive(true);
        parsed.insert(header, value);
    }
    Ok(parsed)
}

impl Server {
    pub(super) fn new(base: Url, headers: HeaderMap) -> Result<Self, String> {
        // Whoever was first has it installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .connect_timeout(CONNECT)
            // A key is for the server that it was given for.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("substrat/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { client, base, headers })
    }

    pub(super) fn base(&self) -> &Url {
        &self.base
    }

    /// Sends a body, and has the beginning of the answer; a key goes into a header.
    pub(super) async fn post(
        &self,
        path: &str,
        body: Vec<u8>,
        key: Option<(&'static str, String)>,
    ) -> Result<Response, Failure> {
        let mut request = self.client.post(self.at(path)?).headers(self.headers.clone());
        request = request.header("content-type", "application/json").body(body);
        self.send(request, key).await
    }

    /// Asks for a page, and reads it whole.
    pub(super) async fn get(
        &self,
        path: &str,
        key: Option<(&'static str, String)>,
        secrets: &Secrets,
    ) -> Result<Value, Failure> {
        let request = self.client.get(self.at(path)?).headers(self.headers.clone());
        let response = self.send(request, key).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let most = if status.is_success() { MAX_BODY } else { MAX_ERROR };
        let bytes = read(response, most).await?;
        if !status.is_success() {
            return Err(refused(status, &headers, &said(&bytes), secrets));
        }
        serde_json::from_slice(&bytes).map_err(|error| {
            Failure::new(FailureClass::Protocol, format!("the server's answer is no JSON: {error}"))
        })
    }

    fn at(&self, path: &str) -> Result<Url, Failure> {
        self.base.join(path).map_err(|error| Failure::permanent(error.to_string()))
    }

    async fn send(
        &self,
        request: reqwest::RequestBuilder,
        key: Option<(&'static str, String)>,
    ) -> Result<Response, Failure> {
        let request = match key {
            None => request,
            Some((name, value)) => {
                let value = HeaderValue::from_str(&value);
                let mut value = value.map_err(|_| {
                    Failure::new(FailureClass::Auth, "the key holds what no header can hold")
                })?;
                value.set_sensitive(true);
                request.header(name, value)
            }
        };
        request.send().await.map_err(|error| broken(&error))
    }
}

/// The value of the header that bears a key.
pub(super) fn bearer(key: &Secret) -> (&'static str, String) {
    ("authorization", format!("Bearer {}", key.expose()))
}

/// Host and port of an address.
fn host(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}", url.host_str().unwrap_or_default())
}

/// What a connection that broke comes to.
fn broken(error: &reqwest::Error) -> Failure {
    // The innermost error says most.
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let host = error.url().map_or_else(|| "the server".to_owned(), host);
    let what = if error.is_connect() { "was not reached" } else { "broke off" };
    Failure::new(FailureClass::Network, format!("{host} {what}: {cause}"))
}

async fn read(mut response: Response, most: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| broken(&error))? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > most {
            bytes.truncate(most);
            break;
        }
    }
    Ok(bytes)
}

/// A stream of events. One that ends is told as [`None`].
pub(super) struct Stream {
    response: Response,
    events: Events,
    found: std::collections::VecDeque<Event>,
}

impl Stream {
    /// The events of a response, if it is a stream of them.
    ///
    /// # Errors
    ///
    /// What the server says instead.
    pub(super) async fn of(response: Response, secrets: &Secrets) -> Result<Self, Failure> {
        let status = response.status();
        let kind = response.headers().get("content-type");
        let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        if status.is_success() && is_stream {
            let (events, found) = Default::default();
            return Ok(Self { response, events, found });
        }
        let headers = response.headers().clone();
        let body = read(response, MAX_ERROR).await.unwrap_or_default();
        let said = said(&body);
        // A page is no word of the API.
        let is_json = serde_json::from_slice::<IgnoredAny>(&body).is_ok();
        if status.is_success() && !(is_json && said.is_error()) {
            let told = "the server answered with something that is no stream of events: look at \
                        its base_url, and whether it can stream";
            return Err(Failure::new(FailureClass::Protocol, told));
        }
        Err(refused(status, &headers, &said, secrets))
    }

    /// The next event, or word that something came which is none yet.
    pub(super) async fn next(&mut self) -> Result<Option<Option<Event>>, Failure> {
        if let Some(event) = self.found.pop_front() {
            return Ok(Some(Some(event)));
        }
        let Some(piece) = self.response.chunk().await.map_err(|error| broken(&error))? else {
            return Ok(None);
        };
        let mut found = Vec::new();
        self.events
            .push(&piece, &mut found)
            .map_err(|error| Failure::new(FailureClass::Protocol, error.to_string()))?;
        self.found.extend(found);
        Ok(Some(self.found.pop_front()))
    }
}

/// What an error's body says, in any of the shapes that are about.
pub(super) fn said(body: &[u8]) -> Said {
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        // A proxy's page, for one.
        let text = String::from_utf8_lossy(body);
        return Said { kind: String::new(), message: text.trim().to_owned() };
    };
    said_in(value.get("error").unwrap_or(&value))
}

/// What an error says that is JSON.
pub(super) fn said_in(error: &Value) -> Said {
    let word = |name: &str| match error.get(name) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    let message = match error {
        Value::String(text) => text.clone(),
        _ => word("message").or_else(|| word("detail")).unwrap_or_default(),
    };
    let kind = [word("code"), word("type")].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let raw = error.pointer("/metadata/raw").and_then(Value::as_str);
    let message = match raw {
        Some(raw) if !message.contains(raw) => format!("{message}: {raw}"),
        _ => message,
    };
    Said { kind, message }
}

/// The failure that a refusal of a server is.
pub(super) fn refused(
    status: StatusCode,
    headers: &HeaderMap,
    said: &Said,
    secrets: &Secrets,
) -> Failure {
    let class = classify(status.as_u16(), said);
    let message = if said.message.is_empty() { "without a word why" } else { &said.message };
    let id = headers.get("request-id").or_else(|| headers.get("x-request-id"));
    let id = id.and_then(|id| id.to_str().ok()).map(|id| format!(" (request {id})"));
    let id = id.unwrap_or_default();
    let status = match status.is_success() {
        true => "with an error".to_owned(),
        false => status.to_string(),
    };
    let told = format!("the server answered {status}: {}{id}", told(message));
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let retry_after = match text(HeaderName::from_static("x-should-retry")) {
        // Not here, and not soon.
        Some("false") => Some(Duration::MAX),
        _ => text(RETRY_AFTER).and_then(|wait| wait_of(wait, text(DATE))),
    };
    Failure { class, message: secrets.hide(&told), retry_after }
}

/// The failure that an error in the midst of a stream is.
pub(super) fn broke_off(said: &Said, secrets: &Secrets) -> Failure {
    let class = classify(0, said);
    let message = format!("the server broke off: {}", told(&said.message));
    Failure::new(class, secrets.hide(&message))
}

/// The part of a text that is told.
pub(super) fn told(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TOLD)]
}

/// The pause that a `retry-after` asks for: seconds, or a date, which is measured by the server's
/// own clock.
fn wait_of(text: &str, now: Option<&str>) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = httpdate::parse_http_date(text).ok()?;
    let now = httpdate::parse_http_date(now?).ok()?;
    Some(at.duration_since(now).unwrap_or_default())
}

/// What servers refuse as wrong that is not.
const STAND_FOR_400: [FailureKind; 3] =
    [FailureKind::RateLimit, FailureKind::Auth, FailureKind::NotFound];

fn classify(status: u16, said: &Said) -> FailureClass {
    // Where the answer is a success, its error tells the status.
    let is_told = (300..600).contains(&status);
    let status = if is_told { status } else { said.status().unwrap_or_default() };
    let named = said.name();
    let worded = worded(&said.message);
    // A request that is too long is refused as one that is wrong. Of tokens in a time they say
    // much the same.
    let is_limit = status == 429 || named == Some(FailureKind::RateLimit);
    let mut told = named.into_iter().chain(worded.filter(|_| !is_limit));
    let overflow = told.find(|kind| *kind == FailureKind::Overflow);
    let by_status = FailureKind::of_status(status.into());
    let of_status = match status {
        // A key is shown to no other address.
        300..=399 => Some(FailureKind::NotFound),
        400 => {
            let mut said = worded.into_iter().chain(named);
            said.find(|kind| STAND_FOR_400.contains(kind)).or(by_status)
        }
        409 => Some(FailureKind::Network),
        _ => by_status,
    };
    let kind = overflow.or(of_status).or(named).or(worded);
    kind.unwrap_or(FailureKind::Network).class()
}

/// What the words of an error say, those of model servers included.
fn worded(text: &str) -> Option<FailureKind> {
    /// Of a conversation that is too long.
    const TOO_LONG: [&str; 4] = [
        "exceeds the maximum number of tokens",
        "maximum prompt length",
        "exceeds context length",
        "the model's context length",
    ];
    /// Of tokens that are too many now, and not later.
    const LATER: [&str; 2] = ["please wait", "per min"];
    let lower = text.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|words| lower.contains(words));
    let is_too_long = says(&TOO_LONG);
    match FailureKind::of_text(text) {
        kind if !is_too_long && kind != Some(FailureKind::Overflow) => kind,
        _ if says(&LATER) => Some(FailureKind::RateLimit),
        _ => Some(FailureKind::Overflow),
    }
}

fn is_failure(status: u16) -> bool {
    (400..600).contains(&status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class_of(status: u16, body: &Value) -> FailureClass {
        let said = said(body.to_string().as_bytes());
        let status = StatusCode::from_u16(status).unwrap();
        refused(status, &HeaderMap::new(), &said, &Secrets::default()).class
    }

    fn anthropic(kind: &str, text: &str) -> Value {
        json!({"type": "error", "error": {"type": kind, "message": text}})
    }

    #[test]
    fn a_model_that_is_not_there_is_no_wrong_request() {
        for (status, body) in [
            (404, json!({"error": {"message": "no model", "type": null, "code": null}})),
            (404, anthropic("not_found_error", "model: x")),
            (410, json!({"error": "it is gone"})),
            (301, json!("see elsewhere")),
            (400, json!({"error": {"code": 400, "message": "x is not a valid model ID"}})),
            (400, json!({"error": {"code": "model_not_found", "message": "x"}})),
            (400, json!({"object": "error", "message": "The model `x` does not exist."})),
        ] {
            assert_eq!(class_of(status, &body), FailureClass::ProviderGone, "{body}");
        }
    }

    #[test]
    fn errors_of_any_shape_have_a_class() {
        use FailureClass as Is;
        for (status, body, wanted) in [
            (400, anthropic("invalid_request_error", "no"), Is::InvalidRequest),
            (400, anthropic("invalid_request_error", "prompt is too long: 9 tokens"), Is::Overflow),
            (401, anthropic("authentication_error", "bad key"), Is::Auth),
            (402, json!({"error": {"code": 402, "message": "no credits"}}), Is::Auth),
            (413, anthropic("request_too_large", ""), Is::Overflow),
            (400, anthropic("invalid_request_error", "Your credit balance is too low"), Is::Auth),
            (429, json!({"error": {"code": 429, "message": "slow down"}}), Is::RateLimit),
            (500, anthropic("api_error", "oops"), Is::Overload),
            (529, anthropic("overloaded_error", "Overloaded"), Is::Overload),
            (
                400,
                json!({"object": "error", "message": "This model's maximum context length is 4096", "code": 400}),
                Is::Overflow,
            ),
            (
                400,
                json!({"error": {"code": "context_length_exceeded", "message": "x"}}),
                Is::Overflow,
            ),
            (200, json!({"error": {"code": 401, "message": "bad key"}}), Is::Auth),
            (200, json!({"error": {"code": 400, "message": "no"}}), Is::InvalidRequest),
            (200, json!({"error": {"code": "429", "message": "slow down"}}), Is::RateLimit),
            (200, json!({"error": {"code": null, "message": "oops"}}), Is::Network),
            (409, json!({"error": {"code": 409, "message": "conflict"}}), Is::Network),
            (
                429,
                anthropic("x", "Too many tokens, please wait before trying again."),
                Is::RateLimit,
            ),
            (429, json!({"error": {"message": "too many tokens"}}), Is::RateLimit),
            (200, anthropic("rate_limit_error", "too many tokens"), Is::RateLimit),
            (
                400,
                anthropic("x", "Too many tokens, please wait before trying again."),
                Is::RateLimit,
            ),
            (
                400,
                json!({"error": {"message": "The input token count (12) exceeds the maximum number of tokens allowed (9)."}}),
                Is::Overflow,
            ),
            (
                400,
                json!({"error": "This model's maximum prompt length is 9 but the request contains 12 tokens."}),
                Is::Overflow,
            ),
        ] {
            assert_eq!(class_of(status, &body), wanted, "{body}");
        }
        let page = said(b"<html>bad gateway</html>");
        assert_eq!(page.message, "<html>bad gateway</html>");
        let cut = said_in(&json!({"code": 502, "message": "Provider disconnected"}));
        assert_eq!(broke_off(&cut, &Secrets::default()).class, Is::Overload);
        let cut = said_in(&json!({"type": "overloaded_error", "message": "Overloaded"}));
        assert_eq!(broke_off(&cut, &Secrets::default()).class, Is::Overload);
    }

    #[test]
    fn a_pause_that_is_asked_for_is_told_and_a_key_is_not() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_static("7"));
        let said = Said { kind: String::new(), message: "bad key sk-abcdefgh".to_owned() };
        let mut secrets = Secrets::default();
        secrets.add(&Secret::new("sk-abcdefgh"));
        let failure = refused(StatusCode::TOO_MANY_REQUESTS, &headers, &said, &secrets);
        assert_eq!(failure.retry_after, Some(Duration::from_secs(7)));
        assert!(failure.message.contains("bad key [hidden]"), "{failure}");
        let (now, later) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:46 GMT");
        assert_eq!(wait_of(later, Some(now)), Some(Duration::from_secs(9)));
        assert_eq!(wait_of(now, Some(later)), Some(Duration::ZERO));
        assert_eq!(wait_of("soon", Some(now)), None);
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
        let failure = refused(StatusCode::TOO_MANY_REQUESTS, &headers, &said, &secrets);
        assert_eq!(failure.class, FailureClass::RateLimit, "another may stand in");
        assert_eq!(failure.retry_after, Some(Duration::MAX), "and it is not asked again");
    }

    #[test]
    fn a_base_address_is_checked() {
        assert_eq!(parse_base("http://127.0.0.1:1/v1").unwrap().as_str(), "http://127.0.0.1:1/v1/");
        for wrong in ["x", "file:///etc", "http://user:key@host/v1", "https://host/?a=b"] {
            assert!(parse_base(wrong).is_err(), "{wrong}");
        }
    }
}
