//! Pipes and devices where git reads files: it would wait for them without end. A link to a folder
//! can lead to one that is full of them.
//!
//! Agents can make pipes in a worktree, and in what git keeps about it and its branch. Sockets are
//! left alone: opening one fails at once.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat, unlinkat};

use super::Error;
use super::admin::open_dir;
use crate::workspace::files::readable;

/// Longest path below a folder that git can open.
const MAX_PATH: usize = 4096;
/// What git reads of a worktree's own files while it looks for changes.
const READ: [&str; 3] = [".gitignore", ".gitattributes", ".gitmodules"];
/// What git reads of the folders that it keeps about a worktree; in others, such as those of
/// submodules and of other programs, it reads nothing here.
const READ_OF_WORKTREES: [&str; 3] = ["refs", "logs", "info"];
/// What git reads of a folder to see whether it is a repository.
const MARKS: [&str; 4] = ["HEAD", "config", "commondir", "packed-refs"];

/// What a walk finds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Folder,
    /// A symbolic link to a folder.
    Way,
    /// Anything else.
    File,
}

/// Looks for what git would wait for in all that it reads of a repository itself, and for links
/// through which it would write elsewhere.
pub(super) fn check_shared(common_dir: &Path) -> Result<(), Error> {
    each(common_dir, |_, kind| kind == Kind::File)?;
    for folder in ["refs", "logs", "info", "objects/info"] {
        check_folder(&common_dir.join(folder))?;
    }
    check_links(&common_dir.join("refs/heads"))?;
    let is_fan = |path: &Path| matches!(path.as_os_str().as_bytes(), [a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    each(&common_dir.join("objects"), |path, kind| kind == Kind::File || is_fan(path))
}

/// Looks for it in what git reads of all worktrees of a repository.
pub(super) fn check_worktrees(common_dir: &Path) -> Result<(), Error> {
    each(&common_dir.join("worktrees"), |path, kind| {
        let part = path.components().nth(1).map(|part| part.as_os_str());
        match part {
            // The folder of a worktree.
            None => true,
            Some(_) if kind == Kind::File && path.components().count() == 2 => true,
            Some(part) => READ_OF_WORKTREES.iter().any(|read| part == *read),
        }
    })
}

/// Looks for it in what git reads of one worktree.
pub(super) fn check_worktree(common_dir: &Path, name: &str) -> Result<(), Error> {
    let folder = common_dir.join("worktrees").join(name);
    each(&folder, |path, kind| {
        let part = path.components().next().map(|part| part.as_os_str());
        let is_read = |part| READ_OF_WORKTREES.iter().any(|read| part == *read);
        (kind == Kind::File && path.components().count() == 1) || part.is_some_and(is_read)
    })
}

/// Looks for it in all that a folder of git's holds.
pub(super) fn check_folder(folder: &Path) -> Result<(), Error> {
    each(folder, |_, _| true)
}

/// Removes links among the logs of branches, which only an agent can have put there: git would
/// write through them.
pub(super) fn clear_logs(common_dir: &Path) -> Result<(), Error> {
    let logs = common_dir.join("logs/refs/heads");
    walk(&logs, |found, path, dir| {
        if found.is_symlink() {
            tracing::warn!(path = ?logs.join(path), "removed a link among logs of branches");
            let removed = unlinkat(dir, path, AtFlags::empty());
            removed.map_err(|error| Error::Io { path: logs.join(path), error: error.into() })?;
        }
        Ok(true)
    })
}

/// Looks for links in a folder that git writes in.
fn check_links(folder: &Path) -> Result<(), Error> {
    walk(folder, |found, path, _| match found.is_symlink() {
        true => Err(Error::Special {
            path: folder.join(path),
            what: "a link, through which git would write elsewhere",
        }),
        false => Ok(true),
    })
}

/// Looks for it in what git reads of the files of a worktree.
pub(super) fn check_files(root: &Path) -> Result<(), Error> {
    each(root, |path, kind| {
        let is_read = path.file_name().is_some_and(|name| READ.iter().any(|read| name == *read));
        // A repository within: git asks it for its commit.
        let is_within = path.iter().any(|part| part == ".git");
        kind == Kind::Folder || is_read || is_within
    })
}

/// Looks for it in what git reads to find the repository that a folder lies in.
pub(super) fn check_way(folder: &Path) -> Result<(), Error> {
    for above in folder.ancestors() {
        for at in [above.to_owned(), above.join(".git")] {
            let Ok(dir) = open_dir(&at) else { continue };
            for mark in MARKS {
                check_one(&dir, Path::new(mark), &at)?;
            }
        }
    }
    Ok(())
}

/// Goes through a folder and those in it that git has `read`, and checks what else it has read.
/// git goes through links to folders, which may lead anywhere, and nobody needs one there.
fn each(top: &Path, read: impl Fn(&Path, Kind) -> bool) -> Result<(), Error> {
    walk(top, |found, path, dir| {
        let kind = match found {
            found if found.is_dir() => Kind::Folder,
            found if found.is_symlink() && leads_to_folder(dir, path) => Kind::Way,
            _ => Kind::File,
        };
        if !read(path, kind) {
            return Ok(false);
        }
        match kind {
            Kind::Way => Err(way(&top.join(path))),
            Kind::File if !found.is_file() => check_one(dir, path, top).map(|()| true),
            Kind::File | Kind::Folder => Ok(true),
        }
    })
}

fn way(path: &Path) -> Error {
    let what = "a link to a folder, which git would go through";
    Error::Special { path: path.to_owned(), what }
}

/// Goes through all that a folder holds; into a folder in it if `look` says so. What is not there,
/// or no folder any more, holds nothing.
fn walk(
    top: &Path,
    mut look: impl FnMut(cap_std::fs::FileType, &Path, &OwnedFd) -> Result<bool, Error>,
) -> Result<(), Error> {
    let failed = |path: &Path| {
        let path = top.join(path);
        move |error: io::Error| Error::Io { path, error }
    };
    let dir = match open_dir(top) {
        Ok(dir) => dir,
        Err(_) if top.is_symlink() && top.is_dir() => return Err(way(top)),
        Err(_) => return Ok(()),
    };
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let here = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
        let Ok(opened) = openat(&dir, here, flags, Mode::empty()) else { continue };
        for entry in readable(&opened).and_then(|opened| opened.entries()).map_err(failed(here))? {
            let entry = entry.map_err(failed(here))?;
            let path = folder.join(entry.file_name());
            if path.as_os_str().len() > MAX_PATH {
                continue;
            }
            let found = entry.file_type().map_err(failed(&path))?;
            if look(found, &path, &dir)? && found.is_dir() {
                folders.push(path);
            }
        }
    }
    Ok(())
}

fn leads_to_folder(dir: &OwnedFd, path: &Path) -> bool {
    let there = statat(dir.as_fd(), path, AtFlags::empty());
    there.is_ok_and(|there| FileType::from_raw_mode(there.st_mode) == FileType::Directory)
}

/// Checks a file of a folder, through links.
fn check_one(dir: &OwnedFd, path: &Path, top: &Path) -> Result<(), Error> {
    // What is not there, or cannot be reached, cannot be waited for.
    let Ok(own) = statat(dir.as_fd(), path, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(()) };
    let Ok(there) = statat(dir.as_fd(), path, AtFlags::empty()) else { return Ok(()) };
    let is_link = FileType::from_raw_mode(own.st_mode) == FileType::Symlink;
    let what = match (FileType::from_raw_mode(there.st_mode), is_link) {
        (FileType::Fifo, false) => "a pipe, for which git would wait without end",
        (FileType::Fifo, true) => "a link to a pipe, for which git would wait without end",
        (FileType::CharacterDevice | FileType::BlockDevice, false) => {
            "a device, for which git would wait without end"
        }
        (FileType::CharacterDevice | FileType::BlockDevice, true) => {
            "a link to a device, for which git would wait without end"
        }
        _ => return Ok(()),
    };
    Err(Error::Special { path: top.join(path), what })
}
