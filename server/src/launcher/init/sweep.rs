//! Ending all that a command left behind where no sandbox does it: this process adopts every
//! descendant whose parent has ended, so all of them can be found below it.

use std::io;

use rustix::process::{Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

use crate::launcher::leftovers::children;

/// Makes this process the one to which orphaned descendants fall.
pub(super) fn adopt() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Ends every descendant, however often they fork.
pub(super) fn end_all() -> io::Result<()> {
    loop {
        for child in children(getpid()).unwrap_or_default() {
            // One that has ended meanwhile is what is wanted.
            let _ = kill_process(child, Signal::KILL);
        }
        // Those of a child that was ended are children now.
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CHILD) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
