//! Filesystems that are no files: what is in them is the kernel's own, and writing there changes
//! the machine. No workspace shows one.
#![allow(clippy::disallowed_methods, reason = "asks the kernel")]

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Their names, as the list of mounts has them.
const KERNEL: &[&str] = &[
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
];

/// A filesystem of the kernel that a folder of the host lies in, or that lies in it: where it is
/// mounted.
///
/// # Errors
///
/// What the system says when the mounts cannot be listed.
pub(super) fn shown_by(path: &Path) -> io::Result<Option<PathBuf>> {
    let mounts = std::fs::read("/proc/self/mountinfo")?;
    let mounts: Vec<(PathBuf, bool)> =
        mounts.split(|byte| *byte == b'\n').filter_map(mount).collect();
    // Of those that hold the folder the innermost, and of equal ones the last, is what is there.
    let around = mounts.iter().enumerate().filter(|(_, (at, _))| path.starts_with(at));
    let around = around.max_by_key(|(number, (at, _))| (at.components().count(), *number));
    let below = mounts.iter().filter(|(at, _)| at.starts_with(path));
    let mut all = around.map(|(_, mount)| mount).into_iter().chain(below);
    Ok(all.find(|(_, is_kernels)| *is_kernels).map(|(at, _)| at.clone()))
}

/// Where a line of the list mounts something, and whether that is the kernel's.
fn mount(line: &[u8]) -> Option<(PathBuf, bool)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let at = unescape(fields.nth(4)?);
    let mut rest = fields.skip_while(|field| *field != b"-");
    let kind = rest.nth(1)?;
    Some((at, KERNEL.iter().any(|name| name.as_bytes() == kind)))
}

/// A path out of a list of mounts: the kernel writes space, tab, newline and backslash as three octal digits.
pub fn unescape(word: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| {
            matches!(digits[0], b'0'..=b'3')
                && digits.iter().all(|digit| matches!(digit, b'0'..=b'7'))
        });
        match digits {
            Some(digits) if first == b'\\' => {
                path.push(digits.iter().fold(0, |value, digit| value << 3 | (digit - b'0')));
                rest = &after[3..];
            }
            _ => {
                path.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_kernels_is_told_from_files() {
        assert_eq!(shown_by(Path::new("/usr")).unwrap(), None);
        for path in ["/proc", "/proc/sys/kernel", "/dev/pts", "/"] {
            assert!(shown_by(Path::new(path)).unwrap().is_some(), "{path}");
        }
    }

    #[test]
    fn a_line_of_the_list_is_read() {
        let line = br"36 35 98:0 /mnt1 /a\040b\134 rw,noatime master:1 - proc proc rw";
        assert_eq!(mount(line), Some((PathBuf::from(r"/a b\"), true)));
        assert_eq!(mount(b"short line"), None);
        let line = b"36 35 98:0 / /x rw - ext4 /dev/vda rw";
        assert_eq!(mount(line), Some((PathBuf::from("/x"), false)));
    }
}
