//! Opening what an agent sees, for a sandbox to show.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, mkdirat, openat};

use super::Files;
use super::files::{enter, enter_shown, is_whole};
use super::{kernel, places};
use crate::model::{Access, LinkPlace, Mount, Short, Source, World, covers};

/// A folder that is shown, held open.
#[derive(Debug)]
pub struct Open {
    /// Where it is seen, in the workspace; empty for the root.
    pub path: String,
    /// The folder; the file, if it is the `.git` of a worktree.
    pub folder: OwnedFd,
    /// What may be done there.
    pub access: Access,
}

/// A folder that cannot be shown.
#[derive(Debug)]
pub struct Unseen {
    /// Where it was to be seen, in the workspace; empty for the root.
    pub path: String,
    /// What is wrong with it.
    pub problem: String,
    /// The link that shows it, if one does.
    pub link: Option<LinkPlace>,
}

impl Files {
    /// Opens every folder that is shown, the root first and each before what lies in it, and makes
    /// the folders at which they are seen. No symbolic link is followed anywhere.
    ///
    /// # Errors
    ///
    /// The first folder that is not there, or at whose place something else is.
    pub fn open(&self, world: &World) -> Result<Vec<Open>, Unseen> {
        let mut open: Vec<Open> = Vec::new();
        for (path, mount) in &world.mounts {
            let unseen = |problem| {
                let link = world.links.get(path).cloned();
                Unseen { path: path.clone(), problem, link }
            };
            let folder = self.open_source(mount, path.is_empty()).map_err(|error| {
                unseen(match &mount.source {
                    Source::Host(host) => {
                        format!("the folder {}: {}", Short(host), explain(&error))
                    }
                    Source::Workspaces(_) => explain(&error),
                })
            })?;
            if let Some(around) = open.iter().rev().find(|around| covers(&around.path, path)) {
                let rest = path[around.path.len()..].trim_start_matches('/');
                let shown = world.mounts.get(&around.path);
                shown
                    .map_or(Ok(()), |shown| make_place(&around.folder, rest, shown))
                    .map_err(|error| unseen(format!("at its place: {}", explain(&error))))?;
            }
            open.push(Open { path: path.clone(), folder, access: mount.access });
        }
        Ok(open)
    }

    /// Opens a folder to be shown. The folder of a whole workspace is made if it is not there; a
    /// part of one only where `made` says so.
    pub(super) fn open_source(&self, mount: &Mount, made: bool) -> io::Result<OwnedFd> {
        match &mount.source {
            Source::Workspaces(root) if made || is_whole(root) => self.reopen_root(root),
            Source::Workspaces(path) => self.open_below(path),
            Source::Host(path) => {
                let open = open_real(Path::new(path))?;
                // The daemon may have another home or socket than when it was linked.
                if let Some(problem) = self.shows_daemon(Path::new(path)) {
                    return Err(io::Error::other(problem));
                }
                match kernel::shown_by(Path::new(path))? {
                    None => Ok(open),
                    Some(at) => {
                        let shown = format!("it shows a filesystem of the kernel, at {at:?}");
                        Err(io::Error::other(shown))
                    }
                }
            }
        }
    }
}

/// Opens a file or folder of the host by an absolute path without following a symbolic link.
///
/// # Errors
///
/// What the system says; ELOOP for a symbolic link in its place.
pub fn open_real_any(path: &Path) -> io::Result<OwnedFd> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return open_real(path);
    };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = openat(open_real(parent)?, name, flags, Mode::empty())?;
    match FileType::from_raw_mode(fstat(&found)?.st_mode) {
        FileType::Symlink => Err(rustix::io::Errno::LOOP.into()),
        _ => Ok(found),
    }
}

/// Opens a folder of the host by an absolute path without following a symbolic link.
///
/// # Errors
///
/// What the system says; a symbolic link is no folder.
pub(super) fn open_real(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, "/", flags, Mode::empty())?;
    for part in path.components().filter(|part| matches!(part, Component::Normal(_))) {
        at = enter(&at, part.as_os_str())?;
    }
    Ok(at)
}

/// Enters the folders of a path in a folder that is shown; makes those that are missing if it may
/// hold them.
fn make_place(within: &OwnedFd, path: &str, shown: &Mount) -> io::Result<()> {
    let mut at = enter(within, ".")?;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let missing = match enter_shown(shown, &at, part) {
            Ok(inner) => {
                at = inner;
                continue;
            }
            Err(error) => error,
        };
        if missing.kind() != io::ErrorKind::NotFound || !shown.may_hold_places() {
            return Err(missing);
        }
        match mkdirat(&at, part, places::MODE) {
            // Somebody else was faster.
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        at = enter(&at, part)?;
    }
    Ok(())
}

pub(super) fn explain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it is not there any more".to_owned(),
        io::ErrorKind::NotADirectory => "it is no folder, or a symbolic link".to_owned(),
        io::ErrorKind::PermissionDenied => "the daemon may not open it".to_owned(),
        _ => error.to_string(),
    }
}
