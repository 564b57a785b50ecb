//! git without anything that a repository, a worktree or the environment could make it run.
//!
//! What a file in a worktree can do is choose among programs that the configuration names: filters,
//! hooks, monitors, helpers. So every setting that names one is overridden, in the environment,
//! where keys with any bytes fit and commands that git itself starts see it too.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// A setting, key and value.
pub(super) type Setting = (OsString, OsString);

/// Settings that name programs, reach the network or change what is written.
const SETTINGS: &[(&str, &str)] = &[
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.sshCommand", "false"),
    ("core.askPass", "false"),
    ("core.editor", "false"),
    ("core.pager", "cat"),
    ("core.alternateRefsCommand", ""),
    ("core.quotePath", "false"),
    ("credential.helper", ""),
    ("diff.external", ""),
    ("diff.ignoreSubmodules", "all"),
    ("submodule.recurse", "false"),
    ("status.submoduleSummary", "false"),
    ("protocol.allow", "never"),
    ("protocol.file.allow", "never"),
    ("protocol.ext.allow", "never"),
    ("commit.gpgSign", "false"),
    ("gpg.program", "false"),
    ("log.showSignature", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("color.ui", "false"),
    ("column.ui", "never"),
    ("checkout.workers", "1"),
    ("branch.autoSetupMerge", "false"),
    ("worktree.guessRemote", "false"),
    ("worktree.useRelativePaths", "false"),
];

/// The environment beside settings and `PATH`.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("LC_ALL", "C"),
    ("HOME", "/nonexistent"),
    ("XDG_CONFIG_HOME", "/nonexistent"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_PROTOCOL_FROM_USER", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "false"),
    ("SSH_ASKPASS", "false"),
    ("GIT_SSH_COMMAND", "false"),
    ("GIT_EDITOR", "false"),
    ("GIT_SEQUENCE_EDITOR", "false"),
    ("GIT_PAGER", "cat"),
    ("PAGER", "cat"),
    ("GIT_ADVICE", "0"),
];

/// The environment of a git that trusts nothing. `more` are settings that the repository needs
/// overridden beside those that all do; `common_dir` is used whatever a worktree says.
pub(super) fn environment(
    path: Option<&OsStr>,
    more: &[Setting],
    common_dir: Option<&Path>,
) -> Vec<(OsString, OsString)> {
    let text = |(name, value): &(&str, &str)| (OsString::from(name), OsString::from(value));
    let mut env: Vec<(OsString, OsString)> = ENVIRONMENT.iter().map(text).collect();
    env.push(("PATH".into(), path.unwrap_or(OsStr::new("/usr/bin:/bin")).to_owned()));
    if let Some(common_dir) = common_dir {
        env.push(("GIT_COMMON_DIR".into(), common_dir.into()));
    }
    let settings: Vec<Setting> = SETTINGS.iter().map(text).chain(more.iter().cloned()).collect();
    env.extend(as_variables(&settings));
    env
}

/// Settings as the variables through which git takes them (git-config(1), `GIT_CONFIG_COUNT`).
pub(super) fn as_variables(settings: &[Setting]) -> Vec<(OsString, OsString)> {
    let mut env = vec![("GIT_CONFIG_COUNT".into(), settings.len().to_string().into())];
    for (at, (key, value)) in settings.iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{at}").into(), key.clone()));
        env.push((format!("GIT_CONFIG_VALUE_{at}").into(), value.clone()));
    }
    env
}

/// What takes the power from the filters that a configuration has.
pub(super) fn without_filters<'a>(keys: impl Iterator<Item = &'a [u8]>) -> Vec<Setting> {
    let drivers = keys.filter_map(|key| {
        let name = key.strip_prefix(b"filter.")?;
        Some(&name[..name.iter().rposition(|byte| *byte == b'.')?])
    });
    let drivers: std::collections::BTreeSet<&[u8]> = drivers.collect();
    let off = |driver: &[u8]| {
        let setting = |last: &str, value: &str| {
            let key = [b"filter.", driver, b".", last.as_bytes()].concat();
            (OsString::from_vec(key), OsString::from(value))
        };
        let empty = ["clean", "smudge", "process"].map(|last| setting(last, ""));
        empty.into_iter().chain([setting("required", "false")]).collect::<Vec<_>>()
    };
    drivers.into_iter().flat_map(off).collect()
}

/// A flag with a path as its value.
pub(super) fn flag(name: &str, path: &Path) -> OsString {
    OsString::from_vec([name.as_bytes(), b"=", path.as_os_str().as_bytes()].concat())
}
