//! What tests and benchmarks share: the real binaries in homes of their own, and the simulated
//! world.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

pub mod agents;
pub mod harness;
pub mod hostile;
pub mod judge;
pub mod launch;
pub mod mail;
pub mod mcp;
pub mod model_server;
pub mod probe;
pub mod program;
pub mod remember;
pub mod repo;
pub mod team;
pub mod typing;
pub mod watch;
pub mod world;
