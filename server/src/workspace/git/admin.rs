//! The files that git keeps about a worktree. Who works there can write them, so they are read as
//! what they may be: links, pipes, lies.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fchmod, fstat, mkdirat, openat, statat};

use super::Error;
use super::parse::{self, Head};
use crate::workspace::files::{enter, give, readable, remove_tree};

/// Longest file of these that is read, in bytes.
const MAX_FILE: u64 = 8 << 10;

/// The folder of a worktree in its repository.
pub(super) struct Admin {
    path: PathBuf,
    dir: OwnedFd,
}

/// Where the folder of a worktree is.
fn path_of(common_dir: &Path, name: &str) -> Result<PathBuf, Error> {
    let path = common_dir.join("worktrees").join(name);
    match Path::new(name).components().eq([Component::Normal(name.as_ref())]) {
        true => Ok(path),
        false => Err(Error::Tampered { path, problem: "its name is no name of a folder" }),
    }
}

/// Removes the folder of a worktree. One that is not there is fine.
pub(super) fn remove(common_dir: &Path, name: &str) -> Result<(), Error> {
    remove_dir(&path_of(common_dir, name)?)
}

impl Admin {
    /// Opens it, if it is there.
    pub(super) fn open(common_dir: &Path, name: &str) -> Result<Option<Self>, Error> {
        Self::at(path_of(common_dir, name)?)
    }

    fn at(path: PathBuf) -> Result<Option<Self>, Error> {
        match open_dir(&path) {
            Ok(dir) => Ok(Some(Self { path, dir })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if is_in_the_way(&error) => {
                Err(Error::Tampered { path, problem: "a link or file in place of a folder" })
            }
            Err(error) => Err(Error::Io { path, error }),
        }
    }

    /// Makes sure that git, pointed to this folder, finds no other settings than the repository's
    /// and nothing to wait for.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.check_settings()?;
        self.read("HEAD")?;
        self.open_file("index")?;
        Ok(())
    }

    /// Makes sure that git, pointed to this folder, finds no other settings than the repository's.
    pub(super) fn check_settings(&self) -> Result<(), Error> {
        let tampered = |name, problem| Error::Tampered { path: self.path.join(name), problem };
        match self.read("commondir")? {
            Some(content) if content.trim_ascii_end() == b"../.." => {}
            Some(_) => return Err(tampered("commondir", "it leads to another repository")),
            None => return Err(tampered("commondir", "it is not there")),
        }
        match self.read("config.worktree") {
            Ok(content) if content.as_ref().is_none_or(Vec::is_empty) => Ok(()),
            _ => Err(tampered("config.worktree", "it has settings of its own")),
        }
    }

    /// Makes sure that files have no other names: by those they could be written.
    pub(super) fn check_sole(&self, names: &[&str]) -> Result<(), Error> {
        for name in names {
            let path = || self.path.join(name);
            let stat = statat(&self.dir, *name, AtFlags::SYMLINK_NOFOLLOW);
            let stat = stat.map_err(|error| Error::Io { path: path(), error: error.into() })?;
            if stat.st_nlink != 1 {
                return Err(Error::Tampered { path: path(), problem: "it has other names" });
            }
        }
        Ok(())
    }

    /// What is checked out, if that can be told.
    pub(super) fn head(&self) -> Result<Option<Head>, Error> {
        let content = self.read("HEAD")?.unwrap_or_default();
        Ok(std::str::from_utf8(&content).ok().and_then(parse::head))
    }

    /// The commits in which a rebase or a merge that has stopped keeps changes that were in none.
    pub(super) fn autostashes(&self) -> Result<Vec<String>, Error> {
        let mut found: Vec<String> = self.commit("MERGE_AUTOSTASH")?.into_iter().collect();
        for folder in ["rebase-merge", "rebase-apply"] {
            if let Some(folder) = Self::at(self.path.join(folder))? {
                found.extend(folder.commit("autostash")?);
            }
        }
        Ok(found)
    }

    /// The commit that a file names; none if it is not there.
    fn commit(&self, name: &str) -> Result<Option<String>, Error> {
        let Some(content) = self.read(name)? else {
            return Ok(None);
        };
        match std::str::from_utf8(&content).map(str::trim_end) {
            Ok(commit) if parse::is_object_id(commit) => Ok(Some(commit.to_owned())),
            _ => {
                let path = self.path.join(name);
                Err(Error::Tampered { path, problem: "it names no commit" })
            }
        }
    }

    /// Reads a small file; none if it is not there.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let Some(file) = self.open_file(name)? else {
            return Ok(None);
        };
        let path = || self.path.join(name);
        let mut content = Vec::new();
        let read = file.take(MAX_FILE + 1).read_to_end(&mut content);
        read.map_err(|error| Error::Io { path: path(), error })?;
        if content.len() as u64 > MAX_FILE {
            return Err(Error::Tampered { path: path(), problem: "it is too long" });
        }
        Ok(Some(content))
    }

    fn open_file(&self, name: &str) -> Result<Option<std::fs::File>, Error> {
        open_file(&self.dir, name).map_err(|error| {
            let path = self.path.join(name);
            match is_in_the_way(&error) {
                true => Error::Tampered { path, problem: "it is no regular file" },
                false => Error::Io { path, error },
            }
        })
    }
}

/// Reads the `.git` file of a worktree; none if there is no such file.
pub(super) fn read_git_file(root: &Path) -> Option<Vec<u8>> {
    let file = open_file(&open_dir(root).ok()?, ".git").ok()??;
    let mut content = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut content).ok()?;
    Some(content)
}

fn open_file(dir: &OwnedFd, name: &str) -> io::Result<Option<std::fs::File>> {
    // Without waiting for who would open the other end of a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(dir, name, flags, Mode::empty()) {
        Ok(file) => std::fs::File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match file.metadata()?.is_file() {
        true => Ok(Some(file)),
        false => Err(rustix::io::Errno::LOOP.into()),
    }
}

/// Whether an error says that there is something else than what git would have put there.
fn is_in_the_way(error: &io::Error) -> bool {
    let of = |errno: rustix::io::Errno| error.raw_os_error() == Some(errno.raw_os_error());
    of(rustix::io::Errno::LOOP) || of(rustix::io::Errno::NOTDIR) || of(rustix::io::Errno::NXIO)
}

/// Opens a folder by its absolute path, in which nothing is a symbolic link.
pub(super) fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    walk(path, |_, _| Ok(()))
}

/// Gives the daemon's user its rights again to a folder that who works in a worktree can shut, and to
/// a file in it. One that has other names is left as it is, and so is what is no file.
pub(super) fn let_in(folder: &Path, file: &str) -> io::Result<()> {
    let dir = open_dir(folder)?;
    give(&dir, Mode::RWXU, Mode::RWXU)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&dir, file, flags, Mode::empty())?;
    let stat = fstat(&file)?;
    let read_write = Mode::RUSR | Mode::WUSR;
    match FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink == 1 {
        true => give(&file, read_write, read_write),
        false => Ok(()),
    }
}

/// Makes a folder and those above it, with the mode of what they lie in. Nothing on the way may be a symbolic link: a sandbox is to
/// have it as a mount, and must not choose what that is.
pub(super) fn make_dir(path: &Path) -> Result<(), Error> {
    let made = walk(path, |at, part| match mkdirat(at, part, Mode::RWXU) {
        Ok(()) => Ok(fchmod(readable(&enter(at, part)?)?, mode_of(at, "", 0o7777)?)?),
        Err(rustix::io::Errno::EXIST) => Ok(()),
        // Those above may be read-only, and are there.
        Err(_)
            if rustix::fs::accessat(at, part, rustix::fs::Access::EXISTS, AtFlags::empty())
                .is_ok() =>
        {
            Ok(())
        }
        Err(error) => Err(error.into()),
    });
    made.map(drop).map_err(|error| {
        let path = path.to_owned();
        match is_in_the_way(&error) {
            true => Error::Tampered { path, problem: "a link or file in place of a folder" },
            false => Error::Io { path, error },
        }
    })
}

/// Which folder lies at a path in which nothing is a symbolic link: its inode. The number of its
/// device may be another one after a restart.
pub(super) fn identity(path: &Path) -> io::Result<String> {
    let stat = fstat(open_dir(path)?)?;
    Ok(stat.st_ino.to_string())
}

/// The permissions of something that git has made, of which these bits count.
fn mode_of(dir: &OwnedFd, name: &str, bits: u32) -> io::Result<Mode> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    Ok(Mode::from_raw_mode(statat(dir, name, flags)?.st_mode & bits))
}

/// Makes an empty file in a folder of git's, if there is nothing of that name, with the mode of
/// what git itself keeps there.
pub(super) fn make_file(dir: &Path, name: &str) -> Result<(), Error> {
    let make = |dir: OwnedFd| {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match openat(&dir, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(fchmod(file, mode_of(&dir, "HEAD", 0o666)?)?),
            Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    };
    let made = open_dir(dir).and_then(make);
    made.map_err(|error| Error::Io { path: dir.join(name), error })
}

fn walk(
    path: &Path,
    before: impl Fn(&OwnedFd, &std::ffi::OsStr) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, "/", flags, Mode::empty())?;
    for part in path.components() {
        if let Component::Normal(part) = part {
            before(&at, part)?;
            at = enter(at.as_fd(), part)?;
        }
    }
    Ok(at)
}

/// The files and folders in a folder, in order. Links, sockets and locks are left out.
pub(super) fn entries(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in readable(&open_dir(path)?)?.entries()? {
            let entry = entry?;
            let (kind, name) = (entry.file_type()?, entry.file_name());
            let is_lock = Path::new(&name).extension().is_some_and(|last| last == "lock");
            if (kind.is_dir() || kind.is_file()) && !is_lock {
                found.push(path.join(name));
            }
        }
        found.sort();
        Ok(found)
    };
    list().map_err(|error| Error::Io { path: path.to_owned(), error })
}

/// Whether there is a folder, and what of it: nothing, or something in it.
pub(super) fn is_empty_dir(path: &Path) -> io::Result<Option<bool>> {
    match open_dir(path) {
        Ok(dir) => Ok(Some(readable(&dir)?.entries()?.next().is_none())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What lies at a path on which no folder is a symbolic link; none if nothing does.
pub(super) fn kind_at(path: &Path) -> io::Result<Option<FileType>> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(None);
    };
    let found = open_dir(parent).and_then(|dir| Ok(statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?));
    match found {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(error) if error.kind() == io::ErrorKind::NotFound || is_in_the_way(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a folder with all that is in it, and follows no link. One that is not there is fine.
pub(super) fn remove_dir(path: &Path) -> Result<(), Error> {
    let failed = |error| Error::Io { path: path.to_owned(), error };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str()))
    else {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    };
    let parent = open_dir(parent).and_then(|parent| readable(&parent));
    match parent.and_then(|parent: Dir| remove_tree(&parent, name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(failed),
    }
}
