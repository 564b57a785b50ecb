//! What is to be done in the world because of an event, once it is durable.

use std::sync::Arc;

use super::recent::describe_child;
use super::{
    Agent, AgentId, Blob, CallId, Entry, Event, Git, Json, Message, MessageId, PermissionAnswer,
    PermissionId, SessionId, SessionState, Source, State, Tool, ToolCallInvoked, ToolCallResult,
    TurnId, WorkspaceId, World,
};

/// Why a tool call has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFailure {
    /// The text, for a model to read.
    pub error: String,
    /// Why it was refused; none when it was not, but failed.
    pub reason: Option<String>,
}

/// Something to do in the world.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Open the provider instance of a session.
    Open {
        /// The session.
        session: SessionId,
        /// Its agent.
        agent: AgentId,
        /// Name of the provider.
        provider: Arc<str>,
        /// Model; none for the provider's default.
        model: Option<Arc<str>>,
        /// What the agent is told to be.
        instructions: Arc<str>,
        /// What to resume from.
        saved: Option<Blob>,
    },
    /// Run a turn on the open instance.
    StartTurn {
        /// The session.
        session: SessionId,
        /// The agent.
        agent: AgentId,
        /// The turn.
        turn: TurnId,
        /// Sequence of its `turn.start`.
        seq: u64,
        /// What the provider is prompted with.
        prompt: Arc<str>,
        /// The messages in it.
        messages: Vec<Message>,
        /// What the agent sees; none if it has no workspace.
        world: Option<World>,
    },
    /// Have the running turn take a message in, if its backend can.
    AddToTurn {
        /// The session.
        session: SessionId,
        /// The turn.
        turn: TurnId,
        /// The message.
        message: MessageId,
        /// Its text.
        text: Arc<str>,
    },
    /// End the running turn.
    CancelTurn {
        /// The session.
        session: SessionId,
        /// The turn.
        turn: TurnId,
    },
    /// Return from a tool call.
    ReturnCall {
        /// The call.
        call: CallId,
        /// Sequence of its result.
        seq: u64,
        /// What it came to.
        result: Result<Json, CallFailure>,
    },
    /// Tell a backend the answer to its question.
    ReturnPermission {
        /// The question.
        permission: PermissionId,
        /// Sequence of the answer.
        seq: u64,
        /// The answer; none if it needs none any more.
        answer: Option<PermissionAnswer>,
    },
    /// Work on files for a tool call.
    RunTool {
        /// The agent.
        agent: AgentId,
        /// The turn.
        turn: TurnId,
        /// The call.
        call: CallId,
        /// What is to be done.
        tool: Tool,
        /// What the agent sees.
        world: World,
    },
    /// Look at what a child did last, for a tool call.
    Inspect {
        /// The agent that looks.
        agent: AgentId,
        /// The turn.
        turn: TurnId,
        /// The call.
        call: CallId,
        /// The session of the child.
        child: SessionId,
        /// What is known of the child; what it did last is added to it.
        shown: serde_json::Value,
    },
    /// Ask the provider instance for its state and close it.
    Suspend {
        /// The session.
        session: SessionId,
    },
    /// Close the provider instance.
    Close {
        /// The session.
        session: SessionId,
    },
    /// Make the folder of a workspace.
    CreateFolder {
        /// The root, below the folder of all workspaces.
        root: String,
    },
    /// Remove the folders at which a link was mounted, as far as they were made for that.
    RemovePlaces {
        /// The innermost first.
        places: Vec<Source>,
    },
    /// Remove the folder of a workspace.
    RemoveFolder {
        /// The workspace, which is gone.
        workspace: WorkspaceId,
        /// The root, below the folder of all workspaces.
        root: String,
        /// The worktree that it is.
        git: Option<Git>,
    },
}

fn run_tool(state: &State, agent: &Agent, data: &ToolCallInvoked) -> Option<Effect> {
    let (turn, call) = (data.turn_id, data.call_id);
    match Tool::parse(&data.tool, data.args.get()).ok()? {
        Tool::InspectAgent(args) => {
            let child = state.child(agent, &args.name).ok()?;
            let shown = describe_child(state, child);
            let child = child.session.id;
            Some(Effect::Inspect { agent: agent.id, turn, call, child, shown })
        }
        tool if tool.is_on_files() => {
            let world = state.world(agent)?;
            Some(Effect::RunTool { agent: agent.id, turn, call, tool, world })
        }
        _ => None,
    }
}

/// What a tool call came to.
fn outcome(data: &ToolCallResult) -> Result<Json, CallFailure> {
    match (&data.result, &data.error) {
        (_, Some(error)) => Err(CallFailure { error: error.clone(), reason: data.reason.clone() }),
        (Some(result), None) => Ok(result.clone()),
        (None, None) => Ok(Json::null()),
    }
}

/// What an event asks for. `state` is the state right after it.
pub fn effect(state: &State, entry: &Entry) -> Option<Effect> {
    let session = entry.session;
    let agent = || state.agent_of(session?);
    Some(match &entry.event {
        Event::SessionOpened(_) | Event::SessionRestored(_) => {
            let agent = agent()?;
            Effect::Open {
                session: session?,
                agent: agent.id,
                provider: agent.session.provider.clone(),
                model: agent.session.model.clone(),
                instructions: agent.instructions.clone(),
                saved: agent.session.saved.clone(),
            }
        }
        Event::TurnStart(data) => {
            let agent = agent()?;
            let messages = data.messages.iter().filter_map(|id| agent.message(*id)).cloned();
            Effect::StartTurn {
                session: session?,
                agent: agent.id,
                turn: data.turn_id,
                seq: entry.seq,
                prompt: data.prompt.clone(),
                messages: messages.collect(),
                world: state.world(agent),
            }
        }
        Event::MessageEnqueued(data) if data.steers() => {
            let turn = agent()?.turn().filter(|turn| turn.cancelling.is_none())?.id;
            let (message, text) = (data.message_id, data.payload.clone());
            Effect::AddToTurn { session: session?, turn, message, text }
        }
        Event::TurnCancelling(data) => Effect::CancelTurn { session: session?, turn: data.turn_id },
        Event::ToolCallResult(data) => {
            Effect::ReturnCall { call: data.call_id, seq: entry.seq, result: outcome(data) }
        }
        Event::PermissionAnswered(data) => {
            let answer = PermissionAnswer { decision: data.decision, reason: data.reason.clone() };
            let (permission, seq) = (data.permission_id, entry.seq);
            Effect::ReturnPermission { permission, seq, answer: Some(answer) }
        }
        Event::PermissionWithdrawn(data) => {
            let (permission, seq) = (data.permission_id, entry.seq);
            Effect::ReturnPermission { permission, seq, answer: None }
        }
        Event::ToolCallInvoked(data) => {
            return run_tool(state, agent()?, data);
        }
        Event::SessionSuspending(_) => Effect::Suspend { session: session? },
        Event::AgentTerminated(_) => {
            debug_assert!(agent().is_none_or(|a| a.session.state == SessionState::Terminated));
            Effect::Close { session: session? }
        }
        // A view shows a folder that is there.
        Event::WorkspaceCreated(data) if data.view.is_some() => return None,
        Event::WorkspaceCreated(data) => Effect::CreateFolder { root: data.root.clone() },
        Event::WorkspaceUnlinked(data) => {
            let workspace = state.workspace(data.workspace_id)?;
            let places = state.places_left(workspace, &data.mount_path);
            Effect::RemovePlaces { places }
        }
        Event::WorkspaceDeleted(data) => {
            let (root, git) = (data.root.clone(), data.git.clone());
            Effect::RemoveFolder { workspace: data.workspace_id, root, git }
        }
        _ => return None,
    })
}
