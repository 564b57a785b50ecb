//! A whole `substratctl agent list`, against a process that does nothing.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use substrat_tests::harness::{Daemon, binary};

use crate::figures::{Figures, Target, percentile};
use crate::journal::folder;

const RUNS: usize = 200;

pub(crate) fn run(figures: &mut Figures) {
    let home = folder();
    let daemon = Daemon::on(&home.path().join("home"), &[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = daemon.client().await;
        for number in 0..20 {
            client.create(&format!("agent-{number}"), "fn turn(prompt) { prompt }").await;
        }
    });
    let home_path = daemon.home.to_str().unwrap();
    let nothing = time(Path::new("/bin/true"), &[]);
    let listed = time(&binary("substratctl"), &["--home", home_path, "agent", "list"]);
    figures.add(
        "substratctl agent list, whole process: p50",
        (listed * 1e3, "ms"),
        Some(("ms for /bin/true", nothing * 1e3)),
        Target::AtMost(10.0),
    );
}

fn time(program: &Path, args: &[&str]) -> f64 {
    let mut samples: Vec<f64> = (0..RUNS)
        .map(|_| {
            let begun = Instant::now();
            let status = Command::new(program).args(args).stdout(Stdio::null()).status().unwrap();
            assert!(status.success());
            begun.elapsed().as_secs_f64()
        })
        .collect();
    percentile(&mut samples, 0.5)
}
