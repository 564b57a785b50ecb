//! Worktrees of git repositories as roots of workspaces.
//!
//! Everything below the root of a worktree is written by an agent, and so is most of what git
//! keeps about it in the repository. git that runs outside of a sandbox therefore is told by hand
//! where the repository lies ([`Repository`] finds it before an agent is there), has every setting
//! that names a program overridden (`plain`), and is kept from looking into repositories within
//! the worktree. What git would have to believe the worktree for is done here: to find out what
//! is checked out, and to remove it (`admin`). `docs/git-workspaces.md` is for users.

mod admin;
mod error;
mod mounts;
mod parse;
mod plain;
mod run;
mod special;
#[cfg(test)]
mod tests;
mod worktree;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use error::{Error, WorkLeft};
pub use mounts::{excludes, sandbox_environment, sandbox_mounts};
#[cfg(test)]
pub(crate) use run::Direct;
pub use run::{Command, Nobody, Output, Run, RunError};
pub use worktree::{Removed, Worktree};

/// Most paths, and most commits, that [`WorkLeft`] lists.
pub const MAX_LISTED: usize = 100;

/// How long git may take to write a worktree.
const LONG: Duration = Duration::from_secs(600);
/// How long it may take for anything else.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of git's output that are looked at.
const MAX_OUTPUT: usize = 4 << 20;

/// What is checked out.
const HEAD: &str = "HEAD";

/// The commit that a worktree has checked out without a branch, as it says itself.
pub fn detached(common_dir: &Path, name: &str) -> Option<String> {
    match admin::Admin::open(common_dir, name).ok()??.head().ok()?? {
        parse::Head::Commit(commit) => Some(commit),
        parse::Head::Branch(_) => None,
    }
}

/// A git repository.
#[derive(Clone)]
pub struct Repository {
    run: Arc<dyn Run>,
    /// Where programs are found.
    path: Option<OsString>,
    top: PathBuf,
    git_dir: PathBuf,
    common_dir: PathBuf,
    /// What new branches are made from.
    start: String,
    /// Folders that git may write in beside the common one.
    writes: Vec<PathBuf>,
    /// What takes the power from its own filters.
    overrides: Vec<plain::Setting>,
}

impl Repository {
    /// Finds the repository that a folder lies in. One without files of its own is fine.
    ///
    /// # Errors
    ///
    /// [`Error::NotARepository`], [`Error::NotOwned`], [`Error::Unsupported`] for what it cannot
    /// have, [`Error::GitMissing`], or what git said.
    pub fn open(run: Arc<dyn Run>, path: &Path) -> Result<Self, Error> {
        let found = path.canonicalize().ok().filter(|path| path.is_dir());
        let Some(real) = found else {
            return Err(Error::NotARepository { path: path.to_owned() });
        };
        special::check_way(&real)?;
        let mut repository = Self {
            run,
            path: std::env::var_os("PATH"),
            top: real.clone(),
            git_dir: PathBuf::new(),
            common_dir: PathBuf::new(),
            start: HEAD.to_owned(),
            writes: Vec::new(),
            overrides: Vec::new(),
        };
        repository.git_dir = repository.ask(&real, "--absolute-git-dir")?;
        repository.common_dir = repository.ask(&real, "--git-common-dir")?;
        if repository.ask(&real, "--is-inside-work-tree")? == Path::new("true") {
            repository.top = repository.ask(&real, "--show-toplevel")?;
        } else {
            repository.top = repository.common_dir.clone();
        }
        let real = |path: &Path| {
            let real = path.canonicalize();
            real.map_err(|error| Error::Io { path: path.to_owned(), error })
        };
        repository.git_dir = real(&repository.git_dir)?;
        repository.common_dir = real(&repository.common_dir)?;
        repository.top = real(&repository.top)?;
        repository.read_settings()?;
        repository.check_objects()?;
        if repository.git_dir != repository.common_dir {
            // Of a worktree, what that has checked out is meant.
            repository.start = repository.resolve(HEAD)?.unwrap_or_else(|| HEAD.to_owned());
        }
        Ok(repository)
    }

    /// Opens a repository that was found before, by its folder, which must be the same one.
    ///
    /// # Errors
    ///
    /// [`Error::Moved`] if it is another one or not there, or what git said.
    pub fn known(run: Arc<dyn Run>, common_dir: &Path, identity: &str) -> Result<Self, Error> {
        let mut repository = Self {
            run,
            path: std::env::var_os("PATH"),
            top: common_dir.to_owned(),
            git_dir: common_dir.to_owned(),
            common_dir: common_dir.to_owned(),
            start: HEAD.to_owned(),
            writes: Vec::new(),
            overrides: Vec::new(),
        };
        match admin::identity(common_dir) {
            Ok(found) if found == identity => {}
            _ => return Err(Error::Moved { path: common_dir.to_owned() }),
        }
        repository.read_settings()?;
        Ok(repository)
    }

    /// Makes branches from a commit; from what is checked out without one.
    #[must_use]
    pub fn starting_at(self, commit: Option<&str>) -> Self {
        Self { start: commit.unwrap_or(HEAD).to_owned(), ..self }
    }

    /// The commit that branches are made from, if that is not what the repository has checked out.
    pub fn starts_at(&self) -> Option<&str> {
        Some(&*self.start).filter(|start| *start != HEAD)
    }

    /// A sandbox is shown the objects of the one repository.
    fn check_objects(&self) -> Result<(), Error> {
        if !self.common_dir.join("objects/info/alternates").exists() {
            return Ok(());
        }
        let problem = "some of its objects lie in another repository, which a sandbox does not \
                       show; \"git repack -ad\" there, and then remove objects/info/alternates";
        Err(Error::Unsupported { path: self.top.clone(), problem })
    }

    /// Which folder it is: the inode of the one that git keeps everything in.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it is not there.
    pub fn identity(&self) -> Result<String, Error> {
        let path = self.common_dir.clone();
        admin::identity(&path).map_err(|error| Error::Io { path, error })
    }

    /// The top folder of its files; of a repository without, where it lies.
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// The folder that all its worktrees share: objects, branches and settings.
    pub fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// Asks git about the repository that a folder lies in.
    fn ask(&self, folder: &Path, what: &str) -> Result<PathBuf, Error> {
        let args = ["rev-parse", "--path-format=absolute", what].map(OsString::from);
        let output = self.start(folder, args.to_vec(), None, TIMEOUT)?;
        if output.code == Some(0) {
            return Ok(PathBuf::from(parse::line(&output.stdout)));
        }
        let path = folder.to_owned();
        let message = String::from_utf8_lossy(&output.stderr);
        if is_not_owned(&message) {
            return Err(Error::NotOwned { path });
        }
        if message.contains("not a git repository") {
            return Err(Error::NotARepository { path });
        }
        Err(failed(what, &output))
    }

    fn read_settings(&mut self) -> Result<(), Error> {
        let output = self.git(&["config", "--list", "-z", "--includes"])?;
        let unsupported = |problem| Err(Error::Unsupported { path: self.top.clone(), problem });
        for (key, value) in parse::settings(&output) {
            let value = value.unwrap_or(b"true").to_ascii_lowercase();
            match key {
                b"extensions.worktreeconfig" if !is_false(&value) => {
                    return unsupported(
                        "extensions.worktreeConfig is on, with which an agent could change the \
                         settings of its own worktree; where no file config.worktree holds \
                         anything that matters, \"git config --unset extensions.worktreeConfig\" \
                         there turns it off",
                    );
                }
                b"extensions.refstorage" if value != b"files" => {
                    return unsupported("its branches are not stored in files");
                }
                _ => {}
            }
        }
        self.overrides = plain::without_filters(parse::settings(&output).map(|(key, _)| key));
        Ok(())
    }

    /// Runs git on the repository, and returns what it wrote.
    fn git<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Vec<u8>, Error> {
        let output = self.try_git(args)?;
        match output.code {
            Some(0) => Ok(output.stdout),
            _ => Err(failed(&command_of(args), &output)),
        }
    }

    /// The same, which may take long.
    fn git_long<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Vec<u8>, Error> {
        let output = self.try_git_long(args)?;
        match output.code {
            Some(0) => Ok(output.stdout),
            _ => Err(failed(&command_of(args), &output)),
        }
    }

    /// Runs git on the repository; that it fails is an answer.
    fn try_git<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Output, Error> {
        self.run_git(args, TIMEOUT)
    }

    /// The same, which may take long.
    fn try_git_long<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Output, Error> {
        self.run_git(args, LONG)
    }

    fn run_git<S: AsRef<OsStr>>(&self, args: &[S], timeout: Duration) -> Result<Output, Error> {
        let mut all = vec![plain::flag("--git-dir", &self.git_dir)];
        all.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        self.start(&self.common_dir, all, Some(&self.common_dir), timeout)
    }

    /// Runs git on a worktree, whose own files have been checked.
    fn git_in(&self, name: &str, root: &Path, args: &[&str]) -> Result<Output, Error> {
        let admin = self.common_dir.join("worktrees").join(name);
        let mut all = vec![plain::flag("--git-dir", &admin), plain::flag("--work-tree", root)];
        all.extend(args.iter().map(OsString::from));
        let output = self.start(root, all, Some(&self.common_dir), TIMEOUT)?;
        match output.code {
            Some(0) => Ok(output),
            _ => Err(failed(&command_of(args), &output)),
        }
    }

    fn start(
        &self,
        cwd: &Path,
        args: Vec<OsString>,
        common_dir: Option<&Path>,
        timeout: Duration,
    ) -> Result<Output, Error> {
        let command = Command {
            program: "git".into(),
            args,
            env: plain::environment(self.path.as_deref(), &self.overrides, common_dir),
            cwd: cwd.to_owned(),
            writes: common_dir.map(Path::to_owned).into_iter().chain(self.writes.clone()).collect(),
            timeout,
            max_output: MAX_OUTPUT,
        };
        self.run.run(&command).map_err(|error| match error {
            RunError::Missing => Error::GitMissing,
            error => Error::Run { command: command_of(&command.args), error },
        })
    }
}

/// The words of a command that say what it does.
fn command_of<S: AsRef<OsStr>>(args: &[S]) -> String {
    let mut words = args.iter().map(|arg| arg.as_ref().to_string_lossy());
    words.find(|word| !word.starts_with('-')).map(|word| word.into_owned()).unwrap_or_default()
}

fn failed(command: &str, output: &Output) -> Error {
    let message = parse::shown(output.stderr.trim_ascii());
    Error::Failed { command: command.to_owned(), message }
}

/// Whether git refuses a repository of another user; the second is how git 2.36 says it.
fn is_not_owned(message: &str) -> bool {
    ["dubious ownership", "is owned by someone else"].iter().any(|said| message.contains(said))
}

/// Whether git reads a value as false.
fn is_false(value: &[u8]) -> bool {
    matches!(value, b"false" | b"no" | b"off" | b"0" | b"")
}
