//! The output of cursor-agent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use substrat_server::provider::cursor_agent::protocol::Stream;

fuzz_target!(|bytes: &[u8]| {
    let mut stream = Stream::default();
    substrat_fuzz::lines(bytes, |line| drop(stream.read(line)));
    stream.end();
});
