//! A model behind HTTP on loopback, for command-line agents and providers under test.
//!
//! It speaks Anthropic Messages (`/v1/messages`), OpenAI chat completions
//! (`/v1/chat/completions`) and Responses (`/v1/responses`), and Gemini
//! (`/v1beta/models/M:streamGenerateContent`), each streamed or as one JSON body, and lists its
//! one model, [`MODEL`]. Every answer costs [`Usage`]. Requests that break the order of tool calls
//! and their results are refused as the real services refuse them.
//!
//! What it answers is queued by the test with [`ModelServer::next`], or else written in the last
//! text of the user, so that a test can drive it through a real agent. Commands start a line, or
//! follow `": "`:
//!
//! | command | answer |
//! |---|---|
//! | `SAY text` | the text, word by word; `{result}` stands for the last tool's result |
//! | `COUNT 50` | fifty short deltas: `1 `, `2 `, … |
//! | `THINK text` | thinking, where the API has it |
//! | `RECALL` | every earlier text of the user that is in the request |
//! | `TOOLS` | the names of the tools that are offered |
//! | `CALL name {json}` | a call of the offered tool whose name ends so, such as `substrat_send_message` |
//! | `ALSO name {json}` | one more call in the same answer |
//! | `SLOW 3s` | the next text takes so long (or `500ms`) |
//! | `HOLD name` | nothing more until the test calls [`ModelServer::release`] |
//! | `STALL` | silence from here on, with the connection open |
//! | `HANG` | silence from the start, not even a status |
//! | `CUT` | the connection breaks |
//! | `MIDSTREAM overloaded` | an error of that kind inside of the stream |
//! | `STATUS 429 retry-after 1` | a refusal in the API's own shape; `retry-after` may be left out |
//! | `OVERFLOW` | the refusal of a conversation that is too long |
//!
//! They are obeyed in their order. What follows a `CALL` waits for its result, so each `CALL` is
//! an answer of its own; after the last one, the model says the result unless it was told what to
//! say. A command that ends in `once` is left out when the same text comes again in the same API, as
//! in `STATUS 529 once` and then `SAY I recovered`. A text without commands is repeated.
//!
//! An agent's own requests, such as for a title, are answered with [`TITLE`] and take nothing from
//! the queue. Texts that an agent adds to the user's, such as `<system-reminder>`, do not count.

mod anthropic;
mod chat;
mod conversation;
mod gemini;
mod render;
mod requests;
mod responses;
mod rules;
mod script;
mod serve;

pub use conversation::Api;
pub use requests::{End, Request};
pub use script::Behaviour;
pub use serve::ModelServer;

/// The model's name; any other is accepted too.
pub const MODEL: &str = "fake-1";

/// What it answers to a request for a title.
pub const TITLE: &str = "A title";

/// Tokens of every answer. Anthropic's input leaves out what was cached; the others' includes it.
#[derive(Debug)]
pub struct Usage;

impl Usage {
    pub const INPUT: u64 = 11;
    pub const CACHE_READ: u64 = 5;
    pub const CACHE_WRITE: u64 = 3;
    pub const OUTPUT: u64 = 17;
}
