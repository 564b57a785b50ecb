//! The keys on sandboxes.

use std::path::Path;

use toml::Value;

use super::{Config, Fits, Key, number};
use crate::model::Limits;
use crate::workspace::{SandboxPolicy, SandboxSettings};

/// Sizes in MiB up to 1 EiB.
const MIB: i64 = 1 << 40;

pub(super) const KEYS: &[Key] = &[
    Key {
        name: "sandbox.cpu_millis",
        default: || Value::Integer(0),
        fits: number(0, 10_000_000),
        description: "processor time of a workspace in thousandths of a processor; 0 for no limit",
    },
    Key {
        name: "sandbox.disk_mib",
        default: || Value::Integer(0),
        fits: number(0, MIB),
        description: "files below the root of a workspace; 0 for no limit",
    },
    Key {
        name: "sandbox.file_size_mib",
        default: || Value::Integer(4096),
        fits: number(1, MIB),
        description: "largest file that a process may write",
    },
    Key {
        name: "sandbox.memory_mib",
        default: || Value::Integer(4096),
        fits: number(16, MIB),
        description: "memory that all processes of a workspace may hold together",
    },
    Key {
        name: "sandbox.open_files",
        default: || Value::Integer(4096),
        fits: number(32, 1_000_000),
        description: "open files of a process",
    },
    Key {
        name: "sandbox.policy",
        default: || Value::String("required".into()),
        fits: Fits::Word(&["required", "preferred", "off"]),
        description: "what is done where processes cannot be kept in a sandbox",
    },
    Key {
        name: "sandbox.processes",
        default: || Value::Integer(512),
        fits: number(8, 1_000_000),
        description: "processes and threads of a workspace at once",
    },
    Key {
        name: "sandbox.system_paths",
        default: || Value::Array(Vec::new()),
        fits: Fits::Paths,
        description: "further host folders that every process may read",
    },
    Key {
        name: "sandbox.tmp_mib",
        default: || Value::Integer(1024),
        fits: number(1, MIB),
        description: "what the private /tmp of a process may hold",
    },
];

/// Folders that a sandbox has of its own, which would hide what is shown below them.
const OWN: &[&str] = &["/dev", "/home/agent", "/proc", "/sys", "/tmp", "/workspace"];

/// Whether a value is a list of absolute paths that can be shown.
pub(super) fn are_paths(values: &[Value]) -> bool {
    let own = |path: &str| OWN.iter().any(|own| Path::new(path).starts_with(own));
    let fits = |path: &str| path.starts_with('/') && !path.contains('\0') && !own(path);
    values.iter().all(|value| value.as_str().is_some_and(fits))
}

impl Config {
    /// What is said of sandboxes.
    pub fn sandbox(&self) -> SandboxSettings {
        let small = |name: &str| u32::try_from(self.number(name)).ok().filter(|most| *most > 0);
        let mib = |name: &str| Some(self.number(name) << 20).filter(|most| *most > 0);
        let paths = self.value("sandbox.system_paths").and_then(Value::as_array);
        SandboxSettings {
            policy: match self.word("sandbox.policy") {
                "preferred" => SandboxPolicy::Preferred,
                "off" => SandboxPolicy::Off,
                _ => SandboxPolicy::Required,
            },
            limits: Limits {
                memory: mib("sandbox.memory_mib"),
                cpu_millis: small("sandbox.cpu_millis"),
                processes: small("sandbox.processes"),
                open_files: small("sandbox.open_files"),
                file_size: mib("sandbox.file_size_mib"),
                disk: mib("sandbox.disk_mib"),
            },
            tmp_bytes: self.number("sandbox.tmp_mib") << 20,
            system_paths: paths
                .into_iter()
                .flatten()
                .filter_map(|path| path.as_str().map(str::to_owned))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(flags: &[&str]) -> Result<SandboxSettings, String> {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let config = Config::load(Path::new("/nowhere"), std::iter::empty(), &flags);
        config.map(|config| config.sandbox()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_sandbox_is_required_and_bounded_unless_said_otherwise() {
        let settings = load(&[]).unwrap();
        assert_eq!(settings.policy, SandboxPolicy::Required);
        assert_eq!((settings.limits.memory, settings.limits.disk), (Some(4 << 30), None));
        let flags = ["sandbox.policy=off", "sandbox.disk_mib=7", "sandbox.system_paths=[\"/opt\"]"];
        let settings = load(&flags).unwrap();
        assert_eq!(settings.policy, SandboxPolicy::Off);
        assert_eq!(settings.limits.disk, Some(7 << 20));
        assert_eq!(settings.system_paths, ["/opt"]);
        assert!(load(&["sandbox.system_paths=[\"/tmp/tools\"]"]).is_err(), "it would be hidden");
        let error = load(&["sandbox.system_paths=[\"opt\"]"]).unwrap_err();
        assert!(error.contains("absolute paths"), "{error}");
    }
}
