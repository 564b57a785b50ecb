//! The words that events use for what there are few kinds of.

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $word:ident = $text:literal,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$word_doc])* #[serde(rename = $text)] $word,)+
        }

        impl $name {
            /// The word in the log.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$word => $text,)+ }
            }
        }
    )+};
}

words! {
    /// Why an agent ended.
    EndReason {
        /// It was asked for.
        Requested = "requested",
        /// An ancestor was ended with its subtree.
        Ancestor = "ancestor",
        /// It completed its work.
        Completed = "completed",
    }

    /// What was done to a gate.
    GateAction {
        /// Closed.
        Gate = "gate",
        /// Opened.
        Ungate = "ungate",
    }

    /// Why a session is suspended.
    SuspendReason {
        /// Another session needs the slot.
        Evicted = "evicted",
        /// It was asked for.
        Requested = "requested",
        /// Its instructions changed.
        Updated = "updated",
        /// The daemon stops.
        Shutdown = "shutdown",
    }

    /// Why a message left an inbox undelivered.
    DiscardReason {
        /// USER cancelled the turn that had it.
        Cancelled = "cancelled",
        /// Its recipient ended.
        Terminated = "terminated",
        /// USER did not want it to be delivered.
        Withdrawn = "withdrawn",
    }

    /// What the end of a wait for an answer means.
    Expiry {
        /// The call fails.
        Timeout = "timeout",
        /// The call returns "pending"; the answer comes as a message.
        Pending = "pending",
        /// The call fails, since its caller went away.
        Cancelled = "cancelled",
    }

    /// How far an interrupted turn had come.
    Stage {
        /// It had not begun.
        BeforeStart = "before_start",
        /// No provider had been asked yet.
        AfterReceive = "after_receive",
        /// The provider was at work.
        DuringAgentExecution = "during_agent_execution",
        /// The provider had answered.
        AfterSuccess = "after_success",
        /// The provider had failed, and was not tried again yet.
        AfterFailure = "after_failure",
        /// Nobody can say.
        Unknown = "unknown",
    }

    /// What may be done about an interrupted turn.
    Advice {
        /// It has had no effect.
        SafeToRetry = "safe_to_retry",
        /// It may have had effects: whether it can be repeated is for the agent to know.
        CheckAgentIdempotency = "check_agent_idempotency",
        /// It has had its effects; only its answer may not have arrived.
        ResponseMayBeLost = "response_may_be_lost",
        /// The next attempt may go on where the failed one ended.
        RetryNextAgent = "retry_next_agent",
        /// A person has to look.
        ManualInspection = "manual_inspection",
    }
}

impl Stage {
    /// What may be done about a turn that ended there.
    pub fn advice(self) -> Advice {
        match self {
            Self::BeforeStart | Self::AfterReceive => Advice::SafeToRetry,
            Self::DuringAgentExecution => Advice::CheckAgentIdempotency,
            Self::AfterSuccess => Advice::ResponseMayBeLost,
            Self::AfterFailure => Advice::RetryNextAgent,
            Self::Unknown => Advice::ManualInspection,
        }
    }

    /// The same for a person.
    pub fn hint(self) -> &'static str {
        match self {
            Self::BeforeStart | Self::AfterReceive => "it did nothing yet: it is safe to do again",
            Self::DuringAgentExecution => {
                "it may have had effects: show the turn, and look whether it may be done again"
            }
            Self::AfterSuccess => "it did its work: look for its effects before it is done again",
            Self::AfterFailure => "its attempt had failed: the agent may try again",
            Self::Unknown => "show the turn, and see what happened in it",
        }
    }
}
