//! What of the kernel, and of its devices, is seen as files.

use std::fs;

use substrat_server::workspace::SandboxPolicy;
use substrat_tests::hostile::{assert_held, python};
use substrat_tests::launch::Bench;

#[tokio::test]
async fn no_setting_of_the_kernel_is_opened_for_writing() {
    let bench = Bench::new(SandboxPolicy::Required);
    let before = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let script = r#"
for top in os.listdir("/proc"):
    if top[0].isdigit() or os.path.islink("/proc/" + top):
        continue
    paths = ["/proc/" + top]
    for folder, _, names in os.walk("/proc/" + top):
        paths += [folder + "/" + name for name in names]
    for path in paths:
        # A file of no bytes stands for one that is hidden.
        if os.path.isfile(path):
            attempt(path, lambda: os.open(path, os.O_WRONLY | os.O_NONBLOCK))
assert os.path.isfile("/proc/sys/kernel/core_pattern")
for path in ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger"]:
    attempt(path, lambda: write(path, b"|/workspace/x"))
print("done")
"#;
    assert_held(&bench.run(python(bench.world(&[]), script)).await);
    assert_eq!(fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap(), before);
}

#[tokio::test]
async fn what_only_root_may_read_is_not_read() {
    let bench = Bench::new(SandboxPolicy::Required);
    let script = r#"
def unread(path):
    text = read(path)
    if not text:
        raise OSError(errno.ENODATA, "nothing is there")
    return text
for name in ["kcore", "kmsg", "kpagecount", "kpageflags", "kpagecgroup", "slabinfo", "timer_list",
             "vmallocinfo", "pagetypeinfo", "keys", "key-users", "sched_debug"]:
    attempt("/proc/" + name, lambda: unread("/proc/" + name))
for top in ["/etc", "/run", "/home"]:
    for folder, folders, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.islink(path) or path.startswith("/home/agent"):
                continue
            there = os.stat(path)
            if not stat.S_ISREG(there.st_mode):
                # The folders that bubblewrap makes hold nothing but what is mounted.
                continue
            if not there.st_mode & stat.S_IROTH and os.access(path, os.R_OK):
                print("ESCAPED:", path, "is for others not to read")
attempt("keys of TLS", lambda: os.listdir("/etc/ssl/private"))
attempt("keys of TLS", lambda: os.listdir("/etc/pki/tls/private"))
print("done")
"#;
    assert_held(&bench.run(python(bench.world(&[]), script)).await);
}

#[tokio::test]
async fn no_device_but_the_harmless_ones_is_there_and_none_is_made() {
    let bench = Bench::new(SandboxPolicy::Required);
    let script = r#"
known = {"console", "core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr",
         "stdin", "stdout", "tty", "urandom", "zero"}
for name in set(os.listdir("/dev")) - known:
    print("ESCAPED: there is /dev/" + name)
for name in ["mem", "kmem", "port", "kmsg", "sda", "vda", "nvme0n1", "loop0", "loop-control",
             "fuse", "kvm", "net/tun", "mapper/control", "vsock", "vhost-net", "uinput", "tty0",
             "userfaultfd", "console", "bus/usb", "snd", "dri"]:
    attempt("/dev/" + name, lambda: os.open("/dev/" + name, os.O_RDONLY))
attempt("the terminal of the daemon", lambda: os.open("/dev/tty", os.O_RDWR))
for folder in ["/workspace", "/tmp", "/dev", "/dev/shm", "/home/agent"]:
    for kind, name, numbers in [(stat.S_IFCHR, "mem", (1, 1)), (stat.S_IFBLK, "disk", (254, 0)),
                                (stat.S_IFCHR, "null", (1, 3)), (stat.S_IFBLK, "sda", (8, 0))]:
        attempt("making a device in " + folder,
                lambda: os.mknod(f"{folder}/{name}", kind | 0o666, os.makedev(*numbers)))
attempt("/sys", lambda: os.listdir("/sys"))
print("done")
"#;
    assert_held(&bench.run(python(bench.world(&[]), script)).await);
}
