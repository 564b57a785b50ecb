//! A live session of a program: its process, and what it is to remember.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use super::Settings;
use super::protocol::ToProgram;
use super::turn::{self, Came};
use crate::launcher::{Launch, Launcher};
use crate::model::{Blob, Saved, SessionId};
use crate::provider::lines::Lines;
use crate::provider::process::Running;
use crate::provider::{Ended, Failure, Instance, Prompt, Spec, TurnIo};

/// Where a command that is not found is named.
const NAMED: &str = "; its model is to name a program on the sandbox's PATH, or by its path from \
                     the workspace, such as ./agent";

/// A live session.
pub(super) struct Session {
    id: SessionId,
    launcher: Launcher,
    settings: Settings,
    argv: Vec<String>,
    instructions: Arc<str>,
    tool_socket: Option<PathBuf>,
    state: Option<Box<RawValue>>,
    /// Its process; none between one that ended and the next turn.
    running: Option<Running>,
}

impl Session {
    /// A session, whose process is started with its first turn.
    pub(super) fn new(
        launcher: Launcher,
        settings: Settings,
        argv: Vec<String>,
        spec: &Spec,
    ) -> Result<Self, Failure> {
        let read = |blob: &Blob| serde_json::from_slice(blob.as_slice());
        let state = spec.saved.as_ref().map(read).transpose().map_err(|error| {
            Failure::permanent(format!("the state that the program left is unreadable: {error}"))
        })?;
        Ok(Self {
            id: spec.session,
            launcher,
            settings,
            argv,
            instructions: spec.instructions.clone(),
            tool_socket: spec.tool_socket.clone(),
            state,
            running: None,
        })
    }

    /// Ends the process if it cannot take this turn.
    async fn look_after(&mut self, prompt: &Prompt) {
        let Some(running) = &mut self.running else { return };
        if running.end().is_none() {
            let reason = if running.world != prompt.world {
                "what it sees has changed"
            } else if running.spoke_unasked() {
                "it wrote, or closed its output, between two turns"
            } else {
                return;
            };
            running.stop(reason).await;
        }
        self.running = None;
    }

    /// The process, which is started if there is none. None if the turn was cancelled meanwhile.
    async fn process(
        &mut self,
        prompt: &Prompt,
        io: &Arc<dyn TurnIo>,
    ) -> Result<Option<&mut Running>, Failure> {
        if self.running.is_none() {
            let launch = Launch {
                argv: self.argv.clone(),
                session: Some(self.id),
                env: BTreeMap::from([("SUBSTRAT_AGENT".into(), prompt.agent.to_string())]),
                world: prompt.world.clone(),
                tool_socket: self.tool_socket.clone(),
                ..Launch::default()
            };
            let started = tokio::select! {
                biased;
                () = io.cancelled().cancelled() => return Ok(None),
                started = Running::start(
                    &self.launcher, launch, Lines::default(), NAMED, io
                ) => started?,
            };
            if let Some(reason) = &started.unsandboxed {
                tracing::debug!(agent = %prompt.agent, reason, "a program runs without a sandbox");
            }
            self.running = Some(started);
        }
        Ok(self.running.as_mut())
    }

    /// Runs a turn on the process that there is. None if that ended without having read of it.
    async fn run(
        &mut self,
        prompt: &Prompt,
        io: &Arc<dyn TurnIo>,
    ) -> Option<Result<Ended, Failure>> {
        let limit = self.settings.turn;
        let instructions = self.instructions.clone();
        let state = self.state.clone();
        let running = match self.process(prompt, io).await {
            Ok(Some(running)) => running,
            Ok(None) => return Some(Ok(Ended::Cancelled)),
            Err(failure) => return Some(Err(failure)),
        };
        running.tell(io);
        let instructions = running.fresh.then_some(&*instructions);
        let line = ToProgram::turn(prompt, state.as_deref(), instructions);
        let came = turn::run(running, &line, io, limit).await;
        if let Some((text, bytes)) = running.take_stderr().await {
            io.report_stderr(&text, bytes);
        }
        if let Some(reason) = &running.unsandboxed {
            io.report_unsandboxed(reason);
        }
        if !came.keeps() {
            self.running = None;
        }
        Some(match came {
            Came::Done { response, state } => Ok(self.done(response, state)),
            Came::Cancelled { .. } => Ok(Ended::Cancelled),
            Came::Failed { failure, .. } => Err(failure),
            Came::Untaken => return None,
        })
    }

    fn done(&mut self, response: String, state: Option<Box<RawValue>>) -> Ended {
        let saved = match &state {
            None => Saved::Unchanged,
            Some(state) => Saved::State(Blob::from(state.get().as_bytes().to_vec())),
        };
        if state.is_some() {
            self.state = state;
        }
        Ended::Completed { response, saved }
    }
}

impl Instance for Session {
    fn turn<'a>(
        &'a mut self,
        prompt: Prompt,
        io: Arc<dyn TurnIo>,
    ) -> BoxFuture<'a, Result<Ended, Failure>> {
        async move {
            self.look_after(&prompt).await;
            loop {
                // A process that is new is given a turn once.
                if let Some(ended) = self.run(&prompt, &io).await {
                    return ended;
                }
            }
        }
        .boxed()
    }

    fn suspend(mut self: Box<Self>) -> BoxFuture<'static, Result<Saved, Failure>> {
        async move {
            if let Some(running) = &mut self.running
                && running.end().is_none()
            {
                running.stop("its session was suspended").await;
            }
            // What it remembers was saved with its last turn.
            Ok(Saved::Unchanged)
        }
        .boxed()
    }

    fn close(mut self: Box<Self>, reason: &'static str) -> BoxFuture<'static, ()> {
        async move {
            if let Some(running) = &mut self.running
                && running.end().is_none()
            {
                running.kill(reason).await;
            }
        }
        .boxed()
    }
}
