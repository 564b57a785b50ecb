//! A stream of server-sent events.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| drop(substrat_fuzz::events(bytes)));
