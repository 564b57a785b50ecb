//! Bare models behind an API, against a model on loopback: turns, tools, memory, every failure.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::path::{Path, PathBuf};

use substrat_proto::v1;
use substrat_tests::harness::{Client, Daemon, say, substratd, text};
use substrat_tests::model_server::{Behaviour, End, ModelServer, Usage};
use substrat_tests::watch::deltas;

const KEY: &str = "sk-test-4711-abcdef";
const ECHO: &str = r#"fn turn(prompt) { "heard " + messages()[0].text }"#;

/// How each API is configured.
const KINDS: [(&str, &str); 2] = [("anthropic", ""), ("openai", "/v1")];

struct Bench {
    server: ModelServer,
    daemon: Daemon,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn start((kind, path): (&str, &str), more: &[&str]) -> Self {
        let (server, folder) = (ModelServer::start(), tempfile::tempdir().unwrap());
        let key = folder.path().join("key");
        std::fs::write(&key, format!("{KEY}\n")).unwrap();
        let own = [
            format!("providers.fake.kind={kind}"),
            format!("providers.fake.base_url={}{path}", server.url()),
            format!("providers.fake.key_file={}", key.display()),
            "providers.fake.model=fake-1".to_owned(),
            r#"providers.fake.prices={"fake-*"={input=1.0,output=2.0}}"#.to_owned(),
        ];
        let settings: Vec<&str> =
            own.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let daemon = Daemon::on(&folder.path().join("home"), &settings);
        Self { server, daemon, _folder: folder }
    }

    /// The root of a workspace on the host.
    fn root(&self, workspace: &str) -> PathBuf {
        let shown = say(&self.daemon.home, &["workspace", "show", workspace, "-o", "json"]);
        PathBuf::from(shown.json()["workspace"]["root"].as_str().unwrap())
    }

    async fn client(&self) -> Client {
        let client = self.daemon.client().await;
        let create = ["agent", "create", "m", "--provider", "fake", "--instructions", "be good"];
        self.daemon.ctl_ok(&create);
        client
    }
}

/// Every file below a folder that holds a text.
fn holding(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path, text));
        } else if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_streams_its_answer_and_counts_what_it_used() {
    for kind in KINDS {
        let bench = Bench::start(kind, &[]);
        let client = bench.client().await;
        let mut watch = client.attach("m", None).await;
        watch.input("SAY one two three", "1").await;
        let items = watch
            .until(|item| substrat_tests::watch::event_name(item) == Some("turn.complete"))
            .await;
        assert!(deltas(&items).len() >= 3, "{items:?}");
        let request = bench.server.requests().remove(0);
        assert!(request.tools.contains(&"send_message".to_owned()), "{:?}", request.tools);
        assert!(request.body.to_string().contains("be good"));
        let header = if kind.0 == "anthropic" { KEY.to_owned() } else { format!("Bearer {KEY}") };
        assert!(request.headers.values().any(|value| *value == header), "{:?}", request.headers);
        let agent = client.agent("m").await;
        let used = agent.usage.unwrap();
        assert_eq!(used.output_tokens, Usage::OUTPUT);
        assert_eq!(used.cache_read_tokens, Usage::CACHE_READ);
        let read =
            if kind.0 == "anthropic" { Usage::INPUT } else { Usage::INPUT - Usage::CACHE_READ };
        assert_eq!(used.input_tokens, read);
        assert_eq!(used.cost_micro_usd, read + 2 * Usage::OUTPUT);
        assert_eq!(holding(&bench.daemon.home, KEY), Vec::<String>::new(), "the key stays out");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_called_and_its_result_goes_back_to_the_model() {
    for kind in KINDS {
        let bench = Bench::start(kind, &[]);
        let client = bench.client().await;
        let create = ["agent", "create", "echo", "--parent", "m", "--provider", "scripted"];
        bench.daemon.ctl_ok(&[&create[..], &["--instructions", ECHO]].concat());
        let told =
            "CALL send_message {\"recipient\":\"echo\",\"text\":\"hello\"}\nSAY it said {result}";
        let answer = client.ask("m", told).await.unwrap();
        assert!(answer.starts_with("it said ") && answer.contains("heard hello"), "{answer}");
        assert_eq!(bench.server.requests().len(), 2);
        let events = client.events().await;
        let arrived = |event: &&v1::Event| {
            event.r#type == "message.enqueued" && text(event, "payload") == "hello"
        };
        assert_eq!(events.iter().filter(arrived).count(), 1);
        // Arguments that are none are for the model to mend.
        let told = "CALL send_message {\"nobody\":1}\nSAY it said {result}";
        let answer = client.ask("m", told).await.unwrap();
        assert!(answer.contains("nobody"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_said_is_remembered_over_suspension_restart_and_kill() {
    for kind in KINDS {
        let mut bench = Bench::start(kind, &["slots.default=1"]);
        let client = bench.client().await;
        client.ask("m", "SAY alpha noted").await.unwrap();
        // The only slot goes to another agent, so that the session is suspended.
        bench.daemon.ctl_ok(&["agent", "create", "n", "--provider", "fake"]);
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
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_is_cancelled_lets_go_of_the_model() {
    for kind in KINDS {
        let bench = Bench::start(kind, &[]);
        let client = bench.client().await;
        client.tell("m", "SAY a\nSTALL").await;
        let request = bench.server.request(|request| request.user.contains("STALL")).await;
        bench.daemon.ctl_ok(&["agent", "cancel", "m"]);
        assert_eq!(bench.server.ended(request.number).await, End::Dropped);
        client.wait_event(1, |event| event.r#type == "turn.cancelled").await;
        // What was told of its use at the beginning counts.
        let used = client.agent("m").await.usage.unwrap();
        let read = if kind.0 == "anthropic" { Usage::INPUT } else { 0 };
        assert_eq!(used.input_tokens, read);
        assert_eq!(client.ask("m", "SAY on").await.unwrap(), "on");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_pass_is_tried_again_and_what_may_not_is_told() {
    for kind in KINDS {
        let bench = Bench::start(kind, &[]);
        let client = bench.client().await;
        for (trouble, class) in [
            ("STATUS 429 retry-after 1 once", "rate-limit"),
            ("STATUS 500 once", "overload"),
            ("STATUS 529 once", "overload"),
            ("MIDSTREAM overloaded once", "overload"),
            ("CUT once", "network"),
        ] {
            let before = client.sequence().await;
            let answer = client.ask("m", &format!("{trouble}\nSAY over {class}")).await;
            assert_eq!(answer.unwrap(), format!("over {class}"), "{trouble}");
            let tried = client.wait_event(before, |event| event.r#type == "turn.retry").await;
            assert_eq!(text(&tried, "class"), class, "{trouble}");
        }
        for (trouble, class) in [("STATUS 400", "invalid-request"), ("STATUS 401", "auth")] {
            let before = client.sequence().await;
            // What a failed turn was asked comes again with the next.
            bench.daemon.ctl_ok(&["agent", "create", class, "--provider", "fake"]);
            let asked = client.ask(class, trouble).await;
            assert!(asked.is_err(), "{trouble}: {asked:?}");
            let failed = client.wait_event(before + 1, |event| event.r#type == "turn.failed").await;
            assert_eq!(text(&failed, "class"), class, "{failed:?}");
        }
    }
}

/// Answers that were cut for their length: in the midst of a call, and of a text.
fn cut_answers(kind: &str) -> [String; 2] {
    let events =
        |events: &[&str]| events.iter().map(|event| format!("data: {event}\n\n")).collect();
    if kind == "openai" {
        let cut = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}"#;
        let call = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"list_children","arguments":""}}]}}]}"#;
        let text = r#"{"choices":[{"index":0,"delta":{"content":"half of"}}]}"#;
        return [call, text].map(|said| events(&[said, cut, "[DONE]"]));
    }
    let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":1}}}"#;
    let cut = r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{}}"#;
    let call = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"list_children","input":{}}}"#;
    let text = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"half of"}}"#;
    [call, text].map(|said| events(&[start, said, cut, r#"{"type":"message_stop"}"#]))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_cut_is_a_failure_and_its_calls_are_not_made() {
    for kind in KINDS {
        let bench = Bench::start(kind, &[]);
        let client = bench.daemon.client().await;
        for (number, body) in cut_answers(kind.0).into_iter().enumerate() {
            let name = format!("m{number}");
            bench.daemon.ctl_ok(&["agent", "create", &name, "--provider", "fake"]);
            let (status, content_type) = (200, "text/event-stream".to_owned());
            bench.server.next([Behaviour::Raw { status, content_type, body: body.into_bytes() }]);
            let before = client.sequence().await;
            let asked = client.ask(&name, "SAY on").await;
            assert!(asked.is_err(), "{asked:?}");
            let failed = client.wait_event(before + 1, |event| event.r#type == "turn.failed").await;
            assert_eq!(text(&failed, "class"), "permanent");
            let wanted = "raise max_tokens in [providers.fake]";
            assert!(text(&failed, "error").contains(wanted), "{failed:?}");
        }
        let events = client.events().await;
        assert!(events.iter().all(|event| event.r#type != "tool_call.invoked"), "{events:?}");
    }
}

/// An answer of control characters, which are six times as long as JSON, without an end.
fn flood(kind: &str) -> Vec<u8> {
    let part = r"\u0001".repeat(1 << 20);
    let event = match kind {
        "openai" => format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{part}"}}}}]}}"#),
        _ => format!(
            r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{part}"}}}}"#
        ),
    };
    let start =
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
    format!("data: {start}\n\n{}", format!("data: {event}\n\n").repeat(24)).into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_too_long_fails_its_turn_and_nothing_else() {
    for kind in KINDS {
        let bench = Bench::start(kind, &[]);
        let client = bench.client().await;
        bench.daemon.ctl_ok(&["agent", "create", "n", "--provider", "fake"]);
        let (status, content_type) = (200, "text/event-stream".to_owned());
        let body = flood(kind.0);
        bench.server.next([Behaviour::Raw { status, content_type, body }]);
        let asked = client.ask("m", "SAY on").await;
        assert!(asked.is_err(), "{asked:?}");
        let failed = client.wait_event(0, |event| event.r#type == "turn.failed").await;
        assert_eq!(text(&failed, "class"), "protocol");
        assert!(text(&failed, "error").contains("longer than 16 MiB"), "{failed:?}");
        assert_eq!(client.ask("n", "SAY still here").await.unwrap(), "still here");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_does_not_fit_is_made_shorter_for_the_model_alone() {
    for kind in KINDS {
        let mut bench = Bench::start(kind, &[]);
        let client = bench.client().await;
        for number in 0..6 {
            client.ask("m", &format!("SAY noted {number}")).await.unwrap();
        }
        let answer = client.ask("m", "OVERFLOW once\nRECALL").await.unwrap();
        assert!(answer.contains("noted 5") && !answer.contains("noted 0"), "{answer}");
        let noticed = client.wait_event(0, |event| event.r#type == "turn.notice").await;
        let wanted = "3 earlier turns are left out";
        assert!(text(&noticed, "text").contains(wanted), "{noticed:?}");
        let asked = bench.server.requests().len();
        let recalled = client.ask("m", "RECALL").await.unwrap();
        assert!(recalled.contains("noted 5") && !recalled.contains("noted 0"), "{recalled}");
        assert_eq!(bench.server.requests().len(), asked + 1, "what fits is known");
        assert!(bench.daemon.stop());
        bench.daemon.start_again();
        let client = bench.daemon.client().await;
        let recalled = client.ask("m", "RECALL").await.unwrap();
        assert!(recalled.contains("noted 0"), "the log is whole: {recalled}");
        // An answer that filled the context is none, and is asked for again.
        let (status, content_type) = (200, "text/event-stream".to_owned());
        let body = full_answer(kind.0).into_bytes();
        bench.server.next([Behaviour::Raw { status, content_type, body }]);
        let recalled = client.ask("m", "RECALL").await.unwrap();
        assert!(recalled.contains("noted 5") && !recalled.contains("noted 0"), "{recalled}");
    }
}

/// An answer that was cut because the context is full.
fn full_answer(kind: &str) -> String {
    let [_, text] = cut_answers(kind);
    let text = text.replace(r#""max_tokens""#, r#""model_context_window_exceeded""#);
    text.replace(r#""length""#, r#""model_length""#)
}

/// The messages of a request, without marks of what is cached.
fn messages(body: &serde_json::Value) -> Vec<serde_json::Value> {
    let mut messages = body["messages"].as_array().unwrap().clone();
    let blocks = messages.iter_mut().filter_map(|message| message["content"].as_array_mut());
    for block in blocks.flatten() {
        block.as_object_mut().unwrap().remove("cache_control");
    }
    messages
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_has_cached_is_what_the_next_turn_begins_with() {
    let bench = Bench::start(KINDS[0], &[]);
    let client = bench.client().await;
    let told = "SAY let me see\nCALL list_children {}\nCALL list_children {}\nSAY done";
    assert_eq!(client.ask("m", told).await.unwrap(), "done");
    client.ask("m", told).await.unwrap();
    let bodies: Vec<_> = bench.server.requests().into_iter().map(|it| it.body).collect();
    assert_eq!(bodies.len(), 6);
    for pair in bodies.windows(2) {
        let (before, after) = (messages(&pair[0]), messages(&pair[1]));
        assert!(after.len() > before.len());
        assert_eq!(after[..before.len()], before);
        // The end of what was told before is marked in both.
        let last = pair[1]["messages"][before.len() - 1]["content"].as_array().unwrap();
        assert!(last.last().unwrap().get("cache_control").is_some(), "{last:?}");
        assert!(pair[1].to_string().matches("cache_control").count() <= 4);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_a_provider_says_what_is_missing() {
    let bench = Bench::start(
        KINDS[0],
        &[
            "providers.locked.kind=openai",
            "providers.locked.key_file=/nowhere/key",
            "providers.off.kind=openai",
            "providers.off.base_url=http://127.0.0.1:9/v1",
            r#"providers."my.api".kind=openai"#,
            "providers.fake.model=gone-1",
        ],
    );
    let checked = bench.daemon.ctl_ok(&["provider", "check", "fake"]);
    assert!(checked.contains("it can run here"), "{checked}");
    assert!(checked.contains("model: gone-1, which is not among those that"), "{checked}");
    assert!(bench.daemon.ctl_ok(&["provider", "models", "fake"]).contains("fake-1"));
    let locked = say(&bench.daemon.home, &["provider", "check", "locked"]);
    assert_eq!(locked.code, Some(1));
    assert!(
        locked.stderr.contains("there is no file /nowhere/key: put the key there"),
        "{locked:?}"
    );
    let listed = bench.daemon.ctl_ok(&["provider", "list"]);
    assert!(listed.contains("locked cannot run here: there is no file"), "{listed}");
    let off = "nothing listens on 127.0.0.1:9: start it";
    assert!(listed.contains(&format!("off cannot run here: {off}")), "{listed}");
    let checked = say(&bench.daemon.home, &["provider", "check", "off"]);
    assert!(checked.code == Some(1) && checked.stderr.contains(off), "{checked:?}");
    let asked = say(&bench.daemon.home, &["provider", "models", "off"]);
    assert!(asked.code != Some(0) && asked.stderr.contains(off), "{asked:?}");
    let create = ["agent", "create", "x", "--provider", "locked", "--instructions", "x"];
    let said = say(&bench.daemon.home, &create);
    assert!(
        said.stderr.contains("no model was given, and [providers.locked] names none"),
        "{said:?}"
    );
    // Its section stands there as it does in a file.
    let create = ["agent", "create", "x", "--provider", "my.api", "--instructions", "x"];
    let said = say(&bench.daemon.home, &create);
    let wanted = r#"no model was given, and [providers."my.api"] names none"#;
    assert!(said.stderr.contains(wanted), "{said:?}");
    bench.daemon.ctl_ok(&["agent", "create", "y", "--provider", "locked", "--model", "m"]);
    let said = say(&bench.daemon.home, &["agent", "send", "y", "hello"]);
    assert!(said.stderr.contains("there is no key: the file /nowhere/key"), "{said:?}");
}

/// Answers with its prompt, unless it is told to break.
const PROGRAM: &str = r#"import json, sys
for line in sys.stdin:
    turn = json.loads(line)
    if turn["type"] != "turn":
        continue
    if "break" in turn["messages"][0]["text"]:
        said = {"type": "error", "class": "overflow", "message": "too long"}
    else:
        said = {"type": "done", "response": turn["prompt"]}
    print(json.dumps(said), flush=True)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn another_provider_stands_in_for_a_turn_and_no_longer() {
    let program = "providers.own.kind=program";
    let fallback = r#"providers.own.fallback=["fake:fake-2"]"#;
    let bench = Bench::start(KINDS[1], &[program, fallback]);
    let client = bench.daemon.client().await;
    bench.daemon.ctl_ok(&["workspace", "create", "desk"]);
    std::fs::write(bench.root("desk").join("own.py"), PROGRAM).unwrap();
    let create = ["agent", "create", "m", "--provider", "own", "--workspace", "desk", "--model"];
    bench.daemon.ctl_ok(&[&create[..], &["python3 own.py"]].concat());
    assert!(client.ask("m", "first").await.unwrap().ends_with("first"));
    let before = client.sequence().await;
    let answer = client.ask("m", "break\nSAY spare here").await.unwrap();
    assert_eq!(answer, "spare here");
    let tried = client.wait_event(before + 1, |event| event.r#type == "turn.retry").await;
    assert_eq!((text(&tried, "provider"), text(&tried, "class")), ("fake", "overflow"));
    let log = bench.daemon.ctl_ok(&["agent", "log", "m"]);
    assert!(log.contains("overflow, asks fake: "), "{log}");
    let asked = bench.server.requests().remove(0);
    assert_eq!(asked.body["model"], "fake-2");
    assert!(asked.body.to_string().contains("first"), "it is told what was said before");
    let turn = text(&tried, "turn_id").to_owned();
    let record = bench.daemon.ctl_ok(&["turn", "show", &turn]);
    assert!(record.contains("FALLBACK_TRIGGERED") && record.contains("own → fake"), "{record}");
    // The session's own is told what it missed, once.
    let told = client.ask("m", "third").await.unwrap();
    assert!(told.contains("stood in for you") && told.contains("You said: spare here"), "{told}");
    assert!(!told.contains("first"), "{told}");
    let told = client.ask("m", "fourth").await.unwrap();
    assert!(!told.contains("stood in for you"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_one_said_is_told_though_none_may_stand_in_any_more() {
    let bench = Bench::start(KINDS[1], &[]);
    let client = bench.daemon.client().await;
    let reload = |fallback: &str| {
        let section = format!("[providers.own]\nkind = \"program\"\nfallback = {fallback}\n");
        std::fs::write(bench.daemon.home.join("config.toml"), section).unwrap();
        bench.daemon.ctl_ok(&["daemon", "reload"]);
    };
    reload(r#"["fake"]"#);
    bench.daemon.ctl_ok(&["workspace", "create", "desk"]);
    std::fs::write(bench.root("desk").join("own.py"), PROGRAM).unwrap();
    let create = ["agent", "create", "m", "--provider", "own", "--workspace", "desk", "--model"];
    bench.daemon.ctl_ok(&[&create[..], &["python3 own.py"]].concat());
    assert_eq!(client.ask("m", "break\nSAY spare here").await.unwrap(), "spare here");
    reload("[]");
    let told = client.ask("m", "second").await.unwrap();
    assert!(told.contains("stood in for you") && told.contains("You said: spare here"), "{told}");
    let told = client.ask("m", "third").await.unwrap();
    assert!(!told.contains("stood in for you"), "{told}");
}

/// One of a kind that others stand in for, and an agent with it.
fn stood_in_for(bench: &Bench, (kind, path): (&str, &str)) {
    let url = format!("{}{path}", bench.server.url());
    let keys = format!("kind = {kind:?}\nbase_url = {url:?}\nmodel = \"m\"");
    let section = format!("[providers.own]\n{keys}\nfallback = [\"fake\"]\n");
    std::fs::write(bench.daemon.home.join("config.toml"), section).unwrap();
    bench.daemon.ctl_ok(&["daemon", "reload"]);
    bench.daemon.ctl_ok(&["agent", "create", "m", "--provider", "own"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_one_stands_in_for_a_model_that_is_not_there() {
    for kind in KINDS {
        let bench = Bench::start(kind, &[]);
        stood_in_for(&bench, kind);
        let client = bench.daemon.client().await;
        let told = "STATUS 404 once\nSAY spare here";
        assert_eq!(client.ask("m", told).await.unwrap(), "spare here");
        let tried = client.wait_event(1, |event| event.r#type == "turn.retry").await;
        assert_eq!((text(&tried, "provider"), text(&tried, "class")), ("fake", "provider-gone"));
        let failed = client.ask("m", "STATUS 404").await.unwrap_err();
        for told in [
            "own failed (provider-gone): the server answered 404 Not Found",
            "substratctl provider models own lists its models\nfake stood in and failed: ",
            "look at the model and at base_url in [providers.fake]; ",
        ] {
            assert!(failed.message().contains(told), "{told}: {failed:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_long_where_another_one_can_be_asked() {
    for kind in KINDS {
        let bench = Bench::start(kind, &[]);
        stood_in_for(&bench, kind);
        let client = bench.daemon.client().await;
        let told = "STATUS 429 retry-after 300 once\nSAY spare here";
        assert_eq!(client.ask("m", told).await.unwrap(), "spare here");
        let tried = client.wait_event(1, |event| event.r#type == "turn.retry").await;
        assert_eq!((text(&tried, "provider"), text(&tried, "class")), ("fake", "rate-limit"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_goes_to_no_server_that_it_was_not_named_for() {
    for ((kind, path), name) in KINDS.into_iter().zip(["ANTHROPIC_API_KEY", "OPENAI_API_KEY"]) {
        let (server, folder) = (ModelServer::start(), tempfile::tempdir().unwrap());
        let home = folder.path().join("home");
        let mut command = substratd(&home);
        command.env(name, KEY);
        for provider in ["bare", "named"] {
            let url = server.url();
            for set in [format!("kind={kind}"), format!("base_url={url}{path}"), "model=m".into()] {
                command.arg("--set").arg(format!("providers.{provider}.{set}"));
            }
        }
        command.arg("--set").arg(format!("providers.named.key_env={name}"));
        let daemon = Daemon::run(&home, command).unwrap();
        let client = daemon.client().await;
        for provider in ["bare", "named"] {
            daemon.ctl_ok(&["agent", "create", provider, "--provider", provider]);
            client.ask(provider, "SAY on").await.unwrap();
        }
        let shows: Vec<bool> = server
            .requests()
            .iter()
            .map(|request| request.headers.values().any(|value| value.contains(KEY)))
            .collect();
        assert_eq!(shows, [false, true], "{kind}");
        let refused = client.ask("bare", "STATUS 401").await.unwrap_err();
        let wanted = "no key is given to it: name one in [providers.bare]";
        assert!(refused.message().contains(wanted), "{refused}");
        let refused = client.ask("named", "STATUS 401").await.unwrap_err();
        let wanted = format!("its key comes from the variable {name} of the daemon: look whether");
        assert!(refused.message().contains(&wanted), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_long_is_set_aside_until_it_is_tried_again_or_discarded() {
    for kind in KINDS {
        let bench = Bench::start(kind, &[]);
        let (daemon, client) = (&bench.daemon, bench.client().await);
        client.ask("m", "SAY alpha noted").await.unwrap();
        bench.server.refuse("far-too-long");
        for text in ["SAY far-too-long", "SAY far-too-long-too"] {
            let failed = client.ask("m", text).await.unwrap_err();
            assert!(failed.message().contains("(overflow)"), "{failed:?}");
        }
        // The second waited behind the first, and was tried when that was set aside.
        assert_eq!(client.ask("m", "SAY beta noted").await.unwrap(), "beta noted");
        let ids = || {
            let shown = daemon.ctl_ok(&["agent", "inspect", "m"]);
            let lines = shown.lines().filter_map(|line| line.strip_prefix("set aside  "));
            lines.map(|line| line[..8].to_owned()).collect::<Vec<String>>()
        };
        let [first, second] = <[String; 2]>::try_from(ids()).unwrap();
        let said = daemon.ctl_ok(&["agent", "discard", "m", &first]);
        assert_eq!((said.as_str(), ids()), ("discarded 1 message of m\n", vec![second.clone()]));
        let no = say(&daemon.home, &["agent", "discard", "m", &first]);
        assert_eq!(no.code, Some(4), "{no:?}");
        let before = client.sequence().await;
        daemon.ctl_ok(&["agent", "retry", "m"]);
        client.wait_event(before + 1, |event| event.r#type == "turn.failed").await;
        assert_eq!(ids(), Vec::<String>::new(), "it is a message like any other again");
        bench.server.refuse("nothing is");
        let before = client.sequence().await;
        daemon.ctl_ok(&["agent", "retry", "m", &second]);
        let done = client.wait_event(before + 1, |event| event.r#type == "turn.complete").await;
        assert_eq!(text(&done, "response"), "far-too-long-too");
        let recalled = client.ask("m", "RECALL").await.unwrap();
        assert!(recalled.contains("alpha noted") && recalled.contains("beta noted"), "{recalled}");
    }
}
