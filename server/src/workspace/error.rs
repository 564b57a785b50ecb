//! What a file tool can answer instead of a result; the texts are for a model to read.

use std::io;

use super::NoRoom;

/// Why a file tool did nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path breaks the rules.
    #[error("{0}")]
    Path(String),
    /// The path leads out of the workspace.
    #[error("{path:?} leads out of the workspace; use a path inside it")]
    Outside {
        /// The path.
        path: String,
    },
    /// There is nothing at the path.
    #[error("there is nothing at {path:?}; list the files to see what there is")]
    NotFound {
        /// The path.
        path: String,
    },
    /// The path lies in a read-only link.
    #[error("{path:?} is read-only; write somewhere else")]
    ReadOnly {
        /// The path.
        path: String,
    },
    /// The path is the `.git` of a worktree, or lies below it.
    #[error("{path:?} is the file by which git finds the repository; run git instead")]
    GitFile {
        /// The path.
        path: String,
    },
    /// Something else than a file or folder was expected there.
    #[error("{path:?} is {what}")]
    WrongKind {
        /// The path.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// More than a tool handles at once.
    #[error("{what} has {size} bytes; at most {limit} are allowed")]
    TooLarge {
        /// What is too large.
        what: String,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A limit of the workspace stands against it, or what is kept free on the disk.
    #[error(
        "{}; nothing was written: make the file smaller, or remove what is not needed any more", .0.detail
    )]
    NoRoom(NoRoom),
    /// The disk is full.
    #[error("the disk is full; nothing was written")]
    Full,
    /// The disk said something else.
    #[error("{path:?}: {error}")]
    Io {
        /// The path.
        path: String,
        /// What it said.
        error: io::Error,
    },
    /// Not a tool on files.
    #[error("not a tool on files")]
    NotOnFiles,
}

impl Error {
    /// What the disk said about a path.
    pub(super) fn at(path: &str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            io::ErrorKind::IsADirectory => Self::WrongKind { path, what: "a folder" },
            // The latter where a folder was to be made.
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                Self::WrongKind { path, what: "no folder, or lies in a file" }
            }
            // What a socket says, and a FIFO that nobody reads.
            _ if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
                Self::WrongKind { path, what: "no regular file" }
            }
            // What cap-std says when a path leaves its folder; EXDEV and ELOOP are the kernel's.
            io::ErrorKind::PermissionDenied | io::ErrorKind::CrossesDevices
                if is_escape(&error) =>
            {
                Self::Outside { path }
            }
            _ => Self::Io { path, error },
        }
    }
}

fn is_escape(error: &io::Error) -> bool {
    error.raw_os_error().is_none() || error.raw_os_error() == Some(libc_exdev())
}

/// `EXDEV`, which `openat2` returns for a path that would leave its folder.
fn libc_exdev() -> i32 {
    rustix::io::Errno::XDEV.raw_os_error()
}
