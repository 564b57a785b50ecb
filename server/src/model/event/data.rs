//! The data of each event. Field order is the key order in the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Advice, Blob, DiscardReason, EndReason, Expiry, GateAction, Json, Stage, SuspendReason,
};
use crate::model::{
    Access, AgentId, CallId, FailureClass, Kind, MessageId, Name, Outcome, Party, SessionId,
    Timestamp, TurnId, Usage, WorkspaceId,
};

macro_rules! data {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }
    )+};
}

data! {
    /// Data of `session.created`.
    SessionCreated {
        /// Name of the provider.
        provider: Arc<str>,
        /// Model; null for the provider's default.
        model: Option<Arc<str>>,
    }

    /// Data of `agent.created`.
    AgentCreated {
        /// Identity of the agent.
        agent_id: AgentId,
        /// Its name.
        name: Name,
        /// Session of its parent; null for a root.
        parent_session_id: Option<SessionId>,
        /// What it is told to be.
        instructions: Arc<str>,
        /// Advisory role.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        role: String,
        /// Where it works.
        workspace: Option<WorkspaceId>,
        /// Folder of the workspace that is all it sees; absent for the whole.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        workspace_subdir: String,
        /// The most that it may do there; absent for reading and writing.
        #[serde(default, skip_serializing_if = "Access::is_full")]
        workspace_access: Access,
        /// Labels.
        #[serde(default)]
        metadata: BTreeMap<String, String>,
        /// The turn of its parent that spawned it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spawned_in: Option<TurnId>,
    }

    /// Data of `agent.updated`: what is absent stays.
    AgentUpdated {
        /// New instructions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instructions: Option<Arc<str>>,
        /// New role.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<String>,
    }

    /// Data of `metadata.updated`.
    MetadataUpdated {
        /// The label.
        key: String,
        /// Its value; null removes it.
        value: Option<String>,
    }

    /// Data of `agent.completing`.
    AgentCompleting {
        /// The turn.
        turn_id: TurnId,
        /// What the parent is answered.
        result: Arc<str>,
    }

    /// Data of `agent.terminated`.
    AgentTerminated {
        /// The agent.
        agent_id: AgentId,
        /// Why.
        reason: EndReason,
    }

    /// Data of `agent.crashed`.
    AgentCrashed {
        /// The turn that ran.
        turn_id: Option<TurnId>,
        /// What happened.
        reason: String,
        /// Whether the agent can go on.
        recovered: bool,
    }

    /// Data of `tool.gate`.
    ToolGate {
        /// What was done.
        action: GateAction,
    }

    /// Data of `tool.permit_turn`.
    ToolPermitTurn {}

    /// Data of `session.opened`.
    SessionOpened {
        /// Name of the provider.
        provider: Arc<str>,
        /// Model; null for the provider's default.
        model: Option<Arc<str>>,
    }

    /// Data of `session.restored`.
    SessionRestored {
        /// Name of the provider.
        provider: Arc<str>,
        /// Model; null for the provider's default.
        model: Option<Arc<str>>,
    }

    /// Data of `session.resuming`.
    SessionResuming {}

    /// Data of `session.suspending`.
    SessionSuspending {
        /// Why.
        reason: SuspendReason,
    }

    /// Data of `suspend.result`.
    SuspendResult {
        /// Bytes of provider state.
        state_size: u64,
        /// The state; absent when it is the one that was last saved.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider_state: Option<Blob>,
        /// Why the provider could not be asked; the last saved state holds then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    }

    /// Data of `session.saved`.
    SessionSaved {
        /// Bytes of provider state.
        state_size: u64,
        /// The state.
        provider_state: Blob,
    }

    /// Data of `session.deleted`, in the daemon's own log.
    SessionDeleted {
        /// The session.
        deleted_session_id: SessionId,
        /// Events that its log held.
        events: u64,
        /// Parent of its agent, if that is there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<AgentId>,
        /// What its agent and the descendants of that used.
        #[serde(default, skip_serializing_if = "Usage::is_zero")]
        usage: Usage,
    }

    /// Data of `message.enqueued`, in the recipient's log.
    MessageEnqueued {
        /// Identity.
        message_id: MessageId,
        /// Who sent it.
        sender: Party,
        /// Whose inbox it entered.
        recipient: Party,
        /// What it is for.
        kind: Kind,
        /// The text.
        payload: Arc<str>,
        /// When it was sent.
        timestamp: Timestamp,
        /// The message that it answers.
        reply_to: Option<MessageId>,
        /// Known keys are `priority` and `timeout`.
        #[serde(default)]
        metadata: BTreeMap<String, String>,
        /// Name of the sender.
        sender_name: Name,
        /// Name of the recipient.
        recipient_name: Name,
    }

    /// Data of `message.delivered`.
    MessageDelivered {
        /// The message.
        message_id: MessageId,
        /// The turn that completed with it; absent where USER acknowledged it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn_id: Option<TurnId>,
    }

    /// Data of `message.collected`.
    MessageCollected {
        /// The message.
        message_id: MessageId,
        /// The turn that read it.
        turn_id: TurnId,
        /// What its backend was told while it ran; absent where a tool call returned the message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        told: Option<Arc<str>>,
    }

    /// Data of `message.discarded`.
    MessageDiscarded {
        /// The message.
        message_id: MessageId,
        /// Why.
        reason: DiscardReason,
    }

    /// Data of `message.set_aside`.
    MessageSetAside {
        /// The message.
        message_id: MessageId,
        /// The turn that was refused with it.
        turn_id: TurnId,
        /// How that turn failed.
        class: FailureClass,
    }

    /// Data of `message.retried`.
    MessageRetried {
        /// The message.
        message_id: MessageId,
    }

    /// Data of `turn.start`.
    TurnStart {
        /// Identity.
        turn_id: TurnId,
        /// What the provider is prompted with.
        prompt: Arc<str>,
        /// The messages in it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        messages: Vec<MessageId>,
        /// Name of the agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<Name>,
        /// Name of the provider.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider: Option<Arc<str>>,
        /// Model; absent for the provider's default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<Arc<str>>,
        /// Name of the sender of the first message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<Name>,
        /// Priority of the first message, where it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        priority: Option<String>,
        /// Hash of the envelope that follows from this event.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        envelope_hash: Option<String>,
    }

    /// Data of `turn.complete`.
    TurnComplete {
        /// The turn.
        turn_id: TurnId,
        /// The final text.
        response: Arc<str>,
        /// Name of the agent.
        agent: Name,
        /// Messages of USER that it answered straight to a caller who waited.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        answers: Vec<MessageId>,
    }

    /// Data of `turn.failed`.
    TurnFailed {
        /// The turn.
        turn_id: TurnId,
        /// Name of the agent.
        agent: Name,
        /// Class of the failure.
        class: FailureClass,
        /// What failed.
        error: String,
        /// The messages that it keeps for the next turn.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        messages: Vec<MessageId>,
    }

    /// Data of `turn.cancelling`.
    TurnCancelling {
        /// The turn.
        turn_id: TurnId,
        /// Who asked.
        by: Party,
    }

    /// Data of `turn.cancelled`.
    TurnCancelled {
        /// The turn.
        turn_id: TurnId,
        /// Name of the agent.
        agent: Name,
        /// Who asked.
        by: Party,
        /// The messages that were in it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        messages: Vec<MessageId>,
    }

    /// Data of `turn.interrupted`.
    TurnInterrupted {
        /// The turn.
        turn_id: TurnId,
        /// Name of the agent.
        agent: Name,
        /// How far it had come.
        stage: Stage,
        /// What may be done about it.
        recovery: Advice,
        /// Tools whose outcome is unknown.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lost_calls: Vec<Arc<str>>,
        /// Whether its messages start a new turn by themselves.
        wakes: bool,
    }

    /// Data of `turn.retry`.
    TurnRetry {
        /// The turn.
        turn_id: TurnId,
        /// The attempt that comes, from 2.
        attempt: u32,
        /// Milliseconds until then.
        delay_ms: u64,
        /// Class of the failure.
        class: FailureClass,
        /// What failed.
        error: String,
        /// The provider that is asked then; none for the one that failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider: Option<Arc<str>>,
    }

    /// Data of `turn.attempt`.
    TurnAttempt {
        /// The turn.
        turn_id: TurnId,
        /// The attempt, from 2.
        attempt: u32,
    }

    /// Data of `turn.waiting`.
    TurnWaiting {
        /// The turn.
        turn_id: TurnId,
        /// The tool call that waits.
        call_id: CallId,
        /// The request whose answer it waits for.
        message_id: MessageId,
        /// Who is to answer.
        recipient: AgentId,
        /// When the waiting ends; null for never.
        until: Option<Timestamp>,
        /// What the end of the waiting means.
        on_expiry: Expiry,
    }

    /// Data of `wait.expired`.
    WaitExpired {
        /// The turn.
        turn_id: TurnId,
        /// The tool call that waits.
        call_id: CallId,
        /// What it means.
        outcome: Expiry,
    }

    /// Data of `turn.resumed`.
    TurnResumed {
        /// The turn.
        turn_id: TurnId,
        /// The tool call that waited.
        call_id: CallId,
    }

    /// Data of `tool_call.invoked`.
    ToolCallInvoked {
        /// The turn.
        turn_id: TurnId,
        /// Identity of the call.
        call_id: CallId,
        /// Name of the tool.
        tool: Arc<str>,
        /// Its arguments.
        args: Json,
    }

    /// Data of `tool_call.result`: a result or an error.
    ToolCallResult {
        /// The turn.
        turn_id: TurnId,
        /// Identity of the call.
        call_id: CallId,
        /// Name of the tool.
        tool: Arc<str>,
        /// What it returned.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        result: Option<Json>,
        /// Why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// Why it was refused, as [`Rejection::code`](crate::model::Rejection::code) says it; none
        /// when it was not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    }

    /// Data of `request.recorded`.
    RequestRecorded {
        /// The idempotency key.
        request_id: String,
        /// What was asked, as a digest.
        fingerprint: String,
        /// Until when a repetition is answered.
        expires: Timestamp,
        /// What it came to.
        outcome: Outcome,
    }

    /// Data of `daemon.started`.
    DaemonStarted {
        /// Version of the daemon.
        version: String,
    }

    /// Data of `daemon.recovered`.
    DaemonRecovered {
        /// Turns that were interrupted.
        interrupted_turns: u32,
        /// Tool calls whose outcome is unknown.
        orphaned_calls: u32,
        /// Messages that went back to their inboxes.
        returned_messages: u32,
    }

    /// Data of `daemon.stopped`.
    DaemonStopped {}

    /// Data of `home.imported`.
    HomeImported {
        /// Agents that go on.
        agents: u64,
        /// Agents that had ended, or could not go on.
        ended: u64,
        /// Workspaces.
        workspaces: u64,
        /// Turns.
        turns: u64,
        /// Messages.
        messages: u64,
        /// Messages that wait to be delivered.
        pending: u64,
        /// What was not taken over as it was; the first hundred of it.
        skipped: Vec<String>,
        /// The folder in the home that has the old files.
        kept: String,
    }
}

/// A value that is there, `null` too: a tool may return that.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}
