//! Codex, the CLI, by its app-server or by `codex exec --json`.

pub mod app_server;
mod cli;
pub mod exec;
mod items;
mod models;
#[cfg(test)]
pub(super) mod tests;

pub use self::cli::KIND;
