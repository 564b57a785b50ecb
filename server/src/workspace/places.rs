//! Folders that are made for mounts, and removed with the last link that was mounted there.
//!
//! Which ones these are stands in their mode: it comes with the folder, so that none is left
//! unknown by a crash. An agent that gives it to a folder of its own loses that when it is empty.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, statat, unlinkat};
use rustix::process::geteuid;

use super::Files;
use super::mounts::open_real;
use crate::model::Source;

/// The mode of a folder that was made for a mount. The sticky bit means nothing in a folder that
/// is its owner's alone.
pub(super) const MODE: Mode = Mode::RWXU.union(Mode::SVTX);

impl Files {
    /// Removes folders that were made for mounts, each before the one that it lies in, up to the
    /// first that was not, or that has something in it. No symbolic link is followed.
    pub fn remove_places(&self, places: &[Source]) {
        for place in places {
            if self.remove_place(place).is_err() {
                return;
            }
        }
    }

    fn remove_place(&self, place: &Source) -> io::Result<()> {
        let path = match place {
            Source::Workspaces(path) => self.folder().canonicalize()?.join(path),
            Source::Host(path) => path.into(),
        };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let parent = open_real(Path::new(parent))?;
        let stat = match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            // It was never made, or somebody was faster.
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            stat => stat?,
        };
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let is_own = stat.st_uid == geteuid().as_raw();
        if !is_folder || !is_own || Mode::from_raw_mode(stat.st_mode) != MODE {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
    }
}
