//! Going on after the end.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use substrat_server::launcher::{Ends, Exit, Launched};
use substrat_server::workspace::SandboxPolicy;
use substrat_tests::hostile::python;
use substrat_tests::launch::Bench;
use tokio::io::{AsyncBufReadExt, AsyncReadExt};

/// Holds a lock in every process that it becomes: some leave their session, close all that they
/// have, heed no signal, stop themselves, or fork for ever.
const STUBBORN: &str = r#"
lock = os.open("lock", os.O_CREAT | os.O_RDWR)
fcntl.flock(lock, fcntl.LOCK_EX)
def heedless():
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
def daemon(life):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    heedless()
    os.closerange(0, lock)
    os.closerange(lock + 1, 64)
    life()
    os._exit(0)
def sleeper():
    while True:
        signal.pause()
def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)
def forker():
    # One after the other: each is a new process, and none waits to be found.
    while True:
        if os.fork():
            os._exit(0)
        os.setsid()
        time.sleep(0.001)
for life in [sleeper, stopped, forker]:
    daemon(life)
"#;

async fn stubborn(bench: &Bench, then: &str) -> Launched {
    let mut launched =
        bench.launcher.start(python(bench.world(&[]), &format!("{STUBBORN}{then}"))).await.unwrap();
    let Ends::Pipes { stdout, .. } = &mut launched.ends else { panic!("no pipes") };
    let mut line = String::new();
    tokio::io::BufReader::new(stdout).read_line(&mut line).await.unwrap();
    assert_eq!(line, "ready\n");
    launched
}

/// Nobody holds the lock any more.
#[track_caller]
fn assert_nobody_left(root: &Path) {
    let file = File::open(root.join("lock")).unwrap();
    flock(&file, FlockOperation::NonBlockingLockExclusive).expect("a process is left");
}

/// Waits until nobody holds the lock any more.
async fn all_end(root: &Path) {
    let file = File::open(root.join("lock")).unwrap();
    let locked = tokio::task::spawn_blocking(move || flock(&file, FlockOperation::LockExclusive));
    let locked = tokio::time::timeout(Duration::from_secs(60), locked).await;
    locked.expect("a process is left").unwrap().unwrap();
}

const STAY: &str = "heedless()\nsay('ready')\nsleeper()\n";

#[tokio::test]
async fn nothing_outlives_a_command_that_exits() {
    for policy in [SandboxPolicy::Required, SandboxPolicy::Off] {
        let bench = Bench::new(policy);
        let mut launched = stubborn(&bench, "say('ready')\nos._exit(5)\n").await;
        assert_eq!(launched.process.wait().await, Exit::Code(5));
        assert_nobody_left(&bench.root());
    }
}

#[tokio::test]
async fn nothing_outlives_a_command_that_is_stopped() {
    for policy in [SandboxPolicy::Required, SandboxPolicy::Off] {
        let bench = Bench::new(policy);
        let mut launched = stubborn(&bench, STAY).await;
        launched.process.interrupt();
        // It heeds neither, and is killed.
        launched.process.stop(Duration::from_millis(20)).await;
        assert_nobody_left(&bench.root());
    }
}

#[tokio::test]
async fn nothing_outlives_a_process_that_is_dropped() {
    for policy in [SandboxPolicy::Required, SandboxPolicy::Off] {
        let bench = Bench::new(policy);
        let launched = stubborn(&bench, STAY).await;
        let first = launched.process.as_fd().try_clone_to_owned().unwrap();
        drop(launched);
        let ended = tokio::task::spawn_blocking(move || {
            let mut readable = [PollFd::new(&first, PollFlags::IN)];
            poll(&mut readable, Some(&Timespec { tv_sec: 60, tv_nsec: 0 })).unwrap()
        });
        assert_eq!(ended.await.unwrap(), 1, "it does not end");
        // Those that were told to end by their group take a moment.
        all_end(&bench.root()).await;
    }
}

#[tokio::test]
async fn a_first_process_that_is_killed_takes_all_with_it() {
    let bench = Bench::new(SandboxPolicy::Required);
    let mut launched = stubborn(&bench, STAY).await;
    let pid = rustix::process::Pid::from_raw(launched.process.pid()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    launched.process.wait().await;
    assert_nobody_left(&bench.root());
}

/// Set where this binary is to be the one that launches, and is killed.
const LAUNCHER: &str = "SUBSTRAT_TEST_LAUNCHER";

#[tokio::test]
async fn nothing_outlives_a_launcher_that_is_killed() {
    if let Ok(policy) = std::env::var(LAUNCHER) {
        return be_killed(if policy == "off" {
            SandboxPolicy::Off
        } else {
            SandboxPolicy::Required
        })
        .await;
    }
    for policy in ["off", "required"] {
        let mut launcher = Command::new(std::env::current_exe().unwrap());
        launcher.args([
            "--exact",
            "ends::nothing_outlives_a_launcher_that_is_killed",
            "--nocapture",
        ]);
        let mut launcher = launcher.env(LAUNCHER, policy).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(launcher.stdout.take().unwrap()).lines();
        let root = said
            .find_map(|line| Some(line.unwrap().split_once("root: ")?.1.to_owned()))
            .expect("it tells where its workspace is");
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        all_end(Path::new(&root)).await;
        let folder = Path::new(&root).ancestors().nth(4).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }
}

async fn be_killed(policy: SandboxPolicy) {
    let mut bench = Bench::new(policy);
    bench.folder.disable_cleanup(true);
    let launched = stubborn(&bench, STAY).await;
    println!("\nroot: {}", bench.root().display());
    std::future::pending::<()>().await;
    drop(launched);
}

#[tokio::test]
async fn who_holds_the_output_open_does_not_hold_the_end_up() {
    let bench = Bench::new(SandboxPolicy::Required);
    let script = "if os.fork() == 0:\n    os.setsid()\n    sleeper()\nos._exit(4)\n";
    let launch = python(bench.world(&[]), &format!("def sleeper():\n    signal.pause()\n{script}"));
    let mut launched = bench.launcher.start(launch).await.unwrap();
    let Ends::Pipes { mut stdout, .. } = launched.ends else { panic!("no pipes") };
    assert_eq!(launched.process.wait().await, Exit::Code(4));
    assert_eq!(stdout.read_to_end(&mut Vec::new()).await.unwrap(), 0);
}
