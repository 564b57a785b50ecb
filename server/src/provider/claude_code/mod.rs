//! Claude Code, the CLI.

pub mod protocol;
pub mod requests;
#[cfg(test)]
pub(super) mod tests;
mod usage;
