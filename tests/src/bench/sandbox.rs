//! Starting a command and waiting for its end: bare, through the launcher without a sandbox, by
//! bubblewrap alone, and through the launcher in the sandbox, one after the other in each round.

use std::process::{Command, Stdio};
use std::time::Instant;

use substrat_server::launcher::{Exit, Launch};
use substrat_server::workspace::SandboxPolicy;
use substrat_tests::launch::Bench;

use crate::figures::{Figures, Target, percentile};

const ROUNDS: usize = 200;

/// The least that is a sandbox.
const BUBBLEWRAP: &[&str] = &[
    "--unshare-all",
    "--ro-bind",
    "/",
    "/",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--",
    "/bin/true",
];

pub(crate) fn run(figures: &mut Figures) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (off, on) = (Bench::new(SandboxPolicy::Off), Bench::new(SandboxPolicy::Required));
    let mut all: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let times = [
            bare("/bin/true", &[]),
            runtime.block_on(launched(&off)),
            bare("bwrap", BUBBLEWRAP),
            runtime.block_on(launched(&on)),
        ];
        all.iter_mut().zip(times).for_each(|(samples, time)| samples.push(time));
    }
    let [bare, off, bubblewrap, on] = &mut all;
    for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
        let (bare, bubblewrap) = (percentile(bare, share), percentile(bubblewrap, share));
        let (off, on) = (percentile(off, share), percentile(on, share));
        let beside = Some(("ms bare", bare));
        figures.add(
            format!("/bin/true, launcher, no sandbox: {name}"),
            (off, "ms"),
            beside,
            Target::None,
        );
        figures.add(
            format!("/bin/true, bubblewrap alone: {name}"),
            (bubblewrap, "ms"),
            beside,
            Target::None,
        );
        let target = if share == 0.5 { Target::AtMost(bare + 15.0) } else { Target::None };
        figures.add(
            format!("/bin/true, launcher, in the sandbox: {name}"),
            (on, "ms"),
            beside,
            target,
        );
    }
}

fn bare(program: &str, args: &[&str]) -> f64 {
    let begun = Instant::now();
    let status = Command::new(program).args(args).stdout(Stdio::null()).status().unwrap();
    let time = begun.elapsed();
    assert!(status.success());
    time.as_secs_f64() * 1e3
}

async fn launched(bench: &Bench) -> f64 {
    let argv = vec!["/bin/true".to_owned()];
    let launch = Launch { argv, world: Some(bench.world(&[])), ..Launch::default() };
    let begun = Instant::now();
    let mut launched = bench.launcher.start(launch).await.unwrap();
    assert_eq!(launched.process.wait().await, Exit::Code(0));
    begun.elapsed().as_secs_f64() * 1e3
}
