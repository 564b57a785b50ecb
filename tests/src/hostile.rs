//! Hostile programs in a sandbox, and the suite of them run again as an ordinary user.

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use substrat_server::launcher::{Exit, Launch};
use substrat_server::model::World;

use crate::harness::binary;
use crate::launch::Ran;

/// What every hostile program begins with.
const PRELUDE: &str = include_str!("hostile.py");
/// Set where the suite runs as an ordinary user although root started it.
const AGAIN: &str = "SUBSTRAT_TEST_ORDINARY";
/// The ordinary user: nobody of this machine.
const USER: u32 = 61_234;

/// A program in Python in a world.
pub fn python(world: World, script: &str) -> Launch {
    let argv = ["/usr/bin/python3", "-I", "-u", "-c", &format!("{PRELUDE}\n{script}")];
    Launch { argv: argv.map(str::to_owned).to_vec(), world: Some(world), ..Launch::default() }
}

/// Checks that a program made all its attempts, and that every one failed.
#[track_caller]
pub fn assert_held(ran: &Ran) {
    assert!(!ran.stdout.contains("ESCAPED"), "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("refused:"), "nothing was tried: {ran:?}");
    assert_eq!(ran.exit, Exit::Code(0), "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.ends_with("done\n"), "it did not get to its end: {ran:?}");
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs all other tests of this test binary as an ordinary user.
///
/// # Panics
///
/// If one of them fails.
pub fn run_again_as_ordinary_user(this_test: &str) {
    if std::env::var_os(AGAIN).is_some() {
        return;
    }
    if !is_root() {
        // Past what is captured: nobody is to believe that this half was run.
        let _ = writeln!(
            std::io::stderr(),
            "\n*** NOT RUN AS ROOT: start this test as root to have both halves ***\n"
        );
        return;
    }
    // The binaries may lie where only root gets at.
    let folder = tempfile::tempdir().expect("a folder");
    // By another process: while this one has a program open for writing, a test beside this one
    // may fork, and the program could not be run.
    let copy = |from: &Path, name: &str| {
        let to = folder.path().join(name);
        let copied = Command::new("cp").arg(from).arg(&to).status().expect("cp");
        assert!(copied.success(), "{} was not copied", from.display());
        std::fs::set_permissions(&to, PermissionsExt::from_mode(0o755)).expect("its mode");
        chown(&to, Some(USER), Some(USER)).expect("its owner");
        to
    };
    for name in ["substratd", "substratctl"] {
        copy(&binary(name), name);
    }
    let suite = copy(&std::env::current_exe().expect("this program"), "suite");
    let tmp = folder.path().join("tmp");
    std::fs::create_dir(&tmp).expect("a folder");
    for path in [folder.path(), &tmp] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("its mode");
        chown(path, Some(USER), Some(USER)).expect("its owner");
    }
    let mut command = Command::new(suite);
    command.args(["--skip", this_test, "--test-threads", "2"]);
    command.env(AGAIN, "1").env("SUBSTRAT_BIN_DIR", folder.path());
    command.env("TMPDIR", &tmp).env("HOME", &tmp).current_dir(&tmp);
    let output = command.uid(USER).gid(USER).output().expect("the suite runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "as an ordinary user:\n{text}\n{errors}");
    assert!(!text.contains("running 0 tests"), "{text}");
}
