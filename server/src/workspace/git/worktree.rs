//! Worktrees: made, looked at, removed.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use rustix::fs::FileType;

use super::admin::{self, Admin};
use super::mounts::KEPT;
use super::parse::{self, Head};
use super::special;
use super::{Error, MAX_LISTED, Repository, WorkLeft, failed, is_not_owned};

/// A worktree, as whoever had it made remembers it. Its own files are no place to look it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worktree {
    /// Its name in the repository, which git chose.
    pub name: String,
    /// The branch that was made for it, or that it was made for.
    pub branch: String,
    /// Whether the branch was made with it.
    pub is_branch_new: bool,
}

/// What git says where it may not read or write what it is to pack.
const DENIED: [&str; 3] =
    ["Permission denied", "Operation not permitted", "insufficient permission"];
/// Most runs of git that pack some of the objects.
const MAX_RUNS: usize = 1000;

/// What became of a worktree's commits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removed {
    /// Branches that are kept since no other has their commits.
    pub kept: Vec<String>,
}

impl Repository {
    /// Makes a worktree at an absolute path, which may be an empty folder, on a branch that is
    /// made from `HEAD` if it is not there. A worktree of this repository that is there is fine.
    ///
    /// # Errors
    ///
    /// [`Error::BranchInvalid`], [`Error::BranchInUse`], [`Error::NoCommits`],
    /// [`Error::RootTaken`], or what git said.
    pub fn add_worktree(&self, root: &Path, branch: &str) -> Result<Worktree, Error> {
        if !parse::is_branch_name(branch) {
            return Err(Error::BranchInvalid { branch: branch.to_owned() });
        }
        if let Some(name) = self.name_at(root)? {
            return Ok(Worktree { name, branch: branch.to_owned(), is_branch_new: false });
        }
        let taken = || Error::RootTaken { root: root.to_owned(), repository: self.top.clone() };
        match admin::is_empty_dir(root) {
            Ok(Some(false)) => return Err(taken()),
            Ok(_) => {}
            Err(error) => return Err(Error::Io { path: root.to_owned(), error }),
        }
        special::clear_logs(&self.common_dir)?;
        self.check_readable()?;
        let is_new = self.commit_of(branch)?.is_none();
        if is_new && self.resolve(&self.start)?.is_none() {
            return Err(Error::NoCommits { path: self.top.clone() });
        }
        let known = parse::worktrees(&self.git(&["worktree", "list", "--porcelain", "-z"])?);
        let of_branch = |(_, of): &&(_, Option<String>)| of.as_deref() == Some(branch);
        let elsewhere = known.iter().filter(of_branch).find(|(path, _)| path != root);
        if let Some((at, _)) = elsewhere {
            return Err(Error::BranchInUse { branch: branch.to_owned(), at: at.clone() });
        }
        self.pack()?;
        let mut args: Vec<OsString> =
            ["worktree", "add", "--lock", "--reason", "a workspace"].map(OsString::from).to_vec();
        if known.iter().any(|(path, _)| path == root) {
            // Its folder was removed by hand; a lock needs to be told twice.
            args.extend(["-f", "-f"].map(OsString::from));
        }
        if is_new {
            args.extend(["--no-track", "-b", branch].map(OsString::from));
        }
        args.extend(["--".into(), root.into(), if is_new { &self.start } else { branch }.into()]);
        // Beside what it keeps, git writes there.
        let writes = root.parent().map(Path::to_owned).into_iter().collect();
        Self { writes, ..self.clone() }.git_long(&args)?;
        match self.name_at(root)? {
            Some(name) => {
                self.prepare(&name, branch)?;
                Ok(Worktree { name, branch: branch.to_owned(), is_branch_new: is_new })
            }
            None => Err(taken()),
        }
    }

    /// Removes what there is of a worktree whose making was cut off, and in which nobody was. Its
    /// branch stays.
    ///
    /// # Errors
    ///
    /// [`Error::Tampered`], or what the disk said.
    pub fn clear(&self, root: &Path, worktree: &Worktree) -> Result<(), Error> {
        admin::remove_dir(root)?;
        admin::remove(&self.common_dir, &worktree.name)
    }

    /// Packs loose objects: packed ones are read-only to who works in a worktree, loose ones are
    /// not.
    fn pack(&self) -> Result<(), Error> {
        let Err(error) = self.git_long(&["repack", "-d", "-l", "-q"]) else { return Ok(()) };
        let Error::Failed { message, .. } = error else { return Err(error) };
        if is_not_owned(&message) {
            return Err(Error::NotOwned { path: self.top.clone() });
        }
        if DENIED.iter().any(|said| message.contains(said)) {
            return Err(Error::Denied { path: self.top.clone(), message });
        }
        // That goes by the branches, of which one may lead nowhere. This takes what is there: what
        // one run packs, the next one removes.
        let run = ["maintenance", "run", "--quiet", "--task=loose-objects"];
        let mut before = usize::MAX;
        for _ in 0..MAX_RUNS {
            if self.try_git_long(&run)?.code != Some(0) {
                break;
            }
            let count = self.count_loose()?;
            if count == 0 {
                tracing::warn!(repo = ?self.top, message, "packed a repository that is damaged");
                return Ok(());
            }
            // The first run has removed nothing yet.
            if before != usize::MAX && count >= before {
                break;
            }
            before = count;
        }
        Err(Error::Damaged { path: self.top.clone(), message })
    }

    /// How many loose objects there are.
    fn count_loose(&self) -> Result<usize, Error> {
        let said = self.git(&["count-objects"])?;
        let count =
            said.split(|byte| *byte == b' ').next().and_then(|word| std::str::from_utf8(word).ok());
        Ok(count.and_then(|word| word.parse().ok()).unwrap_or(usize::MAX))
    }

    /// Makes sure that git finds nothing to wait for in the repository, its worktrees included.
    ///
    /// # Errors
    ///
    /// [`Error::Special`].
    pub fn check_readable(&self) -> Result<(), Error> {
        special::check_shared(&self.common_dir)?;
        special::check_worktrees(&self.common_dir)
    }

    /// The name of the worktree at a path, if both sides say that it is there.
    fn name_at(&self, root: &Path) -> Result<Option<String>, Error> {
        let Some(content) = admin::read_git_file(root) else {
            return Ok(None);
        };
        let folder = parse::git_file(&content);
        let folder = folder.filter(|at| at.parent() == Some(&self.common_dir.join("worktrees")));
        let Some(name) = folder.and_then(Path::file_name).and_then(OsStr::to_str) else {
            return Ok(None);
        };
        let Some(admin) = Admin::open(&self.common_dir, name)? else {
            return Ok(None);
        };
        let back = admin.read("gitdir")?.unwrap_or_default();
        let is_mutual = Path::new(parse::line(&back)) == root.join(".git");
        Ok(is_mutual.then(|| name.to_owned()))
    }

    /// Makes sure that what leads git from a worktree to its repository and back is as git made it,
    /// before that is shown for reading only.
    ///
    /// # Errors
    ///
    /// [`Error::Tampered`].
    pub fn check_ways(&self, root: &Path, worktree: &Worktree) -> Result<(), Error> {
        let Some(admin) = Admin::open(&self.common_dir, &worktree.name)? else {
            let path = self.common_dir.join("worktrees").join(&worktree.name);
            return Err(Error::Tampered { path, problem: "it is not there any more" });
        };
        admin.check_settings()?;
        self.prepare(&worktree.name, &worktree.branch)?;
        admin.check_sole(&KEPT)?;
        match self.name_at(root)? {
            Some(name) if name == worktree.name => Ok(()),
            _ => {
                let path = root.join(".git");
                Err(Error::Tampered { path, problem: "it does not lead to its repository" })
            }
        }
    }

    /// What would be lost with a worktree: what is in no commit or cannot be looked at, what a
    /// rebase or a merge has set aside, and commits of what is checked out and of its branch that
    /// no remote-tracking and no other local branch has. Commits that only a log of references
    /// names, such as amended ones, are no work left.
    ///
    /// Nobody may be at work there meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Tampered`] and [`Error::Special`] if git cannot be run on it safely, or what git
    /// said.
    pub fn work_left(&self, root: &Path, worktree: &Worktree) -> Result<WorkLeft, Error> {
        special::check_shared(&self.common_dir)?;
        let mut left = WorkLeft::default();
        let admin = Admin::open(&self.common_dir, &worktree.name)?;
        self.add_unpushed(&mut left, worktree, admin.as_ref())?;
        left.uncommitted = self.set_aside(admin.as_ref())?;
        let is_empty = admin::is_empty_dir(root);
        match is_empty.map_err(|error| Error::Io { path: root.to_owned(), error })? {
            None | Some(true) => return Ok(left),
            Some(false) => {}
        }
        let Some(admin) = admin else {
            let path = self.common_dir.join("worktrees").join(&worktree.name);
            return Err(Error::Tampered { path, problem: "it is not there any more" });
        };
        admin.check()?;
        special::check_worktree(&self.common_dir, &worktree.name)?;
        special::check_files(root)?;
        let status = ["status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal"];
        let status = [&status[..], &["--ignore-submodules=all"]].concat();
        let status = self.git_in(&worktree.name, root, &status)?;
        let staged = self.git_in(&worktree.name, root, &["ls-files", "-v", "--stage", "-z"])?;
        // A repository within is not looked into: its settings are an agent's.
        let within = parse::entries(&staged.stdout)
            .filter(parse::Entry::is_submodule)
            .filter(|entry| {
                matches!(admin::is_empty_dir(&root.join(entry.path)), Ok(Some(false)) | Err(_))
            })
            .map(|entry| format!("{} (a repository of its own)", shown(entry.path)));
        let hidden = self.hidden(&worktree.name, root, &staged.stdout)?;
        // git goes on where it may not look, and lists nothing of it.
        let unseen = parse::unseen(&status.stderr);
        let found = parse::status(&status.stdout).chain(within).chain(hidden).chain(unseen);
        left.uncommitted.extend(found);
        left.has_more |= status.is_cut || staged.is_cut || left.uncommitted.len() > MAX_LISTED;
        left.uncommitted.truncate(MAX_LISTED);
        Ok(left)
    }

    /// Changed files that `git status` leaves out since a flag in the index says so.
    fn hidden(&self, name: &str, root: &Path, staged: &[u8]) -> Result<Vec<String>, Error> {
        let (mut changed, mut compared) = (Vec::new(), Vec::new());
        for entry in parse::entries(staged).filter(parse::Entry::is_hidden) {
            match (admin::kind_at(&root.join(entry.path)), entry.path.to_str()) {
                (Ok(Some(FileType::RegularFile)), Some(path)) => compared.push((path, entry)),
                (Ok(Some(FileType::RegularFile | FileType::Symlink)) | Err(_), _) => {
                    changed.push(entry.path);
                }
                // A sparse checkout leaves files out.
                (Ok(_), _) => {}
            }
        }
        for some in compared.chunks(MAX_LISTED) {
            let mut args = vec!["hash-object", "--no-filters", "--"];
            args.extend(some.iter().map(|(path, _)| *path));
            let said = match self.git_in(name, root, &args) {
                Ok(output) => output.stdout,
                // One cannot be read, so that none can be compared.
                Err(Error::Failed { .. }) => Vec::new(),
                Err(error) => return Err(error),
            };
            let ids = said.split(|byte| *byte == b'\n').chain(std::iter::repeat(&b""[..]));
            let pairs = some.iter().zip(ids).filter(|((_, entry), id)| entry.id != *id);
            changed.extend(pairs.map(|((_, entry), _)| entry.path));
        }
        let told = |path: &Path| format!("{} (hidden from git's status by a flag)", shown(path));
        Ok(changed.into_iter().map(told).collect())
    }

    /// Changes that were in no commit when a rebase or a merge began which has stopped since.
    fn set_aside(&self, admin: Option<&Admin>) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        for commit in admin.map(Admin::autostashes).transpose()?.unwrap_or_default() {
            let commit = self.read_commit(&commit)?;
            let lines = self.only_in(&[commit], &[], 1)?;
            let told = |line: String| format!("{line} (set aside by a rebase or a merge)");
            found.extend(lines.into_iter().map(told));
        }
        Ok(found)
    }

    fn add_unpushed(
        &self,
        left: &mut WorkLeft,
        worktree: &Worktree,
        admin: Option<&Admin>,
    ) -> Result<(), Error> {
        let mut own = vec![worktree.branch.clone()];
        let mut tips: Vec<String> = self.tip_of(&worktree.branch)?.into_iter().collect();
        match admin.map(Admin::head).transpose()?.flatten() {
            Some(Head::Branch(branch)) if branch != worktree.branch => {
                tips.extend(self.tip_of(&branch)?);
                own.push(branch);
            }
            Some(Head::Commit(commit)) => tips.push(self.read_commit(&commit)?),
            Some(Head::Branch(_)) | None => {}
        }
        left.unpushed = self.only_in(&tips, &own, MAX_LISTED + 1)?;
        left.has_more |= left.unpushed.len() > MAX_LISTED;
        left.unpushed.truncate(MAX_LISTED);
        Ok(())
    }

    /// Commits of `tips` that neither a remote-tracking branch nor a local one beside `own` has.
    fn only_in(&self, tips: &[String], own: &[String], most: usize) -> Result<Vec<String>, Error> {
        if tips.is_empty() {
            return Ok(Vec::new());
        }
        let mut args = vec!["rev-list".to_owned(), "--no-commit-header".to_owned()];
        // Another branch that leads nowhere has none of them.
        args.push("--ignore-missing".to_owned());
        args.extend([format!("--max-count={most}"), "--format=%h %s".to_owned()]);
        args.extend(tips.iter().cloned());
        args.extend(["--not".to_owned(), "--remotes".to_owned()]);
        args.extend(own.iter().map(|branch| format!("--exclude={branch}")));
        args.push("--branches".to_owned());
        let output = self.git(&args)?;
        let lines = output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Ok(lines.map(parse::shown).collect())
    }

    /// Removes a worktree with all that is in it, and its branch if it was made with it and other
    /// branches have its commits. What was removed already is fine.
    ///
    /// With `force` neither is a commit lost that its branch or what is checked out has: the branch
    /// is kept, and what is checked out without one gets one. Those that only its logs of
    /// references name go with these, and so does what a rebase or a merge has set aside.
    ///
    /// # Errors
    ///
    /// Without `force`, [`Error::WorkLeft`] and [`Error::Tampered`]; what git or the disk said.
    pub fn remove_worktree(
        &self,
        root: &Path,
        worktree: &Worktree,
        force: bool,
    ) -> Result<Removed, Error> {
        if !force {
            let left = self.work_left(root, worktree)?;
            if !left.is_empty() {
                return Err(Error::WorkLeft { root: root.to_owned(), left });
            }
        }
        special::clear_logs(&self.common_dir)?;
        special::check_shared(&self.common_dir)?;
        let mut removed = Removed::default();
        removed.kept.extend(self.rescue(worktree)?);
        admin::remove_dir(root)?;
        admin::remove(&self.common_dir, &worktree.name)?;
        if worktree.is_branch_new && !self.delete_branch(&worktree.branch)? {
            removed.kept.push(worktree.branch.clone());
        }
        Ok(removed)
    }

    /// Gives a branch to commits that only a worktree's `HEAD` holds.
    fn rescue(&self, worktree: &Worktree) -> Result<Option<String>, Error> {
        let head = match Admin::open(&self.common_dir, &worktree.name) {
            Ok(admin) => admin.and_then(|admin| admin.head().ok().flatten()),
            // A link in its place names no commit, and is removed as a link.
            Err(Error::Tampered { path, .. }) if path.is_symlink() => None,
            Err(error) => return Err(error),
        };
        let Some(Head::Commit(commit)) = head else {
            return Ok(None);
        };
        let Some(commit) = self.resolve(&commit)? else {
            return Ok(None);
        };
        if self.only_in(std::slice::from_ref(&commit), &[], 1)?.is_empty() {
            return Ok(None);
        }
        let branch = format!("{}-{}", worktree.branch, &commit[..12]);
        // git would write through a link that stands in its place.
        admin::remove_dir(&self.common_dir.join("logs/refs/heads").join(&branch))?;
        self.git(&["update-ref", "--no-deref", &format!("refs/heads/{branch}"), &commit])?;
        Ok(Some(branch))
    }

    /// Deletes a branch whose commits others have. Returns whether it is gone.
    fn delete_branch(&self, branch: &str) -> Result<bool, Error> {
        let tip = match self.tip_of(branch) {
            Ok(Some(tip)) => tip,
            Ok(None) => return Ok(true),
            // It is there, whatever it has.
            Err(Error::Tampered { .. } | Error::Io { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let own = [branch.to_owned()];
        if !self.only_in(std::slice::from_ref(&tip), &own, 1)?.is_empty() {
            return Ok(false);
        }
        special::check_worktrees(&self.common_dir)?;
        let known = parse::worktrees(&self.git(&["worktree", "list", "--porcelain", "-z"])?);
        if known.iter().any(|(_, of)| of.as_deref() == Some(branch)) {
            return Ok(false);
        }
        // Only as it was looked at.
        let name = format!("refs/heads/{branch}");
        let deleted = self.try_git(&["update-ref", "--no-deref", "-d", &name, &tip])?;
        Ok(deleted.code == Some(0))
    }

    /// Whether there is a branch of this name.
    ///
    /// # Errors
    ///
    /// [`Error::BranchInvalid`], or what git said.
    pub fn has_branch(&self, branch: &str) -> Result<bool, Error> {
        if !parse::is_branch_name(branch) {
            return Err(Error::BranchInvalid { branch: branch.to_owned() });
        }
        Ok(self.commit_of(branch)?.is_some())
    }

    /// Refuses a name for a new branch that a remote-tracking one has: what is made of `HEAD` under
    /// that name would not be what the remote has.
    ///
    /// # Errors
    ///
    /// [`Error::RemoteTracking`], or what git said.
    pub fn check_new_branch(&self, branch: &str) -> Result<(), Error> {
        match self.resolve(&format!("refs/remotes/{branch}"))? {
            Some(_) => Err(Error::RemoteTracking { branch: branch.to_owned() }),
            None => Ok(()),
        }
    }

    /// The commit of a branch, if it has one.
    fn commit_of(&self, branch: &str) -> Result<Option<String>, Error> {
        self.resolve(&format!("refs/heads/{branch}"))
    }

    /// The commit of a branch; none only if there is no such branch. git says the same of one that
    /// it may not read.
    fn tip_of(&self, branch: &str) -> Result<Option<String>, Error> {
        if let Some(tip) = self.commit_of(branch)? {
            return Ok(Some(tip));
        }
        let name = format!("refs/heads/{branch}");
        let path = self.common_dir.join(&name);
        let is_packed = self.try_git(&["rev-parse", "-q", "--verify", &name])?.code == Some(0);
        match admin::kind_at(&path) {
            // A folder holds other branches.
            Ok(None | Some(FileType::Directory)) if !is_packed => Ok(None),
            Ok(_) => Err(Error::Tampered { path, problem: "it names no commit that can be read" }),
            Err(error) => Err(Error::Io { path, error }),
        }
    }

    /// A commit that something of a worktree names, which has to be there.
    fn read_commit(&self, commit: &str) -> Result<String, Error> {
        self.resolve(commit)?.ok_or_else(|| Error::Failed {
            command: "rev-parse".to_owned(),
            message: format!("the commit {commit} cannot be read; \"git fsck\" says more"),
        })
    }

    pub(super) fn resolve(&self, name: &str) -> Result<Option<String>, Error> {
        let commit = format!("{name}^{{commit}}");
        let output = self.try_git(&["rev-parse", "-q", "--verify", &commit])?;
        let id = parse::line(&output.stdout).to_str().filter(|id| parse::is_object_id(id));
        match output.code {
            Some(0) => Ok(id.map(str::to_owned)),
            // How it says that there is none.
            Some(1) => Ok(None),
            _ => Err(failed("rev-parse", &output)),
        }
    }
}

fn shown(path: &Path) -> String {
    parse::shown(path.as_os_str().as_encoded_bytes())
}
