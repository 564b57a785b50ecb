//! Where the files of workspaces are.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::{
    Access as May, AtFlags, CWD, Mode, OFlags, accessat, chmod, fstat, mkdirat, openat,
};
use rustix::path::Arg;
use rustix::process::geteuid;

use super::alone::{LeftBehind, Locks};
use super::git::{Nobody, Run};
use super::room::{Boundless, Room};
use super::{Error, kernel};
use crate::model::{
    Access, LINK_IN_HOME, LINK_MISSING, LINK_NOT_A_FOLDER, LINK_UNREADABLE, Mount, Rejection,
    Source, WorkspaceId,
};

/// The files of all workspaces below one folder, and the host folders that they link.
#[derive(Debug, Clone)]
pub struct Files {
    /// The folder of all workspaces.
    root: PathBuf,
    /// The daemon's home, which no workspace may show.
    home: PathBuf,
    /// Its socket, if that lies elsewhere.
    socket: Option<PathBuf>,
    /// Runs git.
    pub(super) git: Arc<dyn Run>,
    /// Asked before something is written.
    pub(super) room: Arc<dyn Room>,
    /// Held while a workspace is made or removed.
    pub(super) alone: Locks,
    pub(super) left_behind: LeftBehind,
}

impl Files {
    /// Files of workspaces below `root`; `home` is the daemon's. Nobody runs git yet, and nobody
    /// knows limits.
    pub fn new(root: impl Into<PathBuf>, home: impl Into<PathBuf>) -> Self {
        let (git, room) = (Arc::new(Nobody), Arc::new(Boundless));
        let (root, home, alone) = (root.into(), home.into(), Locks::default());
        Self { root, home, socket: None, git, room, alone, left_behind: LeftBehind::default() }
    }

    /// The same, with somebody to run git.
    #[must_use]
    pub fn with_git(self, git: Arc<dyn Run>) -> Self {
        Self { git, ..self }
    }

    /// The same, with somebody who knows how much may be written.
    #[must_use]
    pub fn with_room(self, room: Arc<dyn Room>) -> Self {
        Self { room, ..self }
    }

    /// The absolute path of a folder on the host.
    pub fn path_of(&self, source: &Source) -> PathBuf {
        match source {
            Source::Workspaces(path) => self.root.join(path),
            Source::Host(path) => path.into(),
        }
    }

    /// The same, which refuses to show a socket of the daemon that lies outside of its home.
    #[must_use]
    pub fn hiding(self, socket: Option<&Path>) -> Self {
        // It need not be there yet.
        let real = |socket: &Path| {
            let socket = std::path::absolute(socket).ok()?;
            let folder = socket.parent()?.canonicalize().ok()?;
            Some(folder.join(socket.file_name()?))
        };
        Self { socket: socket.and_then(real), ..self }
    }

    /// Makes the folder of a workspace. One that is there is fine.
    pub fn create_root(&self, root: &str) -> io::Result<()> {
        self.open_root(root).map(drop)
    }

    /// Opens the root of a workspace, and makes it if it is not there. A symbolic link on the way
    /// is not followed: what lies between two roots belongs to agents.
    fn open_root(&self, root: &str) -> io::Result<Dir> {
        readable(&self.make_root(root)?)
    }

    /// Opens the root of a workspace as a place to start from.
    pub(super) fn make_root(&self, root: &str) -> io::Result<OwnedFd> {
        self.walk(root, true)
    }

    /// The same of a workspace that is there. Its folder was made with it, and somebody may look
    /// for what was in one that is gone: the log says that it is made anew.
    pub(super) fn reopen_root(&self, root: &str) -> io::Result<OwnedFd> {
        let whole = root.match_indices('/').nth(1).map_or(root, |(end, _)| &root[..end]);
        let is_gone =
            self.open_below(whole).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let opened = self.make_root(root)?;
        if is_gone {
            let folder = self.root.join(whole);
            tracing::warn!(
                folder = %folder.display(),
                "the folder of a workspace was not there any more; it is made anew, empty"
            );
        }
        Ok(opened)
    }

    /// Opens a folder below that of all workspaces as a place to start from.
    pub(super) fn open_below(&self, path: &str) -> io::Result<OwnedFd> {
        self.walk(path, false)
    }

    /// Goes from folder to folder, and opens again what is shut there: an agent that takes the
    /// rights from its root takes them from the daemon, and from all whose root lies in it.
    fn walk(&self, path: &str, made: bool) -> io::Result<OwnedFd> {
        let needed = if made { Mode::RWXU } else { Mode::RUSR | Mode::XUSR };
        let mut at = OwnedFd::from(self.all()?.into_std_file());
        for part in path.split('/').filter(|part| !part.is_empty()) {
            if made {
                match mkdirat(&at, part, Mode::RWXU) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            at = enter(&at, part)?;
            let_in(&at, needed)?;
        }
        Ok(at)
    }

    /// Moves the folder of a workspace that is gone to where nobody looks for one. By its name, the
    /// next daemon knows what this one does not get to remove. One that is not there is fine.
    pub(super) fn move_away(&self, id: WorkspaceId, root: &str) -> io::Result<()> {
        let top = if is_own(root) { folder_of(root) } else { root };
        let (parent, name) = top.rsplit_once('/').unwrap_or(("", top));
        let moved = self.open_below(parent).and_then(|parent| {
            // What an agent may not write, the daemon may.
            make_writable(&parent)?;
            make_writable(&enter(&parent, name)?)?;
            readable(&parent)?.rename(name, &self.all()?, removed_name(id))
        });
        match moved {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            moved => moved,
        }
    }

    /// Removes what was moved away, with all that is in it. What is linked is not touched: a link is
    /// no symbolic link, and symbolic links are removed, not followed.
    pub(super) fn remove_moved(&self, id: WorkspaceId) -> io::Result<()> {
        remove_busy(&self.all()?, &removed_name(id))
    }

    /// The folder of all workspaces.
    pub(super) fn folder(&self) -> &Path {
        &self.root
    }

    pub(super) fn all(&self) -> io::Result<Dir> {
        Dir::create_ambient_dir_all(&self.root, ambient_authority())?;
        Dir::open_ambient_dir(&self.root, ambient_authority())
    }

    /// Checks a host folder that is to be linked, and returns its path without symbolic links.
    ///
    /// # Errors
    ///
    /// [`Rejection::LinkForbidden`] for what is no folder, cannot be read, or would show the
    /// daemon's home.
    pub fn check_link(&self, host_path: &str) -> Result<String, Rejection> {
        let forbidden = |problem| Rejection::LinkForbidden { path: host_path.to_owned(), problem };
        self.check_folder(host_path).map_err(forbidden)
    }

    /// Checks a host folder of which agents are to see something, and returns its path without
    /// symbolic links, or what stands against it.
    pub fn check_folder(&self, host_path: &str) -> Result<String, &'static str> {
        if !Path::new(host_path).is_absolute() {
            return Err("it is not absolute");
        }
        let real = Path::new(host_path).canonicalize().map_err(|_| LINK_MISSING)?;
        if !real.is_dir() {
            return Err(LINK_NOT_A_FOLDER);
        }
        if let Some(problem) = self.shows_daemon(&real) {
            return Err(problem);
        }
        if !matches!(kernel::shown_by(&real), Ok(None)) {
            return Err("it shows a filesystem of the kernel, such as /proc or /sys");
        }
        // What processes in a sandbox can do with it is what the daemon's user can.
        let may = May::READ_OK | May::EXEC_OK;
        if accessat(CWD, real.as_path(), may, AtFlags::EACCESS).is_err() {
            return Err(LINK_UNREADABLE);
        }
        match real.into_os_string().into_string() {
            Ok(path) => Ok(path),
            Err(_) => Err("its name is not UTF-8"),
        }
    }

    /// What of the daemon a host folder would show, by its path without symbolic links.
    pub(super) fn shows_daemon(&self, real: &Path) -> Option<&'static str> {
        let home = self.home.canonicalize().unwrap_or_else(|_| self.home.clone());
        if real.starts_with(&home) || home.starts_with(real) {
            return Some(LINK_IN_HOME);
        }
        let shows_socket = self.socket.as_ref().is_some_and(|socket| socket.starts_with(real));
        shows_socket.then_some("it holds the daemon's socket")
    }

    /// Opens a folder that is shown, by the path at which it is seen. One that is missing in a
    /// workspace is made, if that may be written. Errors name the path that led to it.
    pub(super) fn open_mount(&self, mount: &Mount, at: &str, path: &str) -> Result<OwnedFd, Error> {
        let (writable, is_root) = (mount.access == Access::ReadWrite, at.is_empty());
        let opened = match &mount.source {
            // It had no symbolic links when it was linked; who put one there leads elsewhere.
            Source::Host(top) => openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                .map_err(io::Error::from)
                .and_then(|root| enter_all(root, top)),
            Source::Workspaces(root) if writable && (is_root || is_whole(root)) => {
                self.reopen_root(root)
            }
            Source::Workspaces(root) => self.open_below(root),
        };
        opened.map_err(Error::at(if is_root { "the workspace" } else { path }))
    }
}

/// How the name of a folder begins that is being removed.
pub(super) const REMOVED: &str = "removed-";

/// The name of the folder of a workspace that is being removed.
pub(super) fn removed_name(id: WorkspaceId) -> String {
    format!("{REMOVED}{id}")
}

/// The folder in which a root lies, which may be that of another workspace.
pub(super) fn folder_of(root: &str) -> &str {
    root.split('/').next().unwrap_or(root)
}

/// Whether a root, `<hex>/root` or `<hex>/<hex>`, lies in a folder that is its workspace's alone. That
/// of a child lies in the root of its parent.
pub(super) fn is_own(root: &str) -> bool {
    root.split_once('/').is_some_and(|(top, rest)| rest == "root" || rest == top)
}

/// Lets the daemon's user do all in a folder of its own. That of another user is left as it is.
fn make_writable(dir: &OwnedFd) -> io::Result<()> {
    let_in(dir, Mode::RWXU)
}

/// The same, where that user lacks a right that is needed.
fn let_in(dir: &OwnedFd, needed: Mode) -> io::Result<()> {
    give(dir, needed, Mode::RWXU)
}

/// Gives the daemon's user rights to what is its own, where it lacks one that is needed.
pub(super) fn give(to: &OwnedFd, needed: Mode, given: Mode) -> io::Result<()> {
    let stat = fstat(to)?;
    let mode = Mode::from_raw_mode(stat.st_mode);
    if !mode.contains(needed) && stat.st_uid == geteuid().as_raw() {
        // An open path has no other way to its mode. What it keeps anybody from says so itself.
        let _ = chmod(format!("/proc/self/fd/{}", to.as_raw_fd()), mode | given);
    }
    Ok(())
}

/// Opens a folder to remove what is in it.
fn open_up(dir: &OwnedFd) -> io::Result<Dir> {
    make_writable(dir)?;
    readable(dir)
}

/// How long who still writes in a folder that is being removed is waited for.
const BUSY: Duration = Duration::from_secs(10);

/// Removes a folder with all that is in it, also while somebody still writes in it for a while.
/// One that is gone is fine.
pub(super) fn remove_busy(parent: &Dir, name: &str) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match remove_tree(parent, name) {
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && enter(parent, name).is_err() =>
            {
                return Ok(());
            }
            Err(error) => {
                let is_busy = [io::ErrorKind::DirectoryNotEmpty, io::ErrorKind::NotFound];
                if !is_busy.contains(&error.kind()) || begun.elapsed() > BUSY {
                    return Err(error);
                }
                #[expect(clippy::disallowed_methods, reason = "who writes there tells nobody")]
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(()) => return Ok(()),
        }
    }
}

/// Whether this is the folder of a workspace that lies in no other one.
pub(super) fn is_whole(root: &str) -> bool {
    root.split('/').count() == 2
}

/// Opens a folder below another without following a symbolic link.
fn enter_all(top: impl AsFd, path: &str) -> io::Result<OwnedFd> {
    let mut at = enter(top, ".")?;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        at = enter(&at, part)?;
    }
    Ok(at)
}

pub(super) fn enter(dir: impl AsFd, name: impl Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(dir, name, flags, Mode::empty())?)
}

/// Enters a folder on the way to one that is shown. What agents shut in a workspace is opened again;
/// a folder of the host stays as its owner left it.
pub(super) fn enter_shown(shown: &Mount, at: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    if matches!(shown.source, Source::Workspaces(_)) {
        let_in(at, Mode::RUSR | Mode::XUSR)?;
    }
    enter(at, name)
}

pub(super) fn readable(dir: &OwnedFd) -> io::Result<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(Dir::from_std_file(openat(dir, ".", flags, Mode::empty())?.into()))
}

/// Makes the names in a folder durable.
pub(super) fn sync(dir: Dir) -> io::Result<()> {
    readable(&dir.into_std_file().into())?.into_std_file().sync_all()
}

/// Removes a folder with all that is in it. However deep it is, few files are open at once: what
/// lies deep is moved up before it is looked into.
pub(super) fn remove_tree(parent: &Dir, name: &str) -> io::Result<()> {
    let top = match enter(parent, name) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return parent.remove_file(name);
        }
        other => open_up(&other?)?,
    };
    loop {
        let mut is_empty = true;
        for entry in top.entries()? {
            is_empty = false;
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                let inner = open_up(&enter(&top, entry.file_name())?)?;
                flatten(&inner, &top)?;
                entry.remove_dir()?;
            } else {
                entry.remove_file()?;
            }
        }
        if is_empty {
            break;
        }
    }
    parent.remove_dir(name)
}

/// Empties a folder: removes its files, and moves its folders to another.
fn flatten(dir: &Dir, to: &Dir) -> io::Result<()> {
    for entry in dir.entries()? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            if entry.remove_dir().is_err() {
                make_writable(&enter(dir, entry.file_name())?)?;
                let name = format!(".{:032x}", rand::random::<u128>());
                dir.rename(entry.file_name(), to, name)?;
            }
        } else {
            entry.remove_file()?;
        }
    }
    Ok(())
}
