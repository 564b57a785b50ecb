//! Shell commands of agents whose provider has no shell of its own.
//!
//! Each command is a process of its own, in the sandbox of the agent's workspace. The folder that
//! it ends in and the variables that it exports are kept for the agent's next one.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use crate::launcher::limits::Hit;
use crate::launcher::{Ends, Exit, Launch, Launched, Launcher};
use crate::model::{RunCommand, SessionId, World};

/// How long a command may take that names no time.
const USUAL: u32 = 120;
/// How long a command may take at most.
const MOST: u32 = 3600;
/// How long the output of a command that has ended is read on that somebody else holds open.
const HELD: Duration = Duration::from_secs(1);
/// How long a command that is to end may take over it.
const GRACE: Duration = Duration::from_secs(2);
/// Bytes of the beginning of its output that are kept, and of its end.
const HEAD: usize = 16 << 10;
const TAIL: usize = 48 << 10;
/// Bytes of variables that are kept from one command to the next.
const MAX_STATE: usize = 64 << 10;

/// What bash runs: brings back what was kept, runs the command, and says what is to be kept on
/// the stream that was its stderr. `$1` is the folder, `$2` the command; stdin is what was kept.
const WRAPPER: &str = r#"
exec {substrat_state}>&2 2>&1
declare -A substrat_before
for substrat_name in $(compgen -e); do substrat_before[$substrat_name]="x${!substrat_name}"; done
eval "$(cat)"
exec </dev/null
cd -- "$1" 2>/dev/null
substrat_keep() {
  substrat_code=$?
  {
    printf '%s\n' "$PWD"
    for substrat_name in $(compgen -e); do
      case $substrat_name in PWD|OLDPWD|SHLVL|_) continue ;; esac
      if [[ "${substrat_before[$substrat_name]}" != "x${!substrat_name}" ]]; then
        printf 'export %s=%q\n' "$substrat_name" "${!substrat_name}"
      fi
    done
  } >&"$substrat_state"
  exit "$substrat_code"
}
trap substrat_keep EXIT
substrat_command=$2
set --
eval "$substrat_command"
"#;

/// Something that a command met and that the agent's log is to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Met {
    /// A limit.
    Limit(Hit),
    /// It did not end by itself: how it ended, and why.
    End {
        /// Its id on the host.
        pid: u32,
        /// How it ended.
        status: String,
        /// Why; none for a signal of its own.
        reason: Option<String>,
    },
    /// It ran without a sandbox, for this reason.
    NoSandbox(String),
}

/// What a command came to, for a model to read, and what it met.
pub type Ran = (Result<Value, String>, Vec<Met>);

/// Runs commands of agents.
pub trait Shells: Send + Sync {
    /// Runs a command to its end, or until it is cancelled.
    fn run(
        &self,
        session: SessionId,
        world: World,
        args: RunCommand,
        cancel: CancellationToken,
    ) -> BoxFuture<'_, Ran>;

    /// Whether processes of agents are kept in sandboxes.
    fn confined(&self) -> BoxFuture<'_, bool> {
        std::future::ready(false).boxed()
    }
}

/// Runs none: for an engine that starts no processes.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoShells;

impl Shells for NoShells {
    fn run(
        &self,
        _: SessionId,
        _: World,
        _: RunCommand,
        _: CancellationToken,
    ) -> BoxFuture<'_, Ran> {
        async { (Err("no commands can be run here".to_owned()), Vec::new()) }.boxed()
    }
}

/// What is kept of a shell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// The folder.
    dir: String,
    /// Statements that export the variables.
    env: String,
}

/// Where what is kept of shells lies: a file for each session.
#[derive(Debug)]
struct Shelf {
    folder: PathBuf,
    /// Held while something is written there: an agent may run several commands at once.
    writing: Mutex<()>,
}

#[expect(clippy::disallowed_methods, reason = "beside the journal: none of it is the truth")]
impl Shelf {
    fn new(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned(), writing: Mutex::default() })
    }

    fn path(&self, session: SessionId) -> PathBuf {
        self.folder.join(format!("{session}.json"))
    }

    /// What was kept; nothing if it cannot be read.
    fn load(&self, session: SessionId) -> Kept {
        let text = std::fs::read(self.path(session)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Keeps what a command said, in place of what was kept.
    fn store(&self, session: SessionId, kept: &Kept) -> io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let beside = self.folder.join(format!(".{session}.tmp"));
        std::fs::write(&beside, serde_json::to_vec(kept)?)?;
        std::fs::rename(&beside, self.path(session))
    }
}

/// Commands as processes of the launcher.
#[derive(Debug, Clone)]
pub struct LaunchedShells {
    launcher: Launcher,
    shelf: Arc<Shelf>,
}

impl LaunchedShells {
    /// Shells whose state is kept in a folder, which is made if it is not there.
    pub fn new(launcher: Launcher, folder: &Path) -> io::Result<Self> {
        Ok(Self { launcher, shelf: Arc::new(Shelf::new(folder)?) })
    }

    async fn run_in(
        &self,
        (session, kept): (SessionId, &Kept),
        world: World,
        args: &RunCommand,
        cancel: &CancellationToken,
    ) -> Result<Finished, String> {
        let argv =
            ["bash", "--noprofile", "--norc", "-c", WRAPPER, "bash", &kept.dir, &args.command];
        let argv = argv.map(str::to_owned).to_vec();
        let (session, world) = (Some(session), Some(world));
        let launch = Launch { argv, session, world, ..Launch::default() };
        let launched = self.launcher.start(launch).await;
        let launched = launched.map_err(|error| format!("{error}; {}", error.hint()))?;
        let seconds = args.timeout.unwrap_or(USUAL).clamp(1, MOST);
        Ok(finish(launched, &kept.env, Duration::from_secs(seconds.into()), cancel).await)
    }
}

/// Removes what was kept of the shell of a session, with the variables that its agent exported.
#[expect(clippy::disallowed_methods, reason = "beside the journal: none of it is the truth")]
pub fn remove_shell(folder: &Path, session: SessionId) -> io::Result<()> {
    for name in [format!("{session}.json"), format!(".{session}.tmp")] {
        match std::fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

/// Removes what was kept of the shells of sessions that are not there any more.
pub fn sweep_shells(folder: &Path, is_known: impl Fn(SessionId) -> bool) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        let id = name.trim_start_matches('.').split('.').next();
        let session = id.and_then(|id| id.parse().ok());
        if let Some(session) = session.filter(|session| !is_known(*session))
            && let Err(error) = remove_shell(folder, session)
        {
            tracing::warn!(%session, %error, "the shell of a session that is gone was not removed");
        }
    }
}

impl Shells for LaunchedShells {
    fn confined(&self) -> BoxFuture<'_, bool> {
        async { self.launcher.seen().await.in_force }.boxed()
    }

    fn run(
        &self,
        session: SessionId,
        world: World,
        args: RunCommand,
        cancel: CancellationToken,
    ) -> BoxFuture<'_, Ran> {
        async move {
            let kept = self.shelf.load(session);
            let finished = match self.run_in((session, &kept), world, &args, &cancel).await {
                Ok(finished) => finished,
                Err(error) => return (Err(error), Vec::new()),
            };
            let mut shown = finished.show();
            // One that did not come to its end keeps what was; and the session of one whose turn is
            // over may be deleted.
            if let Some(now) = finished.kept().filter(|_| !cancel.is_cancelled()) {
                shown["dir"] = json!(now.dir);
                if let Err(error) = self.shelf.store(session, &now) {
                    shown["note"] = json!(format!("folder and variables were not kept: {error}"));
                }
            }
            (Ok(shown), finished.met)
        }
        .boxed()
    }
}

/// What is left of a command that has ended.
struct Finished {
    exit: Exit,
    timed_out: bool,
    output: Clipped,
    state: Clipped,
    met: Vec<Met>,
}

impl Finished {
    fn show(&self) -> Value {
        let mut shown = json!({ "output": self.output.text() });
        match self.exit {
            Exit::Code(code) => shown["exit_code"] = json!(code),
            other => shown["ended_by"] = json!(other.to_string()),
        }
        if self.output.dropped > 0 {
            shown["dropped_bytes"] = json!(self.output.dropped);
        }
        if self.timed_out {
            shown["timed_out"] = json!(true);
        }
        let limits: Vec<&str> = self.met.iter().filter_map(Met::limit).collect();
        if !limits.is_empty() {
            shown["limits_hit"] = json!(limits);
        }
        shown
    }

    /// What it said is to be kept, if it came to its end and that is not too much.
    fn kept(&self) -> Option<Kept> {
        let text = self.state.whole()?;
        let (dir, env) = text.split_once('\n')?;
        dir.starts_with('/').then(|| Kept { dir: dir.to_owned(), env: env.to_owned() })
    }
}

impl Met {
    fn limit(&self) -> Option<&str> {
        match self {
            Self::Limit(hit) => Some(&hit.detail),
            Self::End { .. } | Self::NoSandbox(_) => None,
        }
    }
}

/// Waits for the end of a command, or brings it about.
async fn finish(
    launched: Launched,
    env: &str,
    time: Duration,
    cancel: &CancellationToken,
) -> Finished {
    let Launched { mut process, ends, unsandboxed } = launched;
    let mut met: Vec<Met> = unsandboxed.map(Met::NoSandbox).into_iter().collect();
    let (mut output, mut state) = (Clipped::new(HEAD, TAIL), Clipped::new(MAX_STATE, 0));
    let mut timed_out = false;
    let exit = match ends {
        Ends::Pipes { mut stdin, stdout, stderr } => {
            let feed = async move {
                // A command that does not want it has said so by ending.
                let _ = stdin.write_all(env.as_bytes()).await;
            };
            let wait = async {
                tokio::select! {
                    exit = process.wait() => exit,
                    () = tokio::time::sleep(time) => {
                        timed_out = true;
                        process.stop(GRACE).await
                    }
                    () = cancel.cancelled() => process.stop(GRACE).await,
                }
            };
            let streams = async {
                tokio::join!(feed, output.fill(stdout), state.fill(stderr));
            };
            let (mut wait, mut streams) = (std::pin::pin!(wait), std::pin::pin!(streams));
            let mut are_read = false;
            let exit = loop {
                tokio::select! {
                    biased;
                    () = &mut streams, if !are_read => are_read = true,
                    exit = &mut wait => break exit,
                }
            };
            if !are_read {
                // What it gave to others may hold them open for as long as they like.
                let _ = tokio::time::timeout(HELD, streams).await;
            }
            exit
        }
        Ends::Terminal(_) => process.kill().await,
    };
    let mut hits = Vec::new();
    while let Some(hit) = process.hit().await {
        hits.push(hit);
    }
    let ended_by = process.explain(exit, &hits);
    hits.extend(ended_by.clone().filter(|hit| !hits.contains(hit)));
    met.extend(hits.into_iter().map(Met::Limit));
    let reason = match ended_by {
        Some(hit) => Some(hit.detail),
        None if timed_out => Some("its time was up".to_owned()),
        None if cancel.is_cancelled() => Some("its turn was over".to_owned()),
        None => None,
    };
    if reason.is_some() || !matches!(exit, Exit::Code(_)) {
        let pid = u32::try_from(process.pid()).unwrap_or_default();
        met.push(Met::End { pid, status: exit.to_string(), reason });
    }
    Finished { exit, timed_out, output, state, met }
}

/// The beginning and the end of a stream.
#[derive(Debug)]
struct Clipped {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    most: (usize, usize),
    /// Bytes between the two that are not kept.
    dropped: usize,
}

impl Clipped {
    fn new(head: usize, tail: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), most: (head, tail), dropped: 0 }
    }

    fn push(&mut self, piece: &[u8]) {
        let room = (self.most.0 - self.head.len()).min(piece.len());
        let (first, rest) = piece.split_at(room);
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(self.most.1);
        self.tail.drain(..excess);
        self.dropped += excess;
    }

    async fn fill(&mut self, mut from: impl AsyncRead + Unpin) {
        let mut piece = vec![0; 16 << 10];
        // An error is an end.
        while let Ok(count @ 1..) = from.read(&mut piece).await {
            self.push(&piece[..count]);
        }
    }

    /// All of it as text, if nothing was dropped.
    fn whole(&self) -> Option<String> {
        (self.dropped == 0).then(|| self.text())
    }

    /// The beginning and the end, with a line between them where something is left out.
    fn text(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if self.dropped == 0 {
            let all = [self.head.as_slice(), tail.as_slice()].concat();
            return String::from_utf8_lossy(&all).into_owned();
        }
        let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&tail));
        format!("{head}\n[{} bytes are left out]\n{tail}", self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_output_keeps_its_beginning_and_its_end() {
        let mut clipped = Clipped::new(4, 4);
        clipped.push(b"ab");
        clipped.push(b"cdef");
        assert_eq!(clipped.whole().as_deref(), Some("abcdef"));
        clipped.push(b"ghijkl");
        assert_eq!((clipped.whole(), clipped.dropped), (None, 4));
        assert_eq!(clipped.text(), "abcd\n[4 bytes are left out]\nijkl");
    }

    #[test]
    fn commands_that_end_at_once_keep_what_one_of_them_said() {
        let folder = tempfile::tempdir().unwrap();
        let (shelf, session) = (Shelf::new(folder.path()).unwrap(), SessionId::from_u128(1));
        let said = |n: usize| Kept { dir: format!("/{n}"), env: n.to_string().repeat(10_000 * n) };
        std::thread::scope(|threads| {
            for n in 1..=4 {
                let (shelf, said) = (&shelf, said(n));
                threads.spawn(move || {
                    for _ in 0..200 {
                        shelf.store(session, &said).unwrap();
                        assert_ne!(shelf.load(session), Kept::default());
                    }
                });
            }
        });
        assert!((1..=4).any(|n| shelf.load(session) == said(n)));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "no files of the journal")]
    fn what_is_kept_of_a_shell_goes_with_its_session() {
        let folder = tempfile::tempdir().unwrap();
        let files = |session: SessionId| [format!(".{session}.tmp"), format!("{session}.json")];
        let [deleted, known, gone] = [1, 2, 3].map(SessionId::from_u128);
        let other = "other".to_owned();
        for name in [deleted, known, gone].into_iter().flat_map(files).chain([other.clone()]) {
            std::fs::write(folder.path().join(name), "SECRET=x").unwrap();
        }
        for _ in 0..2 {
            remove_shell(folder.path(), deleted).unwrap();
        }
        sweep_shells(folder.path(), |session| session == known);
        let left = folder.path().read_dir().unwrap();
        let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let left: std::collections::BTreeSet<String> = left.collect();
        assert_eq!(left, files(known).into_iter().chain([other]).collect());
    }
}
