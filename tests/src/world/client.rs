//! Clients: they ask, remember what was acknowledged, and ask again after a crash what was not.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use substrat_server::engine::{Answer, Clock, Handle, Refusal, Waiting};
use substrat_server::model::{Activity, Agent, Command, Event, NewAgent, Outcome, State};

use super::PROVIDER;
use super::memory::Memory;

/// Clients at once.
pub(super) const CLIENTS: u64 = 3;

pub(super) struct Client {
    number: u64,
    handle: Handle,
    memory: Memory,
    random: StdRng,
}

impl Client {
    pub(super) fn new(number: u64, handle: Handle, memory: Memory, seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed.wrapping_mul(31).wrapping_add(number));
        Self { number, handle, memory, random }
    }

    /// Asks again what was left open, then asks for new things until the daemon is gone.
    pub(super) async fn run(mut self, until: tokio::time::Instant) {
        for key in self.mine(|asked| asked.outcome.is_none() && !asked.refused) {
            self.ask(&key).await;
        }
        while tokio::time::Instant::now() < until {
            let pause = Duration::from_millis(self.random.random_range(0..120));
            tokio::time::sleep(pause).await;
            let again = self.mine(|asked| asked.outcome.is_some());
            if !again.is_empty() && self.random.random_bool(0.1) {
                let key = again[self.random.random_range(0..again.len())].clone();
                self.ask(&key).await;
                continue;
            }
            if let Some(key) = self.something_new().await {
                self.ask(&key).await;
            }
        }
    }

    fn mine(&self, which: impl Fn(&super::memory::Asked) -> bool) -> Vec<String> {
        let facts = self.memory.facts();
        let mine = facts.asked.iter().filter(|(_, asked)| asked.client == self.number);
        mine.filter(|(_, asked)| which(asked)).map(|(key, _)| key.clone()).collect()
    }

    async fn something_new(&mut self) -> Option<String> {
        let agents = self.handle.read(|state| {
            let live = state.agents().filter(|agent| agent.is_live());
            live.map(|agent| agent.id.to_string()).collect::<Vec<_>>()
        });
        let agents = agents.await.ok()?;
        let what = if agents.len() < 2 { 0 } else { self.random.random_range(0..30) };
        let agent = match agents.len() {
            0 => String::new(),
            count => agents[self.random.random_range(0..count)].clone(),
        };
        let note = |prefix, command: Box<dyn FnOnce(&str) -> Command>| {
            Some(self.memory.note(self.number, prefix, command))
        };
        match what {
            0..3 => note(
                "a",
                Box::new(|key| {
                    let provider = Some(PROVIDER.to_owned());
                    let agent = NewAgent { name: key.to_owned(), provider, ..NewAgent::default() };
                    Command::CreateAgent { agent, parent: None }
                }),
            ),
            3..20 => note(
                "m",
                Box::new(|key| Command::SendMessage {
                    agent,
                    text: key.into(),
                    metadata: BTreeMap::new(),
                }),
            ),
            20 => note("x", Box::new(|_| Command::Terminate { agent, recursive: true })),
            21 => note("x", Box::new(|_| Command::CancelTurn { agent, turn: None })),
            22 => note("x", Box::new(|_| Command::Gate { agent })),
            23..25 => note("x", Box::new(|_| Command::Ungate { agent })),
            25 => note("x", Box::new(|_| Command::PermitTurn { agent })),
            26 => {
                let unread = self.handle.read(|state| {
                    state.user_inbox().iter().map(|message| message.id).collect::<Vec<_>>()
                });
                let messages = unread.await.ok()?;
                note("x", Box::new(|_| Command::AckInbox { messages }))
            }
            27 => note(
                "x",
                Box::new(|key| Command::UpdateAgent {
                    agent,
                    instructions: Some(key.into()),
                    role: None,
                    metadata: BTreeMap::new(),
                    budgets: Vec::new(),
                }),
            ),
            28 => {
                let session = self.session_of(agent).await?;
                note("x", Box::new(|_| Command::SuspendSession { session }))
            }
            _ => {
                let session = self.session_of(agent).await?;
                note("x", Box::new(|_| Command::ResumeSession { session }))
            }
        }
    }

    async fn session_of(&self, agent: String) -> Option<String> {
        let find = move |state: &State| {
            state.resolve(&agent).ok().map(|agent| agent.session.id.to_string())
        };
        self.handle.read(find).await.ok()?
    }

    async fn ask(&mut self, key: &str) {
        let asked = self.memory.asked(key);
        let request = Some(asked.request(key));
        let patience = Duration::from_millis(self.random.random_range(0..5000));
        if !matches!(asked.command, Command::SendMessage { .. }) {
            match self.handle.execute(asked.command, request).await {
                Ok(outcome) => self.memory.acknowledge(key, outcome),
                Err(refusal) => self.refused(key, &refusal).await,
            }
            return;
        }
        match self.handle.send(asked.command, request).await {
            Ok(Waiting { agent, message, sequence, answer, answered }) => {
                self.memory.acknowledge(key, Outcome::Message { agent, message, sequence });
                if answered.is_some() {
                    return;
                }
                // An impatient client hangs up; the answer goes to USER's inbox.
                if let Ok(Ok(answer)) = tokio::time::timeout(patience, answer).await {
                    self.memory.answer(key, answer);
                }
            }
            Err(refusal) => self.refused(key, &refusal).await,
        }
    }

    async fn refused(&self, key: &str, refusal: &Refusal) {
        match refusal {
            Refusal::Rejected(_) => self.memory.refuse(key),
            // Asked again later, as long as there is a daemon.
            Refusal::DiskFull => tokio::time::sleep(Duration::from_millis(300)).await,
            Refusal::Stopped => std::future::pending().await,
        }
    }
}

/// Sees every event as it is published.
pub(super) async fn watch(handle: Handle, memory: Memory) {
    let mut news = handle.feed().watch();
    let mut after = *news.borrow_and_update();
    while news.changed().await.is_ok() {
        let read = handle.feed().read(after, |line| {
            assert_eq!(line.entry.seq, after + 1, "events are published in order");
            memory.see(line.entry.seq, &line.text);
            after = line.entry.seq;
            true
        });
        read.expect("a watcher on the same thread does not fall behind");
    }
}

/// Waits until nothing is left to do: no turn runs, no agent that may start one has messages, and
/// nothing is due soon.
pub(super) async fn quiet(handle: &Handle, clock: &Clock) {
    let look = |state: &State| (restless(state).is_empty(), state.next_deadline());
    while let Ok((rests, deadline)) = handle.read(look).await {
        let soon = clock().after(SOON);
        if rests && deadline.is_none_or(|at| at > soon) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What is due later than this is not waited for.
const SOON: Duration = Duration::from_secs(600);

/// Agents that work or want to.
pub(super) fn restless(state: &State) -> Vec<Agent> {
    let agents = state.agents().filter(|agent| {
        let resting = matches!(agent.activity, Activity::Idle | Activity::Terminated);
        !resting || state.is_queued(agent)
    });
    agents.cloned().collect()
}

/// Whether an event is the one that an answer tells of.
pub(super) fn fits(answer: &Answer, event: &Event) -> bool {
    match (answer, event) {
        (Answer::Completed { turn, response, .. }, Event::TurnComplete(data)) => {
            data.turn_id == *turn && data.response == *response
        }
        (Answer::Failed { turn, class, error }, Event::TurnFailed(data)) => {
            data.turn_id == *turn && data.class == *class && data.error == *error
        }
        (Answer::Cancelled { turn }, Event::TurnCancelled(data)) => data.turn_id == *turn,
        (Answer::Terminated, Event::MessageDiscarded(_)) => true,
        _ => false,
    }
}
