//! Tool calls: who waits for which result, and what is done when nobody does any more.
//!
//! A repeated call joins those who wait for the first one, or is answered from the log. A caller
//! that drops its future is gone; a call that lost its last caller is cancelled.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, oneshot};

use super::Span;
use super::driver::Driver;
use super::handle::{CallEnd, CallError, Handle, Report};
use super::output::Item;
use crate::model::{
    AgentId, CallFailure, CallId, Command, Event, Json, Outcome, Rejection, Request, State, Tool,
    TurnId,
};
use crate::provider::Objection;

/// What a tool call returns whose outcome nobody knows.
const UNKNOWN: &str = "[Interrupted: outcome unknown]";
/// The tool whose instructions a provider looks at first.
const SPAWN: &str = "spawn_agent";
const RUN: &str = "run_command";
/// The tools that show folders, which are looked for first.
const SHOWING: [&str; 3] = ["create_workspace", "link_dir", "link_from"];

fn unknown() -> CallError {
    CallError::Failed(CallFailure { error: UNKNOWN.to_owned(), reason: None })
}

/// What a caller is told.
pub(super) enum Told {
    /// How the call ended, and the sequence of its result.
    Ended(u64, CallEnd),
    /// Where the result of an earlier call stands: the log, and the sequence in it.
    Past(Span, u64),
}

/// A tool call to be made.
pub(super) struct NewCall {
    pub(super) agent: AgentId,
    /// None for the turn that runs.
    pub(super) turn: Option<TurnId>,
    pub(super) call: CallId,
    pub(super) tool: std::sync::Arc<str>,
    pub(super) args: Json,
    pub(super) request: Option<Request>,
    pub(super) objection: Option<Rejection>,
    pub(super) waiter: oneshot::Sender<Told>,
}

/// A call without a result yet.
struct Open {
    agent: AgentId,
    /// None once they have all gone.
    waiters: Vec<oneshot::Sender<Told>>,
}

/// The calls without a result yet.
#[derive(Default)]
pub(super) struct Calls(FxHashMap<CallId, Open>);

impl Calls {
    fn wait(&mut self, agent: AgentId, call: CallId, waiter: oneshot::Sender<Told>) {
        let open = self.0.entry(call).or_insert_with(|| Open { agent, waiters: Vec::new() });
        open.waiters.push(waiter);
    }

    /// Tells all who wait for a call how it ended.
    pub(super) fn end(&mut self, call: CallId, seq: u64, end: &CallEnd) {
        for waiter in self.0.remove(&call).map(|open| open.waiters).unwrap_or_default() {
            // Whoever called may have gone.
            let _ = waiter.send(Told::Ended(seq, end.clone()));
        }
    }

    /// The calls of an agent that lost their last caller since this was asked before.
    fn abandoned(&mut self, agent: AgentId) -> Vec<CallId> {
        let mut abandoned = Vec::new();
        for (call, open) in &mut self.0 {
            if open.agent == agent && !open.waiters.is_empty() {
                open.waiters.retain(|waiter| !waiter.is_closed());
                if open.waiters.is_empty() {
                    abandoned.push(*call);
                }
            }
        }
        abandoned.sort_unstable();
        abandoned
    }
}

impl Driver {
    pub(super) fn call(&mut self, new: NewCall) {
        let NewCall { agent, turn, call, tool, args, request, objection, waiter } = new;
        let command = Command::CallTool { agent, turn, call, tool, args, objection };
        match self.decide(command, request.as_ref()) {
            Ok(Outcome::Call(first)) if first != call => {
                if let Some(told) = self.earlier(agent, first, request.as_ref()) {
                    // Told when the result is durable.
                    self.core.tell(Box::new(move || drop(waiter.send(told))));
                } else {
                    self.calls.wait(agent, first, waiter);
                }
            }
            Ok(_) => {
                // Only now: of a call that is refused there is no event to wait for. And before
                // its event is published.
                if let Some(output) = self.handle.outputs().get(agent) {
                    output.push_mark(Item::Call(call));
                }
                self.calls.wait(agent, call, waiter);
            }
            Err(rejection) => {
                let told = Told::Ended(self.core.state().seq(), Err(CallError::Refused(rejection)));
                // Told when all that it could have seen is durable.
                self.core.tell(Box::new(move || drop(waiter.send(told))));
            }
        }
    }

    /// What a repeated call comes to, unless the first one still runs.
    fn earlier(&self, id: AgentId, first: CallId, request: Option<&Request>) -> Option<Told> {
        let agent = self.core.state().agent(id)?;
        let requests = self.core.state().requests_of(Some(agent));
        if let Some(answered) = request.and_then(|request| requests.answered(request)) {
            let span = Span {
                session: Some(agent.session.id),
                agent: Some(id),
                first: agent.session.first_seq,
                last: agent.session.last_seq,
            };
            return Some(Told::Past(span, answered.seq));
        }
        let runs = agent.turn().is_some_and(|turn| turn.calls.iter().any(|call| call.id == first));
        (!runs).then(|| Told::Ended(self.core.state().seq(), Err(unknown())))
    }

    /// A caller of an agent's tools went away.
    pub(super) fn caller_left(&mut self, agent: AgentId) {
        for call in self.calls.abandoned(agent) {
            self.command(Command::CancelCall { agent, call });
        }
    }
}

/// Waits for the result of a call. The engine is told of one that stops waiting.
struct Waiting {
    agent: AgentId,
    told: oneshot::Receiver<Told>,
    reports: mpsc::UnboundedSender<Report>,
    over: bool,
}

impl Waiting {
    async fn told(&mut self) -> Option<Told> {
        let told = (&mut self.told).await;
        self.over = true;
        told.ok()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.over {
            self.told.close();
            // An engine that is gone has no call to cancel.
            let _ = self.reports.send(Report::CallerLeft(self.agent));
        }
    }
}

impl Handle {
    /// Calls a tool of an agent within a turn (none: the one that runs). A repetition with the
    /// same key returns what the first call returned. Whoever drops this before it returns ends
    /// the call's wait for an answer, if it is in one.
    pub async fn call_tool(
        &self,
        agent: AgentId,
        turn: Option<TurnId>,
        tool: &str,
        args: Json,
        request: Option<Request>,
    ) -> CallEnd {
        let args = self.without_secrets(agent, args);
        let call = CallId::from_u64(mix(self.shared.calls.fetch_add(1, Ordering::Relaxed)));
        let objection = match tool {
            SPAWN => self.objection(agent, &args).await,
            tool if SHOWING.contains(&tool) => self.unseen(agent, tool, &args).await,
            RUN => self.withheld(agent).await,
            _ => None,
        };
        // While a tool runs, its caller is not expected to say anything.
        let _waits = self.shared.pulses.wait(agent);
        let output = self.shared.outputs.get(agent);
        let (waiter, told) = oneshot::channel();
        let tool = tool.into();
        let new = NewCall { agent, turn, call, tool, args, request, objection, waiter };
        self.reports.send(Report::Call(new)).map_err(|_| unknown())?;
        let reports = self.reports.clone();
        let mut waiting = Waiting { agent, told, reports, over: false };
        match waiting.told().await.ok_or_else(unknown)? {
            Told::Ended(sequence, end) => {
                if let Some(output) = &output {
                    output.push_mark(Item::After(sequence));
                }
                end
            }
            Told::Past(span, sequence) => self.past_result(span, sequence).await,
        }
    }

    /// What is called with, without the keys of the agent's backend: it is logged, and told to others.
    fn without_secrets(&self, agent: AgentId, args: Json) -> Json {
        match self.shared.secrets.get(agent) {
            // Nothing under this lock can be left half done by a panic.
            Some(secrets) => secrets.lock().unwrap_or_else(PoisonError::into_inner).hide_in(args),
            None => args,
        }
    }

    /// What its provider has against an agent that is to be spawned: an error in a script is told
    /// to who wrote it, not only to the child.
    async fn objection(&self, parent: AgentId, args: &Json) -> Option<Rejection> {
        // What does not read is for the core to say.
        let Ok(Tool::SpawnAgent(new)) = Tool::parse(SPAWN, args.get()) else { return None };
        let inherited = move |state: &State| {
            let session = &state.agent(parent)?.session;
            Some((session.provider.to_string(), session.model.clone()))
        };
        let (theirs, inherited) = self.read(inherited).await.ok()??;
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let provider = given(new.provider).unwrap_or_else(|| theirs.clone());
        let inherited = inherited.filter(|_| provider == theirs).map(|model| model.to_string());
        let model = given(new.model).or(inherited);
        let provider = self.providers().get(&provider)?.provider;
        Some(match provider.check(&new.instructions, model.as_deref()).err()? {
            Objection::Instructions(problem) => {
                Rejection::ScriptInvalid { name: new.name, problem }
            }
            Objection::Model(problem) => Rejection::ModelInvalid { name: new.name, problem },
        })
    }

    /// Refuses the tool that runs commands to who has one of its own: it is not offered.
    async fn withheld(&self, agent: AgentId) -> Option<Rejection> {
        let handle = self.clone();
        let looked = move |state: &State| {
            let agent = state.agent(agent).filter(|agent| agent.workspace.is_some())?;
            let known: Vec<_> = handle.offered(agent).iter().map(|tool| tool.name).collect();
            let is_offered = known.contains(&RUN);
            (!is_offered).then(|| Rejection::ToolUnknown { name: RUN.to_owned(), known })
        };
        self.read(looked).await.ok()?
    }

    /// What keeps folders from being shown as a tool is to show them.
    async fn unseen(&self, agent: AgentId, tool: &str, args: &Json) -> Option<Rejection> {
        let tool = Tool::parse(tool, args.get()).ok()?;
        let looks = self.read(move |state| state.looks_of_call(agent, &tool)).await.ok()?;
        let files = self.shared.files.clone();
        let looked = tokio::task::spawn_blocking(move || {
            looks.iter().find_map(|look| files.look(look).err())
        });
        looked.await.unwrap_or_else(|panic| Some(Rejection::Bug { what: panic.to_string() }))
    }

    /// The result of a call, from the log.
    async fn past_result(&self, span: Span, sequence: u64) -> CallEnd {
        let archive = self.shared.archive.clone();
        archive.settled().await;
        let read = move || archive.read(&[span], sequence, sequence + 1);
        let read = tokio::task::spawn_blocking(read).await;
        let read = read.unwrap_or_else(|panic| Err(std::io::Error::other(panic)));
        let entries = read.map_err(|error| CallError::Unreadable(error.to_string()))?;
        match entries.into_iter().next().map(|entry| entry.event) {
            Some(Event::ToolCallResult(data)) => match data.error {
                Some(error) => Err(CallError::Failed(CallFailure { error, reason: data.reason })),
                None => Ok(data.result.unwrap_or_else(Json::null)),
            },
            _ => Err(CallError::Unreadable(format!("event {sequence} is no result of a call"))),
        }
    }
}

/// Spreads consecutive numbers over all 64 bits, each to another (splitmix64).
pub(super) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
