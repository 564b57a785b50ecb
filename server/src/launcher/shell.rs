//! What the exit code of a shell says of its command.

use std::path::Path;

use rustix::process::Signal;

use super::Exit;
use crate::model::Limits;

/// Programs that end with 128 and the number of the signal that ended their last command.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "ash", "busybox", "ksh", "mksh", "zsh"];

/// The signal that ended a process, or the command of the shell that it was.
pub(super) fn signal_of(exit: Exit, program: &str, limits: &Limits) -> Option<i32> {
    let (kill, too_large) = (Signal::KILL.as_raw(), Signal::XFSZ.as_raw());
    match exit {
        Exit::Signal(number) => Some(number),
        Exit::Gone => Some(kill),
        // Says something only beside a limit that was told of.
        Exit::Code(code) if code == 128 + kill => Some(kill),
        // Of another program it is a number like all others.
        Exit::Code(code) if code == 128 + too_large => {
            (limits.file_size.is_some() && is_shell(program)).then_some(too_large)
        }
        Exit::Code(_) => None,
    }
}

fn is_shell(program: &str) -> bool {
    let name = Path::new(program).file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| SHELLS.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_shell_with_a_limit_says_that_its_command_was_killed_for_a_large_file() {
        let limited = Limits { file_size: Some(1 << 20), ..Limits::default() };
        let signal = |exit, program| signal_of(exit, program, &limited);
        for shell in ["sh", "/bin/bash", "/usr/bin/zsh"] {
            assert_eq!(signal(Exit::Code(153), shell), Some(25), "{shell}");
            assert_eq!(signal_of(Exit::Code(153), shell, &Limits::default()), None, "{shell}");
            assert_eq!(signal(Exit::Code(25), shell), None, "{shell}");
        }
        assert_eq!(signal(Exit::Code(153), "python3"), None);
        assert_eq!(signal(Exit::Signal(25), "python3"), Some(25));
        assert_eq!(signal(Exit::Code(137), "python3"), Some(9));
        assert_eq!(signal(Exit::Gone, "python3"), Some(9));
    }
}
