//! Turns and their execution records, from the logs.
//!
//! A record is never stored: it is folded from the events of its turn each time. The id of a turn
//! says where its first event stands, so that one is found without an index.

use std::sync::Arc;

use prost::Message;
use serde_json::Value;
use substrat_proto::v1;
use tonic::Status;

use super::status::{refused, rejected, unreadable};
use super::{Api, convert, request};
use crate::engine::Archive;
use crate::model::{
    Agent, Event, ExecutionRecord, HashMatch, ProcessReport, Recorder, Rejection, SessionId, State,
    TurnId, TurnState,
};

/// Characters of a prompt in a summary.
const PROMPT_START: usize = 200;
/// Bytes of events and canonical envelope in a record on the wire: half of what a client takes that
/// sets no limit of its own.
const MAX_EVENT_BYTES: usize = 2 << 20;
/// Bytes of events in a record on the wire, however large its envelope is.
const MIN_EVENT_BYTES: usize = 256 << 10;
/// Events that are read for a page before it ends with what was found.
const MAX_SCANNED: usize = 20_000;

/// Whose log a turn stands in.
#[derive(Clone)]
struct Owner {
    session: SessionId,
    /// Sequence of the first event in its log.
    first: u64,
    agent: String,
    path: String,
    provider: Arc<str>,
}

impl Owner {
    fn of(state: &State, agent: &Agent) -> Self {
        Self {
            session: agent.session.id,
            first: agent.session.first_seq,
            agent: agent.id.to_string(),
            path: state.path(agent),
            provider: agent.session.provider.clone(),
        }
    }

    /// The record of the turn that starts at a sequence, if it is this turn.
    fn record(
        &self,
        archive: &dyn Archive,
        id: TurnId,
        seq: u64,
    ) -> std::io::Result<Option<ExecutionRecord>> {
        let mut recorder: Option<Recorder> = None;
        archive.scan(self.session, seq, &mut |entry| match &mut recorder {
            Some(recorder) => recorder.take(&entry).is_continue(),
            None => {
                let is_it = matches!(&entry.event, Event::TurnStart(data) if data.turn_id == id);
                recorder = Recorder::start(&entry, &self.provider).filter(|_| is_it);
                is_it
            }
        })?;
        Ok(recorder.map(Recorder::finish))
    }

    /// The sequence of the first event of a turn whose id does not say it. Such turns were written
    /// by older versions, and stand before all others of the daemon: `end` falls to the first of
    /// those that is seen, and nothing is read from there on.
    fn search(
        &self,
        archive: &dyn Archive,
        id: TurnId,
        end: &mut u64,
    ) -> std::io::Result<Option<u64>> {
        let mut found = None;
        if self.first >= *end {
            return Ok(found);
        }
        archive.scan(self.session, 1, &mut |entry| {
            if let Event::TurnStart(data) = &entry.event {
                if data.turn_id == id {
                    found = Some(entry.seq);
                } else if data.envelope_hash.is_some() {
                    *end = entry.seq.min(*end);
                }
            }
            found.is_none() && entry.seq < *end
        })?;
        Ok(found)
    }
}

/// The record of a turn of an older version. The owners come in the order of their creation.
fn old_record(
    archive: &dyn Archive,
    owners: Vec<Owner>,
    id: TurnId,
) -> std::io::Result<Option<Found>> {
    let mut end = u64::MAX;
    for owner in owners {
        if let Some(seq) = owner.search(archive, id, &mut end)? {
            let record = owner.record(archive, id, seq)?;
            return Ok(record.map(|record| Found { owner, record }));
        }
    }
    Ok(None)
}

/// A record, and whose it is.
pub(super) struct Found {
    owner: Owner,
    record: ExecutionRecord,
}

impl Api {
    /// Reads the logs once all that is durable is in them.
    async fn in_archive<R: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Archive) -> std::io::Result<R> + Send + 'static,
    ) -> Result<R, Status> {
        let archive = self.engine.archive().clone();
        archive.settled().await;
        tokio::task::spawn_blocking(move || read(&*archive))
            .await
            .unwrap_or_else(|panic| Err(std::io::Error::other(panic)))
            .map_err(|error| unreadable(&error))
    }

    /// The record of a turn.
    pub(super) async fn record(&self, id: &str) -> Result<Found, Status> {
        let id = request::turn_id(id)?;
        let owners = self.engine.read(move |state| {
            let may_have_it = |agent: &&Agent| {
                let session = &agent.session;
                id.may_be_of(session.id)
                    && (session.first_seq..=session.last_seq).contains(&id.seq())
            };
            let owners = state.agents().filter(may_have_it);
            owners.map(|agent| Owner::of(state, agent)).collect::<Vec<_>>()
        });
        for owner in owners.await.map_err(|no| refused(&no))? {
            let of = owner.clone();
            let record = self.in_archive(move |archive| of.record(archive, id, id.seq())).await?;
            if let Some(record) = record {
                return Ok(Found { owner, record });
            }
        }
        self.old_record(id).await
    }

    /// The record of a turn of an older version.
    async fn old_record(&self, id: TurnId) -> Result<Found, Status> {
        let owners = self
            .engine
            .read(|state| state.agents().map(|agent| Owner::of(state, agent)).collect::<Vec<_>>());
        let owners = owners.await.map_err(|no| refused(&no))?;
        let found = self.in_archive(move |archive| old_record(archive, owners, id)).await?;
        found.ok_or_else(|| rejected(&Rejection::TurnNotFound { turn: id }))
    }

    /// A page of the turns of an agent.
    pub(super) async fn turns(
        &self,
        message: v1::ListTurnsRequest,
    ) -> Result<v1::ListTurnsResponse, Status> {
        let size = request::page_size(message.page_size, 100)?;
        let from = request::page_token(&message.page_token)?;
        let owner = self.of_agent(message.agent, Owner::of).await?;
        let incomplete = message.incomplete;
        self.in_archive(move |archive| {
            let mut page = Page { owner, size, incomplete, turns: Vec::new(), next: 0 };
            page.fill(archive, from)?;
            let next_page_token = match page.next {
                0 => String::new(),
                next => next.to_string(),
            };
            Ok(v1::ListTurnsResponse { turns: page.turns, next_page_token })
        })
        .await
    }
}

/// A page of turns in the making.
struct Page {
    owner: Owner,
    size: usize,
    incomplete: bool,
    turns: Vec<v1::TurnSummary>,
    /// Sequence at which the next page starts; 0 if there is none.
    next: u64,
}

impl Page {
    fn fill(&mut self, archive: &dyn Archive, from: u64) -> std::io::Result<()> {
        let mut running: Option<Recorder> = None;
        let mut scanned = 0;
        archive.scan(self.owner.session, from.max(1), &mut |entry| {
            scanned += 1;
            if let Some(recorder) = &mut running
                && recorder.take(&entry).is_continue()
            {
                return true;
            }
            self.add(running.take());
            if matches!(entry.event, Event::TurnStart(_)) {
                if self.turns.len() == self.size || scanned > MAX_SCANNED {
                    self.next = entry.seq;
                    return false;
                }
                running = Recorder::start(&entry, &self.owner.provider);
            }
            true
        })?;
        self.add(running);
        Ok(())
    }

    fn add(&mut self, recorder: Option<Recorder>) {
        let Some(record) = recorder.map(Recorder::finish) else { return };
        if !self.incomplete || record.crash_point.is_some() {
            self.turns.push(summary(&self.owner, &record));
        }
    }
}

impl Found {
    /// The answer from the record.
    pub(super) fn replayed(self) -> Result<v1::ReplayTurnResponse, Status> {
        let record = self.record;
        match record.response.filter(|_| record.header.replayable) {
            Some(response) => Ok(v1::ReplayTurnResponse {
                final_response: Some(final_response(response)),
                hash_match: hash_match(record.hash).into(),
                sequence: record.end.map_or(0, |(seq, _)| seq),
            }),
            None => Err(rejected(&Rejection::TurnNotReplayable {
                turn: record.header.id,
                reason: record.header.reason.unwrap_or("execution_incomplete"),
                stage: record.crash_point.map(|point| point.stage),
            })),
        }
    }

    pub(super) fn on_the_wire(self) -> v1::ExecutionRecord {
        let Self { owner, record } = self;
        let turn = summary(&owner, &record);
        let header = record.header;
        let total = record.events.len();
        let room = MAX_EVENT_BYTES.saturating_sub(record.envelope.len()).max(MIN_EVENT_BYTES);
        let mut bytes = 0;
        let events = record.events.into_iter().map(|event| v1::ExecutionEvent {
            seq: event.seq,
            r#type: event.kind.as_str().to_owned(),
            payload: Some(convert::object(event.payload)),
            timestamp: Some(convert::timestamp(event.at)),
            source_sequence: event.source,
        });
        let events: Vec<_> = events
            .take_while(|event| {
                bytes += event.encoded_len();
                bytes <= room
            })
            .collect();
        v1::ExecutionRecord {
            header: Some(v1::ExecutionHeader {
                execution_id: header.id.to_string(),
                created_utc: Some(convert::timestamp(header.created)),
                envelope_hash: header.envelope_hash,
                replayable: header.replayable,
                reason: header.reason.unwrap_or_default().to_owned(),
            }),
            envelope: Some(convert::object(
                serde_json::from_str(&record.envelope).unwrap_or_default(),
            )),
            router_decision: record.decision.map(|decision| v1::RouterDecision {
                agent: decision.agent,
                intent: decision.intent.to_owned(),
                reason: decision.reason,
                timestamp: Some(convert::timestamp(decision.at)),
            }),
            omitted_event_count: (total - events.len()) as i32,
            events,
            final_response: record.response.map(final_response),
            hash_match: hash_match(record.hash).into(),
            turn: Some(turn),
            envelope_json: record.envelope,
            processes: processes(record.processes),
        }
    }
}

fn summary(owner: &Owner, record: &ExecutionRecord) -> v1::TurnSummary {
    let (header, start) = (&record.header, &record.start);
    v1::TurnSummary {
        turn_id: header.id.to_string(),
        agent_id: owner.agent.clone(),
        agent_path: owner.path.clone(),
        session_id: owner.session.to_string(),
        state: match record.state {
            TurnState::Running => v1::TurnState::Running,
            TurnState::Completed => v1::TurnState::Completed,
            TurnState::Failed => v1::TurnState::Failed,
            TurnState::Cancelled => v1::TurnState::Cancelled,
            TurnState::Interrupted => v1::TurnState::Interrupted,
        }
        .into(),
        start_time: Some(convert::timestamp(header.created)),
        end_time: record.end.map(|(_, at)| convert::timestamp(at)),
        sequence: record.seq,
        end_sequence: record.end.map_or(0, |(seq, _)| seq),
        source: start.source.as_ref().map(ToString::to_string).unwrap_or_default(),
        provider: record.provider.clone(),
        model: start.model.as_deref().unwrap_or_default().to_owned(),
        prompt_start: start.prompt.chars().take(PROMPT_START).collect(),
        attempt_count: record.attempts as i32,
        tool_call_count: record.calls as i32,
        replayable: header.replayable,
        reason: header.reason.unwrap_or_default().to_owned(),
        crash_point: record.crash_point.as_ref().map(|point| v1::CrashPoint {
            stage: point.stage.as_str().to_owned(),
            recovery: point.recovery.as_str().to_owned(),
            agent: point.agent.clone().unwrap_or_default(),
        }),
    }
}

fn processes(report: ProcessReport) -> Option<v1::ProcessReport> {
    let exits = report.exits.into_iter().map(|exit| v1::ProcessExit {
        pid: exit.pid,
        status: exit.status,
        reason: exit.reason.unwrap_or_default(),
    });
    let limits = report.limits.into_iter();
    let limits = limits.map(|hit| format!("{}: {}", hit.limit.as_str(), hit.detail));
    let shown = v1::ProcessReport {
        stderr: report.stderr,
        stderr_bytes: report.stderr_bytes,
        exits: exits.collect(),
        limits: limits.collect(),
        unsandboxed: report.unsandboxed.unwrap_or_default(),
    };
    Some(shown).filter(|shown| *shown != v1::ProcessReport::default())
}

fn final_response(response: crate::model::FinalResponse) -> v1::FinalResponse {
    let object = |value: Value| (!value.is_null()).then(|| convert::object(value));
    v1::FinalResponse {
        version: response.version.to_owned(),
        status: response.status.to_owned(),
        payload: object(response.payload),
        metadata: object(response.metadata),
        error: object(response.error),
    }
}

fn hash_match(hash: HashMatch) -> v1::HashMatch {
    match hash {
        HashMatch::Matches => v1::HashMatch::Matches,
        HashMatch::Differs => v1::HashMatch::Differs,
        HashMatch::Unknown => v1::HashMatch::Unknown,
    }
}

#[cfg(test)]
mod tests;
