//! Whether all that one folder holds is in another as well.

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;

/// What git keeps in a worktree, which differs from one to the next.
const OWN: &str = ".git";

/// Whether `whole` has every file of `part`, with the same content, and every link. Neither is
/// left through a link.
///
/// # Errors
///
/// What the disk said.
pub(super) fn holds(whole: &Dir, part: &Dir) -> io::Result<bool> {
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let here = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
        for entry in part.read_dir(here)? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if path == Path::new(OWN) {
                continue;
            }
            let kind = entry.file_type()?;
            let other = match whole.symlink_metadata(&path) {
                Ok(other) => other.file_type(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(error),
            };
            let is_same = match kind {
                kind if kind.is_dir() && other.is_dir() => {
                    folders.push(path);
                    true
                }
                kind if kind.is_symlink() && other.is_symlink() => {
                    part.read_link_contents(&path)? == whole.read_link_contents(&path)?
                }
                kind if kind.is_file() && other.is_file() => {
                    is_equal(part.open(&path)?, whole.open(&path)?)?
                }
                _ => false,
            };
            if !is_same {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn is_equal(one: cap_std::fs::File, other: cap_std::fs::File) -> io::Result<bool> {
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut one, mut other) = (BufReader::new(one), BufReader::new(other));
    loop {
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let count = left.len().min(right.len());
        if left[..count] != right[..count] || (count == 0 && left.len() != right.len()) {
            return Ok(false);
        }
        if count == 0 {
            return Ok(true);
        }
        one.consume(count);
        other.consume(count);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "folders are made from outside")]

    use std::fs;
    use std::os::unix::fs::symlink;

    use cap_std::ambient_authority;

    use super::*;

    #[test]
    fn a_part_is_told_from_what_is_more_or_else() {
        let folder = tempfile::tempdir().unwrap();
        let (whole, part) = (folder.path().join("whole"), folder.path().join("part"));
        for top in [&whole, &part] {
            fs::create_dir_all(top.join("deep/er")).unwrap();
            fs::write(top.join("deep/er/file"), "x".repeat(100_000)).unwrap();
            symlink("deep", top.join("link")).unwrap();
        }
        fs::write(whole.join("more"), "more").unwrap();
        fs::write(part.join(".git"), "gitdir: elsewhere").unwrap();
        let open = |path| Dir::open_ambient_dir(path, ambient_authority()).unwrap();
        let is_held = || holds(&open(&whole), &open(&part)).unwrap();
        assert!(is_held());
        assert!(!holds(&open(&part), &open(&whole)).unwrap());
        fs::write(part.join("deep/er/file"), "y".repeat(100_000)).unwrap();
        assert!(!is_held());
        fs::remove_file(part.join("deep/er/file")).unwrap();
        assert!(is_held());
        fs::remove_file(part.join("link")).unwrap();
        symlink("elsewhere", part.join("link")).unwrap();
        assert!(!is_held());
    }
}
