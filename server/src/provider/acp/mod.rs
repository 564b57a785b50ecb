//! Agents that speak the Agent Client Protocol.

mod cli;
mod models;
mod names;
pub mod protocol;
mod reading;
pub mod requests;
#[cfg(test)]
pub(super) mod tests;
mod tools;

pub use self::cli::KIND;
