//! System calls that make, enter or change what a sandbox is made of.

use substrat_server::launcher::{Ends, Exit};
use substrat_server::workspace::SandboxPolicy;
use substrat_tests::hostile::{assert_held, python};
use substrat_tests::launch::Bench;

#[tokio::test]
async fn no_namespace_is_made_or_entered() {
    let bench = Bench::new(SandboxPolicy::Required);
    let script = r#"
kinds = {"time": 0x80, "mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000,
         "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}
for kind, flag in kinds.items():
    attempt(f"unshare {kind}", lambda: call("unshare", flag), only=errno.EPERM)
    attempt(f"unshare {kind} and users", lambda: call("unshare", flag | 0x10000000), only=errno.EPERM)
    if kind != "time":
        attempt(f"clone {kind}", lambda: call("clone", flag | signal.SIGCHLD, 0, 0, 0, 0), only=errno.EPERM)
    arguments = struct.pack("QQQQQQQQ", flag, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    attempt(f"clone3 {kind}", lambda: call("clone3", arguments, len(arguments)), only=errno.ENOSYS)
for name in os.listdir("/proc/self/ns"):
    own = os.open("/proc/self/ns/" + name, os.O_RDONLY)
    attempt("entering its own " + name, lambda: call("setns", own, 0), only=errno.EPERM)
    attempt("looking at that of 1 " + name, lambda: os.open("/proc/1/ns/" + name, os.O_RDONLY))
process = os.pidfd_open(1)
attempt("entering those of 1", lambda: call("setns", process, 0x20000), only=errno.EPERM)
print("done")
"#;
    assert_held(&bench.run(python(bench.world(&[]), script)).await);
}

#[tokio::test]
async fn nothing_is_mounted_moved_or_unmounted() {
    let bench = Bench::new(SandboxPolicy::Required);
    let script = r#"
BIND, REMOUNT, MOVE = 0x1000, 0x20, 0x2000
folder = b"/workspace/folder"
os.mkdir(folder)
before = open("/proc/self/mountinfo").read()
calls = [("mount", b"x", folder, b"tmpfs", 0, 0), ("mount", b"x", folder, b"proc", 0, 0),
         ("mount", b"/", folder, 0, BIND, 0), ("mount", b"/proc/1/root", folder, 0, BIND, 0),
         ("mount", 0, b"/usr", 0, REMOUNT | BIND, 0), ("mount", 0, b"/", 0, REMOUNT, 0),
         ("mount", b"/workspace", folder, 0, MOVE, 0), ("umount2", b"/proc/sys", 0),
         ("umount2", b"/proc", 2), ("umount2", b"/workspace", 2), ("umount2", b"/", 2),
         ("pivot_root", b"/workspace", folder), ("chroot", b"/workspace"),
         ("open_tree", -100, b"/", 1), ("open_tree", -100, b"/proc/1/root", 1),
         ("open_tree_attr", -100, b"/", 1, 0, 0),
         ("move_mount", -100, b"/proc", -100, folder, 0), ("fsopen", b"tmpfs", 0),
         ("fsopen", b"ext4", 0), ("fsconfig", 0, 0, 0, 0, 0), ("fsmount", 0, 0, 0),
         ("fspick", -100, b"/tmp", 0), ("mount_setattr", -100, b"/usr", 0, bytes(32), 32)]
for name, *arguments in calls:
    attempt(f"{name} {arguments}", lambda: call(name, *arguments), only=errno.EPERM)
assert open("/proc/self/mountinfo").read() == before
print("done")
"#;
    assert_held(&bench.run(python(bench.world(&[]), script)).await);
}

#[tokio::test]
async fn calls_that_led_out_of_sandboxes_before_are_refused() {
    let bench = Bench::new(SandboxPolicy::Required);
    let script = r#"
for name in ["keyctl", "add_key", "request_key", "bpf", "perf_event_open", "io_uring_setup",
             "io_uring_enter", "io_uring_register", "userfaultfd", "kexec_load",
             "kexec_file_load", "init_module", "finit_module", "delete_module", "syslog", "reboot",
             "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "settimeofday",
             "clock_settime", "adjtimex", "clock_adjtime", "fanotify_init", "sethostname",
             "setdomainname", "vhangup", "lookup_dcookie", "open_by_handle_at"]:
    attempt(name, lambda: call(name, 0, 0, 0, 0, 0, 0), only=errno.EPERM)
print("done")
"#;
    assert_held(&bench.run(python(bench.world(&[]), script)).await);
}

#[tokio::test]
async fn system_calls_by_their_other_numbers_are_refused() {
    if std::env::consts::ARCH != "x86_64" {
        return;
    }
    let bench = Bench::new(SandboxPolicy::Required);
    let script = r#"
for name in ["unshare", "mount", "keyctl", "ptrace", "bpf", "setns"]:
    attempt(name + " of x32", lambda: call(0x40000000 | NUMBERS[name][0], 0, 0, 0, 0, 0), only=errno.ENOSYS)
print("done")
"#;
    assert_held(&bench.run(python(bench.world(&[]), script)).await);
    // The calls of 32 bits: unshare(CLONE_NEWUSER), as a process would have to encode it.
    let script = r#"
import mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("53 b8 36010000 bb 00000010 cd80 5b c3"))
start = ctypes.addressof(ctypes.c_char.from_buffer(code))
say("going")
say("ESCAPED:", ctypes.CFUNCTYPE(ctypes.c_int)(start)())
"#;
    let ran = bench.run(python(bench.world(&[]), script)).await;
    assert_eq!(
        (ran.exit, ran.stdout.as_str()),
        (Exit::Signal(libc_sigsys()), "going\n"),
        "{ran:?}"
    );
}

fn libc_sigsys() -> i32 {
    rustix::process::Signal::SYS.as_raw()
}

#[tokio::test]
async fn nothing_is_typed_into_a_terminal() {
    let bench = Bench::new(SandboxPolicy::Required);
    let script = r#"
for request in [0x5412, 0x541C, 0x5412 | 1 << 33]:
    attempt("typing", lambda: call(16 if X86 else 29, 0, request, b"x"), only=errno.EPERM)
print("done")
"#;
    let mut launch = python(bench.world(&[]), script);
    launch.terminal = Some((24, 80));
    let mut launched = bench.launcher.start(launch).await.unwrap();
    let Ends::Terminal(mut near) = launched.ends else { panic!("no terminal") };
    let mut bytes = Vec::new();
    while let Some(piece) = near.output.recv().await {
        bytes.extend(piece);
    }
    assert_eq!(launched.process.wait().await, Exit::Code(0));
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.ends_with("done\r\n") && !text.contains("ESCAPED"), "{text}");
}
