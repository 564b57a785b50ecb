//! The home folder: whose it is, and that only one daemon has it.
#![allow(clippy::disallowed_methods, reason = "looks at the home before there is a disk in it")]

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

/// Why a home cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// It belongs to someone else.
    #[error(
        "{path} belongs to user {owner}, and this is user {own}; give a home of your own with --home"
    )]
    NotOwn {
        /// The home.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Who this is.
        own: u32,
    },
    /// Others can write to it.
    #[error("{path} can be written to by others (mode {mode:o}); run chmod 700 {path}")]
    Open {
        /// The home.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is no folder.
    #[error("{path} is not a folder; give a folder with --home")]
    NotAFolder {
        /// The home.
        path: PathBuf,
    },
    /// Every process of an agent would see it.
    #[error(
        "{path} is seen by every process of an agent, which is shown {}; give a home elsewhere with --home",
        .shown.display()
    )]
    Shown {
        /// The home.
        path: PathBuf,
        /// The folder that is shown.
        shown: PathBuf,
    },
    /// Another daemon has it.
    #[error("a daemon already runs on {path}{}; use it, stop it, or give another home with --home", .pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Taken {
        /// The home.
        path: PathBuf,
        /// The other daemon.
        pid: Option<u32>,
    },
    /// The Python Substrat still has it.
    #[error(
        "the Python Substrat still runs on {path}{}; stop it, and start again", .pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    TakenByPython {
        /// The home.
        path: PathBuf,
        /// Its daemon.
        pid: Option<u32>,
    },
    /// The system said something else.
    #[error("{path}: {error}")]
    Io {
        /// What was looked at.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
}

/// A home that this process has for itself, as long as this lives.
pub struct Home {
    path: PathBuf,
    /// How many folders were made when it was taken, the home and those above it.
    made: usize,
    _lock: File,
}

impl Home {
    /// Makes the home if it is not there, checks whose it is, and takes it.
    pub fn take(path: &Path, version: &str) -> Result<Self, HomeError> {
        let failed = |error| HomeError::Io { path: path.to_owned(), error };
        let whole = std::path::absolute(path).map_err(failed)?;
        let made = whole.ancestors().take_while(|folder| !folder.exists()).count();
        match fs::DirBuilder::new().mode(0o700).recursive(true).create(path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(HomeError::NotAFolder { path: path.to_owned() });
            }
            other => other.map_err(failed)?,
        }
        check(path)?;
        let path = path.canonicalize().map_err(failed)?;
        let lock = lock(&path, version)?;
        Ok(Self { path, made, _lock: lock })
    }

    /// Leaves nothing of a home that was made only to be refused.
    pub fn leave(self) {
        if self.made > 0 {
            // What cannot be removed is an empty folder, or somebody else's by now.
            let _ = fs::remove_file(self.path.join(LOCK));
        }
        for folder in self.path.ancestors().take(self.made) {
            let _ = fs::remove_dir(folder);
        }
    }

    /// Its absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps a daemon of the Python Substrat from this home for as long as what is returned lives.
    pub fn lock_out_python(&self) -> Result<File, HomeError> {
        let path = self.path.join("daemon.lock");
        let failed = |error| HomeError::Io { path: path.clone(), error };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(failed)?;
        let is_free = match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => true,
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => false,
            Err(error) => return Err(failed(error.into())),
        };
        // Versions that take no lock listen all the same.
        if is_free && UnixStream::connect(self.path.join("daemon.sock")).is_err() {
            return Ok(file);
        }
        let pid = fs::read_to_string(self.path.join("daemon.pid")).ok();
        let pid = pid.and_then(|text| text.trim().parse().ok());
        Err(HomeError::TakenByPython { path: self.path.clone(), pid })
    }
}

/// The path of a folder without symbolic links, if it is there.
pub(super) fn real(path: &str) -> Option<String> {
    Path::new(path).canonicalize().ok()?.into_os_string().into_string().ok()
}

/// The first line of a text file in a home, if there is one.
pub(super) fn first_line(home: &Path, file: &str) -> Option<String> {
    let text = fs::read_to_string(home.join(file)).ok()?;
    text.lines().next().map(|line| line.chars().take(400).collect())
}

fn check(path: &Path) -> Result<(), HomeError> {
    let failed = |error| HomeError::Io { path: path.to_owned(), error };
    let found = fs::metadata(path).map_err(failed)?;
    if !found.is_dir() {
        return Err(HomeError::NotAFolder { path: path.to_owned() });
    }
    let own = rustix::process::geteuid().as_raw();
    if found.uid() != own {
        return Err(HomeError::NotOwn { path: path.to_owned(), owner: found.uid(), own });
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(HomeError::Open { path: path.to_owned(), mode });
    }
    if mode & 0o077 != 0 {
        // Reading by others was possible; from here on it is not.
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// The file that is locked.
const LOCK: &str = "substratd.lock";
/// How long the lock of a daemon that is gone is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Takes the lock of a home, and writes into it who has it: process id and version. The lock goes
/// with the process, however that ends.
fn lock(home: &Path, version: &str) -> Result<File, HomeError> {
    let path = home.join(LOCK);
    let failed = |error| HomeError::Io { path: path.clone(), error };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(&path).map_err(failed)?;
    let patience = Instant::now() + PATIENCE;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => {}
            Err(error) => return Err(failed(error.into())),
        }
        let mut text = String::new();
        // What is not there or no text says nothing.
        let _ = file.rewind().and_then(|()| file.read_to_string(&mut text));
        let pid: Option<u32> = text.lines().next().and_then(|line| line.parse().ok());
        let is_gone = pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        if !is_gone || Instant::now() > patience {
            return Err(HomeError::Taken { path: home.to_owned(), pid });
        }
        // A child that it was just starting when it was killed holds the lock until it is another
        // program, and nothing tells of that.
        std::thread::sleep(Duration::from_millis(5));
    }
    let text = format!("{}\n{version}\n", std::process::id());
    file.set_len(0).map_err(failed)?;
    file.rewind().map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_taken_once_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/home");
        let home = Home::take(&path, "1").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        match Home::take(&path, "1").map(drop) {
            Err(HomeError::Taken { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(home);
        let home = Home::take(&path, "1").unwrap();
        home.leave();
        assert!(path.is_dir(), "it was there before");
    }

    #[test]
    fn a_home_that_was_made_only_to_be_refused_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/home");
        Home::take(&path, "1").unwrap().leave();
        assert!(!folder.path().join("deep").exists(), "nor what was made for it");
        Home::take(&folder.path().join("deep/other"), "1").unwrap();
        Home::take(&path, "1").unwrap().leave();
        assert!(!path.exists() && folder.path().join("deep/other").exists());
    }

    #[test]
    fn homes_that_others_can_write_to_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for mode in [0o777, 0o770] {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(Home::take(folder.path(), "1"), Err(HomeError::Open { .. })));
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Home::take(folder.path(), "1").unwrap();
        assert_eq!(fs::metadata(folder.path()).unwrap().mode() & 0o777, 0o700);
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(Home::take(&file, "1"), Err(HomeError::NotAFolder { .. })));
    }
}
