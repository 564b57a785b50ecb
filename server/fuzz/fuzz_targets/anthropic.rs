//! An answer of Anthropic's Messages API, as a stream.
#![no_main]

use libfuzzer_sys::fuzz_target;
use substrat_server::provider::api::anthropic::Folding;

fuzz_target!(|bytes: &[u8]| substrat_fuzz::answer(bytes, Box::new(Folding::default())));
