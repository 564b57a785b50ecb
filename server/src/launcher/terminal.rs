//! The near side of a process's terminal, read and written by threads: a terminal knows no other
//! way to wait that can be given up.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::sync::mpsc;

/// Pieces that may wait on their way in either direction.
const WAITING: usize = 16;
/// Bytes of a piece.
const PIECE: usize = 16 << 10;

/// The near side of a terminal.
#[derive(Debug)]
pub struct Terminal {
    master: OwnedFd,
    /// What was written to it. Ends when nobody has its far side open any more.
    pub output: mpsc::Receiver<Vec<u8>>,
    /// What is typed.
    pub input: mpsc::Sender<Vec<u8>>,
}

impl Terminal {
    /// A terminal by its near side.
    pub(super) fn new(master: OwnedFd) -> std::io::Result<Self> {
        let (told, output) = mpsc::channel(WAITING);
        let (input, typed) = mpsc::channel::<Vec<u8>>(WAITING);
        let (reader, writer) = (master.try_clone()?.into(), master.try_clone()?.into());
        // Both end with the process, which holds the far side open.
        let thread = || std::thread::Builder::new().stack_size(128 << 10);
        thread().name("terminal-out".into()).spawn(move || read(reader, &told))?;
        thread().name("terminal-in".into()).spawn(move || write(writer, typed))?;
        Ok(Self { master, output, input })
    }

    /// Sets its size.
    pub fn resize(&self, rows: u16, columns: u16) -> std::io::Result<()> {
        resize(&self.master, rows, columns)
    }
}

/// Makes a terminal of a size: its near and its far side. To be called where it is to be seen
/// under its name in `/dev/pts`.
pub(super) fn open(rows: u16, columns: u16) -> std::io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    unlockpt(&master)?;
    let far = ioctl_tiocgptpeer(&master, flags)?;
    resize(&master, rows, columns)?;
    Ok((master, far))
}

fn resize(terminal: &OwnedFd, rows: u16, columns: u16) -> std::io::Result<()> {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(terminal, size)?)
}

fn read(mut from: std::fs::File, told: &mpsc::Sender<Vec<u8>>) {
    let mut piece = vec![0; PIECE];
    loop {
        match from.read(&mut piece) {
            // EIO is what a terminal says whose far side is closed.
            Ok(0) => return,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
            Ok(count) => {
                if told.blocking_send(piece[..count].to_vec()).is_err() {
                    return;
                }
            }
        }
    }
}

fn write(mut to: std::fs::File, mut typed: mpsc::Receiver<Vec<u8>>) {
    while let Some(piece) = typed.blocking_recv() {
        if to.write_all(&piece).is_err() {
            return;
        }
    }
}
