//! Files of workspaces: what an agent's file tools may reach, and nothing else.
//!
//! Every path is resolved beneath an open folder, component by component: `..`, absolute paths and
//! symbolic links that lead out are refused by the resolution itself, and where a link leads to
//! what is mounted, that is found and not what it hides. So there is no gap between check and use.

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
mod resolve;
mod room;
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
pub use room::{Counted, NoRoom, Room, Taken, Want};
pub use settings::{SandboxPolicy, SandboxReport, SandboxSettings};
pub use worktrees::{GitInside, HalfRemoved, Made};
