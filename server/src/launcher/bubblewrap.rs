//! The command line of bubblewrap: a pure function of what is to be seen.
//!
//! Folders are handed over as open file descriptors, so that nothing is resolved again that an
//! agent could have changed. What lies below the workspace is first mounted aside; the first
//! process inside moves it to its place, where each step of the path is looked at and none may be
//! a symbolic link.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::model::Access;

/// Where the workspace is seen inside.
pub const WORKSPACE: &str = "/workspace";
/// The home of the user inside: private, and gone with the sandbox.
pub const HOME: &str = "/home/agent";
/// Where the agent's tool socket is seen inside.
pub const TOOL_SOCKET: &str = "/run/substrat/tools.sock";
/// What git leaves out inside of a worktree: what is mounted there.
pub(super) const EXCLUDES: &str = "/run/substrat/exclude";
/// The first process inside.
pub(super) const INIT: &str = "/run/substrat/init";
/// Where mounts wait until they are moved to their place.
const ASIDE: &str = "/run/substrat/mounts";
/// Bytes that a file in memory takes at least, if it is not empty.
const PAGE: u64 = 4 << 10;
/// Bytes that /dev/shm may hold at most.
const MAX_SHM: u64 = 256 << 20;

/// Something of the host's system that is seen at its own path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// A file or folder, read-only.
    Shown(PathBuf),
    /// A file or folder that is seen at another path, read-only.
    ShownAs(PathBuf, PathBuf),
    /// A symbolic link with its target.
    Symlink(PathBuf, PathBuf),
}

/// A folder or file that is bound, by an open file descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Number of the descriptor in bubblewrap.
    pub fd: i32,
    /// Where it is seen.
    pub at: String,
    /// What may be done there.
    pub access: Access,
}

/// All that a sandbox shows.
#[derive(Debug, Clone)]
pub struct Plan<'a> {
    /// Parts of the host's system.
    pub system: &'a [Part],
    /// The root of the workspace; none for an empty one.
    pub root: Option<Bound>,
    /// What is seen below the root; the path of each is relative to it.
    pub mounts: &'a [Bound],
    /// Empty folders that can be written, and are gone with the sandbox: what is bound may lie in
    /// them.
    pub private: &'a [String],
    /// What else is bound, at absolute paths outside of the workspace.
    pub binds: &'a [Bound],
    /// Number of the descriptor that holds what `EXCLUDES` is to say, if that is needed.
    pub excludes: Option<i32>,
    /// The first process.
    pub init: i32,
    /// Whether the host's network is seen.
    pub network: bool,
    /// Bytes that each of the private folders in memory may hold.
    pub tmp_bytes: u64,
}

/// Where a mount of the workspace waits.
pub(super) fn aside(index: usize) -> String {
    format!("{ASIDE}/{index}")
}

/// What of the usual folders is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InMemory {
    /// The workspace, where the process has none.
    pub(super) workspace: bool,
    /// The home, where none is bound.
    pub(super) home: bool,
}

impl InMemory {
    /// The folders, and the bytes that each may hold.
    fn folders(self, tmp_bytes: u64) -> Vec<(&'static str, u64)> {
        // A size of nothing would be no limit.
        let bytes = tmp_bytes.max(PAGE);
        let mut folders = vec![("/dev/shm", bytes.min(MAX_SHM)), ("/tmp", bytes)];
        folders.extend(self.home.then_some((HOME, bytes)));
        folders.extend(self.workspace.then_some((WORKSPACE, bytes)));
        folders
    }
}

/// How many files each folder in memory may hold, which no option of bubblewrap says: one that is
/// not empty takes a page.
pub(super) fn files_in_memory(
    tmp_bytes: u64,
    usual: InMemory,
    private: &[String],
) -> Vec<(String, u64)> {
    let folders = usual.folders(tmp_bytes).into_iter();
    let folders = folders.chain(private.iter().map(|at| (at.as_str(), tmp_bytes.max(PAGE))));
    folders.map(|(at, bytes)| (at.to_owned(), (bytes / PAGE).max(64))).collect()
}

/// The arguments of bubblewrap.
pub fn argv(plan: &Plan<'_>) -> Vec<OsString> {
    let mut line = Line(Vec::new());
    // The privileges are for moving mounts, and for making the owner of the sandbox another user
    // in a namespace below; init drops them, and all others, before the command.
    line.add(&["--unshare-user", "--uid", "0", "--gid", "0"]);
    line.add(&["--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETFCAP"]);
    line.add(&["--unshare-pid", "--as-pid-1", "--unshare-uts", "--hostname", "sandbox"]);
    line.add(&["--unshare-ipc", "--unshare-cgroup", "--die-with-parent", "--new-session"]);
    line.add(&["--clearenv"]);
    if !plan.network {
        line.add(&["--unshare-net"]);
    }
    for part in plan.system {
        match part {
            Part::Shown(path) => line.bind_path(path, path),
            Part::ShownAs(path, at) => line.bind_path(path, at),
            Part::Symlink(path, target) => {
                line.0.extend(["--symlink".into(), target.into(), path.into()]);
            }
        }
    }
    line.add(&["--proc", "/proc", "--dev", "/dev"]);
    let home = plan.binds.iter().all(|bind| bind.at != HOME);
    let usual = InMemory { workspace: plan.root.is_none(), home };
    for (at, bytes) in usual.folders(plan.tmp_bytes) {
        line.add(&["--size", &bytes.to_string(), "--tmpfs", at]);
    }
    line.add(&["--remount-ro", "/dev"]);
    if let Some(root) = &plan.root {
        line.bind(root, &root.at);
    }
    for (index, mount) in plan.mounts.iter().enumerate() {
        line.bind(mount, &aside(index));
    }
    for path in plan.private {
        line.add(&["--size", &plan.tmp_bytes.max(PAGE).to_string(), "--tmpfs", path]);
    }
    for bind in plan.binds {
        line.bind(bind, &bind.at);
    }
    if let Some(excludes) = plan.excludes {
        line.add(&["--ro-bind-data", &excludes.to_string(), EXCLUDES]);
    }
    line.add(&["--ro-bind-fd", &plan.init.to_string(), INIT]);
    line.add(&["--remount-ro", "/", "--chdir", "/", "--", INIT, "init"]);
    line.0
}

struct Line(Vec<OsString>);

impl Line {
    fn add(&mut self, words: &[&str]) {
        self.0.extend(words.iter().map(OsString::from));
    }

    fn bind_path(&mut self, path: &Path, at: &Path) {
        self.0.extend(["--ro-bind".into(), path.into(), at.into()]);
    }

    fn bind(&mut self, bound: &Bound, at: &str) {
        let how = match bound.access {
            Access::ReadOnly => "--ro-bind-fd",
            Access::ReadWrite => "--bind-fd",
        };
        self.add(&[how, &bound.fd.to_string(), at]);
    }
}
