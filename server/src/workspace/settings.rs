//! Settings of the sandbox.

use std::path::PathBuf;

use crate::model::Limits;

/// Whether processes of agents run in a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sandboxing {
    /// Always; without one no process is started.
    #[default]
    Required,
    /// Where it can be had.
    Preferred,
    /// Never.
    Off,
}

/// Settings of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSettings {
    /// Whether there is to be one.
    pub policy: Sandboxing,
    /// Folders and files of the host that are seen at their own path, read-only, beside the usual.
    pub system_paths: Vec<PathBuf>,
    /// Bytes that `/tmp`, and the private home, may each hold.
    pub tmp_bytes: u64,
    /// Limits of workspaces that name none.
    pub limits: Limits,
}
