//! Reading the conversation of a session from its log, off the engine.

use std::io;

use super::{Archive, Handle};
use crate::model::{AgentId, Entry, Event, FailureClass, SessionId, TurnId};
use crate::provider::Failure;
use crate::provider::history::{Change, History, fold, repair, weight};

/// Bytes of a log that are read at once.
const CHUNK: usize = 256 << 10;

/// The conversation of an agent's session up to its running turn. No more of it is held than may
/// be handed out, and a piece of the log.
pub(super) async fn read(
    handle: &Handle,
    agent: AgentId,
    turn: TurnId,
) -> Result<History, Failure> {
    let failed = |why: String| Failure {
        class: FailureClass::Transient,
        message: format!("the conversation could not be read: {why}"),
        retry_after: None,
    };
    let place = handle.read(move |state| {
        let agent = state.agent(agent).filter(|agent| agent.turn_is(turn).is_some())?;
        let counts = agent.turns;
        let ended = counts.completed + counts.failed + counts.cancelled + counts.interrupted;
        Some((agent.session.id, state.seq() + 1, ended))
    });
    let place = place.await.map_err(|refusal| failed(refusal.to_string()))?;
    let (session, end, ended) = place.ok_or_else(|| failed("the turn is over".to_owned()))?;
    let (archive, limit) = (handle.archive().clone(), handle.shared.history_bytes);
    archive.settled().await;
    let work = tokio::task::spawn_blocking(move || {
        let entries = newest(&*archive, session, (turn, end), limit)?;
        let (turns, changes) = repair(fold(entries, turn));
        tell(session, &changes);
        Ok(History::newest(turns, limit, ended))
    });
    let read: io::Result<History> = work.await.map_err(|error| failed(error.to_string()))?;
    read.map_err(|error| failed(error.to_string()))
}

/// The newest events of a conversation, below sequence `end`, until they weigh more than `limit`.
/// What the running turn did in the attempt that runs is no part of it.
fn newest(
    archive: &dyn Archive,
    session: SessionId,
    (running, mut end): (TurnId, u64),
    limit: usize,
) -> io::Result<Vec<Entry>> {
    let mut newest_first = Vec::new();
    let (mut bytes, mut over) = (0, false);
    while bytes <= limit {
        let entries = archive.before(session, end, CHUNK)?;
        let Some(first) = entries.first() else { break };
        end = first.seq;
        for entry in entries.into_iter().rev() {
            over |= match &entry.event {
                Event::TurnStart(data) => data.turn_id == running,
                Event::TurnRetry(data) => data.turn_id == running,
                _ => false,
            };
            if let Some(weight) = weight(&entry.event).filter(|_| over) {
                bytes += weight;
                newest_first.push(entry);
            }
        }
    }
    newest_first.reverse();
    Ok(newest_first)
}

/// Calls that overlap are put in order as a matter of course; all else is a flaw of the log.
fn tell(session: SessionId, changes: &[Change]) {
    let flaws: Vec<&Change> =
        changes.iter().filter(|change| !matches!(change, Change::Moved(_))).collect();
    if !flaws.is_empty() {
        tracing::warn!(%session, ?flaws, "the conversation was repaired");
    }
}
