//! Files outside of the workspace.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use substrat_server::model::Access;
use substrat_server::workspace::SandboxPolicy;
use substrat_tests::hostile::{assert_held, is_root, python};
use substrat_tests::launch::Bench;

/// What must never be read from inside.
const SECRET: &str = "the secret of the host";

/// A launcher with secrets around its workspace: beside its home, in its home, in the workspace of
/// somebody else.
fn with_secrets() -> (Bench, Vec<String>) {
    let bench = Bench::new(SandboxPolicy::Required);
    let home = bench.folder.path().join("home");
    let folders =
        [bench.host("beside"), home.clone(), home.join("workspaces/other/root"), home.join("run")];
    let paths = folders.map(|folder| {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("secret"), SECRET).unwrap();
        folder.join("secret").to_str().unwrap().to_owned()
    });
    (bench, paths.to_vec())
}

#[tokio::test]
async fn nothing_of_the_host_outside_of_the_workspace_is_read() {
    let (bench, secrets) = with_secrets();
    let root = bench.root().to_str().unwrap().to_owned();
    let script = r#"
for secret in SECRETS:
    beneath = secret.lstrip("/")
    for way in ["/", "/proc/self/root/", "/proc/self/cwd/" + "../" * 40, "../" * 40,
                "/proc/1/root/", "/proc/1/cwd/" + "../" * 40, "/proc/thread-self/root/",
                "/workspace/" + "../" * 40, "/dev/fd/../../../", "/proc/self/task/1/root/"]:
        attempt("reading " + way + "...", lambda: read(way + beneath))
    for number in range(64):
        attempt(f"through descriptor {number} of 1", lambda: read(f"/proc/1/fd/{number}/../{beneath}"))
for path in ["/etc/shadow", "/etc/gshadow", "/etc/ssl/private", "/root/.ssh/id_rsa", "/root",
             "/var/log/syslog", "/boot", "/run/dbus/system_bus_socket", "/proc/kcore", "/sys/kernel",
             ROOT + "/mine", os.path.dirname(ROOT), "/proc/1/root", "/proc/1/cwd", "/proc/1/exe"]:
    attempt("opening " + path, lambda: os.open(path, os.O_RDONLY))
print("homes", os.listdir("/home"))
print("done")
"#;
    let script = format!("SECRETS = {secrets:?}\nROOT = {root:?}\n{script}");
    let ran = bench.run(python(bench.world(&[]), &script)).await;
    assert_held(&ran);
    assert!(ran.stdout.contains("homes ['agent']"), "{}", ran.stdout);
    assert!(!ran.stdout.contains(SECRET));
}

#[tokio::test]
async fn nothing_outside_of_the_workspace_is_written() {
    let (bench, secrets) = with_secrets();
    let shown = bench.host("shown");
    fs::write(shown.join("page"), "as it was").unwrap();
    let script = r#"
for secret in SECRETS:
    for way in ["/", "/proc/self/root/", "/workspace/" + "../" * 40, "/proc/1/root/"]:
        attempt("writing " + way + "...", lambda: write(way + secret.lstrip("/")))
        attempt("making a file beside it", lambda: write(way + secret.lstrip("/") + ".new"))
for folder in ["/", "/usr", "/usr/bin", "/usr/local/bin", "/etc", "/etc/ssl/certs", "/run",
               "/run/substrat", "/run/substrat/mounts", "/home", "/dev", "/proc", "/proc/sys/kernel",
               "/workspace/shown"]:
    name = folder.rstrip("/") + "/new"
    attempt("a file in " + folder, lambda: write(name))
    attempt("a folder in " + folder, lambda: os.mkdir(name))
    attempt("a link in " + folder, lambda: os.symlink("x", name))
    attempt("a nameless file in " + folder, lambda: os.open(folder, os.O_TMPFILE | os.O_RDWR))
for path in ["/workspace/shown/page", "/etc/passwd", "/etc/hosts", "/usr/bin/env",
             "/run/substrat/init", "/bin/sh", "/etc/ld.so.cache"]:
    attempt("writing " + path, lambda: os.open(path, os.O_WRONLY))
    attempt("cutting " + path, lambda: os.truncate(path, 0))
    attempt("removing " + path, lambda: os.unlink(path))
    attempt("changing the mode of " + path, lambda: os.chmod(path, 0o777))
    attempt("giving away " + path, lambda: os.chown(path, 1000, 1000))
    attempt("dating " + path, lambda: os.utime(path, (1, 1)))
    attempt("marking " + path, lambda: os.setxattr(path, "user.mark", b"x"))
    attempt("moving " + path, lambda: os.rename(path, "/workspace/taken"))
print("done")
"#;
    let world = bench.world(&[("shown", &shown, Access::ReadOnly)]);
    let program = bench.folder.path().join("home/run/init");
    let before = fs::metadata(&program).unwrap();
    let ran = bench.run(python(world, &format!("SECRETS = {secrets:?}\n{script}"))).await;
    assert_held(&ran);
    for secret in &secrets {
        assert_eq!(fs::read_to_string(secret).unwrap(), SECRET);
        assert!(!fs::exists(format!("{secret}.new")).unwrap());
    }
    assert_eq!(fs::read_to_string(shown.join("page")).unwrap(), "as it was");
    assert_eq!(fs::read_dir(&shown).unwrap().count(), 1);
    let after = fs::metadata(&program).unwrap();
    assert_eq!(
        (after.len(), after.mtime(), after.mode()),
        (before.len(), before.mtime(), before.mode())
    );
}

#[tokio::test]
async fn no_descriptor_is_inherited() {
    for policy in [SandboxPolicy::Required, SandboxPolicy::Off] {
        let bench = Bench::new(policy);
        // One that a library of the daemon's forgot to close for its children.
        let outside = fs::File::open(bench.host("beside")).unwrap();
        rustix::io::fcntl_setfd(&outside, rustix::io::FdFlags::empty()).unwrap();
        let file = tempfile::tempfile().unwrap();
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
        let script = r#"
for number in range(2048):
    try:
        kind = os.fstat(number).st_mode
    except OSError:
        continue
    say(number, "pipe" if stat.S_ISFIFO(kind) else "something else: " + oct(kind))
ours, theirs = socket.socketpair()
rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", ours.fileno()))]
for number in range(3):
    attempt("sending a descriptor out", lambda: socket.socket(fileno=os.dup(number)).sendmsg([b"x"], rights))
print("done")
"#;
        let ran = bench.run(python(bench.world(&[]), script)).await;
        assert_held(&ran);
        assert!(ran.stdout.starts_with("0 pipe\n1 pipe\n2 pipe\nrefused"), "{}", ran.stdout);
        assert!(outside.as_raw_fd() > 2);
        drop(file);
    }
}

#[tokio::test]
async fn a_file_handle_opens_nothing() {
    let bench = Bench::new(SandboxPolicy::Required);
    let script = r#"
write("/workspace/file")
handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
mount = ctypes.c_int()
try:
    call("name_to_handle_at", -100, b"/workspace/file", handle, ctypes.byref(mount), 0)
except OSError:
    pass
folder = os.open("/workspace", os.O_RDONLY)
attempt("opening a file by its handle", lambda: call("open_by_handle_at", folder, handle, os.O_RDONLY), only=errno.EPERM)
# The root of most filesystems has inode 2.
root = ctypes.create_string_buffer(struct.pack("Ii", 8, 1) + struct.pack("II", 2, 0))
attempt("opening the root of the disk", lambda: call("open_by_handle_at", folder, root, os.O_RDONLY), only=errno.EPERM)
print("done")
"#;
    assert_held(&bench.run(python(bench.world(&[]), script)).await);
}

#[tokio::test]
async fn hard_links_and_nameless_files_lead_neither_in_nor_out() {
    let bench = Bench::new(SandboxPolicy::Required);
    let (shown, work) = (bench.host("shown"), bench.host("work"));
    fs::write(shown.join("page"), "as it was").unwrap();
    let script = r#"
write("/workspace/mine")
attempt("linking a file of the system", lambda: os.link("/etc/passwd", "/workspace/a"))
attempt("linking a program", lambda: os.link("/usr/bin/env", "/workspace/b"))
attempt("linking what is only shown", lambda: os.link("/workspace/shown/page", "/workspace/c"))
attempt("linking what is shown beside it", lambda: os.link("/workspace/shown/page", "/workspace/shown/d"))
attempt("linking into another folder", lambda: os.link("/workspace/mine", "/workspace/work/e"))
attempt("linking the first process's program", lambda: os.link("/run/substrat/init", "/workspace/f"))
nameless = os.open("/workspace", os.O_TMPFILE | os.O_RDWR)
for at in ["/workspace/shown/g", "/workspace/work/g", "/etc/g", "/usr/g", "/g", "/tmp/g"]:
    attempt("naming a nameless file " + at,
            lambda: os.link(f"/proc/self/fd/{nameless}", at, follow_symlinks=True))
page = os.open("/workspace/shown/page", os.O_RDONLY)
attempt("opening anew for writing", lambda: os.open(f"/proc/self/fd/{page}", os.O_WRONLY))
attempt("naming what is only shown",
        lambda: os.link(f"/proc/self/fd/{page}", "/workspace/h", follow_symlinks=True))
print("done")
"#;
    let world =
        bench.world(&[("shown", &shown, Access::ReadOnly), ("work", &work, Access::ReadWrite)]);
    assert_held(&bench.run(python(world, script)).await);
    assert_eq!(fs::read_to_string(shown.join("page")).unwrap(), "as it was");
    assert_eq!(fs::metadata(shown.join("page")).unwrap().nlink(), 1);
    assert_eq!(fs::read_dir(&work).unwrap().count(), 0);
}

#[tokio::test]
async fn no_file_gets_the_set_user_id_bit() {
    let bench = Bench::new(SandboxPolicy::Required);
    let work = bench.host("work");
    let script = r##"
import shutil
name = "/workspace/work/shell"
shutil.copyfile("/bin/sh", name)
os.chmod(name, 0o755)
file = os.open(name, os.O_RDWR)
folder = os.open("/workspace/work", os.O_RDONLY)
for mode in [0o4755, 0o2755, 0o6755, 0o4000]:
    attempt("chmod", lambda: os.chmod(name, mode), only=errno.EPERM)
    attempt("fchmod", lambda: os.fchmod(file, mode), only=errno.EPERM)
    attempt("fchmodat", lambda: os.chmod("shell", mode, dir_fd=folder), only=errno.EPERM)
    attempt("fchmodat2", lambda: call("fchmodat2", folder, b"shell", mode, 0), only=errno.EPERM)
    attempt("mknod", lambda: os.mknod(name + ".new", stat.S_IFREG | mode), only=errno.EPERM)
    attempt("chmod with high bits", lambda: call(90 if X86 else 52, *([name.encode()] if X86 else [file]), mode | 1 << 40), only=errno.EPERM)
    for flags in [os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_CREAT | os.O_TRUNC]:
        attempt("making", lambda: os.open(name + ".made", flags | os.O_RDWR, mode), only=errno.EPERM)
    attempt("making one without a name", lambda: os.open("/workspace/work", os.O_TMPFILE | os.O_RDWR, mode), only=errno.EPERM)
    if X86:
        attempt("open", lambda: call(2, name.encode() + b".made", os.O_CREAT | os.O_RDWR, mode), only=errno.EPERM)
        attempt("creat", lambda: call(85, name.encode() + b".made", mode), only=errno.EPERM)
    attempt("openat2", lambda: call(437, folder, b"made", b"", 24), only=errno.ENOSYS)
os.close(os.open(name + ".plain", os.O_CREAT | os.O_RDWR, 0o755))
os.close(os.open(name, os.O_RDONLY, 0o6755))
print("done")
"##;
    let world = bench.world(&[("work", &work, Access::ReadWrite)]);
    assert_held(&bench.run(python(world, script)).await);
    for entry in fs::read_dir(&work).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o6000, 0, "{:?}: {mode:o}", entry.path());
    }
}

#[tokio::test]
async fn set_user_id_programs_gain_nothing() {
    let bench = Bench::new(SandboxPolicy::Required);
    let shown = bench.host("shown");
    let program = shown.join("id");
    fs::copy("/usr/bin/id", &program).unwrap();
    if is_root() {
        std::os::unix::fs::chown(&program, Some(12_345), Some(12_345)).unwrap();
    }
    fs::set_permissions(&program, PermissionsExt::from_mode(0o6755)).unwrap();
    let script = r#"
import glob, subprocess
print("mine", subprocess.run(["/workspace/shown/id", "-u"], capture_output=True, text=True).stdout.strip())
status = dict(line.split(":\t") for line in open("/proc/self/status").read().splitlines())
for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"]:
    print(name, int(status[name], 16))
for how in [os.setuid, os.setgid, os.seteuid, os.setegid]:
    attempt("becoming root", lambda: how(0))
attempt("other groups", lambda: os.setgroups([0]))
attempt("another map", lambda: write("/proc/self/uid_map", b"0 0 1"))
header = struct.pack("Ii", 0x20080522, 0)
attempt("capabilities", lambda: call("capset", header, struct.pack("IIIIII", *[2**32 - 1] * 6)))
print("done")
"#;
    let world = bench.world(&[("shown", &shown, Access::ReadOnly)]);
    let ran = bench.run(python(world, script)).await;
    assert_held(&ran);
    let expected =
        "mine 1000\nCapInh 0\nCapPrm 0\nCapEff 0\nCapBnd 0\nCapAmb 0\nNoNewPrivs 1\nSeccomp 2\n";
    assert!(ran.stdout.starts_with(expected), "{}", ran.stdout);
}
