//! Covering what `/proc` shows of the whole machine. A sandbox of root's daemon runs as root's
//! user, without its capabilities; but much of `/proc` asks for the user alone: who may write
//! `/proc/sys/kernel/core_pattern` runs programs outside.

use std::io;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, open, statat};
use rustix::mount::{MountFlags, mount_bind_recursive, mount_remount};

/// What tells of other users' keys although everybody may read it.
const TELLING: &[&str] = &["keys", "key-users"];

/// Makes what is not a process's read-only, and hides what only root may read.
pub(super) fn cover() -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = open("/proc", flags, Mode::empty())?;
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let of_process = name.starts_with(|first: char| first.is_ascii_digit());
        if of_process || name.starts_with('.') || entry.file_type() == FileType::Symlink {
            continue;
        }
        let stat = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        let path = format!("/proc/{name}");
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            read_only(&path, &path)?;
        } else if !mode.contains(Mode::ROTH) || TELLING.contains(&name) {
            read_only("/dev/null", &path)?;
        } else if mode.intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH) {
            read_only(&path, &path)?;
        }
    }
    Ok(())
}

fn read_only(source: &str, at: &str) -> io::Result<()> {
    mount_bind_recursive(source, at)?;
    // What the mount was held to before cannot be loosened.
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOEXEC;
    Ok(mount_remount(
        at,
        flags | if source == at { MountFlags::NODEV } else { MountFlags::empty() },
        c"",
    )?)
}

/// Bounds how many files the private folders in memory hold: as many as they have pages. The
/// kernel's memory for a file counts with nobody where there is no control group.
pub(super) fn bound_files(folders: &[(String, u64)]) -> io::Result<()> {
    for (folder, files) in folders {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount_remount(folder.as_str(), flags, format!("nr_inodes={files}"))?;
    }
    Ok(())
}
