//! The demonstration, from its first line to its last.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::process::{Command, Stdio};

use substrat_tests::harness::{Said, binary, forget_environment};

#[test]
fn the_demonstration_ends_with_equal_reports_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    for part in ["one", "two", "three"] {
        std::fs::create_dir_all(source.join(part)).unwrap();
        for number in 0..8 {
            let text = format!("fn f{number}() {{\n    // TODO\n    x.unwrap();\n}}\n");
            std::fs::write(source.join(part).join(format!("f{number}.rs")), text).unwrap();
        }
    }
    let scratch = folder.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let mut demo = Command::new(binary("substratctl"));
    forget_environment(&mut demo);
    demo.args(["demo", "--source"]).arg(&source).env("TMPDIR", &scratch).stdin(Stdio::null());
    let said: Said = demo.output().unwrap().into();
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:?}");
    for part in [
        "3. kill -9 to the daemon",
        "recovered after a crash",
        "\none                       8       32      8       8  f0 (4 lines, source/one/f0.rs)\n",
        "\nall                      24       96     24      24",
        "equal to the one made without the crash, byte for byte",
        "Nothing is left running. Try next:",
    ] {
        assert!(said.stdout.contains(part), "{part:?} in {}", said.stdout);
    }
    assert_eq!(said.stdout.lines().rev().take_while(|line| line.starts_with("   ")).count(), 3);
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);
    assert!(!any_process_mentions(scratch.to_str().unwrap()));
}

fn any_process_mentions(text: &str) -> bool {
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    processes.into_iter().any(|line| String::from_utf8_lossy(&line).contains(text))
}
