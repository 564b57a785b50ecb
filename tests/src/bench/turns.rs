//! Durable scripted turns over the socket, against a bare tonic echo.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use substrat_proto::v1;
use substrat_proto::v1::tool_service_client::ToolServiceClient;
use substrat_tests::harness::{Client, Daemon, channel};
use tokio::task::JoinSet;

use crate::figures::{Figures, Target, percentile};
use crate::rivals::Rival;

const AGENTS: usize = 64;
const MEASURED: Duration = Duration::from_secs(4);
const SCRIPT: &str = r#"fn turn(prompt) { "you said: " + prompt }"#;

pub(crate) fn run(figures: &mut Figures) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rival = Rival::start();
    let echo = runtime.block_on(echo(&rival.socket));
    drop(rival);
    let daemon = Daemon::start();
    let (rate, p50, p99) = runtime.block_on(turns(&daemon));
    figures.add(
        "durable scripted turns, SendMessage to answer, 64 agents",
        (rate, "/s"),
        ("/s bare tonic echo", echo),
        Target::AtLeast(12_000.0),
    );
    figures.add(
        "durable scripted turn, 64 agents: p50",
        (p50 * 1e3, "ms"),
        ("", 1.0),
        Target::None,
    );
    figures.add(
        "durable scripted turn, 64 agents: p99",
        (p99 * 1e3, "ms"),
        ("", 1.0),
        Target::None,
    );
}

async fn echo(socket: &Path) -> f64 {
    let client = ToolServiceClient::new(channel(socket).await.unwrap());
    let count = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..AGENTS {
        let (mut client, count) = (client.clone(), count.clone());
        tasks.spawn(async move {
            while begun.elapsed() < MEASURED {
                let request = v1::CallToolRequest { name: "hello".into(), arguments: None };
                client.call_tool(request).await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tasks.join_all().await;
    count.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
}

async fn turns(daemon: &Daemon) -> (f64, f64, f64) {
    let client = daemon.client().await;
    for number in 0..AGENTS {
        client.create(&format!("agent-{number}"), SCRIPT).await;
    }
    // Once around, so that every session is open.
    measure(&client, Duration::from_millis(300)).await;
    measure(&client, MEASURED).await
}

async fn measure(client: &Client, time: Duration) -> (f64, f64, f64) {
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
                    ..Default::default()
                };
                let answer = agents.send_message(request).await.unwrap().into_inner();
                assert_eq!(answer.answer, "you said: hello");
                samples.push(begun.elapsed().as_secs_f64());
            }
            samples
        });
    }
    let mut samples: Vec<f64> = tasks.join_all().await.concat();
    let rate = samples.len() as f64 / begun.elapsed().as_secs_f64();
    (rate, percentile(&mut samples, 0.5), percentile(&mut samples, 0.99))
}
