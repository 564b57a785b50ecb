//! What a sandbox shows of the host's system: programs and libraries, and of `/etc` what programs
//! need to start. Nothing of `/home`, `/root`, `/var`, `/run`, `/sys` or `/boot`.
#![allow(clippy::disallowed_methods, reason = "looks at the host's system")]

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::bubblewrap::Part;

/// Folders with programs and libraries; a symbolic link is shown as one.
const PROGRAMS: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
    "/run/current-system",
];

/// What is shown of `/etc` as it is: what changes when programs are installed or certificates
/// renewed. Each is a mount, which costs the start of every process some time.
const ETC_LIVE: &[&str] = &["alternatives", "ld.so.cache", "pki/ca-trust", "ssl/certs"];

/// What is shown of `/etc` as it was when the daemon started, as far as everybody may read it:
/// none of it is about this machine's users.
const ETC_COPIED: &[&str] = &[
    "R",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "inputrc",
    "issue",
    "java",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "lsb-release",
    "magic",
    "mime.types",
    "networks",
    "os-release",
    "pki/java",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "profile",
    "profile.d",
    "protocols",
    "python3",
    "python3.11",
    "python3.12",
    "python3.13",
    "redhat-release",
    "services",
    "shells",
    "ssl/cert.pem",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "xml",
];
/// Bytes of the largest file that is copied.
const MAX_COPIED: u64 = 4 << 20;

/// What is shown of `/etc` as it is where the host's network is seen.
const ETC_NETWORK: &[&str] = &["host.conf", "hosts", "resolv.conf"];

/// Files of `/etc` that are the sandbox's own: its one user, and how names are looked up.
const OWN: &[(&str, &str)] = &[
    (
        "passwd",
        "root:x:0:0:root:/root:/usr/sbin/nologin\nagent:x:1000:1000:agent:/home/agent:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("group", "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n"),
    (
        "nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\nnetworks: files\n",
    ),
    // For one that does not see the network.
    ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n"),
];

/// What a sandbox shows of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct System {
    /// With the host's network.
    pub(super) online: Vec<Part>,
    /// Without.
    pub(super) offline: Vec<Part>,
}

impl System {
    /// Looks at the host. Files of the sandbox's own are written to `folder`.
    pub(super) fn look(folder: &Path, more: &[String]) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let mut parts = Vec::new();
        for path in PROGRAMS.iter().map(Path::new).chain(more.iter().map(Path::new)) {
            parts.extend(part(path));
        }
        let etc = folder.join("etc");
        match std::fs::remove_dir_all(&etc) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => std::fs::create_dir_all(&etc)?,
        }
        for name in ETC_COPIED {
            copy(&Path::new("/etc").join(name), &etc.join(name))?;
        }
        for (name, text) in OWN {
            std::fs::write(etc.join(name), text)?;
        }
        parts.push(Part::ShownAs(etc.clone(), "/etc".into()));
        parts.extend(live(&etc, ETC_LIVE)?);
        let (mut online, offline) = (parts.clone(), parts);
        online.extend(live(&etc, ETC_NETWORK)?);
        Ok(Self { online, offline })
    }
}

/// Which of the shown folders of the host lets a folder be seen, or what is below it; none if none
/// does. `more` are those that are shown beside programs and libraries.
pub fn shows(folder: &Path, more: &[String]) -> Option<PathBuf> {
    let folder = real(folder);
    all_shown(more).find(|shown| {
        let shown = real(shown);
        folder.starts_with(&shown) || shown.starts_with(&folder)
    })
}

/// Which of them lets a file be seen, which need not be there.
pub fn shows_file(file: &Path, more: &[String]) -> Option<PathBuf> {
    let file = std::path::absolute(file).ok()?;
    let folder = real(file.parent()?);
    all_shown(more).find(|shown| folder.starts_with(real(shown)) || file == *shown)
}

fn all_shown(more: &[String]) -> impl Iterator<Item = PathBuf> {
    let programs = PROGRAMS.iter().map(PathBuf::from);
    let live = ETC_LIVE.iter().chain(ETC_COPIED).map(|name| Path::new("/etc").join(name));
    programs.chain(live).chain(more.iter().map(PathBuf::from))
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// A path of the host as it is shown, if it is there.
fn part(path: &Path) -> Option<Part> {
    let target = std::fs::read_link(path).ok();
    match target {
        None => path.exists().then(|| Part::Shown(path.to_owned())),
        // One that stays within what is shown is kept; another is shown as what it leads to.
        Some(target) if !path.starts_with("/etc") => Some(Part::Symlink(path.to_owned(), target)),
        Some(_) => Some(Part::ShownAs(path.canonicalize().ok()?, path.to_owned())),
    }
}

/// What of the host's `/etc` is mounted over the sandbox's, where its places are made.
fn live(etc: &Path, names: &[&str]) -> io::Result<Vec<Part>> {
    let mut parts = Vec::new();
    for name in names {
        let Some(part) = part(&Path::new("/etc").join(name)) else { continue };
        let place = etc.join(name);
        if Path::new("/etc").join(name).is_dir() {
            std::fs::create_dir_all(place)?;
        } else if !place.exists() {
            std::fs::write(place, "")?;
        }
        parts.push(part);
    }
    Ok(parts)
}

/// Copies a file or folder, as far as everybody may read it; links in a folder stay links.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let Ok(there) = from.metadata() else { return Ok(()) };
    if there.permissions().mode() & 0o004 == 0 {
        return Ok(());
    }
    if let Some(above) = to.parent() {
        std::fs::create_dir_all(above)?;
    }
    if there.is_file() && there.len() <= MAX_COPIED {
        // With the mode of what the daemon makes: its owner's alone.
        return std::fs::write(to, std::fs::read(from)?);
    } else if !there.is_dir() {
        return Ok(());
    }
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(entry.path())?, to)?;
        } else {
            copy(&entry.path(), &to)?;
        }
    }
    Ok(())
}
