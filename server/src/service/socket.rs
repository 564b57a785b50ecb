//! Binding Unix sockets.
#![allow(clippy::disallowed_methods, reason = "sockets are no files of the journal")]

use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// Longest path that a socket address holds on Linux, its NUL not counted.
const MAX_PATH: usize = 107;

/// Binds a socket with a mode, in place of one that a dead process left. Whatever else stands
/// at the path is an error, and stays.
///
/// Where the path is too long for a socket, the socket is bound under the runtime folder, and the
/// path becomes a symbolic link to it: a client follows the link before it connects.
pub(super) fn bind(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let real = real_path(path)?;
    for place in [real.as_path(), path] {
        make_way(place).map_err(|error| naming(place, &error))?;
    }
    // 0600 from the start comes from the umask that the daemon sets.
    let listener = UnixListener::bind(&real).map_err(|error| naming(&real, &error))?;
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(mode))?;
    if real != path {
        symlink(&real, path).map_err(|error| naming(path, &error))?;
    }
    Ok(listener)
}

fn naming(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Removes a socket that nobody listens on any more, or a link to one.
fn make_way(path: &Path) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    let target = match found.file_type().is_symlink() {
        true => std::fs::read_link(path)?,
        false => path.to_owned(),
    };
    match std::fs::metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            let what = "something else than a socket is in its place; give another with --socket";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        Ok(_) if UnixStream::connect(&target).is_ok() => {
            let what = "another process listens there; give another with --socket";
            return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
        }
        // One that nobody answers on, or a link that leads nowhere.
        _ => {}
    }
    remove(path);
    Ok(())
}

fn real_path(path: &Path) -> io::Result<PathBuf> {
    if path.as_os_str().len() <= MAX_PATH {
        return Ok(path.to_owned());
    }
    let folder = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) => PathBuf::from(folder).join("substrat"),
        None => {
            let user = rustix::process::geteuid().as_raw();
            std::env::temp_dir().join(format!("substrat-{user}"))
        }
    };
    private_folder(&folder)?;
    let name = crc32fast::hash(path.as_os_str().as_encoded_bytes());
    Ok(folder.join(format!("{name:08x}.sock")))
}

/// Makes a folder that only its owner can use, or checks that it is one.
pub(super) fn private_folder(path: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => return other,
    }
    let found = std::fs::symlink_metadata(path)?;
    let own = found.uid() == rustix::process::geteuid().as_raw();
    if !found.is_dir() || !own || found.mode() & 0o077 != 0 {
        let what = format!("{} is not a folder of this user's own, mode 0700", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}

/// Removes a socket, and what a link to one leads to.
pub(super) fn remove(path: &Path) {
    if let Ok(real) = std::fs::read_link(path) {
        let _ = std::fs::remove_file(real);
    }
    // One that is not there is as good as removed.
    let _ = std::fs::remove_file(path);
}
