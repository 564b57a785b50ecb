//! What processes may take of the machine, and how they are held to it.
//!
//! The kernel does it where it lets the daemon: by cgroups ([`Cgroups`]), which bound all
//! processes of a workspace together, and by limits of single processes ([`Rlimits`]). What is
//! left is watched, and ended when it is too much ([`Wardens`]). [`Means`] says which of them
//! holds what, and is the only place that decides it. `docs/limits.md` is the page for users.

mod cgroup;
mod cgroup_v1;
mod cgroup_v2;
mod disk;
mod files;
mod machine;
mod means;
mod processes;
mod refusing;
mod rlimit;
mod room;
#[cfg(test)]
mod tests;
mod warden;

pub use cgroup::{Cgroups, Group, Swept, Tree, Version};
pub use means::{Holder, Means, ProcessCount, in_force};
pub use rlimit::{InvalidRlimits, Rlimits};
pub use room::Rooms;
pub use warden::{Space, Ward, Warden, Wardens};

use crate::model::{LimitKind, Limits};

/// A limit that was hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// Which.
    pub kind: LimitKind,
    /// Whether processes were ended for it; if not, they were refused something, or will be.
    pub ends: bool,
    /// What happened, for people to read.
    pub detail: String,
}

/// What bounds one resource of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// Memory.
    Memory,
    /// Processes and threads.
    Pids,
    /// Processor time.
    Cpu,
}

impl std::fmt::Display for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Controller {
    const ALL: [Self; 3] = [Self::Memory, Self::Pids, Self::Cpu];

    /// Its name in both versions.
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        }
    }
}

/// SIGKILL.
const KILL: i32 = 9;

/// SIGXFSZ.
const FILE_TOO_LARGE: i32 = 25;

/// Which limit ended a launch whose main process died of a signal, if one did. `hits` are those
/// that were told of the launch.
pub fn explain(signal: Option<i32>, hits: &[Hit], limits: &Limits) -> Option<Hit> {
    match signal? {
        FILE_TOO_LARGE => {
            // For lack of space, files may be less large than the workspace names.
            if let Some(hit) = hits.iter().find(|hit| hit.kind == LimitKind::Disk) {
                return Some(hit.clone());
            }
            let detail = match limits.file_size {
                Some(most) => format!("a file would have become larger than {}", bytes(most)),
                None => "a file would have become larger than the system allows".to_owned(),
            };
            Some(Hit { kind: LimitKind::FileSize, ends: true, detail })
        }
        // All others leave the process as it is, or let a call fail.
        KILL => hits.iter().find(|hit| hit.ends).cloned(),
        _ => None,
    }
}

/// A size as people write it: `4 GiB`, `1.5 MiB`, `1000 bytes`.
fn bytes(size: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let exponent = (size.max(1).ilog2() / 10) as usize;
    match exponent.checked_sub(1).and_then(|unit| units.get(unit)) {
        None => format!("{size} bytes"),
        Some(unit) => {
            let tenths = (u128::from(size) * 10) >> (10 * exponent);
            match (tenths / 10, tenths % 10) {
                (whole, 0) => format!("{whole} {unit}"),
                (whole, tenth) => format!("{whole}.{tenth} {unit}"),
            }
        }
    }
}
