//! The real command-line agents, which `tests/agents/install` installs.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// The program of an agent: `claude`, `codex`, `gemini` or `opencode`. None, said aloud, where it
/// is not installed; with `SUBSTRAT_AGENTS=required` the test fails then.
pub fn installed(name: &str) -> Option<PathBuf> {
    if let Ok(program) = folder().join(name).canonicalize() {
        return Some(program);
    }
    let text = format!("{name} is not installed: run tests/agents/install");
    assert!(std::env::var_os("SUBSTRAT_AGENTS").is_none_or(|it| it != "required"), "{text}");
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    // Not captured, unlike what the print macros write.
    let _ = writeln!(std::io::stderr(), "\n*** NOT TESTED: {test}: {text}");
    None
}

/// Where the programs are, if anywhere.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("agents/install");
        let told = Command::new(script).arg("--where").output().expect("the script runs");
        PathBuf::from(String::from_utf8(told.stdout).expect("UTF-8").trim())
    })
}

/// A home without accounts and settings, with folders to work in and for temporary files.
pub struct Home {
    folder: TempDir,
}

impl Home {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["work", "tmp"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        Self { folder }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Where the agent works.
    pub fn work(&self) -> PathBuf {
        self.path().join("work")
    }

    /// A command that sees nothing of this machine's user.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", self.path()).current_dir(self.work());
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        // Codex keeps no helpers in a home below the folder for temporary files.
        command.env("TMPDIR", self.path().join("tmp"));
        command
    }
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}
