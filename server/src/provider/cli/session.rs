//! A live session of a command-line agent: its process, its home, and what it is to remember.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::time::timeout;

use super::install::Installed;
use super::provider::Inner;
use super::refusals::{Fate, Refusals};
use super::turn::{self, Came, Live};
use super::{Places, Start, VERSION, home, kept};
use crate::launcher::{Bind, HOME, Launch, TOOL_SOCKET, WORKSPACE};
use crate::model::{Access, FailureClass, Saved};
use crate::provider::activity::{Activity, TurnOver};
use crate::provider::failure::FailureKind;
use crate::provider::history::retell;
use crate::provider::lines::Lines;
use crate::provider::process::Running;
use crate::provider::secret::{Secret, Secrets};
use crate::provider::{Ended, Failure, Instance, Prompt, Spec, TurnIo};

/// Where `substratctl` is seen inside of a sandbox.
const BRIDGE: &str = "/run/substrat/substratctl";
/// How long a process that runs one turn has to end by itself after it.
const LINGER: Duration = Duration::from_secs(2);
/// What to do about a command that is not found.
const NAMED: &str = "; substratctl provider check says where it was looked for";

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A live session.
pub(super) struct Session {
    of: Arc<Inner>,
    spec: Spec,
    /// What its last dialogue kept. Null for a conversation that is to be begun.
    kept: Value,
    /// How often it was begun anew.
    anew: u32,
    /// What its turns were refused for.
    refusals: Refusals,
    /// Whether its last turn may do in the conversation that is begun anew.
    may_do_anew: bool,
    /// The key of its process.
    key: Option<Secret>,
    /// Its process; none between one that ended and the next turn.
    live: Option<Live>,
}

impl Session {
    /// A session, whose process is started with its first turn.
    pub(super) fn new(of: Arc<Inner>, spec: Spec) -> Self {
        let kind = of.cli.about().kind;
        let kept = spec.saved.as_ref().map(|saved| kept::read(saved, kind));
        // What lies in its home may be of a time before others had the session.
        let anew = u32::from(spec.anew || matches!(kept, Some(None)));
        let kept = kept.flatten().unwrap_or_default();
        let refusals = spec.saved.as_ref().map(kept::refusals).unwrap_or_default();
        Self { of, spec, kept, anew, refusals, may_do_anew: false, key: None, live: None }
    }

    /// Ends the process if it cannot take this turn.
    async fn look_after(&mut self, prompt: &Prompt, key: Option<Secret>) {
        let had = std::mem::replace(&mut self.key, key);
        let Some(live) = &mut self.live else { return };
        if live.running.end().is_none() {
            let changed = if live.running.world != prompt.world {
                "what it sees has changed"
            } else if had != self.key {
                "its key has changed"
            } else {
                return;
            };
            live.running.stop(changed).await;
        }
        self.live = None;
    }

    fn home(&self) -> PathBuf {
        home::path(&self.of.folder, self.spec.session, &self.of.config.name)
    }

    /// Where things lie for a process.
    async fn places(&self, prompt: &Prompt, host: &Path) -> (Places, bool) {
        let Inner { launcher, bridge, .. } = &*self.of;
        if launcher.confines().await {
            let [home, workspace, bridge, socket] =
                [HOME, WORKSPACE, BRIDGE, TOOL_SOCKET].map(str::to_owned);
            return (Places { home, workspace, bridge, socket }, true);
        }
        let socket = self.spec.tool_socket.as_deref().map(text).unwrap_or_default();
        let workspace = launcher.root_of(prompt.world.as_ref());
        (Places { home: text(host), workspace, bridge: text(bridge), socket }, false)
    }

    /// Starts the process.
    async fn start(&self, prompt: &Prompt, io: &Arc<dyn TurnIo>) -> Result<Live, Failure> {
        let Inner { cli, config, launcher, .. } = &*self.of;
        let (installed, host) = (self.of.find()?, self.home());
        let (at, sandboxed) = self.places(prompt, &host).await;
        let start = Start {
            session: self.spec.session,
            model: self.spec.model.as_deref().or(config.model.as_deref()),
            instructions: &self.spec.instructions,
            prompt: &prompt.text,
            kept: &self.kept,
            anew: self.anew,
            home: &host,
            at: &at,
            sandboxed,
            version: VERSION,
        };
        let mut command = cli.command(config, &start);
        command.files.extend(config.files.clone());
        let binds = self.of.settle_in(&host, &command.files, &installed, sandboxed);
        let binds = binds.map_err(|error| {
            let message = format!("its home {} cannot be made: {error}", host.display());
            Failure::new(FailureClass::Sandbox, message)
        })?;
        let (mut env, mut secrets) = (command.env, Secrets::default());
        env.insert("HOME".to_owned(), at.home.clone());
        env.insert("SUBSTRAT_AGENT".to_owned(), prompt.agent.to_string());
        env.extend(config.env.clone());
        if let Some(key) = &self.key {
            env.insert(config.key_as.clone(), key.expose().to_owned());
            secrets.add(key);
        }
        let program = installed.argv();
        let words = program.len().to_string();
        let script =
            command.script.as_deref().map(|script| ["/bin/sh", "-c", script, "sh", &words]);
        let before = script.into_iter().flatten().map(str::to_owned);
        let argv: Vec<String> = before.chain(program).chain(command.args).collect();
        let launch = Launch {
            argv,
            session: Some(self.spec.session),
            env,
            world: prompt.world.clone(),
            binds,
            tool_socket: self.spec.tool_socket.clone(),
            endpoints: config.endpoints.clone(),
            ..Launch::default()
        };
        let running = Running::start(launcher, launch, Lines::lenient(), NAMED, io).await?;
        let (dialogue, kind) = (cli.dialogue(config, &start), cli.about().kind);
        Ok(Live { running, dialogue, kind, secrets })
    }

    /// Runs a turn on the process that there is, or on a new one. None if that ended without
    /// having read of it, or knew nothing of the conversation: then it is begun anew.
    async fn run(
        &mut self,
        prompt: &Prompt,
        io: &Arc<dyn TurnIo>,
        may_begin: bool,
    ) -> Option<Result<Ended, Failure>> {
        if self.live.is_none() {
            let started = tokio::select! {
                biased;
                () = io.cancelled().cancelled() => return Some(Ok(Ended::Cancelled)),
                started = self.start(prompt, io) => started,
            };
            match started {
                Ok(live) => self.live = Some(live),
                Err(failure) => return Some(Err(failure)),
            }
        }
        let live = self.live.as_mut()?;
        live.running.tell(io);
        io.conceal(&live.secrets);
        let came = turn::run(live, self.of.cli.is_single(), (prompt.turn, &prompt.text), io).await;
        let kept = live.dialogue.kept();
        let Came::Over(over, keep) = came else {
            self.live = None;
            return None;
        };
        // One that was refused may hold on to what it was refused with.
        let refused = matches!(&over, TurnOver::Failed(failed) if failed.kind == FailureKind::Auth);
        let fate = self.refusals.take(&over);
        self.may_do_anew = fate == Fate::TooLong;
        // A conversation that was begun, and of which the prompt is no part: the next turn's begins
        // with what was said before, as this one's did.
        let is_empty = self.kept.is_null()
            && match &over {
                TurnOver::Completed { .. } => false,
                TurnOver::Failed(failed) if failed.kind == FailureKind::Misconfigured => true,
                TurnOver::Failed(_) | TurnOver::Cancelled => kept.is_null(),
            };
        let goes_on = fate == Fate::Kept && !is_empty;
        let keep = keep && !refused && goes_on;
        if self.of.cli.is_single() || !keep {
            self.end_process(if keep { LINGER } else { Duration::ZERO }).await;
        }
        if let Some(live) = &self.live {
            tell_of(live, io).await;
        }
        if let TurnOver::Failed(failed) = &over
            && failed.kind == FailureKind::Gone
            && may_begin
        {
            self.end_process(Duration::ZERO).await;
            self.forget();
            return None;
        }
        if !goes_on {
            // Whatever its conversation was refused for would be in all that follows.
            self.forget();
            io.save(kept::given_up(self.refusals));
            return Some(self.came(over, Value::Null, io));
        }
        Some(self.came(over, kept, io))
    }

    /// Begins the conversation anew with the next turn.
    fn forget(&mut self) {
        (self.kept, self.anew) = (Value::Null, self.anew + 1);
    }

    /// Ends the process, which may do so by itself for a while, and tells what it wrote.
    async fn end_process(&mut self, linger: Duration) {
        let Some(mut live) = self.live.take() else { return };
        if live.running.end().is_none() {
            live.running.close_input();
            if timeout(linger, live.running.wait()).await.is_err() {
                live.running.terminate("its turn is over").await;
            }
        }
        tell_of(&live, &live.running.io()).await;
    }

    fn came(
        &mut self,
        over: TurnOver,
        kept: Value,
        io: &Arc<dyn TurnIo>,
    ) -> Result<Ended, Failure> {
        let state = kept::write(&kept, self.of.cli.about().kind);
        if state.is_some() {
            self.kept = kept;
        }
        match over {
            TurnOver::Completed { response } => {
                let saved = state.map_or(Saved::Unchanged, Saved::State);
                Ok(Ended::Completed { response, saved })
            }
            other => {
                // The CLI remembers what there was of the turn, and counts on.
                if let Some(state) = state {
                    io.save(state);
                }
                match other {
                    TurnOver::Failed(failed) => Err(self.of.advised(failed).into()),
                    _ => Ok(Ended::Cancelled),
                }
            }
        }
    }
}

impl Inner {
    /// Makes the home, and says what a sandbox is to show of the host beside the workspace.
    pub(super) fn settle_in(
        &self,
        host: &Path,
        files: &[(String, String)],
        installed: &Installed,
        sandboxed: bool,
    ) -> io::Result<Vec<Bind>> {
        let Self { config, bridge, .. } = self;
        home::prepare(host, files)?;
        let logins = if config.shows_login() { self.logins() } else { Vec::new() };
        if !sandboxed {
            for (path, real) in logins {
                home::link(host, path, &real)?;
            }
            return Ok(Vec::new());
        }
        let bind = |host: &Path, at: &str, access| Bind {
            host: host.to_owned(),
            at: at.to_owned(),
            access,
            follows_links: false,
        };
        let mut binds = vec![bind(&host.canonicalize()?, HOME, Access::ReadWrite)];
        if let Ok(bridge) = bridge.canonicalize() {
            binds.push(bind(&bridge, BRIDGE, Access::ReadOnly));
        }
        for path in installed.binds.iter().chain(&config.binds) {
            self.check_bind(path)?;
            binds.push(bind(path, &text(path), Access::ReadOnly));
        }
        for (path, real) in logins {
            home::mount_point(host, path)?;
            binds.push(bind(&real, &format!("{HOME}/{path}"), Access::ReadOnly));
        }
        Ok(binds)
    }

    /// Refuses to show what is the daemon's, or to cover what a sandbox has of its own.
    fn check_bind(&self, path: &Path) -> io::Result<()> {
        let own = [HOME, WORKSPACE, "/tmp", "/proc", "/dev", "/run/substrat"].map(Path::new);
        let real = path.canonicalize()?;
        let daemon = self.folder.parent().unwrap_or(&self.folder).canonicalize()?;
        let problem = if real.starts_with(&daemon) || daemon.starts_with(&real) {
            "it holds the daemon's home, or lies in it"
        } else if own.iter().any(|own| own.starts_with(path)) {
            "a sandbox has a folder of its own there"
        } else {
            return Ok(());
        };
        Err(io::Error::other(format!("{} cannot be shown: {problem}", path.display())))
    }
}

/// Tells what a process wrote to its standard error, and that it has no sandbox.
async fn tell_of(live: &Live, io: &Arc<dyn TurnIo>) {
    if let Some((text, bytes)) = live.running.take_stderr().await {
        io.report_stderr(&live.secrets.hide(&text), bytes);
    }
    if let Some(reason) = &live.running.unsandboxed {
        io.report_unsandboxed(reason);
    }
}

impl Instance for Session {
    fn turn<'a>(
        &'a mut self,
        mut prompt: Prompt,
        io: Arc<dyn TurnIo>,
    ) -> BoxFuture<'a, Result<Ended, Failure>> {
        async move {
            self.may_do_anew = false;
            // It is read anew, so that one that was exchanged is in force with the next turn.
            let key = tokio::select! {
                biased;
                () = io.cancelled().cancelled() => return Ok(Ended::Cancelled),
                key = self.of.config.secret() => key?,
            };
            self.look_after(&prompt, key).await;
            let before = self.anew;
            loop {
                // A process that is new is given a turn once, and a session begun anew once.
                let anew = self.anew;
                if let Some(ended) = self.run(&prompt, &io, anew == before).await {
                    return ended;
                }
                if self.anew > anew {
                    let notice = "it does not know its session any more, and is told the \
                                  conversation from the log";
                    io.tell(Activity::Notice(notice.to_owned()));
                    prompt.text = retell(&io.history().await?, usize::MAX, &prompt.text);
                }
            }
        }
        .boxed()
    }

    fn lacks(&self) -> Option<usize> {
        (self.kept.is_null() && self.live.is_none()).then(|| self.refusals.may_tell())
    }

    fn may_do_anew(&self) -> bool {
        self.may_do_anew
    }

    fn suspend(mut self: Box<Self>) -> BoxFuture<'static, Result<Saved, Failure>> {
        async move {
            if let Some(live) = &mut self.live
                && live.running.end().is_none()
            {
                live.running.stop("its session was suspended").await;
            }
            // What it remembers was saved with its last turn.
            Ok(Saved::Unchanged)
        }
        .boxed()
    }

    fn close(mut self: Box<Self>, reason: &'static str) -> BoxFuture<'static, ()> {
        async move {
            if let Some(live) = &mut self.live
                && live.running.end().is_none()
            {
                live.running.kill(reason).await;
            }
        }
        .boxed()
    }
}
