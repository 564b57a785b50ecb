//! Through what a process is spoken to.

use std::io;
use std::os::fd::OwnedFd;

use tokio::net::unix::pipe;

use super::Terminal;

/// The near ends of a process's input and output.
#[derive(Debug)]
pub enum Ends {
    /// Pipes.
    Pipes {
        /// To its stdin.
        stdin: pipe::Sender,
        /// From its stdout.
        stdout: pipe::Receiver,
        /// From its stderr.
        stderr: pipe::Receiver,
    },
    /// The near side of its terminal.
    Terminal(Terminal),
}

/// Pipes for a process: the near ends, and what it is given.
pub(super) fn pipes() -> io::Result<(Option<Ends>, Vec<OwnedFd>)> {
    let (far_in, near_in) = io::pipe()?;
    let (near_out, far_out) = io::pipe()?;
    let (near_err, far_err) = io::pipe()?;
    let ends = Ends::Pipes {
        stdin: pipe::Sender::from_owned_fd(near_in.into())?,
        stdout: pipe::Receiver::from_owned_fd(near_out.into())?,
        stderr: pipe::Receiver::from_owned_fd(near_err.into())?,
    };
    Ok((Some(ends), vec![far_in.into(), far_out.into(), far_err.into()]))
}
