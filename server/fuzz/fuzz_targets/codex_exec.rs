//! The output of `codex exec`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use substrat_server::provider::codex::exec::Stream;

fuzz_target!(|bytes: &[u8]| {
    let mut stream = Stream::default();
    substrat_fuzz::lines(bytes, |line| drop(stream.read(line)));
    stream.end();
});
