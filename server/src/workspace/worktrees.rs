//! Workspaces that are worktrees of git repositories.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Files;
use super::git::{
    Error, Removed, Repository, Run, WorkLeft, Worktree, excludes, sandbox_environment,
    sandbox_mounts,
};
use crate::model::{Access, Git};

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
    Repository::known(run.clone(), Path::new(&git.common_dir), &git.identity)
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
        let repo = repository.top().to_string_lossy().into_owned();
        let common_dir = repository.common_dir().to_string_lossy().into_owned();
        let (branch, identity) = (branch.to_owned(), repository.identity()?);
        Ok(Git { repo, branch, common_dir, identity, created_branch })
    }

    /// Makes the worktree of a workspace. One that is there is fine.
    ///
    /// # Errors
    ///
    /// What git can say against it.
    pub fn add_worktree(&self, git: &Git, root: &str) -> Result<(), Error> {
        let root = self.worktree_root(root)?;
        let made = repository(&self.git, git)?.add_worktree(&root, &git.branch)?;
        match made.name == worktree(git, &root).name {
            true => Ok(()),
            false => Err(Error::RootTaken { root, repository: PathBuf::from(&git.repo) }),
        }
    }

    /// What would be lost with a worktree.
    ///
    /// # Errors
    ///
    /// What git can say against looking.
    pub fn work_left(&self, git: &Git, root: &str) -> Result<WorkLeft, Error> {
        let root = self.worktree_root(root)?;
        repository(&self.git, git)?.work_left(&root, &worktree(git, &root))
    }

    /// Removes the folder of a workspace, and what git knows of it. One that is gone is fine. One
    /// of a repository, and one in a folder, is removed at a time, so that who waits for it finds
    /// it gone. Returns what the repository still knows of it, in words.
    ///
    /// # Errors
    ///
    /// What git or the disk said.
    pub fn remove_workspace(&self, root: &str, git: Option<&Git>) -> io::Result<Option<String>> {
        // The roots of children lie in that of their parent. No name of a folder has a slash.
        let folder = root.split('/').next().unwrap_or(root);
        let removed = || self.removing.alone(folder, || self.remove_root(root));
        let Some(git) = git else { return removed().map(|()| None) };
        self.removing.alone(&git.common_dir, || {
            let left = match self.remove_worktree(git, root) {
                Ok(gone) => {
                    if !gone.kept.is_empty() {
                        tracing::info!(root, kept = ?gone.kept, "kept branches");
                    }
                    None
                }
                // Its files go all the same; what the repository knows of it is its owner's to
                // mend.
                Err(error) => {
                    let next = "\"git worktree unlock\" and \"git worktree prune\" there end it";
                    tracing::error!(root, repo = git.repo, %error, next, "a worktree stays known");
                    Some(format!("its repository still knows the worktree: {error}; {next}"))
                }
            };
            removed().map(|()| left)
        })
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
        let (repository, worktree) = (repository(&self.git, git)?, worktree(git, &root));
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
