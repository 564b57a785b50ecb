//! A client that remembers what was acknowledged, and repeats what was not under the same
//! request id.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use substrat_proto::v1;
use tokio::sync::watch;
use tonic::Status;

use crate::harness::{Client, reason};

/// Counts the messages that USER ever sent it, and answers with the count and their texts.
pub const COUNTER: &str = r#"
fn turn(prompt) {
    let n = recall("n");
    if type_of(n) == "()" { n = 0; }
    let texts = "";
    for m in messages() { if m.from == "USER" { n += 1; texts += m.text + ";"; } }
    remember("n", n);
    `${n} ${texts}`
}"#;

/// As [`COUNTER`], but lets a child do something first.
pub const PARENT: &str = r#"
fn turn(prompt) {
    let n = recall("n");
    if type_of(n) == "()" { n = 0; }
    let texts = "";
    for m in messages() { if m.from == "USER" { n += 1; texts += m.text + ";"; } }
    try { spawn_agent("child", "fn turn(p) { complete(\"done\"); }"); } catch {}
    try { send_message("child", "work"); } catch {}
    remember("n", n);
    `${n} ${texts}`
}"#;

/// As [`COUNTER`], but works on files first.
pub const WRITER: &str = r#"
fn turn(prompt) {
    let n = recall("n");
    if type_of(n) == "()" { n = 0; }
    let texts = "";
    for m in messages() {
        if m.from == "USER" {
            n += 1;
            texts += m.text + ";";
            write_file("log", m.text + "\n", #{ append: true });
        }
    }
    list_files();
    if texts != "" { read_file("log"); }
    remember("n", n);
    `${n} ${texts}`
}"#;

/// Something to be done.
#[derive(Debug, Clone)]
pub enum Task {
    Create { name: String },
    Ask { agent: String, text: String },
    Tell { agent: String, text: String },
    Label { agent: String, value: String },
    Acknowledge { messages: Vec<String> },
}

/// A message that was acknowledged.
#[derive(Debug, Clone)]
pub struct Sent {
    pub agent: String,
    pub text: String,
    pub id: String,
    /// The answer, its turn and its sequence.
    pub answer: Option<(String, String, u64)>,
}

/// What one client was told.
#[derive(Debug, Default)]
pub struct Memory {
    /// Ids of agents by name.
    pub agents: BTreeMap<String, String>,
    pub sent: Vec<Sent>,
    /// Last label by agent.
    pub labels: BTreeMap<String, String>,
    /// Messages that were removed from USER's inbox.
    pub removed: BTreeSet<String>,
    /// Request ids of all that was done.
    pub requests: BTreeSet<String>,
}

/// One of several clients, each with agents of its own.
pub struct Worker {
    name: String,
    rng: StdRng,
    /// What is being done, under which request id.
    pending: Option<(String, Task)>,
    made: u32,
    /// What texts end with.
    padding: String,
    pub memory: Memory,
}

/// Whether a call failed because the daemon went away, and not because it said no.
pub fn is_lost(status: &Status) -> bool {
    reason(status).is_empty()
}

impl Worker {
    pub fn new(name: &str, seed: u64) -> Self {
        Self {
            name: name.to_owned(),
            rng: StdRng::seed_from_u64(seed),
            pending: None,
            made: 0,
            padding: String::new(),
            memory: Memory::default(),
        }
    }

    /// Makes every text longer by so many bytes.
    pub fn padded(self, bytes: usize) -> Self {
        Self { padding: ".".repeat(bytes), ..self }
    }

    /// What workers are ordered by.
    pub fn order(&self) -> String {
        self.name.clone()
    }

    fn number(&mut self) -> u32 {
        self.made += 1;
        self.made
    }

    fn some_agent(&mut self) -> Option<String> {
        let count = self.memory.agents.len();
        let place = if count > 0 { self.rng.random_range(0..count) } else { return None };
        self.memory.agents.keys().nth(place).cloned()
    }

    async fn choose(&mut self, client: &Client) -> Result<Task, Status> {
        let number = self.number();
        let dice = self.rng.random_range(0..100);
        let agent = self.some_agent();
        let Some(agent) = agent.filter(|_| dice >= 3) else {
            return Ok(Task::Create { name: format!("{}-{number}", self.name) });
        };
        let text = format!("{}:{number}{}", self.name, self.padding);
        Ok(match dice {
            3..70 => Task::Ask { agent, text },
            70..85 => Task::Tell { agent, text },
            85..95 => Task::Label { agent, value: text },
            _ => {
                let request = v1::ListInboxRequest { page_size: 5, ..Default::default() };
                let inbox = client.agents.clone().list_inbox(request).await?.into_inner();
                let messages = inbox.messages.into_iter().map(|message| message.id).collect();
                Task::Acknowledge { messages }
            }
        })
    }

    /// Works until the daemon goes away. Each thing that is done is counted.
    pub async fn work(&mut self, client: &Client, done: &watch::Sender<u64>) {
        while self.step(client).await {
            done.send_modify(|count| *count += 1);
        }
    }

    /// Does what is pending, if anything is. False if the daemon went away.
    pub async fn settle(&mut self, client: &Client) -> bool {
        self.pending.is_none() || self.step(client).await
    }

    async fn step(&mut self, client: &Client) -> bool {
        if self.pending.is_none() {
            match self.choose(client).await {
                Ok(task) => self.pending = Some((uuid::Uuid::new_v4().to_string(), task)),
                Err(status) if is_lost(&status) => return false,
                Err(status) => panic!("the inbox: {status:?}"),
            }
        }
        let Some((request_id, task)) = self.pending.clone() else { return true };
        match self.attempt(client, &request_id, task.clone()).await {
            Ok(()) => {
                self.pending = None;
                self.memory.requests.insert(request_id);
                true
            }
            Err(status) if is_lost(&status) => false,
            Err(status) => panic!("{task:?}: {status:?}"),
        }
    }

    async fn attempt(&mut self, client: &Client, id: &str, task: Task) -> Result<(), Status> {
        let (mut agents, request_id) = (client.agents.clone(), id.to_owned());
        match task {
            Task::Create { name } => {
                let instructions = match self.memory.agents.len() % 3 {
                    0 => COUNTER,
                    1 => PARENT,
                    _ => WRITER,
                };
                let request = v1::CreateAgentRequest {
                    name: name.clone(),
                    instructions: instructions.into(),
                    workspace: "desk".into(),
                    request_id,
                    ..Default::default()
                };
                let created = agents.create_agent(request).await?.into_inner().agent.unwrap();
                self.memory.agents.insert(name, created.id);
            }
            Task::Ask { agent, text } => self.send(agents, agent, text, request_id, false).await?,
            Task::Tell { agent, text } => self.send(agents, agent, text, request_id, true).await?,
            Task::Label { agent, value } => {
                let metadata = [("label".to_owned(), value.clone())].into();
                let name = agent.clone();
                let request =
                    v1::UpdateAgentRequest { agent, metadata, request_id, ..Default::default() };
                agents.update_agent(request).await?;
                self.memory.labels.insert(name, value);
            }
            Task::Acknowledge { messages } => {
                let message_ids = messages.clone();
                agents.ack_inbox(v1::AckInboxRequest { message_ids, request_id }).await?;
                self.memory.removed.extend(messages);
            }
        }
        Ok(())
    }

    async fn send(
        &mut self,
        mut agents: v1::agent_service_client::AgentServiceClient<tonic::transport::Channel>,
        agent: String,
        text: String,
        request_id: String,
        no_wait: bool,
    ) -> Result<(), Status> {
        let request = v1::SendMessageRequest {
            agent: agent.clone(),
            text: text.clone(),
            no_wait,
            request_id,
            ..Default::default()
        };
        let sent = agents.send_message(request).await?.into_inner();
        assert_eq!(sent.answered, !no_wait);
        if sent.answered {
            assert!(sent.answer.contains(&format!("{text};")), "{} for {text}", sent.answer);
        }
        let answer = sent.answered.then_some((sent.answer, sent.turn_id, sent.sequence));
        self.memory.sent.push(Sent { agent, text, id: sent.message_id, answer });
        Ok(())
    }
}
