//! Scripts against a turn that records what they do: what they are given, what they may not do,
//! and how they end.

mod memory;
mod usage;

use std::sync::Mutex;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::super::activity::{Activity, Decision};
use super::super::history::{End, History, Item, Turn};
use super::super::{OutputKind, Question, TurnIo};
use super::*;
use crate::model::{
    Blob, CallId, FailureClass, Json, Kind, LimitKind, Message, MessageId, Name, Party, SessionId,
    Timestamp, TurnId, Usage,
};

/// What tools answer.
type Answers = fn(&str, &Value) -> Result<Value, String>;

struct Io {
    emitted: Mutex<Vec<(OutputKind, String)>>,
    calls: Mutex<Vec<(String, Value)>>,
    answers: Answers,
    used: Mutex<Vec<Usage>>,
    history: History,
    cancel: CancellationToken,
    /// Cancelled when the script says something.
    spoke: CancellationToken,
}

impl TurnIo for Io {
    fn emit(&self, kind: OutputKind, text: &str) {
        self.emitted.lock().unwrap().push((kind, text.to_owned()));
        self.spoke.cancel();
    }

    fn tell(&self, _: Activity) {}

    fn ask(&self, _: Question) -> BoxFuture<'_, Decision> {
        std::future::ready(Decision::Cancel).boxed()
    }

    fn save(&self, _: Blob) {}

    fn call_tool<'a>(&'a self, tool: &'a str, args: Json) -> BoxFuture<'a, Result<Json, String>> {
        let args: Value = serde_json::from_str(args.get()).unwrap();
        let answer = (self.answers)(tool, &args);
        self.calls.lock().unwrap().push((tool.to_owned(), args));
        async move { answer.map(|value| Json::of(&value).unwrap()) }.boxed()
    }

    fn report_usage(&self, usage: Usage) {
        self.used.lock().unwrap().push(usage);
    }

    fn report_stderr(&self, _: &str, _: u64) {}

    fn report_exit(&self, _: u32, _: &str, _: Option<&str>) {}

    fn report_limit(&self, _: LimitKind, _: &str) {}

    fn report_unsandboxed(&self, _: &str) {}

    fn patience(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }

    fn history(&self) -> BoxFuture<'_, Result<History, Failure>> {
        let history = self.history.clone();
        async move { Ok(history) }.boxed()
    }

    fn cancelled(&self) -> &CancellationToken {
        &self.cancel
    }
}

fn io(answers: Answers) -> Arc<Io> {
    Arc::new(Io {
        emitted: Mutex::default(),
        calls: Mutex::default(),
        answers,
        used: Mutex::default(),
        history: History::default(),
        cancel: CancellationToken::new(),
        spoke: CancellationToken::new(),
    })
}

fn small() -> Settings {
    Settings { max_operations: 1_000_000, max_elements: 20_000, ..Settings::default() }
}

fn run<F: Future>(settings: Settings, future: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(settings.stack_bytes())
        .build()
        .unwrap()
        .block_on(future)
}

fn message(text: &str) -> Message {
    Message {
        id: MessageId::from_u128(7),
        sender: Party::User,
        sender_name: Name::known("USER"),
        kind: Kind::Request,
        text: text.into(),
        reply_to: None,
        answered: false,
        refusals: 0,
        retried: None,
        set_aside: false,
        metadata: Default::default(),
        at: Timestamp::default(),
        seq: 1,
    }
}

fn prompt(text: &str) -> Prompt {
    let messages = vec![message(text)].into();
    let (agent, turn) = (Name::known("lead"), TurnId::from_u64(1));
    Prompt { text: text.into(), messages, agent, turn, world: None, tools: Arc::new([]) }
}

fn check(script: &str) -> Result<(), String> {
    Scripted::new(small()).check(script, None).map_err(|objection| match objection {
        Objection::Instructions(problem) => problem,
        Objection::Model(problem) => panic!("a script needs no model: {problem}"),
    })
}

async fn open(script: &str, settings: Settings, saved: Option<Blob>) -> Box<dyn Instance> {
    let (session, instructions) = (SessionId::from_u128(1), script.into());
    let spec = Spec { session, model: None, instructions, saved, anew: false, tool_socket: None };
    let opened = Scripted::new(settings).open(spec).await;
    opened.unwrap_or_else(|failure| panic!("{failure}"))
}

/// Runs one turn with prompt "hello".
fn turn(script: &str, io: &Arc<Io>) -> Result<Ended, Failure> {
    run(small(), async {
        open(script, small(), None).await.turn(prompt("hello"), io.clone()).await
    })
}

/// What the body of `fn turn(prompt)` answers.
fn answer(body: &str) -> Result<String, Failure> {
    let script = format!("fn turn(prompt) {{ {body} }}");
    match turn(&script, &io(|_, _| Ok(Value::Null)))? {
        Ended::Completed { response, .. } => Ok(response),
        Ended::Cancelled => panic!("nobody cancelled it"),
    }
}

fn failure(body: &str) -> String {
    let failure = answer(body).expect_err(body);
    assert_eq!(failure.class, FailureClass::Permanent, "{body}");
    failure.message
}

#[test]
fn a_script_without_a_turn_of_one_parameter_is_refused() {
    assert_eq!(check("fn turn(prompt) { prompt }"), Ok(()));
    let missing = check("fn run(prompt) {}").unwrap_err();
    assert!(missing.contains("no fn turn(prompt)"), "{missing}");
    for (script, takes) in [("fn turn() {}", "0"), ("fn turn(a, b) {}", "2")] {
        let error = check(script).unwrap_err();
        assert!(error.contains(&format!("it takes {takes}")), "{error}");
    }
}

#[test]
fn a_syntax_error_says_where_it_is() {
    let error = check("fn turn(p) {\n  let = 3;\n}").unwrap_err();
    assert!(error.starts_with("line 2, column 7: "), "{error}");
    let error = check("fn turn(p) { q }").unwrap_err();
    assert!(error.contains("column 14") && error.contains("q"), "{error}");
}

#[test]
fn a_runtime_error_says_where_it_happened() {
    let script = "fn deep(n) {\n  let x = [];\n  x[n]\n}\nfn turn(p) { deep(4) }";
    let failed = turn(script, &io(|_, _| Ok(Value::Null))).unwrap_err();
    assert!(failed.message.starts_with("script error: line 3, column "), "{failed}");
    assert_eq!(failed.class, FailureClass::Permanent);
    assert!(failure("throw \"no\"").contains("no"));
}

#[test]
fn every_kind_of_value_has_an_answer() {
    for (body, expected) in [
        ("prompt", "hello"),
        ("\"größe\"", "größe"),
        ("7", "7"),
        ("1.5", "1.5"),
        ("true", "true"),
        ("'x'", "\"x\""),
        ("[]", "[]"),
        ("#{ a: [1, ()] }", "{\n  \"a\": [\n    1,\n    null\n  ]\n}"),
        ("say(\"a\"); say(2); say([3]);", "a2[3]"),
        ("say(\"said\"); \"returned\"", "returned"),
        ("", ""),
        ("exit(\"early\"); \"late\"", "early"),
    ] {
        assert_eq!(answer(body).as_deref(), Ok(expected), "{body}");
    }
}

#[test]
fn what_it_says_is_streamed_and_what_it_prints_is_thinking() {
    let io = io(|_, _| Ok(Value::Null));
    turn("fn turn(p) { say(\"one\"); print(\"hm\"); debug(\"why\"); say(2); }", &io).unwrap();
    let emitted = io.emitted.lock().unwrap();
    let texts: Vec<(OutputKind, &str)> =
        emitted.iter().map(|(kind, text)| (*kind, text.as_str())).collect();
    assert_eq!(texts[0], (OutputKind::Text, "one"));
    assert_eq!(texts[1], (OutputKind::Thinking, "hm"));
    assert!(texts[2].0 == OutputKind::Thinking && texts[2].1.contains("why"));
    assert_eq!(texts[3], (OutputKind::Text, "2"));
}

#[test]
fn it_sees_its_name_and_its_messages() {
    let script = "agent_name() + \" \" + messages()[0].from + \" \" + messages()[0].kind + \" \" \
                  + messages()[0].text + \" \" + (messages()[0].reply_to == ())";
    assert_eq!(answer(script).as_deref(), Ok("lead USER request hello true"));
}

#[test]
fn a_loop_for_ever_ends_at_the_limit_of_operations() {
    for body in ["loop {}", "while true { let x = 1; }", "try { loop {} } catch { loop {} }"] {
        let error = failure(body);
        assert!(error.to_lowercase().contains("too many operations"), "{body}: {error}");
    }
    let top = turn("loop {} fn turn(p) {}", &io(|_, _| Ok(Value::Null))).unwrap_err();
    assert!(top.message.to_lowercase().contains("too many operations"), "{top}");
}

#[test]
fn recursion_ends_at_a_limit() {
    let script = "fn f(n) { f(n + 1) } fn turn(p) { f(0) }";
    let error = turn(script, &io(|_, _| Ok(Value::Null))).unwrap_err();
    assert!(error.message.to_lowercase().contains("stack overflow"), "{error}");
    let mut nested = "f(n - 1)".to_owned();
    for _ in 0..10 {
        nested = format!("(1 + {nested})");
    }
    let script =
        format!("fn f(n) {{ if n == 0 {{ 0 }} else {{ {nested} }} }} fn turn(p) {{ f(40) }}");
    let ended = turn(&script, &io(|_, _| Ok(Value::Null))).unwrap();
    assert!(matches!(ended, Ended::Completed { response, .. } if response == "400"));
}

#[test]
fn nothing_grows_without_a_bound() {
    for body in [
        "let s = \"x\"; loop { s += s; }",
        "let s = \"x\"; loop { s = `${s}${s}`; }",
        "\"x\".pad(100000000000, 'y')",
        "let a = [1]; loop { a += a; }",
        "let a = []; a.pad(100000000000, 1);",
        "let a = [1]; loop { a = [a, a]; }",
        "blob(100000000000)",
        "let m = #{}; let i = 0; loop { m += #{}; m.set(`k${i}`, i); i += 1; }",
        "let m = #{ a: 1 }; loop { m = #{ a: m, b: m }; }",
    ] {
        let error = failure(body);
        assert!(error.contains("too large"), "{body}: {error}");
    }
    let error = failure("let s = \"\"; s.pad(1000000, 'x'); for i in 0..5 { say(s); }");
    assert!(error.contains("more than 4194304 bytes: return a value"), "{error}");
    let error = failure(
        "let s = \"\"; s.pad(100000, 'x'); let i = 0; loop { remember(`k${i}`, s); i += 1; }",
    );
    assert!(error.contains("to remember; at most 262144 are allowed"), "{error}");
}

#[test]
fn a_function_pointer_cannot_grow() {
    for script in [
        "fn turn(p) { let f = Fn(\"g\"); for i in 0..60 { f = f.curry(f); } }",
        "fn turn(p) { let f = || 1; for i in 0..60 { let g = f; f = || g.call(); } }",
    ] {
        assert!(check(script).is_err(), "{script}");
    }
    let error = failure("eval(\"let f = Fn(`g`); f.curry(f)\")");
    assert!(error.contains("line 1") && error.contains("Syntax error"), "{error}");
    assert_eq!(answer("[1, 2].map(|n| n * 2)[1]").as_deref(), Ok("4"));
}

#[test]
fn a_value_nested_as_deep_as_it_may_be_does_not_exhaust_the_stack() {
    let ends = "let b = a; a == b; say(a); print(a); a.to_string().len()";
    let built = answer(&format!("let a = []; for i in 0..5000 {{ a = [a]; }} {ends}"));
    assert_eq!(built.as_deref(), Ok("10002"));
    for end in ["a", "remember(\"a\", a)", "send_message(a, \"x\")", "#{ a: a }"] {
        let error = failure(&format!("let a = []; for i in 0..101 {{ a = [a]; }} {end}"));
        assert!(error.contains("nested more than 100 levels deep"), "{end}: {error}");
    }
}

#[test]
fn it_fails_with_the_kind_that_it_names() {
    for (kind, class) in [
        ("transient", FailureClass::Transient),
        ("permanent", FailureClass::Permanent),
        ("overflow", FailureClass::Overflow),
        ("budget", FailureClass::Budget),
        ("sandbox", FailureClass::Sandbox),
        ("provider-gone", FailureClass::ProviderGone),
    ] {
        assert_eq!(class.as_str(), kind);
        let failed =
            answer(&format!("try {{ fail(\"{kind}\", \"why\") }} catch {{ return \"caught\"; }}"));
        assert_eq!(failed, Err(Failure { class, message: "why".into(), retry_after: None }));
    }
    let error = failure("fail(\"odd\", \"x\")");
    assert!(error.contains("no kind of failure \"odd\"") && error.contains("overflow"), "{error}");
}

#[test]
fn a_sleeping_script_ends_when_the_turn_is_cancelled() {
    for sleep in ["sleep_ms(3600000)", "sleep(3600)", "sleep(1e300)", "loop {}"] {
        let script =
            format!("fn turn(p) {{ say(\"now\"); try {{ {sleep} }} catch {{}} say(\"after\"); }}");
        let io = io(|_, _| Ok(Value::Null));
        let ended = run(small(), async {
            let settings = Settings { max_operations: u64::MAX, ..small() };
            let mut instance = open(&script, settings, None).await;
            let cancel = async {
                io.spoke.cancelled().await;
                io.cancel.cancel();
            };
            tokio::join!(instance.turn(prompt("hello"), io.clone()), cancel).0
        });
        assert_eq!(ended, Ok(Ended::Cancelled), "{sleep}");
        assert_eq!(io.emitted.lock().unwrap().len(), 1, "{sleep}");
    }
    assert_eq!(answer("sleep_ms(-5); sleep_ms(0); sleep(0); \"up\"").as_deref(), Ok("up"));
}

#[test]
fn a_tool_is_a_function_with_required_and_optional_arguments() {
    let io = io(|tool, _| Ok(json!({ "tool": tool, "n": 1 })));
    let script = r#"fn turn(p) {
        send_message("worker", "go");
        send_message("worker", "go", false);
        send_message("worker", "go", #{ timeout: 5 });
        write_file("a", "b", true);
        list_children();
        list_files();
        list_files("src", true);
        read_file("a", 2, 3).n + 1
    }"#;
    let ended = turn(script, &io).unwrap();
    assert!(matches!(ended, Ended::Completed { response, .. } if response == "2"));
    let calls: Vec<Value> =
        io.calls.lock().unwrap().iter().map(|(tool, args)| json!([tool, args])).collect();
    assert_eq!(
        calls,
        [
            json!(["send_message", { "recipient": "worker", "text": "go" }]),
            json!(["send_message", { "recipient": "worker", "text": "go", "sync": false }]),
            json!(["send_message", { "recipient": "worker", "text": "go", "timeout": 5 }]),
            json!(["write_file", { "path": "a", "content": "b", "append": true }]),
            json!(["list_children", {}]),
            json!(["list_files", {}]),
            json!(["list_files", { "path": "src", "recursive": true }]),
            json!(["read_file", { "path": "a", "first_line": 2, "max_lines": 3 }]),
        ]
    );
}

#[test]
fn a_tool_that_refuses_can_be_caught() {
    let io = io(|tool, _| Err(format!("{tool} says no")));
    let caught =
        "fn turn(p) { try { list_children() } catch (error) { return `caught ${error}`; } }";
    let ended = turn(caught, &io).unwrap();
    let Ended::Completed { response, .. } = ended else { panic!("nobody cancelled it") };
    assert_eq!(response, "caught list_children says no");
    let failed = turn("fn turn(p) {\n  list_children()\n}", &io).unwrap_err();
    assert!(failed.message.contains("line 2") && failed.message.contains("says no"), "{failed}");
}

#[test]
fn a_tool_called_with_too_few_or_too_many_arguments_is_not_called() {
    for body in ["send_message(\"x\")", "list_children(1, 2, 3)", "complete(1, 2)"] {
        let io = io(|_, _| Ok(Value::Null));
        let failed = turn(&format!("fn turn(p) {{ {body} }}"), &io).expect_err(body);
        assert!(failed.message.contains("line 1"), "{failed}");
        assert!(io.calls.lock().unwrap().is_empty(), "{body}");
    }
}

#[test]
fn it_remembers_across_turns_and_sessions_what_it_saw_itself() {
    let script = r#"fn turn(p) {
        if recall("v") == () {
            remember("v", #{ n: 1, x: 1.5, list: [1, ()], c: 'c' });
            remember("gone", 1);
            forget("gone");
        }
        `${recall("v")} ${recall("gone")} ${type_of(recall("v").c)}`
    }"#;
    let io = io(|_, _| Ok(Value::Null));
    run(small(), async {
        let mut instance = open(script, small(), None).await;
        let Ok(Ended::Completed { response: first, saved: Saved::State(state) }) =
            instance.turn(prompt("hello"), io.clone()).await
        else {
            panic!("it saves what it remembers")
        };
        let mut resumed = open(script, small(), Some(state)).await;
        let again = resumed.turn(prompt("hello"), io.clone()).await.unwrap();
        assert!(matches!(again, Ended::Completed { response, .. } if response == first));
    });
}

#[test]
fn a_turn_that_fails_remembers_nothing() {
    let script = r#"fn turn(p) {
        let seen = recall("n");
        remember("n", 1);
        if p == "fail" { throw "no" }
        `${seen}`
    }"#;
    let io = io(|_, _| Ok(Value::Null));
    run(small(), async {
        let mut instance = open(script, small(), None).await;
        assert!(instance.turn(prompt("fail"), io.clone()).await.is_err());
        let ended = instance.turn(prompt("go"), io.clone()).await.unwrap();
        assert!(matches!(ended, Ended::Completed { response, .. } if response.is_empty()));
    });
}

#[test]
fn what_it_forgets_makes_room() {
    let settings = Settings { max_memory: 1000, ..small() };
    let script = r#"fn turn(p) {
        let s = "";
        s.pad(900, 'x');
        for i in 0..50 { remember("a", s); }
        forget("a");
        remember("b", s);
        remember("c", s);
    }"#;
    let io = io(|_, _| Ok(Value::Null));
    let failed = run(settings, async {
        open(script, settings, None).await.turn(prompt("hello"), io.clone()).await.unwrap_err()
    });
    assert!(failed.message.contains("line 7"), "{failed}");
}

#[test]
fn a_damaged_memory_is_told_and_not_passed_over() {
    let io = io(|_, _| Ok(Value::Null));
    for damaged in ["[1]", "{\"a\":", "7"] {
        let spec = Spec {
            session: SessionId::from_u128(1),
            model: None,
            instructions: "fn turn(p) {}".into(),
            saved: Some(Blob::from(damaged.as_bytes().to_vec())),
            anew: false,
            tool_socket: None,
        };
        let opened = run(small(), async { Scripted::new(small()).open(spec).await.err() });
        assert!(opened.expect(damaged).message.contains("unreadable"), "{damaged}");
    }
    assert!(io.calls.lock().unwrap().is_empty());
}

#[test]
fn nothing_outside_of_its_tools_can_be_reached() {
    for body in [
        "import \"/etc/passwd\" as x;",
        "import \"std\" as x;",
        "open_file(\"/etc/passwd\")",
        "env(\"HOME\")",
        "env::var(\"HOME\")",
        "timestamp()",
        "system(\"id\")",
        "eval(\"import `x` as y;\")",
    ] {
        let script = format!("fn turn(p) {{ {body} }}");
        let refused =
            check(&script).is_err() || turn(&script, &io(|_, _| Ok(Value::Null))).is_err();
        assert!(refused, "{body}");
    }
    assert_eq!(answer("eval(\"1 + 1\")").as_deref(), Ok("2"));
}

#[test]
fn a_script_sees_its_conversation() {
    let (id, value) = (CallId::from_u64(1), Json::of(&json!({ "lines": 3 })).unwrap());
    let (tool, args) = ("look".into(), Json::of(&json!({ "path": "x" })).unwrap());
    let other = CallId::from_u64(2);
    let items = vec![
        Item::User("ask".into()),
        Item::Call { id, tool, args },
        Item::Call { id: other, tool: "jump".into(), args: Json::null() },
        Item::Result { id, outcome: Ok(value) },
        Item::Result { id: other, outcome: Err("too high".into()) },
        Item::Assistant("done".into()),
    ];
    let turns = vec![Turn { id: TurnId::from_u64(7), end: End::Completed, stand_in: None, items }];
    let mut io = io(|_, _| Ok(Value::Null));
    Arc::get_mut(&mut io).unwrap().history = History { turns, cut: 2 };
    let script = "fn turn(prompt) { #{ seen: history(), cut: history_cut() } }";
    let Ok(Ended::Completed { response, .. }) = turn(script, &io) else { panic!("it completes") };
    let turn = "exec-0000000000000007";
    let (first, second) = ("call-0000000000000001", "call-0000000000000002");
    let wanted = json!({ "cut": 2, "seen": [
        { "turn": turn, "role": "user", "text": "ask" },
        { "turn": turn, "role": "assistant", "call": first, "tool": "look", "args": { "path": "x" } },
        { "turn": turn, "role": "assistant", "call": second, "tool": "jump", "args": null },
        { "turn": turn, "role": "tool", "call": first, "tool": "look", "result": { "lines": 3 } },
        { "turn": turn, "role": "tool", "call": second, "tool": "jump", "error": "too high" },
        { "turn": turn, "role": "assistant", "text": "done" },
    ]});
    assert_eq!(serde_json::from_str::<Value>(&response).unwrap(), wanted);
}

#[test]
fn a_conversation_that_a_script_may_not_hold_is_an_error_that_can_be_caught() {
    let items = vec![Item::User("x".repeat(3000).into()), Item::Assistant("done".into())];
    let turns = vec![Turn { id: TurnId::from_u64(7), end: End::Completed, stand_in: None, items }];
    let mut io = io(|_, _| Ok(Value::Null));
    Arc::get_mut(&mut io).unwrap().history = History { turns, cut: 0 };
    let settings = Settings { max_string: 2000, ..small() };
    let script = "fn turn(prompt) { try { history(); } catch (e) { return \"caught\"; } }";
    let ended = run(settings, async {
        open(script, settings, None).await.turn(prompt("hello"), io.clone()).await
    });
    let Ok(Ended::Completed { response, .. }) = ended else { panic!("{ended:?}") };
    assert_eq!(response, "caught");
}
