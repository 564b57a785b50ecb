//! What the daemon and the first process of a launch tell each other: lines of JSON over a socket
//! pair, with file descriptors beside them.
//!
//! ```text
//!  init ──► Hello                       its process id is read from the socket
//!  init ◄── Setup + stdin, stdout, stderr, if it gets no terminal
//!  init ──► Ready + the near side of its terminal, the listener of the proxy | Failed
//!  init ◄── Signal, any number of them
//!  init ──► Exit
//! ```
//!
//! The daemon records the process between `Hello` and `Setup`, so that no command ever runs
//! without a record. Either end that closes ends the launch.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Flaw;

/// Longest line, in bytes.
const MAX_LINE: usize = 4 << 20;
/// Most file descriptors beside one piece.
const MAX_FDS: usize = 4;

/// How a command is to be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Setup {
    /// Program and arguments.
    pub(super) argv: Vec<String>,
    /// The whole environment.
    pub(super) env: BTreeMap<String, String>,
    /// Working directory.
    pub(super) dir: String,
    /// Mounts to be moved below the workspace: where each is, and its path there.
    pub(super) mounts: Vec<(String, String)>,
    /// Folders in memory, and how many files each may hold.
    pub(super) in_memory: Vec<(String, u64)>,
    /// Limits of the process, as [`super::limits::Rlimits`] writes them.
    pub(super) limits: String,
    /// Whether to listen for what goes to the daemon's proxy.
    pub(super) egress: bool,
    /// Rows and columns of the terminal that is made for it; none for pipes.
    pub(super) terminal: Option<(u16, u16)>,
    /// Its umask, if it is another than the daemon's.
    pub(super) umask: Option<u32>,
    /// Whether this is inside of a sandbox.
    pub(super) sandboxed: bool,
}

/// A signal to the command and its process group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Signal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGKILL, to every process of the launch.
    Kill,
}

/// What kept a command from starting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fault {
    /// Its surroundings.
    Setup,
    /// The program: it is not there, or cannot be run.
    Program(Flaw),
    /// The folder that it was to run in: it is not there, or cannot be entered.
    Folder,
}

/// What init tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Told {
    /// It runs.
    Hello,
    /// The command was started.
    Ready,
    /// The command was not started.
    Failed {
        /// What was tried.
        step: String,
        /// What the system said.
        error: String,
        /// What kept it from starting.
        fault: Fault,
    },
    /// The command ended, with this exit code.
    Exit(i32),
    /// The command was ended by this signal.
    Killed(i32),
}

/// A line as it is sent.
pub(super) fn encode(line: &impl Serialize) -> std::io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Sends the beginning of some bytes, with file descriptors beside the first. Returns how many.
pub(super) fn send_bytes(
    socket: impl AsFd,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> std::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        beside.push(SendAncillaryMessage::ScmRights(fds));
    }
    loop {
        let piece = [IoSlice::new(bytes)];
        match sendmsg(&socket, &piece, &mut beside, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => return Ok(sent?),
        }
    }
}

/// Sends a line, with file descriptors beside it.
pub(super) fn send(
    socket: impl AsFd,
    line: &impl Serialize,
    fds: &[BorrowedFd<'_>],
) -> std::io::Result<()> {
    let bytes = encode(line)?;
    let mut sent = send_bytes(&socket, &bytes, fds)?;
    while sent < bytes.len() {
        sent += send_bytes(&socket, &bytes[sent..], &[])?;
    }
    Ok(())
}

/// Lines that come in, and what came beside them.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    bytes: Vec<u8>,
    /// File descriptors in the order in which they came.
    pub(super) fds: Vec<OwnedFd>,
    /// Process id of who sent last, if the socket tells.
    pub(super) pid: Option<rustix::process::Pid>,
}

impl Incoming {
    /// Takes the next whole line out of what came.
    pub(super) fn line<T: DeserializeOwned>(&mut self) -> Option<std::io::Result<T>> {
        let end = self.bytes.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.bytes.drain(..=end).collect();
        Some(serde_json::from_slice(&line).map_err(std::io::Error::from))
    }

    /// Reads what there is. False when the other end has closed.
    pub(super) fn receive(&mut self, socket: impl AsFd) -> std::io::Result<bool> {
        if self.bytes.len() > MAX_LINE {
            return Err(std::io::Error::other("a line without end"));
        }
        let mut piece = [0; 16 << 10];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS), ScmCredentials(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let count = loop {
            let mut slices = [IoSliceMut::new(&mut piece)];
            match recvmsg(&socket, &mut slices, &mut beside, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received.bytes,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        for message in beside.drain() {
            match message {
                RecvAncillaryMessage::ScmRights(fds) => self.fds.extend(fds),
                RecvAncillaryMessage::ScmCredentials(who) => self.pid = Some(who.pid),
                _ => {}
            }
        }
        self.bytes.extend_from_slice(&piece[..count]);
        Ok(count > 0)
    }

    /// Waits for a line. None when the other end has closed.
    pub(super) fn wait<T: DeserializeOwned>(
        &mut self,
        socket: impl AsFd,
    ) -> std::io::Result<Option<T>> {
        loop {
            if let Some(line) = self.line() {
                return line.map(Some);
            }
            if !self.receive(&socket)? {
                return Ok(None);
            }
        }
    }
}
