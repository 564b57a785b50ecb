//! Agents that are programs, in a workspace that holds them.

use std::path::{Path, PathBuf};

use substrat_proto::v1;
use tokio::task::JoinHandle;

use crate::harness::{Client, Daemon};
use crate::probe::eventually;

/// What the programs of tests begin with.
const SAY: &str = r#"
import json, os, signal, sys, time, uuid

def say(**message):
    print(json.dumps(message), flush=True)

def done(response, **more):
    say(type="done", response=response, **more)

def turns():
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "turn":
            yield message

def call(tool, **args):
    say(type="call", id=tool, tool=tool, args=args)
    return json.loads(sys.stdin.readline())
"#;

/// A daemon with a workspace `ws`, whose agents are programs.
pub struct Shop {
    pub daemon: Daemon,
    pub client: Client,
    /// Root of the workspace on the host.
    pub root: PathBuf,
}

impl Shop {
    /// A daemon in a fresh home.
    pub async fn open(settings: &[&str]) -> Self {
        Self::on(Daemon::with(settings)).await
    }

    /// The same on a daemon that runs.
    pub async fn on(daemon: Daemon) -> Self {
        let client = daemon.client().await;
        let request = v1::CreateWorkspaceRequest { name: "ws".into(), ..Default::default() };
        let made = client.workspaces.clone().create_workspace(request).await;
        let made = made.expect("the workspace is made").into_inner().workspace;
        let root = PathBuf::from(made.expect("a workspace").root);
        eventually("the root", || root.is_dir()).await;
        let shop = Self { daemon, client, root };
        shop.put("say.py", SAY);
        shop
    }

    /// Puts a file into the workspace.
    pub fn put(&self, name: &str, text: &str) {
        std::fs::write(self.root.join(name), text).expect("the file is written");
    }

    /// Creates an agent with this command line.
    pub async fn hire(&self, name: &str, command: &str) -> v1::Agent {
        self.hire_under("", name, command).await
    }

    /// The same under a parent.
    pub async fn hire_under(&self, parent: &str, name: &str, command: &str) -> v1::Agent {
        let request = v1::CreateAgentRequest {
            name: name.into(),
            parent: parent.into(),
            provider: "program".into(),
            model: command.into(),
            instructions: format!("You are {name}."),
            workspace: "ws".into(),
            ..Default::default()
        };
        let created = self.client.agents.clone().create_agent(request).await;
        created.expect("the agent is created").into_inner().agent.expect("an agent")
    }

    /// Creates an agent that runs a Python program. The program is named in its command line.
    pub async fn python(&self, name: &str, program: &str) -> v1::Agent {
        self.put(&format!("{name}.py"), &format!("from say import *\n{program}"));
        self.hire(name, &format!("python3 {name}.py {}", self.mark(name))).await
    }

    /// What no other process has in its command line.
    pub fn mark(&self, name: &str) -> String {
        format!("{name}@{}", self.root.display())
    }

    /// Processes of an agent that run.
    pub fn processes(&self, name: &str) -> usize {
        let mark = self.mark(name);
        let all = std::fs::read_dir("/proc").expect("/proc").flatten();
        all.filter(|entry| names(&entry.path(), &mark)).count()
    }

    /// Waits until no process of an agent is left.
    pub async fn gone(&self, name: &str) {
        eventually("the end of its processes", || self.processes(name) == 0).await;
    }

    /// Waits until a process has made a file in the workspace.
    pub async fn wait_for(&self, file: &str) {
        let path = self.root.join(file);
        eventually("the file", || path.exists()).await;
    }

    /// Sends a message, and waits for the answer beside what follows.
    pub fn asking(&self, agent: &str, text: &str) -> JoinHandle<Result<String, tonic::Status>> {
        let (client, agent, text) = (self.client.clone(), agent.to_owned(), text.to_owned());
        tokio::spawn(async move { client.ask(&agent, &text).await })
    }

    /// Asks an agent, whose turn must fail; why it did.
    pub async fn failure(&self, agent: &str) -> String {
        let failed = self.client.ask(agent, "go").await.expect_err("its turn fails");
        failed.message().to_owned()
    }

    /// Cancels the turn that an agent runs.
    pub async fn cancel(&self, agent: &str) {
        let request = v1::CancelTurnRequest { agent: agent.into(), ..Default::default() };
        self.client.agents.clone().cancel_turn(request).await.expect("a turn runs");
    }

    /// Suspends the session of an agent.
    pub async fn suspend(&self, agent: &v1::Agent) {
        let session = agent.session_id.clone();
        let request = v1::SuspendSessionRequest { session, ..Default::default() };
        self.client.sessions.clone().suspend_session(request).await.expect("it is idle");
    }

    /// Ends an agent.
    pub async fn terminate(&self, agent: &str) {
        let request = v1::TerminateAgentRequest { agent: agent.into(), ..Default::default() };
        self.client.agents.clone().terminate_agent(request).await.expect("it is there");
    }

    /// What an agent's log holds of a kind of event.
    pub async fn events(&self, agent: &v1::Agent, kind: &str) -> Vec<v1::Event> {
        let mut events = self.client.events().await;
        events.retain(|event| event.agent_id == agent.id && event.r#type == kind);
        events
    }
}

fn names(process: &Path, mark: &str) -> bool {
    let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
    line.windows(mark.len()).any(|part| part == mark.as_bytes())
}
