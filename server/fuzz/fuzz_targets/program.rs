//! The output of a program that is an agent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use substrat_server::provider::lines::{Broken, Lines};
use substrat_server::provider::program::protocol::parse;

/// What it says in pieces of a length, up to what is no message.
fn said(bytes: &[u8], length: usize) -> Vec<Result<String, String>> {
    let (mut lines, mut all) = (Lines::default(), Vec::new());
    let mut take = |line: Result<String, Broken>| {
        let line = line.map_err(|broken| broken.to_string());
        let said = line.and_then(|line| parse(&line)).map(|said| format!("{said:?}"));
        all.push(said);
        all.last().is_some_and(Result::is_ok)
    };
    for piece in bytes.chunks(length) {
        lines.push(piece);
        while let Some(line) = lines.next() {
            if !take(line) {
                return all;
            }
        }
    }
    if let Some(line) = lines.last() {
        take(line);
    }
    all
}

fuzz_target!(|bytes: &[u8]| {
    let Some((length, bytes)) = bytes.split_first() else { return };
    let whole = said(bytes, bytes.len().max(1));
    assert_eq!(said(bytes, usize::from(*length) + 1), whole);
    // Quotes are short and of one line, whatever they quote.
    if let Some(Err(error)) = whole.last() {
        assert!(error.len() < 800 && !error.contains('\n'), "{error}");
    }
});
