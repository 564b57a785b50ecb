//! What is changed by one sandbox while another is made.

use std::collections::BTreeMap;
use std::fs;

use substrat_server::launcher::{Ends, Error, Exit};
use substrat_server::model::{Access, Mount, Source, World};
use substrat_server::workspace::SandboxPolicy;
use substrat_tests::hostile::python;
use substrat_tests::launch::{Bench, finish};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

/// How often a sandbox is made beside an attacker.
const STARTS: usize = 200;

#[tokio::test]
async fn a_folder_that_flips_to_a_symbolic_link_leads_no_mount_outside() {
    flip(
        r#"
os.makedirs("/workspace/dir")
os.symlink(OUTSIDE, "/workspace/other")
def turn():
    # Both change places at once.
    call("renameat2", -100, b"/workspace/dir", -100, b"/workspace/other", 2)
"#,
    )
    .await;
}

#[tokio::test]
async fn parents_of_mount_points_that_are_moved_lead_no_mount_outside() {
    flip(
        r#"
os.makedirs("/workspace/dir/a/b")
os.makedirs("/workspace/aside")
def turn():
    for old, new in [("/workspace/dir", "/workspace/aside/dir"), ("/workspace/aside/dir", "/workspace/dir")]:
        try:
            os.rename(old, new)
        except OSError:
            # Another one was made in its place meanwhile.
            os.rename("/workspace/dir", f"/workspace/aside/{time.monotonic_ns()}")
"#,
    )
    .await;
}

/// Has an attacker change a workspace as fast as it can, while others are started on it with a
/// link below the folder that changes.
async fn flip(script: &str) {
    let bench = Bench::new(SandboxPolicy::Required);
    let (outside, linked) = (bench.host("outside"), bench.host("linked"));
    fs::write(linked.join("page"), "linked").unwrap();
    let mounts = mounts_of_this_process();
    let loops =
        "say('ready')\nwhile True:\n    try:\n        turn()\n    except OSError:\n        pass\n";
    let script = format!("OUTSIDE = {:?}\n{script}{loops}", outside.to_str().unwrap());
    let attacker = bench.launcher.start(python(bench.world(&[]), &script)).await.unwrap();
    let Ends::Pipes { stdout, .. } = attacker.ends else { panic!("no pipes") };
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).await.unwrap();
    assert_eq!(line, "ready\n");
    let world = bench.world(&[("dir/a/b/link", &linked, Access::ReadWrite)]);
    let (mut ran, mut refused) = (0, 0);
    for number in 0..STARTS {
        // Where the link is, if it is anywhere: in the workspace.
        let script = "grep -c ' /workspace/.*/link ' /proc/self/mountinfo; \
                      grep ' /workspace/' /proc/self/mountinfo | grep -vc '/link '";
        match bench.launcher.start(bench.shell(world.clone(), script)).await {
            Ok(launched) => {
                let said = finish(launched).await;
                assert_eq!(said.stdout, "1\n0\n", "start {number}: {said:?}");
                ran += 1;
            }
            Err(Error::Mount { .. } | Error::Setup { .. }) => refused += 1,
            Err(other) => panic!("start {number}: {other:?}"),
        }
    }
    assert_eq!(ran + refused, STARTS);
    drop(attacker.process);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "something was made outside");
    assert_eq!(fs::read_dir(&linked).unwrap().count(), 1);
    assert_eq!(mounts_of_this_process(), mounts);
}

/// Where something is mounted, for the daemon.
fn mounts_of_this_process() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    text.lines()
        .filter(|line| line.contains("/workspace") || line.contains("/outside"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn a_folder_that_is_moved_away_from_under_a_process_leads_nowhere() {
    let bench = Bench::new(SandboxPolicy::Required);
    let inside = bench.root().join("sub/in");
    fs::create_dir_all(&inside).unwrap();
    fs::write(bench.root().join("secret"), "the secret").unwrap();
    // One sees the folder `sub` alone.
    let source = Source::Workspaces("w/root/sub".into());
    let root = Mount { source, access: Access::ReadWrite };
    let window = World { mounts: BTreeMap::from([(String::new(), root)]), ..bench.world(&[]) };
    let script = r#"
os.chdir("/workspace/in")
folder = os.open(".", os.O_RDONLY)
say("ready")
sys.stdin.read()
for way in ["..", "../..", "../../..", "../secret", "../../secret", "../../../secret", "../out"]:
    attempt(way, lambda: os.open(way, os.O_RDONLY))
    attempt(way, lambda: os.open(way, os.O_RDONLY, dir_fd=folder))
attempt("climbing", lambda: os.chdir(".."))
print("done")
"#;
    let mut victim = bench.launcher.start(python(window, script)).await.unwrap();
    let Ends::Pipes { mut stdin, stdout, .. } = victim.ends else { panic!("no pipes") };
    let mut stdout = BufReader::new(stdout);
    let mut said = String::new();
    stdout.read_line(&mut said).await.unwrap();
    // The other sees all of the workspace, and moves the folder to where the first one sees nothing.
    let ran = bench.run(bench.shell(bench.world(&[]), "mv sub/in out")).await;
    assert_eq!(ran.exit, Exit::Code(0), "{ran:?}");
    stdin.shutdown().await.unwrap();
    drop(stdin);
    stdout.read_to_string(&mut said).await.unwrap();
    assert_eq!(victim.process.wait().await, Exit::Code(0), "{said}");
    assert!(said.ends_with("done\n") && !said.contains("ESCAPED"), "{said}");
}
