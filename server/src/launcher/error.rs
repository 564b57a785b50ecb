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
    /// The command or its folder is not there, or cannot be used.
    #[error("{program:?} cannot be run in the workspace: {problem}")]
    Command {
        /// The program.
        program: String,
        /// What the system said.
        problem: String,
        /// Whether it is a problem of the folder that it was to run in.
        of_folder: bool,
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
        match self {
            Self::Mount { link: Some(link), .. } => {
                return format!("put it right, or remove the link with {}", unlink(link)).into();
            }
            Self::Command { program, of_folder: false, .. } if program.contains(' ') => {
                return separate(program).into();
            }
            _ => {}
        }
        Cow::Borrowed(match self {
            Self::Unavailable(_) => {
                "mend that, or set sandbox.policy to \"preferred\" or \"off\" and let agents out"
            }
            Self::Mount { .. } => "put it right",
            Self::TooManyMounts { .. } => "remove links",
            Self::Command { of_folder: true, .. } => {
                "name a folder that is there in the workspace, or make it first"
            }
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
    format!("\"substratctl workspace unlink {workspace} {dashes}{}\"", typed(path, "MOUNT_PATH"))
}

/// What to do about a whole line in place of the name of a program.
fn separate(line: &str) -> String {
    format!(
        "all of that is taken for the name of one program; leave out the quotes around it, or have \
         a shell read it: -- sh -c {}",
        typed(line, "LINE")
    )
}

/// A word as it is typed. What does not fit on a line is looked up, by this name.
fn typed<'a>(word: &'a str, name: &'static str) -> Cow<'a, str> {
    match word.len() <= 200 && !word.contains(char::is_control) {
        true => shell_words::quote(word),
        false => Cow::Borrowed(name),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_did_not_start_is_told_what_to_change() {
        let hint = |program: &str, of_folder| {
            let (program, problem) = (program.to_owned(), "why".to_owned());
            Error::Command { program, problem, of_folder }.hint().into_owned()
        };
        assert!(hint("frobnicate", false).contains("sandbox.system_paths"));
        let line = hint("ls -la", false);
        assert!(line.ends_with(": -- sh -c 'ls -la'"), "{line}");
        let long = format!("echo {}", "x".repeat(200));
        assert!(hint(&long, false).ends_with(": -- sh -c LINE"));
        for program in ["ls", "ls -la"] {
            assert!(hint(program, true).starts_with("name a folder"), "{program}");
        }
    }
}
