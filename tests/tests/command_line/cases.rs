//! What holds for every command-line agent.

use substrat_proto::v1;
use substrat_tests::harness::text;
use substrat_tests::model_server::End;
use substrat_tests::watch::{deltas, event_name};

use super::{Agent, Bench, KEY};

/// Bytes of a message with which a conversation is too long, and more than is told of one.
const LONG: usize = 160_000;

const ECHO: &str = r#"fn turn(prompt) { "heard " + messages()[0].text }"#;

pub(crate) async fn turn(agent: Agent) {
    let Some(bench) = Bench::start(agent, &[]) else { return };
    let client = bench.client().await;
    let mut watch = client.attach("m", None).await;
    watch.input("SAY one two three", "1").await;
    let items = watch.until(|item| event_name(item) == Some("turn.complete")).await;
    let said: String = deltas(&items).into_iter().filter_map(|(_, _, text)| text).collect();
    assert!(said.contains("one two three"), "{items:?}");
    let events = client.events().await;
    let done = events.iter().find(|event| event.r#type == "turn.complete").unwrap();
    assert_eq!(text(done, "response"), "one two three");
    let asked: Vec<_> = bench.server.requests().into_iter().filter(|it| !it.aside).collect();
    assert_eq!(asked.len(), 1, "{:#?}", bench.server.summary());
    assert!(
        asked[0].tools.iter().any(|tool| tool.ends_with("send_message")),
        "{:?}",
        asked[0].tools
    );
    assert!(asked[0].body.to_string().contains("be good"), "it knows what it is to be");
    assert!(asked[0].headers.values().any(|value| value.contains(KEY)), "{:?}", asked[0].headers);
    let used = client.agent("m").await.usage.unwrap();
    assert!(used.output_tokens > 0 && used.turns == 1, "{used:?}");
    // Its key is nowhere but in its environment.
    let home = bench.daemon.home.clone();
    let log = std::fs::read_to_string(home.join("substratd.log")).unwrap_or_default();
    assert!(!log.contains(KEY));
    for event in events {
        assert!(!format!("{event:?}").contains(KEY), "{event:?}");
    }
}

pub(crate) async fn message(agent: Agent) {
    let Some(bench) = Bench::start(agent, &[]) else { return };
    let client = bench.client().await;
    let create = ["agent", "create", "echo", "--parent", "m", "--provider", "scripted"];
    bench.daemon.ctl_ok(&[&create[..], &["--instructions", ECHO]].concat());
    let told =
        "CALL send_message {\"recipient\":\"echo\",\"text\":\"hello\"}\nSAY it said {result}";
    let answer = client.ask("m", told).await.unwrap();
    assert!(answer.starts_with("it said ") && answer.contains("heard hello"), "{answer}");
    let events = client.events().await;
    let arrived = |event: &&v1::Event| {
        event.r#type == "message.enqueued" && text(event, "payload") == "hello"
    };
    assert_eq!(events.iter().filter(arrived).count(), 1);
}

pub(crate) async fn memory(agent: Agent) {
    let Some(mut bench) = Bench::start(agent, &["slots.default=1"]) else { return };
    let client = bench.client().await;
    client.ask("m", "SAY alpha noted").await.unwrap();
    // The only slot goes to another agent, so that the session is suspended.
    bench.daemon.ctl_ok(&["agent", "create", "n", "--provider", "cli"]);
    client.ask("n", "SAY hello").await.unwrap();
    let recalled = client.ask("m", "RECALL").await.unwrap();
    assert!(recalled.contains("alpha noted"), "{recalled}");
    assert!(bench.daemon.stop());
    bench.daemon.start_again();
    let client = bench.daemon.client().await;
    let recalled = client.ask("m", "RECALL").await.unwrap();
    assert!(recalled.contains("alpha noted"), "{recalled}");
    // Killed in the midst of a turn: what it was asked comes again by itself.
    client.tell("m", "HOLD gate\nSAY beta noted").await;
    bench.server.request(|request| request.user.contains("HOLD gate")).await;
    bench.daemon.kill();
    bench.server.release("gate");
    bench.daemon.start_again();
    let client = bench.daemon.client().await;
    let agent = client.agent("m").await;
    client
        .wait_event(0, |event| {
            event.r#type == "turn.complete"
                && event.agent_id == agent.id
                && text(event, "response").contains("beta noted")
        })
        .await;
    let recalled = client.ask("m", "RECALL").await.unwrap();
    assert!(recalled.contains("alpha noted") && recalled.contains("beta noted"), "{recalled}");
}

pub(crate) async fn cancel(agent: Agent) {
    let Some(bench) = Bench::start(agent, &[]) else { return };
    let client = bench.client().await;
    client.ask("m", "SAY alpha noted").await.unwrap();
    client.tell("m", "SAY a\nSTALL").await;
    let request = bench.server.request(|request| request.user.contains("STALL")).await;
    bench.daemon.ctl_ok(&["agent", "cancel", "m"]);
    assert_eq!(bench.server.ended(request.number).await, End::Dropped);
    let recalled = client.ask("m", "RECALL").await.unwrap();
    assert!(recalled.contains("alpha noted"), "{recalled}");
}

pub(crate) async fn instructions(agent: Agent) {
    let Some(bench) = Bench::start(agent, &[]) else { return };
    let client = bench.client().await;
    client.ask("m", "SAY alpha noted").await.unwrap();
    bench.daemon.ctl_ok(&["agent", "update", "m", "--instructions", "be better than good"]);
    client.ask("m", "SAY beta noted").await.unwrap();
    let asked = bench.server.request(|request| request.user.contains("SAY beta noted")).await;
    let told = asked.body.to_string();
    assert!(told.contains("be better than good") && told.contains("alpha noted"), "{told}");
}

pub(crate) async fn models(agent: Agent) {
    let Some(bench) = Bench::start(agent, &[]) else { return };
    let listed = bench.daemon.ctl_ok(&["provider", "models", "cli", "-o", "json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let models = listed["models"].as_array().unwrap();
    assert!(!models.is_empty());
    for model in models {
        let texts = ["id", "label"].map(|key| model[key].as_str().unwrap_or_default());
        assert!(texts.iter().all(|text| !text.is_empty() && !text.contains(KEY)), "{model}");
    }
    assert!(bench.daemon.ctl_ok(&["provider", "check", "cli"]).contains("it can run here"));
    let left = std::fs::read_dir(bench.daemon.home.join("providers")).unwrap().count();
    assert_eq!(left, 0, "its homes are gone");
}

pub(crate) async fn refused(agent: Agent, attempts: u32) {
    let attempts = format!("providers.cli.attempts={attempts}");
    let Some(bench) = Bench::start(agent, &[&attempts]) else { return };
    let client = bench.client().await;
    client.ask("m", "SAY alpha noted").await.unwrap();
    bench.server.refuse("far-too-long");
    let failed = client.ask("m", "SAY far-too-long").await.unwrap_err();
    assert!(failed.message().contains("(overflow)"), "{failed:?}");
    let answer = client.ask("m", "SAY beta noted").await.unwrap();
    // It is told what was said before, from the log, and its model obeys that too.
    assert!(answer.ends_with("beta noted"), "{answer} {:#?}", bench.server.summary());
    let shown = bench.daemon.ctl_ok(&["agent", "inspect", "m"]);
    assert!(shown.contains("set aside") && shown.contains("SAY far-too-long"), "{shown}");
    let recalled = client.ask("m", "RECALL").await.unwrap();
    assert!(recalled.contains("alpha noted") && recalled.contains("beta noted"), "{recalled}");
}

pub(crate) async fn outgrown(agent: Agent) {
    let Some(bench) = Bench::start(agent, &[]) else { return };
    let client = bench.client().await;
    client.ask("m", "SAY alpha noted").await.unwrap();
    let asked = bench.server.requests().into_iter().map(|request| request.body.to_string().len());
    let small = asked.max().unwrap();
    client
        .ask("m", &format!("SAY beta noted\n{}", "far too long ".repeat(LONG / 13)))
        .await
        .unwrap();
    bench.server.limit(small + LONG);
    let recalled = client.ask("m", "SAY gamma noted").await.unwrap();
    assert!(recalled.ends_with("gamma noted"), "{recalled}");
    let events = client.events().await;
    let retries: Vec<_> = events.iter().filter(|event| event.r#type == "turn.retry").collect();
    let classes: Vec<_> = retries.iter().map(|retry| text(retry, "class")).collect();
    assert_eq!(classes, if agent.shortens { vec![] } else { vec!["overflow"] });
    let recalled = client.ask("m", "RECALL").await.unwrap();
    assert!(recalled.contains("gamma noted"), "{recalled}");
}

pub(crate) async fn failures(agent: Agent) {
    let Some(bench) = Bench::start(agent, &["providers.cli.attempts=1"]) else { return };
    let client = bench.client().await;
    let statuses = [400, 401, 404, 429, 500, 529].map(|status| format!("STATUS {status}"));
    let troubles = statuses.iter().map(String::as_str).chain(["CUT"]);
    for (trouble, class) in troubles.zip(agent.classes) {
        let before = client.sequence().await;
        // What a failed turn was asked comes again with the next.
        let name = format!("m{before}");
        bench.daemon.ctl_ok(&["agent", "create", &name, "--provider", "cli"]);
        let asked = client.ask(&name, trouble).await;
        assert!(asked.is_err(), "{trouble}: {asked:?}");
        let failed = client.wait_event(before + 1, |event| event.r#type == "turn.failed").await;
        assert_eq!(text(&failed, "class"), class, "{trouble}: {failed:?}");
        bench.daemon.ctl_ok(&["agent", "terminate", &name]);
    }
}
