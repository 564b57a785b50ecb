//! Finding bubblewrap, and what is wrong where it does not work.
#![allow(clippy::disallowed_methods, reason = "looks at the host's system")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::{Error, Unavailable, family};

/// What bubblewrap says where it may make no namespaces.
const DENIED: [&str; 4] =
    ["No permissions to create", "Creating new namespace failed", "uid map", "setting up"];
/// What it says of steps in its namespaces, which a container or security module can forbid.
const MOUNTS: [&str; 4] =
    ["RTM_NEWADDR", "pivot_root", "Can't mount proc", "Failed to make / slave"];
const FORBIDDEN: [&str; 2] = ["Operation not permitted", "Permission denied"];
/// What the system says where the machine is out of something for now.
const PASSING: [&str; 4] = [
    "Resource temporarily unavailable",
    "Cannot allocate memory",
    "Too many open files",
    "Interrupted system call",
];

/// A bubblewrap that is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bubblewrap {
    /// Where it is.
    pub path: PathBuf,
    /// What it says of itself; empty if it says nothing.
    pub version: String,
}

/// Looks for bubblewrap where programs are.
pub(super) fn find() -> Result<Bubblewrap, Unavailable> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| super::PATH.into());
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join("bwrap"))
        .find(|path| path.metadata().is_ok_and(|file| file.permissions().mode() & 0o111 != 0));
    let path = found.ok_or(Unavailable::NotInstalled)?;
    let setuid = path.metadata().is_ok_and(|file| file.permissions().mode() & 0o4000 != 0);
    if setuid && !rustix::process::geteuid().is_root() {
        return Err(Unavailable::Setuid { path: path.display().to_string() });
    }
    Ok(Bubblewrap { version: version(&path), path })
}

/// What a bubblewrap says of itself, without its name.
fn version(path: &Path) -> String {
    let mut command = std::process::Command::new(path);
    command.arg("--version").env_clear().stdin(Stdio::null()).stderr(Stdio::null());
    let said = family::output(&mut command).unwrap_or_default();
    let text = String::from_utf8_lossy(&said);
    text.split_whitespace().last().unwrap_or_default().chars().take(40).collect()
}

/// Why a trial run failed, and what mends that.
pub(super) fn explain(bubblewrap: &Bubblewrap, error: &Error) -> Unavailable {
    match error {
        Error::DiskFull => Unavailable::DiskFull,
        error => explain_text(bubblewrap, error.to_string(), namespaces),
    }
}

/// The same by what bubblewrap said.
pub(super) fn explain_said(bubblewrap: &Bubblewrap, said: String) -> Unavailable {
    explain_text(bubblewrap, said, namespaces)
}

/// `switch` says what forbids namespaces.
fn explain_text(
    bubblewrap: &Bubblewrap,
    text: String,
    switch: fn() -> &'static str,
) -> Unavailable {
    if text.contains("Unknown option") {
        return Unavailable::TooOld { path: bubblewrap.path.display().to_string() };
    }
    let has = |signs: &[&str]| signs.iter().any(|sign| text.contains(sign));
    let is_denied = has(&DENIED) || has(&MOUNTS) && has(&FORBIDDEN);
    if is_denied && !has(&PASSING) {
        return Unavailable::Namespaces(switch());
    }
    Unavailable::Broken(text)
}

/// Which switch of the kernel is set against user namespaces.
fn namespaces() -> &'static str {
    let value = |name: &str| {
        let text = std::fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
        text.trim().parse::<i64>().ok()
    };
    if value("kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        return "allow them to bubblewrap with an AppArmor profile for it, or to all with \
                \"sysctl kernel.apparmor_restrict_unprivileged_userns=0\"";
    }
    if value("kernel/unprivileged_userns_clone") == Some(0) {
        return "allow them with \"sysctl kernel.unprivileged_userns_clone=1\"";
    }
    if value("user/max_user_namespaces") == Some(0) {
        return "allow them with \"sysctl user.max_user_namespaces=15000\"";
    }
    "a container or security module forbids them; in a container, run it with a profile that \
     allows unshare and mount"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stays_lets_processes_out() {
        let bubblewrap = Bubblewrap { path: "/usr/bin/bwrap".into(), version: String::new() };
        let of = |text: &str| explain_text(&bubblewrap, text.to_owned(), || "why");
        for lasting in [
            "bwrap: No permissions to create new namespace, likely because of a switch",
            "bwrap: setting up uid map: Permission denied",
            "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
            "bwrap: Can't mount proc on /newroot/proc: Operation not permitted",
        ] {
            assert_eq!(of(lasting), Unavailable::Namespaces("why"), "{lasting}");
        }
        assert!(of("bwrap: Unknown option --size").is_lasting());
        for passing in [
            "bwrap: Creating new namespace failed: Resource temporarily unavailable",
            "bwrap: Creating new namespace failed: Cannot allocate memory",
            "the sandbox could not be made: recording the process: Permission denied",
            "the sandbox could not be made: starting it: Too many open files (os error 24)",
            "the sandbox could not be made: making it: it ended without a word",
        ] {
            assert_eq!(of(passing), Unavailable::Broken(passing.to_owned()));
            assert!(!of(passing).is_lasting());
        }
        assert_eq!(explain(&bubblewrap, &Error::DiskFull), Unavailable::DiskFull);
        assert!(!Unavailable::DiskFull.is_lasting());
    }
}
