//! The Substrat daemon as a library: see `docs/ARCHITECTURE.md` for the rooms and their borders.

/// Version of the daemon.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

pub mod daemon;
pub mod engine;
pub mod import;
pub mod journal;
pub mod launcher;
mod memory;
pub mod model;
pub mod projection;
pub mod provider;
pub mod recovery;
pub mod service;
pub mod workspace;
