//! Reading and following events, from memory while it reaches, from the logs beyond.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use tokio::sync::watch;
use tonic::{Code, Status};

use super::Api;
use super::request::clip;
use super::status::{Reason, refused, status};
use crate::engine::{Behind, Span};
use crate::model::{Agent, AgentId, Entry, Event, SessionId, State};

/// Events that are looked at in one step.
const WINDOW: u64 = 4096;

/// The span of an agent's log.
pub(super) fn span(agent: &Agent) -> Span {
    Span {
        session: Some(agent.session.id),
        agent: Some(agent.id),
        first: agent.session.first_seq,
        last: agent.session.last_seq,
    }
}

/// The spans of all logs, the daemon's own included.
pub(super) fn all_spans(state: &State) -> Vec<Span> {
    let own = Span { session: None, agent: None, first: 1, last: state.seq() };
    state.agents().map(span).chain([own]).collect()
}

/// Which logs are looked into when events are not in memory any more.
pub(super) type Logs = Box<dyn Fn(&State) -> Vec<Span> + Send>;

/// An event, and the agent whose log it stands in.
pub(super) type Seen = (Entry, Option<AgentId>);

/// Events in order from a cursor on.
pub(super) struct Source {
    api: Api,
    news: watch::Receiver<u64>,
    /// Sequence of the last event that was handed out, or passed over.
    pub(super) cursor: u64,
}

impl Source {
    /// The events after a sequence.
    pub(super) fn new(api: Api, after: u64) -> Self {
        let news = api.engine.feed().watch();
        Self { api, news, cursor: after }
    }

    /// The next events, at most so many that stand in memory: none if there are none now.
    ///
    /// # Errors
    ///
    /// [`Behind`] where the next one is not in memory any more; [`Source::catch_up`] then.
    pub(super) fn next(&mut self, most: usize) -> Result<Vec<Seen>, Behind> {
        let mut found = Vec::new();
        self.news.borrow_and_update();
        self.api.engine.feed().read(self.cursor, |line| {
            found.push((line.entry.clone(), line.agent));
            found.len() < most
        })?;
        if let Some((entry, _)) = found.last() {
            self.cursor = entry.seq;
        }
        Ok(found)
    }

    /// The next events that are not in memory any more, from these logs. May be none although
    /// there are later ones.
    pub(super) async fn catch_up(
        &mut self,
        behind: Behind,
        spans: Vec<Span>,
    ) -> Result<Vec<Seen>, Status> {
        let from = self.cursor + 1;
        let end = behind.first.min(from + WINDOW);
        let agents: FxHashMap<Option<SessionId>, Option<AgentId>> =
            spans.iter().map(|span| (span.session, span.agent)).collect();
        let found = self.api.archived(spans, from, end).await?;
        self.cursor = end - 1;
        let agent = |entry: &Entry| agents.get(&entry.session).copied().flatten();
        Ok(found.into_iter().map(|entry| (agent(&entry), entry)).map(|(a, e)| (e, a)).collect())
    }

    /// Waits until there may be more.
    pub(super) async fn changed(&mut self) -> Result<(), Status> {
        // The sender lives as long as the engine's handle, which this holds.
        self.news.changed().await.map_err(|_| refused(&crate::engine::Refusal::Stopped))
    }
}

/// Which events are wanted.
#[derive(Clone, Default)]
pub(super) struct Filter {
    pub(super) session: Option<SessionId>,
    pub(super) types: Vec<String>,
}

impl Filter {
    pub(super) fn wants(&self, entry: &Entry) -> bool {
        let name = entry.event.name();
        self.session.is_none_or(|session| entry.session == Some(session))
            && (self.types.is_empty() || self.types.iter().any(|pattern| fits(pattern, name)))
    }

    fn logs(&self) -> Logs {
        let session = self.session;
        Box::new(move |state| match session {
            None => all_spans(state),
            Some(session) => state.agent_of(session).map(span).into_iter().collect(),
        })
    }
}

/// Whether a pattern such as `turn.*` stands for an event name.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

/// Refuses a type that no event has: nothing would ever come.
pub(super) fn check_types(types: &[String]) -> Result<(), Status> {
    let known = |pattern: &&String| Event::NAMES.iter().any(|name| fits(pattern, name));
    let Some(odd) = types.iter().find(|pattern| !known(pattern)) else { return Ok(()) };
    let message = format!("types names {:?}; no event is called that", clip(odd));
    let hint = "docs/events.md lists the events; \"turn.*\" stands for all with that start";
    Err(status(Code::InvalidArgument, Reason::FieldInvalid, message, hint))
}

/// The events that a filter wants, for ever.
pub(super) struct Follower {
    source: Source,
    filter: Filter,
    waiting: VecDeque<Seen>,
}

impl Follower {
    pub(super) fn new(api: Api, after: u64, filter: Filter) -> Self {
        Self { source: Source::new(api, after), filter, waiting: VecDeque::new() }
    }

    /// The next event.
    pub(super) async fn next(&mut self) -> Result<Seen, Status> {
        loop {
            if let Some(seen) = self.waiting.pop_front() {
                return Ok(seen);
            }
            match self.source.next(512) {
                Ok(found) if found.is_empty() => self.source.changed().await?,
                Ok(found) => self.take(found),
                Err(behind) => {
                    let logs = self.filter.logs();
                    let spans = self.source.api.engine.read(move |state| logs(state)).await;
                    let spans = spans.map_err(|no| refused(&no))?;
                    let found = self.source.catch_up(behind, spans).await?;
                    self.take(found);
                }
            }
        }
    }

    fn take(&mut self, found: Vec<Seen>) {
        self.waiting.extend(found.into_iter().filter(|(entry, _)| self.filter.wants(entry)));
    }
}

/// At most so many events that a filter wants, from a sequence on, and where to go on; none at
/// the end.
pub(super) async fn list(
    api: &Api,
    filter: &Filter,
    from: u64,
    most: usize,
) -> Result<(Vec<Seen>, Option<u64>), Status> {
    let logs = filter.logs();
    let (spans, last) = api
        .engine
        .read(move |state| (logs(state), state.seq()))
        .await
        .map_err(|no| refused(&no))?;
    let agents: FxHashMap<Option<SessionId>, Option<AgentId>> =
        spans.iter().map(|span| (span.session, span.agent)).collect();
    let mut found: Vec<Seen> = Vec::new();
    let mut at = from.max(1);
    while at <= last {
        let end = (last + 1).min(at + WINDOW);
        for entry in api.archived(spans.clone(), at, end).await? {
            if !filter.wants(&entry) {
                continue;
            }
            if found.len() == most {
                return Ok((found, Some(entry.seq)));
            }
            let agent = agents.get(&entry.session).copied().flatten();
            found.push((entry, agent));
        }
        at = end;
    }
    Ok((found, None))
}
