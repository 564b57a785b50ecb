//! The same tests once more, as an ordinary user.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The ordinary user: nobody of this machine.
const USER: u32 = 61_234;
const THIS: &str = "what_agents_leave_for_the_daemon_is_held_for_an_ordinary_user";

#[test]
fn what_agents_leave_for_the_daemon_is_held_for_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        // Then it is what the tests beside this one run as.
        return;
    }
    // The program may lie where only root gets at.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("tests");
    // By another process: while this one has a program open for writing, a test beside this one
    // may fork, and the program could not be run.
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    for path in [folder.path(), &program] {
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    let mut command = Command::new(&program);
    command.args(["workspace::", "--skip", THIS, "--test-threads", "2"]);
    command.env("TMPDIR", folder.path()).env("HOME", folder.path()).current_dir(folder.path());
    let output = command.uid(USER).gid(USER).output().unwrap();
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "as an ordinary user:\n{text}\n{errors}");
    assert!(!text.contains("running 0 tests"), "{text}");
}
