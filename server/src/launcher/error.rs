//! Why a process was not started.

use std::borrow::Cow;
use std::io;

use serde::{Deserialize, Serialize};

use crate::model::{LinkPlace, Short};

/// Why a process was not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The sandbox is required, and cannot be had here.
    #[error("no process can be started without a sandbox here: {0}")]
    Unavailable(Unavailable),
    /// What a process needs of the home could not be written.
    #[error("no process can be started: the disk of the daemon's home is full")]
    DiskFull,
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
        /// What kind of problem it is.
        flaw: Flaw,
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

/// What is wrong with a command that cannot be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flaw {
    /// It is not there, or not for who runs it.
    Missing,
    /// It is neither a program of this machine nor a script that says what runs it.
    Format,
    /// Its path leads through too many symbolic links.
    Links,
    /// Its path, or a name in it, is too long.
    TooLong,
    /// Somebody has it open for writing.
    Busy,
    /// Its arguments and environment are larger than the system takes.
    Arguments,
}

impl Error {
    /// What to do next.
    pub fn hint(&self) -> Cow<'static, str> {
        match self {
            Self::Mount { link: Some(link), .. } => {
                return format!("put it right, or remove the link with {}", unlink(link)).into();
            }
            Self::Command {
                program,
                of_folder: false,
                flaw: Flaw::Missing | Flaw::TooLong,
                ..
            } if program.contains(' ') => return separate(program).into(),
            _ => {}
        }
        Cow::Borrowed(match self {
            Self::DiskFull | Self::Unavailable(Unavailable::DiskFull) => {
                "make room there, then try it again"
            }
            Self::Unavailable(no) if !no.is_lasting() => {
                "try it again; if it stays, mend that, or set sandbox.policy to \"off\" and let \
                 agents out"
            }
            Self::Unavailable(_) => {
                "mend that, or set sandbox.policy to \"preferred\" or \"off\" and let agents out"
            }
            Self::Mount { .. } => {
                "look at that path on the host, and mend its rights or put back what was moved; or \
                 delete the workspace with --force if it is not needed any more"
            }
            Self::TooManyMounts { .. } => "remove links",
            Self::Command { of_folder: true, .. } => {
                "name a folder that is there in the workspace, or make it first"
            }
            Self::Command { flaw: Flaw::Format, .. } => {
                "it is no program of this machine; if it is a script, begin it with a line such as \
                 #!/bin/sh"
            }
            Self::Command { flaw: Flaw::Links, .. } => {
                "its symbolic links lead in a circle; name what they are to lead to"
            }
            Self::Command { flaw: Flaw::TooLong, .. } => {
                "a name has 255 bytes at most, and a path 4,095; name a program by a shorter one"
            }
            Self::Command { flaw: Flaw::Busy, .. } => {
                "somebody still writes it; try it again when it is closed"
            }
            Self::Command { flaw: Flaw::Arguments, .. } => {
                "pass less in arguments and variables; hand what is long over on stdin or in a file"
            }
            Self::Command { flaw: Flaw::Missing, .. } => {
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

    /// The failure to write a file in the daemon's home.
    pub(super) fn write(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| if is_full(&error) { Self::DiskFull } else { Self::step(step)(error) }
    }
}

/// Whether an error says that a disk has no room.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
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
    /// What it needs of the home could not be written.
    #[error("the disk of the daemon's home is full; make room there")]
    DiskFull,
    /// Something else.
    #[error("bubblewrap does not work here: {0}")]
    Broken(String),
}

impl Unavailable {
    /// Whether it stays until somebody mends it. What may pass by itself lets nothing out.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::NotInstalled
            | Self::TooOld { .. }
            | Self::Setuid { .. }
            | Self::Namespaces(_) => true,
            Self::DiskFull | Self::Broken(_) => false,
        }
    }

    /// The failure to write what every sandbox shows.
    pub(super) fn write(error: &io::Error) -> Self {
        if is_full(error) { Self::DiskFull } else { Self::Broken(error.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Name;

    #[test]
    fn a_full_disk_is_not_laid_to_bubblewrap() {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            let error = Error::write("recording the process")(kind.into());
            assert_eq!(error, Error::DiskFull);
            assert_eq!(error.hint(), "make room there, then try it again");
            assert_eq!(Unavailable::write(&kind.into()), Unavailable::DiskFull);
            assert_eq!(Error::Unavailable(Unavailable::DiskFull).hint(), error.hint());
        }
        let other = || io::Error::from(io::ErrorKind::PermissionDenied);
        let step = "recording the process";
        assert_eq!(Error::write(step)(other()), Error::step(step)(other()));
        assert!(matches!(Unavailable::write(&other()), Unavailable::Broken(_)));
    }

    #[test]
    fn a_command_that_did_not_start_is_told_what_to_change() {
        let hint = |program: &str, of_folder| {
            let (program, problem) = (program.to_owned(), "why".to_owned());
            let flaw = Flaw::Missing;
            Error::Command { program, problem, of_folder, flaw }.hint().into_owned()
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

    #[test]
    fn a_folder_that_cannot_be_shown_is_told_what_to_mend() {
        let hint = |link| {
            let (path, problem) = ("/srv/code".to_owned(), "why".to_owned());
            Error::Mount { path, problem, link }.hint().into_owned()
        };
        let of_root = hint(None);
        assert!(of_root.contains("that path") && of_root.contains("--force"), "{of_root}");
        let (workspace, path) = (Name::parse("ws").unwrap(), "docs".to_owned());
        let of_link = hint(Some(LinkPlace { workspace, path }));
        assert!(of_link.contains("unlink ws docs"), "{of_link}");
    }

    #[test]
    fn a_program_that_is_there_and_cannot_be_run_is_told_what_to_mend() {
        let hint = |program: &str, flaw| {
            let (program, problem) = (program.to_owned(), "why".to_owned());
            Error::Command { program, problem, of_folder: false, flaw }.hint().into_owned()
        };
        for (flaw, word) in [
            (Flaw::Format, "#!/bin/sh"),
            (Flaw::Links, "symbolic links"),
            (Flaw::TooLong, "255 bytes"),
            (Flaw::Busy, "try it again"),
            (Flaw::Arguments, "on stdin"),
        ] {
            assert!(hint("./run", flaw).contains(word), "{flaw:?}");
        }
        assert!(hint("./my run", Flaw::Format).contains("#!/bin/sh"), "its name is no line");
        assert!(hint("echo xxx", Flaw::TooLong).contains("-- sh -c"), "a line is no name");
    }
}
