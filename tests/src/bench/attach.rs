//! Streamed deltas through Attach, against a bare tonic stream of the same messages.

use std::path::Path;
use std::time::{Duration, Instant};

use substrat_proto::v1;
use substrat_proto::v1::attach_request::Request as Asked;
use substrat_proto::v1::attach_response::Item;
use substrat_proto::v1::attach_service_client::AttachServiceClient;
use substrat_tests::harness::{Daemon, channel};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::figures::{Figures, Target};
use crate::journal::folder;
use crate::rivals::Rival;

const MEASURED: Duration = Duration::from_secs(2);
/// Deltas of one turn.
const DELTAS: u64 = 3_000_000;

pub(crate) fn run(figures: &mut Figures) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rival = Rival::start();
    let bare = runtime.block_on(bare(&rival.socket));
    drop(rival);
    let home = folder();
    let daemon = Daemon::on(&home.path().join("home"), &["scripted.max_operations=1000000000"]);
    let (rate, lagged) = runtime.block_on(deltas(&daemon));
    figures.add(
        "streamed deltas through Attach, one client",
        (rate, "/s"),
        Some(("/s bare tonic stream", bare)),
        Target::AtLeast(500_000.0),
    );
    figures.add(
        "  of them skipped, because the script was faster than the stream",
        (lagged * 100.0, "%"),
        None,
        Target::None,
    );
}

async fn bare(socket: &Path) -> f64 {
    let mut client = AttachServiceClient::new(channel(socket).await.unwrap());
    let (_requests, queue) = mpsc::channel(1);
    let mut items = client.attach(ReceiverStream::new(queue)).await.unwrap().into_inner();
    let begun = Instant::now();
    let mut count = 0_u64;
    while begun.elapsed() < MEASURED {
        for _ in 0..1000 {
            items.message().await.unwrap().unwrap();
        }
        count += 1000;
    }
    count as f64 / begun.elapsed().as_secs_f64()
}

async fn deltas(daemon: &Daemon) -> (f64, f64) {
    let client = daemon.client().await;
    let script =
        format!("fn turn(prompt) {{ for i in 0..{DELTAS} {{ say(\"12345678\"); }} \"done\" }}");
    client.create("talker", &script).await;
    let (requests, queue) = mpsc::channel(4);
    let open = v1::AttachOpen { agent: "talker".into(), ..Default::default() };
    let send = |asked| v1::AttachRequest { request: Some(asked) };
    requests.send(send(Asked::Open(open))).await.unwrap();
    let mut attach = client.attach.clone();
    let mut items = attach.attach(ReceiverStream::new(queue)).await.unwrap().into_inner();
    client.tell("talker", "go").await;
    let (mut count, mut lagged) = (0_u64, 0_u64);
    let mut begun = None;
    loop {
        match items.message().await.unwrap().unwrap().item {
            Some(Item::OutputDelta(_)) => {
                begun.get_or_insert_with(Instant::now);
                count += 1;
            }
            Some(Item::Lagged(gap)) => lagged += gap.to_index - gap.from_index,
            Some(Item::TurnEnded(turn)) => {
                assert_eq!(turn.outcome(), v1::TurnOutcome::Completed, "{}", turn.error);
                break;
            }
            _ => {}
        }
    }
    assert!(count + lagged <= DELTAS);
    let rate = count as f64 / begun.unwrap().elapsed().as_secs_f64();
    (rate, lagged as f64 / DELTAS as f64)
}
