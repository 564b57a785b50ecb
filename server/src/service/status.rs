//! The one map from what can go wrong to what a client sees.

use std::time::Duration;

use substrat_proto::Refusal as Wire;
use tonic::{Code, Status};

use crate::engine::{Answer, Refusal};
use crate::launcher;
use crate::model::{FailureClass, Rejection};
use crate::workspace::git;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// Why a request was refused, as `google.rpc.ErrorInfo.reason` says it. Each has a page
        /// under `docs/errors/`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Reason {
            $($(#[$doc])* $name,)+
        }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The reason on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

reasons! {
    /// No live agent fits the reference.
    AgentNotFound = "AGENT_NOT_FOUND",
    /// Several agents fit the reference.
    AgentAmbiguous = "AGENT_AMBIGUOUS",
    /// A sibling has the name.
    AgentExists = "AGENT_EXISTS",
    /// The agent has ended.
    AgentTerminated = "AGENT_TERMINATED",
    /// The agent has live children.
    AgentHasChildren = "AGENT_HAS_CHILDREN",
    /// The agent is not gated.
    AgentNotGated = "AGENT_NOT_GATED",
    /// The tree is as large as it may be.
    TreeLimit = "TREE_LIMIT",
    /// The name breaks the rules.
    NameInvalid = "NAME_INVALID",
    /// Metadata breaks the rules.
    MetadataInvalid = "METADATA_INVALID",
    /// There is no such provider.
    ProviderUnknown = "PROVIDER_UNKNOWN",
    /// The provider could not do what was asked of it.
    ProviderFailed = "PROVIDER_FAILED",
    /// The configuration cannot be used.
    ConfigInvalid = "CONFIG_INVALID",
    /// The instructions are no script that runs.
    ScriptInvalid = "SCRIPT_INVALID",
    /// The model is missing, or none that the provider can use.
    ModelInvalid = "MODEL_INVALID",
    /// There is no such tool.
    ToolUnknown = "TOOL_UNKNOWN",
    /// The arguments of a tool call are not those of the tool.
    ArgumentsInvalid = "ARGUMENTS_INVALID",
    /// The tool ran, and failed.
    ToolFailed = "TOOL_FAILED",
    /// The recipient is further than one hop away.
    NotANeighbour = "NOT_A_NEIGHBOUR",
    /// Only roots talk to USER.
    UserNotReachable = "USER_NOT_REACHABLE",
    /// An agent cannot message itself.
    SelfSend = "SELF_SEND",
    /// The text is too long.
    MessageTooLarge = "MESSAGE_TOO_LARGE",
    /// The recipient has too much to read.
    InboxFull = "INBOX_FULL",
    /// A budget is used up.
    BudgetExhausted = "BUDGET_EXHAUSTED",
    /// The two would wait for each other for ever.
    WouldDeadlock = "WOULD_DEADLOCK",
    /// An agent without siblings has nobody to broadcast to.
    NoTeam = "NO_TEAM",
    /// Only a parent governs an agent.
    NotAChild = "NOT_A_CHILD",
    /// There is no such message to answer.
    NothingToAnswer = "NOTHING_TO_ANSWER",
    /// The message wants no answer, or has one.
    NoAnswerWanted = "NO_ANSWER_WANTED",
    /// No such message lies in the inbox.
    MessageNotFound = "MESSAGE_NOT_FOUND",
    /// The agent has as many as it may.
    TooMany = "TOO_MANY",
    /// The times of a reminder make no sense.
    ReminderInvalid = "REMINDER_INVALID",
    /// There is no such reminder.
    ReminderNotFound = "REMINDER_NOT_FOUND",
    /// The transition to watch for makes no sense.
    TransitionInvalid = "TRANSITION_INVALID",
    /// There is no such subscription.
    SubscriptionNotFound = "SUBSCRIPTION_NOT_FOUND",
    /// An agent can give away only what it sees.
    WorkspaceNotVisible = "WORKSPACE_NOT_VISIBLE",
    /// A root has nobody to complete to.
    NoParent = "NO_PARENT",
    /// The agent has no workspace.
    NoWorkspace = "NO_WORKSPACE",
    /// No turn runs, or another one.
    NoTurn = "NO_TURN",
    /// The turn failed.
    TurnFailed = "TURN_FAILED",
    /// The turn was cancelled.
    TurnCancelled = "TURN_CANCELLED",
    /// There is no such turn.
    TurnNotFound = "TURN_NOT_FOUND",
    /// The record of the turn holds no answer that could be given again.
    TurnNotReplayable = "TURN_NOT_REPLAYABLE",
    /// The question has an answer, or there is none such.
    PermissionNotOpen = "PERMISSION_NOT_OPEN",
    /// Several questions are open.
    PermissionAmbiguous = "PERMISSION_AMBIGUOUS",
    /// There is no such session.
    SessionNotFound = "SESSION_NOT_FOUND",
    /// A turn runs in the session.
    SessionBusy = "SESSION_BUSY",
    /// The session has ended.
    SessionTerminated = "SESSION_TERMINATED",
    /// The session has not ended.
    SessionNotTerminated = "SESSION_NOT_TERMINATED",
    /// There is no such workspace.
    WorkspaceNotFound = "WORKSPACE_NOT_FOUND",
    /// git did not do what a workspace needs.
    GitFailed = "GIT_FAILED",
    /// There is work in a worktree that would be lost.
    WorkLeft = "WORK_LEFT",
    /// There is no sandbox on this machine.
    SandboxUnavailable = "SANDBOX_UNAVAILABLE",
    /// A sandbox could not be made.
    SandboxFailed = "SANDBOX_FAILED",
    /// A folder cannot be shown in the workspace.
    MountFailed = "MOUNT_FAILED",
    /// The program is not there, or cannot be run.
    CommandNotFound = "COMMAND_NOT_FOUND",
    /// A workspace has the name.
    WorkspaceExists = "WORKSPACE_EXISTS",
    /// Agents or workspaces are in the workspace.
    WorkspaceInUse = "WORKSPACE_IN_USE",
    /// The settings of the workspace make no sense.
    WorkspaceInvalid = "WORKSPACE_INVALID",
    /// An agent wanted to give on more than it may do itself.
    ReadOnly = "READ_ONLY",
    /// An agent wanted to give on a network that it does not have itself.
    NetworkNotAllowed = "NETWORK_NOT_ALLOWED",
    /// An agent wanted to remove a link of USER.
    LinkNotYours = "LINK_NOT_YOURS",
    /// A link is in the way.
    LinkExists = "LINK_EXISTS",
    /// There is no such link.
    LinkNotFound = "LINK_NOT_FOUND",
    /// The host folder must not be shown.
    LinkForbidden = "LINK_FORBIDDEN",
    /// The path breaks the rules.
    PathInvalid = "PATH_INVALID",
    /// The idempotency key was used for something else.
    RequestIdReused = "REQUEST_ID_REUSED",
    /// The idempotency key breaks the rules.
    RequestIdInvalid = "REQUEST_ID_INVALID",
    /// The request needs more than a journal record holds.
    RecordTooLarge = "RECORD_TOO_LARGE",
    /// The request is not a valid message.
    MalformedRequest = "MALFORMED_REQUEST",
    /// A field of the request makes no sense.
    FieldInvalid = "FIELD_INVALID",
    /// The page token is not one that was given out.
    PageTokenInvalid = "PAGE_TOKEN_INVALID",
    /// The attached client said nothing for too long.
    PeerSilent = "PEER_SILENT",
    /// The caller is not the owner of the daemon.
    PeerNotAllowed = "PEER_NOT_ALLOWED",
    /// The disk is full.
    DiskFull = "DISK_FULL",
    /// The request gave less time than it took.
    DeadlineExceeded = "DEADLINE_EXCEEDED",
    /// Too many requests at once.
    Overloaded = "OVERLOADED",
    /// The daemon is stopping.
    Draining = "DRAINING",
    /// The logs could not be read.
    LogUnreadable = "LOG_UNREADABLE",
    /// A bug.
    Bug = "BUG",
}

/// A status with a reason.
pub(super) fn status(code: Code, reason: Reason, message: impl Into<String>, hint: &str) -> Status {
    Wire::new(code, reason.as_str(), message).hint(hint).into()
}

/// A field of a request that makes no sense.
pub(super) fn invalid(message: impl Into<String>) -> Status {
    status(Code::InvalidArgument, Reason::FieldInvalid, message, "")
}

/// What a client sees of a refusal.
pub(super) fn refused(refusal: &Refusal) -> Status {
    let rejection = match refusal {
        Refusal::Rejected(rejection) => rejection,
        Refusal::DiskFull => {
            let hint = "make room: agents can still be ended, and workspaces deleted; the daemon \
                        goes on by itself";
            let mut wire = Wire::new(
                Code::ResourceExhausted,
                Reason::DiskFull.as_str(),
                "the disk is full: nothing can be changed until there is space",
            )
            .hint(hint);
            wire.retry_after = Some(Duration::from_secs(1));
            return wire.into();
        }
        Refusal::Stopped => {
            let hint = "try again when the daemon runs again";
            return status(Code::Unavailable, Reason::Draining, refusal.to_string(), hint);
        }
    };
    rejected(rejection)
}

/// What a client sees of a rejection.
pub(super) fn rejected(rejection: &Rejection) -> Status {
    let (code, reason) = classify(rejection);
    status(code, reason, rejection.to_string(), &rejection.hint())
}

fn classify(rejection: &Rejection) -> (Code, Reason) {
    use Code::{
        AlreadyExists, FailedPrecondition, Internal, InvalidArgument, NotFound, PermissionDenied,
        ResourceExhausted, Unavailable,
    };
    match rejection {
        Rejection::AgentNotFound { .. } => (NotFound, Reason::AgentNotFound),
        Rejection::AgentAmbiguous { .. } => (FailedPrecondition, Reason::AgentAmbiguous),
        Rejection::AgentExists { .. } => (AlreadyExists, Reason::AgentExists),
        Rejection::AgentTerminated { .. } => (FailedPrecondition, Reason::AgentTerminated),
        Rejection::AgentHasChildren { .. } => (FailedPrecondition, Reason::AgentHasChildren),
        Rejection::AgentNotGated { .. } => (FailedPrecondition, Reason::AgentNotGated),
        Rejection::TreeLimit { .. } => (ResourceExhausted, Reason::TreeLimit),
        Rejection::NameInvalid { .. } => (InvalidArgument, Reason::NameInvalid),
        Rejection::MetadataInvalid { .. } => (InvalidArgument, Reason::MetadataInvalid),
        Rejection::ProviderUnknown { .. } => (NotFound, Reason::ProviderUnknown),
        Rejection::ScriptInvalid { .. } => (InvalidArgument, Reason::ScriptInvalid),
        Rejection::ModelInvalid { .. } => (InvalidArgument, Reason::ModelInvalid),
        Rejection::ToolUnknown { .. } => (NotFound, Reason::ToolUnknown),
        Rejection::ArgumentsInvalid { .. } => (InvalidArgument, Reason::ArgumentsInvalid),
        Rejection::NotANeighbour { .. } => (PermissionDenied, Reason::NotANeighbour),
        Rejection::UserNotReachable { .. } => (PermissionDenied, Reason::UserNotReachable),
        Rejection::SelfSend { .. } => (InvalidArgument, Reason::SelfSend),
        Rejection::MessageTooLarge { .. } => (InvalidArgument, Reason::MessageTooLarge),
        Rejection::InboxFull { .. } => (ResourceExhausted, Reason::InboxFull),
        Rejection::BudgetExhausted { .. } => (ResourceExhausted, Reason::BudgetExhausted),
        Rejection::WouldDeadlock { .. } => (FailedPrecondition, Reason::WouldDeadlock),
        Rejection::NoTeam { .. } => (FailedPrecondition, Reason::NoTeam),
        Rejection::NotAChild { .. } => (PermissionDenied, Reason::NotAChild),
        Rejection::NothingToAnswer { .. } => (NotFound, Reason::NothingToAnswer),
        Rejection::MessageNotFound { .. } => (NotFound, Reason::MessageNotFound),
        Rejection::NoAnswerWanted { .. } => (FailedPrecondition, Reason::NoAnswerWanted),
        Rejection::TooMany { .. } => (ResourceExhausted, Reason::TooMany),
        Rejection::ReminderInvalid { .. } => (InvalidArgument, Reason::ReminderInvalid),
        Rejection::ReminderNotFound { .. } => (NotFound, Reason::ReminderNotFound),
        Rejection::TransitionInvalid { .. } => (InvalidArgument, Reason::TransitionInvalid),
        Rejection::SubscriptionNotFound { .. } => (NotFound, Reason::SubscriptionNotFound),
        Rejection::WorkspaceNotVisible { .. } => (PermissionDenied, Reason::WorkspaceNotVisible),
        Rejection::NoParent { .. } => (FailedPrecondition, Reason::NoParent),
        Rejection::NoWorkspace { .. } => (FailedPrecondition, Reason::NoWorkspace),
        Rejection::NoTurn { .. } => (FailedPrecondition, Reason::NoTurn),
        Rejection::PermissionNotOpen { .. } => (FailedPrecondition, Reason::PermissionNotOpen),
        Rejection::PermissionAmbiguous { .. } => (FailedPrecondition, Reason::PermissionAmbiguous),
        Rejection::TurnNotFound { .. } => (NotFound, Reason::TurnNotFound),
        Rejection::TurnNotReplayable { .. } => (FailedPrecondition, Reason::TurnNotReplayable),
        Rejection::SessionNotFound { .. } => (NotFound, Reason::SessionNotFound),
        Rejection::SessionBusy { .. } => (FailedPrecondition, Reason::SessionBusy),
        Rejection::SessionTerminated { .. } => (FailedPrecondition, Reason::SessionTerminated),
        Rejection::SessionNotTerminated { .. } => {
            (FailedPrecondition, Reason::SessionNotTerminated)
        }
        Rejection::WorkspaceNotFound { .. } => (NotFound, Reason::WorkspaceNotFound),
        Rejection::WorkspaceExists { .. } => (AlreadyExists, Reason::WorkspaceExists),
        Rejection::WorkspaceInUse { .. } => (FailedPrecondition, Reason::WorkspaceInUse),
        Rejection::WorkspaceInvalid { .. } => (InvalidArgument, Reason::WorkspaceInvalid),
        Rejection::ReadOnly { .. } => (PermissionDenied, Reason::ReadOnly),
        Rejection::NetworkNotAllowed { .. } => (PermissionDenied, Reason::NetworkNotAllowed),
        Rejection::LinkNotYours { .. } => (PermissionDenied, Reason::LinkNotYours),
        Rejection::LinkExists { .. } => (AlreadyExists, Reason::LinkExists),
        Rejection::LinkNotFound { .. } => (NotFound, Reason::LinkNotFound),
        Rejection::LinkForbidden { .. } => (InvalidArgument, Reason::LinkForbidden),
        Rejection::MountFailed { .. } => (FailedPrecondition, Reason::MountFailed),
        Rejection::PathInvalid { .. } => (InvalidArgument, Reason::PathInvalid),
        Rejection::RequestIdReused { .. } => (AlreadyExists, Reason::RequestIdReused),
        Rejection::RecordTooLarge { .. } => (InvalidArgument, Reason::RecordTooLarge),
        Rejection::Draining => (Unavailable, Reason::Draining),
        Rejection::Bug { .. } => (Internal, Reason::Bug),
    }
}

/// What a client sees of a turn that ended without an answer.
pub(super) fn unanswered(agent: &str, answer: &Answer) -> Status {
    let retry = format!("let it try again: substratctl agent retry {agent}");
    let keeps = format!("the agent keeps the message; inspect it, mend it, and {retry}");
    let (reason, message, hint) = match answer {
        Answer::Failed { turn, class, error } => {
            let kind = match class {
                FailureClass::Permanent => "",
                _ => class.as_str(),
            };
            let kind = if kind.is_empty() { String::new() } else { format!(" ({kind})") };
            let message = format!("turn {turn} of {agent} failed{kind}: {error}");
            (Reason::TurnFailed, message, keeps.as_str())
        }
        Answer::Cancelled { turn } => {
            let hint = "its message was dropped; send it again if it is still wanted";
            (Reason::TurnCancelled, format!("turn {turn} of {agent} was cancelled"), hint)
        }
        Answer::Left => {
            let message = format!(
                "the turn of {agent} did not complete; the message waits in its inbox, and {agent} \
                 does not go on by itself"
            );
            (Reason::TurnFailed, message, retry.as_str())
        }
        Answer::Refused(excess) => {
            let hint = "the agent keeps the message; raise or remove the budget to let it go on";
            let message = format!("no turn of {agent} may start: {excess}");
            return status(Code::ResourceExhausted, Reason::BudgetExhausted, message, hint);
        }
        Answer::Discarded => {
            let hint = "send it again if it is still wanted";
            let message = format!("the message was discarded before {agent} answered it");
            (Reason::TurnCancelled, message, hint)
        }
        Answer::Terminated => {
            let hint = "create a new agent";
            (Reason::AgentTerminated, format!("{agent} ended before it answered"), hint)
        }
        Answer::Completed { .. } => (Reason::Bug, "an answer was taken for none".to_owned(), ""),
    };
    status(Code::Aborted, reason, message, hint)
}

/// What git has against making a worktree.
pub(super) fn git_failed(error: &git::Error) -> Status {
    let (code, reason, hint) = of_git(error);
    status(code, reason, error.to_string(), hint)
}

/// What git has against looking for the work that would be lost with a worktree.
pub(super) fn not_looked_for(error: &git::Error) -> Status {
    let (code, reason, _) = of_git(error);
    let hint = match reason {
        Reason::DiskFull => {
            "make room there and try it again, or delete with --force, which loses what is in no \
             commit"
        }
        _ => "mend that and try it again, or delete with --force, which loses what is in no commit",
    };
    let what = "what would be lost with the worktree cannot be told";
    status(code, reason, format!("{what}: {error}"), hint)
}

fn of_git(error: &git::Error) -> (Code, Reason, &'static str) {
    match error {
        git::Error::Run { error: git::RunError::DiskFull, .. } => {
            (Code::ResourceExhausted, Reason::DiskFull, "make room there, then try it again")
        }
        git::Error::Run { error: git::RunError::Unkept(_), .. } => (
            Code::FailedPrecondition,
            Reason::SandboxUnavailable,
            "mend that and try it again, or set sandbox.policy to \"off\" and let git and agents \
             out",
        ),
        _ => (
            Code::FailedPrecondition,
            Reason::GitFailed,
            "mend that in the repository, or choose another repository or branch",
        ),
    }
}

/// What would be lost with a worktree.
pub(super) fn work_left(left: &git::WorkLeft) -> Status {
    let some = |what: &str, list: &[String]| match list {
        [] => None,
        [first, rest @ ..] => Some(match rest.len() {
            0 => format!("{what} {first}"),
            more => format!("{what} {first} and {more} more"),
        }),
    };
    let parts = [some("uncommitted:", &left.uncommitted), some("unpushed:", &left.unpushed)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let message =
        format!("there is work in the worktree that is nowhere else ({})", parts.join("; "));
    let hint = "commit it, and push or merge it; or delete with --force: what is uncommitted is \
                lost, commits stay on the branch";
    status(Code::FailedPrecondition, Reason::WorkLeft, message, hint)
}

/// A task that crashed.
pub(super) fn bug(panic: &tokio::task::JoinError) -> Status {
    rejected(&Rejection::Bug { what: panic.to_string() })
}

/// A process that was not started.
pub(super) fn not_launched(error: &launcher::Error) -> Status {
    use launcher::Error;
    let (code, reason) = match error {
        Error::DiskFull => (Code::ResourceExhausted, Reason::DiskFull),
        Error::Unavailable(_) => (Code::FailedPrecondition, Reason::SandboxUnavailable),
        Error::Mount { .. } | Error::TooManyMounts { .. } => {
            (Code::FailedPrecondition, Reason::MountFailed)
        }
        Error::Command { .. } => (Code::FailedPrecondition, Reason::CommandNotFound),
        Error::Setup { .. } => (Code::Internal, Reason::SandboxFailed),
    };
    status(code, reason, error.to_string(), &error.hint())
}

/// Logs that could not be read.
pub(super) fn unreadable(error: &std::io::Error) -> Status {
    let hint = "look at the daemon's log; the journal still holds what was acknowledged";
    let message = format!("reading the logs failed: {error}");
    status(Code::Internal, Reason::LogUnreadable, message, hint)
}

#[cfg(test)]
mod tests;
