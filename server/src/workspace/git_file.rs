//! Keeping agents from the file `.git` of a worktree, which git outside believes.

use std::io;
use std::os::fd::AsFd;

use cap_std::fs::{Dir, Metadata, MetadataExt};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};

use super::resolve::Place;
use super::{Error, Files, Open, Unseen};
use crate::model::{Access, World};

/// Its name.
const NAME: &str = ".git";

/// What must not be written in a worktree: device and inode of its root, and of the file.
pub(super) struct Guard {
    root: (u64, u64),
    file: Option<(u64, u64)>,
}

impl Guard {
    /// Of a place, if that is in a worktree as a whole: from a folder of it no path leads up.
    pub(super) fn of(place: &Place) -> io::Result<Option<Self>> {
        if !place.is_worktree() {
            return Ok(None);
        }
        let root = fstat(&place.root)?;
        let file = statat(&place.root, NAME, AtFlags::SYMLINK_NOFOLLOW).ok();
        let file = file.map(|file| (file.st_dev, file.st_ino));
        Ok(Some(Self { root: (root.st_dev, root.st_ino), file }))
    }

    /// Whether an open file is the one.
    pub(super) fn is_file(&self, found: &Metadata) -> bool {
        self.file == Some((found.dev(), found.ino()))
    }

    /// Whether a name in a folder is its name.
    pub(super) fn is_named(&self, dir: &Dir, name: &str) -> io::Result<bool> {
        let dir = fstat(dir.as_fd())?;
        Ok(name == NAME && self.root == (dir.st_dev, dir.st_ino))
    }
}

impl Place {
    /// Refuses to write the file, or below it.
    pub(super) fn refuse_git_file(&self, path: &str) -> Result<(), Error> {
        let first = self.path.split('/').next();
        match self.is_worktree() && first == Some(NAME) {
            true => Err(Error::GitFile { path: path.to_owned() }),
            false => Ok(()),
        }
    }
}

impl Files {
    /// Adds the file of each worktree that is shown for writing, to be shown there read-only: it
    /// can then be neither written nor replaced inside.
    ///
    /// # Errors
    ///
    /// The first file that is not there, or that has another name by which it could be written.
    pub fn with_git_files(&self, open: Vec<Open>, world: &World) -> Result<Vec<Open>, Unseen> {
        let mut all = Vec::with_capacity(open.len());
        for shown in open {
            let mount = world.mounts.get(&shown.path);
            let is_worktree = mount.is_some_and(|mount| mount.source.is_worktree());
            let file = (is_worktree && shown.access == Access::ReadWrite).then(|| git_file(&shown));
            all.push(shown);
            all.extend(file.transpose()?);
        }
        Ok(all)
    }
}

fn git_file(root: &Open) -> Result<Open, Unseen> {
    let path = match root.path.as_str() {
        "" => NAME.to_owned(),
        at => format!("{at}/{NAME}"),
    };
    let unseen = |problem: &str| {
        let next = "\"git worktree repair\" in the repository writes it anew";
        Unseen { path: path.clone(), problem: format!("{problem}; {next}"), link: None }
    };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&root.folder, NAME, flags, Mode::empty());
    let file = file.map_err(|error| unseen(&error.to_string()))?;
    let stat = fstat(&file).map_err(|error| unseen(&error.to_string()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(unseen("it is no file"));
    }
    if stat.st_nlink != 1 {
        return Err(unseen("it has other names"));
    }
    Ok(Open { path, folder: file, access: Access::ReadOnly })
}
