//! The process that the daemon itself starts: bubblewrap, or init where there is no sandbox.

use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use command_fds::CommandFdExt;
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, memfd_create, openat};
use tokio::process::{Child, Command};

use super::bubblewrap::{Bound, Plan, TOOL_SOCKET, WORKSPACE, argv};
use super::{Error, Launch, Ready, family, number};
use crate::model::Access;
use crate::workspace::{Open, open_real_any};

/// What is to be started.
pub(super) struct Outer {
    command: Command,
    sandboxed: bool,
}

impl Outer {
    /// Init alone.
    pub(super) fn bare(init: &Path) -> Self {
        let mut command = new_command(init);
        command.arg("init");
        Self { command, sandboxed: false }
    }

    /// bubblewrap around init.
    pub(super) fn sandbox(ready: &Ready, launch: &Launch, open: Vec<Open>) -> Result<Self, Error> {
        let network = launch.world.as_ref().is_some_and(|world| world.network);
        let mut held: Vec<OwnedFd> = Vec::new();
        let mut hold = |fd: OwnedFd| {
            let number = number(&fd);
            held.push(fd);
            number
        };
        let mut mounts = Vec::new();
        let mut root = None;
        for Open { path, folder, access } in open {
            let fd = hold(folder);
            if path.is_empty() {
                root = Some(Bound { fd, at: WORKSPACE.to_owned(), access });
            } else {
                mounts.push(Bound { fd, at: path, access });
            }
        }
        let mut binds = Vec::new();
        for bind in &launch.binds {
            let missing = |error: io::Error| Error::Mount {
                path: bind.host.display().to_string(),
                problem: error.to_string(),
                link: None,
            };
            let fd = hold(match bind.follows_links {
                true => open_path(&bind.host).map_err(missing)?,
                false => open_real_any(&bind.host).map_err(missing)?,
            });
            binds.push(Bound { fd, at: bind.at.clone(), access: bind.access });
        }
        if let Some(socket) = &launch.tool_socket {
            let fd = hold(open_path(socket).map_err(Error::step("opening its tool socket"))?);
            binds.push(Bound { fd, at: TOOL_SOCKET.to_owned(), access: Access::ReadOnly });
        }
        let excludes = launch.excludes.as_deref().map(in_memory).transpose();
        let excludes = excludes.map_err(Error::step("making a file for git"))?.map(&mut hold);
        let init = hold(open_path(&ready.init).map_err(Error::step("opening this program"))?);
        let system = if network { &ready.system.online } else { &ready.system.offline };
        let tmp_bytes = ready.tmp_bytes;
        let (mounts, binds) = (mounts.as_slice(), binds.as_slice());
        let private = launch.private.as_slice();
        let plan =
            Plan { system, root, mounts, private, binds, excludes, init, network, tmp_bytes };
        let mut command = new_command(&ready.bubblewrap.path);
        command.args(argv(&plan)).preserved_fds(held).kill_on_drop(true);
        Ok(Self { command, sandboxed: true })
    }

    /// Starts it. Returns the near end of the socket that is its stdin.
    pub(super) fn spawn(mut self) -> io::Result<(Child, UnixStream)> {
        let (near, far) = UnixStream::pair()?;
        // Before anything can be sent on it: what is sent tells from which process it is.
        rustix::net::sockopt::set_socket_passcred(&near, true)?;
        self.command.stdin(Stdio::from(OwnedFd::from(far)));
        let child = match self.sandboxed {
            true => family::spawn(&mut self.command)?,
            false => family::spawn_keeper(&mut self.command)?,
        };
        Ok((child, near))
    }
}

fn new_command(program: &Path) -> Command {
    #[expect(clippy::disallowed_methods, reason = "this is the launcher")]
    let mut command = Command::new(program);
    command.env_clear().current_dir("/").stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// A file in memory that is read from its start.
fn in_memory(text: &str) -> io::Result<OwnedFd> {
    let mut file = std::fs::File::from(memfd_create("substrat", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}

/// Opens something to be bound, following symbolic links: its path is the user's own.
fn open_path(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}
