//! The home of a session's processes: a folder of its own on the host, kept as long as the
//! session, in which a CLI keeps its conversation.

use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::model::SessionId;

/// Where the home of a session lies for a provider.
pub(super) fn path(folder: &Path, session: SessionId, provider: &str) -> PathBuf {
    folder.join(session.to_string()).join(provider)
}

/// Makes a home with these files in it. What a process made of a folder on the way is not
/// followed.
#[expect(clippy::disallowed_methods, reason = "beside the journal: none of it is the truth")]
pub(super) fn prepare(home: &Path, files: &[(String, String)]) -> io::Result<()> {
    private(home)?;
    for (path, text) in files {
        let path = place(home, path)?;
        // Whoever reads meanwhile has the old one or the new one.
        let part = path.with_extension("substrat");
        let _ = std::fs::remove_file(&part);
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
        io::Write::write_all(&mut file, text.as_bytes())?;
        std::fs::rename(&part, &path)?;
    }
    Ok(())
}

/// Makes an empty file on which another one can be mounted.
#[expect(clippy::disallowed_methods, reason = "beside the journal: none of it is the truth")]
pub(super) fn mount_point(home: &Path, path: &str) -> io::Result<()> {
    let path = place(home, path)?;
    match path.symlink_metadata() {
        Ok(found) if found.is_file() => return Ok(()),
        // Of a time without a sandbox.
        Ok(found) if found.is_symlink() => std::fs::remove_file(&path)?,
        Ok(_) => return Err(io::Error::other(format!("{} is no file", path.display()))),
        Err(_) => {}
    }
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
}

/// Removes the homes of a session.
#[expect(clippy::disallowed_methods, reason = "beside the journal: none of it is the truth")]
pub(crate) fn remove(folder: &Path, session: SessionId) -> io::Result<()> {
    let home = folder.join(session.to_string());
    let removed = std::fs::remove_dir_all(&home).or_else(|error| match error.kind() {
        // What an agent may not write, the daemon may.
        io::ErrorKind::PermissionDenied => {
            make_writable(&home)?;
            std::fs::remove_dir_all(&home)
        }
        _ => Err(error),
    });
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Lets the daemon's user do all in folders of its own. No link is followed.
fn make_writable(home: &Path) -> io::Result<()> {
    let mut folders = vec![home.to_owned()];
    while let Some(folder) = folders.pop() {
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700))?;
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}

/// Removes the homes of sessions that are not there any more: a daemon that was killed may not have
/// come to it.
pub(crate) fn sweep(folder: &Path, is_known: impl Fn(SessionId) -> bool) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let session = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(session) = session.filter(|session| !is_known(*session))
            && let Err(error) = remove(folder, session)
        {
            tracing::warn!(%session, %error, "the home of a session that is gone was not removed");
        }
    }
}

/// Makes a symbolic link to a file of the host, where there is no sandbox to show it.
#[expect(clippy::disallowed_methods, reason = "beside the journal: none of it is the truth")]
pub(super) fn link(home: &Path, path: &str, to: &Path) -> io::Result<()> {
    let path = place(home, path)?;
    // Of a time with a sandbox.
    if path.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() == 0) {
        std::fs::remove_file(&path)?;
    }
    match std::os::unix::fs::symlink(to, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// The path of a file of the home, the folder of which is made.
fn place(home: &Path, path: &str) -> io::Result<PathBuf> {
    let mut at = home.to_owned();
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    for folder in folders.split('/').filter(|folder| !folder.is_empty()) {
        at.push(folder);
        private(&at)?;
    }
    Ok(at.join(name))
}

/// Makes a folder that is nobody else's. One that is there is fine, and opened again if an agent shut
/// it; a symbolic link is not: an agent could have made it.
fn private(path: &Path) -> io::Result<()> {
    let made = std::fs::DirBuilder::new().mode(0o700).recursive(false).create(path);
    match made {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(above) = path.parent() {
                private(above)?;
            }
            private(path)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = path.symlink_metadata()?;
            if !found.is_dir() {
                return Err(io::Error::other(format!("{} is no folder", path.display())));
            }
            let mode = found.permissions().mode();
            match mode & 0o700 {
                0o700 => Ok(()),
                _ => std::fs::set_permissions(path, PermissionsExt::from_mode(mode | 0o700)),
            }
        }
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "looks at what was written")]
    fn a_home_is_private_and_no_link_of_an_agent_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let home = path(folder.path(), SessionId::from_u128(1), "cli");
        let files = [(".cli/settings.json".to_owned(), "{}".to_owned())];
        prepare(&home, &files).unwrap();
        prepare(&home, &files).unwrap();
        mount_point(&home, ".cli/key").unwrap();
        assert_eq!(std::fs::read_to_string(home.join(".cli/settings.json")).unwrap(), "{}");
        let outside = folder.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, home.join(".link")).unwrap();
        let files = [(".link/x".to_owned(), String::new())];
        assert!(prepare(&home, &files).is_err());
        assert!(mount_point(&home, ".link/x").is_err());
        assert_eq!(outside.read_dir().unwrap().count(), 0);
        // A link in the place of the file itself is replaced.
        let target = outside.join("target");
        std::fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, home.join("direct")).unwrap();
        prepare(&home, &[("direct".to_owned(), "new".to_owned())]).unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "kept");
        assert!(mount_point(&home, ".cli").is_err());
        for shut in [home.join(".cli"), home.clone()] {
            std::fs::set_permissions(shut, PermissionsExt::from_mode(0o000)).unwrap();
        }
        prepare(&home, &[(".cli/settings.json".to_owned(), "new".to_owned())]).unwrap();
        assert_eq!(std::fs::read_to_string(home.join(".cli/settings.json")).unwrap(), "new");
        assert_eq!(home.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        sweep(folder.path(), |session| session == SessionId::from_u128(1));
        assert!(home.is_dir());
        sweep(folder.path(), |_| false);
        assert!(!home.exists() && outside.exists());
    }
}
