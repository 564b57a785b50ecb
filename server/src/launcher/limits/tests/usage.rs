//! How the space of a folder is counted.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::not_run;
use crate::launcher::limits::disk::{MAX_DEPTH, Usage, growth, measure, reserve};
use crate::launcher::limits::processes::Written;
use crate::launcher::limits::warden::{Shared, is_to_end, too_large};

fn measured(root: &Path) -> Usage {
    measure(root, &AtomicBool::new(false)).expect("it can be read")
}

#[test]
fn files_count_by_their_blocks_and_links_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    fs::create_dir_all(root.join("a/b")).unwrap();
    let empty = measured(&root).bytes;
    fs::write(root.join("a/b/file"), vec![1; 1 << 20]).unwrap();
    File::create(root.join("sparse")).unwrap().set_len(1 << 40).unwrap();
    fs::write(folder.path().join("outside"), vec![1; 1 << 20]).unwrap();
    symlink(folder.path(), root.join("link")).unwrap();
    symlink("/proc", root.join("far")).unwrap();
    let blocks = fs::metadata(root.join("a/b/file")).unwrap().blocks() * 512;
    assert!(blocks >= 1 << 20);
    let usage = measured(&root);
    assert!((blocks..blocks + 65536).contains(&(usage.bytes - empty)), "{usage:?}");
    assert_eq!((usage.unreadable, usage.too_deep), (0, 0));
    // A second name of the same file takes nothing.
    fs::hard_link(root.join("a/b/file"), root.join("second")).unwrap();
    assert_eq!(measured(&root).bytes, usage.bytes);
}

#[test]
fn folders_beyond_the_depth_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let deep: std::path::PathBuf = std::iter::repeat_n("d", MAX_DEPTH - 1).collect();
    fs::create_dir_all(folder.path().join(&deep)).unwrap();
    assert_eq!(measured(folder.path()).too_deep, 0);
    fs::create_dir(folder.path().join(&deep).join("d")).unwrap();
    assert_eq!(measured(folder.path()).too_deep, 1);
}

#[test]
fn a_count_stops_when_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let error = measure(folder.path(), &AtomicBool::new(true)).expect_err("it stops");
    assert_eq!(error.kind(), std::io::ErrorKind::Interrupted);
    assert!(measure(&folder.path().join("gone"), &AtomicBool::new(false)).is_err());
}

#[test]
fn what_was_there_before_a_launch_does_not_end_it() {
    let usage = |bytes, too_deep| Usage { bytes, too_deep, unreadable: 0 };
    let hit = |now, at_start| too_large(&now, &at_start, 100).is_some();
    assert!(!hit(usage(100, 0), usage(50, 0)));
    assert!(hit(usage(101, 0), usage(50, 0)));
    assert!(!hit(usage(150, 3), usage(150, 3)));
    assert!(!hit(usage(120, 0), usage(150, 0)));
    assert!(hit(usage(151, 0), usage(150, 0)));
    assert!(hit(usage(1, 1), usage(1, 0)));
}

#[tokio::test]
async fn ten_wardens_of_a_workspace_count_once() {
    let folder = tempfile::tempdir().unwrap();
    let shared = Arc::new(Shared::default());
    let counts = Arc::new(Semaphore::new(2));
    let mut wardens = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (shared, counts, root) = (shared.clone(), counts.clone(), folder.path().to_owned());
        wardens.spawn(async move { shared.count_after(0, &root, &counts).await.number });
    }
    assert_eq!(wardens.join_all().await, [1; 10]);
}

#[tokio::test(start_paused = true)]
async fn a_count_waits_after_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    let (shared, counts) = (Shared::default(), Semaphore::new(1));
    let first = shared.count_after(0, folder.path(), &counts).await;
    let begun = Instant::now();
    let second = shared.count_after(first.number, folder.path(), &counts).await;
    assert_eq!(second.number, 2);
    // In the time of the test.
    assert!(begun.elapsed() >= std::time::Duration::from_secs(1));
}

#[test]
fn the_reserve_is_a_part_of_small_disks_and_a_gibibyte_of_large_ones() {
    assert_eq!(reserve(1 << 30), (1 << 30) / 20);
    assert_eq!(reserve(1 << 40), 1 << 30);
}

#[test]
fn bytes_that_pass_on_to_a_parent_are_not_written_again() {
    let written = |processes: &[(u32, u64)]| -> Written {
        processes.iter().map(|(pid, bytes)| ((*pid, 1), *bytes)).collect()
    };
    // A child that wrote 500 ended, and its parent knows.
    assert_eq!(growth(&written(&[(1, 10), (2, 500)]), &written(&[(1, 510)])), 0);
    assert_eq!(growth(&written(&[(1, 10), (2, 500)]), &written(&[(1, 610)])), 100);
    assert_eq!(growth(&written(&[(1, 10)]), &written(&[(1, 10), (3, 70)])), 70);
    // One whose parent does not want to know hides no other.
    assert_eq!(growth(&written(&[(1, 10), (2, 500)]), &written(&[(1, 10), (3, 70)])), 70);
}

proptest! {
    #[test]
    fn when_all_take_too_much_one_of_them_is_ended(
        taken in proptest::collection::vec(0..100_u64, 1..6),
        most in 0..300_u64,
    ) {
        // Each sees itself first.
        let ended = (0..taken.len()).filter(|own| {
            let mut seen = taken.clone();
            seen.swap(0, *own);
            is_to_end(&seen, most)
        });
        let ended: Vec<u64> = ended.map(|own| taken[own]).collect();
        let too_much = taken.iter().sum::<u64>() > most;
        prop_assert_eq!(!ended.is_empty(), too_much);
        prop_assert!(ended.iter().all(|one| Some(one) == taken.iter().max()));
    }
}

const MARK: &str = "SUBSTRAT_TEST_MOUNTED";

/// Runs again in a mount namespace where another filesystem is mounted below the root.
#[test]
fn other_filesystems_below_a_root_do_not_count() {
    if let Ok(root) = std::env::var(MARK) {
        let other = Path::new(&root).join("other");
        assert!(measured(&other).bytes >= 4 << 20, "it is filled");
        assert!(measured(Path::new(&root)).bytes < 1 << 20);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("other")).unwrap();
    let script = "mount -t tmpfs tmpfs \"$1/other\" || exit 99; \
                  head -c 4194304 /dev/zero > \"$1/other/file\"; \
                  exec \"$2\" --exact \"$3\" --nocapture";
    let mut again = Command::new("unshare");
    again.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    again.arg(folder.path()).arg(std::env::current_exe().unwrap());
    again.arg("launcher::limits::tests::usage::other_filesystems_below_a_root_do_not_count");
    let output = again.env(MARK, folder.path()).output().expect("unshare");
    let text = String::from_utf8_lossy(&output.stdout);
    if !text.contains("running 1 test") {
        not_run(&format!("no mount namespace ({})", String::from_utf8_lossy(&output.stderr)));
        return;
    }
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
