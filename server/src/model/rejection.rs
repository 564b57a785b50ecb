//! Every legal "no" of the core.

mod hint;

use self::hint::{instead, links_there, relative};
use super::{AgentId, Excess, MessageId, Name, PermissionId, Short, Stage, TurnId};

/// Why a command changes nothing. The text says what is wrong; [`Rejection::hint`] what to do, and
/// [`Rejection::code`] names the variant.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, thiserror::Error)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum Rejection {
    /// No live agent fits the reference.
    #[error("no agent {reference:?}")]
    AgentNotFound {
        /// What was asked for.
        reference: String,
    },
    /// Several agents fit the reference.
    #[error("{reference:?} could be {}", paths.join(", "))]
    AgentAmbiguous {
        /// What was asked for.
        reference: String,
        /// Some of those that fit.
        paths: Vec<String>,
    },
    /// A sibling has the name.
    #[error("there is already an agent {path:?}")]
    AgentExists {
        /// Path of that agent.
        path: String,
    },
    /// The agent has ended.
    #[error("agent {name:?} is terminated")]
    AgentTerminated {
        /// Its name.
        name: Name,
    },
    /// The agent has live children.
    #[error("agent {name:?} has {children} live {}", if *children == 1 { "child" } else { "children" })]
    AgentHasChildren {
        /// Its name.
        name: Name,
        /// How many.
        children: usize,
    },
    /// The agent is not gated.
    #[error("agent {name:?} is not gated")]
    AgentNotGated {
        /// Its name.
        name: Name,
    },
    /// The tree is as large as it may be.
    #[error("{what} is at its limit of {limit}")]
    TreeLimit {
        /// Which measure.
        what: &'static str,
        /// Its limit.
        limit: usize,
    },
    /// The name breaks the rules.
    #[error("{name:?} is not a valid name: {problem}")]
    NameInvalid {
        /// The name.
        name: String,
        /// Which rule.
        problem: &'static str,
        /// How to keep it.
        hint: &'static str,
    },
    /// Metadata breaks the rules.
    #[error("metadata key {key:?} is not valid: {problem}")]
    MetadataInvalid {
        /// The key.
        key: String,
        /// Which rule.
        problem: &'static str,
    },
    /// There is no such provider.
    #[error("no provider {name:?}")]
    ProviderUnknown {
        /// What was asked for.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The instructions of a new agent are no script that runs.
    #[error("the instructions of {name:?} are refused: {problem}")]
    ScriptInvalid {
        /// Name of the agent.
        name: String,
        /// What its provider says.
        problem: String,
    },
    /// The model of a new agent is missing, or none that its provider can use.
    #[error("the model of {name:?} is refused: {problem}")]
    ModelInvalid {
        /// Name of the agent.
        name: String,
        /// What its provider says.
        problem: String,
    },
    /// There is no such tool.
    #[error("no tool {name:?}")]
    ToolUnknown {
        /// What was asked for.
        name: String,
        /// Those that there are, for the agent if there is one.
        known: Vec<&'static str>,
    },
    /// The arguments of a tool call are not those of the tool.
    #[error("bad arguments for {tool}: {problem}")]
    ArgumentsInvalid {
        /// The tool.
        tool: &'static str,
        /// Which argument, and what is wrong with it.
        problem: String,
    },
    /// The recipient is not parent, child or sibling of the sender.
    #[error("{sender:?} cannot message {recipient:?}: it is not its parent, child or sibling")]
    NotANeighbour {
        /// The sender.
        sender: Name,
        /// What it called the recipient.
        recipient: String,
    },
    /// Only roots talk to USER.
    #[error("{sender:?} cannot message USER: it is not a root")]
    UserNotReachable {
        /// The sender.
        sender: Name,
    },
    /// An agent cannot message itself.
    #[error("{sender:?} cannot message itself")]
    SelfSend {
        /// The sender.
        sender: Name,
    },
    /// The text is too long.
    #[error("the text has {bytes} bytes; at most {limit} are allowed")]
    MessageTooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The recipient has too much to read.
    #[error("the inbox of {name:?} is full with {messages} messages of {bytes} bytes")]
    InboxFull {
        /// The recipient.
        name: Name,
        /// How many.
        messages: usize,
        /// How much text that is.
        bytes: usize,
    },
    /// A budget of the recipient, or of the tree that it is in, is used up.
    #[error("{name:?} may start no turn: {excess}")]
    BudgetExhausted {
        /// The recipient.
        name: Name,
        /// The budget.
        excess: Excess,
    },
    /// The two would wait for each other for ever.
    #[error("{recipient:?} is waiting, directly or through others, for {sender:?}")]
    WouldDeadlock {
        /// The sender.
        sender: Name,
        /// The recipient.
        recipient: Name,
    },
    /// An agent without siblings has nobody to broadcast to.
    #[error("{sender:?} has no siblings to broadcast to")]
    NoTeam {
        /// The sender.
        sender: Name,
    },
    /// Only a parent governs an agent.
    #[error("{other:?} is not a child of {agent:?}")]
    NotAChild {
        /// Who wanted to.
        agent: Name,
        /// The agent.
        other: Name,
    },
    /// There is no such message to answer.
    #[error("no message {id:?} of that sender is there to be answered")]
    NothingToAnswer {
        /// What was asked for.
        id: String,
    },
    /// The message wants no answer, or has one.
    #[error("message {id:?} {}", if *answered { "is answered already" } else { "wants no answer" })]
    NoAnswerWanted {
        /// The message.
        id: String,
        /// Whether it has one.
        answered: bool,
    },
    /// No such message lies in the inbox.
    #[error("{}", match id {
        None => format!("no message lies in the inbox of {name:?}"),
        Some(id) if *taken => format!("message {id} is in the running turn of {name:?}"),
        Some(id) => format!("no message {id} lies in the inbox of {name:?}"),
    })]
    MessageNotFound {
        /// The agent.
        name: Name,
        /// What was asked for; none for any.
        id: Option<MessageId>,
        /// Whether a turn has it.
        taken: bool,
    },
    /// The agent has as many as it may.
    #[error("there are already {limit} {what}, as many as there may be")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The times of a reminder make no sense.
    #[error("the reminder is refused: {problem}")]
    ReminderInvalid {
        /// Why.
        problem: &'static str,
    },
    /// There is no such reminder.
    #[error("no reminder {id:?}")]
    ReminderNotFound {
        /// What was asked for.
        id: String,
    },
    /// The transition to watch for makes no sense.
    #[error("{text:?} is not a transition between states")]
    TransitionInvalid {
        /// What was asked for.
        text: String,
    },
    /// There is no such subscription.
    #[error("no subscription {id:?}")]
    SubscriptionNotFound {
        /// What was asked for.
        id: String,
    },
    /// An agent can give away only what it sees.
    #[error("workspace {name:?} is not yours, nor within it, nor made by you")]
    WorkspaceNotVisible {
        /// The workspace.
        name: Name,
    },
    /// A root has nobody to complete to.
    #[error("{name:?} has no parent to complete to")]
    NoParent {
        /// The agent.
        name: Name,
    },
    /// The agent has no workspace.
    #[error("{name:?} has no workspace")]
    NoWorkspace {
        /// The agent.
        name: Name,
    },
    /// No turn runs, or another one.
    #[error("agent {name:?} has no running turn{}", turn.map(|id| format!(" {id}")).unwrap_or_default())]
    NoTurn {
        /// The agent.
        name: Name,
        /// The turn that was meant.
        turn: Option<TurnId>,
    },
    /// There is no such question, or it is not open any more.
    #[error("agent {name:?} has no open question{}", permission.map(|id| format!(" {id}")).unwrap_or_default())]
    PermissionNotOpen {
        /// The agent.
        name: Name,
        /// The question that was meant.
        permission: Option<PermissionId>,
    },
    /// Several questions are open.
    #[error("{} questions are open: {}", open.len(), open.join(", "))]
    PermissionAmbiguous {
        /// Those that are open.
        open: Vec<String>,
    },
    /// There is no such turn.
    #[error("no turn {turn}")]
    TurnNotFound {
        /// The turn that was meant.
        turn: TurnId,
    },
    /// The record of a turn holds no answer that could be given again.
    #[error("turn {turn} cannot be replayed: {reason}{}", stage.map(|stage| format!(" ({}: {})", stage.as_str(), stage.advice().as_str())).unwrap_or_default())]
    TurnNotReplayable {
        /// The turn.
        turn: TurnId,
        /// Why, as its record says it.
        reason: &'static str,
        /// How far it had come, if it has no end.
        stage: Option<Stage>,
    },
    /// There is no such session.
    #[error("no session {reference:?}")]
    SessionNotFound {
        /// What was asked for.
        reference: String,
    },
    /// A turn runs in the session.
    #[error("session of {name:?} is busy")]
    SessionBusy {
        /// Its agent.
        name: Name,
    },
    /// The session has ended.
    #[error("session of {name:?} is terminated")]
    SessionTerminated {
        /// Its agent.
        name: Name,
    },
    /// The session has not ended.
    #[error("session of {name:?} is not terminated")]
    SessionNotTerminated {
        /// Its agent.
        name: Name,
    },
    /// There is no such workspace.
    #[error("no workspace {}", Short(.reference))]
    WorkspaceNotFound {
        /// What was asked for.
        reference: String,
    },
    /// A workspace has the name.
    #[error("there is already a workspace {name:?}")]
    WorkspaceExists {
        /// The name.
        name: Name,
    },
    /// Agents or workspaces are in the workspace.
    #[error("workspace {name:?} is in use by {by}")]
    WorkspaceInUse {
        /// The workspace.
        name: Name,
        /// Who uses it.
        by: String,
    },
    /// The settings of the workspace make no sense.
    #[error("the workspace is refused: {problem}")]
    WorkspaceInvalid {
        /// What is wrong.
        problem: String,
        /// What is right.
        hint: &'static str,
    },
    /// An agent gives on no more than it may do itself.
    #[error("{what} is read-only to you")]
    ReadOnly {
        /// The workspace, or the place in it.
        what: String,
    },
    /// An agent gives on no network that it does not have itself.
    #[error("workspace {name:?} would reach the network, and yours does not")]
    NetworkNotAllowed {
        /// The workspace.
        name: String,
    },
    /// An agent does not take away a link of USER.
    #[error("the link at {} was made by USER", Short(.mount))]
    LinkNotYours {
        /// Where it is seen.
        mount: String,
    },
    /// A link is in the way.
    #[error(
        "{}",
        if mount == other {
            format!("there is already a link at {}", Short(.mount))
        } else {
            format!("mount path {} overlaps the link at {}", Short(.mount), Short(.other))
        }
    )]
    LinkExists {
        /// What was asked for.
        mount: String,
        /// The link.
        other: String,
    },
    /// There is no such link.
    #[error("nothing is linked at {}", Short(.mount))]
    LinkNotFound {
        /// What was asked for.
        mount: String,
        /// Where something is, for who may know.
        known: Vec<String>,
    },
    /// The host folder must not be shown.
    #[error("{} cannot be linked: {problem}", Short(.path))]
    LinkForbidden {
        /// The host folder.
        path: String,
        /// Why.
        problem: &'static str,
    },
    /// A folder is not there, or cannot be shown where it is to be seen.
    #[error("{} cannot be shown in workspace {workspace:?}: {problem}", Short(.path))]
    MountFailed {
        /// The workspace.
        workspace: Name,
        /// The folder or the place, as it is seen there.
        path: String,
        /// What is wrong with it.
        problem: String,
        /// What to do next.
        hint: &'static str,
    },
    /// The path breaks the rules.
    #[error("path {} is refused: {problem}", Short(.path))]
    PathInvalid {
        /// The path.
        path: String,
        /// Which rule.
        problem: &'static str,
    },
    /// The key was used for something else.
    #[error("request id {id:?} was already used for another request")]
    RequestIdReused {
        /// The key.
        id: String,
    },
    /// The record would be larger than the journal takes.
    #[error("the request needs a journal record of {bytes} bytes; at most {limit} are allowed")]
    RecordTooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// No new work is taken while the daemon stops.
    #[error("the daemon is stopping")]
    Draining,
    /// The core met a bug; nothing was changed.
    #[error("the daemon met a bug while it decided: {what}")]
    Bug {
        /// What it said.
        what: String,
    },
}

/// What is to be linked is not there.
pub const LINK_MISSING: &str = "it does not exist or cannot be reached";
/// What is to be linked is something else.
pub const LINK_NOT_A_FOLDER: &str = "it is not a folder";
/// What is to be linked cannot be read.
pub const LINK_UNREADABLE: &str = "the daemon's user may not read it, or not enter it";
/// What is to be linked would show the daemon's files.
pub const LINK_IN_HOME: &str = "it holds, or lies in, the daemon's home";

impl Rejection {
    /// No agent of that id; where an id was handed out and its agent is gone.
    pub fn no_agent(id: AgentId) -> Self {
        Self::AgentNotFound { reference: id.to_string() }
    }

    /// The name of the variant, as durable results have it. It is the reason that a client is told.
    pub fn code(&self) -> &'static str {
        self.into()
    }

    /// What to do next, for a person or a model; empty where the text says it all.
    #[expect(clippy::too_many_lines, reason = "a table with a line for each")]
    pub fn hint(&self) -> String {
        match self {
            Self::AgentNotFound { .. } => {
                "list the agents (a tool call: list_children) to see which there are".into()
            }
            Self::AgentAmbiguous { .. } => "name it by its path or id".into(),
            Self::AgentExists { .. } => {
                "choose another name, or use the agent that there is".into()
            }
            Self::AgentTerminated { .. } => {
                "create a new agent (a tool call: spawn_agent; list_children shows who is left)"
                    .into()
            }
            Self::AgentHasChildren { .. } => "end the children first, or end it recursively".into(),
            Self::AgentNotGated { .. } => "gate it first".into(),
            Self::TreeLimit { what, .. } if what.contains("each other") => "go less deep".into(),
            Self::TreeLimit { .. } => {
                "end agents that are done, or raise limits.agents or limits.depth".into()
            }
            Self::NameInvalid { hint, .. } => (*hint).into(),
            Self::MetadataInvalid { .. } => {
                "use at most 64 keys of 1 to 64 bytes, with values of at most 4,096".into()
            }
            Self::ProviderUnknown { known, .. } => format!("use one of: {}", known.join(", ")),
            Self::ScriptInvalid { .. } => {
                "mend the script, or name the provider that the instructions are for".into()
            }
            Self::ModelInvalid { .. } => {
                "give a model that the provider can use; that of a program agent is its command \
                 line"
                    .into()
            }
            Self::ToolUnknown { known, .. } => format!("there are: {}", known.join(", ")),
            Self::ArgumentsInvalid { .. } => "give them as the tool's input schema says".into(),
            Self::NotANeighbour { .. } => {
                "message your parent, a child or a sibling, and let it pass the word on".into()
            }
            Self::UserNotReachable { .. } => "tell your parent instead".into(),
            Self::SelfSend { .. } => "keep notes in a file instead".into(),
            Self::MessageTooLarge { .. } => "write it to a file and send the path".into(),
            Self::InboxFull { .. } => "wait until the recipient has read some".into(),
            Self::BudgetExhausted { .. } => {
                "do without it, or have its budget raised or removed".into()
            }
            Self::WouldDeadlock { .. } => {
                "send it without waiting (sync = false), or end your turn with the answer".into()
            }
            Self::NoTeam { .. } => "message your parent or a child instead".into(),
            Self::NotAChild { .. } => "ask its parent, or send it a message".into(),
            Self::NothingToAnswer { .. } => {
                "use the id and the sender of a request in your inbox or this turn, or leave out \
                 reply_to"
                    .into()
            }
            Self::NoAnswerWanted { .. } => "send it as a message of its own".into(),
            Self::MessageNotFound { taken: true, .. } => {
                "wait until the turn is over, or cancel it".into()
            }
            Self::MessageNotFound { id: None, .. } => "send it a message".into(),
            Self::MessageNotFound { .. } => "inspect the agent to see what lies there".into(),
            Self::TooMany { .. } => "end those that are not needed any more".into(),
            Self::ReminderInvalid { .. } => {
                "give whole seconds, every of at least 1, within ten years".into()
            }
            Self::ReminderNotFound { .. } => {
                "use the id that remind_me returned; one that is over is gone".into()
            }
            Self::TransitionInvalid { .. } => {
                "write it as FROM->TO with idle, busy, waiting, terminated or *".into()
            }
            Self::SubscriptionNotFound { .. } => {
                "use the id that subscribe returned; one that is over is gone".into()
            }
            Self::WorkspaceNotVisible { .. } => {
                "use one that list_workspaces shows, or leave out workspace to share yours".into()
            }
            Self::NoParent { .. } => "end your turn with the answer instead".into(),
            Self::NoWorkspace { .. } => "ask to be given one when you are created".into(),
            Self::NoTurn { .. } => "see what it is doing by inspecting it".into(),
            Self::PermissionNotOpen { .. } => "inspect the agent to see what is open".into(),
            Self::PermissionAmbiguous { .. } => "name the one that is meant".into(),
            Self::TurnNotFound { .. } => "list the turns of an agent to see which there are".into(),
            Self::TurnNotReplayable { stage: Some(stage), .. } => stage.hint().into(),
            Self::TurnNotReplayable { stage: None, .. } => {
                "show the turn to see what happened in it".into()
            }
            Self::SessionNotFound { .. } => "list the sessions to see which there are".into(),
            Self::SessionBusy { .. } => "wait for its turn to end, or cancel it".into(),
            Self::SessionTerminated { .. } => "it cannot be used again; create a new agent".into(),
            Self::SessionNotTerminated { .. } => "terminate its agent first".into(),
            Self::WorkspaceNotFound { .. } => "list the workspaces to see which there are".into(),
            Self::WorkspaceExists { .. } => "choose another name".into(),
            Self::WorkspaceInUse { .. } => {
                "end the agents and commands, and delete the workspaces in it".into()
            }
            Self::WorkspaceInvalid { hint, .. } => (*hint).into(),
            Self::ReadOnly { .. } => "ask for ro, or use a place that you may write".into(),
            Self::NetworkNotAllowed { .. } => {
                "do without the network, or have USER let your workspace into it".into()
            }
            Self::LinkNotYours { .. } => "leave it, or have USER remove it".into(),
            Self::LinkExists { .. } => "choose another mount path, or unlink that one".into(),
            Self::LinkNotFound { known, .. } => links_there(known),
            Self::LinkForbidden { path, problem } => instead(path, problem).into(),
            Self::MountFailed { hint, .. } => (*hint).into(),
            Self::PathInvalid { path, .. } => relative(path).into(),
            Self::RequestIdReused { .. } => "use a new request id for a new request".into(),
            Self::RecordTooLarge { .. } => "ask for less at once".into(),
            Self::Draining => "try again when the daemon runs again".into(),
            Self::Bug { .. } => "please report it with the daemon's log".into(),
        }
    }
}
