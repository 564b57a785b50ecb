//! What only cursor-agent does, by its stand-in.

use substrat_tests::model_server::ModelServer;

use super::{Bench, CURSOR};

/// How often its model reads a text in what it was asked last.
fn read(server: &ModelServer, text: &str) -> usize {
    let asked = server.requests().into_iter().rfind(|request| !request.aside);
    asked.map_or(0, |asked| asked.body.to_string().matches(text).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn instructions_that_changed_are_told_once_in_the_same_chat() {
    let Some(bench) = Bench::start(CURSOR, &[]) else { return };
    let client = bench.client().await;
    client.ask("m", "SAY alpha noted").await.unwrap();
    client.ask("m", "SAY two").await.unwrap();
    assert_eq!(read(&bench.server, "be good"), 1);
    bench.daemon.ctl_ok(&["agent", "update", "m", "--instructions", "be brief"]);
    client.ask("m", "SAY three").await.unwrap();
    assert_eq!(read(&bench.server, "be brief"), 1, "it knows what it is to be now");
    let recalled = client.ask("m", "RECALL").await.unwrap();
    assert!(recalled.contains("alpha noted"), "{recalled}");
    assert_eq!((read(&bench.server, "be good"), read(&bench.server, "be brief")), (1, 1));
}
