//! The core on its own, and the engine around it on a simulated disk.

mod backends;
mod calls;
mod core;
mod driver;
mod fake;
mod sockets;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::{Command, NewAgent, Policy, ProviderPolicy, Resume};

fn policy() -> Policy {
    let provider = ProviderPolicy { slots: 4, call_limit: None };
    Policy {
        providers: BTreeMap::from([("fake".into(), provider)]),
        default_provider: "fake".into(),
        max_text: 1000,
        max_inbox: 50,
        max_user_inbox: 1000,
        max_inbox_bytes: 1 << 20,
        max_agents: 1000,
        max_depth: 6,
        max_waiting: 100,
        max_reminders: 5,
        max_subscriptions: 5,
        multicast_timeout: Duration::from_secs(600),
        max_setbacks: 3,
        resume: Resume::None,
        request_retention: Duration::from_secs(60),
        draining: false,
    }
}

fn create(name: &str) -> Command {
    let agent =
        NewAgent { name: name.into(), instructions: "answer".into(), ..NewAgent::default() };
    Command::CreateAgent { agent, parent: None }
}

fn send(agent: &str, text: &str) -> Command {
    Command::SendMessage { agent: agent.into(), text: text.into(), metadata: BTreeMap::new() }
}
