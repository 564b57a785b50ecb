//! Git repositories of a user.

use std::path::Path;
use std::process::Command;

/// Runs git in a folder, which must go well; what it wrote.
pub fn git(folder: &Path, args: &[&str]) -> String {
    let output = Command::new("git").arg("-C").arg(folder).args(args).output().expect("git runs");
    assert!(output.status.success(), "git {args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Makes a repository at a path, with one commit of one `file` on `main`.
pub fn repository(at: &Path) {
    std::fs::create_dir(at).expect("a folder");
    git(at, &["init", "-q", "-b", "main"]);
    git(at, &["config", "user.email", "a@example.com"]);
    git(at, &["config", "user.name", "A"]);
    std::fs::write(at.join("file"), "one\n").expect("a file");
    git(at, &["add", "."]);
    git(at, &["commit", "-qm", "first"]);
}
