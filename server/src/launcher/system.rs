//! What a sandbox shows of the host's system: programs and libraries, and of `/etc` what programs
//! need to start. Nothing of `/home`, `/root`, `/var`, `/run`, `/sys` or `/boot`.
#![allow(clippy::disallowed_methods, reason = "looks at the host's system")]

use std::io;
use std::path::Path;

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

/// What is shown of `/etc`: none of it is secret, not even to who may read all, and none is about
/// this machine's users.
const ETC: &[&str] = &[
    "alternatives",
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
    "ld.so.cache",
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
    "pki/ca-trust",
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
    "R",
    "redhat-release",
    "services",
    "shells",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "xml",
];

/// What is shown of `/etc` where the host's network is seen.
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
];
/// Names of a sandbox that does not see the network.
const HOSTS: &str = "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n";

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
        let etc = |name: &&str| part(&Path::new("/etc").join(name));
        parts.extend(ETC.iter().filter_map(etc));
        for (name, text) in OWN {
            parts.push(own(folder, name, text)?);
        }
        let (mut online, mut offline) = (parts.clone(), parts);
        online.extend(ETC_NETWORK.iter().filter_map(etc));
        offline.push(own(folder, "hosts", HOSTS)?);
        Ok(Self { online, offline })
    }
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

fn own(folder: &Path, name: &str, text: &str) -> io::Result<Part> {
    let path = folder.join(name);
    std::fs::write(&path, text)?;
    Ok(Part::ShownAs(path, Path::new("/etc").join(name)))
}
