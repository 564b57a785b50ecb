//! Room on the disk: what file tools ask for before they write.

use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType, statat};

use super::resolve::Place;
use super::{Error, Files};
use crate::model::{LimitKind, World, WriteFile};

/// What a file takes at least: its place in the filesystem's tables.
const LEAST: u64 = 512;
/// What files and folders take are whole blocks, in most filesystems of this size.
const BLOCK: u64 = 4096;

/// What is about to be written.
#[derive(Debug)]
pub struct Want<'a> {
    /// What its agent sees, with the limits that hold there.
    pub world: &'a World,
    /// An open folder of the filesystem that it lies on.
    pub folder: BorrowedFd<'a>,
    /// The root of the workspace that owns the limits, on the host, if it lies there.
    pub counted: Option<PathBuf>,
    /// Bytes that are taken on the disk beyond what was.
    pub growth: u64,
    /// Bytes of the file afterwards.
    pub size: u64,
}

/// Why there is no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoRoom {
    /// The limit that stands against it.
    pub kind: LimitKind,
    /// What is taken and what is allowed, for people to read.
    pub detail: String,
}

/// Says whether something may be written. It blocks.
pub trait Room: Debug + Send + Sync {
    /// Takes room for what is about to be written. What is then not written after all counts for a
    /// while.
    ///
    /// # Errors
    ///
    /// [`NoRoom`]; nothing is taken then.
    fn take(&self, want: &Want<'_>) -> Result<(), NoRoom>;
}

/// Has room for all: where nobody knows the limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Boundless;

impl Room for Boundless {
    fn take(&self, _: &Want<'_>) -> Result<(), NoRoom> {
        Ok(())
    }
}

impl Files {
    /// Takes room for what a tool is about to write at a place.
    pub(super) fn take_room(
        &self,
        world: &World,
        place: &Place,
        args: &WriteFile,
    ) -> Result<(), Error> {
        let real = place.mount.source.join(&place.path);
        let counted = world.counted.covers(&real).then(|| self.path_of(&world.counted));
        let (size, growth) = growth(place, args);
        let want = Want { world, folder: place.dir.as_fd(), counted, growth, size };
        self.room.take(&want).map_err(Error::NoRoom)
    }
}

/// The size of a file when a tool has written it, and the bytes that are taken beyond what was.
fn growth(place: &Place, args: &WriteFile) -> (u64, u64) {
    let old = match place.rest.as_slice() {
        [name] => statat(&place.dir, name, AtFlags::SYMLINK_NOFOLLOW).ok(),
        _ => None,
    };
    let old = old.filter(|old| FileType::from_raw_mode(old.st_mode) == FileType::RegularFile);
    let content = args.content.len() as u64;
    let folders = (place.rest.len() as u64).saturating_sub(1) * BLOCK;
    match old {
        Some(old) if args.append => {
            let before = u64::try_from(old.st_size).unwrap_or_default();
            let size = before.saturating_add(content);
            (size, blocks(size) - blocks(before))
        }
        Some(old) => {
            // One with other names stays where it is.
            let freed = if old.st_nlink == 1 { u64::try_from(old.st_blocks).ok() } else { None };
            let freed = freed.unwrap_or_default().saturating_mul(512);
            (content, blocks(content).max(LEAST).saturating_sub(freed.max(LEAST)))
        }
        None => (content, blocks(content).max(LEAST) + folders),
    }
}

/// Bytes in whole blocks.
fn blocks(size: u64) -> u64 {
    size.div_ceil(BLOCK).saturating_mul(BLOCK)
}
