//! A launcher of its own, around the real daemon's program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use substrat_server::launcher::{Ends, Exit, Launch, Launched, Launcher};
use substrat_server::model::{Access, Limits, Mount, Source, WorkspaceId, World};
use substrat_server::workspace::{Files, SandboxPolicy, SandboxSettings};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;

use crate::harness::binary;

/// A launcher, and a workspace whose root holds what a test puts there.
pub struct Bench {
    pub launcher: Launcher,
    pub folder: TempDir,
}

/// What became of a process.
#[derive(Debug)]
pub struct Ran {
    pub exit: Exit,
    pub stdout: String,
    pub stderr: String,
}

impl Bench {
    /// A launcher in a fresh folder.
    pub fn new(policy: SandboxPolicy) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let home = folder.path().join("home");
        let files = Files::new(home.join("workspaces"), &home);
        let settings = SandboxSettings {
            policy,
            system_paths: Vec::new(),
            tmp_bytes: 64 << 20,
            limits: Limits::default(),
        };
        let launcher = Launcher::new(
            &home.join("run"),
            &binary("substratd"),
            files,
            settings,
            Vec::new(),
            Mode::from_raw_mode(0o022),
        );
        Self { launcher: launcher.expect("a launcher"), folder }
    }

    /// A folder of the host beside the home, made if it is not there.
    pub fn host(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        path
    }

    /// The root of the workspace on the host.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("home/workspaces/w/root")
    }

    /// What a process in the workspace sees, with these mounts beside the root.
    pub fn world(&self, mounts: &[(&str, &Path, Access)]) -> World {
        let root = Mount { source: Source::Workspaces("w/root".into()), access: Access::ReadWrite };
        let mut all = BTreeMap::from([(String::new(), root)]);
        for (at, path, access) in mounts {
            let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
            let source = Source::Host(path.to_str().expect("UTF-8").to_owned());
            all.insert((*at).to_owned(), Mount { source, access: *access });
        }
        World {
            workspace: WorkspaceId::from_u128(1),
            counted: Source::Workspaces("w/root".into()),
            shares: Vec::new(),
            mounts: all,
            links: BTreeMap::new(),
            network: false,
            env: BTreeMap::new(),
            limits: Limits::default(),
            git: None,
        }
    }

    /// A shell command in a world.
    pub fn shell(&self, world: World, script: &str) -> Launch {
        let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        Launch { argv, world: Some(world), ..Launch::default() }
    }

    /// Runs something to its end.
    pub async fn run(&self, launch: Launch) -> Ran {
        finish(self.launcher.start(launch).await.expect("it starts")).await
    }
}

/// Waits for the end of a process, and for all that it says.
pub async fn finish(launched: Launched) -> Ran {
    let Launched { mut process, ends, .. } = launched;
    let Ends::Pipes { stdin, mut stdout, mut stderr } = ends else { panic!("no pipes") };
    drop(stdin);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (exit, ..) =
        tokio::join!(process.wait(), stdout.read_to_end(&mut out), stderr.read_to_end(&mut err));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { exit, stdout: text(out), stderr: text(err) }
}
