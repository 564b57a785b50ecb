//! A lead whose turn stays open while someone calls its tools from outside.

use std::path::PathBuf;

use substrat_proto::v1;

use crate::harness::{Client, Daemon};

const HOLD: &str = r#"fn turn(prompt) {
    if messages()[0].text != "hold" { return "heard"; }
    while !list_files("").entries.some(|entry| entry.path == "released") { sleep_ms(20); }
    "held"
}"#;
const ECHO: &str = r#"fn turn(prompt) { "you said: " + messages()[0].text }"#;

/// A root with an open turn, a child that answers, and a gated one that does not.
pub struct Team {
    pub daemon: Daemon,
    pub client: Client,
    pub lead: v1::Agent,
    pub echo: v1::Agent,
    /// Folder of the lead's workspace.
    root: PathBuf,
}

impl Team {
    /// Starts a daemon, and the lead's turn.
    pub async fn start() -> Self {
        let daemon = Daemon::with(&["scripted.tool_socket=true"]);
        let client = daemon.client().await;
        let request = v1::CreateWorkspaceRequest { name: "desk".into(), ..Default::default() };
        let desk = client.workspaces.clone().create_workspace(request).await;
        let desk = desk.expect("a workspace").into_inner().workspace.expect("a workspace");
        let lead = client.create_in("lead", HOLD, "desk").await;
        let mut children = Vec::new();
        for name in ["echo", "gated"] {
            let request = v1::CreateAgentRequest {
                name: name.into(),
                parent: "lead".into(),
                instructions: ECHO.into(),
                ..Default::default()
            };
            let child = client.agents.clone().create_agent(request).await.expect("a child");
            children.push(child.into_inner().agent.expect("an agent"));
        }
        daemon.ctl_ok(&["agent", "gate", "gated"]);
        client.tell("lead", "hold").await;
        client.wait_type(1, &lead, "tool_call.invoked").await;
        let echo = children.swap_remove(0);
        Self { daemon, client, lead, echo, root: PathBuf::from(desk.root) }
    }

    /// Lets the lead's turn end.
    pub fn release(&self) {
        std::fs::write(self.root.join("released"), "").expect("the file is written");
    }

    /// Kills the daemon with -9.
    pub fn kill(&mut self) {
        self.daemon.kill();
    }

    /// Starts the daemon again, and waits until the lead's turn runs again.
    pub async fn start_again(&mut self) {
        self.daemon.start_again();
        self.client = self.daemon.client().await;
        let last = |event: &v1::Event| event.r#type == "daemon.recovered";
        let events = self.client.events().await;
        let recovered = events.iter().rev().find(|event| last(event));
        let from = recovered.expect("it recovered").sequence;
        self.client.wait_type(from, &self.lead, "tool_call.invoked").await;
    }

    /// Kills the daemon with -9 and starts it again.
    pub async fn crash(&mut self) {
        self.kill();
        self.start_again().await;
    }
}

/// Where the tool socket of an agent is.
pub fn tool_socket(daemon: &Daemon, agent: &v1::Agent) -> PathBuf {
    daemon.home.join("run").join(format!("{}.sock", agent.session_id))
}
