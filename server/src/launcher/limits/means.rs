//! Who holds which limit of a launch.

use std::collections::BTreeSet;

use super::cgroup::{Cgroups, Version};
use super::{Controller, bytes};
use crate::model::Limits;

/// Whose processes `RLIMIT_NPROC` counts, which decides whether it is of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessCount {
    /// Those of the sandbox: it has a user namespace of its own, and the daemon's user is not
    /// root. Since Linux 5.14.
    Sandbox,
    /// All of the user, so that it would bind what is none of the agent's.
    User,
    /// Nobody's: root is not bound.
    Nobody,
}

/// What holds a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// The kernel, for all processes of the workspace.
    Cgroup(Version),
    /// The kernel, by a limit of the process of this name.
    Rlimit(&'static str),
    /// The kernel, by the processors that it may run on.
    Affinity,
    /// The daemon, which looks from time to time and ends what is too much.
    Watch,
}

/// What holds the limits of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Means {
    cgroups: Option<(Version, BTreeSet<Controller>)>,
    count: ProcessCount,
}

impl Means {
    /// What there is for a launch, in the cgroups if there are any.
    pub fn new(cgroups: &Cgroups, count: ProcessCount) -> Self {
        Self { cgroups: cgroups.controllers(), count }
    }

    #[cfg(test)]
    pub(super) fn of(
        cgroups: Option<(Version, BTreeSet<Controller>)>,
        count: ProcessCount,
    ) -> Self {
        Self { cgroups, count }
    }

    fn cgroup(&self, controller: Controller) -> Option<Holder> {
        let (version, controllers) = self.cgroups.as_ref()?;
        controllers.contains(&controller).then_some(Holder::Cgroup(*version))
    }

    /// Who holds memory.
    pub fn memory(&self) -> Holder {
        self.cgroup(Controller::Memory).unwrap_or(Holder::Watch)
    }

    /// Who holds the number of processes.
    pub fn processes(&self) -> Holder {
        self.cgroup(Controller::Pids).unwrap_or(match self.count {
            ProcessCount::Sandbox => Holder::Rlimit("RLIMIT_NPROC"),
            ProcessCount::User | ProcessCount::Nobody => Holder::Watch,
        })
    }

    /// Who holds processor time.
    pub fn cpu(&self) -> Holder {
        self.cgroup(Controller::Cpu).unwrap_or(Holder::Affinity)
    }
}

/// Each limit, and how it is held, a line each.
pub fn in_force(limits: &Limits, means: &Means) -> Vec<String> {
    let line = |name: &str, limit: Option<String>, how: String| match limit {
        Some(limit) => format!("{name} {limit} ({how})"),
        None => format!("{name} none"),
    };
    let held = |holder: Holder, watched: &str| match holder {
        Holder::Cgroup(version) => version.to_string(),
        Holder::Rlimit(name) => name.to_owned(),
        Holder::Affinity => "processor affinity".to_owned(),
        Holder::Watch => watched.to_owned(),
    };
    let cpu = limits.cpu_millis.map(|millis| match means.cpu() {
        Holder::Affinity => processors(u64::from(millis.div_ceil(1000).max(1)) * 1000),
        _ => processors(u64::from(millis)),
    });
    let rlimit = |name: &str| format!("{name}, each process");
    vec![
        line("memory", limits.memory.map(bytes), held(means.memory(), "watched every 100 ms")),
        line("cpu", cpu, held(means.cpu(), "")),
        line(
            "processes",
            limits.processes.map(|most| most.to_string()),
            held(means.processes(), "watched every 100 ms"),
        ),
        line("open files", limits.open_files.map(|most| most.to_string()), rlimit("RLIMIT_NOFILE")),
        line("file size", limits.file_size.map(bytes), rlimit("RLIMIT_FSIZE")),
        line("disk", limits.disk.map(bytes), "counted every second or less often".to_owned()),
    ]
}

fn processors(millis: u64) -> String {
    let (whole, rest) = (millis / 1000, millis % 1000);
    match (whole, rest) {
        (1, 0) => "1 processor".to_owned(),
        (_, 0) => format!("{whole} processors"),
        _ => format!("{whole}.{:03}", rest).trim_end_matches('0').to_owned() + " processors",
    }
}
