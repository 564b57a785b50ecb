//! The core on its own: scenarios, and a state machine of random commands.

mod machine;
mod scenarios;
mod world;
