//! SessionService.

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use substrat_proto::v1;
use substrat_proto::v1::session_service_server::SessionService;
use tonic::{Request, Response, Status};

use super::events::{Filter, Follower, check_types, list};
use super::status::{refused, rejected, unreadable};
use super::{Api, convert, request};
use crate::model::{Agent, Command, Outcome, Ready, Rejection, SessionId, SessionState, State};

/// Bytes of a transcript in one response.
const TRANSCRIPT_CHUNK: usize = 64 << 10;

impl Api {
    async fn of_session<R: Send + 'static>(
        &self,
        reference: String,
        read: impl FnOnce(&State, &Agent) -> R + Send + 'static,
    ) -> Result<R, Status> {
        let found = self
            .engine
            .read(move |state| state.resolve_session(&reference).map(|agent| read(state, agent)));
        found.await.map_err(|no| refused(&no))?.map_err(|no| rejected(&no))
    }

    /// Does a mutation of a session, and waits until it stands where it should.
    async fn change_session(
        &self,
        command: Command,
        key: Option<crate::model::Request>,
        there: fn(&Agent) -> bool,
    ) -> Result<v1::Session, Status> {
        let outcome = self.engine.execute(command, key).await.map_err(|no| refused(&no))?;
        let Outcome::Session(id) = outcome else {
            let what = format!("the command came to {outcome:?}");
            return Err(rejected(&Rejection::Bug { what }));
        };
        let confinement = self.confinement().await;
        let mut news = self.engine.feed().watch();
        loop {
            news.borrow_and_update();
            let confinement = confinement.clone();
            let now = self.engine.read(move |state| {
                let agent = state.agent_of(id)?;
                let there = !agent.is_live() || there(agent);
                Some((there, convert::session(state, agent, &confinement)))
            });
            match now.await.map_err(|no| refused(&no))? {
                Some((true, session)) => return Ok(session),
                Some((false, _)) => {
                    news.changed().await.map_err(|_| refused(&crate::engine::Refusal::Stopped))?;
                }
                None => {
                    let reference = id.to_string();
                    return Err(rejected(&Rejection::SessionNotFound { reference }));
                }
            }
        }
    }

    async fn filter(&self, agent: String, types: Vec<String>) -> Result<Filter, Status> {
        check_types(&types)?;
        let session = match request::given(agent) {
            None => None,
            Some(reference) => Some(self.of_agent(reference, |_, agent| agent.session.id).await?),
        };
        Ok(Filter { session, types })
    }
}

#[tonic::async_trait]
impl SessionService for Api {
    type WatchEventsStream = BoxStream<'static, Result<v1::WatchEventsResponse, Status>>;
    type ReadTranscriptStream = BoxStream<'static, Result<v1::ReadTranscriptResponse, Status>>;

    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        let message = request.into_inner();
        let size = request::page_size(message.page_size, 1000)?;
        let after = request::page_token(&message.page_token)?;
        let confinement = self.confinement().await;
        let listed = self.engine.read(move |state| {
            let sessions = state.agents_after(after).map(|agent| {
                (agent.session.first_seq, convert::session(state, agent, &confinement))
            });
            request::page(sessions, size)
        });
        let (sessions, next_page_token) = listed.await.map_err(|no| refused(&no))?;
        Ok(Response::new(v1::ListSessionsResponse { sessions, next_page_token }))
    }

    async fn get_session(
        &self,
        request: Request<v1::GetSessionRequest>,
    ) -> Result<Response<v1::GetSessionResponse>, Status> {
        let confinement = self.confinement().await;
        let read = move |state: &State, agent: &Agent| convert::session(state, agent, &confinement);
        let session = self.of_session(request.into_inner().session, read).await?;
        Ok(Response::new(v1::GetSessionResponse { session: Some(session) }))
    }

    async fn suspend_session(
        &self,
        request: Request<v1::SuspendSessionRequest>,
    ) -> Result<Response<v1::SuspendSessionResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("SuspendSession", &message.request_id, &message)?;
        // One that was never opened has nothing to suspend, and one that has something to do goes
        // on at once.
        let there = |agent: &Agent| agent.session.state != SessionState::Suspending;
        let command = Command::SuspendSession { session: message.session };
        let session = self.change_session(command, key, there).await?;
        Ok(Response::new(v1::SuspendSessionResponse { session: Some(session) }))
    }

    async fn resume_session(
        &self,
        request: Request<v1::ResumeSessionRequest>,
    ) -> Result<Response<v1::ResumeSessionResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("ResumeSession", &message.request_id, &message)?;
        let command = Command::ResumeSession { session: message.session };
        // One that another took the slot of at once was live.
        let there = |agent: &Agent| {
            let is_wanted = agent.ready.is_some_and(Ready::resumes);
            agent.session.state == SessionState::Active || !is_wanted
        };
        let session = self.change_session(command, key, there).await?;
        Ok(Response::new(v1::ResumeSessionResponse { session: Some(session) }))
    }

    async fn delete_session(
        &self,
        request: Request<v1::DeleteSessionRequest>,
    ) -> Result<Response<v1::DeleteSessionResponse>, Status> {
        let message = request.into_inner();
        let key = request::key("DeleteSession", &message.request_id, &message)?;
        let command = Command::DeleteSession { session: message.session };
        match self.engine.execute(command, key).await.map_err(|no| refused(&no))? {
            Outcome::Session(id) => {
                Ok(Response::new(v1::DeleteSessionResponse { session_id: id.to_string() }))
            }
            other => {
                let what = format!("the command came to {other:?}");
                Err(rejected(&Rejection::Bug { what }))
            }
        }
    }

    async fn list_events(
        &self,
        request: Request<v1::ListEventsRequest>,
    ) -> Result<Response<v1::ListEventsResponse>, Status> {
        let message = request.into_inner();
        let size = request::page_size(message.page_size, 100)?;
        let from = request::page_token(&message.page_token)?.max(message.from_sequence);
        let filter = self.filter(message.agent, message.types).await?;
        let (found, next) = list(self, &filter, from, size).await?;
        // The token of a page of events is where the next one starts.
        let starts = found.iter().skip(1).map(|(entry, _)| entry.seq).chain([next.unwrap_or(0)]);
        let events = found.iter().map(|(entry, agent)| convert::event(entry, *agent));
        let (events, cut) = request::page(starts.zip(events), size);
        let next = next.map(|next| next.to_string()).unwrap_or_default();
        let next_page_token = if cut.is_empty() { next } else { cut };
        Ok(Response::new(v1::ListEventsResponse { events, next_page_token }))
    }

    async fn watch_events(
        &self,
        request: Request<v1::WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        let message = request.into_inner();
        let filter = self.filter(message.agent, message.types).await?;
        let after = match message.from_sequence {
            0 => self.engine.read(State::seq).await.map_err(|no| refused(&no))?,
            from => from - 1,
        };
        let follower = Follower::new(self.clone(), after, filter);
        let events = stream::unfold(Some(follower), |follower| async {
            let mut follower = follower?;
            Some(match follower.next().await {
                Ok((entry, agent)) => {
                    let event = Some(convert::event(&entry, agent));
                    (Ok(v1::WatchEventsResponse { event }), Some(follower))
                }
                Err(status) => (Err(status), None),
            })
        });
        Ok(Response::new(events.boxed()))
    }

    async fn read_transcript(
        &self,
        request: Request<v1::ReadTranscriptRequest>,
    ) -> Result<Response<Self::ReadTranscriptStream>, Status> {
        let message = request.into_inner();
        let session = self.of_agent(message.agent, |_, agent| agent.session.id).await?;
        let reader = Transcript { api: self.clone(), session, place: 0, follow: message.follow };
        let lines = stream::unfold(Some(reader), |reader| async {
            let mut reader = reader?;
            match reader.next().await {
                Ok(Some(text)) => Some((Ok(v1::ReadTranscriptResponse { text }), Some(reader))),
                Ok(None) => None,
                Err(status) => Some((Err(status), None)),
            }
        });
        Ok(Response::new(lines.boxed()))
    }

    async fn list_turns(
        &self,
        request: Request<v1::ListTurnsRequest>,
    ) -> Result<Response<v1::ListTurnsResponse>, Status> {
        self.turns(request.into_inner()).await.map(Response::new)
    }

    async fn get_turn(
        &self,
        request: Request<v1::GetTurnRequest>,
    ) -> Result<Response<v1::GetTurnResponse>, Status> {
        let record = self.record(&request.into_inner().turn_id).await?;
        Ok(Response::new(v1::GetTurnResponse { record: Some(record.on_the_wire()) }))
    }

    async fn replay_turn(
        &self,
        request: Request<v1::ReplayTurnRequest>,
    ) -> Result<Response<v1::ReplayTurnResponse>, Status> {
        self.record(&request.into_inner().turn_id).await?.replayed().map(Response::new)
    }
}

struct Transcript {
    api: Api,
    session: SessionId,
    place: u64,
    follow: bool,
}

impl Transcript {
    /// The next lines; none at the end.
    async fn next(&mut self) -> Result<Option<String>, Status> {
        let mut news = self.api.engine.feed().watch();
        loop {
            news.borrow_and_update();
            let archive = self.api.engine.archive().clone();
            archive.settled().await;
            let (session, place) = (self.session, self.place);
            let read = move || archive.transcript(session, place, TRANSCRIPT_CHUNK);
            let (text, next) = tokio::task::spawn_blocking(read)
                .await
                .unwrap_or_else(|panic| Err(std::io::Error::other(panic)))
                .map_err(|error| unreadable(&error))?;
            if !text.is_empty() {
                self.place = next;
                return Ok(Some(text));
            }
            if !self.follow {
                return Ok(None);
            }
            news.changed().await.map_err(|_| refused(&crate::engine::Refusal::Stopped))?;
        }
    }
}
