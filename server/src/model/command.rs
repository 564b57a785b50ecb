//! What can be asked of the core.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{
    Access, AgentId, Blob, BudgetChanged, CallId, FailureClass, Json, LimitKind, Limits, MessageId,
    NewWorkspace, Permission, PermissionAnswer, PermissionId, Rejection, SessionId, Told, TurnId,
    Usage, WorkspaceId,
};

/// An agent as a person names it: by path, unique bare name, id or unique prefix of the id.
pub type AgentRef = String;

/// An agent to be created.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewAgent {
    /// Its name.
    pub name: String,
    /// Provider; none for the parent's or the default.
    pub provider: Option<String>,
    /// Model; none for the parent's or the provider's default.
    pub model: Option<String>,
    /// What it is told to be.
    pub instructions: Arc<str>,
    /// Advisory role.
    pub role: String,
    /// Workspace by name or id; none for the parent's.
    pub workspace: Option<String>,
    /// Folder of the workspace that is to be all it sees; none for the whole.
    pub workspace_subdir: Option<String>,
    /// The most that it may do there; none for as much as its parent there, else for all.
    pub workspace_access: Option<Access>,
    /// Labels.
    pub metadata: BTreeMap<String, String>,
    /// Its budgets.
    pub budgets: Vec<BudgetChanged>,
}

/// What a provider saved for a later resume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Saved {
    /// Nothing new.
    Unchanged,
    /// This.
    State(Blob),
}

/// How a provider ended a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnEnd {
    /// With an answer.
    Completed {
        /// The final text.
        response: Arc<str>,
        /// What the session would be resumed from now.
        saved: Saved,
    },
    /// With an error.
    Failed {
        /// Its class.
        class: FailureClass,
        /// Its text.
        error: String,
    },
    /// Because it was asked to.
    Cancelled,
}

/// What can be asked of the core.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// USER creates an agent.
    CreateAgent {
        /// The agent.
        agent: NewAgent,
        /// Its parent; none for a root.
        parent: Option<AgentRef>,
    },
    /// USER changes an agent; what is none stays, a label that is none goes.
    UpdateAgent {
        /// The agent.
        agent: AgentRef,
        /// New instructions.
        instructions: Option<Arc<str>>,
        /// New role.
        role: Option<String>,
        /// Labels to set or remove.
        metadata: BTreeMap<String, Option<String>>,
        /// Budgets to set or remove.
        budgets: Vec<BudgetChanged>,
    },
    /// USER sends a message.
    SendMessage {
        /// The recipient.
        agent: AgentRef,
        /// The text.
        text: Arc<str>,
        /// Metadata of the message.
        metadata: BTreeMap<String, String>,
    },
    /// USER wants a turn to end.
    CancelTurn {
        /// The agent.
        agent: AgentRef,
        /// The turn; none for whichever runs.
        turn: Option<TurnId>,
    },
    /// USER closes a gate.
    Gate {
        /// The agent.
        agent: AgentRef,
    },
    /// USER opens a gate.
    Ungate {
        /// The agent.
        agent: AgentRef,
    },
    /// USER permits one turn.
    PermitTurn {
        /// The agent.
        agent: AgentRef,
    },
    /// USER ends an agent.
    Terminate {
        /// The agent.
        agent: AgentRef,
        /// With its descendants.
        recursive: bool,
    },
    /// USER has read these.
    AckInbox {
        /// The messages.
        messages: Vec<MessageId>,
    },
    /// USER wants a turn with messages that lie in an inbox.
    RetryMessages {
        /// The agent.
        agent: AgentRef,
        /// The messages; none for all.
        messages: Vec<MessageId>,
    },
    /// USER does not want messages to be delivered that lie in an inbox.
    DiscardMessages {
        /// The agent.
        agent: AgentRef,
        /// The messages.
        messages: Vec<MessageId>,
    },
    /// USER suspends a session.
    SuspendSession {
        /// Its id or a unique prefix.
        session: String,
    },
    /// USER wants a session live.
    ResumeSession {
        /// Its id or a unique prefix.
        session: String,
    },
    /// USER deletes a session.
    DeleteSession {
        /// Its id or a unique prefix.
        session: String,
    },
    /// USER creates a workspace.
    CreateWorkspace {
        /// The workspace.
        new: NewWorkspace,
    },
    /// USER changes a workspace; what is none stays.
    UpdateWorkspace {
        /// The workspace, by name or id.
        workspace: String,
        /// Whether its processes reach the network.
        network: Option<bool>,
        /// Variables to set, or to remove where none.
        env: BTreeMap<String, Option<String>>,
        /// Limits to set, or to remove where 0.
        limits: Limits,
    },
    /// USER links a host folder. That it exists and may be shown was checked.
    LinkDirectory {
        /// The workspace, by name or id.
        workspace: String,
        /// The host folder, absolute and without symbolic links.
        host_path: String,
        /// Where it is to be seen.
        mount_path: String,
        /// What may be done through it.
        mode: Access,
    },
    /// USER removes a link.
    UnlinkDirectory {
        /// The workspace, by name or id.
        workspace: String,
        /// Where it is seen.
        mount_path: String,
    },
    /// USER deletes a workspace.
    DeleteWorkspace {
        /// The workspace, by name or id.
        workspace: String,
        /// Whether work in a worktree that is nowhere else may be lost.
        force: bool,
    },
    /// A running turn calls a tool.
    CallTool {
        /// The agent.
        agent: AgentId,
        /// The turn; none for the one that runs.
        turn: Option<TurnId>,
        /// Identity of the call.
        call: CallId,
        /// Name of the tool.
        tool: Arc<str>,
        /// Its arguments.
        args: Json,
        /// What a provider has against the instructions in them.
        objection: Option<Rejection>,
    },
    /// Nobody waits for the result of a tool call any more.
    CancelCall {
        /// The agent.
        agent: AgentId,
        /// The call.
        call: CallId,
    },
    /// A tool that works on files is done.
    FinishTool {
        /// The agent.
        agent: AgentId,
        /// The turn.
        turn: TurnId,
        /// The call.
        call: CallId,
        /// What it came to.
        result: Result<Json, String>,
    },
    /// A turn used something up.
    ReportUsage {
        /// The agent.
        agent: AgentId,
        /// The turn.
        turn: TurnId,
        /// What it used since the last report.
        usage: Usage,
    },
    /// A process of a running turn wrote to its standard error.
    ReportStderr {
        /// The agent.
        agent: AgentId,
        /// The turn.
        turn: TurnId,
        /// What it wrote, or the end of it.
        text: String,
        /// Bytes that it wrote.
        bytes: u64,
    },
    /// A process of an agent ended.
    ReportExit {
        /// The agent.
        agent: AgentId,
        /// The turn; none between turns.
        turn: Option<TurnId>,
        /// Its id on the host.
        pid: u32,
        /// How it ended: `exit 3`, `signal 9 (SIGKILL)`.
        status: String,
        /// Why it was ended, if someone ended it.
        reason: Option<String>,
    },
    /// A process met a limit of a workspace.
    ReportLimit {
        /// The agent; none for a command of a user.
        agent: Option<AgentId>,
        /// The turn; none between turns.
        turn: Option<TurnId>,
        /// The workspace; none for that in which the agent's processes are, if there is an agent.
        workspace: Option<WorkspaceId>,
        /// Which limit.
        limit: LimitKind,
        /// What happened.
        detail: String,
    },
    /// A process of a running turn runs without a sandbox.
    ReportUnsandboxed {
        /// The agent.
        agent: AgentId,
        /// The turn.
        turn: TurnId,
        /// Why.
        reason: String,
    },
    /// A provider ended a turn.
    FinishTurn {
        /// The agent.
        agent: AgentId,
        /// The turn.
        turn: TurnId,
        /// How.
        end: TurnEnd,
        /// Messages of USER whose senders wait for the answer right now.
        attended: Vec<MessageId>,
    },
    /// A turn failed in a way that may pass and is tried again.
    RetryTurn {
        /// The agent.
        agent: AgentId,
        /// The turn.
        turn: TurnId,
        /// The attempt that comes, from 2.
        attempt: u32,
        /// Milliseconds until then.
        delay_ms: u64,
        /// Class of the failure.
        class: FailureClass,
        /// Its text.
        error: String,
        /// The provider that is asked then; none for the one that failed.
        provider: Option<Arc<str>>,
    },
    /// A runner tells what the backend of a running turn does.
    TellTurn {
        /// The agent.
        agent: AgentId,
        /// The turn.
        turn: TurnId,
        /// What it does.
        told: Told,
    },
    /// The backend of a running turn asks whether it may use a tool.
    AskPermission {
        /// The agent.
        agent: AgentId,
        /// The turn.
        turn: TurnId,
        /// The question.
        asked: Permission,
        /// What the settings of the provider answer; none if somebody is to.
        policy: Option<PermissionAnswer>,
    },
    /// A question was left alone for too long, or nobody waits for the answer any more.
    SettlePermission {
        /// The agent.
        agent: AgentId,
        /// The question.
        permission: PermissionId,
        /// What the settings of the provider answer; none if it needs no answer.
        answer: Option<PermissionAnswer>,
    },
    /// USER answers a question.
    AnswerPermission {
        /// The agent.
        agent: AgentRef,
        /// The question; none for the only open one.
        permission: Option<PermissionId>,
        /// The answer.
        answer: PermissionAnswer,
    },
    /// The pause after a failed attempt is over: the next one starts.
    StartAttempt {
        /// The agent.
        agent: AgentId,
        /// The turn.
        turn: TurnId,
    },
    /// A session was suspended, or could not be asked.
    FinishSuspend {
        /// The session.
        session: SessionId,
        /// What it is resumed from.
        result: Result<Saved, String>,
    },
    /// The task that ran a session's provider crashed.
    Crash {
        /// The session.
        session: SessionId,
        /// What happened.
        reason: String,
        /// Messages of USER whose senders wait for the answer right now.
        attended: Vec<MessageId>,
    },
    /// Time has passed.
    Tick,
    /// The daemon stops: idle sessions are suspended, the others as they become idle.
    Drain,
    /// The daemon's time to stop is up: running turns are ended.
    CancelAll,
    /// A daemon serves.
    Started {
        /// Its version.
        version: String,
    },
    /// The daemon stops, last of all.
    Stopped,
}

impl Command {
    /// The agent whose keys its request is one of; none for USER.
    pub fn caller(&self) -> Option<AgentId> {
        match self {
            Self::CallTool { agent, .. } => Some(*agent),
            _ => None,
        }
    }

    /// Whether it ends what fills a disk, or removes what fills it: asked on a full disk, it is
    /// the way out.
    pub fn makes_room(&self) -> bool {
        matches!(
            self,
            Self::CancelTurn { .. }
                | Self::Gate { .. }
                | Self::Terminate { .. }
                | Self::DeleteSession { .. }
                | Self::DeleteWorkspace { .. }
        )
    }
}
