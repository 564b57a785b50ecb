//! Ending all that a command left behind where no sandbox does it: this process adopts every
//! descendant whose parent has ended, so all of them can be found below it.

use std::io;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

/// Makes this process the one to which orphaned descendants fall.
pub(super) fn adopt() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Ends every descendant, however often they fork.
pub(super) fn end_all() -> io::Result<()> {
    loop {
        for child in children()? {
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

fn children() -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task")? {
        #[expect(clippy::disallowed_methods, reason = "asks the kernel")]
        let text = std::fs::read_to_string(thread?.path().join("children"));
        // A thread that has ended has none.
        let text = text.unwrap_or_default();
        let numbers = text.split_whitespace().filter_map(|word| word.parse::<i32>().ok());
        found.extend(numbers.filter_map(Pid::from_raw));
    }
    Ok(found)
}
