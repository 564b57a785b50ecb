//! What a client of the proxy asks for: the head of its one request.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::{Endpoint, EndpointError};

/// Longest head of a request, in bytes.
pub(super) const MAX_HEAD: usize = 64 << 10;
/// Most fields of a head.
const MAX_FIELDS: usize = 128;
/// How long a client may take to send its head.
pub(super) const HEAD_TIME: Duration = Duration::from_secs(10);

/// Fields that are for the proxy, or for this connection only (RFC 9110, 7.6.1).
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "keep-alive",
    "te",
    "upgrade",
    // Written anew from the target.
    "host",
];

/// A request that the proxy can serve, if its target is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) target: Endpoint,
    pub(super) way: Way,
}

/// How a request is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// What follows is passed on in both directions.
    Tunnel,
    /// The head is sent in place of the one that came, then the body.
    Forward { head: Vec<u8>, body: Body },
}

/// What follows the head of a forwarded request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    /// So many bytes.
    Length(u64),
    /// Chunks; where they end is for the endpoint to see.
    Chunked,
}

/// Why a head is no request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// The client left before its head was whole.
    #[error("the connection ended within the head of the request")]
    Ended,
    /// The head did not come in time.
    #[error("the head of the request did not come within 10 seconds")]
    Slow,
    /// The head is too long.
    #[error("the head of the request is longer than 64 KiB or has more than 128 fields")]
    TooLarge,
    /// It is no HTTP.
    #[error("this is an HTTP proxy, and the request is no HTTP/1 request: {0}")]
    NotHttp(String),
    /// It is HTTP, but nothing that a proxy can serve.
    #[error("{0}")]
    Unfit(&'static str),
    /// It names no endpoint.
    #[error("the target of the request is no endpoint: {0}")]
    Target(#[from] EndpointError),
}

/// Reads the head of a request, and returns it with what came after it.
pub(super) async fn read(
    client: &mut (impl AsyncRead + Unpin),
) -> Result<(Request, Vec<u8>), Fault> {
    match tokio::time::timeout(HEAD_TIME, read_whole(client)).await {
        Err(_) => Err(Fault::Slow),
        Ok(whole) => {
            let (mut bytes, end) = whole?;
            let rest = bytes.split_off(end);
            Ok((parse(&bytes)?, rest))
        }
    }
}

/// Reads on until there is an empty line, and returns where the head ends.
async fn read_whole(client: &mut (impl AsyncRead + Unpin)) -> Result<(Vec<u8>, usize), Fault> {
    let mut bytes = Vec::with_capacity(4096);
    let mut seen = 0;
    loop {
        let room = (MAX_HEAD - bytes.len()) as u64;
        if room == 0 {
            return Err(Fault::TooLarge);
        }
        match (&mut *client).take(room).read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return Err(Fault::Ended),
            Ok(_) => {}
        }
        // Such as the hello of TLS: there is no line to wait for.
        if !bytes[0].is_ascii_alphabetic() {
            return Err(Fault::NotHttp("it starts with no letter".to_owned()));
        }
        if let Some(end) = end_of_head(&bytes, seen) {
            return Ok((bytes, end));
        }
        seen = bytes.len();
    }
}

/// Where the first empty line ends, when it does not end within the first `seen` bytes.
fn end_of_head(bytes: &[u8], seen: usize) -> Option<usize> {
    let from = seen.saturating_sub(2);
    let breaks = (from..bytes.len()).filter(|at| bytes[*at] == b'\n');
    breaks.map(|at| at + 1).find_map(|next| match &bytes[next..] {
        [b'\n', ..] => Some(next + 1),
        [b'\r', b'\n', ..] => Some(next + 2),
        _ => None,
    })
}

fn parse(head: &[u8]) -> Result<Request, Fault> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        Ok(httparse::Status::Complete(end)) if end == head.len() => {}
        Ok(_) => return Err(Fault::NotHttp("its head has no end".to_owned())),
        Err(httparse::Error::TooManyHeaders) => return Err(Fault::TooLarge),
        Err(error) => return Err(Fault::NotHttp(error.to_string())),
    }
    let (Some(method), Some(path), Some(minor)) = (request.method, request.path, request.version)
    else {
        return Err(Fault::NotHttp("its first line is not whole".to_owned()));
    };
    let body = body(request.headers, minor)?;
    if method == "CONNECT" {
        if body != Body::Length(0) {
            return Err(Fault::Unfit("a CONNECT request has no body"));
        }
        return Ok(Request { target: Endpoint::of_request(path, None)?, way: Way::Tunnel });
    }
    let (target, path) = absolute(method, path)?;
    let head = rewrite(method, &path, minor, &target, request.headers)?;
    Ok(Request { target, way: Way::Forward { head, body } })
}

/// How long the body is. What could be read in two ways is refused.
fn body(fields: &[httparse::Header<'_>], minor: u8) -> Result<Body, Fault> {
    let named = |name: &'static str| {
        let found = fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        found.map(|field| field.value).collect::<Vec<_>>()
    };
    match (named("content-length").as_slice(), named("transfer-encoding").as_slice()) {
        ([], []) => Ok(Body::Length(0)),
        ([], [coding]) if minor == 1 && coding.eq_ignore_ascii_case(b"chunked") => {
            Ok(Body::Chunked)
        }
        ([], _) => Err(Fault::Unfit("Transfer-Encoding other than one \"chunked\" in HTTP/1.1")),
        ([length], []) => {
            let digits = length.iter().all(u8::is_ascii_digit);
            let length = std::str::from_utf8(length).ok().filter(|_| digits);
            let length = length.and_then(|length| length.parse().ok());
            length.map(Body::Length).ok_or(Fault::Unfit("Content-Length is no number of bytes"))
        }
        (_, []) => Err(Fault::Unfit("more than one Content-Length")),
        _ => Err(Fault::Unfit("both Content-Length and Transfer-Encoding")),
    }
}

/// Divides an absolute target into the endpoint and what is asked of it.
fn absolute(method: &str, target: &str) -> Result<(Endpoint, String), Fault> {
    let scheme = target.split_once("://").map(|(scheme, rest)| (scheme.to_ascii_lowercase(), rest));
    let rest = match scheme {
        Some((scheme, rest)) if scheme == "http" => rest,
        Some((scheme, _)) if scheme == "https" => {
            return Err(Fault::Unfit("an https address is reached with CONNECT"));
        }
        _ => {
            let what = "this is a proxy: the target of a request is an absolute http address";
            return Err(Fault::Unfit(what));
        }
    };
    if rest.contains('#') {
        return Err(Fault::Unfit("the target of the request holds a fragment"));
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let path = match path {
        "" if method == "OPTIONS" => "*".to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        path => format!("/{path}"),
    };
    Ok((Endpoint::of_request(authority, Some(80))?, path))
}

/// The head that the endpoint gets.
fn rewrite(
    method: &str,
    path: &str,
    minor: u8,
    target: &Endpoint,
    fields: &[httparse::Header<'_>],
) -> Result<Vec<u8>, Fault> {
    let connection = fields.iter().filter(|field| field.name.eq_ignore_ascii_case("connection"));
    let dropped: Vec<String> = connection
        .flat_map(|field| field.value.split(|byte| *byte == b','))
        .map(|name| String::from_utf8_lossy(name.trim_ascii()).to_ascii_lowercase())
        .collect();
    let framing = ["content-length", "transfer-encoding", "host"];
    if dropped.iter().any(|name| framing.contains(&name.as_str())) {
        return Err(Fault::Unfit("Connection names a field that must be passed on"));
    }
    let mut head = format!("{method} {path} HTTP/1.{minor}\r\nHost: {}\r\n", host_field(target));
    head.push_str("Connection: close\r\n");
    let mut head = head.into_bytes();
    for field in fields {
        let name = field.name.to_ascii_lowercase();
        if HOP_BY_HOP.contains(&name.as_str()) || dropped.contains(&name) {
            continue;
        }
        for part in [field.name.as_bytes(), b": ", field.value, b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    head.extend_from_slice(b"\r\n");
    Ok(head)
}

fn host_field(target: &Endpoint) -> String {
    let text = target.to_string();
    match text.strip_suffix(":80") {
        Some(host) if target.port == 80 => host.to_owned(),
        _ => text,
    }
}
