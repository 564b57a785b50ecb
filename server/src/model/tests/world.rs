//! A core with everything that it is handed in, and a judge that looks at it after every command.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::backends::Backends;
use super::ledger::Ledger;
use crate::model::*;

pub(super) struct Counter(u128);

impl IdSource for Counter {
    fn next_u128(&mut self) -> u128 {
        self.0 += 1;
        // Spread, so that no order of ids is an order of creation.
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
    }
}

/// What became of each message to an agent.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Fate {
    pub(super) enqueued: u32,
    pub(super) delivered: u32,
    pub(super) discarded: u32,
}

/// The tool calls of a turn.
#[derive(Debug, Default)]
struct Calls {
    ended: bool,
    /// How many results each has.
    results: BTreeMap<CallId, u32>,
}

pub(super) struct World {
    pub(super) state: State,
    pub(super) policy: Policy,
    pub(super) now: Timestamp,
    pub(super) ids: Counter,
    /// The same events, folded from their lines.
    shadow: State,
    pub(super) entries: Vec<Entry>,
    /// Effects that nobody has carried out yet.
    pub(super) effects: Vec<Effect>,
    pub(super) fates: BTreeMap<MessageId, Fate>,
    /// Messages of USER to whose answers someone waits.
    pub(super) attended: BTreeSet<MessageId>,
    ledger: Ledger,
    backends: Backends,
    calls: BTreeMap<TurnId, Calls>,
}

pub(super) fn policy(slots: usize) -> Policy {
    let provider = ProviderPolicy { slots, call_limit: None };
    Policy {
        providers: BTreeMap::from([("scripted".into(), provider)]),
        default_provider: "scripted".into(),
        max_text: 1000,
        max_inbox: 50,
        max_user_inbox: 1000,
        max_inbox_bytes: 1 << 20,
        max_agents: 100,
        max_depth: 6,
        max_waiting: 100,
        max_reminders: 5,
        max_subscriptions: 5,
        multicast_timeout: Duration::from_secs(600),
        max_setbacks: 3,
        resume: Resume::Roots,
        request_retention: Duration::from_secs(60),
        draining: false,
    }
}

impl World {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            state: State::default(),
            policy: policy(slots),
            now: Timestamp::from_micros(1_772_107_200_000_000),
            ids: Counter(0),
            shadow: State::default(),
            entries: Vec::new(),
            effects: Vec::new(),
            fates: BTreeMap::new(),
            attended: BTreeSet::new(),
            ledger: Ledger::default(),
            backends: Backends::default(),
            calls: BTreeMap::new(),
        }
    }

    pub(super) fn run(&mut self, command: Command) -> Result<Outcome, Rejection> {
        self.run_request(command, None)
    }

    pub(super) fn run_request(
        &mut self,
        command: Command,
        request: Option<&Request>,
    ) -> Result<Outcome, Rejection> {
        self.now = self.now.after(Duration::from_millis(1));
        let cx = &mut Context {
            now: self.now,
            policy: &self.policy,
            ids: &mut self.ids,
            attended: &|id| self.attended.contains(&id),
        };
        let before = self.state.seq();
        let done = transact(&mut self.state, cx, command, request);
        match done {
            Ok(done) => {
                self.take(done.entries, done.effects);
                Ok(done.outcome)
            }
            Err(rejection) => {
                assert_eq!(self.state.seq(), before, "a rejection changes nothing");
                self.judge();
                Err(rejection)
            }
        }
    }

    /// The same as [`World::run`], where so much happens that it cannot be judged each time.
    pub(super) fn skim(&mut self, command: Command) {
        let (now, policy, ids) = (self.now, &self.policy, &mut self.ids);
        let cx = &mut Context { now, policy, ids, attended: &|_| false };
        let done = transact(&mut self.state, cx, command, None).expect("never rejected");
        for entry in done.entries {
            self.shadow.apply(&entry);
            self.backends.take(&entry);
            self.entries.push(entry);
        }
    }

    /// The daemon dies, and another one starts.
    pub(super) fn crash(&mut self) -> Reconciliation {
        self.crash_leaving(&[])
    }

    /// The same, where processes were left.
    pub(super) fn crash_leaving(&mut self, left: &[Leftover]) -> Reconciliation {
        self.effects.clear();
        let cx = &mut Context {
            now: self.now,
            policy: &self.policy,
            ids: &mut self.ids,
            attended: &|id| self.attended.contains(&id),
        };
        let found = reconcile(&self.state, cx);
        let told = left.iter().filter_map(|left| left.told(&self.state));
        let mut events: Vec<_> = told.chain(found.events.iter().cloned()).collect();
        events.push((None, DaemonStarted { version: "1".into() }.into()));
        let done = settle(&mut self.state, cx, events);
        self.take(done.entries, done.effects);
        found
    }

    fn take(&mut self, entries: Vec<Entry>, effects: Vec<Effect>) {
        for entry in entries {
            let mut line = Vec::new();
            entry.encode(&mut line);
            let read = Entry::decode(&line).expect("a line reads back");
            assert_eq!(read, entry, "a line says what happened");
            assert_eq!(read.seq, self.shadow.seq() + 1, "sequences are dense");
            self.shadow.apply(&read);
            self.account(&entry);
            self.ledger.take(&entry);
            self.backends.take(&entry);
            self.entries.push(entry);
            self.judge_record();
        }
        self.effects.extend(effects);
        self.judge();
    }

    fn account(&mut self, entry: &Entry) {
        match &entry.event {
            Event::MessageEnqueued(data) => {
                self.fates.entry(data.message_id).or_default().enqueued += 1;
            }
            Event::MessageDelivered(data) => {
                self.fates.entry(data.message_id).or_default().delivered += 1;
            }
            Event::MessageDiscarded(data) => {
                self.fates.entry(data.message_id).or_default().discarded += 1;
            }
            _ => {}
        }
        self.account_calls(entry);
    }

    /// Every call gets one result, before its turn ends.
    fn account_calls(&mut self, entry: &Entry) {
        match &entry.event {
            Event::TurnStart(data) => {
                assert!(self.calls.insert(data.turn_id, Calls::default()).is_none());
            }
            Event::ToolCallInvoked(data) => {
                let calls = self.calls.get_mut(&data.turn_id).expect("a call is in a turn");
                assert!(!calls.ended, "no call after the end of its turn");
                assert_eq!(calls.results.insert(data.call_id, 0), None, "a call is made once");
            }
            Event::ToolCallResult(data) => {
                let calls = self.calls.get_mut(&data.turn_id).expect("a result is in a turn");
                assert!(!calls.ended, "no result after the end of its turn");
                let refused = data.reason.is_none() || data.error.is_some();
                assert!(refused, "who is told a reason is told what is wrong: {data:?}");
                *calls.results.get_mut(&data.call_id).expect("a result has its call") += 1;
            }
            event if event.ends_turn() => {
                let turn = event.data()["turn_id"].as_str().and_then(|id| id.parse().ok());
                let turn: TurnId = turn.expect("an end names its turn");
                let calls = self.calls.get_mut(&turn).expect("a turn starts before it ends");
                assert!(!std::mem::replace(&mut calls.ended, true), "a turn ends once");
                let once = calls.results.values().all(|results| *results == 1);
                assert!(once, "every call has one result: {calls:?}");
            }
            _ => {}
        }
    }

    /// Looks at what the last event makes of the turn that it is about.
    fn judge_record(&self) {
        let Some(entry) = self.entries.last() else { return };
        if let (Event::TurnStart(data), Some(session)) = (&entry.event, entry.session) {
            assert_eq!(data.turn_id, TurnId::starting_at(session, entry.seq), "{entry:?}");
            assert!(!data.messages.is_empty(), "a turn starts for a message: {entry:?}");
        }
        if !entry.event.ends_turn() {
            return;
        }
        let log = || self.entries.iter().filter(|other| other.session == entry.session);
        let mut starts = log().filter(|other| matches!(other.event, Event::TurnStart(_)));
        let start = starts.next_back().expect("a turn that ends has started").seq;
        let turn = log().filter(|other| other.seq >= start);
        let record = ExecutionRecord::of(turn, "").expect("a turn has a record");
        assert_eq!(record.end.map(|(seq, _)| seq), Some(entry.seq), "{record:?}");
        assert_eq!(record.hash, HashMatch::Matches, "{record:?}");
        let numbers = record.events.iter().map(|event| event.seq);
        assert!(numbers.eq(1..=record.events.len() as u64), "the clock is dense: {record:?}");
        assert!(record.events.is_sorted_by_key(|event| event.source), "{record:?}");
        assert_eq!(record.header.replayable, record.header.reason.is_none());
        match &entry.event {
            Event::TurnInterrupted(data) => {
                let point = record.crash_point.expect("an interrupted turn has a crash point");
                assert_eq!((point.stage, point.recovery), (data.stage, data.recovery));
                assert!(record.response.is_none() && !record.header.replayable);
            }
            Event::TurnCancelled(_) => {
                assert!(record.crash_point.is_none() && !record.header.replayable);
            }
            _ => assert!(record.header.replayable && record.response.is_some(), "{record:?}"),
        }
    }

    /// Looks whether everything holds that must always hold.
    fn judge(&mut self) {
        assert_eq!(self.state, self.shadow, "state is the fold of the lines");
        let mut snapshot = Vec::new();
        Snapshot::write(&self.state, &mut snapshot).expect("a snapshot");
        let mut restored = State::default();
        for line in snapshot.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            Snapshot::read_line(&mut restored, line).expect("a snapshot reads back");
        }
        assert_eq!(restored, self.state, "a snapshot holds everything, indexes included");
        let cx = &mut Context {
            now: self.now,
            policy: &self.policy,
            ids: &mut Counter(0),
            attended: &|_| false,
        };
        assert_eq!(next_step(&self.state, cx), vec![], "nothing possible is left undone");
        self.judge_slots();
        for agent in self.state.agents() {
            self.judge_agent(agent);
        }
        self.judge_messages();
        self.judge_workspaces();
        self.ledger.judge(&self.state);
        self.backends.judge(&self.state);
    }

    fn judge_slots(&self) {
        let ending =
            self.state.agents().filter(|a| a.turn().is_some_and(|t| t.cancelling.is_some()));
        let limit = self.policy.slots("scripted");
        let pool = self.state.pool("scripted");
        // A blocked turn that is asked to end goes on at once, slot or not.
        let held = pool.held - pool.suspending;
        assert!(held <= limit + ending.count(), "{held} slots held of {limit}");
    }

    fn judge_agent(&self, agent: &Agent) {
        let live = agent.is_live();
        let named = self
            .state
            .agents()
            .filter(|other| other.is_live() && other.parent == agent.parent)
            .filter(|other| other.name == agent.name);
        assert!(!live || named.count() == 1, "{:?} twice among siblings", agent.name);
        if let Some(parent) = agent.parent.and_then(|id| self.state.agent(id)) {
            let times = parent.children.iter().filter(|id| **id == agent.id).count();
            assert_eq!(times, usize::from(live), "children are the live ones");
            assert!(!live || parent.is_live(), "a live agent has a live parent");
        }
        let state = agent.session.state;
        match &agent.activity {
            Activity::Terminated => {
                assert_eq!(state, SessionState::Terminated);
                assert!(agent.inbox.is_empty() && agent.children.is_empty());
            }
            Activity::Idle => assert_ne!(state, SessionState::Terminated),
            Activity::Busy(turn) | Activity::Waiting(turn, _) => {
                assert_eq!(state, SessionState::Active, "a turn runs in a live session");
                let calls = &self.calls[&turn.id];
                let open = calls.results.iter().filter(|(_, results)| **results == 0);
                let known: BTreeSet<CallId> = turn.calls.iter().map(|call| call.id).collect();
                assert_eq!(open.map(|(id, _)| *id).collect::<BTreeSet<_>>(), known, "open calls");
                for id in &turn.messages {
                    assert!(agent.message(*id).is_some(), "a turn's messages are in the inbox");
                }
            }
        }
        assert_eq!(agent.notices, vec![], "what is to be told is told");
        for subscription in &agent.subscriptions {
            let target = self.state.live_agent(subscription.target);
            assert!(target.is_some(), "a subscription ends with whom it watches");
        }
        for multicast in &agent.multicasts {
            let open = multicast.copies.iter().filter(|copy| !copy.answered);
            assert!(open.clone().count() > 0, "a multicast is over when all have answered");
            for copy in open {
                let there = self.state.agent(copy.recipient).is_some_and(|recipient| {
                    recipient.message(copy.message).is_some_and(|message| !message.answered)
                });
                assert!(there, "who has not answered has it in the inbox");
            }
        }
        for (call, returned) in agent.requests.calls() {
            let runs = agent.turn().is_some_and(|turn| turn.calls.iter().any(|c| c.id == call));
            assert_eq!(returned.is_none(), runs, "a recorded call runs or has returned");
            let stands = |at: Answered| match &self.entries[at.seq as usize - 1].event {
                Event::ToolCallResult(data) => data.call_id == call && data.turn_id == at.turn,
                _ => false,
            };
            assert!(returned.is_none_or(stands), "its result stands where it is said to");
        }
        let ids: BTreeSet<MessageId> = agent.inbox.iter().map(|message| message.id).collect();
        assert_eq!(ids.len(), agent.inbox.len(), "no message twice");
        if let Some(wait) = agent.wait() {
            let circle = self.state.live_agent(wait.recipient);
            let circle = circle.is_some_and(|other| self.state.waits_for(other, agent.id));
            assert!(!circle, "nobody waits for itself");
        }
    }

    fn judge_messages(&self) {
        let mut waiting = BTreeSet::new();
        for agent in self.state.agents() {
            waiting.extend(agent.inbox.iter().map(|message| message.id));
        }
        waiting.extend(self.state.user_inbox().iter().map(|message| message.id));
        for (id, fate) in &self.fates {
            let there = u32::from(waiting.contains(id));
            assert_eq!(fate.enqueued, 1, "a message is enqueued once");
            assert_eq!(
                fate.delivered + fate.discarded + there,
                1,
                "a message waits, or was delivered once, or was discarded once: {fate:?}"
            );
        }
    }

    pub(super) fn create(&mut self, name: &str) -> AgentId {
        let agent = NewAgent { name: name.into(), ..NewAgent::default() };
        match self.run(Command::CreateAgent { agent, parent: None }) {
            Ok(Outcome::Agent(id)) => id,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn send(&mut self, agent: &str, text: &str) -> MessageId {
        match self.run(send(agent, text)) {
            Ok(Outcome::Message { message, .. }) => message,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn agent(&self, reference: &str) -> &Agent {
        self.state.resolve(reference).expect("the agent is there")
    }

    /// The running turn of an agent.
    pub(super) fn turn(&self, reference: &str) -> TurnId {
        self.agent(reference).turn().expect("a turn runs").id
    }

    pub(super) fn prompt(&self, reference: &str) -> String {
        let turn = self.turn(reference);
        self.entries
            .iter()
            .find_map(|entry| match &entry.event {
                Event::TurnStart(data) if data.turn_id == turn => Some(data.prompt.to_string()),
                _ => None,
            })
            .expect("the turn started")
    }

    pub(super) fn complete(&mut self, reference: &str, response: &str) {
        let (agent, turn) = (self.agent(reference).id, self.turn(reference));
        let end = TurnEnd::Completed { response: response.into(), saved: Saved::Unchanged };
        let finished = Command::FinishTurn { agent, turn, end, attended: Vec::new() };
        self.run(finished).expect("an end is never rejected");
    }

    pub(super) fn fail(&mut self, reference: &str) {
        let (agent, turn) = (self.agent(reference).id, self.turn(reference));
        let end = TurnEnd::Failed { class: FailureClass::Permanent, error: "broken".into() };
        let finished = Command::FinishTurn { agent, turn, end, attended: Vec::new() };
        self.run(finished).expect("an end is never rejected");
    }

    /// Lets the running turn of an agent call a tool under a key.
    pub(super) fn call_as(
        &mut self,
        reference: &str,
        tool: &str,
        args: &serde_json::Value,
        key: &str,
    ) -> Result<CallId, Rejection> {
        let agent = self.attempt(reference);
        let call = CallId::fresh(&mut self.ids);
        let request = Request { id: key.into(), fingerprint: format!("{tool}{args}") };
        let args = Json::of(args).expect("JSON");
        let command =
            Command::CallTool { agent, turn: None, call, tool: tool.into(), args, objection: None };
        match self.run_request(command, Some(&request))? {
            Outcome::Call(call) => Ok(call),
            other => panic!("{other:?}"),
        }
    }

    /// Lets the running turn of an agent call a tool. Returns the call.
    /// An agent whose next attempt has started, if one was to.
    fn attempt(&mut self, reference: &str) -> AgentId {
        let agent = self.agent(reference);
        let (id, turn) = (agent.id, agent.turn().filter(|turn| turn.next_attempt.is_some()));
        if let Some(turn) = turn.map(|turn| turn.id) {
            self.run(Command::StartAttempt { agent: id, turn }).expect("it starts");
        }
        id
    }

    pub(super) fn call(&mut self, reference: &str, tool: &str, args: &serde_json::Value) -> CallId {
        self.attempt(reference);
        let agent = self.agent(reference);
        let (agent, turn) = (agent.id, agent.turn().map(|turn| turn.id));
        let call = CallId::fresh(&mut self.ids);
        let args = Json::of(args).expect("JSON");
        let command =
            Command::CallTool { agent, turn, call, tool: tool.into(), args, objection: None };
        self.run(command).expect("a turn runs");
        call
    }

    /// What a call came to, if it is over.
    pub(super) fn result(&self, call: CallId) -> Option<Result<serde_json::Value, String>> {
        self.entries.iter().find_map(|entry| match &entry.event {
            Event::ToolCallResult(data) if data.call_id == call => {
                Some(match (&data.result, &data.error) {
                    (_, Some(error)) => Err(error.clone()),
                    (result, None) => {
                        let text = result.as_ref().map_or("null", Json::get);
                        Ok(serde_json::from_str(text).expect("JSON"))
                    }
                })
            }
            _ => None,
        })
    }

    /// Ends the suspension of sessions that are being suspended.
    pub(super) fn finish_suspensions(&mut self) {
        loop {
            let suspending = self
                .state
                .agents()
                .find(|agent| agent.session.state == SessionState::Suspending)
                .map(|agent| agent.session.id);
            let Some(session) = suspending else { return };
            let finished = Command::FinishSuspend { session, result: Ok(Saved::Unchanged) };
            self.run(finished).expect("an end is never rejected");
        }
    }
}

pub(super) fn send(agent: &str, text: &str) -> Command {
    Command::SendMessage { agent: agent.into(), text: Arc::from(text), metadata: BTreeMap::new() }
}
