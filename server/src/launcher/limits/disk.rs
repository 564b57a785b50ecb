//! How much disk space a folder takes, and how much is free.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::processes::Written;

/// Folders in folders that are looked into. Each is held open meanwhile, and none can be swapped
/// for another one.
pub(super) const MAX_DEPTH: usize = 256;

/// Bytes that a file counts at least. An empty one takes a place in the filesystem's tables, of
/// which there are so many.
const LEAST: u64 = 512;

/// What lies below a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Usage {
    /// Bytes on the disk. Of a file with several names each counts its share.
    pub(super) bytes: u64,
    /// Folders that could not be looked into.
    pub(super) unreadable: u64,
    /// Folders that lie too deep.
    pub(super) too_deep: u64,
}

/// Measures what lies below a folder; follows no links and enters no other mounts. What changes
/// meanwhile may count or not. Ends early when it is told to stop.
pub(super) fn measure(root: &Path, stop: &AtomicBool) -> io::Result<Usage> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut open = vec![Dir::new(rustix::fs::openat(CWD, root, flags, Mode::empty())?)?];
    let mut usage = Usage::default();
    while let Some(folder) = open.last_mut() {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match folder.read() {
            None => drop(open.pop()),
            Some(Err(_)) => {
                usage.unreadable += 1;
                open.pop();
            }
            Some(Ok(entry)) if matches!(entry.file_name().to_bytes(), b"." | b"..") => (),
            Some(Ok(entry)) => {
                let inner = look(folder.fd()?.as_fd(), entry.file_name(), &mut usage)?;
                if let Some(inner) = inner {
                    if open.len() == MAX_DEPTH {
                        usage.too_deep += 1;
                    } else {
                        open.push(Dir::new(inner)?);
                    }
                }
            }
        }
    }
    Ok(usage)
}

/// Counts an entry of a folder; opens it if it is a folder.
fn look(
    folder: std::os::fd::BorrowedFd<'_>,
    name: &std::ffi::CStr,
    usage: &mut Usage,
) -> io::Result<Option<OwnedFd>> {
    let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else {
        return Ok(None); // Removed meanwhile.
    };
    // A file may have names elsewhere. In a folder of its own links it counts once this way.
    let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let names = if is_dir { 1 } else { u64::from(stat.st_nlink as u32).max(1) };
    let bytes = u64::try_from(stat.st_blocks).unwrap_or_default().saturating_mul(512);
    let bytes = (bytes / names).max(LEAST);
    usage.bytes = usage.bytes.saturating_add(bytes);
    if !is_dir {
        return Ok(None);
    }
    match open_folder(folder, name) {
        Ok(inner) => Ok(Some(inner)),
        Err(Errno::XDEV | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(Errno::ACCESS | Errno::PERM) => {
            usage.unreadable += 1;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn open_folder(
    folder: std::os::fd::BorrowedFd<'_>,
    name: &std::ffi::CStr,
) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    loop {
        match rustix::fs::openat2(folder, name, flags, Mode::empty(), resolve) {
            // Something was renamed while the kernel looked.
            Err(Errno::AGAIN) => (),
            other => return other,
        }
    }
}

/// Space of a filesystem, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Space {
    pub(super) free: u64,
    pub(super) total: u64,
}

/// The space of the filesystem that a folder lies on.
pub(super) fn space(folder: &Path) -> io::Result<Space> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(Space {
        free: stat.f_bavail.saturating_mul(stat.f_frsize),
        total: stat.f_blocks.saturating_mul(stat.f_frsize),
    })
}

/// The space that processes may not use up: 5 % of the filesystem, and 1 GiB at most.
pub(super) fn reserve(total: u64) -> u64 {
    (total / 20).min(1 << 30)
}

/// Bytes that were written between two looks, at processes and what each wrote. What a process
/// wrote passes on to its parent when it ends, unless the parent does not want to know.
pub(super) fn growth(before: &Written, now: &Written) -> u64 {
    let (old, new): (Vec<_>, Vec<_>) = now.iter().partition(|(id, _)| before.contains_key(id));
    let more = old.iter().map(|(id, bytes)| bytes.saturating_sub(before[*id])).sum::<u64>();
    let ended = before.iter().filter(|(id, _)| !now.contains_key(id));
    let passed_on = ended.map(|(_, bytes)| bytes).sum();
    new.iter().map(|(_, bytes)| **bytes).sum::<u64>() + more.saturating_sub(passed_on)
}
