//! Limits on made-up cgroup trees, and on real processes where the machine lets them.
#![allow(clippy::disallowed_methods, reason = "processes and files are made from outside")]

mod fake;
mod means;
mod parsing;
mod real;
mod refusing;
mod rlimit;
mod room;
mod usage;
mod watched;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use super::*;
use crate::model::WorkspaceId;

const WORKSPACE: WorkspaceId = WorkspaceId::from_u128(7);

/// Says that the machine does not let a test run; also where the output of tests is not shown.
fn not_run(why: &str) {
    writeln!(std::io::stderr(), "not run: {why}").expect("stderr");
}

/// A shell in a process group of its own, which ends with the test.
struct Shell {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Shell {
    /// Runs a script with arguments.
    fn run(script: &str, arguments: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).args(arguments).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a shell");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, output }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next line that it writes.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// The signal that ended it.
    fn signal(&mut self) -> Option<i32> {
        self.child.wait().expect("its end").signal()
    }

    /// What ends it and its children.
    fn killer(&self) -> Box<dyn Fn() + Send + Sync> {
        let pid = self.pid();
        Box::new(move || end(pid))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Not waited for yet, so that the number is still its own.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            end(self.pid());
            let _ = self.child.wait();
        }
    }
}

fn end(group: u32) {
    let group = Pid::from_raw(group.cast_signed()).expect("a number");
    let _ = kill_process_group(group, Signal::KILL);
}
