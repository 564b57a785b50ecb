//! Room on the disk: what file tools ask for before they write.

use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType, statat};

use super::resolve::Place;
use super::{Error, Files};
use crate::model::{LimitKind, Limits, Share, WorkspaceId, World, WriteFile};

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
    /// The workspace in which it counts, if it lies in one.
    pub counted: Option<Counted>,
    /// Bytes that are taken on the disk beyond what was.
    pub growth: u64,
    /// Bytes of the file afterwards.
    pub size: u64,
}

/// A workspace in which something counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// The workspace, whose files share the limit.
    pub workspace: WorkspaceId,
    /// Its root on the host.
    pub root: PathBuf,
    /// Limits that it names.
    pub limits: Limits,
}

/// Why there is no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoRoom {
    /// The limit that stands against it.
    pub kind: LimitKind,
    /// What is taken and what is allowed, for people to read.
    pub detail: String,
}

/// Room that was taken. It is kept until what it was taken for is written, or is not going to be.
pub type Taken = Box<dyn Send>;

/// Says whether something may be written. It blocks.
pub trait Room: Debug + Send + Sync {
    /// Takes room for what is about to be written. What is then not written after all counts for a
    /// while.
    ///
    /// # Errors
    ///
    /// [`NoRoom`]; nothing is taken then.
    fn take(&self, want: &Want<'_>) -> Result<Taken, NoRoom>;
}

/// Has room for all: where nobody knows the limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Boundless;

impl Room for Boundless {
    fn take(&self, _: &Want<'_>) -> Result<Taken, NoRoom> {
        Ok(Box::new(()))
    }
}

impl Files {
    /// Takes room for what a tool is about to write at a place.
    pub(super) fn take_room(
        &self,
        world: &World,
        place: &Place,
        args: &WriteFile,
    ) -> Result<Taken, Error> {
        let (size, growth) = growth(place, args);
        self.take(world, place, size, growth)
    }

    /// Looks at the size again that an open file is going to have: another one may have been put
    /// in its place meanwhile.
    pub(super) fn take_size(&self, world: &World, place: &Place, size: u64) -> Result<(), Error> {
        self.take(world, place, size, 0).map(drop)
    }

    fn take(&self, world: &World, place: &Place, size: u64, growth: u64) -> Result<Taken, Error> {
        let real = place.mount.source.join(&place.path);
        let (own, share) =
            (world.counted.covers(&real), |share: &&Share| share.counted.covers(&real));
        let counted = match (own, world.shares.iter().find(share)) {
            (true, _) => Some((world.workspace, &world.counted, world.limits)),
            (false, share) => share.map(|one| (one.workspace, &one.counted, one.limits)),
        };
        let counted = counted.map(|(workspace, root, limits)| {
            let root = self.path_of(root);
            Counted { workspace, root, limits }
        });
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
    let Some(old) = old else { return (content, blocks(content).max(LEAST) + folders) };
    let taken = u64::try_from(old.st_blocks).unwrap_or_default().saturating_mul(512);
    if args.append {
        let before = u64::try_from(old.st_size).unwrap_or_default();
        let size = before.saturating_add(content);
        // Of one with holes, the last block may be one.
        let has_holes = taken < before;
        let growth =
            if has_holes { blocks(content) + BLOCK } else { blocks(size) - blocks(before) };
        return (size, growth);
    }
    // One with other names stays where it is.
    let freed = if old.st_nlink == 1 { taken.max(LEAST) } else { LEAST };
    (content, blocks(content).max(LEAST).saturating_sub(freed))
}

/// Bytes in whole blocks.
fn blocks(size: u64) -> u64 {
    size.div_ceil(BLOCK).saturating_mul(BLOCK)
}
