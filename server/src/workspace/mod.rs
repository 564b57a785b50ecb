//! Files of workspaces: what an agent's file tools may reach, and nothing else.
//!
//! Every path is resolved beneath an open folder (`openat2` with `RESOLVE_BENEATH` where the
//! kernel has it), component by component otherwise: `..`, absolute paths and symbolic links that
//! lead out are refused by the resolution itself, so there is no gap between check and use.

mod alone;
mod copies;
mod error;
mod files;
pub mod git;
mod git_file;
mod kernel;
mod look;
mod mounts;
mod places;
mod settings;
#[cfg(test)]
mod tests;
mod tools;
mod worktrees;

pub use error::Error;
pub use files::Files;
pub use kernel::unescape as unescape_mount;
pub use mounts::open_real_any;
pub use mounts::{Open, Unseen};
pub use settings::{SandboxPolicy, SandboxReport, SandboxSettings};
pub use worktrees::{GitInside, HalfRemoved, Made};
