//! Limits that a process sets on itself.

use std::fs::{self, File};

use proptest::prelude::*;

use super::*;

fn rlimits() -> impl Strategy<Value = (Limits, bool, Vec<usize>, u128)> {
    let limits = (
        any::<Option<u64>>(),
        any::<Option<u32>>(),
        any::<Option<u32>>(),
        any::<Option<u32>>(),
        any::<Option<u64>>(),
    );
    let limits = limits.prop_map(|(memory, cpu_millis, processes, open_files, file_size)| Limits {
        memory,
        cpu_millis,
        processes,
        open_files,
        file_size,
        disk: None,
    });
    let cpus = proptest::collection::btree_set(0..512_usize, 1..20);
    (limits, any::<bool>(), cpus.prop_map(|cpus| cpus.into_iter().collect()), any::<u128>())
}

proptest! {
    #[test]
    fn their_text_is_read_as_it_was_written((limits, root, cpus, workspace) in rlimits()) {
        let count = if root { ProcessCount::Nobody } else { ProcessCount::Sandbox };
        let set = Rlimits::of(&limits, &Means::of(None, count), &cpus, workspace);
        let text = set.to_string();
        prop_assert!(!text.contains(char::is_whitespace));
        prop_assert_eq!(text.parse(), Ok(set));
    }
}

#[test]
fn other_texts_are_refused() {
    for text in ["nofile", "nofile=", "nofile=-1", "nofile=1,", "cpus=", "cpus=99999", "files=1"] {
        let error = text.parse::<Rlimits>().expect_err(text);
        assert!(error.to_string().contains(text), "{error}");
    }
    assert_eq!("".parse(), Ok(Rlimits::default()));
}

const MARK: &str = "SUBSTRAT_TEST_RLIMITS";

/// Runs in a process of its own: what it sets would bind the other tests.
#[test]
fn a_process_is_bound_by_what_it_set() {
    if let Ok(file) = std::env::var(MARK) {
        let set: Rlimits = "core=0,nofile=40,fsize=65536,nproc=100000".parse().expect("limits");
        set.apply().expect("they can be lowered");
        let limits = fs::read_to_string("/proc/self/limits").unwrap();
        let has = |name: &str, value: &str| {
            let line = limits.lines().find(|line| line.starts_with(name)).expect(name);
            line[name.len()..].split_whitespace().take(2).all(|found| found == value)
        };
        assert!(has("Max core file size", "0"), "{limits}");
        assert!(has("Max open files", "40"), "{limits}");
        assert!(has("Max file size", "65536"), "{limits}");
        let mut writer = Command::new("head");
        writer.args(["-c", "1000000", "/dev/zero"]).stdout(File::create(&file).unwrap());
        let signal = writer.status().unwrap().signal();
        let limits = Limits { file_size: Some(65536), ..Limits::default() };
        let hit = explain(signal, &[], &limits).expect("a hit");
        assert_eq!(hit.kind, LimitKind::FileSize);
        assert_eq!(fs::metadata(&file).unwrap().len(), 65536);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut again = Command::new(std::env::current_exe().unwrap());
    let name = "launcher::limits::tests::rlimit::a_process_is_bound_by_what_it_set";
    again.args(["--exact", name, "--nocapture"]).env(MARK, folder.path().join("file"));
    let output = again.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn processors_are_those_that_there_are() {
    let available = Rlimits::available();
    assert!(!available.is_empty());
    let none = Means::of(None, ProcessCount::User);
    let limits = Limits { cpu_millis: Some(1), ..Limits::default() };
    let set = Rlimits::of(&limits, &none, &available, 5);
    if available.len() > 1 {
        // It binds this thread alone.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                set.apply().expect("a smaller set");
                assert_eq!(Rlimits::available().len(), 1);
            });
        });
        assert_eq!(Rlimits::available(), available);
    }
}
