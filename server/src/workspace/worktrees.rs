//! Workspaces that are worktrees of git repositories.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, openat, renameat_with, unlinkat};
use rustix::io::Errno;

use super::Files;
use super::copies;
use super::files::{
    REMOVED, folder_of, is_own, readable, remove_busy, remove_tree, removed_name, sync,
};
use super::git::{
    Error, Removed, Repository, Run, WorkLeft, Worktree, detached, excludes, sandbox_environment,
    sandbox_mounts,
};
use crate::model::{Access, Git, WorkspaceId};

/// What a sandbox binds so that git works in a worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitInside {
    /// The folder that git keeps everything in. It is a private one inside, so that git finds its
    /// place for locks.
    pub common_dir: PathBuf,
    /// Files and folders at their own paths, in this order: most lie in that folder.
    pub shown: Vec<(PathBuf, Access)>,
    /// Variables for git.
    pub env: Vec<(OsString, OsString)>,
    /// The file of what git leaves out, at the path that was asked for.
    pub excludes: Option<String>,
}

/// The repository of a worktree: by its own folder alone. Where `.git` in its top folder leads is
/// for whoever can write there to choose.
fn repository(run: &Arc<dyn Run>, git: &Git) -> Result<Repository, Error> {
    let known = Repository::known(run.clone(), Path::new(&git.common_dir), &git.identity)?;
    Ok(known.starting_at(git.start.as_deref()))
}

/// The worktree of a workspace: git names it by the last part of its root, which is the
/// workspace's id, so that no other one has the name.
fn worktree(git: &Git, root: &Path) -> Worktree {
    let name = root.file_name().map(|name| name.to_string_lossy().into_owned());
    Worktree {
        name: name.unwrap_or_default(),
        branch: git.branch.clone(),
        is_branch_new: git.created_branch,
    }
}

/// How far the making of a worktree came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// It was not begun.
    Not,
    /// It was cut off.
    InPart,
    /// To its end.
    Whole,
}

/// A file beside the root of a worktree that is being made.
const MARK: &str = "making";
/// One beside the root of a worktree that is being removed: its [`Git`] as JSON.
const REMOVING: &str = "removing";
/// How folders begin in which what lay where a worktree was cut off is kept.
const ASIDE: &str = "cut-off-";

/// A workspace whose folder a daemon that is gone was removing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HalfRemoved {
    /// The workspace.
    pub id: WorkspaceId,
    /// Its root.
    pub root: String,
    /// The worktree that it was.
    pub git: Git,
}

fn mark(root: &Path) -> PathBuf {
    root.with_file_name(MARK)
}

/// Whether its repository knows a worktree.
fn is_known(git: &Git, at: &Path) -> bool {
    Path::new(&git.common_dir).join("worktrees").join(worktree(git, at).name).exists()
}

/// Which branches of a worktree that was removed stay in its repository, in words.
pub(super) fn kept_in(git: &Git, kept: &[String]) -> Option<String> {
    let (branches, them) = match kept {
        [] => return None,
        [one] => (format!("branch {one}"), "it"),
        some => (format!("branches {}", some.join(", ")), "them"),
    };
    Some(format!("kept {branches} of {:?}; merge or delete {them} there", git.repo))
}

fn is_empty(folder: &Path) -> io::Result<bool> {
    let folder = Dir::open_ambient_dir(folder, ambient_authority())?;
    Ok(folder.entries()?.next().is_none())
}

/// Moves what lies where a worktree was cut off out of its way: it may be more than git left, and
/// goes with the workspace.
fn keep_aside(top: &OwnedFd, root: &Path) -> io::Result<()> {
    if is_empty(root).unwrap_or(true) {
        return Ok(());
    }
    let name = root.file_name().unwrap_or_default();
    for number in 1..=1000 {
        let aside = format!("{ASIDE}{number}");
        match renameat_with(top, name, top, &aside, RenameFlags::NOREPLACE) {
            Ok(()) => {
                tracing::warn!(root = %root.display(), aside, "moved aside what was cut off");
                return Ok(());
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("too many of them were cut off"))
}

impl Files {
    /// Looks at a repository that a workspace is to be a worktree of. Calls block, here and below.
    ///
    /// # Errors
    ///
    /// What git can say against it.
    pub fn check_repository(&self, repo: &str, branch: &str) -> Result<Git, Error> {
        let repository = Repository::open(self.git.clone(), Path::new(repo))?;
        repository.check_readable()?;
        let created_branch = !repository.has_branch(branch)?;
        if created_branch {
            repository.check_new_branch(branch)?;
        }
        let repo = repository.top().to_string_lossy().into_owned();
        let common_dir = repository.common_dir().to_string_lossy().into_owned();
        self.check_shown(&common_dir)?;
        let (branch, identity) = (branch.to_owned(), repository.identity()?);
        let start = repository.starts_at().filter(|_| created_branch).map(str::to_owned);
        Ok(Git { repo, branch, common_dir, identity, created_branch, start })
    }

    /// A sandbox is shown the folder that git keeps everything in, wherever that lies.
    fn check_shown(&self, common_dir: &str) -> Result<(), Error> {
        let checked = self.check_folder(common_dir).map(drop);
        checked.map_err(|problem| Error::Unsupported { path: common_dir.into(), problem })
    }

    /// Makes the worktree of a workspace. One that was made is left as it is, and one that was cut
    /// off is made anew.
    ///
    /// # Errors
    ///
    /// What git can say against it.
    pub fn add_worktree(&self, git: &Git, root: &str) -> Result<(), Error> {
        self.alone.alone(folder_of(root), || {
            if self.made(git, root) == Made::Whole {
                return Ok(());
            }
            let at = self.worktree_root(root)?;
            let repository = repository(&self.git, git)?;
            let (mark, name) = (mark(&at), worktree(git, &at).name);
            let failed = |error| Error::Io { path: mark.clone(), error };
            let top = self.make_root(folder_of(root)).map_err(failed)?;
            if mark.exists() {
                keep_aside(&top, &at).map_err(failed)?;
                repository.clear(&at, &worktree(git, &at))?;
            }
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = openat(&top, MARK, flags, Mode::RUSR | Mode::WUSR);
            made.map_err(|error| failed(error.into()))?;
            let made = Self::make_worktree(&repository, git, &at, &name);
            // It stays only where a kill cuts this off.
            let removed = unlinkat(&top, MARK, AtFlags::empty()).map_err(io::Error::from);
            let removed = removed.and_then(|()| readable(&top).and_then(sync));
            if made.is_ok() {
                self.drop_copies(root, &top, &at);
            }
            made.and(removed.map_err(failed))
        })
    }

    /// Removes what was set aside and is in the worktree as well: git had begun to write it.
    fn drop_copies(&self, root: &str, top: &OwnedFd, at: &Path) {
        for aside in self.aside(root) {
            let open = |path: &Path| Dir::open_ambient_dir(path, ambient_authority());
            let is_copy = open(&aside).and_then(|aside| copies::holds(&open(at)?, &aside));
            let name = aside.file_name().unwrap_or_default().to_string_lossy();
            if is_copy.unwrap_or(false)
                && let Err(error) = readable(top).and_then(|top| remove_tree(&top, &name))
            {
                tracing::warn!(?aside, %error, "what was set aside could not be removed");
            }
        }
    }

    fn make_worktree(
        repository: &Repository,
        git: &Git,
        at: &Path,
        name: &str,
    ) -> Result<(), Error> {
        if repository.add_worktree(at, &git.branch)?.name == name {
            return Ok(());
        }
        Err(Error::RootTaken { root: at.to_owned(), repository: PathBuf::from(&git.repo) })
    }

    /// How far the making of a worktree came. One that its owner removed was made: its repository
    /// knows it.
    pub fn made(&self, git: &Git, root: &str) -> Made {
        let Ok(at) = self.worktree_root(root) else { return Made::Whole };
        match is_empty(&at) {
            _ if mark(&at).exists() => Made::InPart,
            Ok(false) => Made::Whole,
            _ if is_known(git, &at) => Made::Whole,
            Err(error) if error.kind() != io::ErrorKind::NotFound => Made::Whole,
            Ok(true) | Err(_) => Made::Not,
        }
    }

    /// Waits for what is being made and removed, for so long at most, and cuts off the rest as a
    /// kill does: the next daemon finishes what it finds.
    pub fn finish(&self, patience: Duration) {
        if !self.alone.settle(patience) {
            tracing::warn!("cut off git, which makes or removes a worktree");
        }
        self.git.stop();
    }

    /// What would be lost with a worktree.
    ///
    /// # Errors
    ///
    /// What git can say against looking.
    pub fn work_left(&self, git: &Git, root: &str) -> Result<WorkLeft, Error> {
        let aside = self.aside(root);
        // An agent may have shut it. What is not there has no work in it.
        let _ = self.open_below(root);
        let root = self.worktree_root(root)?;
        let (repository, worktree) = (repository(&self.git, git)?, worktree(git, &root));
        repository.open_again(&worktree.name, &worktree.branch);
        let mut left = repository.work_left(&root, &worktree)?;
        left.uncommitted.extend(aside.into_iter().map(|path| path.to_string_lossy().into_owned()));
        Ok(left)
    }

    /// Folders in which what lay where a worktree was cut off is kept.
    pub fn aside(&self, root: &str) -> Vec<PathBuf> {
        let Ok(top) = self.worktree_root(folder_of(root)) else { return Vec::new() };
        let Ok(folder) = Dir::open_ambient_dir(&top, ambient_authority()) else {
            return Vec::new();
        };
        let names = folder.entries().into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let mut found: Vec<PathBuf> =
            names.filter(|name| name.starts_with(ASIDE)).map(|name| top.join(name)).collect();
        found.sort();
        found
    }

    /// Removes what a daemon that is gone was removing, and lists what it was removing of
    /// repositories. One that a workspace has is none, and one that resists keeps no other.
    pub fn half_removed(&self, is_used: impl Fn(&str) -> bool) -> io::Result<Vec<HalfRemoved>> {
        let all = self.all()?;
        let mut found = Vec::new();
        for entry in all.entries()? {
            let Ok(top) = entry?.file_name().into_string() else { continue };
            if top.starts_with(REMOVED) {
                if let Err(error) = remove_busy(&all, &top) {
                    tracing::error!(top, %error, "what was removed stays in part");
                }
                continue;
            }
            let record = self.folder().join(&top).join(REMOVING);
            if is_used(&top) || !record.is_file() {
                continue;
            }
            match (top.parse(), self.read_removal(&top)) {
                (Ok(id), Ok(git)) => {
                    found.push(HalfRemoved { id, root: format!("{top}/{top}"), git });
                }
                (_, Err(error)) => {
                    tracing::error!(?record, %error, "what was removed cannot be told");
                }
                (Err(_), Ok(_)) => tracing::error!(?record, "this is no workspace's"),
            }
        }
        Ok(found)
    }

    fn read_removal(&self, top: &str) -> io::Result<Git> {
        let folder = Dir::open_ambient_dir(self.folder().join(top), ambient_authority())?;
        Ok(serde_json::from_slice(&folder.read(REMOVING)?)?)
    }

    /// Removes the folder of a workspace, and what git knows of it. One that is gone is fine. One
    /// of a repository, and one in a folder, is removed at a time, so that who waits for it finds
    /// it gone. Returns what the repository still has of it, in words.
    ///
    /// # Errors
    ///
    /// What git or the disk said.
    pub fn remove_workspace(
        &self,
        id: WorkspaceId,
        root: &str,
        git: Option<&Git>,
    ) -> io::Result<Option<String>> {
        let Some(git) = git else {
            return self.alone.alone(&removed_name(id), || {
                // Another one may lie where a child did, which was moved away before.
                if is_own(root) {
                    self.move_away(id, root)?;
                }
                self.remove_moved(id).map(|()| None)
            });
        };
        self.alone.alone(folder_of(root), || {
            let is_known = self.worktree_root(root).is_ok_and(|at| is_known(git, &at));
            // What both lost was removed, or is for nobody to remove.
            if !self.is_there(root) && !is_known {
                return self.remove_moved(id).map(|()| self.left_behind.told(id, None));
            }
            if let Err(error) = self.mark_removal(git, root) {
                tracing::warn!(root, %error, "what is cut off now stays");
            }
            let removed = || self.remove_worktree(git, root);
            let left = match self.alone.alone(&git.common_dir, removed) {
                Ok(gone) => {
                    if !gone.kept.is_empty() {
                        tracing::info!(root, kept = ?gone.kept, "kept branches");
                    }
                    kept_in(git, &gone.kept)
                }
                // Its files go all the same; what the repository knows of it is its owner's to
                // mend.
                Err(error) => {
                    let next = self.rest(git, root);
                    tracing::error!(root, repo = git.repo, %error, next, "a worktree stays known");
                    Some(format!("its repository still knows the worktree: {error}; {next}"))
                }
            };
            self.move_away(id, root)?;
            let left = self.left_behind.told(id, left);
            self.remove_moved(id).map(|()| left)
        })
    }

    /// Begins to remove the folder of a workspace that is gone, in no time: from now on it is not
    /// found where it was, or the next daemon knows that it is to be removed.
    pub fn begin_removal(&self, id: WorkspaceId, root: &str, git: Option<&Git>) {
        let begun = match git {
            Some(git) => self.note_removal(git, root).map(drop),
            None => self.move_away(id, root),
        };
        if let Err(error) = begun {
            tracing::error!(root, %error, "the folder of a workspace that is gone stays for now");
        }
    }

    /// What its owner is to do about a worktree that git was not run for.
    fn rest(&self, git: &Git, root: &str) -> String {
        let prune = "\"git worktree unlock\" and \"git worktree prune\" there end it";
        let at = self.worktree_root(root).unwrap_or_default();
        match detached(Path::new(&git.common_dir), &worktree(git, &at).name) {
            // Nothing else may hold it.
            Some(commit) => format!(
                "\"git branch NAME {commit}\" there keeps what it had checked out, and then {prune}"
            ),
            None => prune.to_owned(),
        }
    }

    fn is_there(&self, root: &str) -> bool {
        self.folder().join(folder_of(root)).exists()
    }

    /// Has the next daemon remove what this one does not get to remove.
    fn mark_removal(&self, git: &Git, root: &str) -> io::Result<()> {
        let Some(top) = self.note_removal(git, root)? else { return Ok(()) };
        top.open(REMOVING)?.sync_all()?;
        sync(top)
    }

    /// The same as long as the machine runs. Returns the folder, if it is there.
    fn note_removal(&self, git: &Git, root: &str) -> io::Result<Option<Dir>> {
        if !self.is_there(root) {
            return Ok(None);
        }
        let top = self.folder().join(folder_of(root));
        let top = Dir::open_ambient_dir(top, ambient_authority())?;
        top.write(REMOVING, serde_json::to_vec(git)?)?;
        Ok(Some(top))
    }

    /// Removes a worktree whatever is in it; commits stay, on its branch.
    fn remove_worktree(&self, git: &Git, root: &str) -> Result<Removed, Error> {
        let at = self.worktree_root(root)?;
        repository(&self.git, git)?.remove_worktree(&at, &worktree(git, &at), true)
    }

    /// What a sandbox needs of the repository of a worktree. git leaves out what is mounted, at
    /// these paths; `at` is where it finds a file that says so.
    ///
    /// # Errors
    ///
    /// What git can say against it.
    pub fn git_inside(
        &self,
        git: &Git,
        root: &str,
        mounted: &[String],
        at: &str,
    ) -> Result<GitInside, Error> {
        let root = self.worktree_root(root)?;
        if mark(&root).exists() {
            let problem = "its worktree is still being made";
            return Err(Error::Unsupported { path: PathBuf::from(&git.repo), problem });
        }
        let (repository, worktree) = (repository(&self.git, git)?, worktree(git, &root));
        self.check_shown(&git.common_dir)?;
        repository.open_again(&worktree.name, &worktree.branch);
        repository.check_ways(&root, &worktree)?;
        let shown = sandbox_mounts(&repository, &worktree.name, &worktree.branch)?;
        let common_dir = repository.common_dir().to_owned();
        let folders = mounted.iter().map(String::as_str);
        let excludes = (!mounted.is_empty()).then(|| excludes(folders));
        let env = sandbox_environment(excludes.as_ref().map(|_| at));
        Ok(GitInside { common_dir, shown, env, excludes })
    }

    /// The real path of a root: git knows no other.
    fn worktree_root(&self, root: &str) -> Result<PathBuf, Error> {
        let at = |error| Error::Io { path: PathBuf::from(root), error };
        self.all().map_err(at)?;
        Ok(self.folder().canonicalize().map_err(at)?.join(root))
    }
}
