//! The proxy between raw clients and servers of this test.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use futures_util::FutureExt;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::head::{Fault, MAX_HEAD, Request, Way, read};
use super::*;

/// A proxy, and what it refused.
struct World {
    egress: Option<Egress>,
    address: SocketAddr,
    refusals: mpsc::UnboundedReceiver<String>,
}

impl World {
    /// A proxy with a list, for which each name resolves to an address.
    fn new(allowed: &[String], names: &[(&str, &str)], is_public: fn(IpAddr) -> bool) -> Self {
        let names: BTreeMap<String, IpAddr> = names
            .iter()
            .map(|(name, address)| ((*name).to_owned(), address.parse().unwrap()))
            .collect();
        let resolve: Resolve = Box::new(move |name, port| {
            let found = names.get(&name).map(|address| vec![SocketAddr::new(*address, port)]);
            let found = found.ok_or_else(|| io::Error::other("no such name"));
            std::future::ready(found).boxed()
        });
        Self::with(allowed, resolve, is_public)
    }

    fn with(allowed: &[String], resolve: Resolve, is_public: fn(IpAddr) -> bool) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, refusals) = mpsc::unbounded_channel();
        let shared = Shared {
            allowed: allowed.iter().map(|text| text.parse().unwrap()).collect(),
            resolve,
            is_public,
            on_refused: Box::new(move |refusal| tell.send(refusal.to_string()).unwrap()),
            told: Mutex::default(),
        };
        let egress = Egress::start(listener, shared).unwrap();
        Self { egress: Some(egress), address, refusals }
    }

    /// A proxy that leads to a server of the test alone, by its address.
    async fn to_server() -> (Self, TcpListener, SocketAddr) {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        (Self::new(&[format!("http://{address}")], &[], address::is_public), server, address)
    }

    async fn send(&self, bytes: impl AsRef<[u8]>) -> TcpStream {
        let mut client = TcpStream::connect(self.address).await.unwrap();
        client.write_all(bytes.as_ref()).await.unwrap();
        client
    }

    /// What the proxy answers to a client that says this and waits.
    async fn answer(&self, bytes: impl AsRef<[u8]>) -> String {
        all(&mut self.send(bytes).await).await
    }
}

async fn all(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

async fn expect(stream: &mut TcpStream, text: &str) {
    let mut read = vec![0; text.len()];
    stream.read_exact(&mut read).await.unwrap();
    assert_eq!(String::from_utf8(read).unwrap(), text);
}

#[tokio::test]
async fn a_tunnel_passes_both_directions_and_ends_them_one_by_one() {
    let (world, server, at) = World::to_server().await;
    // What came with the head is passed on too.
    let mut client = world.send(format!("CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\nfirst ")).await;
    let (mut upstream, _) = server.accept().await.unwrap();
    expect(&mut client, ESTABLISHED).await;
    expect(&mut upstream, "first ").await;
    upstream.write_all(b"early ").await.unwrap();
    expect(&mut client, "early ").await;
    client.write_all(b"last").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(all(&mut upstream).await, "last");
    upstream.write_all(b"late").await.unwrap();
    drop(upstream);
    assert_eq!(all(&mut client).await, "late");
}

#[tokio::test]
async fn a_server_that_ends_first_still_hears_its_client() {
    let (world, server, at) = World::to_server().await;
    let mut client = world.send(format!("CONNECT {at} HTTP/1.1\r\n\r\n")).await;
    let (mut upstream, _) = server.accept().await.unwrap();
    upstream.shutdown().await.unwrap();
    assert_eq!(all(&mut client).await, ESTABLISHED);
    client.write_all(b"still here").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(all(&mut upstream).await, "still here");
}

#[tokio::test]
async fn an_absolute_request_is_forwarded_alone_and_in_the_form_of_its_server() {
    let (world, server, at) = World::to_server().await;
    let request = format!(
        "POST HTTP://{at}/v1?a=b HTTP/1.1\r\nHost: elsewhere.example\r\nhost: twice\r\n\
         Connection: keep-alive, X-Mine\r\nX-Mine: 1\r\nProxy-Authorization: secret\r\n\
         Content-Length: 4\r\nAccept: */*\r\n\r\nbodyGET http://{at}/smuggled HTTP/1.1\r\n\r\n"
    );
    let mut client = world.send(request).await;
    let (mut upstream, _) = server.accept().await.unwrap();
    let forwarded = format!(
        "POST /v1?a=b HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\
         Content-Length: 4\r\nAccept: */*\r\n\r\nbody"
    );
    expect(&mut upstream, &forwarded).await;
    client.shutdown().await.unwrap();
    assert_eq!(all(&mut upstream).await, "", "what follows the body goes nowhere");
    upstream.write_all(b"HTTP/1.1 200 OK\r\n\r\nanswer").await.unwrap();
    drop(upstream);
    assert_eq!(all(&mut client).await, "HTTP/1.1 200 OK\r\n\r\nanswer");
}

#[tokio::test]
async fn chunks_are_passed_on_as_they_are() {
    let (world, server, at) = World::to_server().await;
    let head = format!("PUT http://{at} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut client = world.send(head + "4\r\nbody\r\n0\r\n\r\n").await;
    let (mut upstream, _) = server.accept().await.unwrap();
    let head = format!("PUT / HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n");
    expect(&mut upstream, &(head + "Transfer-Encoding: chunked\r\n\r\n")).await;
    expect(&mut upstream, "4\r\nbody\r\n0\r\n\r\n").await;
    upstream.write_all(b"answer").await.unwrap();
    drop(upstream);
    assert_eq!(all(&mut client).await, "answer");
}

#[tokio::test]
async fn an_answer_that_breaks_off_does_not_look_whole() {
    let (world, server, at) = World::to_server().await;
    let mut client = world.send(format!("GET http://{at}/ HTTP/1.1\r\n\r\n")).await;
    let (mut upstream, _) = server.accept().await.unwrap();
    upstream.write_all(b"half").await.unwrap();
    expect(&mut client, "half").await;
    upstream.set_zero_linger().unwrap();
    drop(upstream);
    let error = client.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn what_is_not_on_the_list_is_refused_and_told_once() {
    let (mut world, server, at) = World::to_server().await;
    let other = format!("127.0.0.1:{}", at.port() ^ 1);
    for request in [
        "CONNECT evil.example:443 HTTP/1.1\r\n\r\n".to_owned(),
        "CONNECT EVIL.example.:443 HTTP/1.1\r\n\r\n".to_owned(),
        format!("CONNECT localhost:{} HTTP/1.1\r\n\r\n", at.port()),
        format!("CONNECT {other} HTTP/1.1\r\n\r\n"),
        format!("GET http://{other}/ HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("GET http://127.0.0.1/ HTTP/1.1\r\nHost: {at}\r\n\r\n"),
    ] {
        let answer = world.answer(&request).await;
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{request}: {answer}");
        assert!(answer.contains("sandbox.endpoints = [\""), "{answer}");
    }
    world.egress.take().unwrap().close().await;
    let mut told = Vec::new();
    while let Some(refusal) = world.refusals.recv().await {
        told.push(refusal.split(' ').next().unwrap().to_owned());
    }
    let localhost = format!("localhost:{}", at.port());
    assert_eq!(told, ["evil.example:443", &localhost, &other, "127.0.0.1:80"]);
    assert!(server.accept().now_or_never().is_none(), "nobody came");
}

#[tokio::test]
async fn refusals_without_end_are_told_up_to_a_bound() {
    let mut world = World::new(&[], &[], address::is_public);
    for port in 1..=MAX_TOLD + 10 {
        world.answer(format!("CONNECT x.example:{port} HTTP/1.1\r\n\r\n")).await;
    }
    world.egress.take().unwrap().close().await;
    let mut told = 0;
    while world.refusals.recv().await.is_some() {
        told += 1;
    }
    assert_eq!(told, MAX_TOLD);
}

#[tokio::test]
async fn a_name_leads_to_no_address_around_the_host() {
    let allowed = ["https://*.example.com".to_owned(), "http://localhost:9".to_owned()];
    let names = [("a.example.com", "127.0.0.1"), ("b.example.com", "169.254.169.254")];
    let mut world = World::new(&allowed, &names, address::is_public);
    for (name, address) in names {
        let answer = world.answer(format!("CONNECT {name}:443 HTTP/1.1\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert!(answer.contains(&format!("resolves to {address}")), "{answer}");
        assert!(world.refusals.recv().await.unwrap().contains(name));
    }
    let answer = world.answer("CONNECT c.example.com:443 HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("no such name"), "{answer}");
}

#[tokio::test]
async fn a_name_is_looked_up_by_the_proxy_and_localhost_never() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    let allowed = [format!("https://api.example.com:{port}"), format!("localhost:{port}")];
    // For this proxy the whole world is public.
    let world = World::new(&allowed, &[("api.example.com", "127.0.0.1")], |_| true);
    for name in ["api.example.com", "localhost"] {
        let mut client = world.send(format!("CONNECT {name}:{port} HTTP/1.1\r\n\r\n")).await;
        let (mut upstream, _) = server.accept().await.unwrap();
        upstream.write_all(name.as_bytes()).await.unwrap();
        expect(&mut client, &format!("{ESTABLISHED}{name}")).await;
    }
}

#[tokio::test]
async fn an_endpoint_that_does_not_listen_is_unreachable() {
    let (world, server, at) = World::to_server().await;
    drop(server);
    let answer = world.answer(format!("CONNECT {at} HTTP/1.1\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("cannot be reached"), "{answer}");
}

#[tokio::test]
async fn what_can_be_read_in_two_ways_is_refused() {
    let (world, server, at) = World::to_server().await;
    let get = |rest: &str| format!("GET http://{at}/ HTTP/1.1\r\n{rest}\r\n\r\n");
    for request in [
        get("Content-Length: 1\r\nTransfer-Encoding: chunked"),
        get("Content-Length: 1\r\ncontent-length: 1"),
        get("Content-Length: 1, 1"),
        get("Content-Length: +1"),
        get("Content-Length: "),
        get("Content-Length: 99999999999999999999"),
        get("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        get("Transfer-Encoding: gzip, chunked"),
        get("Transfer-Encoding : chunked"),
        get("Connection: content-length\r\nContent-Length: 4"),
        get("A: b\r\n folded: c"),
        get("A: b\rc"),
        get("A: b\0c"),
        format!("GET http://{at}/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        format!("GET http://{at}/ HTTP/2.0\r\n\r\n"),
        format!("GET http://{at}/#fragment HTTP/1.1\r\n\r\n"),
        format!("GET http://user@{at}/ HTTP/1.1\r\n\r\n"),
        format!("GET https://{at}/ HTTP/1.1\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("GET {at} HTTP/1.1\r\n\r\n"),
        format!("CONNECT http://{at}/ HTTP/1.1\r\n\r\n"),
        format!("CONNECT {at} HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody"),
        format!("CONNECT {} HTTP/1.1\r\n\r\n", at.ip()),
        "GET  HTTP/1.1\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1} hello of TLS".to_owned(),
        "\r\n\r\n".to_owned(),
        "\n".to_owned(),
        "x\n\n".to_owned(),
    ] {
        let answer = world.answer(&request).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{request:?}: {answer}");
    }
    assert!(server.accept().now_or_never().is_none(), "nobody came");
}

#[tokio::test]
async fn a_head_without_end_is_refused_at_its_bound() {
    let (world, _server, at) = World::to_server().await;
    let start = format!("GET http://{at}/ HTTP/1.1\r\nA: ");
    let long = format!("{start}{}", "a".repeat(4 * MAX_HEAD));
    let many = format!("{start}{}\r\n\r\n", "\r\nB: b".repeat(200));
    for head in [long, many] {
        let answer = world.answer(head).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_come_is_not_waited_for() {
    let (world, _server, at) = World::to_server().await;
    let started = tokio::time::Instant::now();
    let answer = world.answer(format!("GET http://{at}/ HT")).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(started.elapsed() >= head::HEAD_TIME);
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_whose_other_half_is_silent_ends_some_time() {
    let (world, server, at) = World::to_server().await;
    let mut client = world.send(format!("CONNECT {at} HTTP/1.1\r\n\r\n")).await;
    let (mut upstream, _) = server.accept().await.unwrap();
    expect(&mut client, ESTABLISHED).await;
    client.shutdown().await.unwrap();
    assert_eq!(all(&mut upstream).await, "");
    // The server never ends its half.
    let error = client.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_for_one_to_end() {
    let (arrive, mut arrived) = mpsc::unbounded_channel();
    let open = Arc::new(AtomicUsize::new(0));
    let gate = Arc::new(Semaphore::new(0));
    let resolve: Resolve = {
        let (open, gate) = (Arc::clone(&open), Arc::clone(&gate));
        Box::new(move |_, _| {
            arrive.send(open.fetch_add(1, SeqCst) + 1).unwrap();
            let (open, gate) = (Arc::clone(&open), Arc::clone(&gate));
            async move {
                gate.acquire().await.unwrap().forget();
                open.fetch_sub(1, SeqCst);
                Err(io::Error::other("no such name"))
            }
            .boxed()
        })
    };
    let world = World::with(&["a.example:1".to_owned()], resolve, address::is_public);
    let total = MAX_CONNECTIONS + 16;
    let mut clients = JoinSet::new();
    for _ in 0..total {
        let mut client = world.send("CONNECT a.example:1 HTTP/1.1\r\n\r\n").await;
        clients.spawn(async move { all(&mut client).await });
    }
    let mut most = 0;
    for served in 0..total {
        if served >= MAX_CONNECTIONS {
            gate.add_permits(1);
        }
        most = most.max(arrived.recv().await.unwrap());
    }
    assert_eq!(most, MAX_CONNECTIONS);
    gate.add_permits(total);
    let answers = clients.join_all().await;
    assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 502 ")));
}

#[tokio::test]
async fn dropping_the_proxy_closes_all() {
    let (mut world, server, at) = World::to_server().await;
    let mut tunnel = world.send(format!("CONNECT {at} HTTP/1.1\r\n\r\n")).await;
    let (mut upstream, _) = server.accept().await.unwrap();
    expect(&mut tunnel, ESTABLISHED).await;
    let mut waiting = world.send("GET ").await;
    drop(world.egress.take());
    for stream in [&mut tunnel, &mut upstream, &mut waiting] {
        // An end or a reset: both say that nobody is there.
        let left = stream.read(&mut [0; 8]).await;
        assert!(matches!(left, Ok(0) | Err(_)), "{left:?}");
    }
    let refused = TcpStream::connect(world.address).await.map(drop);
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
}

/// A head that has all there is in one.
const HEAD: &str = "POST http://api.example.com:8080/v1/x?y HTTP/1.1\r\nHost: other\r\n\
                    Proxy-Connection: keep-alive\r\nContent-Length: 12\r\nA:b\r\n\r\n";

/// What is made of bytes that come in pieces.
fn read_pieces(pieces: &[&[u8]]) -> Result<(Request, Vec<u8>), Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (mut client, mut proxy) = tokio::io::duplex(MAX_HEAD * 2);
        let pieces = async {
            for piece in pieces {
                client.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            client.shutdown().await.unwrap();
        };
        let (read, ()) = tokio::join!(read(&mut proxy), pieces);
        let (request, mut rest) = read?;
        proxy.read_to_end(&mut rest).await.unwrap();
        Ok((request, rest))
    })
}

#[test]
fn where_a_head_is_split_does_not_matter() {
    let bytes = [HEAD.as_bytes(), b"\n\nthe body\n\n"].concat();
    let whole = read_pieces(&[&bytes]).unwrap();
    assert_eq!(whole.0.target.to_string(), "api.example.com:8080");
    assert_eq!(whole.1, b"\n\nthe body\n\n");
    for at in 0..=bytes.len() {
        assert_eq!(read_pieces(&[&bytes[..at], &bytes[at..]]), Ok(whole.clone()), "at {at}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read_pieces(&single), Ok(whole));
    for at in 0..HEAD.len() {
        assert_eq!(read_pieces(&[&bytes[..at]]).unwrap_err(), Fault::Ended, "cut at {at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn garbage_is_refused_and_what_is_forwarded_is_one_plain_request(
        garbage in prop::collection::vec(any::<u8>(), 0..64),
        at in 0..HEAD.len(),
        cut in 0..8_usize,
    ) {
        let mut bytes = HEAD.as_bytes().to_vec();
        bytes.splice(at..(at + cut).min(HEAD.len()), garbage.iter().copied());
        bytes.extend_from_slice(b"\r\n\r\n");
        let _ = read_pieces(&[&garbage]);
        if let Ok((Request { target, way: Way::Forward { head, .. } }, _)) = read_pieces(&[&bytes]) {
            let mut fields = [httparse::EMPTY_HEADER; 130];
            let mut request = httparse::Request::new(&mut fields);
            let parsed = request.parse(&head).unwrap();
            prop_assert_eq!(parsed, httparse::Status::Complete(head.len()));
            let hosts: Vec<&[u8]> = request.headers.iter()
                .filter(|field| field.name.eq_ignore_ascii_case("host"))
                .map(|field| field.value)
                .collect();
            let host = target.to_string();
            prop_assert_eq!(hosts, [host.strip_suffix(":80").unwrap_or(&host).as_bytes()]);
            prop_assert!(request.path.unwrap().starts_with('/'));
        }
    }
}
