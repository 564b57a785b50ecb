//! Claude Code, the CLI.

mod cli;
mod models;
pub mod protocol;
pub mod requests;
#[cfg(test)]
pub(super) mod tests;
mod usage;

pub use self::cli::KIND;
