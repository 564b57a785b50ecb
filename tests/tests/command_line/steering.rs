//! Messages to a turn that runs.

use substrat_tests::harness::{say, text};

use super::{Bench, CODEX, CODEX_EXEC};

#[tokio::test(flavor = "multi_thread")]
async fn codex_takes_a_message_in_while_it_works() {
    let Some(bench) = Bench::start(CODEX, &[]) else { return };
    let client = bench.client().await;
    client.tell("m", "SAY one\nHOLD gate\nSAY two").await;
    bench.server.request(|request| request.user.contains("HOLD")).await;
    let home = bench.daemon.home.clone();
    let steer = ["agent", "send", "m", "SAY I turned", "--steer"];
    let steered = tokio::task::spawn_blocking(move || say(&home, &steer));
    let taken = client.wait_event(0, |event| event.r#type == "message.collected").await;
    assert_eq!(text(&taken, "told"), "SAY I turned", "{taken:?}");
    bench.server.release("gate");
    let said = steered.await.unwrap();
    assert_eq!((said.code, said.stdout.trim()), (Some(0), "I turned"), "{said:?}");
    let events = client.events().await;
    let count = |name: &str| events.iter().filter(|event| event.r#type == name).count();
    assert_eq!((count("turn.start"), count("message.delivered")), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_says_that_the_message_comes_next() {
    let Some(bench) = Bench::start(CODEX_EXEC, &[]) else { return };
    let client = bench.client().await;
    client.tell("m", "HOLD gate\nSAY two").await;
    bench.server.request(|request| request.user.contains("HOLD")).await;
    let home = bench.daemon.home.clone();
    let steer = ["agent", "send", "m", "SAY I turned", "--steer"];
    let steered = tokio::task::spawn_blocking(move || say(&home, &steer));
    let told = |event: &substrat_proto::v1::Event| {
        event.r#type == "turn.notice" && text(event, "text").contains("it comes next")
    };
    client.wait_event(0, told).await;
    bench.server.release("gate");
    let said = steered.await.unwrap();
    assert_eq!((said.code, said.stdout.trim()), (Some(0), "I turned"), "{said:?}");
    let events = client.events().await;
    assert_eq!(events.iter().filter(|event| event.r#type == "turn.start").count(), 2);
}
