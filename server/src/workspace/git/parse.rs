//! What git says and keeps, read without running anything.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the `HEAD` of a worktree names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Head {
    /// A branch, which may have no commit yet.
    Branch(String),
    /// A commit.
    Commit(String),
}

/// Reads the content of a `HEAD` file, which may have been written by anybody.
pub(super) fn head(content: &str) -> Option<Head> {
    let content = content.strip_suffix('\n').unwrap_or(content);
    if let Some(branch) = content.strip_prefix("ref: refs/heads/") {
        return is_branch_name(branch).then(|| Head::Branch(branch.to_owned()));
    }
    is_object_id(content).then(|| Head::Commit(content.to_owned()))
}

/// Whether a text is the whole id of an object, SHA-1 or SHA-256.
pub(super) fn is_object_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether git takes a name for a branch (git-check-ref-format(1)).
pub(super) fn is_branch_name(name: &str) -> bool {
    let is_bad = |c: char| c.is_ascii_control() || " ~^:?*[\\".contains(c);
    let parts_fit = name
        .split('/')
        .all(|part| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock"));
    parts_fit
        && name.len() <= 200
        && name != "HEAD"
        && !name.starts_with('-')
        && !name.ends_with('.')
        && !name.contains("..")
        && !name.contains("@{")
        && name != "@"
        && !name.contains(is_bad)
}

/// The paths of `git status --porcelain=v1 -z --no-renames`.
pub(super) fn status(output: &[u8]) -> impl Iterator<Item = String> {
    let entries = output.split(|byte| *byte == 0).filter(|entry| entry.len() > 3);
    entries.map(|entry| shown(&entry[3..]))
}

/// How git says that it could not look into a folder.
const SHUT: &[u8] = b"warning: could not open directory '";
/// What git says of ignore and attribute files that it does not read: then it lists more, not less.
const HARMLESS: &[&[u8]] = &[
    b"warning: unable to access '",
    b"warning: Negative patterns are ignored in git attributes",
    b"Use '\\!' for literal leading exclamation",
    b"warning: ignoring overly ",
];

/// What `git status` could not look at, from its stderr. It exits with 0 all the same.
pub(super) fn unseen(errors: &[u8]) -> BTreeSet<String> {
    let lines = errors.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let told = lines.filter(|line| !HARMLESS.iter().any(|known| line.starts_with(known)));
    let name = |line: &[u8]| match line.strip_prefix(SHUT) {
        Some(rest) => {
            let end = rest.iter().rposition(|byte| *byte == b'\'').unwrap_or(rest.len());
            format!("{} (a folder that cannot be read)", shown(&rest[..end]))
        }
        None => format!("what git could not look at: {}", shown(line)),
    };
    told.map(name).collect()
}

/// An entry of a worktree's index.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    tag: u8,
    mode: &'a [u8],
    /// The object that it names.
    pub id: &'a [u8],
    /// Its path in the worktree.
    pub path: &'a Path,
}

impl Entry<'_> {
    /// Whether `git status` takes it for unchanged without a look: `--assume-unchanged` makes the
    /// tag a small letter, `--skip-worktree` an S.
    pub(super) fn is_hidden(&self) -> bool {
        !self.is_submodule() && (self.tag == b'S' || self.tag.is_ascii_lowercase())
    }

    /// Whether it is a repository of its own.
    pub(super) fn is_submodule(&self) -> bool {
        self.mode == b"160000"
    }
}

/// The entries of `git ls-files -v --stage -z`.
pub(super) fn entries(output: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    output.split(|byte| *byte == 0).filter_map(|entry| {
        let tab = entry.iter().position(|byte| *byte == b'\t')?;
        let mut words = entry[..tab].split(|byte| *byte == b' ');
        let tag = *words.next()?.first()?;
        let (mode, id) = (words.next()?, words.next()?);
        Some(Entry { tag, mode, id, path: Path::new(OsStr::from_bytes(&entry[tab + 1..])) })
    })
}

/// The worktrees of `git worktree list --porcelain -z`, each with its branch.
pub(super) fn worktrees(output: &[u8]) -> Vec<(PathBuf, Option<String>)> {
    let mut found: Vec<(PathBuf, Option<String>)> = Vec::new();
    for line in output.split(|byte| *byte == 0) {
        if let Some(path) = line.strip_prefix(b"worktree ") {
            found.push((PathBuf::from(OsStr::from_bytes(path)), None));
        } else if let (Some(branch), Some(last)) =
            (line.strip_prefix(b"branch refs/heads/"), found.last_mut())
        {
            last.1 = Some(String::from_utf8_lossy(branch).into_owned());
        }
    }
    found
}

/// The settings of `git config --list -z`: each a key, and a value if it has one.
pub(super) fn settings(output: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    let entries = output.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
    entries.map(|entry| match entry.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&entry[..at], Some(&entry[at + 1..])),
        None => (entry, None),
    })
}

/// The folder that a `.git` file names.
pub(super) fn git_file(content: &[u8]) -> Option<&Path> {
    let path = content.strip_prefix(b"gitdir: ")?;
    let path = path.strip_suffix(b"\n").unwrap_or(path);
    Some(Path::new(OsStr::from_bytes(path)))
}

/// A line of output, without the end of the line. Paths may hold others.
pub(super) fn line(output: &[u8]) -> &OsStr {
    OsStr::from_bytes(output.strip_suffix(b"\n").unwrap_or(output))
}

/// Bytes that anybody may have written, as text that does nothing to a terminal.
pub(super) fn shown(bytes: &[u8]) -> String {
    let mut text = String::new();
    for c in String::from_utf8_lossy(bytes).chars().take(500) {
        match c.is_control() {
            true => text.extend(c.escape_default()),
            false => text.push(c),
        }
    }
    text
}
