//! Agents that speak the Agent Client Protocol.

pub mod protocol;
mod reading;
pub mod requests;
#[cfg(test)]
pub(super) mod tests;
mod tools;
