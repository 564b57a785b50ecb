//! An answer of OpenAI's chat completions, as a stream.
#![no_main]

use libfuzzer_sys::fuzz_target;
use substrat_server::provider::api::openai::Folding;

fuzz_target!(|bytes: &[u8]| substrat_fuzz::answer(bytes, Box::new(Folding::default())));
