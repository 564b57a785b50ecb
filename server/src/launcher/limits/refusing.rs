//! Limits that the kernel holds by refusing, each process by itself, and tells only the process:
//! no cgroup counts what was refused. Who has as much as it may have is seen, and told.

use super::means::{Holder, Means};
use super::processes::Process;
use super::{Hit, bytes};
use crate::model::{LimitKind, Limits};

/// What the kernel refuses the processes of a launch to have more of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Refusing {
    /// Processes and threads, those of the launch: its sandbox has a user namespace of its own.
    processes: Option<u32>,
    /// Bytes of data of each process.
    data: Option<u64>,
}

impl Refusing {
    /// What holds a launch that began with these limits: it keeps them when others are set.
    pub(super) fn of(limits: &Limits, means: &Means) -> Self {
        let is_refused = matches!(means.processes(), Holder::Rlimit(_));
        Self {
            processes: limits.processes.filter(|_| is_refused),
            data: limits.memory.filter(|_| means.memory() == Holder::Watch),
        }
    }

    /// Those of other kinds than were told.
    pub(super) fn except(self, is_told: impl Fn(LimitKind) -> bool) -> Self {
        Self {
            processes: self.processes.filter(|_| !is_told(LimitKind::Processes)),
            data: self.data.filter(|_| !is_told(LimitKind::Memory)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What the processes of a launch have all of. `data` says what counts to the limit of one.
    pub(super) fn hits(
        &self,
        tree: &[Process],
        data: impl Fn(&Process) -> Option<u64>,
    ) -> Vec<Hit> {
        let count: u64 = tree.iter().map(|process| process.threads).sum();
        let processes = self.processes.filter(|most| count >= u64::from(*most)).map(|most| Hit {
            kind: LimitKind::Processes,
            ends: false,
            detail: format!("{count} processes and threads; more than {most} are refused"),
        });
        let memory = self.data.and_then(|most| {
            // What is refused is a piece of any size, and is not seen itself.
            let near = most - most / 20;
            // What is mapped is more than the data, and known already.
            let large = tree.iter().filter(|process| process.size >= near);
            let mut held = large.filter_map(|process| Some((process.pid, data(process)?)));
            let (pid, held) = held.find(|(_, held)| *held >= near)?;
            let (held, most) = (bytes(held), bytes(most));
            let detail = format!(
                "process {pid} holds {held} of data; more than {most} are refused to a process"
            );
            Some(Hit { kind: LimitKind::Memory, ends: false, detail })
        });
        processes.into_iter().chain(memory).collect()
    }
}
