//! cursor-agent, the CLI.

mod cli;
mod models;
pub mod protocol;
#[cfg(test)]
pub(super) mod tests;

pub use self::cli::KIND;
