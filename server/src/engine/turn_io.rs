//! What a running turn can reach of the engine.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::additions::Additions;
use super::handle::{Handle, Report};
use super::history;
use super::pulse::Pulse;
use super::spending::Spending;
use super::telling::Telling;
use crate::model::{AgentId, Blob, Command, Json, LimitKind, Told, TurnId, Usage};
use crate::provider::activity::{Activity, Decision, own_tool};
use crate::provider::failure::FailureKind;
use crate::provider::history::History;
use crate::provider::registry::Common;
use crate::provider::secret::Secrets;
use crate::provider::{Addition, Failure, OutputKind, Question, TurnIo};

/// How long a process has between two steps towards its end, and while the daemon stops.
const PATIENCE: Duration = Duration::from_secs(5);
const HURRY: Duration = Duration::from_secs(2);

/// What a running attempt at a turn reaches.
pub(super) struct Io {
    pub(super) agent: AgentId,
    pub(super) turn: TurnId,
    pub(super) handle: Handle,
    pub(super) telling: Arc<Telling>,
    pub(super) additions: Arc<Additions>,
    pub(super) pulse: Arc<Pulse>,
    /// What is taken out of the calls that are made for it.
    pub(super) secrets: Arc<Mutex<Secrets>>,
    /// Ends the attempt.
    pub(super) cancel: CancellationToken,
    /// What holds for its provider.
    pub(super) common: Common,
    /// Whether its provider starts processes.
    pub(super) processes: bool,
    /// Whether it is the session's own provider that runs.
    pub(super) is_own: bool,
    /// What it used and did not tell.
    pub(super) spending: Mutex<Spending>,
    /// What the session is to be resumed from, if that became known.
    pub(super) saved: Mutex<Option<Blob>>,
}

impl Io {
    fn report(&self, command: Command) {
        // An engine that is gone has nobody to tell.
        let _ = self.handle.reports.send(Report::Command(command));
    }

    pub(super) fn saved(&self) -> MutexGuard<'_, Option<Blob>> {
        // Nothing under this lock can be left half done by a panic.
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spending(&self) -> MutexGuard<'_, Spending> {
        // As above.
        self.spending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spent(&self, usage: Usage) {
        self.report(Command::ReportUsage { agent: self.agent, turn: self.turn, usage });
    }

    fn tool_started(&self, id: String, tool: String, input: Json) {
        self.telling.pass();
        // A tool of Substrat is logged where it is called.
        if own_tool(&tool).is_none() {
            self.pulse.tool_started(&id);
            let (id, tool) = (id.into(), tool.into());
            self.telling.report_in_place(Told::UseStarted { id, tool, input });
        }
    }
}

/// An attempt that runs: what it used and did not tell yet is told when this is dropped.
pub(super) struct Settles(pub(super) Arc<Io>);

impl Drop for Settles {
    fn drop(&mut self) {
        let rest = self.0.spending().rest();
        if !rest.is_zero() {
            self.0.spent(rest);
        }
    }
}

/// That a backend calls its model again, for people. Its calls are no attempts at the turn.
fn retrying(attempt: u32, delay: Option<Duration>, failure: FailureKind, message: &str) -> String {
    let delay = delay.map(|delay| format!(" in {} ms", delay.as_millis())).unwrap_or_default();
    let colon = if message.is_empty() { "" } else { ": " };
    let kind = failure.as_str();
    format!("call {attempt} of the model failed ({kind}), it is repeated{delay}{colon}{message}")
}

impl TurnIo for Io {
    fn emit(&self, kind: OutputKind, text: &str) {
        self.pulse.beat();
        self.telling.delta(kind, text);
    }

    fn tell(&self, activity: Activity) {
        self.pulse.beat();
        let telling = &self.telling;
        match activity {
            Activity::Delta { kind, text } => telling.delta(kind, &text),
            Activity::Text { kind, text } => telling.text(kind, text),
            Activity::Void => telling.void(),
            Activity::ToolStarted { id, tool, input } => self.tool_started(id, tool, input),
            Activity::ToolEnded { id, ok, output } => {
                self.pulse.tool_ended(&id);
                telling.pass();
                telling.report_in_place(Told::UseEnded { id: id.into(), ok, output });
            }
            Activity::Used(usage) => self.report_usage(usage),
            Activity::Retrying { attempt, delay, failure, message } => {
                let text = retrying(attempt, delay, failure, &message);
                telling.report_in_place(Told::Notice(text));
            }
            Activity::Notice(text) => telling.report_in_place(Told::Notice(text)),
            Activity::McpServer { name, ok: false } => {
                let text = format!("the MCP server {name:?} cannot be reached");
                telling.report_in_place(Told::Notice(text));
            }
            Activity::McpServer { ok: true, .. }
            | Activity::Session(_)
            | Activity::Permission { .. }
            | Activity::Withdrawn { .. }
            | Activity::Added(_)
            | Activity::Alive => {}
        }
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Decision> {
        self.decision(question).boxed()
    }

    fn save(&self, state: Blob) {
        self.pulse.beat();
        // What another would be resumed from is of no use to the session's own.
        if self.is_own {
            *self.saved() = Some(state.clone());
            self.telling.report(Told::Saved(state));
        }
    }

    fn alive(&self) {
        self.pulse.beat();
    }

    fn conceal(&self, secrets: &Secrets) {
        // Nothing under this lock can be left half done by a panic.
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).add_all(secrets);
    }

    fn addition(&self) -> BoxFuture<'_, Addition> {
        self.additions.next().boxed()
    }

    fn taken_in(&self, addition: Addition) {
        self.pulse.beat();
        self.telling.pass();
        let Addition { message, text } = addition;
        self.additions.take(text.clone());
        self.telling.report_in_place(Told::TookIn { message, text });
    }

    fn call_tool<'a>(&'a self, tool: &'a str, args: Json) -> BoxFuture<'a, Result<Json, String>> {
        self.telling.pass();
        async move {
            let called = self.handle.call_tool(self.agent, Some(self.turn), tool, args, None).await;
            called.map_err(|error| error.to_string())
        }
        .boxed()
    }

    fn report_usage(&self, usage: Usage) {
        self.pulse.beat();
        if let Some(usage) = self.spending().add(usage) {
            self.spent(usage);
        }
    }

    fn report_stderr(&self, text: &str, bytes: u64) {
        let text = text.to_owned();
        self.report(Command::ReportStderr { agent: self.agent, turn: self.turn, text, bytes });
    }

    fn report_exit(&self, pid: u32, status: &str, reason: Option<&str>) {
        let (agent, turn) = (self.agent, Some(self.turn));
        let (status, reason) = (status.to_owned(), reason.map(str::to_owned));
        self.report(Command::ReportExit { agent, turn, pid, status, reason });
    }

    fn report_limit(&self, limit: LimitKind, detail: &str) {
        let (agent, turn) = (Some(self.agent), Some(self.turn));
        let detail = detail.to_owned();
        self.report(Command::ReportLimit { agent, turn, workspace: None, limit, detail });
    }

    fn report_unsandboxed(&self, reason: &str) {
        let reason = reason.to_owned();
        self.report(Command::ReportUnsandboxed { agent: self.agent, turn: self.turn, reason });
    }

    fn patience(&self) -> Duration {
        if *self.handle.shared.draining.borrow() { HURRY } else { PATIENCE }
    }

    fn history(&self) -> BoxFuture<'_, Result<History, Failure>> {
        history::read(&self.handle, self.agent, self.turn).boxed()
    }

    fn cancelled(&self) -> &CancellationToken {
        &self.cancel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_repeated_is_no_attempt_at_the_turn() {
        let told = |delay, message| retrying(2, delay, FailureKind::Overload, message);
        assert_eq!(
            told(Some(Duration::from_millis(40)), "busy"),
            "call 2 of the model failed (overload), it is repeated in 40 ms: busy"
        );
        assert_eq!(told(None, ""), "call 2 of the model failed (overload), it is repeated");
    }
}
