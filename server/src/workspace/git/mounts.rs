//! What a sandbox needs so that git works in it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{Error, Repository, admin, plain};
use crate::model::Access;

/// What git keeps about a worktree that leads it to a repository and to settings, and that it does
/// not change: git that runs outside believes it.
pub(super) const KEPT: [&str; 3] = ["commondir", "gitdir", "config.worktree"];

/// What a sandbox binds, each at the path it has on the host, and in this order: later ones lie
/// in earlier ones. A worktree names its repository by an absolute path.
///
/// The whole repository can be read. Written are new objects, what git keeps about this worktree,
/// and the branches in the folder of its own. That folder is the smallest thing that git can
/// update a branch in, since it replaces files: with the branch `a/b` all of `a/` is open, and
/// with a branch without a slash all branches are. Settings, hooks, packed references, packed
/// objects, tags and remote-tracking branches stay as they are.
///
/// [`Repository::prepare`] makes sure that the folders are there and that none is a link. It is
/// to be called before each start.
///
/// The common folder itself is none of them: git makes locks in it for things that it does not
/// change in the end, so a sandbox has an empty folder there, with all that lies in it bound.
///
/// # Errors
///
/// [`Error::Io`] if the repository cannot be listed.
pub fn sandbox_mounts(
    repository: &Repository,
    name: &str,
    branch: &str,
) -> Result<Vec<(PathBuf, Access)>, Error> {
    let common = &repository.common_dir;
    let mut mounts = Vec::new();
    for path in admin::entries(common)? {
        mounts.push((path, Access::ReadOnly));
    }
    mounts.extend(written(repository, name, branch));
    let kept = ["objects/pack", "objects/info"].map(|path| common.join(path));
    let admin = common.join("worktrees").join(name);
    let kept = kept.into_iter().chain(KEPT.map(|path| admin.join(path)));
    mounts.extend(kept.map(|path| (path, Access::ReadOnly)));
    Ok(mounts)
}

/// What can be written.
fn written(
    repository: &Repository,
    name: &str,
    branch: &str,
) -> impl Iterator<Item = (PathBuf, Access)> {
    let common = &repository.common_dir;
    let branches = folder_of(branch);
    let written = [
        common.join("objects"),
        common.join("worktrees").join(name),
        common.join("refs/heads").join(branches),
        common.join("logs/refs/heads").join(branches),
    ];
    // A path that ends in "" has a slash at its end, which is another path to a sandbox.
    written.into_iter().map(|path| (path.components().collect(), Access::ReadWrite))
}

/// The environment of git in a sandbox: nothing is tidied up or packed, since that would write
/// what is read-only there. `excludes` is a file of what it leaves out, if there is one.
pub fn sandbox_environment(excludes: Option<&str>) -> Vec<(OsString, OsString)> {
    let settings = [
        ("gc.auto", "0"),
        ("maintenance.auto", "false"),
        ("fetch.unpackLimit", "1000000"),
        ("core.logAllRefUpdates", "true"),
    ];
    let all = settings.into_iter().chain(excludes.map(|path| ("core.excludesFile", path)));
    let all: Vec<_> = all.map(|(key, value)| (key.into(), value.into())).collect();
    plain::as_variables(&all)
}

/// A file of what git leaves out (gitignore(5)): folders at these normal paths.
pub fn excludes<'a>(folders: impl Iterator<Item = &'a str>) -> String {
    folders.fold(String::new(), |mut text, folder| {
        text.push('/');
        for c in folder.chars() {
            match c {
                // A line cannot hold one; any letter fits in its place.
                '\n' | '\r' => text.push('?'),
                '\\' | '*' | '?' | '[' => text.extend(['\\', c]),
                c => text.push(c),
            }
        }
        text.push_str("/\n");
        text
    })
}

/// The folder of a branch, below that of all branches.
fn folder_of(branch: &str) -> &Path {
    Path::new(branch).parent().unwrap_or(Path::new(""))
}

impl Repository {
    /// Opens again what is the worktree's alone of what a sandbox binds for writing: who works there
    /// can shut it, to the daemon and to all who work there. What it shares with the repository
    /// stays as its owner left it.
    pub fn open_again(&self, name: &str, branch: &str) {
        let admin = self.common_dir.join("worktrees").join(name);
        let mut own = vec![(admin.join("logs"), "HEAD"), (admin.clone(), "index"), (admin, "HEAD")];
        if let Some((folder, last)) = branch.rsplit_once('/') {
            own.push((self.common_dir.join("refs/heads").join(folder), last));
            own.push((self.common_dir.join("logs/refs/heads").join(folder), last));
        }
        // The folder of the worktree before what lies in it.
        for (folder, file) in own.into_iter().rev() {
            // What cannot be opened is found by who needs it.
            let _ = admin::let_in(&folder, file);
        }
    }

    /// Makes the folders that a sandbox binds, where they are not there: git removes empty ones.
    ///
    /// # Errors
    ///
    /// [`Error::Tampered`] if one of them, or one above it, is a link.
    pub fn prepare(&self, name: &str, branch: &str) -> Result<(), Error> {
        for (path, _) in written(self, name, branch) {
            admin::make_dir(&path)?;
        }
        for path in ["objects/pack", "objects/info"] {
            admin::make_dir(&self.common_dir.join(path))?;
        }
        // Bound read-only, it cannot be replaced inside: references that were packed into a
        // private one would be gone.
        admin::make_file(&self.common_dir, "packed-refs")?;
        // Read where the repository has extensions.worktreeConfig, which may come later.
        admin::make_file(&self.common_dir.join("worktrees").join(name), "config.worktree")
    }
}
