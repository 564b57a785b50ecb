//! What the machine has of cgroups, and where the daemon stands in them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::files;
use crate::workspace::unescape_mount as unescape;

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// The cgroup that is mounted, from the root of the hierarchy.
    pub(super) root: PathBuf,
    /// Where it is mounted.
    pub(super) point: PathBuf,
    /// Options of the hierarchy, controllers among them; none in version 2.
    pub(super) options: Option<Vec<String>>,
}

/// The cgroup of a process in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Membership {
    /// Controllers of the hierarchy; none in version 2.
    pub(super) controllers: Vec<String>,
    /// The cgroup, from the root of the hierarchy.
    pub(super) path: PathBuf,
}

/// What of the machine decides which cgroups can be used.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    /// `/proc/self/mountinfo`.
    pub(super) mountinfo: Vec<u8>,
    /// `/proc/self/cgroup`.
    pub(super) membership: Vec<u8>,
    /// Whether systemd manages the cgroups, so that only what it delegated may be changed.
    pub(super) manager: Manager,
}

/// Who else changes cgroups on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manager {
    Systemd,
    Nobody,
}

impl Machine {
    /// This machine, seen by this process.
    pub(super) fn this() -> Self {
        let systemd = Path::new("/run/systemd/system").is_dir();
        Self {
            mountinfo: files::read(Path::new("/proc/self/mountinfo")).unwrap_or_default(),
            membership: files::read(Path::new("/proc/self/cgroup")).unwrap_or_default(),
            manager: if systemd { Manager::Systemd } else { Manager::Nobody },
        }
    }

    /// The folder of this process's cgroup in the unified hierarchy.
    pub(super) fn unified(&self) -> Option<PathBuf> {
        let own = memberships(&self.membership);
        let own = own.iter().find(|own| own.controllers.is_empty())?;
        let mounts = mounts(&self.mountinfo);
        mounts.iter().filter(|mount| mount.options.is_none()).find_map(|mount| mount.folder(own))
    }

    /// The folder of this process's cgroup in the hierarchy of a controller of version 1.
    pub(super) fn separate(&self, controller: &str) -> Option<PathBuf> {
        let has = |names: &[String]| names.iter().any(|name| name == controller);
        let own = memberships(&self.membership);
        let own = own.iter().find(|own| has(&own.controllers))?;
        let mounts = mounts(&self.mountinfo);
        let mut fitting = mounts.iter().filter(|mount| mount.options.as_deref().is_some_and(has));
        fitting.find_map(|mount| mount.folder(own))
    }
}

impl Mount {
    /// Where a cgroup of this hierarchy is to be found; nowhere if another part is mounted.
    fn folder(&self, own: &Membership) -> Option<PathBuf> {
        let below = own.path.strip_prefix(&self.root).ok()?;
        // Seen from inside of a cgroup namespace, groups outside of it start with "..".
        let inside = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        // An empty path joined would end in a slash.
        if !inside {
            None
        } else if below.as_os_str().is_empty() {
            Some(self.point.clone())
        } else {
            Some(self.point.join(below))
        }
    }
}

/// The mounts of cgroup hierarchies in a `mountinfo` (proc_pid_mountinfo(5)); what cannot be read
/// is left out.
pub(super) fn mounts(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

/// `id parent major:minor root point options [tags…] - type source super-options`
fn mount(line: &[u8]) -> Option<Mount> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = 6 + words.get(6..)?.iter().position(|word| *word == b"-")?;
    let options = match *words.get(dash + 1)? {
        b"cgroup2" => None,
        b"cgroup" => {
            let options = String::from_utf8_lossy(words.get(dash + 3)?);
            Some(options.split(',').map(str::to_owned).collect())
        }
        _ => return None,
    };
    Some(Mount { root: unescape(words[3]), point: unescape(words[4]), options })
}

/// The lines `id:controllers:path` of a `/proc/PID/cgroup`; what cannot be read is left out.
pub(super) fn memberships(text: &[u8]) -> Vec<Membership> {
    let lines = text.split(|byte| *byte == b'\n');
    let parsed = lines.filter_map(|line| {
        let mut parts = line.splitn(3, |byte| *byte == b':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let controllers = String::from_utf8_lossy(controllers);
        let controllers = controllers.split(',').filter(|name| !name.is_empty());
        Some(Membership {
            controllers: controllers.map(str::to_owned).collect(),
            path: OsString::from_vec(path.to_owned()).into(),
        })
    });
    parsed.filter(|own| own.path.is_absolute()).collect()
}
