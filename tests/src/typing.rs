//! `substratctl agent attach`, with somebody who types.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Instant;

use crate::harness::{Daemon, binary, forget_environment};
use crate::watch::PATIENCE;

/// A running `substratctl agent attach`, what it writes, and what is typed.
pub struct Attach {
    pub child: Child,
    pub stdin: Option<ChildStdin>,
    pieces: mpsc::Receiver<Vec<u8>>,
    /// Everything that was written so far.
    text: String,
    /// How much of it was looked at.
    place: usize,
}

impl Attach {
    pub fn start(daemon: &Daemon, args: &[&str]) -> Self {
        let mut command = Command::new(binary("substratctl"));
        command.arg("--home").arg(&daemon.home).args(args);
        Self::spawn(command)
    }

    /// On a terminal of its own.
    pub fn on_terminal(daemon: &Daemon, args: &[&str]) -> Self {
        let (program, home) = (binary("substratctl"), &daemon.home);
        let run = format!("{} --home {} {}", program.display(), home.display(), args.join(" "));
        let mut command = Command::new("script");
        command.args(["-qefc", &run, "/dev/null"]).env("TERM", "xterm");
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        forget_environment(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().expect("it starts");
        let mut stdout = child.stdout.take().unwrap();
        let (sender, pieces) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Self { child, stdin, pieces, text: String::new(), place: 0 }
    }

    pub fn write(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().expect("it is open");
        stdin.write_all(text.as_bytes()).and_then(|()| stdin.flush()).expect("it reads");
    }

    /// Waits until it has written this, after what was waited for before.
    pub fn wait_for(&mut self, wanted: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = self.text[self.place..].find(wanted) {
                self.place += found + wanted.len();
                return;
            }
            let piece = self.pieces.recv_timeout(deadline.duration_since(Instant::now()));
            let piece = piece.unwrap_or_else(|_| panic!("no {wanted:?} in {:?}", self.text));
            self.text += &String::from_utf8_lossy(&piece);
        }
    }

    /// Waits for its end, with no more to be typed.
    pub fn end(mut self) -> (ExitStatus, String) {
        self.stdin = None;
        loop {
            match self.pieces.recv_timeout(PATIENCE) {
                Ok(piece) => self.text += &String::from_utf8_lossy(&piece),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("no end after {:?}", self.text),
            }
        }
        let status = self.child.wait().expect("it ends");
        (status, std::mem::take(&mut self.text))
    }
}

impl Drop for Attach {
    fn drop(&mut self) {
        // One that is over is an error, as it should be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
