//! Other processes, and the first one of the sandbox.

use std::fs;
use std::process::{Command, Stdio};

use substrat_server::launcher::Exit;
use substrat_server::workspace::SandboxPolicy;
use substrat_tests::hostile::{assert_held, python};
use substrat_tests::launch::Bench;

#[tokio::test]
async fn processes_of_the_host_are_neither_seen_nor_signalled() {
    let bench = Bench::new(SandboxPolicy::Required);
    let mut victim = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let script = r#"
seen = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
say("seen", seen == [1, os.getpid()])
for pid in [VICTIM, TEST]:
    if pid in seen:
        continue
    for number in [0, signal.SIGTERM, signal.SIGKILL]:
        attempt("a signal", lambda: os.kill(pid, number))
        attempt("a signal to its group", lambda: os.killpg(pid, number))
    attempt("holding it", lambda: os.pidfd_open(pid))
    attempt("tracing it", lambda: call("ptrace", 16, pid, 0, 0))
    attempt("seeing it", lambda: read(f"/proc/{pid}/cmdline"))
    attempt("its priority", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    attempt("its processors", lambda: os.sched_setaffinity(pid, {0}))
child = os.fork()
if child == 0:
    signal.pause()
os.kill(-1, signal.SIGKILL)
say("others", os.waitpid(child, 0)[1])
print("done")
"#;
    let header = format!("VICTIM, TEST = {}, {}\n", victim.id(), std::process::id());
    let ran = bench.run(python(bench.world(&[]), &format!("{header}{script}"))).await;
    assert_held(&ran);
    assert!(ran.stdout.starts_with("seen True\n") && ran.stdout.contains("others 9\n"), "{ran:?}");
    assert!(victim.try_wait().unwrap().is_none(), "it was ended");
    victim.kill().unwrap();
    victim.wait().unwrap();
}

#[tokio::test]
async fn the_first_process_is_not_looked_into() {
    let bench = Bench::new(SandboxPolicy::Required);
    let script = r#"
class Memory(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
target = ctypes.create_string_buffer(64)
here, there = Memory(ctypes.addressof(target), 64), Memory(0x400000, 64)
attempt("its memory", lambda: call("process_vm_readv", 1, ctypes.byref(here), 1, ctypes.byref(there), 1, 0))
for name in ["environ", "mem", "maps", "auxv", "io", "stack", "syscall", "pagemap", "exe", "root/etc/passwd",
             "cwd/etc/passwd", "map_files", "fdinfo/0", "fd/0", "fd/3", "task/1/fd/3", "personality"]:
    attempt("its " + name, lambda: read("/proc/1/" + name) or "nothing")
for name in ["cwd", "root", "exe", "fd/0", "fd/1", "fd/2", "fd/3", "fd/4"]:
    attempt("where its " + name + " is", lambda: os.readlink("/proc/1/" + name))
for name in ["mem", "fd/0", "fd/3"]:
    attempt("writing its " + name, lambda: os.open("/proc/1/" + name, os.O_WRONLY))
# Root's user may open these, and write nothing.
for name in ["uid_map", "gid_map", "setgroups", "attr/current", "oom_score_adj"]:
    attempt("setting its " + name, lambda: write("/proc/1/" + name, b"-1"))
for request in [16, 0x4206]:
    attempt("tracing it", lambda: call("ptrace", request, 1, 0, 0))
process = os.pidfd_open(1)
for number in range(16):
    attempt(f"taking its descriptor {number}", lambda: call("pidfd_getfd", process, number, 0))
print("done")
"#;
    assert_held(&bench.run(python(bench.world(&[]), script)).await);
}

#[tokio::test]
async fn the_first_process_is_not_ended_or_stopped_by_signals() {
    let bench = Bench::new(SandboxPolicy::Required);
    let script = r#"
for round in range(3):
    for number in range(1, 65):
        try:
            os.kill(1, number)
        except OSError:
            pass
# It adopts, and waits for what it adopted.
child = os.fork()
if child == 0:
    if os.fork() == 0:
        os._exit(3)
    os._exit(0)
os.waitpid(child, 0)
say("still here")
sys.exit(7)
"#;
    let ran = bench.run(python(bench.world(&[]), script)).await;
    assert_eq!((ran.exit, ran.stdout.as_str()), (Exit::Code(7), "still here\n"), "{ran:?}");
}

#[tokio::test]
async fn the_daemons_program_is_not_overwritten() {
    let bench = Bench::new(SandboxPolicy::Required);
    let program = bench.folder.path().join("home/run/init");
    let before = fs::read(&program).unwrap();
    let script = r#"
import subprocess
attempt("the program itself", lambda: os.open("/run/substrat/init", os.O_RDWR))
# It waits for a daemon that says nothing; its file is open for running meanwhile.
ours, theirs = socket.socketpair()
running = subprocess.Popen(["/run/substrat/init", "init"], stdin=theirs)
ours.recv(64)
attempt("through who runs it", lambda: os.open(f"/proc/{running.pid}/exe", os.O_RDWR))
ours.close()
theirs.close()
running.wait()
attempt("when nobody runs it", lambda: os.open("/run/substrat/init", os.O_WRONLY | os.O_TRUNC))
print("done")
"#;
    assert_held(&bench.run(python(bench.world(&[]), script)).await);
    assert!(fs::read(&program).unwrap() == before, "it was changed");
}

#[tokio::test]
async fn what_a_command_says_is_not_taken_for_the_first_process() {
    for policy in [SandboxPolicy::Required, SandboxPolicy::Off] {
        let bench = Bench::new(policy);
        let lie = r#"{"exit":0}\n"hello"\n"ready"\n"#;
        let script = format!(
            "for number in [0, 1, 2]:\n    try:\n        os.write(number, b'{lie}')\n    \
             except OSError:\n        pass\nsys.exit(7)\n"
        );
        let ran = bench.run(python(bench.world(&[]), &script)).await;
        let said = "{\"exit\":0}\n\"hello\"\n\"ready\"\n";
        assert_eq!(
            (ran.exit, ran.stdout.as_str(), ran.stderr.as_str()),
            (Exit::Code(7), said, said)
        );
    }
}
