//! cursor-agent, the CLI.

pub mod protocol;
#[cfg(test)]
pub(super) mod tests;
