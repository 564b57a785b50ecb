//! What a command comes to: events and an outcome, or a rejection. Pure.

mod activity;
mod agent;
mod budget;
mod cancel;
mod desk;
mod govern;
mod mail;
mod message;
mod multicast;
mod permission;
mod process;
mod remind;
mod session;
mod sharing;
mod subscribe;
mod tool;
mod turn;
mod workspace;

pub(super) use tool::pending;
pub(super) use turn::UNKNOWN;

use super::{
    Command, Entry, Event, MessageId, Outcome, Policy, Rejection, Request, RequestRecorded,
    SessionId, State, Timestamp,
};

/// Where fresh identities come from.
pub trait IdSource {
    /// 128 bits that were not returned before.
    fn next_u128(&mut self) -> u128;
}

/// What is handed in with a command, so that the core needs nothing from outside.
pub struct Context<'a> {
    /// The time.
    pub now: Timestamp,
    /// Limits and choices.
    pub policy: &'a Policy,
    /// Fresh identities.
    pub ids: &'a mut dyn IdSource,
    /// Whether someone waits right now for the answer to a message of USER.
    pub attended: &'a dyn Fn(MessageId) -> bool,
}

/// An event without its number, and the log it belongs in (none for the daemon's own).
pub type Draft = (Option<SessionId>, Event);

/// What a command comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The events, in order.
    pub events: Vec<Draft>,
    /// What the caller is told.
    pub outcome: Outcome,
}

/// A decision in the making.
pub(super) struct Plan<'a, 'c> {
    pub(super) state: &'a State,
    pub(super) cx: &'a mut Context<'c>,
    pub(super) events: Vec<Draft>,
}

impl<'a, 'c> Plan<'a, 'c> {
    pub(super) fn new(state: &'a State, cx: &'a mut Context<'c>) -> Self {
        Self { state, cx, events: Vec::new() }
    }

    pub(super) fn push(&mut self, session: impl Into<Option<SessionId>>, event: impl Into<Event>) {
        self.events.push((session.into(), event.into()));
    }
}

/// Decides a command.
///
/// A command whose key was used before for the same request comes to the outcome of then, without
/// events.
///
/// # Errors
///
/// The rejection says why nothing changes.
pub fn decide(
    state: &State,
    cx: &mut Context<'_>,
    command: Command,
    request: Option<&Request>,
) -> Result<Decision, Rejection> {
    let caller = command.caller().and_then(|id| state.agent(id));
    if let Some(request) = request
        && let Some(outcome) = state.requests_of(caller).find(request)?
    {
        return Ok(Decision { events: Vec::new(), outcome: outcome.clone() });
    }
    let mut plan = Plan::new(state, cx);
    let outcome = plan.command(command)?;
    if let Some(request) = request {
        let recorded = RequestRecorded {
            request_id: request.id.clone(),
            fingerprint: request.fingerprint.clone(),
            expires: plan.cx.now.after(plan.cx.policy.request_retention),
            outcome: outcome.clone(),
        };
        match caller {
            // Before the result of the call, which is noted with it.
            Some(agent) => plan.events.insert(0, (Some(agent.session.id), recorded.into())),
            None => plan.push(None, recorded),
        }
    }
    Ok(Decision { events: plan.events, outcome })
}

impl Plan<'_, '_> {
    fn command(&mut self, command: Command) -> Result<Outcome, Rejection> {
        match command {
            Command::CreateAgent { agent, parent } => self.create_agent(agent, parent),
            Command::UpdateAgent { agent, instructions, role, metadata, budgets } => {
                self.update_agent(&agent, instructions, role, metadata, &budgets)
            }
            Command::CancelTurn { agent, turn } => self.cancel_turn(&agent, turn),
            Command::Gate { agent } => self.gate(&agent),
            Command::Ungate { agent } => self.ungate(&agent),
            Command::PermitTurn { agent } => self.permit_turn(&agent),
            Command::Terminate { agent, recursive } => self.terminate(&agent, recursive),
            on_mail @ (Command::SendMessage { .. }
            | Command::AckInbox { .. }
            | Command::RetryMessages { .. }
            | Command::DiscardMessages { .. }) => self.on_mail(on_mail),
            Command::SuspendSession { session } => self.suspend_session(&session),
            Command::ResumeSession { session } => self.resume_session(&session),
            Command::DeleteSession { session } => self.delete_session(&session),
            Command::CallTool { agent, turn, call, tool, args, objection } => {
                self.call_tool(agent, turn, (call, tool, args), objection)
            }
            Command::CancelCall { agent, call } => Ok(self.cancel_call(agent, call)),
            Command::FinishTool { agent, turn, call, result } => {
                Ok(self.finish_tool(agent, turn, call, result))
            }
            Command::FinishTurn { agent, turn, end, attended } => {
                Ok(self.finish_turn(agent, turn, end, &attended))
            }
            Command::RetryTurn { agent, turn, attempt, delay_ms, class, error, provider } => {
                Ok(self.retry_turn(agent, turn, (attempt, delay_ms), (class, error), provider))
            }
            Command::TellTurn { agent, turn, told } => Ok(self.tell_turn(agent, turn, told)),
            Command::AskPermission { agent, turn, asked, policy } => {
                Ok(self.ask_permission(agent, turn, asked, policy))
            }
            Command::SettlePermission { agent, permission, answer } => {
                Ok(self.settle_permission(agent, permission, answer))
            }
            Command::AnswerPermission { agent, permission, answer } => {
                self.answer_permission(&agent, permission, answer)
            }
            Command::StartAttempt { agent, turn } => Ok(self.start_attempt(agent, turn)),
            Command::FinishSuspend { session, result } => Ok(self.finish_suspend(session, result)),
            Command::Crash { session, reason, attended } => {
                Ok(self.crash(session, reason, &attended))
            }
            Command::Tick => Ok(self.tick()),
            Command::Drain => Ok(Outcome::Done),
            Command::CancelAll => Ok(self.cancel_all()),
            Command::Started { version } => {
                self.push(None, super::DaemonStarted { version });
                Ok(Outcome::Done)
            }
            Command::Stopped => {
                self.push(None, super::DaemonStopped {});
                Ok(Outcome::Done)
            }
            on_workspaces @ (Command::CreateWorkspace { .. }
            | Command::UpdateWorkspace { .. }
            | Command::LinkDirectory { .. }
            | Command::UnlinkDirectory { .. }
            | Command::DeleteWorkspace { .. }) => self.on_workspaces(on_workspaces),
            report @ (Command::ReportUsage { .. }
            | Command::ReportStderr { .. }
            | Command::ReportExit { .. }
            | Command::ReportLimit { .. }
            | Command::ReportUnsandboxed { .. }) => Ok(self.report(report)),
        }
    }

    fn on_mail(&mut self, command: Command) -> Result<Outcome, Rejection> {
        match command {
            Command::SendMessage { agent, text, metadata } => {
                self.send_from_user(&agent, text, metadata)
            }
            Command::AckInbox { messages } => Ok(self.ack_inbox(&messages)),
            Command::RetryMessages { agent, messages } => self.retry_messages(&agent, &messages),
            Command::DiscardMessages { agent, messages } => {
                self.discard_messages(&agent, &messages)
            }
            _ => Ok(Outcome::Done),
        }
    }

    fn on_workspaces(&mut self, command: Command) -> Result<Outcome, Rejection> {
        match command {
            Command::CreateWorkspace { new } => {
                self.create_workspace(new, None).map(Outcome::Workspace)
            }
            Command::UpdateWorkspace { workspace, network, env, limits } => {
                self.update_workspace(&workspace, network, env, limits)
            }
            Command::LinkDirectory { workspace, host_path, mount_path, mode } => {
                self.link_directory(&workspace, host_path, &mount_path, mode)
            }
            Command::UnlinkDirectory { workspace, mount_path } => {
                self.unlink_directory(&workspace, &mount_path)
            }
            Command::DeleteWorkspace { workspace, force } => {
                self.delete_workspace(&workspace, force)
            }
            _ => Ok(Outcome::Done),
        }
    }

    fn report(&mut self, command: Command) -> Outcome {
        match command {
            Command::ReportUsage { agent, turn, usage } => self.report_usage(agent, turn, usage),
            Command::ReportStderr { agent, turn, text, bytes } => {
                self.report_stderr(agent, turn, &text, bytes)
            }
            Command::ReportExit { agent, turn, pid, status, reason } => {
                self.report_exit(agent, turn, pid, status, reason)
            }
            Command::ReportLimit { agent, turn, workspace, limit, detail } => {
                self.report_limit(agent, turn, workspace, limit, detail)
            }
            Command::ReportUnsandboxed { agent, turn, reason } => {
                self.report_unsandboxed(agent, turn, reason)
            }
            _ => Outcome::Done,
        }
    }
}

impl Entry {
    /// The event with its number.
    pub fn number(draft: Draft, seq: u64, at: Timestamp) -> Self {
        let (session, event) = draft;
        Self { seq, session, at, event }
    }
}
