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

    /// Whether it names none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a process was kept from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// More memory: a process was ended for it.
    Memory,
    /// More processes: one could not be started.
    Processes,
    /// More open files.
    OpenFiles,
    /// A larger file: the process that wrote it was ended.
    FileSize,
    /// More disk space: the processes of the workspace were ended.
    Disk,
}
