//! Files of the kernel: `/proc` and cgroups. They are made of text, small, and on no disk.
#![allow(clippy::disallowed_methods, reason = "these are no files of the daemon")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path)
}

/// The text of a file; nothing where it cannot be read.
pub(super) fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Writes a file; the error names it.
pub(super) fn write(path: &Path, value: &str) -> io::Result<()> {
    fs::write(path, value).map_err(|error| at(path, &error))
}

/// Makes a folder; it may be there.
pub(super) fn make_dir(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(|error| at(path, &error)),
    }
}

/// Makes a folder that is not there yet.
pub(super) fn make_new_dir(path: &Path) -> io::Result<()> {
    fs::create_dir(path).map_err(|error| at(path, &error))
}

/// The folders in a folder; none where there is no such folder.
pub(super) fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_dir).map(|entry| entry.path()).collect()
}

/// A folder and all below it, the deepest first.
pub(super) fn tree(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    let mut next = 0;
    while next < found.len() {
        let inner = folders(&found[next]);
        found.extend(inner);
        next += 1;
    }
    found.reverse();
    found
}

/// Removes an empty folder; true if it is gone.
pub(super) fn remove_dir(path: &Path) -> bool {
    match fs::remove_dir(path) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
