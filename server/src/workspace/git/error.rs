//! What can stand against a worktree; the texts are for the person who asked for it.

use std::path::PathBuf;

use super::RunError;

/// Why git did not do it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// git is not installed.
    #[error("git is not installed; install the package \"git\"")]
    GitMissing,
    /// The path leads to no repository.
    #[error("{path:?} is no git repository")]
    NotARepository {
        /// The path.
        path: PathBuf,
    },
    /// What is there is not the repository that the workspace was made of.
    #[error("{path:?} is not the repository any more that the workspace was made of")]
    Moved {
        /// Where it was.
        path: PathBuf,
    },
    /// The repository belongs to another user.
    #[error(
        "{path:?} belongs to another user than the daemon, so that its settings cannot be trusted; \
         run the daemon as that user, give all of it to the daemon's user with \"chown -R\", or \
         clone it and name the clone"
    )]
    NotOwned {
        /// The path.
        path: PathBuf,
    },
    /// Something in the repository is not for the daemon's user.
    #[error(
        "something in {path:?} belongs to another user than the daemon, or is kept from it: \
         {message}; give all of it to the daemon's user with \"chown -R\", or clone it and name \
         the clone"
    )]
    Denied {
        /// The repository.
        path: PathBuf,
        /// What git said.
        message: String,
    },
    /// The repository has something that a worktree of an agent cannot have.
    #[error("{path:?} cannot be used: {problem}")]
    Unsupported {
        /// The repository.
        path: PathBuf,
        /// What stands against it.
        problem: &'static str,
    },
    /// There is nothing to make a branch from.
    #[error("{path:?} has no commit yet; make one first")]
    NoCommits {
        /// The repository.
        path: PathBuf,
    },
    /// The name fits no branch.
    #[error("{branch:?} is no name for a branch")]
    BranchInvalid {
        /// The name.
        branch: String,
    },
    /// A new branch is to have the name of a remote-tracking one, which is hardly meant.
    #[error(
        "{branch:?} is a remote-tracking branch, which nobody works on; make one to choose with \
         \"git branch NAME {branch}\" in the repository"
    )]
    RemoteTracking {
        /// The name.
        branch: String,
    },
    /// Another worktree has the branch.
    #[error("the branch {branch:?} is checked out at {at:?}; choose another one")]
    BranchInUse {
        /// The branch.
        branch: String,
        /// Where.
        at: PathBuf,
    },
    /// There is something in the way of the worktree.
    #[error("{root:?} is not empty, and no worktree of {repository:?}")]
    RootTaken {
        /// Where the worktree was to be.
        root: PathBuf,
        /// The repository.
        repository: PathBuf,
    },
    /// There is work that removing the worktree would lose.
    #[error("there is work left in {root:?}; commit and push or merge it, or use force")]
    WorkLeft {
        /// The worktree.
        root: PathBuf,
        /// What it is.
        left: WorkLeft,
    },
    /// What git keeps about the worktree is not as git leaves it: who works there can write it.
    #[error("{path:?} is not as git leaves it ({problem}); look at it by hand, then use force")]
    Tampered {
        /// What is not.
        path: PathBuf,
        /// In what way.
        problem: &'static str,
    },
    /// There is something that git would wait for where it reads a file, or a way to elsewhere.
    #[error("{path:?} is {what}; remove it")]
    Special {
        /// The path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Objects could not be packed.
    #[error(
        "{path:?} is damaged, so that its objects cannot be packed, and an agent could change \
         them: {message}; \"git fsck\" there says what to mend, such as a branch that leads nowhere"
    )]
    Damaged {
        /// The repository.
        path: PathBuf,
        /// What git said.
        message: String,
    },
    /// git did not end, or could not be started.
    #[error("git {command}: {error}")]
    Run {
        /// What it was to do.
        command: String,
        /// Why it did not.
        error: RunError,
    },
    /// git said no.
    #[error("git {command} failed: {message}")]
    Failed {
        /// What it was to do.
        command: String,
        /// What it said.
        message: String,
    },
    /// The disk said no.
    #[error("{path:?}: {error}")]
    Io {
        /// Of what.
        path: PathBuf,
        /// What it said.
        error: std::io::Error,
    },
}

/// What removing a worktree would lose.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkLeft {
    /// Paths whose content is in no commit, at most [`super::MAX_LISTED`].
    pub uncommitted: Vec<String>,
    /// Commits, each as its short id and subject, that neither a remote-tracking branch nor
    /// another local branch has, at most [`super::MAX_LISTED`].
    pub unpushed: Vec<String>,
    /// Whether there is more than is listed.
    pub has_more: bool,
}

impl WorkLeft {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.uncommitted.is_empty() && self.unpushed.is_empty()
    }
}
