//! A process that was launched: its signals and its end.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::mpsc;

use super::bounds::{self, Bound, Bounds, Watched};
use super::control::{Fault, Incoming, Setup, Signal, Told, send};
use super::egress::{Egress, Endpoint, Refusal};
use super::family;
use super::leftovers::{self, Record, Records, Whose};
use super::limits::{self, Hit};
use super::shell;
use super::{Error, Flaw};

/// How long a launch may take until its command runs.
const START: Duration = Duration::from_secs(30);
/// How long the end of a process that was killed is waited for.
const KILLED: Duration = Duration::from_secs(10);
/// Most of what bubblewrap says that is kept, in bytes.
const MAX_SAID: u64 = 4 << 10;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Together with its sandbox, from outside.
    Gone,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Signal(number) => {
                let name = nix::sys::signal::Signal::try_from(*number);
                write!(f, "signal {number} ({})", name.map_or("?", |signal| signal.as_str()))
            }
            Self::Gone => f.write_str("ended with its sandbox"),
        }
    }
}

/// A process that runs. It ends, with all that it started, when this is dropped.
#[derive(Debug)]
pub struct Process {
    control: UnixStream,
    incoming: Incoming,
    /// The first process of the launch.
    init: OwnedFd,
    pid: Pid,
    /// What the daemon started for it; none when it is dropped.
    child: Option<Child>,
    sandboxed: bool,
    /// What init said of its command.
    told: Option<Exit>,
    /// Set when no process of it is left.
    exit: Option<Exit>,
    _record: Record,
    watched: Watched,
    /// Its program, by its argument.
    program: String,
    /// Its way to what it may reach.
    egress: Option<Egress>,
}

/// A launch whose first process runs, and waits to be told what to do.
pub(super) struct Waiting {
    control: UnixStream,
    incoming: Incoming,
    init: OwnedFd,
    pub(super) pid: Pid,
    child: Child,
    record: Record,
}

impl Waiting {
    /// Waits until the first process says hello, and records it.
    pub(super) async fn hello(
        mut child: Child,
        control: StdStream,
        records: &Records,
        whose: Whose,
    ) -> Result<Self, Error> {
        control.set_nonblocking(true).map_err(Error::step("preparing the socket"))?;
        let control = UnixStream::from_std(control).map_err(Error::step("preparing the socket"))?;
        let mut incoming = Incoming::default();
        let told = tokio::time::timeout(START, next::<Told>(&control, &mut incoming)).await;
        let pid = match (told, incoming.pid) {
            (Ok(Ok(Some(Told::Hello))), Some(pid)) => pid,
            (told, _) => return Err(said(&mut child, control, told.is_err()).await),
        };
        let lost = |error: rustix::io::Errno| Error::step("finding the process")(error.into());
        let init = pidfd_open(pid, PidfdFlags::empty()).map_err(lost)?;
        let record = records.add(pid, whose).map_err(Error::write("recording the process"))?;
        Ok(Self { control, incoming, init, pid, child, record })
    }

    /// Has the command started, held to its limits if it has any. Returns what came with it: the listener of the proxy, if one was
    /// asked for.
    pub(super) async fn start(
        mut self,
        setup: &Setup,
        stdio: &[BorrowedFd<'_>],
        bounds: Option<(&Bounds, Bound)>,
    ) -> Result<(Process, Vec<OwnedFd>), Error> {
        let step = "starting the command";
        let socket = rustix::io::dup(&self.control).map_err(|no| Error::step(step)(no.into()))?;
        deliver(&self.control, &socket, setup, stdio).await.map_err(Error::step(step))?;
        let told = tokio::time::timeout(START, next::<Told>(&self.control, &mut self.incoming));
        match told.await {
            Ok(Ok(Some(Told::Ready))) => {}
            Ok(Ok(Some(Told::Failed { step, error: problem, fault }))) => {
                return Err(match (fault, setup.argv.first()) {
                    (Fault::Program(flaw), Some(program)) => {
                        let program = program.clone();
                        Error::Command { program, problem, of_folder: false, flaw }
                    }
                    (Fault::Folder, Some(program)) => {
                        let (program, flaw) = (program.clone(), Flaw::Missing);
                        Error::Command { program, problem, of_folder: true, flaw }
                    }
                    _ => Error::Setup { step, problem },
                });
            }
            told => {
                let error = said(&mut self.child, self.control, told.is_err()).await;
                if !setup.sandboxed {
                    // The command may have run, and have killed it.
                    end_keeper(self.child).await;
                }
                return Err(error);
            }
        }
        let beside = std::mem::take(&mut self.incoming.fds);
        let kill = if setup.sandboxed {
            bounds::killer(self.init.try_clone().map_err(Error::step(step))?)
        } else {
            let signal = move || _ = send(&socket, &Signal::Kill, &[]);
            Box::new(signal)
        };
        let watched = bounds.map(|(bounds, bound)| bounds.watch(bound, self.pid, kill));
        let watched = watched.unwrap_or_else(Watched::nothing);
        let process = Process {
            control: self.control,
            incoming: self.incoming,
            init: self.init,
            pid: self.pid,
            child: Some(self.child),
            sandboxed: setup.sandboxed,
            told: None,
            exit: None,
            _record: self.record,
            watched,
            program: setup.argv.first().cloned().unwrap_or_default(),
            egress: None,
        };
        Ok((process, beside))
    }
}

/// Sends a line of any length on a socket that does not block.
async fn deliver(
    control: &UnixStream,
    socket: &OwnedFd,
    setup: &Setup,
    stdio: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let line = super::control::encode(setup)?;
    let mut sent = 0;
    while sent < line.len() {
        control.writable().await?;
        let beside = if sent == 0 { stdio } else { &[] };
        let done = control.try_io(Interest::WRITABLE, || {
            super::control::send_bytes(socket, &line[sent..], beside)
        });
        match done {
            Ok(count) => sent += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The next line. None when the other end has closed.
async fn next<T: DeserializeOwned>(
    control: &UnixStream,
    incoming: &mut Incoming,
) -> io::Result<Option<T>> {
    loop {
        if let Some(line) = incoming.line() {
            return line.map(Some);
        }
        control.readable().await?;
        match control.try_io(Interest::READABLE, || incoming.receive(control)) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Why a launch did not come up, in the words of what was to make it.
async fn said(child: &mut Child, control: UnixStream, timed_out: bool) -> Error {
    let step = "making it".to_owned();
    // The first process ends with it, if it is there.
    drop(control);
    if timed_out {
        // It is waited for when it is dropped.
        let _ = child.start_kill();
        return Error::Setup { step, problem: "it took too long".to_owned() };
    }
    let mut text = String::new();
    if let Some(stderr) = child.stderr.take() {
        // What was read before an error is what there is.
        let mut stderr = stderr.take(MAX_SAID);
        let reading = stderr.read_to_string(&mut text);
        if tokio::time::timeout(KILLED, reading).await.is_err() {
            let _ = child.start_kill();
        }
    }
    let problem = match text.trim() {
        "" => "it ended without a word".to_owned(),
        said => said.to_owned(),
    };
    Error::Setup { step, problem }
}

/// Waits for a first process that nothing keeps, and ends what it left if it was killed.
async fn end_keeper(mut child: Child) {
    let Ok(status) = tokio::time::timeout(KILLED, child.wait()).await else {
        return family::leave(child);
    };
    if family::was_killed(&status) {
        let _ = tokio::task::spawn_blocking(family::end_strangers).await;
    }
}

impl Process {
    /// Lets it reach these endpoints, by a listener from inside.
    pub(super) fn lead_out(
        &mut self,
        listener: TcpListener,
        endpoints: Vec<Endpoint>,
    ) -> Result<(), Error> {
        let pid = self.pid();
        let refused = move |refusal: &Refusal| tracing::info!(pid, %refusal, "kept inside");
        let egress = Egress::serve(listener, endpoints, refused);
        self.egress = Some(egress.map_err(Error::step("serving its proxy"))?);
        Ok(())
    }

    /// The first process of the launch, as the host numbers it.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Whether it runs in a sandbox.
    pub fn is_sandboxed(&self) -> bool {
        self.sandboxed
    }

    /// Asks it to stop what it does: SIGINT to its process group.
    pub fn interrupt(&self) {
        self.signal(Signal::Interrupt);
    }

    /// Asks it to end: SIGTERM to its process group.
    pub fn terminate(&self) {
        self.signal(Signal::Terminate);
    }

    fn signal(&self, signal: Signal) {
        // One that has ended, or that takes no more, has nothing to be told.
        let _ = send(&self.control, &signal, &[]);
    }

    /// Waits for its end, and that of all that it started.
    pub async fn wait(&mut self) -> Exit {
        if let Some(exit) = self.exit {
            return exit;
        }
        while self.told.is_none() {
            self.told = match next::<Told>(&self.control, &mut self.incoming).await {
                Ok(Some(Told::Exit(code))) => Some(Exit::Code(code)),
                Ok(Some(Told::Killed(signal))) => Some(Exit::Signal(signal)),
                Ok(Some(_)) => None,
                Ok(None) | Err(_) => Some(Exit::Gone),
            };
        }
        self.ended().await;
        let exit = self.told.unwrap_or(Exit::Gone);
        self.exit = Some(exit);
        self.watched.end();
        exit
    }

    /// Waits for a limit that is hit: each kind once, and once more for an end. None when the
    /// process has ended and all is told.
    pub async fn hit(&mut self) -> Option<Hit> {
        self.watched.hits.recv().await
    }

    /// Which limit ended it, if one did. `hits` are those that were told of it.
    pub fn explain(&self, exit: Exit, hits: &[Hit]) -> Option<Hit> {
        let limits = self.watched.limits();
        limits::explain(shell::signal_of(exit, &self.program, &limits), hits, &limits)
    }

    /// Takes the limits that it hits out of [`Self::hit`], to wait for them beside its end. They
    /// end when the process has ended and all is told.
    pub fn take_hits(&mut self) -> mpsc::Receiver<Hit> {
        std::mem::replace(&mut self.watched.hits, mpsc::channel(1).1)
    }

    /// Waits until no process of it is left.
    async fn ended(&mut self) {
        let was_killed = match &mut self.child {
            Some(child) => family::was_killed(&child.wait().await),
            None => false,
        };
        // What was started by the daemon has ended, and init with it, unless somebody killed only
        // the former.
        if let Ok(init) = self.init.try_clone() {
            let waited = tokio::task::spawn_blocking(move || leftovers::wait_for(&init));
            let _ = waited.await;
        }
        if was_killed && !self.sandboxed {
            // Nobody ended what it kept.
            let _ = tokio::task::spawn_blocking(family::end_strangers).await;
        }
    }

    /// Ends it: asks it, and kills it when it has not ended after `grace`.
    pub async fn stop(&mut self, grace: Duration) -> Exit {
        if self.exit.is_none() && !grace.is_zero() {
            self.terminate();
            if let Ok(exit) = tokio::time::timeout(grace, self.wait()).await {
                return exit;
            }
        }
        self.kill().await
    }

    /// Ends it at once, and waits until no process of it is left.
    pub async fn kill(&mut self) -> Exit {
        if self.exit.is_none() {
            self.kill_now();
            if tokio::time::timeout(KILLED, self.wait()).await.is_err() {
                tracing::error!(pid = self.pid(), "a process does not end although it was killed");
                self.exit = Some(Exit::Gone);
                self.watched.end();
            }
        }
        self.exit.unwrap_or(Exit::Gone)
    }

    /// Ends it at once, with all that it started. Does not wait.
    pub fn kill_now(&self) {
        if self.sandboxed {
            // The kernel ends with it whatever is in its process namespace.
            let _ = pidfd_send_signal(&self.init, rustix::process::Signal::KILL);
        } else {
            self.signal(Signal::Kill);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.exit.is_none() {
            self.kill_now();
            if let Some(child) = self.child.take().filter(|_| !self.sandboxed) {
                family::leave(child);
            }
        }
    }
}

impl AsFd for Process {
    /// A descriptor of its first process, which becomes readable when that has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.init.as_fd()
    }
}
