//! Durable scripted turns over the socket, against a bare tonic echo.

use std::path::Path;
use std::time::{Duration, Instant};

use substrat_proto::v1;
use substrat_proto::v1::tool_service_client::ToolServiceClient;
use substrat_tests::harness::{Client, Daemon, channel};
use tokio::task::JoinSet;

use crate::figures::{Figures, Target, percentile};
use crate::journal::folder;
use crate::rivals::Rival;

const AGENTS: usize = 64;
const MEASURED: Duration = Duration::from_secs(4);
const SCRIPT: &str = r#"fn turn(prompt) { "you said: " + prompt }"#;

pub(crate) fn run(figures: &mut Figures) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rival = Rival::start();
    let (echo, echo_p50, echo_p99) = runtime.block_on(echo(&rival.socket));
    drop(rival);
    let home = folder();
    let daemon = Daemon::on(&home.path().join("home"), &[]);
    let (rate, p50, p99) = runtime.block_on(turns(&daemon));
    let (with_ids, ..) =
        runtime.block_on(async { measure(&daemon.client().await, MEASURED, true).await });
    figures.add(
        "durable scripted turns, SendMessage to answer, 64 agents",
        (rate, "/s"),
        Some(("/s bare tonic echo", echo)),
        Target::AtLeast(12_000.0),
    );
    figures.add(
        "durable scripted turn, 64 agents: p50",
        (p50 * 1e3, "ms"),
        Some(("ms bare tonic echo", echo_p50 * 1e3)),
        Target::None,
    );
    figures.add(
        "durable scripted turn, 64 agents: p99",
        (p99 * 1e3, "ms"),
        Some(("ms bare tonic echo", echo_p99 * 1e3)),
        Target::None,
    );
    figures.add(
        "durable scripted turns, each with a request id, 64 agents",
        (with_ids, "/s"),
        Some(("/s bare tonic echo", echo)),
        Target::None,
    );
}

pub(crate) async fn echo(socket: &Path) -> (f64, f64, f64) {
    let client = ToolServiceClient::new(channel(socket).await.unwrap());
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..AGENTS {
        let mut client = client.clone();
        tasks.spawn(async move {
            let mut samples = Vec::new();
            while begun.elapsed() < MEASURED {
                let begun = Instant::now();
                let request = v1::CallToolRequest { name: "hello".into(), ..Default::default() };
                client.call_tool(request).await.unwrap();
                samples.push(begun.elapsed().as_secs_f64());
            }
            samples
        });
    }
    summary(tasks.join_all().await.concat(), begun)
}

/// Rate, p50 and p99 of what was done since.
fn summary(mut samples: Vec<f64>, begun: Instant) -> (f64, f64, f64) {
    let rate = samples.len() as f64 / begun.elapsed().as_secs_f64();
    (rate, percentile(&mut samples, 0.5), percentile(&mut samples, 0.99))
}

async fn turns(daemon: &Daemon) -> (f64, f64, f64) {
    let client = daemon.client().await;
    for number in 0..AGENTS {
        client.create(&format!("agent-{number}"), SCRIPT).await;
    }
    // Once around, so that every session is open.
    measure(&client, Duration::from_millis(300), false).await;
    measure(&client, MEASURED, false).await
}

async fn measure(client: &Client, time: Duration, with_ids: bool) -> (f64, f64, f64) {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..AGENTS {
        let mut agents = client.agents.clone();
        tasks.spawn(async move {
            let mut samples = Vec::new();
            while begun.elapsed() < time {
                let begun = Instant::now();
                let request = v1::SendMessageRequest {
                    agent: format!("agent-{number}"),
                    text: "hello".into(),
                    request_id: if with_ids {
                        uuid::Uuid::new_v4().to_string()
                    } else {
                        String::new()
                    },
                    ..Default::default()
                };
                let answer = agents.send_message(request).await.unwrap().into_inner();
                assert_eq!(answer.answer, "you said: hello");
                samples.push(begun.elapsed().as_secs_f64());
            }
            samples
        });
    }
    summary(tasks.join_all().await.concat(), begun)
}
