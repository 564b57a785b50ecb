//! Events: what happened, as it stands in the journal and in every `events.jsonl`.
//!
//! A line is `{"seq":42,"session_id":"<hex>","ts":"<ISO 8601 UTC>","event":"turn.start","data":{…}}`.
//! Lines are a stability contract: plain JSON types, new keys may be added, none changes its
//! meaning. `docs/events.md` is the reference for readers; [`Event`] mirrors it.

#[macro_use]
mod data;
#[macro_use]
mod words;
mod activity;
mod attention;
mod process;
mod spending;
mod workspace;

use std::io::Write;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

use super::{SessionId, Timestamp};

pub use activity::*;
pub use attention::*;
pub use data::*;
pub use process::*;
pub use spending::*;
pub use words::*;
pub use workspace::*;

/// One event in its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its number: dense over the whole daemon, from 1.
    pub seq: u64,
    /// The session whose log it stands in; none for the daemon's own log.
    pub session: Option<SessionId>,
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}

/// A line that is no event.
#[derive(Debug, thiserror::Error)]
pub enum BadLine {
    /// Not the JSON of a line.
    #[error("not an event line: {0}")]
    Json(#[from] serde_json::Error),
    /// An event of a newer version.
    #[error("event {0:?} is not known to this version")]
    Unknown(String),
}

#[derive(Deserialize)]
struct Line<'a> {
    seq: u64,
    session_id: Option<SessionId>,
    ts: Timestamp,
    event: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    data: &'a RawValue,
}

impl Entry {
    /// Appends the line, with its newline.
    pub fn encode(&self, line: &mut Vec<u8>) {
        // Writing to a Vec cannot fail, and every data struct serializes.
        let _ = match self.session {
            Some(id) => write!(line, r#"{{"seq":{},"session_id":"{id}","ts":""#, self.seq),
            None => write!(line, r#"{{"seq":{},"session_id":null,"ts":""#, self.seq),
        };
        let _ = write!(line, r#"{}","event":"{}","data":"#, self.at, self.event.name());
        self.event.encode_data(line);
        line.extend_from_slice(b"}\n");
    }

    /// Reads a line, with or without its newline.
    pub fn decode(line: &[u8]) -> Result<Self, BadLine> {
        if let Some(own) = OwnLine::split(line)
            && let Ok(event) = Event::decode(own.event, own.data)
        {
            return Ok(Self { seq: own.seq, session: own.session, at: own.at, event });
        }
        let line: Line<'_> = serde_json::from_slice(line)?;
        let event = Event::decode(&line.event, line.data.get())?;
        Ok(Self { seq: line.seq, session: line.session_id, at: line.ts, event })
    }
}

/// A line as [`Entry::encode`] writes it, taken apart without a pass over its data: recovery reads
/// hundreds of thousands of them.
struct OwnLine<'a> {
    seq: u64,
    session: Option<SessionId>,
    at: Timestamp,
    event: &'a str,
    data: &'a str,
}

impl<'a> OwnLine<'a> {
    /// None for a line that was written by anyone else.
    fn split(line: &'a [u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let line = line.strip_suffix('\n').unwrap_or(line);
        let (seq, rest) = line.strip_prefix(r#"{"seq":"#)?.split_once(r#","session_id":"#)?;
        let (session, rest) = rest.split_once(r#","ts":""#)?;
        let (at, rest) = rest.split_once(r#"","event":""#)?;
        let (event, data) = rest.strip_suffix('}')?.split_once(r#"","data":"#)?;
        let session = match session {
            "null" => None,
            quoted => Some(quoted.strip_prefix('"')?.strip_suffix('"')?.parse().ok()?),
        };
        Some(Self { seq: seq.parse().ok()?, session, at: at.parse().ok()?, event, data })
    }
}

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// What happened.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Event {
            $($(#[$doc])* $name($name),)+
        }

        impl Event {
            /// Every event name.
            pub const NAMES: &'static [&'static str] = &[$($text),+];

            /// The name in the log.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => $text,)+ }
            }

            fn encode_data(&self, line: &mut Vec<u8>) {
                let written = match self {
                    $(Self::$name(data) => serde_json::to_writer(line, data),)+
                };
                debug_assert!(written.is_ok(), "event data serializes: {written:?}");
            }

            fn decode(name: &str, data: &str) -> Result<Self, BadLine> {
                match name {
                    $($text => Ok(Self::$name(serde_json::from_str(data)?)),)+
                    other => Err(BadLine::Unknown(other.to_owned())),
                }
            }
        }

        $(impl From<$name> for Event {
            fn from(data: $name) -> Self {
                Self::$name(data)
            }
        })+
    };
}

events! {
    /// A session exists.
    SessionCreated = "session.created",
    /// An agent exists.
    AgentCreated = "agent.created",
    /// Its instructions or role changed.
    AgentUpdated = "agent.updated",
    /// One of its labels changed.
    MetadataUpdated = "metadata.updated",
    /// It ends itself when its turn completes.
    AgentCompleting = "agent.completing",
    /// It ended for good.
    AgentTerminated = "agent.terminated",
    /// The task that ran its provider crashed.
    AgentCrashed = "agent.crashed",
    /// A gate was closed or opened.
    ToolGate = "tool.gate",
    /// One turn was permitted.
    ToolPermitTurn = "tool.permit_turn",
    /// It wants to be told what another agent does.
    ToolSubscribe = "tool.subscribe",
    /// It does not want that any more.
    ToolUnsubscribe = "tool.unsubscribe",
    /// It is told of a transition.
    SubscriptionFired = "subscription.fired",
    /// It wants to be reminded.
    ReminderSet = "reminder.set",
    /// It does not want that any more.
    ReminderCancelled = "reminder.cancelled",
    /// It is reminded.
    ReminderFired = "reminder.fired",
    /// Created → active.
    SessionOpened = "session.opened",
    /// Suspended → active.
    SessionRestored = "session.restored",
    /// Someone wants it live.
    SessionResuming = "session.resuming",
    /// Active → suspending.
    SessionSuspending = "session.suspending",
    /// Suspending → suspended.
    SuspendResult = "suspend.result",
    /// The provider gave a new state to resume from.
    SessionSaved = "session.saved",
    /// A terminated session and its log are gone.
    SessionDeleted = "session.deleted",
    /// A message entered an inbox.
    MessageEnqueued = "message.enqueued",
    /// It left it with a completed turn, or was acknowledged by USER.
    MessageDelivered = "message.delivered",
    /// It was read within a turn, and leaves with it.
    MessageCollected = "message.collected",
    /// It left without having been delivered.
    MessageDiscarded = "message.discarded",
    /// It lies in the inbox, in no further turn, since backends refuse it.
    MessageSetAside = "message.set_aside",
    /// USER wants a turn with it.
    MessageRetried = "message.retried",
    /// One message was sent to every sibling.
    MulticastSent = "multicast.sent",
    /// All have answered it, or the time is up.
    MulticastEnded = "multicast.ended",
    /// A turn starts.
    TurnStart = "turn.start",
    /// It ended with an answer.
    TurnComplete = "turn.complete",
    /// It ended with an error.
    TurnFailed = "turn.failed",
    /// Its end was asked for.
    TurnCancelling = "turn.cancelling",
    /// It ended because it was asked to.
    TurnCancelled = "turn.cancelled",
    /// It ended because the daemon died.
    TurnInterrupted = "turn.interrupted",
    /// It failed in a way that may pass, and is tried again.
    TurnRetry = "turn.retry",
    /// The pause after a failed attempt is over: the next one starts.
    TurnAttempt = "turn.attempt",
    /// It is blocked on an answer.
    TurnWaiting = "turn.waiting",
    /// The time for the answer is up.
    WaitExpired = "wait.expired",
    /// It goes on after having been blocked.
    TurnResumed = "turn.resumed",
    /// A turn may not start, since a budget is used up.
    TurnRefused = "turn.refused",
    /// A turn used something up.
    UsageReported = "usage.reported",
    /// A budget was set, changed or removed.
    BudgetChanged = "budget.changed",
    /// Most of a budget is used.
    BudgetWarning = "budget.warning",
    /// All of it is used.
    BudgetExhausted = "budget.exhausted",
    /// A budget that held an agent allows it turns again.
    BudgetReleased = "budget.released",
    /// A tool is about to be called.
    ToolCallInvoked = "tool_call.invoked",
    /// The call ended.
    ToolCallResult = "tool_call.result",
    /// A workspace exists.
    WorkspaceCreated = "workspace.created",
    /// Its network switch, variables or limits changed.
    WorkspaceUpdated = "workspace.updated",
    /// It shows a folder from elsewhere.
    WorkspaceLinked = "workspace.linked",
    /// It does not show it any more.
    WorkspaceUnlinked = "workspace.unlinked",
    /// It is gone.
    WorkspaceDeleted = "workspace.deleted",
    /// The model said something before it went on.
    TurnSaid = "turn.said",
    /// The backend tells people something.
    TurnNotice = "turn.notice",
    /// Nothing is heard of the backend.
    TurnStalled = "turn.stalled",
    /// A tool of the backend starts.
    ToolUseStarted = "tool_use.started",
    /// It ended.
    ToolUseEnded = "tool_use.ended",
    /// The backend asks whether it may use a tool.
    PermissionAsked = "permission.asked",
    /// It was answered.
    PermissionAnswered = "permission.answered",
    /// It needs no answer any more.
    PermissionWithdrawn = "permission.withdrawn",
    /// What a process wrote to its standard error in a turn.
    TurnStderr = "turn.stderr",
    /// A process ended.
    ProcessExited = "process.exited",
    /// A process was kept from taking more than it may.
    LimitHit = "limit.hit",
    /// A turn's process ran without a sandbox.
    SandboxOff = "sandbox.off",
    /// A mutation with an idempotency key was done.
    RequestRecorded = "request.recorded",
    /// A daemon serves.
    DaemonStarted = "daemon.started",
    /// The daemon before it had died.
    DaemonRecovered = "daemon.recovered",
    /// A daemon stopped cleanly.
    DaemonStopped = "daemon.stopped",
    /// What another program left was taken over.
    HomeImported = "home.imported",
}

impl Event {
    /// Whether a turn ends with it.
    pub fn ends_turn(&self) -> bool {
        matches!(
            self,
            Self::TurnComplete(_)
                | Self::TurnFailed(_)
                | Self::TurnCancelled(_)
                | Self::TurnInterrupted(_)
        )
    }

    /// Its data as JSON.
    pub fn data(&self) -> serde_json::Value {
        let mut json = Vec::new();
        self.encode_data(&mut json);
        serde_json::from_slice(&json).unwrap_or_default()
    }
}

/// JSON that the daemon carries without looking into it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Json(Box<RawValue>);

impl Json {
    /// The JSON of a value.
    pub fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// The JSON `null`.
    pub fn null() -> Self {
        Self(RawValue::NULL.to_owned())
    }

    /// The text.
    pub fn get(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl std::fmt::Debug for Json {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.get())
    }
}

/// Bytes that a provider gave; base64 in JSON.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Blob(std::sync::Arc<[u8]>);

impl Blob {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// How many they are.
    pub fn size(&self) -> u64 {
        self.0.len() as u64
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text.as_bytes()).map(Self::from).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TurnId;

    #[test]
    fn a_line_has_its_keys_in_order_and_reads_back() {
        let entry = Entry {
            seq: 42,
            session: Some(SessionId::from_u128(7)),
            at: Timestamp::from_micros(1_772_107_200_000_000),
            event: TurnStart::new(TurnId::from_u64(1), "größe\n\"x\"".into(), vec![]).into(),
        };
        let mut line = Vec::new();
        entry.encode(&mut line);
        assert_eq!(
            String::from_utf8_lossy(&line),
            "{\"seq\":42,\"session_id\":\"00000000000000000000000000000007\",\
             \"ts\":\"2026-02-26T12:00:00.000000Z\",\"event\":\"turn.start\",\
             \"data\":{\"turn_id\":\"exec-0000000000000001\",\"prompt\":\"größe\\n\\\"x\\\"\"}}\n"
        );
        assert_eq!(Entry::decode(&line).unwrap(), entry);
    }

    #[test]
    fn unknown_keys_are_passed_over_and_unknown_events_named() {
        let line = br#"{"seq":1,"session_id":null,"ts":"2026-02-26T12:00:00Z","event":"daemon.started","data":{"version":"9","new":[1]},"later":true}"#;
        assert!(Entry::decode(line).is_ok());
        let line = br#"{"seq":1,"session_id":null,"ts":"2026-02-26T12:00:00Z","event":"from.later","data":{}}"#;
        assert!(matches!(Entry::decode(line), Err(BadLine::Unknown(name)) if name == "from.later"));
    }
}
