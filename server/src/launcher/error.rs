//! Why a process was not started.

use std::borrow::Cow;
use std::io;

use crate::model::{LinkPlace, Short};

/// Why a process was not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The sandbox is required, and cannot be had here.
    #[error("no process can be started without a sandbox here: {0}")]
    Unavailable(Unavailable),
    /// A folder that is to be seen is not there, or is something else.
    #[error("{} cannot be shown in the workspace: {problem}", Short(.path))]
    Mount {
        /// Where it was to be seen; empty for the root.
        path: String,
        /// What is wrong with it.
        problem: String,
        /// The link that shows it, if one does.
        link: Option<LinkPlace>,
    },
    /// It is to see more folders than can be shown.
    #[error("{count} folders cannot be shown in a workspace; {limit} can, links of views included")]
    TooManyMounts {
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// The command is not there, or cannot be run.
    #[error("{program:?} cannot be run in the workspace: {problem}")]
    Command {
        /// The program.
        program: String,
        /// What the system said.
        problem: String,
    },
    /// Making the sandbox failed.
    #[error("the sandbox could not be made: {step}: {problem}")]
    Setup {
        /// What was tried.
        step: String,
        /// What the system said.
        problem: String,
    },
}

impl Error {
    /// What to do next.
    pub fn hint(&self) -> Cow<'static, str> {
        if let Self::Mount { link: Some(link), .. } = self {
            return format!("put it right, or remove the link with {}", unlink(link)).into();
        }
        Cow::Borrowed(match self {
            Self::Unavailable(_) => {
                "mend that, or set sandbox.policy to \"preferred\" or \"off\" and let agents out"
            }
            Self::Mount { .. } => "put it right",
            Self::TooManyMounts { .. } => "remove links",
            Self::Command { .. } => {
                "a sandbox shows the host's /usr and the workspace; name a program of these, or \
                 add its folder to sandbox.system_paths"
            }
            Self::Setup { .. } => "try it again; if it stays, look at the daemon's log",
        })
    }

    /// The failure of a step.
    pub(super) fn step(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Setup { step: step.to_owned(), problem: error.to_string() }
    }
}

/// The command that removes a link, as it is typed.
fn unlink(LinkPlace { workspace, path }: &LinkPlace) -> String {
    let dashes = if path.starts_with('-') { "-- " } else { "" };
    // What does not fit on a line is looked up.
    let path = match path.len() <= 200 && !path.contains(char::is_control) {
        true => shell_words::quote(path),
        false => Cow::Borrowed("MOUNT_PATH"),
    };
    format!("\"substratctl workspace unlink {workspace} {dashes}{path}\"")
}

/// Why there is no sandbox, and what mends that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// bubblewrap is not installed.
    #[error("bubblewrap is not installed; install the package \"bubblewrap\"")]
    NotInstalled,
    /// It lacks an option that is needed.
    #[error(
        "{path} lacks an option that is needed; install bubblewrap 0.10 or newer, or the newest of \
         your distribution"
    )]
    TooOld {
        /// Which one was found.
        path: String,
    },
    /// It runs with the rights of root for ordinary users.
    #[error("{path} is setuid; remove that with \"chmod u-s {path}\"")]
    Setuid {
        /// Which one was found.
        path: String,
    },
    /// The kernel does not let this user make namespaces.
    #[error("user namespaces are not allowed: {0}")]
    Namespaces(&'static str),
    /// Something else.
    #[error("bubblewrap does not work here: {0}")]
    Broken(String),
}
