//! Finding bubblewrap, and what is wrong where it does not work.
#![allow(clippy::disallowed_methods, reason = "looks at the host's system")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::{Error, Unavailable, family};

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
    let text = error.to_string();
    if text.contains("Unknown option") {
        return Unavailable::TooOld { path: bubblewrap.path.display().to_string() };
    }
    let denied =
        ["No permissions to create", "Creating new namespace failed", "uid map", "setting up"];
    if denied.iter().any(|sign| text.contains(sign)) {
        return Unavailable::Namespaces(namespaces());
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
