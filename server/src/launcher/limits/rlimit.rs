//! Limits of single processes, and the processors that they may use. All that is started by a
//! process inherits them.
//!
//! They are made where the limits are known, and set by the first process of a launch, on itself,
//! before it runs the command. On the way they are a word: `core=0,nofile=1024,cpus=0+3`.

use std::fmt;
use std::io;
use std::str::FromStr;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::means::{Holder, Means};
use crate::model::Limits;

/// Limits that a process sets on itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rlimits {
    limits: Vec<(Name, u64)>,
    /// Processors that it may run on; all where this is empty.
    cpus: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Core,
    Nofile,
    Fsize,
    Nproc,
    Data,
}

impl Name {
    const ALL: [Self; 5] = [Self::Core, Self::Nofile, Self::Fsize, Self::Nproc, Self::Data];

    fn word(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Nofile => "nofile",
            Self::Fsize => "fsize",
            Self::Nproc => "nproc",
            Self::Data => "data",
        }
    }

    fn resource(self) -> Resource {
        match self {
            Self::Core => Resource::Core,
            Self::Nofile => Resource::Nofile,
            Self::Fsize => Resource::Fsize,
            Self::Nproc => Resource::Nproc,
            Self::Data => Resource::Data,
        }
    }
}

/// Text that is no limits of a process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no limits of a process: {0:?}")]
pub struct InvalidRlimits(String);

impl Rlimits {
    /// What is left for a process to set on itself. `available` are the processors that there
    /// are. Launches of the same `workspace` get the same ones, others mostly other ones.
    pub fn of(limits: &Limits, means: &Means, available: &[usize], workspace: u128) -> Self {
        // A core dump is a file of any size, written where the command says.
        let mut set = vec![(Name::Core, 0)];
        set.extend(limits.open_files.map(|most| (Name::Nofile, u64::from(most))));
        set.extend(limits.file_size.map(|most| (Name::Fsize, most)));
        if let Holder::Rlimit(_) = means.processes() {
            set.extend(limits.processes.map(|most| (Name::Nproc, u64::from(most))));
        }
        // No process alone can have more than all together may. It takes effect at once, while a
        // watch is late.
        if means.memory() == Holder::Watch {
            set.extend(limits.memory.map(|most| (Name::Data, most)));
        }
        let cpus = match (means.cpu(), limits.cpu_millis) {
            (Holder::Affinity, Some(millis)) => choose(available, millis, workspace),
            _ => Vec::new(),
        };
        Self { limits: set, cpus }
    }

    /// Sets them on this process, and on its calling thread the processors. A process that may
    /// have less than this anyway keeps to that.
    pub fn apply(&self) -> io::Result<()> {
        // Descriptors under way between processes are counted for a user, and who sends some is
        // held to its own limit. The daemon must be able to when nobody else is.
        if let Some(open) = getrlimit(Resource::Nofile).current {
            let fewer = open - open / 8;
            setrlimit(Resource::Nofile, Rlimit { current: Some(fewer), maximum: Some(fewer) })?;
        }
        for (name, most) in &self.limits {
            let least = getrlimit(name.resource()).maximum.map_or(*most, |now| now.min(*most));
            let both = Rlimit { current: Some(least), maximum: Some(least) };
            setrlimit(name.resource(), both)?;
        }
        if !self.cpus.is_empty() {
            let mut set = CpuSet::new();
            self.cpus.iter().for_each(|cpu| set.set(*cpu));
            sched_setaffinity(None, &set)?;
        }
        Ok(())
    }

    /// The processors that this thread may run on.
    pub fn available() -> Vec<usize> {
        let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
    }
}

/// So many processors as the time needs; none chosen if it needs all.
fn choose(available: &[usize], millis: u32, workspace: u128) -> Vec<usize> {
    let wanted = usize::try_from(millis.div_ceil(1000).max(1)).unwrap_or(usize::MAX);
    if wanted >= available.len() {
        return Vec::new();
    }
    // The remainder is less than a length.
    let first = (workspace % available.len() as u128) as usize;
    let mut chosen: Vec<usize> =
        available.iter().cycle().skip(first).take(wanted).copied().collect();
    chosen.sort_unstable();
    chosen
}

impl fmt::Display for Rlimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> =
            self.limits.iter().map(|(name, most)| format!("{}={most}", name.word())).collect();
        if !self.cpus.is_empty() {
            let cpus: Vec<String> = self.cpus.iter().map(usize::to_string).collect();
            words.push(format!("cpus={}", cpus.join("+")));
        }
        f.write_str(&words.join(","))
    }
}

impl FromStr for Rlimits {
    type Err = InvalidRlimits;

    fn from_str(text: &str) -> Result<Self, InvalidRlimits> {
        let invalid = || InvalidRlimits(text.to_owned());
        let mut parsed = Self::default();
        for word in text.split(',').filter(|_| !text.is_empty()) {
            let (name, value) = word.split_once('=').ok_or_else(invalid)?;
            if name == "cpus" {
                let cpus: Result<Vec<usize>, _> = value.split('+').map(str::parse).collect();
                parsed.cpus = cpus.map_err(|_| invalid())?;
                // The kernel's set has no place for more.
                if parsed.cpus.iter().any(|cpu| *cpu >= CpuSet::MAX_CPU) {
                    return Err(invalid());
                }
            } else {
                let name = Name::ALL.into_iter().find(|known| known.word() == name);
                let most = value.parse().map_err(|_| invalid())?;
                parsed.limits.push((name.ok_or_else(invalid)?, most));
            }
        }
        Ok(parsed)
    }
}
