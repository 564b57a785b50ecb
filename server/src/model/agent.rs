//! Agents: the nodes of the tree.
//!
//! ```text
//!          turn.start            turn.waiting
//!  idle ──────────────► busy ◄──────────────► waiting
//!   ▲                    │      turn.resumed     │
//!   └────────────────────┴───────────────────────┘
//!     turn.complete, turn.failed, turn.cancelled, turn.interrupted
//!
//!  any ──agent.terminated──► terminated
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::slots::Place;
use super::subscription::is_zero;
use super::turn::Over;
use super::{
    Access, Account, AgentId, Doing, Message, MessageId, Multicast, Name, Notice, Party, Ready,
    Reminder, Requests, Session, SessionState, Subscription, Timestamp, Turn, TurnId, Wait,
    WorkspaceId,
};

/// What an agent is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// No turn runs.
    Idle,
    /// A turn runs.
    Busy(Box<Turn>),
    /// A turn runs and is blocked on an answer; its slot is given up.
    Waiting(Box<Turn>, Box<Wait>),
    /// Ended for good.
    Terminated,
}

/// Whether turns may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    /// Yes.
    #[default]
    Open,
    /// Only so many.
    Gated {
        /// Turns still permitted.
        permits: u32,
    },
}

/// How turns ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TurnCounts {
    /// With an answer.
    pub completed: u64,
    /// With an error.
    pub failed: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// By the end of the daemon.
    pub interrupted: u64,
}

/// A node of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// Identity.
    pub id: AgentId,
    /// Name, unique among its siblings.
    pub name: Name,
    /// Parent; none for a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<AgentId>,
    /// Live children in the order of their creation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<AgentId>,
    /// Advisory role.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// What it is told to be.
    pub instructions: Arc<str>,
    /// Where it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceId>,
    /// Folder of the workspace that is all it sees, in normal form; empty for the whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workspace_subdir: String,
    /// The most that it may do there.
    #[serde(default, skip_serializing_if = "Access::is_full")]
    pub workspace_access: Access,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Its session.
    pub session: Session,
    /// What it is doing.
    pub activity: Activity,
    /// Messages in the order in which they are delivered: high priority first, then oldest first.
    /// Those of a running turn stay until it completes.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub inbox: VecDeque<Message>,
    /// Whether turns may start.
    #[serde(default)]
    pub gate: Gate,
    /// Whether and since when it wants to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Ready>,
    /// The turn of its parent that spawned it, while that turn is not over: until then it
    /// does not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born_in: Option<TurnId>,
    /// Requests whose waiting calls were answered "pending": their answers come as messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outstanding: Vec<MessageId>,
    /// Multicasts whose answers are collected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub multicasts: Vec<Multicast>,
    /// What it wants to be reminded of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reminders: Vec<Reminder>,
    /// Whom it watches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<Subscription>,
    /// Transitions that it is still to be told of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
    /// How many agents were woken one after the other by nothing but notices of transitions, up to
    /// its last turn.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hops: u32,
    /// What it is doing for those who watch it, while a turn that was interrupted is still to run
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_as: Option<Doing>,
    /// Tool calls with idempotency keys.
    #[serde(default, skip_serializing_if = "Requests::is_empty")]
    pub(super) requests: Requests,
    /// Interrupted turns since the last one that ended otherwise.
    #[serde(default)]
    pub setbacks: u32,
    /// How its turns ended.
    #[serde(default)]
    pub turns: TurnCounts,
    /// What it used, and what it may use.
    #[serde(default, skip_serializing_if = "Account::is_blank")]
    pub account: Account,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its activity last changed.
    pub active_at: Timestamp,
    /// Where it stands in the indexes of the slots; derived.
    #[serde(skip)]
    pub(super) place: Place,
}

impl Agent {
    /// Whether it is not terminated.
    pub fn is_live(&self) -> bool {
        !matches!(self.activity, Activity::Terminated)
    }

    /// The running turn, blocked or not.
    pub fn turn(&self) -> Option<&Turn> {
        match &self.activity {
            Activity::Busy(turn) | Activity::Waiting(turn, _) => Some(turn),
            Activity::Idle | Activity::Terminated => None,
        }
    }

    /// The running turn, if it is this one.
    pub fn turn_is(&self, id: TurnId) -> Option<&Turn> {
        self.turn().filter(|turn| turn.id == id)
    }

    pub(super) fn turn_mut(&mut self) -> Option<&mut Turn> {
        match &mut self.activity {
            Activity::Busy(turn) | Activity::Waiting(turn, _) => Some(turn),
            Activity::Idle | Activity::Terminated => None,
        }
    }

    /// What the running turn is blocked on.
    pub fn wait(&self) -> Option<&Wait> {
        match &self.activity {
            Activity::Waiting(_, wait) => Some(wait),
            Activity::Idle | Activity::Busy(_) | Activity::Terminated => None,
        }
    }

    /// Whether it is blocked on an answer, in a turn or between turns.
    pub fn is_waiting(&self) -> bool {
        self.doing() == Doing::Waiting
    }

    /// What it is doing, in one word.
    pub fn doing(&self) -> Doing {
        match self.activity {
            Activity::Idle if self.outstanding.is_empty() && self.multicasts.is_empty() => {
                Doing::Idle
            }
            Activity::Idle | Activity::Waiting(..) => Doing::Waiting,
            Activity::Busy(_) => Doing::Busy,
            Activity::Terminated => Doing::Terminated,
        }
    }

    /// Whether a turn may start as far as the agent itself is concerned.
    pub(super) fn may_start(&self) -> bool {
        let let_through = match self.gate {
            Gate::Open => true,
            Gate::Gated { permits } => permits > 0,
        };
        self.born_in.is_none() && let_through
    }

    /// Where it belongs in the indexes of the slots.
    pub(super) fn wanted_place(&self) -> Place {
        let live = matches!(self.session.state, SessionState::Active | SessionState::Suspending);
        let (queue, waits) = match &self.activity {
            Activity::Idle => match self.ready {
                Some(ready) if ready.resumes() || self.may_start() => (Some(ready.since), false),
                _ => (None, false),
            },
            Activity::Waiting(_, wait) => {
                (self.ready.filter(|_| wait.over.is_some()).map(|ready| ready.since), true)
            }
            Activity::Busy(_) | Activity::Terminated => (None, false),
        };
        let idle =
            matches!(self.activity, Activity::Idle) && self.session.state == SessionState::Active;
        let wait_over = self.wait().filter(|wait| wait.over.is_none()).and_then(|wait| wait.until);
        let deadlines = wait_over
            .into_iter()
            .chain(self.reminders.iter().filter(|one| self.hears(one)).map(|one| one.due))
            .chain(self.multicasts.iter().map(|multicast| multicast.until));
        Place {
            queue,
            idle: idle.then_some(self.session.used),
            held: live && !waits,
            suspending: self.session.state == SessionState::Suspending,
            stale: idle && self.session.stale,
            deadline: deadlines.min(),
            news: !self.notices.is_empty() || self.multicasts.iter().any(Multicast::is_complete),
            busy: matches!(self.activity, Activity::Busy(_)),
            waiting: self.is_waiting(),
        }
    }

    /// The message that the running turn goes on with, if its wait was answered.
    pub(super) fn answer(&self) -> Option<&Message> {
        match self.wait()?.over {
            Some(Over::Answered(id)) => self.message(id),
            Some(Over::Expired(_)) | None => None,
        }
    }

    /// The other side of its one hop upwards: the parent, or USER for a root.
    pub fn superior(&self) -> Party {
        self.parent.map_or(Party::User, Party::Agent)
    }
}
