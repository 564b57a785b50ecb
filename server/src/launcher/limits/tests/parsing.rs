//! What the kernel writes is read as it is meant, and anything else does no harm.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;
use crate::launcher::limits::machine::{Machine, Manager, Membership, Mount, memberships, mounts};
use crate::launcher::limits::processes::{Process, Snapshot, parse};

/// As the kernel writes a path in `mountinfo`.
fn escape(path: &[u8]) -> Vec<u8> {
    let escaped = path.iter().flat_map(|byte| match byte {
        b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
        other => vec![*other],
    });
    escaped.collect()
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(b' '), Just(b'\n'), Just(b'\\'), Just(b'\t'), 1..=255_u8];
    proptest::collection::vec(byte, 0..20).prop_map(|bytes| [b"/".as_slice(), &bytes].concat())
}

proptest! {
    #[test]
    fn a_mount_is_read_as_it_was_written(
        root in path(),
        point in path(),
        tags in proptest::collection::vec("[a-z]{1,8}:[0-9]{1,3}", 0..3),
        options in proptest::option::of(proptest::collection::vec("[a-z_=]{1,8}", 1..4)),
    ) {
        let mut line = b"36 35 98:0 ".to_vec();
        line.extend(escape(&root));
        line.push(b' ');
        line.extend(escape(&point));
        line.extend(b" rw,noatime ");
        for tag in tags {
            line.extend(tag.bytes());
            line.push(b' ');
        }
        let kind = match &options {
            Some(options) => format!("- cgroup some\\040name {}", options.join(",")),
            None => "- cgroup2 none rw".to_owned(),
        };
        line.extend(kind.bytes());
        let text = [b"1 2 0:1 / / rw - ext4 /dev/sda rw\n".as_slice(), &line, b"\n"].concat();
        let path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
        prop_assert_eq!(mounts(&text), [Mount { root: path(root), point: path(point), options }]);
    }

    #[test]
    fn a_membership_is_read_as_it_was_written(
        controllers in proptest::collection::vec("[a-z=]{1,8}", 0..4),
        path in "/[^\n]{0,20}",
    ) {
        let text = format!("7:{}:{path}\n", controllers.join(","));
        let expected = Membership { controllers, path: path.into() };
        prop_assert_eq!(memberships(text.as_bytes()), [expected]);
    }

    #[test]
    fn any_bytes_are_read_or_left_out(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        mounts(&bytes);
        memberships(&bytes);
        parse(&bytes, 4096);
        let _ = String::from_utf8_lossy(&bytes).parse::<Rlimits>();
    }

    #[test]
    fn a_process_is_read_whatever_its_name(name in proptest::collection::vec(any::<u8>(), 0..16)) {
        let mut stat = b"42 (".to_vec();
        stat.extend(&name);
        stat.extend(b") S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 9876 4096 10 18446744073709551615 1\n");
        let expected = Process {
            pid: 42, parent: 7, threads: 3, start: 9876, size: 4096, resident: 40_960,
        };
        prop_assert_eq!(parse(&stat, 4096), Some(expected));
    }

    #[test]
    fn a_tree_holds_each_descendant_once_and_nobody_else(
        parents in proptest::collection::vec(1..30_u32, 1..30),
    ) {
        // Any parents, circles and itself included.
        let processes = (1..).zip(&parents).map(|(pid, parent)| Process {
            pid, parent: *parent, threads: 1, start: 0, size: 1, resident: 1,
        });
        let snapshot = Snapshot::new(processes);
        let tree: Vec<u32> = snapshot.tree(1).iter().map(|process| process.pid).collect();
        let descends = |pid: u32| {
            let mut at = pid;
            for _ in 0..=parents.len() {
                if at == 1 { return true; }
                match parents.get(at as usize - 1) { Some(parent) => at = *parent, None => return false }
            }
            false
        };
        let expected: Vec<u32> = (1..=parents.len() as u32).filter(|pid| descends(*pid)).collect();
        let mut sorted = tree;
        sorted.sort_unstable();
        prop_assert_eq!(sorted, expected);
    }
}

#[test]
fn a_group_is_found_where_a_part_of_the_hierarchy_is_mounted() {
    let machine = |root: &str, own: &str| Machine {
        mountinfo: format!("1 2 0:3 {root} /sys/fs/cgroup rw - cgroup2 cgroup rw\n").into_bytes(),
        membership: format!("0::{own}\n").into_bytes(),
        manager: Manager::Nobody,
    };
    let at = |path: &str| Some(PathBuf::from(path));
    assert_eq!(machine("/", "/").unified(), at("/sys/fs/cgroup"));
    assert_eq!(machine("/", "/a/b").unified(), at("/sys/fs/cgroup/a/b"));
    assert_eq!(machine("/docker/1", "/docker/1").unified(), at("/sys/fs/cgroup"));
    assert_eq!(machine("/docker/1", "/docker/1/c").unified(), at("/sys/fs/cgroup/c"));
    assert_eq!(machine("/docker/1", "/elsewhere").unified(), None);
    // Seen from a cgroup namespace, it lies outside.
    assert_eq!(machine("/", "/../../other").unified(), None);
}

#[test]
fn this_machine_shows_this_process() {
    let own = processes::start(std::process::id());
    assert!(own.is_some_and(|start| start > 0));
    assert_eq!(processes::start(4_000_000_000), None);
    let this = processes::read(std::process::id()).expect("it runs");
    let data = processes::data(&this).expect("its status");
    assert!(data > 0 && data <= this.size, "{data} {this:?}");
    let path = Path::new("/proc/self/mountinfo").as_os_str().as_bytes();
    assert_eq!(path, escape(path));
}
