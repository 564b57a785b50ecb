//! How processes of agents are to be kept inside their workspaces, and whether they are.

use crate::model::Limits;

/// What is done where processes cannot be kept in a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SandboxPolicy {
    /// They are not started.
    #[default]
    Required,
    /// They are started without, and every turn says so.
    Preferred,
    /// There is no sandbox, and every turn says so.
    Off,
}

/// What the configuration says of sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxSettings {
    /// What is done where there can be none.
    pub policy: SandboxPolicy,
    /// Limits where a workspace names none.
    pub limits: Limits,
    /// Bytes that the private `/tmp` may hold.
    pub tmp_bytes: u64,
    /// Further host folders that every process may read, absolute paths.
    pub system_paths: Vec<String>,
}

/// Whether processes of agents are kept inside their workspaces, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxReport {
    /// What the configuration asks for.
    pub policy: SandboxPolicy,
    /// Whether they are started in a sandbox.
    pub in_force: bool,
    /// Why they are not; empty if they are.
    pub reason: String,
    /// Whether that may pass by itself: no process is started meanwhile, whatever the policy.
    pub may_pass: bool,
    /// Version of bubblewrap; empty where it was not found or not looked for.
    pub bubblewrap: String,
    /// How limits are enforced, in words.
    pub limits: String,
}
