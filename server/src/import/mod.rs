//! Taking over a home of the Python Substrat, once.
//!
//! ```text
//!  agents/<hex>/…           ─read─► Source ─assemble─► Member… ─convert─► events ─┐
//!  workspaces/<scope>/<name>                                                      ▼
//!  agents.import/… ◄─ projections ◄───────────────── numbered, and folded by State::apply
//! ```
//!
//! Everything is written beside what is there, and synced. The checkpoint makes it count: before
//! it the home is as it was, after it the folders only have to get their names ([`finish`], which
//! every start begins with). `docs/python-home.md` says what is taken over, and what is not.

mod history;
mod line;
mod report;
mod source;
mod store;
mod team;
#[cfg(test)]
mod tests;
mod workspaces;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use self::history::{Dated, History};
use self::source::Source;
use self::store::Store;
use self::team::Member;
use crate::journal::{self, Disk};
use crate::model::{
    Access, AgentCreated, AgentId, DaemonStopped, Event, IdSource, Name, SessionCreated, SessionId,
    SessionOpened, Timestamp,
};
use crate::projection;

pub use report::Report;
pub use store::{REPORT_PATH, finish};

/// Why a home could not be taken over. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] journal::Error),
    /// The logs could not be written.
    #[error(transparent)]
    Projection(#[from] projection::Error),
}

/// What an import has to know.
pub struct Options<'a> {
    /// Where the home is.
    pub home: &'a Path,
    /// The path of a host folder without symbolic links, if it is there.
    pub real: &'a dyn Fn(&str) -> Option<String>,
    /// Those of the journal.
    pub journal: journal::Options,
    /// Most files that are kept open.
    pub max_open_files: usize,
}

/// Whether this is a home of the Python Substrat that was not taken over yet. Reads only.
pub fn is_waiting(disk: &dyn Disk) -> Result<bool, Error> {
    // What is wrong with a journal is for recovery to say.
    let is_new = matches!(journal::first_sequence(disk), Ok(None))
        && matches!(journal::checkpoint::read(disk)?, journal::checkpoint::Found::Nothing);
    Ok(is_new && source::is_there(disk)?)
}

/// Takes a home over. The folder of the journal is there, and empty.
///
/// # Errors
///
/// The home is as it was, but for files that the next start replaces.
pub fn take_over(
    disk: &Arc<dyn Disk>,
    options: &Options<'_>,
    now: Timestamp,
    ids: &mut dyn IdSource,
) -> Result<Report, Error> {
    let mut report = Report::default();
    let source = Source::read(&**disk, &mut report)?;
    let events = convert(source, options, ids, &mut report);
    let kept = store::free_name(&**disk)?;
    let mut store = Store::begin(disk, options.max_open_files)?;
    for (session, at, event) in events {
        store.push(session, at, event)?;
    }
    store.push_last(now, report.event(&kept))?;
    if report.open_turns == 0 {
        // Nothing is left for recovery to put right.
        store.push_last(now, DaemonStopped {})?;
    }
    store.commit(options.journal, &report.text(&kept))?;
    finish(&**disk)?;
    Ok(report)
}

/// The log that an event goes to (none for the daemon's own), its time, and the event.
type Placed = (Option<SessionId>, Timestamp, Event);

/// All events in an order that can be applied: what exists comes first, parents before their
/// children, and then what happened, by time.
fn convert(
    source: Source,
    options: &Options<'_>,
    ids: &mut dyn IdSource,
    report: &mut Report,
) -> Vec<Placed> {
    let (events, known) = workspaces::convert(&source.workspaces, options, ids, report);
    let mut placed: Vec<Placed> = events.into_iter().map(|(at, event)| (None, at, event)).collect();
    let members = team::assemble(source.sessions, report);
    for member in &members {
        placed.extend(create(member, &known, report));
    }
    let names: BTreeMap<AgentId, Name> =
        members.iter().map(|member| (member.created.agent_id, member.name.clone())).collect();
    let live: BTreeSet<AgentId> = members
        .iter()
        .filter(|member| member.is_live())
        .map(|member| member.created.agent_id)
        .collect();
    let mut happened: Vec<(Timestamp, Placed)> = Vec::new();
    let mut watching = Vec::new();
    for member in &members {
        let past = History::convert(member, &names, ids, report);
        for subscription in past.subscriptions {
            if live.contains(&subscription.target_id) {
                report.subscriptions += 1;
                watching.push((member.session.id, subscription));
            } else {
                let (name, target) = (&member.name, &subscription.target);
                report.note(format!("{name} does not watch {target} any more, which has ended"));
            }
        }
        happened.extend(in_log_order(member.session.id, past.events));
        match member.is_live() {
            true => report.agents += 1,
            false => report.ended += 1,
        }
        if past.is_open {
            let name = &member.name;
            report.note(format!("the last turn of {name} has no end: it was interrupted"));
        }
    }
    // Stable: what is of one time stays in the order of its log.
    happened.sort_by_key(|(at, _)| *at);
    let last = happened.last().map_or_else(Timestamp::default, |(at, _)| *at);
    placed.extend(happened.into_iter().map(|(_, event)| event));
    // At the end, so that nobody is told of what is long past.
    placed.extend(watching.into_iter().map(|(session, data)| (Some(session), last, data.into())));
    placed
}

/// Events with times to sort by that never go back within a log, whatever its clock did.
fn in_log_order(
    session: SessionId,
    events: Vec<Dated>,
) -> impl Iterator<Item = (Timestamp, Placed)> {
    let mut latest = Timestamp::from_micros(i64::MIN);
    events.into_iter().map(move |(at, event)| {
        latest = latest.max(at);
        (latest, (Some(session), at, event))
    })
}

/// A session and its agent. Its provider was started right away there.
fn create(member: &Member, known: &workspaces::Known, report: &mut Report) -> [Placed; 3] {
    let created = &member.created;
    let workspace = created.workspace.as_ref().and_then(|key| {
        let found = known.get(key).copied();
        if found.is_none() && member.is_live() {
            let (name, lost) = (&member.name, &key.1);
            report.note(format!("the workspace {lost:?} of {name} is not there: it has none"));
        }
        found
    });
    let (provider, model) = history::provider_of(member);
    let session = SessionCreated { provider: provider.clone(), model: model.clone() };
    let agent = AgentCreated {
        agent_id: created.agent_id,
        name: member.name.clone(),
        parent_session_id: member.parent,
        instructions: created.instructions.as_str().into(),
        role: String::new(),
        workspace,
        workspace_subdir: String::new(),
        workspace_access: Access::ReadWrite,
        metadata: line::labels(created.metadata.clone()),
        spawned_in: None,
    };
    let (id, at) = (Some(member.session.id), member.at);
    [
        (id, member.session.record.created_at, session.into()),
        (id, at, agent.into()),
        (id, at, SessionOpened { provider, model }.into()),
    ]
}
