//! Turns: one prompt to one provider and everything until its end.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{AgentId, Backend, CallId, Expiry, MessageId, Party, Stage, Timestamp, TurnId, Usage};

/// A turn that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Identity.
    pub id: TurnId,
    /// Sequence of its `turn.start`.
    pub seq: u64,
    /// When it started.
    pub at: Timestamp,
    /// Messages that it was started with or has collected since. They leave the inbox when it
    /// completes.
    pub messages: Vec<MessageId>,
    /// Tool calls without a result yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
    /// Whether it used up a permit of the gate that its agent still has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permitted: bool,
    /// The attempt that comes, while the turn pauses after one that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<u32>,
    /// How it failed with the session's own provider, where another one stands in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_failure: Option<FailureClass>,
    /// Who asked for its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelling: Option<Party>,
    /// The result with which the agent ends itself when the turn completes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completing: Option<Arc<str>>,
    /// What it used so far, apart from being a turn.
    #[serde(default, skip_serializing_if = "Usage::is_zero")]
    pub usage: Usage,
    /// What is known of its backend.
    #[serde(default, skip_serializing_if = "Backend::is_blank")]
    pub backend: Backend,
}

impl Turn {
    /// How far it has come, as the end of the daemon would leave it.
    pub fn stage(&self) -> Stage {
        match self.next_attempt {
            None => Stage::DuringAgentExecution,
            Some(_) => Stage::AfterFailure,
        }
    }
}

impl Turn {
    /// The failure that says whether its messages are why it failed: a provider that only stood in
    /// may take less than the session's own.
    pub fn blamed(&self, last: FailureClass) -> FailureClass {
        self.own_failure.unwrap_or(last)
    }

    /// Whether USER asked for its end: it does not come again.
    pub fn is_cancelled_by_user(&self) -> bool {
        self.cancelling == Some(Party::User)
    }
}

/// A tool call without a result yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Identity.
    pub id: CallId,
    /// Name of the tool.
    pub tool: Arc<str>,
}

/// What a turn is blocked on: the answer to a request that it sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The tool call that waits.
    pub call: CallId,
    /// The request.
    pub request: MessageId,
    /// Who is to answer.
    pub recipient: AgentId,
    /// When the waiting ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What the end of the waiting means.
    pub on_expiry: Expiry,
    /// What the call goes on with, as soon as its agent has a slot again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Over>,
}

/// Why a wait is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// This message answers the request.
    Answered(MessageId),
    /// Its time is up.
    Expired(Expiry),
}

/// Why a turn failed, which decides what may be tried next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureClass {
    /// May work if tried again.
    Transient,
    /// The backend wants fewer requests.
    RateLimit,
    /// The backend has too much to do.
    Overload,
    /// The backend was not reached, or the connection broke.
    Network,
    /// Nothing was heard of the backend for too long.
    Stalled,
    /// Will not work as it is.
    Permanent,
    /// The backend knows no such key, or lets it do nothing.
    Auth,
    /// The backend understood the request, and refused it.
    InvalidRequest,
    /// The backend did not keep to its protocol.
    Protocol,
    /// The process that ran the turn was killed, and not by the daemon.
    Killed,
    /// The conversation does not fit the model any more.
    Overflow,
    /// A budget is used up.
    Budget,
    /// The sandbox could not be set up.
    Sandbox,
    /// The provider went away, or what it needs is not there: its program, its model.
    ProviderGone,
}

impl FailureClass {
    /// The name in the logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::RateLimit => "rate-limit",
            Self::Overload => "overload",
            Self::Network => "network",
            Self::Stalled => "stalled",
            Self::Permanent => "permanent",
            Self::Auth => "auth",
            Self::InvalidRequest => "invalid-request",
            Self::Protocol => "protocol",
            Self::Killed => "killed",
            Self::Overflow => "overflow",
            Self::Budget => "budget",
            Self::Sandbox => "sandbox",
            Self::ProviderGone => "provider-gone",
        }
    }

    /// Whether the same may work if it is tried again.
    pub fn may_pass(self) -> bool {
        use FailureClass as Is;
        matches!(self, Is::Transient | Is::RateLimit | Is::Overload | Is::Network | Is::Stalled)
    }

    /// Whether another provider may do what failed: not where it was asked for something wrong, or
    /// may not cost more.
    pub fn may_fall_back(self) -> bool {
        !matches!(self, Self::Permanent | Self::InvalidRequest | Self::Budget)
    }
    /// Whether it has nothing to do with what was asked: who was to be asked was not reached, or
    /// did not want to be.
    pub fn spares_messages(self) -> bool {
        use FailureClass as Is;
        matches!(
            self,
            Is::RateLimit
                | Is::Overload
                | Is::Network
                | Is::Auth
                | Is::Budget
                | Is::Sandbox
                | Is::ProviderGone
        )
    }

    /// Whether what was asked may be why: asked once more, it fails once more.
    pub fn blames_messages(self) -> bool {
        matches!(self, Self::InvalidRequest | Self::Protocol | Self::Overflow)
    }
}
