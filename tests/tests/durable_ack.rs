//! No acknowledgement before its journal write is durable, seen from outside with strace.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::collections::BTreeMap;

use substrat_proto::v1;
use substrat_tests::harness::Daemon;

const REQUESTS: usize = 50;

/// A system call that returned, in the order of the trace.
struct Call {
    name: String,
    /// The path or the socket behind its first argument.
    target: String,
    /// What was read or written.
    bytes: Vec<u8>,
    /// Lines of the trace at which it began and returned.
    began: usize,
    returned: usize,
}

/// Reads a trace of `strace -f -y -xx`, where calls of several threads overlap.
fn read_trace(trace: &str) -> Vec<Call> {
    let mut open: BTreeMap<&str, (usize, String)> = BTreeMap::new();
    let mut calls = Vec::new();
    for (number, line) in trace.lines().enumerate() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some(begun) = rest.strip_suffix(" <unfinished ...>") {
            open.insert(thread, (number, begun.to_owned()));
        } else if let Some(resumed) = rest.strip_prefix("<... ") {
            let Some((began, begun)) = open.remove(thread) else { continue };
            let end = resumed.split_once("resumed>").map_or("", |(_, end)| end);
            calls.extend(call(&format!("{begun}{end}"), began, number));
        } else {
            calls.extend(call(rest, number, number));
        }
    }
    // What never returned began, too: a write may be seen by its reader before it returns.
    calls.extend(open.values().filter_map(|(began, begun)| call(begun, *began, usize::MAX)));
    calls.sort_by_key(|call| call.began);
    calls
}

fn call(text: &str, began: usize, returned: usize) -> Option<Call> {
    let (name, args) = text.split_once('(')?;
    let target = args.split_once('<')?.1.split_once('>')?.0;
    let target = match target.starts_with("\\x") {
        true => String::from_utf8(unescaped(target)).ok()?,
        false => target.to_owned(),
    };
    Some(Call { name: name.to_owned(), target, bytes: quoted(args), began, returned })
}

/// The bytes in the quoted strings of a call, as `\x` escapes.
fn quoted(args: &str) -> Vec<u8> {
    args.split('"').skip(1).step_by(2).flat_map(unescaped).collect()
}

fn unescaped(text: &str) -> Vec<u8> {
    let escapes = text.split("\\x").skip(1);
    escapes.map(|hex| u8::from_str_radix(hex, 16).expect("two hex digits")).collect()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Whether HTTP/2 frames carry the headers or the data of a response.
fn responds(mut frames: &[u8]) -> bool {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = frames {
        if [DATA, HEADERS].contains(kind) {
            return true;
        }
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        frames = rest.get(length..).unwrap_or(&[]);
    }
    false
}

/// The line at which the fdatasync returned that made a text durable: the first that began after
/// the text was written to the journal.
fn durable_at(calls: &[Call], text: &str) -> usize {
    let is_journal = |call: &&Call| call.target.contains("/journal/");
    let written = calls
        .iter()
        .filter(is_journal)
        .find(|call| call.name.starts_with("pwrite") && contains(&call.bytes, text))
        .unwrap_or_else(|| panic!("{text:?} was not written to the journal"));
    let synced = calls
        .iter()
        .filter(|call| call.target == written.target && call.name == "fdatasync")
        .find(|call| call.began > written.returned)
        .unwrap_or_else(|| panic!("{text:?} was not synced"));
    synced.returned
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_leaves_before_the_sync_that_covers_it() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let names = "trace=pwrite64,pwritev,pwritev2,fdatasync,write,writev,sendto,sendmsg";
    let output = trace.to_str().unwrap();
    let strace = ["strace", "-f", "-y", "-xx", "-s", "65536", "-e", names, "-o", output];
    // Without a sandbox no process of one is traced beside the daemon.
    let mut daemon = Daemon::under(&strace, &folder.path().join("home"), &["sandbox.policy=off"])
        .expect("the daemon starts under strace, which must be installed and allowed to trace");
    let client = daemon.client().await;
    client.create("echo", "fn turn(prompt) { `re-${prompt}` }").await;
    let mut wanted = Vec::new();
    for number in 0..REQUESTS {
        // A mutation is durable with its request id, an answer with its turn.
        let request_id = format!("request-{number:04}");
        let request = v1::UpdateAgentRequest {
            agent: "echo".into(),
            metadata: [("number".to_owned(), number.to_string())].into(),
            request_id: request_id.clone(),
            ..Default::default()
        };
        client.agents.clone().update_agent(request).await.unwrap();
        wanted.push(request_id);
        let text = format!("text-{number:04}");
        let answer = client.ask("echo", &text).await.unwrap();
        assert_eq!(answer, format!("re-{text}"));
        wanted.push(format!(r#""response":"{answer}""#));
    }
    assert!(daemon.stop());
    let trace = std::fs::read_to_string(trace).unwrap();
    assert_eq!(early_answer(&read_trace(&trace), &wanted), None);
}

/// The first text that was answered before it was durable. The texts were asked for one at a
/// time, so the first response after a text was written is the earliest that can tell of it.
fn early_answer<'a>(calls: &[Call], wanted: &'a [String]) -> Option<&'a str> {
    let responses: Vec<usize> = calls
        .iter()
        .filter(|call| call.target.starts_with("socket:") && responds(&call.bytes))
        .map(|call| call.began)
        .collect();
    let mut ends = wanted.iter().skip(1).map(|next| durable_at(calls, next));
    wanted.iter().map(String::as_str).find(|text| {
        let written = calls.iter().find(|call| contains(&call.bytes, text)).unwrap();
        let (durable, end) = (durable_at(calls, text), ends.next().unwrap_or(usize::MAX));
        let told = responses.iter().find(|at| (written.began..end).contains(at));
        *told.unwrap_or_else(|| panic!("{text:?} was not answered")) < durable
    })
}

#[test]
fn an_answer_before_its_sync_is_seen() {
    let hex = |text: &str| text.bytes().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
    let file = hex("/home/journal/00000001.wal");
    let headers = hex("\0\0\u{1}\u{1}\u{4}\0\0\0\u{1}x");
    let write = format!("11 pwrite64(9<{file}>, \"{}\", 4, 0) = 4", hex("text"));
    let begun = format!("11 fdatasync(9<{file}> <unfinished ...>");
    let synced = "11 <... fdatasync resumed>) = 0";
    let answer =
        format!("12 writev(7<socket:[5]>, [{{iov_base=\"{headers}\", iov_len=10}}], 1) = 10");
    let early = |lines: [&str; 4]| {
        let wanted = ["text".to_owned()];
        early_answer(&read_trace(&lines.join("\n")), &wanted).is_some()
    };
    assert!(!early([&write, &begun, synced, &answer]));
    assert!(early([&write, &begun, &answer, synced]));
    assert!(early([&write, &answer, &begun, synced]));
}
