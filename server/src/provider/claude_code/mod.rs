//! Claude Code, the CLI.

mod cli;
pub mod protocol;
pub mod requests;
#[cfg(test)]
pub(super) mod tests;
mod usage;

pub use self::cli::KIND;
