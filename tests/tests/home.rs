//! Homes and configurations that cannot be used, and what a home lets others see.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use substrat_tests::harness::{
    Daemon, binary, forget_environment, is_root, say, say_with, skipped, substratctl, substratd,
    tmpfs,
};

const ECHO: &str = r#"fn turn(prompt) { "you said: " + messages()[0].text }"#;
/// A user that owns nothing.
const NOBODY: u32 = 65534;

fn refused(home: &Path, change: impl FnOnce(&mut Command)) -> String {
    let mut command = substratd(home);
    change(&mut command);
    Daemon::run(home, command).err().expect("the daemon does not start")
}

fn set(home: &Path, setting: &str) -> String {
    refused(home, |command| {
        command.args(["--set", setting]);
    })
}

fn in_environment(home: &Path, name: &str, value: &str) -> String {
    refused(home, |command| {
        command.env(name, value);
    })
}

#[test]
fn a_bad_configuration_file_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    let path = home.join("config.toml");
    let cases = [
        ("slot = 3", "unknown key \"slot\""),
        ("[slots]\nscriptd = 3", "unknown key \"slots.scriptd\""),
        ("[slots]\nscripted = \"many\"", "slots.scripted = \"many\": a number from 1 to"),
        ("slots.scripted = 0", "slots.scripted = 0: a number from 1 to"),
        ("resume = true", "resume = true: one of these fits: roots, all, none"),
        ("allow_users = [4294967296]", "a list of numbers fits"),
        ("resume = \"all\"\nslots = [", "config.toml: line 2, column"),
        ("resume = \"all\"\nresume = \"none\"", "config.toml: line 2, column"),
    ];
    for (text, complaint) in cases {
        fs::write(&path, text).unwrap();
        let said = refused(&home, |_| {});
        assert!(said.contains(complaint), "{text:?}: {said}");
        assert!(said.contains(&path.display().to_string()), "{text:?}: {said}");
        let said = say(&home, &["daemon", "start"]);
        assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""), "{said:?}");
        assert!(said.stderr.starts_with("error: the daemon did not start: "), "{said:?}");
        assert!(said.stderr.contains(complaint), "{said:?}");
        let said = say(&home, &["config", "show"]);
        assert_eq!(said.code, Some(6), "{said:?}");
        assert!(said.stderr.contains(complaint), "{said:?}");
    }
    let said = {
        fs::write(&path, "slots = 3").unwrap();
        say(&home, &["daemon", "start"])
    };
    assert!(said.stderr.contains("hint: did you mean \"slots."), "{said:?}");
    fs::write(&path, b"resume = \"\xff\"").unwrap();
    assert!(refused(&home, |_| {}).contains("config.toml"));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(refused(&home, |_| {}).contains("config.toml"));
    assert!(!home.join("journal").exists(), "nothing was begun");
}

#[test]
fn a_bad_setting_is_refused_with_its_source() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    for (setting, complaint) in [
        ("nonsense=1", "--set: unknown key \"nonsense\""),
        ("slots.scripted", "--set: slots.scripted = \"\": a number from 1 to"),
        ("drain_seconds=-1", "--set: drain_seconds = -1: a number from 0 to 86400 fits"),
        ("resume=maybe", "--set: resume = \"maybe\": one of these fits"),
        ("scripted.tool_socket=1", "--set: scripted.tool_socket = 1: true or false fits"),
    ] {
        let said = set(&home, setting);
        assert!(said.contains(complaint), "{said}");
        let said = say(&home, &["daemon", "start", "--set", setting]);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.stderr.contains(complaint), "{said:?}");
    }
    let said = in_environment(&home, "SUBSTRAT_NONSENSE", "1");
    assert!(said.contains("environment: unknown key \"SUBSTRAT_NONSENSE\""), "{said}");
    let said = in_environment(&home, "SUBSTRAT_SLOTS_SCRIPTED", "1.5");
    assert!(said.contains("SUBSTRAT_SLOTS_SCRIPTED: slots.scripted = 1.5"), "{said}");
}

#[test]
fn variables_that_are_no_text_do_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let mut command = substratd(&home);
    command.env("LEGACY", OsStr::from_bytes(b"\xff")).env("SUBSTRAT_LOG_LEVEL", "debug");
    let daemon = Daemon::run(&home, command).unwrap();
    let shown = say(&home, &["config", "show", "-o", "json"]).json();
    let values = shown["values"].as_array().unwrap();
    let level = values.iter().find(|value| value["key"] == "log.level").unwrap();
    assert_eq!(
        (&level["value"], &level["source"]),
        (&"\"debug\"".into(), &"SUBSTRAT_LOG_LEVEL".into())
    );
    drop(daemon);
    let said = refused(&home, |command| {
        command.env("SUBSTRAT_RESUME", OsStr::from_bytes(b"\xff"));
    });
    assert!(said.contains("SUBSTRAT_RESUME: resume = "), "{said}");
}

#[test]
fn a_home_that_cannot_be_used_is_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    for mode in [0o777, 0o720, 0o702] {
        fs::set_permissions(&home, fs::Permissions::from_mode(mode)).unwrap();
        let said = refused(&home, |_| {});
        let way_out = format!("(mode {mode:o}); run chmod 700 {}", home.display());
        assert!(said.contains(&way_out), "{said}");
    }
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(refused(&file, |_| {}).contains(&format!("{} is not a folder", file.display())));
    assert!(refused(&file.join("home"), |_| {}).contains("Not a directory"));
    let nowhere = folder.path().join("nowhere");
    symlink("/does/not/exist", &nowhere).unwrap();
    assert!(refused(&nowhere, |_| {}).contains("is not a folder"));
    assert_eq!(fs::read_dir(&home).unwrap().count(), 0, "nothing was begun");

    // What others could read is from then on closed to them.
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
    let _daemon = Daemon::on(&home, &[]);
    assert_eq!(home.metadata().unwrap().mode() & 0o7777, 0o700);
}

#[test]
fn a_home_and_a_socket_that_every_sandbox_would_show_are_refused() {
    // Not below /tmp, of which a sandbox has its own.
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let tools = folder.path().join("tools");
    fs::create_dir(&tools).unwrap();
    let setting = format!("sandbox.system_paths=[{tools:?}]");
    let said = set(&tools.join("home"), &setting);
    assert!(said.contains("is seen by every process of an agent"), "{said}");
    assert!(said.contains("give a home elsewhere with --home"), "{said}");
    let said = refused(&folder.path().join("home"), |command| {
        command.args(["--set", &setting]).arg("--socket").arg(tools.join("api.sock"));
    });
    assert!(said.contains("api.sock") && said.contains("every process of an agent"), "{said}");
    // A socket elsewhere is not shown by a link either.
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let mut command = substratd(&folder.path().join("other"));
    command.arg("--socket").arg(elsewhere.join("api.sock"));
    let daemon = Daemon::run(&folder.path().join("other"), command).unwrap();
    let socket = elsewhere.join("api.sock");
    let ctl = |args: &[&str]| {
        let socket = socket.to_str().unwrap();
        say(&daemon.home, &[&["--socket", socket], args].concat())
    };
    assert_eq!(ctl(&["workspace", "create", "w"]).code, Some(0));
    let linked = ctl(&["workspace", "link", "w", elsewhere.to_str().unwrap(), "in"]);
    assert!(linked.stderr.contains("it holds the daemon's socket"), "{linked:?}");
}

#[test]
fn a_home_of_someone_else_is_refused() {
    if !is_root() {
        return skipped("only root can give a folder away");
    }
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(NOBODY), None).unwrap();
    let said = refused(&home, |_| {});
    let expected =
        format!("{} belongs to user {NOBODY}, and this is user 0; give a home", home.display());
    assert!(said.contains(&expected), "{said}");
    assert_eq!(fs::read_dir(&home).unwrap().count(), 0, "nothing was begun");
}

#[test]
fn a_home_on_a_read_only_place_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mount) = tmpfs(folder.path(), "size=1m") else { return };
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    mount.again("ro");
    for home in [home, folder.path().join("new")] {
        let said = refused(&home, |_| {});
        assert!(said.contains("Read-only file system"), "{said}");
        assert!(said.contains(&home.display().to_string()), "{said}");
    }
}

#[test]
fn only_its_owner_is_let_in() {
    if !is_root() {
        return skipped("only root can run a daemon as someone else");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let reachable = Command::new(binary("substratd")).uid(NOBODY).arg("--version").output();
    if !reachable.is_ok_and(|output| output.status.success()) {
        return skipped("the binaries cannot be reached by another user");
    }
    let start = |name: &str, settings: &[&str]| {
        let home = folder.path().join(name);
        fs::create_dir(&home).unwrap();
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
        let mut command = substratd(&home);
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
        for setting in settings {
            command.args(["--set", setting]);
        }
        Daemon::run(&home, command).unwrap()
    };
    // Root passes the permissions of files, but the daemon asks who it is.
    let closed = start("closed", &[]);
    let said = say(&closed.home, &["agent", "list"]);
    assert_eq!(said.code, Some(8), "{said:?}");
    assert!(said.stderr.contains("belongs to another user"), "{said:?}");
    let said = say(&closed.home, &["agent", "create", "a", "--instructions", ECHO, "-o", "json"]);
    let error: serde_json::Value = serde_json::from_str(&said.stderr).unwrap();
    assert_eq!(error["error"]["reason"], "PEER_NOT_ALLOWED");
    let mut own = substratctl(&closed.home);
    let own = own.uid(NOBODY).current_dir("/").args(["agent", "list"]).output().unwrap();
    assert!(own.status.success(), "{own:?}");
    let open = start("open", &["allow_users=[0]"]);
    open.ctl_ok(&["agent", "create", "a", "--instructions", ECHO]);
    let mut other = substratctl(&open.home);
    let other = other.uid(NOBODY - 1).current_dir("/").args(["agent", "list"]).output().unwrap();
    assert_eq!(other.status.code(), Some(8), "{other:?}");
}

#[test]
fn more_connections_than_open_files_stop_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let mut command = Command::new("sh");
    forget_environment(&mut command);
    command.args(["-c", "ulimit -n 128; exec \"$@\" --background", "sh"]);
    command.arg(binary("substratd")).arg("--home").arg(&home);
    let daemon = Daemon::run(&home, command).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(async {
        let client = daemon.client().await;
        client.create("a", ECHO).await;
        client
    });
    let crowd: Vec<_> = (0..100)
        .map(|_| std::os::unix::net::UnixStream::connect(daemon.socket()).unwrap())
        .collect();
    runtime.block_on(async {
        for number in 0..50 {
            let name = format!("b{number}");
            client.create(&name, ECHO).await;
            assert_eq!(client.ask(&name, "hello").await.unwrap(), "you said: hello");
        }
    });
    drop(crowd);
    // Who waited for a place gets one.
    assert!(daemon.ctl_ok(&["agent", "list"]).contains("b49"));
}

/// Everything in a folder.
fn all(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(all(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

#[test]
fn what_a_daemon_writes_is_its_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let mut command = Command::new("sh");
    forget_environment(&mut command);
    let open = "umask 0; exec \"$@\" --background --set scripted.tool_socket=true";
    command.args(["-c", open, "sh"]).arg(binary("substratd")).arg("--home").arg(&home);
    let mut daemon = Daemon::run(&home, command).unwrap();
    daemon.ctl_ok(&["workspace", "create", "desk"]);
    let script = r#"fn turn(prompt) { write_file("a/b.txt", prompt); "ok" }"#;
    daemon.ctl_ok(&["agent", "create", "a", "--instructions", script, "--workspace", "desk"]);
    daemon.ctl_ok(&["agent", "send", "a", "hi"]);
    let check = |sockets: usize, logs: usize| {
        let found = all(&home);
        let sockets_found = found.iter().filter(|path| is_socket(path)).count();
        assert_eq!(sockets_found, sockets, "{found:?}");
        let logs_found = found.iter().filter(|path| path.ends_with("events.jsonl")).count();
        assert!(logs_found >= logs, "{found:?}");
        // The daemon's program by another name has the permissions of that, and a symbolic link
        // has none.
        let no_link = |path: &&PathBuf| !path.is_symlink() && !path.ends_with("run/init");
        for path in found.iter().filter(no_link) {
            let others = path.symlink_metadata().unwrap().mode() & 0o077;
            assert_eq!(others, 0, "{path:?}");
        }
    };
    check(2, 1);
    assert!(daemon.stop());
    check(0, 1);
    assert!(home.join("checkpoint").is_file());
}

fn is_socket(path: &Path) -> bool {
    path.symlink_metadata().unwrap().file_type().is_socket()
}

#[test]
fn no_secret_stands_in_the_arguments_of_a_process() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let mut command = substratd(&home);
    command.env("SUBSTRAT_LOG_LEVEL", "error");
    let daemon = Daemon::run(&home, command).unwrap();
    let arguments = fs::read_to_string(format!("/proc/{}/cmdline", daemon.pid)).unwrap();
    let arguments: Vec<&str> = arguments.trim_end_matches('\0').split('\0').skip(1).collect();
    assert_eq!(arguments, ["--home", home.to_str().unwrap(), "--background"]);
    // Instructions and messages need not be arguments either.
    let secret = r#"fn turn(prompt) { if prompt.contains("hunter2") { "known" } else { "no" } }"#;
    let said =
        say_with(&home, &["agent", "create", "a", "--instructions", "@-"], secret.as_bytes());
    assert_eq!(said.code, Some(0), "{said:?}");
    let said = say_with(&home, &["agent", "send", "a", "-"], b"hunter2");
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "known\n"), "{said:?}");
    assert!(!daemon.log().contains("hunter2"));
}

#[test]
fn few_open_files_are_enough_for_many_agents() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let start = || {
        let mut command = Command::new("sh");
        forget_environment(&mut command);
        command.args(["-c", "ulimit -n 256; exec \"$@\" --background", "sh"]);
        command.arg(binary("substratd")).arg("--home").arg(&home);
        Daemon::run(&home, command).unwrap()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ask_all = |daemon: &Daemon, text: &str| {
        runtime.block_on(async {
            let client = daemon.client().await;
            let asked = (0..300).map(|number| {
                let client = client.clone();
                async move { client.ask(&format!("a{number}"), text).await.unwrap() }
            });
            for answer in futures_util::future::join_all(asked).await {
                assert_eq!(answer, format!("you said: {text}"));
            }
        });
    };
    let mut daemon = start();
    runtime.block_on(async {
        let client = daemon.client().await;
        for number in 0..300 {
            client.create(&format!("a{number}"), ECHO).await;
        }
    });
    ask_all(&daemon, "one");
    daemon.kill();
    let mut daemon = start();
    ask_all(&daemon, "two");
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.pid)).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().nth(3), Some("256"), "{files}");
    assert!(daemon.stop());
    let logs = all(&home).iter().filter(|path| path.ends_with("events.jsonl")).count();
    assert!(logs >= 300, "{logs}");
}

#[test]
fn a_socket_may_lie_beside_what_processes_of_agents_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let mut command = substratd(&home);
    command.current_dir(folder.path()).args(["--socket", "own.sock"]);
    let daemon = Daemon::run(&home, command).unwrap();
    assert!(folder.path().join("own.sock").exists());
    drop(daemon);
}
