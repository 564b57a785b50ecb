//! cursor-agent, the CLI.

mod cli;
pub mod protocol;
#[cfg(test)]
pub(super) mod tests;

pub use self::cli::KIND;
