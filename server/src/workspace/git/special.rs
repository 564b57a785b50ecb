//! Pipes and devices where git reads files: it would wait for them without end. A link to a folder
//! can lead to one that is full of them.
//!
//! Agents can make pipes in a worktree, and in what git keeps about it and its branch. Sockets are
//! left alone: opening one fails at once.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};

use super::Error;
use super::admin::open_dir;
use crate::workspace::files::readable;

/// Longest path below a folder that git can open.
const MAX_PATH: usize = 4096;
/// What git reads of a worktree's own files while it looks for changes.
const READ: [&str; 3] = [".gitignore", ".gitattributes", ".gitmodules"];
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

/// Looks for what git would wait for in all that it reads of a repository itself.
pub(super) fn check_shared(common_dir: &Path) -> Result<(), Error> {
    each(common_dir, |_, kind| kind == Kind::File)?;
    for folder in ["refs", "logs", "info", "objects/info"] {
        check_folder(&common_dir.join(folder))?;
    }
    let is_fan = |path: &Path| matches!(path.as_os_str().as_bytes(), [a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    each(&common_dir.join("objects"), |path, kind| kind == Kind::File || is_fan(path))
}

/// Looks for it in all that a folder of git's holds.
pub(super) fn check_folder(folder: &Path) -> Result<(), Error> {
    each(folder, |_, _| true)
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
/// What is not there, or no folder any more, holds nothing. git goes through links to folders,
/// which may lead anywhere, and nobody needs one there.
fn each(top: &Path, read: impl Fn(&Path, Kind) -> bool) -> Result<(), Error> {
    let failed = |path: &Path| {
        let path = top.join(path);
        move |error: io::Error| Error::Io { path, error }
    };
    let way =
        |path: &Path| Err(Error::Special { path: top.join(path), what: "a link to a folder" });
    let dir = match open_dir(top) {
        Ok(dir) => dir,
        Err(_) if top.is_symlink() && top.is_dir() => return way(Path::new("")),
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
            let kind = match found {
                found if found.is_dir() => Kind::Folder,
                found if found.is_symlink() && leads_to_folder(&dir, &path) => Kind::Way,
                _ => Kind::File,
            };
            if !read(&path, kind) || found.is_file() {
                continue;
            }
            match kind {
                Kind::Folder => folders.push(path),
                Kind::Way => return way(&path),
                Kind::File => check_one(&dir, &path, top)?,
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
        (FileType::Fifo, false) => "a pipe",
        (FileType::Fifo, true) => "a link to a pipe",
        (FileType::CharacterDevice | FileType::BlockDevice, false) => "a device",
        (FileType::CharacterDevice | FileType::BlockDevice, true) => "a link to a device",
        _ => return Ok(()),
    };
    Err(Error::Special { path: top.join(path), what })
}
