//! The first process of a launch, `substratd init`: it makes the sandbox whole, gives up every
//! privilege, starts the command, and ends with it everything that the command started.
//!
//! Inside of a sandbox it is process 1, so whatever is left when it exits is ended by the kernel.
//! Without one it adopts what its descendants leave behind, and ends that itself. It listens to
//! the daemon all the while, and a daemon that is gone ends the launch.

mod kernel;
mod privilege;
mod sweep;

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::signal::SigSet;
use rustix::fs::{Access, CWD, FileType, Mode, OFlags, ResolveFlags, access, fstat, open, openat2};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, move_mount};
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, getpgrp, kill_process_group};

use super::bubblewrap::WORKSPACE;
use super::control::{Fault, Incoming, Setup, Signal, Told, send};
use super::limits::Rlimits;
use super::{Flaw, terminal};
use crate::model::Short;

/// Port of the loopback inside of a sandbox at which the daemon's proxy is reached.
pub const EGRESS_PORT: u16 = 3128;

/// What was tried, and what the system said.
struct Failure {
    step: String,
    error: io::Error,
    fault: Fault,
}

impl Failure {
    fn at<E: Into<io::Error>>(step: impl Into<String>) -> impl FnOnce(E) -> Self {
        let step = step.into();
        move |error| Self { step, error: error.into(), fault: Fault::Setup }
    }
}

/// Runs a launch to its end. The daemon's socket is on stdin.
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to be done about a stderr that is gone.
            let _ =
                writeln!(io::stderr(), "substratd init: {error}; it is for the daemon to start");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    privilege::close_inherited()?;
    let socket = &Arc::new(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
    send(socket, &Told::Hello, &[])?;
    let mut incoming = Incoming::default();
    let Some(setup) = incoming.wait::<Setup>(socket)? else { return Ok(()) };
    let stdio = std::mem::take(&mut incoming.fds);
    let (sandboxed, terminal) = (setup.sandboxed, setup.terminal.is_some());
    let command = match start(socket, &setup, stdio) {
        Ok(command) => command,
        Err(Failure { step, error, fault }) => {
            return send(socket, &Told::Failed { step, error: error.to_string(), fault }, &[]);
        }
    };
    if sandboxed {
        privilege::hold_faults()?;
    }
    let launch = Arc::new(Launch { command: Mutex::new(Some(command)), sandboxed, terminal });
    let (listening, heard) = (launch.clone(), socket.clone());
    // Ends with the process.
    let listener = std::thread::Builder::new().stack_size(256 << 10);
    listener.spawn(move || listening.listen(&heard, incoming))?;
    let told = launch.wait(command)?;
    if !sandboxed {
        sweep::end_all()?;
    }
    send(socket, &told, &[])
}

/// Makes everything ready and starts the command. Returns its process id.
fn start(socket: &OwnedFd, setup: &Setup, stdio: Vec<OwnedFd>) -> Result<Pid, Failure> {
    let mut beside: Vec<OwnedFd> = Vec::new();
    if setup.sandboxed {
        kernel::cover().map_err(Failure::at("covering /proc"))?;
        kernel::bound_files(&setup.in_memory).map_err(Failure::at("bounding files in memory"))?;
        for (from, path) in &setup.mounts {
            place(from, path).map_err(Failure::at(format!("mounting {path:?}")))?;
        }
        if setup.egress {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, EGRESS_PORT));
            beside.push(listener.map_err(Failure::at("listening for the proxy"))?.into());
        }
    } else {
        sweep::adopt().map_err(Failure::at("adopting what is left behind"))?;
    }
    setup
        .limits
        .parse::<Rlimits>()
        .map_err(io::Error::other)
        .and_then(|limits| limits.apply())
        .map_err(Failure::at("setting limits"))?;
    if setup.sandboxed {
        privilege::drop_all().map_err(|(step, error)| Failure::at(step)(error))?;
    }
    let stdio = match setup.terminal {
        None => stdio,
        Some((rows, columns)) => {
            let made = terminal::open(rows, columns);
            let (near, far) = made.map_err(Failure::at("making its terminal"))?;
            take_terminal(&far).map_err(Failure::at("taking its terminal"))?;
            beside.insert(0, near);
            let all: io::Result<_> =
                [far.try_clone(), far.try_clone(), Ok(far)].into_iter().collect();
            all.map_err(Failure::at("taking its terminal"))?
        }
    };
    let mut stdio = stdio.into_iter().map(Stdio::from);
    let (Some(stdin), Some(stdout), Some(stderr)) = (stdio.next(), stdio.next(), stdio.next())
    else {
        return Err(Failure::at("taking its input and output")(io::Error::other("too few")));
    };
    let (program, args) = setup.argv.split_first().ok_or_else(|| {
        Failure::at("starting the command")(io::Error::other("there is no command"))
    })?;
    if let Some(umask) = setup.umask {
        rustix::process::umask(Mode::from_raw_mode(umask));
    }
    #[expect(clippy::disallowed_methods, reason = "this is what the launcher runs")]
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(&setup.env).current_dir(&setup.dir);
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    if setup.terminal.is_none() {
        command.process_group(0);
    }
    let child = command.spawn().map_err(|error| {
        let (error, fault) = not_started(error, &setup.dir);
        Failure { step: format!("starting {program:?}"), error, fault }
    })?;
    // Holds the other ends of its input and output.
    drop(command);
    if setup.terminal.is_some() {
        // What is typed there signals this process, too. The command would inherit its deafness.
        SigSet::all().thread_block().map_err(Failure::at("blocking signals"))?;
    }
    let fds: Vec<_> = beside.iter().map(AsFd::as_fd).collect();
    send(socket, &Told::Ready, &fds).map_err(Failure::at("telling the daemon"))?;
    // A child's id fits.
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| Failure::at("starting the command")(io::Error::other("no process id")))
}

/// What the system has against a command, and of what: it says the same of a program and of a
/// folder.
fn not_started(error: io::Error, dir: &str) -> (io::Error, Fault) {
    let Some(flaw) = flaw_of(&error) else { return (error, Fault::Setup) };
    let may_be_folder = matches!(flaw, Flaw::Missing | Flaw::Links | Flaw::TooLong);
    let problem = match may_be_folder {
        true if !Path::new(dir).is_dir() => "there is no folder",
        true if access(dir, Access::EXEC_OK).is_err() => "nobody may enter the folder",
        _ => return (error, Fault::Program(flaw)),
    };
    (io::Error::other(format!("{problem} {} to run it in", Short(dir))), Fault::Folder)
}

/// What is wrong with a command by what the system said; none if it says nothing of the command.
fn flaw_of(error: &io::Error) -> Option<Flaw> {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOEXEC | Errno::LIBBAD) => return Some(Flaw::Format),
        Some(Errno::LOOP) => return Some(Flaw::Links),
        Some(Errno::NAMETOOLONG) => return Some(Flaw::TooLong),
        Some(Errno::TXTBSY) => return Some(Flaw::Busy),
        Some(Errno::TOOBIG) => return Some(Flaw::Arguments),
        _ => {}
    }
    let missing = matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory
    );
    missing.then_some(Flaw::Missing)
}

/// Takes a terminal as the one that controls this session.
fn take_terminal(terminal: &OwnedFd) -> io::Result<()> {
    // Fails for one that leads its session, which bubblewrap has made this.
    let _ = rustix::process::setsid();
    Ok(rustix::process::ioctl_tiocsctty(terminal)?)
}

/// Moves a mount to its place below the workspace: a folder over a folder, a file over itself.
fn place(from: &str, path: &str) -> io::Result<()> {
    let any = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let source = fstat(open(from, any, Mode::empty())?)?;
    let is_folder = FileType::from_raw_mode(source.st_mode) == FileType::Directory;
    let folder = any | OFlags::DIRECTORY;
    let root = open(WORKSPACE, folder, Mode::empty())?;
    let never = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let to = openat2(&root, path, if is_folder { folder } else { any }, Mode::empty(), never)?;
    let there = fstat(&to)?;
    if !is_folder && (source.st_dev, source.st_ino) != (there.st_dev, there.st_ino) {
        return Err(io::Error::other("another file is in its place"));
    }
    let whole = MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(CWD, from, &to, "", whole)?)
}

/// A launch that runs.
struct Launch {
    /// The command, until it was waited for: then its process id may be another's.
    command: Mutex<Option<Pid>>,
    sandboxed: bool,
    /// Whether it has a terminal; then the command is in the group of this process.
    terminal: bool,
}

impl Launch {
    fn command(&self) -> MutexGuard<'_, Option<Pid>> {
        self.command.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what the daemon says until it is gone, and then ends the launch.
    fn listen(&self, socket: &OwnedFd, mut incoming: Incoming) {
        loop {
            match incoming.wait::<Signal>(socket) {
                Ok(Some(Signal::Interrupt)) => self.signal(rustix::process::Signal::INT),
                Ok(Some(Signal::Terminate)) => self.signal(rustix::process::Signal::TERM),
                Ok(Some(Signal::Kill) | None) | Err(_) => break,
            }
        }
        if !self.sandboxed {
            // What cannot be ended now is not ended by trying on.
            let _ = sweep::end_all();
        }
        std::process::exit(1);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(pid) = *self.command() {
            let group = if self.terminal { getpgrp() } else { pid };
            // A group that has ended has nothing to be told.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Waits for the command, and for whatever else ends meanwhile.
    fn wait(&self, command: Pid) -> io::Result<Told> {
        loop {
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            match rustix::process::waitid(WaitId::All, look) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let mut running = self.command();
            let Some((pid, status)) = rustix::process::wait(WaitOptions::NOHANG)? else {
                continue;
            };
            if pid == command {
                *running = None;
                return Ok(match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Told::Exit(code),
                    (None, signal) => Told::Killed(signal.unwrap_or_default()),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_is_told_from_a_program_that_is_not() {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let (error, fault) = not_started(missing(), "/nowhere/at all");
        assert_eq!(fault, Fault::Folder);
        assert_eq!(error.to_string(), "there is no folder \"/nowhere/at all\" to run it in");
        assert_eq!(not_started(missing(), "/").1, Fault::Program(Flaw::Missing));
        assert_eq!(not_started(io::ErrorKind::OutOfMemory.into(), "/nowhere").1, Fault::Setup);
    }

    #[test]
    fn what_is_wrong_with_a_program_is_not_laid_to_the_sandbox() {
        for (errno, flaw, may_be_folder) in [
            (Errno::NOENT, Flaw::Missing, true),
            (Errno::NOTDIR, Flaw::Missing, true),
            (Errno::ACCESS, Flaw::Missing, true),
            (Errno::LOOP, Flaw::Links, true),
            (Errno::NAMETOOLONG, Flaw::TooLong, true),
            (Errno::NOEXEC, Flaw::Format, false),
            (Errno::LIBBAD, Flaw::Format, false),
            (Errno::TXTBSY, Flaw::Busy, false),
            (Errno::TOOBIG, Flaw::Arguments, false),
        ] {
            assert_eq!(not_started(errno.into(), "/").1, Fault::Program(flaw), "{errno:?}");
            let elsewhere = if may_be_folder { Fault::Folder } else { Fault::Program(flaw) };
            assert_eq!(not_started(errno.into(), "/nowhere").1, elsewhere, "{errno:?}");
        }
        assert_eq!(not_started(Errno::NOMEM.into(), "/nowhere").1, Fault::Setup);
        assert_eq!(not_started(Errno::AGAIN.into(), "/nowhere").1, Fault::Setup);
    }
}
