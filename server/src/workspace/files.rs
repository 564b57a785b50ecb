//! Where the files of workspaces are.

use std::io;
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirBuilder, DirBuilderExt};

use super::Error;
use crate::model::{Access, Rejection, Workspace};

/// The files of all workspaces below one folder, and the host folders that they link.
#[derive(Debug, Clone)]
pub struct Files {
    /// The folder of all workspaces.
    root: PathBuf,
    /// The daemon's home, which no workspace may show.
    home: PathBuf,
}

/// A place in a workspace: an open folder, and a path beneath it.
pub(super) struct Place {
    pub(super) dir: Dir,
    /// Relative to the folder; empty for the folder itself.
    pub(super) path: String,
    pub(super) writable: bool,
}

impl Files {
    /// Files of workspaces below `root`; `home` is the daemon's.
    pub fn new(root: impl Into<PathBuf>, home: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), home: home.into() }
    }

    /// The absolute path of a workspace's root.
    pub fn root_of(&self, workspace: &Workspace) -> PathBuf {
        self.root.join(&workspace.root)
    }

    /// Makes the folder of a workspace. One that is there is fine.
    pub fn create_root(&self, root: &str) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        self.all()?.create_dir_with(root, &builder)
    }

    /// Removes the folder of a workspace with all that is in it. What is linked is not touched: a
    /// link is no symbolic link, and symbolic links are removed, not followed.
    pub fn remove_root(&self, root: &str) -> io::Result<()> {
        let top = root.strip_suffix("/root").unwrap_or(root);
        match self.all()?.remove_dir_all(top) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn all(&self) -> io::Result<Dir> {
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
        let refuse = |problem| Rejection::LinkForbidden {
            path: host_path.chars().take(200).collect(),
            problem,
        };
        if !Path::new(host_path).is_absolute() {
            return Err(refuse("it is not absolute"));
        }
        let real = Path::new(host_path)
            .canonicalize()
            .map_err(|_| refuse("it does not exist or cannot be reached"))?;
        if !real.is_dir() {
            return Err(refuse("it is not a folder"));
        }
        let home = self.home.canonicalize().unwrap_or_else(|_| self.home.clone());
        if real.starts_with(&home) || home.starts_with(&real) {
            return Err(refuse("it holds, or lies in, the daemon's home"));
        }
        match real.into_os_string().into_string() {
            Ok(path) => Ok(path),
            Err(_) => Err(refuse("its name is not UTF-8")),
        }
    }

    /// Opens the folder that a normal path of a workspace lies in: a link's, or the root.
    pub(super) fn place(&self, workspace: &Workspace, path: &str) -> Result<Place, Error> {
        let link = workspace.links.iter().find_map(|(mount, link)| {
            let rest = path.strip_prefix(mount.as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then_some((link, rest))
        });
        if let Some((link, rest)) = link {
            let dir = Dir::open_ambient_dir(&link.host_path, ambient_authority())
                .map_err(Error::at(path))?;
            let writable = link.mode == Access::ReadWrite;
            return Ok(Place { dir, path: rest.trim_start_matches('/').to_owned(), writable });
        }
        self.create_root(&workspace.root).map_err(Error::at("the workspace"))?;
        let root = self.all().and_then(|all| all.open_dir(&workspace.root));
        let dir = root.map_err(Error::at("the workspace"))?;
        Ok(Place { dir, path: path.to_owned(), writable: true })
    }
}
