//! Looking at the disk before a workspace is changed: whatever is found here would keep every
//! process in it from starting. What changes later is found when one starts.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Access as May, AtFlags, Mode, OFlags, accessat, openat};

use super::Files;
use super::files::{enter, enter_shown, is_own, readable};
use super::mounts::explain;
use crate::model::{Look, Mount, Name, Rejection, Source, World, covers};

/// Longest path that the kernel takes, in bytes, without the NUL at its end.
const MAX_PATH: usize = 4095;
/// Where the root of a workspace is seen by processes in it, with a slash.
const SEEN_AT: usize = "/workspace/".len();

/// What keeps a folder from being shown, and what to do next.
struct Problem(String, &'static str);

impl Files {
    /// Looks whether something is so. Calls block.
    ///
    /// # Errors
    ///
    /// [`Rejection::MountFailed`] says what is in the way.
    pub fn look(&self, look: &Look) -> Result<(), Rejection> {
        let (workspace, path, looked) = match look {
            Look::Folder { workspace, world, path } => {
                (workspace, path, self.look_for_folder(world, path))
            }
            Look::Place { workspace, world, path } => {
                (workspace, path, self.look_at_place(world, path))
            }
            Look::Free { parent, name, root } => {
                return self.look_for_nothing(root).map_err(|Problem(problem, hint)| {
                    let problem =
                        format!("in the workspace {:?}, {name:?} {problem}", parent.as_str());
                    Rejection::WorkspaceInvalid { problem, hint }
                });
            }
        };
        let refuse = |Problem(problem, hint), workspace: &Name| Rejection::MountFailed {
            workspace: workspace.clone(),
            path: path.clone(),
            problem,
            hint,
        };
        looked.map_err(|problem| refuse(problem, workspace))
    }

    /// An empty folder is nothing: there is no work in it that could be lost.
    fn look_for_nothing(&self, root: &str) -> Result<(), Problem> {
        let hint = "choose another name, or move away what lies there: with the workspace it would \
                    be deleted";
        let (parent, name) = root.rsplit_once('/').unwrap_or(("", root));
        let says = |error: io::Error| Problem(format!("is taken: {}", say(&error)), hint);
        let parent = match self.open_below(parent) {
            // It is made with all that leads to it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            parent => parent.map_err(says)?,
        };
        let folder = match enter(&parent, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            folder => folder.map_err(says)?,
        };
        let mut entries = readable(&folder).and_then(|folder| folder.entries()).map_err(says)?;
        match entries.next() {
            None => Ok(()),
            Some(_) => {
                Err(Problem("is taken: it is a folder with something in it".to_owned(), hint))
            }
        }
    }

    /// What is left where the folder of a nested workspace was made, in words: an agent of the one
    /// around it can have put something else in its place, which is not deleted with it.
    pub fn left_in_place(&self, root: &str) -> Option<String> {
        let (parent, name) = root.rsplit_once('/').filter(|_| !is_own(root))?;
        match self.open_below(parent).and_then(|parent| enter(&parent, name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Some(format!(
                "what lies in place of its folder, {:?}, was left there: {}; remove it by hand",
                self.folder().join(root),
                explain(&error)
            )),
            _ => None,
        }
    }

    fn look_for_folder(&self, world: &World, path: &str) -> Result<(), Problem> {
        let Some((mount, rest)) = world.mount_of(path) else { return Ok(()) };
        let missing = |error: &io::Error| {
            let hint = "make the folder first, or name one that is there";
            Problem(format!("the folder: {}", say(error)), hint)
        };
        let mut at = self.open_source(mount, false).map_err(|error| missing(&error))?;
        for part in rest.split('/').filter(|part| !part.is_empty()) {
            at = match enter_shown(mount, &at, part) {
                Ok(inner) => inner,
                // It is made when it is shown: links lie in it.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        && matches!(mount.source, Source::Workspaces(_))
                        && world.has_mounts_below(path) =>
                {
                    return Ok(());
                }
                Err(error) => return Err(missing(&error)),
            };
        }
        Ok(())
    }

    fn look_at_place(&self, world: &World, path: &str) -> Result<(), Problem> {
        let hint = "choose another mount path, or move away what lies there";
        let host =
            world.mounts.get("").map_or(0, |root| self.path_of(&root.source).as_os_str().len() + 1);
        if path.len() + host.max(SEEN_AT) > MAX_PATH {
            let problem = "with the root of the workspace its path is longer than 4,095 bytes";
            return Err(Problem(problem.to_owned(), "choose a shorter mount path"));
        }
        let around = world.mounts.iter().rev().find(|(at, _)| *at != path && covers(at, path));
        match (around, world.mounts.get(path)) {
            (Some((at, mount)), _) => {
                let rest = path[at.len()..].trim_start_matches('/');
                let tried = self
                    .open_source(mount, at.is_empty())
                    .and_then(|folder| try_place(&folder, rest, mount));
                tried.map_err(|error| Problem(format!("at its place: {}", say(&error)), hint))
            }
            // The root of a view that the link lies under.
            (None, Some(mount @ Mount { source: Source::Host(_), .. })) => {
                let opened = self.open_source(mount, false).map(drop);
                opened.map_err(|error| Problem(format!("its root: {}", say(&error)), hint))
            }
            (None, _) => Ok(()),
        }
    }
}

fn say(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it is not there".to_owned(),
        _ => explain(error),
    }
}

/// Whether a folder can be shown at a path in one that is shown: what is there of it are folders, and
/// what is not can be made if that may hold it.
fn try_place(within: &OwnedFd, path: &str, shown: &Mount) -> io::Result<()> {
    let mut at = enter(within, ".")?;
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    while let Some(part) = parts.next() {
        match enter_shown(shown, &at, part) {
            Ok(inner) => at = inner,
            Err(error) if error.kind() == io::ErrorKind::NotFound && shown.may_hold_places() => {
                accessat(&at, ".", May::WRITE_OK | May::EXEC_OK, AtFlags::EACCESS)?;
                return parts.try_for_each(|part| try_name(&at, part));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the filesystem takes a name. What is there or not under it is of no interest.
fn try_name(within: &OwnedFd, name: &str) -> io::Result<()> {
    use rustix::io::Errno;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(within, name, flags, Mode::empty()) {
        Err(error @ (Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ)) => Err(error.into()),
        _ => Ok(()),
    }
}
