//! Limits on what the processes of a workspace may take.

use serde::{Deserialize, Serialize};

/// Limits on processes; none where nothing is limited, or where the configuration decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Bytes of memory that all processes of the workspace may hold together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Processor time in thousandths of a processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    /// Processes and threads at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// Open files of one process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u32>,
    /// Bytes of the largest file that a process may write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size: Option<u64>,
    /// Bytes that the files below the workspace's root may take, links not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
}

impl Limits {
    /// These limits, and for what they do not name those of `other`.
    pub fn or(self, other: Self) -> Self {
        Self {
            memory: self.memory.or(other.memory),
            cpu_millis: self.cpu_millis.or(other.cpu_millis),
            processes: self.processes.or(other.processes),
            open_files: self.open_files.or(other.open_files),
            file_size: self.file_size.or(other.file_size),
            disk: self.disk.or(other.disk),
        }
    }

    /// These limits with changes: what those do not name stays, what they set to 0 goes.
    pub fn changed_by(self, changes: Self) -> Self {
        let kept = changes.or(self);
        Self {
            memory: kept.memory.filter(|most| *most > 0),
            cpu_millis: kept.cpu_millis.filter(|most| *most > 0),
            processes: kept.processes.filter(|most| *most > 0),
            open_files: kept.open_files.filter(|most| *most > 0),
            file_size: kept.file_size.filter(|most| *most > 0),
            disk: kept.disk.filter(|most| *most > 0),
        }
    }

    /// What is wrong with them, if anything is: less than this lets nothing useful run.
    pub fn problem(&self) -> Option<&'static str> {
        let below = |most: Option<u64>, least: u64| most.is_some_and(|most| most < least);
        let small = |most: Option<u32>, least: u32| most.is_some_and(|most| most < least);
        if below(self.memory, 16 << 20) {
            Some("the memory is less than 16 MiB")
        } else if small(self.cpu_millis, 10) {
            Some("the processor time is less than a hundredth of a processor")
        } else if small(self.processes, 8) {
            Some("fewer than 8 processes are allowed")
        } else if small(self.open_files, 32) {
            Some("fewer than 32 open files are allowed")
        } else if below(self.file_size, 4 << 10) {
            Some("files of less than 4 KiB are allowed")
        } else if below(self.disk, 1 << 20) {
            Some("the disk space is less than 1 MiB")
        } else {
            None
        }
    }

    /// Whether it names none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a process was kept from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// More memory: a process was ended for it, or has nearly all that it may have.
    Memory,
    /// More processes: one cannot be started, or those that are too many were ended.
    Processes,
    /// More open files.
    OpenFiles,
    /// A larger file: the process that wrote it was ended.
    FileSize,
    /// More disk space: the processes of the workspace were ended.
    Disk,
}

impl LimitKind {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::OpenFiles => "open files",
            Self::FileSize => "file size",
            Self::Disk => "disk space",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_limits_sets_keeps_and_removes() {
        let old = Limits { memory: Some(1 << 30), processes: Some(64), ..Limits::default() };
        let changes = Limits { memory: Some(0), disk: Some(1 << 30), ..Limits::default() };
        let new = Limits { processes: Some(64), disk: Some(1 << 30), ..Limits::default() };
        assert_eq!(old.changed_by(changes), new);
        assert_eq!(new.problem(), None);
        assert!(Limits { processes: Some(1), ..new }.problem().is_some());
    }
}
