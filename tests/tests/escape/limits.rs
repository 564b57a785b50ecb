//! Taking all that there is. Each program stops by itself before the machine is harmed.

use std::fs;
use std::os::unix::fs::MetadataExt;

use substrat_server::launcher::limits::Hit;
use substrat_server::launcher::{Ends, Exit, Launch};
use substrat_server::model::{Access, LimitKind, Limits, World};
use substrat_server::workspace::SandboxPolicy;
use substrat_tests::hostile::{assert_held, python};
use substrat_tests::launch::{Bench, Ran};
use tokio::io::AsyncReadExt;

fn limited(bench: &Bench, limits: Limits) -> World {
    World { limits, ..bench.world(&[]) }
}

/// Runs something to its end, with the limits that it hit.
async fn run(bench: &Bench, launch: Launch) -> (Ran, Vec<Hit>) {
    let mut launched = bench.launcher.start(launch).await.expect("it starts");
    let Ends::Pipes { stdin, mut stdout, mut stderr } = launched.ends else { panic!("no pipes") };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (exit, ..) = tokio::join!(
        launched.process.wait(),
        stdout.read_to_end(&mut out),
        stderr.read_to_end(&mut err)
    );
    drop(stdin);
    let mut hits = Vec::new();
    while let Some(hit) = launched.process.hit().await {
        hits.push(hit);
    }
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (Ran { exit, stdout: text(out), stderr: text(err) }, hits)
}

/// The last number that was said.
fn last_number(ran: &Ran) -> u64 {
    let mut numbers = ran.stdout.lines().filter_map(|line| line.parse().ok());
    numbers.next_back().unwrap_or_else(|| panic!("no number: {ran:?}"))
}

fn kinds(hits: &[Hit]) -> Vec<LimitKind> {
    hits.iter().map(|hit| hit.kind).collect()
}

#[tokio::test]
async fn a_fork_bomb_is_bounded() {
    let bench = Bench::new(SandboxPolicy::Required);
    let script = r#"
import threading
count = 0
try:
    # It ends by itself, at a number that is far too high.
    while count < 400:
        if os.fork() == 0:
            os.setsid()
            signal.pause()
        count += 1
except OSError as error:
    say(count)
    say(errno.errorcode[error.errno])
def wait():
    signal.sigwait([signal.SIGUSR1])
try:
    while count < 400:
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        count += 1
except RuntimeError:
    say(count)
os._exit(0)
"#;
    let world = limited(&bench, Limits { processes: Some(32), ..Limits::default() });
    let (ran, hits) = run(&bench, python(world, script)).await;
    // Where nothing but a watch holds it, all are ended.
    let ended = kinds(&hits).contains(&LimitKind::Processes) && ran.exit != Exit::Code(0);
    assert!(ended || last_number(&ran) <= 32, "{ran:?} {hits:?}");
}

#[tokio::test]
async fn memory_is_bounded() {
    let bench = Bench::new(SandboxPolicy::Required);
    let take = r#"
taken = []
def take():
    for count in range(1, 65):
        taken.append(b"x" * (8 << 20))
        say(count * 8)
"#;
    // By one; by several, each of which has less than what all may have.
    let one = "take()\n";
    let many = "for number in range(8):\n    if os.fork() == 0:\n        taken.append(b'x' * (24 << 20))\n        signal.pause()\n\
                signal.alarm(30)\nfor number in range(8):\n    os.waitpid(-1, 0)\n";
    let shared = r#"
import mmap
for count in range(1, 65):
    area = mmap.mmap(-1, 8 << 20)
    area.write(b"x" * (8 << 20))
    taken.append(area)
    say(count * 8)
"#;
    for (name, script) in [("one", one), ("many", many), ("shared", shared)] {
        let world = limited(&bench, Limits { memory: Some(96 << 20), ..Limits::default() });
        let (ran, hits) = run(&bench, python(world, &format!("{take}{script}"))).await;
        let refused = ran.stderr.contains("MemoryError");
        let ended = kinds(&hits).contains(&LimitKind::Memory);
        assert!(refused || ended, "{name}: {ran:?} {hits:?}");
        assert_ne!(ran.exit, Exit::Code(0), "{name}: {ran:?}");
    }
}

#[tokio::test]
async fn folders_in_memory_are_bounded_in_bytes_and_files() {
    let bench = Bench::new(SandboxPolicy::Required);
    let script = r#"
for folder in ["/tmp", "/dev/shm", "/home/agent"]:
    file = os.open(folder + "/big", os.O_CREAT | os.O_WRONLY)
    def fill():
        for count in range(100):
            os.write(file, bytes(1 << 20))
    attempt("filling " + folder, fill, only=errno.ENOSPC)
    os.unlink(folder + "/big")
    os.close(file)
    os.mkdir(folder + "/many")
    def many():
        for number in range(30000):
            os.symlink("x", f"{folder}/many/{number}")
    attempt("many files in " + folder, many, only=errno.ENOSPC)
print("done")
"#;
    assert_held(&bench.run(python(bench.world(&[]), script)).await);
}

#[tokio::test]
async fn a_file_grows_no_larger_than_allowed() {
    let bench = Bench::new(SandboxPolicy::Required);
    let script = r#"
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = os.open("big", os.O_CREAT | os.O_RDWR)
def fill():
    while os.fstat(file).st_size < 64 << 20:
        os.write(file, bytes(1 << 20))
attempt("writing", fill, only=errno.EFBIG)
attempt("growing", lambda: os.ftruncate(file, 1 << 40), only=errno.EFBIG)
attempt("reserving", lambda: os.posix_fallocate(file, 0, 1 << 40), only=errno.EFBIG)
attempt("writing far away", lambda: os.pwrite(file, b"x", 1 << 40), only=errno.EFBIG)
print("done")
"#;
    let world = limited(&bench, Limits { file_size: Some(4 << 20), ..Limits::default() });
    assert_held(&bench.run(python(world, script)).await);
    assert_eq!(fs::metadata(bench.root().join("big")).unwrap().len(), 4 << 20);
}

/// Runs a program that fills its workspace, and then waits to be ended.
async fn assert_disk_is_held(script: &str) -> Bench {
    let bench = Bench::new(SandboxPolicy::Required);
    let world = limited(&bench, Limits { disk: Some(2 << 20), ..Limits::default() });
    let script = format!("{script}\nsay('filled')\nsignal.alarm(120)\nsignal.pause()\n");
    let (ran, hits) = run(&bench, python(world, &script)).await;
    assert_eq!(kinds(&hits), [LimitKind::Disk], "{ran:?}");
    assert_ne!(ran.exit, Exit::Signal(14), "it was never ended: {ran:?}");
    bench
}

#[tokio::test]
async fn a_workspace_grows_no_larger_than_allowed() {
    let bench = assert_disk_is_held("write('big', bytes(16 << 20))").await;
    assert!(fs::metadata(bench.root().join("big")).unwrap().size() <= 16 << 20);
}

#[tokio::test]
async fn who_sees_one_folder_fills_no_more_of_the_disk() {
    let bench = Bench::new(SandboxPolicy::Required);
    fs::create_dir_all(bench.root().join("sub")).unwrap();
    fs::write(bench.root().join("before"), vec![0; 3 << 19]).unwrap();
    let world = limited(&bench, Limits { disk: Some(2 << 20), ..Limits::default() });
    let window = world.window("sub", Access::ReadWrite);
    // Neither is too much by itself.
    let script = "time.sleep(2)\nwrite('more', bytes(1 << 20))\nsignal.alarm(60)\nsignal.pause()\n";
    let (ran, hits) = run(&bench, python(window, script)).await;
    assert_eq!(kinds(&hits), [LimitKind::Disk], "{ran:?}");
}

#[tokio::test]
async fn many_empty_files_count_against_the_disk() {
    assert_disk_is_held(
        "os.mkdir('many')\nfor number in range(6000):\n    os.close(os.open(f'many/{number}', os.O_CREAT))",
    )
    .await;
}

#[tokio::test]
async fn folders_that_cannot_be_read_hide_no_files() {
    let bench = assert_disk_is_held(
        "os.mkdir('hidden')\nos.chmod('hidden', 0o300)\nwrite('hidden/big', bytes(16 << 20))",
    )
    .await;
    let hidden = bench.root().join("hidden");
    fs::set_permissions(hidden, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
}

#[tokio::test]
async fn folders_that_lie_too_deep_hide_no_files() {
    assert_disk_is_held(
        "for number in range(300):\n    os.mkdir('d')\n    os.chdir('d')\nwrite('big', bytes(16 << 20))",
    )
    .await;
}

#[tokio::test]
async fn a_limit_that_is_hit_for_ever_is_told_once() {
    let bench = Bench::new(SandboxPolicy::Required);
    let script = r#"
for number in range(16):
    if os.fork() == 0:
        signal.pause()
for count in range(100000):
    try:
        if os.fork() == 0:
            os._exit(0)
    except OSError:
        pass
"#;
    let world = limited(&bench, Limits { processes: Some(12), ..Limits::default() });
    let (ran, hits) = run(&bench, python(world, script)).await;
    assert!(hits.len() <= 1, "{ran:?} {hits:?}");
}

#[tokio::test]
async fn descriptors_under_way_do_not_keep_the_daemon_from_starting_processes() {
    let bench = Bench::new(SandboxPolicy::Required);
    let script = r#"
import resource
file = os.open("/dev/null", os.O_RDONLY)
pairs, sent = [], 0
try:
    while sent < 200000:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.setblocking(False)
        pairs.append((ours, theirs))
        try:
            while True:
                ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", file) * 250)])
                sent += 250
        except BlockingIOError:
            pass
except OSError as error:
    pass
say("ready")
sys.stdin.read()
"#;
    let mut hostile =
        bench.launcher.start(python(bench.world(&[]), script)).await.expect("it starts");
    let Ends::Pipes { stdin, stdout, .. } = hostile.ends else { panic!("no pipes") };
    let mut line = String::new();
    let mut stdout = tokio::io::BufReader::new(stdout);
    tokio::io::AsyncBufReadExt::read_line(&mut stdout, &mut line).await.unwrap();
    assert_eq!(line, "ready\n");
    let ran = bench.run(bench.shell(bench.world(&[]), "echo started")).await;
    assert_eq!((ran.exit, ran.stdout.as_str()), (Exit::Code(0), "started\n"), "{ran:?}");
    drop(stdin);
    hostile.process.wait().await;
}
