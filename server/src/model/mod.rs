//! The pure core: what the daemon knows, and how that may change.
//!
//! All durable state is a fold over [`Event`]s. [`decide`] reads the state and a [`Command`] and
//! returns events or a typed [`Rejection`]; [`State::apply`] is the only thing that changes state,
//! live and in recovery; [`next_step`] starts what has become possible; [`effect`] names what is
//! to be done in the world once an event is durable. [`transact`] is one turn of that crank.
//!
//! Nothing here does I/O, locks, awaits, reads a clock or depends on the order of a hash table.

mod activity;
mod agent;
mod apply;
mod arguments;
mod budget;
mod canonical;
mod catalogue;
mod command;
mod commit;
mod decide;
mod directory;
mod effect;
mod envelope;
mod environment;
mod event;
mod git_file;
mod id;
mod leftover;
mod limits;
mod look;
mod mail;
mod message;
mod multicast;
mod name;
mod offer;
mod policy;
mod prompt;
mod ready;
mod recent;
mod reconcile;
mod record;
mod rejection;
mod reminder;
mod request;
mod routing;
mod schedule;
mod session;
mod short;
mod slots;
mod state;
mod subscription;
#[cfg(test)]
mod tests;
mod time;
mod transact;
mod transcript;
mod turn;
mod usage;
mod workspace;
mod world;

pub use activity::{
    Backend, Choice, OpenPermission, Permission, PermissionAnswer, Stall, Told, ToolUse,
};
pub use agent::{Activity, Agent, Gate, TurnCounts};
pub use budget::{Account, Excess, Level, Limit, Measure, Scope};
pub use canonical::{NotJson, canonical, sha256};
pub use catalogue::*;

pub use command::{AgentRef, Command, NewAgent, Saved, TurnEnd};
pub use commit::{Commit, Line};
pub use decide::{Context, Decision, Draft, IdSource, decide};
pub use effect::{CallFailure, Effect, effect};
pub use envelope::HashMatch;
pub use environment::check as check_environment;
pub use event::*;
pub use id::*;
pub use leftover::Leftover;
pub use limits::{LimitKind, Limits};
pub use look::Look;
pub use message::{Kind, Message, Party, Priority};
pub use multicast::{Multicast, Sent};
pub use name::Name;
pub use offer::offered;
pub use policy::{Policy, ProviderPolicy, Resume};
pub use ready::Ready;
pub use recent::recent;
pub use reconcile::{Reconciliation, reconcile};
pub use record::{
    CrashPoint, ExecutionEvent, ExecutionEventType, ExecutionHeader, ExecutionRecord,
    FinalResponse, More, ProcessReport, Recorder, RouterDecision, TurnState, crash_point,
};
pub use rejection::{LINK_IN_HOME, LINK_MISSING, LINK_NOT_A_FOLDER, LINK_UNREADABLE, Rejection};
pub use reminder::Reminder;
pub use request::{Answered, Outcome, Request, Requests};
pub use schedule::next_step;
pub use session::{Session, SessionRecord, SessionState};
pub use short::Short;
pub use slots::PoolUse;
pub use state::{Snapshot, State};
pub use subscription::{Doing, Notice, Pattern, Subscription};
pub use time::Timestamp;
pub use transact::{Transaction, settle, transact};
pub use turn::{FailureClass, Turn, Wait};
pub use usage::Usage;
pub use workspace::{
    Access, Git, Link, NewView, NewWorkspace, View, Workspace, covers,
    normal_path as workspace_path,
};
pub use world::{LinkPlace, Mount, Share, Source, World};
