//! Agents that wake each other with messages.

use std::time::{Duration, Instant};

use substrat_proto::v1;
use substrat_tests::harness::{Client, Daemon};

use crate::figures::{Figures, Target};
use crate::journal::folder;
use crate::rivals::Rival;
use crate::turns::echo;

/// They write to each other in pairs, so that each message wakes one turn.
const AGENTS: usize = 64;
const MEASURED: Duration = Duration::from_secs(4);
const NAP: Duration = Duration::from_millis(500);

pub(crate) fn run(figures: &mut Figures) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rival = Rival::start();
    let (calls, ..) = runtime.block_on(echo(&rival.socket));
    drop(rival);
    let home = folder();
    let daemon = Daemon::on(&home.path().join("home"), &[]);
    let wakes = runtime.block_on(wakes(&daemon));
    drop(daemon);
    figures.add(
        "send_message to woken turn started, 64 agents",
        (wakes, "/s"),
        Some(("/s bare tonic echo", calls)),
        Target::AtLeast(3_000.0),
    );
    let begun = Instant::now();
    std::thread::sleep(NAP);
    let raw = begun.elapsed().as_secs_f64();
    let home = folder();
    let daemon = Daemon::on(&home.path().join("home"), &["slots.scripted=4"]);
    let took = runtime.block_on(naps(&daemon));
    figures.add(
        "four woken agents with 0.5 s turns, four slots",
        (took, "s"),
        Some(("s for one sleep of 0.5 s", raw)),
        Target::AtMost(0.8),
    );
}

async fn child(client: &Client, name: &str, script: String) -> v1::Agent {
    let request = v1::CreateAgentRequest {
        name: name.into(),
        parent: "lead".into(),
        instructions: script,
        ..Default::default()
    };
    client.agents.clone().create_agent(request).await.unwrap().into_inner().agent.unwrap()
}

/// Turns that were started by a message of another agent, in a second.
async fn wakes(daemon: &Daemon) -> f64 {
    let client = daemon.client().await;
    client.create("lead", "fn turn(prompt) { }").await;
    for number in 0..AGENTS {
        let partner = number ^ 1;
        let script =
            format!("fn turn(prompt) {{ send_message(\"a{partner}\", \"ball\", false); }}");
        child(&client, &format!("a{number}"), script).await;
    }
    for number in (0..AGENTS).step_by(2) {
        client.tell(&format!("a{number}"), "begin").await;
    }
    // Until every session is open.
    while started(&client).await < 20 * AGENTS as u64 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (begun, before) = (Instant::now(), started(&client).await);
    tokio::time::sleep(MEASURED).await;
    let after = started(&client).await;
    (after - before) as f64 / begun.elapsed().as_secs_f64()
}

/// Turns that were ever completed: each was woken by one message, and sent one.
async fn started(client: &Client) -> u64 {
    let agents = client.all_agents().await;
    agents.iter().map(|agent| agent.turns.as_ref().map_or(0, |turns| turns.completed)).sum()
}

/// Seconds from the message to an agent that wakes four others to the end of the last of these.
async fn naps(daemon: &Daemon) -> f64 {
    let client = daemon.client().await;
    let script = "fn turn(prompt) { for n in 0..4 { send_message(`a${n}`, `nap`, false); } }";
    client.create("lead", script).await;
    let mut sleepers = Vec::new();
    for number in 0..4 {
        let script = format!("fn turn(prompt) {{ sleep_ms({}); }}", NAP.as_millis());
        sleepers.push(child(&client, &format!("a{number}"), script).await);
    }
    let begun = Instant::now();
    let told = client.tell("lead", "go").await;
    for sleeper in &sleepers {
        client.wait_type(told.sequence, sleeper, "turn.complete").await;
    }
    begun.elapsed().as_secs_f64()
}
