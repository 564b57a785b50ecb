//! A line of JSON-RPC.
#![no_main]

use libfuzzer_sys::fuzz_target;
use substrat_server::provider::jsonrpc::read;

fuzz_target!(|line: &str| {
    read(line);
});
