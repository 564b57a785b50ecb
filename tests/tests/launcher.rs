//! Processes of agents, started for real: what they see, and that they end.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::fs;

use substrat_server::launcher::Exit;
use substrat_server::model::Access;
use substrat_server::workspace::SandboxPolicy;
use substrat_tests::launch::Bench;

#[tokio::test]
async fn a_command_runs_in_its_workspace_and_its_end_is_told() {
    let bench = Bench::new(SandboxPolicy::Required);
    let script = "pwd; echo text > file; id -u; echo oops >&2; exit 3";
    let ran = bench.run(bench.shell(bench.world(&[]), script)).await;
    assert_eq!(ran.exit, Exit::Code(3), "{ran:?}");
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("/workspace\n1000\n", "oops\n"));
    assert_eq!(fs::read_to_string(bench.root().join("file")).unwrap(), "text\n");
}

#[tokio::test]
async fn links_are_seen_at_their_place_and_read_only_ones_are_only_read() {
    let bench = Bench::new(SandboxPolicy::Required);
    let (docs, work) = (bench.host("docs"), bench.host("work"));
    fs::write(docs.join("page"), "of the host").unwrap();
    let world =
        bench.world(&[("deep/docs", &docs, Access::ReadOnly), ("work", &work, Access::ReadWrite)]);
    let script = "cat deep/docs/page; echo x > work/new; echo y > deep/docs/page; echo $?; \
                  cat /proc/self/status | grep -i ^Cap; grep -E 'Seccomp:|NoNewPrivs' /proc/self/status; ls /run/substrat; ls -la / ; mount -t tmpfs x /tmp; unshare -Ur true; ls /proc/1/fd; cat /proc/self/mountinfo";
    let ran = bench.run(bench.shell(world, script)).await;
    println!("{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(fs::read_to_string(work.join("new")).unwrap(), "x\n");
    assert_eq!(fs::read_to_string(docs.join("page")).unwrap(), "of the host");
}

#[tokio::test]
async fn what_may_pass_lets_no_process_out_of_its_sandbox() {
    let bench = Bench::new(SandboxPolicy::Preferred);
    let records = bench.folder.path().join("home/run/processes");
    fs::remove_dir(&records).unwrap();
    let refused = bench.launcher.start(bench.shell(bench.world(&[]), "true")).await;
    let refused = refused.map(drop).unwrap_err();
    assert!(refused.to_string().contains("recording the process"), "{refused}");
    let report = bench.launcher.report();
    assert!(report.may_pass && !report.in_force, "{report:?}");
    assert!(bench.launcher.confines().await);
    fs::create_dir(&records).unwrap();
    let ran = bench.run(bench.shell(bench.world(&[]), "pwd")).await;
    assert_eq!((ran.exit, ran.stdout.as_str()), (Exit::Code(0), "/workspace\n"), "{ran:?}");
}
