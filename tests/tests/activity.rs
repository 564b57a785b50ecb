//! What backends do between a prompt and an answer, as logs, watchers and the next turn see it.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

use substrat_proto::v1;
use substrat_proto::v1::attach_response::Item;
use substrat_tests::harness::{Client, Daemon, text};
use substrat_tests::model_server::ModelServer;
use substrat_tests::watch::{deltas, event_name};

const ECHO: &str = r#"fn turn(prompt) { "heard " + messages()[0].text }"#;
const LOOK: &str = "SAY let me look\n\
                    CALL send_message {\"recipient\":\"echo\",\"text\":\"hello\"}\n\
                    SAY all is well";

/// How each API is configured.
const KINDS: [(&str, &str); 2] = [("anthropic", ""), ("openai", "/v1")];

/// An agent `m` on a model, with a child `echo`.
async fn bench((kind, path): (&str, &str)) -> (ModelServer, Daemon, Client) {
    let server = ModelServer::start();
    let settings = [
        format!("providers.fake.kind={kind}"),
        format!("providers.fake.base_url={}{path}", server.url()),
        "providers.fake.model=fake-1".to_owned(),
        "providers.fake.key_env=HOME".to_owned(),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let daemon = Daemon::with(&settings);
    daemon.ctl_ok(&["agent", "create", "m", "--provider", "fake"]);
    let create = ["agent", "create", "echo", "--parent", "m", "--provider", "scripted"];
    daemon.ctl_ok(&[&create[..], &["--instructions", ECHO]].concat());
    let client = daemon.client().await;
    (server, daemon, client)
}

fn names<'a>(events: &'a [v1::Event], agent: &v1::Agent) -> Vec<&'a str> {
    let own = events.iter().filter(|event| event.agent_id == agent.id);
    own.map(|event| event.r#type.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_model_says_before_it_calls_a_tool_is_kept() {
    for kind in KINDS {
        let (server, daemon, client) = bench(kind).await;
        assert_eq!(client.ask("m", LOOK).await.unwrap(), "all is well");
        let (events, agent) = (client.events().await, client.agent("m").await);
        let names = names(&events, &agent);
        let said = names.iter().position(|name| *name == "turn.said").expect("it is in the log");
        assert_eq!(names[said + 1], "tool_call.invoked");
        assert_eq!(names.iter().filter(|name| **name == "turn.said").count(), 1);
        let said = events.iter().find(|event| event.r#type == "turn.said").unwrap();
        assert_eq!(text(said, "text"), "let me look");
        let transcript = daemon.ctl_ok(&["agent", "transcript", "m"]);
        assert!(transcript.contains("] m: let me look\n"), "{transcript}");
        // The model is sent it with the next turn, in its place.
        client.ask("m", "SAY again").await.unwrap();
        let body = server.requests().pop().unwrap().body.to_string();
        let places = ["\"let me look\"", "heard hello", "\"all is well\""];
        let places = places.map(|text| body.find(text));
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_failed_attempt_put_out_is_void() {
    for kind in KINDS {
        let (_server, _daemon, client) = bench(kind).await;
        let mut watch = client.attach("m", None).await;
        watch.input("SAY half of it\nMIDSTREAM overloaded once\nSAY and more", "1").await;
        let items = watch.until(|item| event_name(item) == Some("turn.complete")).await;
        let at = |fits: &dyn Fn(&Item) -> bool| {
            items.iter().position(|item| item.item.as_ref().is_some_and(fits)).expect("an item")
        };
        let void = at(&|item| matches!(item, Item::OutputReplaced(_)));
        let Some(Item::OutputReplaced(replaced)) = &items[void].item else { unreachable!() };
        assert_eq!((replaced.from_index, replaced.text.as_str()), (0, ""));
        assert_eq!(replaced.kind(), v1::OutputKind::Text);
        let before = deltas(&items[..void]).len() as u64;
        assert_eq!(replaced.to_index, before, "all that was put out is void");
        let Some(Item::TurnEnded(ended)) = &items.last().unwrap().item else { unreachable!() };
        let after: String =
            deltas(&items[void..]).into_iter().filter_map(|(.., text)| text).collect();
        assert_eq!(after, ended.response);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_comes_later_is_told_once_what_is_void() {
    let (server, _daemon, client) = bench(KINDS[0]).await;
    let mut watch = client.attach("m", None).await;
    watch.input("SAY half of it\nMIDSTREAM overloaded once\nSAY so\nHOLD on\nSAY done", "1").await;
    let is_void = |item: &v1::AttachResponse| matches!(item.item, Some(Item::OutputReplaced(_)));
    let items = watch.until(is_void).await;
    let started = items.iter().find(|item| event_name(item) == Some("turn.start")).unwrap();
    let Some(Item::OutputReplaced(replaced)) = &items.last().unwrap().item else { unreachable!() };
    let after = items.iter().map(|item| item.sequence).max();
    let open = v1::AttachOpen {
        seen_turn: started.sequence,
        seen_deltas: replaced.to_index + 1,
        ..substrat_tests::watch::open("m", after)
    };
    let mut again = client.try_attach(open).await.unwrap();
    server.release("on");
    let items = again.until(|item| event_name(item) == Some("turn.complete")).await;
    assert!(!items.iter().any(is_void), "{items:?}");
}
