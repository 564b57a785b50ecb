//! Finding what a path of a file tool means: the same that a process in the sandbox would find.
//!
//! ```text
//!  normal path ─► the mount that it names ─► folder by folder ─► an open folder, and a name in it
//!                        ▲                        │
//!                        └── a path that ◄── a symbolic link
//!                            passes a mount
//! ```
//!
//! Each folder is opened from the one before without following a symbolic link, and links are read
//! and followed here. So the path of what is open is known, not guessed, and where it is that of a
//! mount, what is mounted is entered, not what it hides.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, mkdirat, openat, readlinkat, statat};
use rustix::io::Errno;

use super::files::enter;
use super::{Error, Files};
use crate::model::{Access, Mount, World, covers};

/// Most symbolic links that one path leads through, as in the kernel.
const MAX_LINKS: usize = 40;
/// Most folders that are opened for one path: links can lead up and down many times.
const MAX_STEPS: usize = 20_000;

/// What is done with a symbolic link at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    /// It is followed.
    Followed,
    /// It is what is meant.
    Meant,
}

/// What a path means.
pub(super) struct Place {
    /// The root of the mount in which it lies.
    pub(super) root: OwnedFd,
    /// The last folder on the way that is there.
    pub(super) dir: OwnedFd,
    /// Its path in the world, without symbolic links.
    pub(super) at: String,
    /// What follows: nothing if the path means the folder; folders that are missing, and a name.
    pub(super) rest: Vec<String>,
    /// The path within the mount, without symbolic links but for one that is meant.
    pub(super) path: String,
    pub(super) mount: Mount,
}

impl Place {
    /// Whether it may be written.
    pub(super) fn is_writable(&self) -> bool {
        self.mount.access == Access::ReadWrite
    }

    /// Whether it lies in a worktree as a whole.
    pub(super) fn is_worktree(&self) -> bool {
        self.mount.source.is_worktree()
    }

    /// Its path in the world, without symbolic links but for one that is meant.
    pub(super) fn seen_at(&self) -> String {
        self.rest.iter().fold(self.at.clone(), |at, part| join(&at, part))
    }

    /// The name in the last folder, if that folder is not meant itself.
    ///
    /// # Errors
    ///
    /// A folder on the way is missing.
    pub(super) fn name(&self) -> io::Result<Option<&str>> {
        match self.rest.as_slice() {
            [] => Ok(None),
            [name] => Ok(Some(name)),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Whether something is there.
    pub(super) fn is_there(&self) -> bool {
        match self.rest.as_slice() {
            [] => true,
            [name] => statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok(),
            _ => false,
        }
    }

    /// Opens the file that it is. A symbolic link that was put there meanwhile is not followed.
    pub(super) fn open(&self, flags: OFlags) -> io::Result<cap_std::fs::File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.dir, self.name()?.unwrap_or("."), flags, Mode::from(0o666))?;
        Ok(cap_std::fs::File::from_std(file.into()))
    }

    /// Makes the folders that are missing.
    pub(super) fn make_folders(&mut self) -> io::Result<()> {
        while self.rest.len() > 1 {
            let part = self.rest.remove(0);
            match mkdirat(&self.dir, &part, Mode::from(0o777)) {
                // Somebody else was faster.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            self.dir = enter(&self.dir, &part)?;
            self.at = join(&self.at, &part);
        }
        Ok(())
    }
}

impl Files {
    /// Finds what a normal path means in a world.
    pub(super) fn resolve(&self, world: &World, path: &str, last: Last) -> Result<Place, Error> {
        let (at, mount, rest) = mount_of(world, path).ok_or_else(|| missing(path))?;
        let root = self.open_mount(mount, at, path)?;
        let fd = enter(&root, ".").map_err(Error::at(path))?;
        let pending = rest.rsplit('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let (mounted, at) = (at.to_owned(), at.to_owned());
        let way = Way { files: self, world, path, mount, mounted, root, at, fd, pending, steps: 0 };
        way.walk(last)
    }
}

/// A path on the way to what it means.
struct Way<'a> {
    files: &'a Files,
    world: &'a World,
    /// The path as it was given, for errors.
    path: &'a str,
    mount: &'a Mount,
    /// Where that is seen.
    mounted: String,
    root: OwnedFd,
    /// The path of the open folder in the world.
    at: String,
    fd: OwnedFd,
    /// What is still to go, the next part last.
    pending: Vec<String>,
    steps: usize,
}

impl Way<'_> {
    fn walk(mut self, last: Last) -> Result<Place, Error> {
        let mut links = 0;
        while let Some(part) = self.pending.pop() {
            self.step()?;
            if part == ".." {
                self.go_up()?;
                continue;
            }
            let at = join(&self.at, &part);
            if self.world.mounts.contains_key(&at) {
                self.enter_mount(&at)?;
                continue;
            }
            let is_last = self.pending.is_empty();
            if is_last && last == Last::Meant {
                return Ok(self.place(vec![part]));
            }
            match look(&self.fd, &part) {
                Ok(Found::Folder(folder)) => (self.fd, self.at) = (folder, at),
                Ok(Found::Link(target)) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(self.says(Errno::LOOP.into()));
                    }
                    self.follow(&target)?;
                }
                Ok(Found::Other) if is_last => return Ok(self.place(vec![part])),
                Ok(Found::Other) => return Err(self.says(Errno::NOTDIR.into())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if let Some(rest) = self.miss(part)? {
                        return Ok(self.place(rest));
                    }
                }
                Err(error) => return Err(self.says(error)),
            }
        }
        Ok(self.place(Vec::new()))
    }

    fn place(self, rest: Vec<String>) -> Place {
        let seen = rest.iter().fold(self.at.clone(), |at, part| join(&at, part));
        let path = seen[self.mounted.len()..].trim_start_matches('/').to_owned();
        let (root, dir, at, mount) = (self.root, self.fd, self.at, self.mount.clone());
        Place { root, dir, at, rest, path, mount }
    }

    fn says(&self, error: io::Error) -> Error {
        Error::at(self.path)(error)
    }

    fn step(&mut self) -> Result<(), Error> {
        self.steps += 1;
        if self.steps > MAX_STEPS { Err(self.says(Errno::LOOP.into())) } else { Ok(()) }
    }

    /// Goes on in what is mounted at a path.
    fn enter_mount(&mut self, at: &str) -> Result<(), Error> {
        let mount = self.world.mounts.get(at).ok_or_else(|| missing(self.path))?;
        self.root = self.files.open_mount(mount, at, self.path)?;
        self.fd = enter(&self.root, ".").map_err(|error| self.says(error))?;
        (self.mount, self.mounted, self.at) = (mount, at.to_owned(), at.to_owned());
        Ok(())
    }

    /// Puts what a symbolic link says before what is still to go.
    fn follow(&mut self, target: &[u8]) -> Result<(), Error> {
        let target = std::str::from_utf8(target).ok().filter(|target| !target.starts_with('/'));
        let target = target.ok_or_else(|| Error::Outside { path: self.path.to_owned() })?;
        let parts = target.rsplit('/').filter(|part| !matches!(*part, "" | "."));
        self.pending.extend(parts.map(str::to_owned));
        Ok(())
    }

    /// Goes to the folder above, by its path: the open folder may have been moved.
    fn go_up(&mut self) -> Result<(), Error> {
        if self.at.is_empty() {
            return Err(Error::Outside { path: self.path.to_owned() });
        }
        let above = self.at.rsplit_once('/').map_or("", |(above, _)| above).to_owned();
        let (mounted, _, rest) = mount_of(self.world, &above).ok_or_else(|| missing(self.path))?;
        self.enter_mount(mounted)?;
        for part in rest.split('/').filter(|part| !part.is_empty()) {
            self.step()?;
            self.fd = enter(&self.fd, part).map_err(|error| self.says(error))?;
        }
        self.at = above;
        Ok(())
    }

    /// What is to be done where a part is missing: nothing more, then these parts are returned; or
    /// going on in a mount whose place was not made yet.
    fn miss(&mut self, part: String) -> Result<Option<Vec<String>>, Error> {
        let mut rest = vec![part];
        rest.extend(self.pending.drain(..).rev());
        if rest.iter().any(|part| part == "..") {
            return Err(missing(self.path));
        }
        let full = rest.iter().fold(self.at.clone(), |at, part| join(&at, part));
        match mount_of(self.world, &full) {
            Some((mounted, _, below)) if mounted != self.mounted => {
                let parts = below.rsplit('/').filter(|part| !part.is_empty());
                self.pending = parts.map(str::to_owned).collect();
                self.enter_mount(mounted)?;
                Ok(None)
            }
            _ => Ok(Some(rest)),
        }
    }
}

/// What a name is in a folder.
enum Found {
    Folder(OwnedFd),
    /// A symbolic link, and what it says.
    Link(Vec<u8>),
    Other,
}

fn look(dir: &OwnedFd, name: &str) -> io::Result<Found> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = openat(dir, name, flags, Mode::empty())?;
    match FileType::from_raw_mode(fstat(&found)?.st_mode) {
        FileType::Directory => Ok(Found::Folder(found)),
        // Of the link that is open, whatever has its name by now.
        FileType::Symlink => Ok(Found::Link(readlinkat(&found, "", Vec::new())?.into_bytes())),
        _ => Ok(Found::Other),
    }
}

/// The mount in which a normal path lies, where that is seen, and the path within it.
fn mount_of<'w, 'p>(world: &'w World, path: &'p str) -> Option<(&'w str, &'w Mount, &'p str)> {
    let (at, mount) = world.mounts.iter().rev().find(|(at, _)| covers(at, path))?;
    Some((at, mount, path[at.len()..].trim_start_matches('/')))
}

fn missing(path: &str) -> Error {
    Error::NotFound { path: path.to_owned() }
}

pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}
