//! What Codex wrote, and what is written to it.

use serde_json::{Value, json};

use super::app_server::{Answer, Call, Client, Thread};
use super::exec;
use crate::model::Usage;
use crate::provider::OutputKind;
use crate::provider::activity::{Activity, Decision, Event, RequestId, TurnOver, text};
use crate::provider::failure::FailureKind;
use crate::provider::fixtures::{self, Parser, Step, golden, steps, told};
use crate::provider::meter::Totals;

pub(in crate::provider) const APP_SERVER: &[&str] =
    &["codex_appserver_cmd_approval_and_errors", "codex_appserver_session"];

pub(in crate::provider) const EXEC: &[&str] = &[
    "codex_exec_all_config_by_-c",
    "codex_exec_bash_readonly_sandbox",
    "codex_exec_bash_sandbox_broken_no_item",
    "codex_exec_cut_rc1",
    "codex_exec_err400_rc1",
    "codex_exec_err401_rc1",
    "codex_exec_err429_rc1",
    "codex_exec_err500_rc1",
    "codex_exec_http_mcp",
    "codex_exec_mcp_needs_approval",
    "codex_exec_mcp_tool",
    "codex_exec_midstream_rc1",
    "codex_exec_resume",
    "codex_exec_simple",
];

impl Parser for exec::Stream {
    type Answer = exec::Answer;

    fn read(&mut self, line: &str) -> Vec<Event<exec::Answer>> {
        Self::read(self, line)
    }

    fn end(&mut self) -> Vec<Event<exec::Answer>> {
        Self::end(self)
    }
}

impl Parser for Client {
    type Answer = Answer;

    fn runs_at_once(&self) -> bool {
        false
    }

    fn given(&mut self, line: &str) -> bool {
        let Ok(given) = serde_json::from_str::<Value>(line) else { return false };
        let Some(id) = given["id"].as_i64() else { return false };
        let call = match given["method"].as_str() {
            Some("initialize") => Call::Initialize,
            Some("thread/start" | "thread/resume") => Call::Thread,
            Some("turn/start") => Call::Turn,
            Some("turn/steer") => Call::Steer,
            Some("turn/interrupt") => Call::Interrupt,
            Some(_) => Call::Other,
            None => {
                let decision = match &given["result"] {
                    result if result["decision"] == "decline" => Decision::Reject(String::new()),
                    _ => Decision::Allow,
                };
                if let Some(line) = self.answer(&RequestId::Number(id), &decision) {
                    let line = serde_json::from_str::<Value>(&line).unwrap();
                    assert_eq!(line["result"], given["result"]);
                }
                return false;
            }
        };
        self.expect(id, call);
        call == Call::Turn
    }

    fn read(&mut self, line: &str) -> Vec<Event<Answer>> {
        Self::read(self, line)
    }

    fn end(&mut self) -> Vec<Event<Answer>> {
        Self::end(self)
    }
}

fn client(_: &str) -> Client {
    Client::new(Totals::default())
}

fn stream(_: &str) -> exec::Stream {
    exec::Stream::default()
}

#[test]
fn captures_are_read_as_the_golden_files_say() {
    golden(APP_SERVER, client);
    golden(EXEC, stream);
}

#[test]
fn it_says_the_same_however_its_output_is_cut() {
    fixtures::however_it_is_cut(APP_SERVER, client);
    fixtures::however_it_is_cut(EXEC, stream);
}

#[test]
fn nothing_that_it_writes_breaks_what_is_promised() {
    fixtures::whatever_it_reads(APP_SERVER, client);
    fixtures::whatever_it_reads(EXEC, stream);
}

#[test]
fn a_compaction_is_noticed() {
    let item = json!({"type": "contextCompaction", "id": "c"});
    let line = json!({"method": "item/completed", "params": {"threadId": "t", "item": item}});
    let notice = "compacted its conversation".to_owned();
    let events = client("").read(&line.to_string());
    assert_eq!(events, [Event::Activity(Activity::Notice(notice))]);
}

#[test]
fn each_error_has_its_kind() {
    for (capture, kind) in [
        ("codex_exec_err400_rc1", "invalid-request"),
        ("codex_exec_err401_rc1", "auth"),
        ("codex_exec_err429_rc1", "rate-limit"),
        ("codex_exec_err500_rc1", "overload"),
        ("codex_exec_cut_rc1", "network"),
        ("codex_exec_midstream_rc1", "network"),
        ("codex_appserver_session", "overload"),
    ] {
        let told = told(capture);
        let over = format!("over failed {kind} ");
        assert!(told.last().unwrap().starts_with(&over), "{capture}: {told:?}");
        if kind != "invalid-request" {
            assert!(told.iter().any(|line| line.starts_with("retrying 1 ")), "{capture}: {told:?}");
        }
    }
    let kind = |info: Value| {
        let mut client = client("");
        let turn = json!({"status": "failed", "error": {"message": "x", "codexErrorInfo": info}});
        let line = json!({"method": "turn/completed", "params": {"turn": turn}}).to_string();
        match client.read(&line).pop() {
            Some(Event::Over(TurnOver::Failed(failed))) => failed.kind,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(kind(json!("contextWindowExceeded")), FailureKind::Overflow);
    assert_eq!(kind(json!("unauthorized")), FailureKind::Auth);
    assert_eq!(kind(json!("other")), FailureKind::Other);
    let status =
        |status: Value| json!({"responseTooManyFailedAttempts": {"httpStatusCode": status}});
    assert_eq!(kind(status(json!(429))), FailureKind::RateLimit);
    assert_eq!(kind(status(Value::Null)), FailureKind::Network);
}

#[test]
fn usage_that_runs_on_over_processes_is_booked_once() {
    let (mut totals, mut used) = (Totals::default(), Usage::default());
    for capture in ["codex_exec_mcp_tool", "codex_exec_resume"] {
        let mut stream = exec::Stream::new(totals);
        for step in steps(capture) {
            let Step::Wrote(line) = step else { continue };
            for event in stream.read(&line) {
                if let Event::Activity(Activity::Used(new)) = event {
                    used = used.plus(new);
                }
            }
        }
        totals = stream.totals();
    }
    assert_eq!((used.input_tokens, used.cache_read_tokens, used.output_tokens), (18, 15, 51));
}

#[test]
fn an_interrupted_turn_is_cancelled_and_books_nothing_twice() {
    let told = told("codex_appserver_session");
    assert_eq!(told.iter().filter(|line| line.starts_with("used ")).count(), 3, "{told:?}");
    assert_eq!(told.iter().filter(|line| *line == "over cancelled").count(), 1);
    assert_eq!(told.iter().filter(|line| line.starts_with("over ")).count(), 4);
    assert_eq!(told.iter().filter(|line| line.starts_with("notice ")).count(), 1, "once is enough");
}

#[test]
fn what_nobody_here_can_answer_is_refused() {
    let mut client = client("");
    let written = |events: Vec<Event<Answer>>| match &events[..] {
        [Event::Write(line)] => serde_json::from_str::<Value>(line).unwrap(),
        other => panic!("{other:?}"),
    };
    let call = json!({"id": "x", "method": "item/tool/call", "params": {}}).to_string();
    let refused = written(client.read(&call));
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("x"), &json!(-32601)));
    let ask =
        json!({"id": 7, "method": "mcpServer/elicitation/request", "params": {"_meta": null}});
    assert_eq!(written(client.read(&ask.to_string()))["result"], json!({"action": "decline"}));
}

#[test]
fn rights_are_given_as_they_were_asked_for_or_not_at_all() {
    let mut client = client("");
    let ask = json!({"id": 1, "method": "item/permissions/requestApproval", "params": {
        "itemId": "i", "permissions": {"network": {"enabled": true}},
    }});
    let mut answer = |decision| {
        client.read(&ask.to_string());
        let line = client.answer(&RequestId::Number(1), &decision).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()["result"].clone()
    };
    let rights = json!({"network": {"enabled": true}});
    assert_eq!(answer(Decision::Allow), json!({"permissions": rights, "scope": "turn"}));
    assert_eq!(answer(Decision::AllowAlways), json!({"permissions": rights, "scope": "session"}));
    assert_eq!(answer(Decision::Cancel), json!({"permissions": {}}));
}

#[test]
fn requests_are_those_that_were_captured() {
    let given: Vec<Value> = steps("codex_appserver_session")
        .into_iter()
        .filter_map(|step| match step {
            Step::Given(line) => serde_json::from_str(&line).ok(),
            Step::Wrote(_) => None,
        })
        .collect();
    let lines = |text: &str| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let mut client = client("");
    assert_eq!(client.start("x"), None, "no thread yet");
    assert_eq!(lines(&client.initialize("0.1.0")), given[..2]);
    let thread = Thread {
        resume: None,
        model: Some("fake-1"),
        cwd: "/ws",
        approval: "on-request",
        sandbox: "danger-full-access",
        instructions: None,
        config: json!({}),
    };
    assert_eq!(lines(&client.open(&thread)), given[2..3]);
    let id = given[3]["params"]["threadId"].clone();
    client.read(&json!({"id": 1, "result": {"thread": {"id": id}}}).to_string());
    assert_eq!(lines(&client.start("SIMPLE hi").unwrap()), given[3..4]);
    assert_eq!(client.interrupt(), None, "no turn yet");
    client.read(&json!({"id": 2, "result": {"turn": {"id": "t"}}}).to_string());
    let steered = lines(&client.steer("SIMPLE steer").unwrap());
    let steer = given.iter().find(|line| line["method"] == "turn/steer").unwrap();
    assert_eq!(steered[0]["params"]["input"], steer["params"]["input"]);
    assert_eq!(steered[0]["params"]["expectedTurnId"], "t");
    assert_eq!(lines(&client.interrupt().unwrap())[0]["params"]["turnId"], "t");
    let resumed = lines(&client.open(&Thread { resume: Some("r"), ..thread }));
    assert_eq!(resumed[0]["method"], "thread/resume");
    assert_eq!(resumed[0]["params"]["threadId"], "r");
}

/// A client with a thread, from which a turn was asked for by its request 2.
fn asking() -> Client {
    let mut client = client("");
    client.initialize("0.1.0");
    client.open(&Thread {
        resume: None,
        model: None,
        cwd: "/ws",
        approval: "untrusted",
        sandbox: "danger-full-access",
        instructions: None,
        config: json!({}),
    });
    client.read(&json!({"id": 1, "result": {"thread": {"id": "t"}}}).to_string());
    client.start("x").unwrap();
    client
}

fn names(request: i64, turn: &str) -> String {
    json!({"id": request, "result": {"turn": {"id": turn}}}).to_string()
}

fn of_turn(method: &str, turn: &str) -> String {
    let status = if method == "turn/started" { "inProgress" } else { "completed" };
    let turn = json!({"id": turn, "status": status});
    json!({"method": method, "params": {"threadId": "t", "turn": turn}}).to_string()
}

fn said(turn: &str, words: &str) -> String {
    let item = json!({"type": "agentMessage", "id": "m", "text": words});
    let params = json!({"threadId": "t", "turnId": turn, "item": item});
    json!({"method": "item/completed", "params": params}).to_string()
}

const ALIVE: Event<Answer> = Event::Activity(Activity::Alive);

fn completed(response: &str) -> Event<Answer> {
    Event::Over(TurnOver::Completed { response: response.to_owned() })
}

/// The turn that is ended, and told of.
fn ended(events: &[Event<Answer>]) -> String {
    let [Event::Write(line), Event::Activity(Activity::Notice(notice))] = events else {
        panic!("{events:?}")
    };
    assert_eq!(notice, "Codex began a turn of its own; it was ended");
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!((text(&line, "method"), text(&line["params"], "threadId")), ("turn/interrupt", "t"));
    text(&line["params"], "turnId").to_owned()
}

#[test]
fn only_the_turn_that_was_asked_for_is_told_and_ends() {
    let mut client = asking();
    client.read(&names(2, "ours"));
    assert_eq!(client.read(&of_turn("turn/started", "ours")), [ALIVE]);
    assert_eq!(ended(&client.read(&of_turn("turn/started", "other"))), "other");
    let delta = json!({"threadId": "t", "turnId": "other", "itemId": "m", "delta": "nobody"});
    let delta = json!({"method": "item/agentMessage/delta", "params": delta});
    let error = json!({"threadId": "t", "turnId": "other", "error": {"message": "x"}});
    let error = json!({"method": "error", "params": error});
    let others = [
        delta.to_string(),
        said("other", "nobody asked"),
        error.to_string(),
        of_turn("turn/completed", "other"),
    ];
    for line in others {
        assert_eq!(client.read(&line), [ALIVE], "{line}");
    }
    let total = json!({"inputTokens": 11, "cachedInputTokens": 5, "outputTokens": 17});
    let used = json!({"threadId": "t", "turnId": "other", "tokenUsage": {"total": total}});
    let used = json!({"method": "thread/tokenUsage/updated", "params": used});
    let used = client.read(&used.to_string());
    assert!(
        matches!(&used[..], [Event::Activity(Activity::Used(used))] if used.output_tokens == 17),
        "{used:?}"
    );
    client.read(&said("ours", "mine"));
    assert_eq!(client.read(&of_turn("turn/completed", "ours")), [completed("mine")]);
    assert_eq!(client.interrupt(), None);
}

#[test]
fn whose_a_turn_is_that_begins_before_the_answer_is_said_by_the_answer() {
    let begun = || {
        let mut client = asking();
        assert_eq!(client.read(&of_turn("turn/started", "first")), [ALIVE]);
        assert_eq!(client.read(&said("first", "early")), [ALIVE]);
        client
    };
    let mut client = begun();
    let told = client.read(&names(2, "first"));
    let early = Activity::Text { kind: OutputKind::Text, text: "early".to_owned() };
    let [Event::Answer(_), rest @ ..] = &told[..] else { panic!("{told:?}") };
    assert_eq!(rest, [ALIVE, Event::Activity(early)]);
    assert_eq!(client.read(&of_turn("turn/completed", "first")), [completed("early")]);
    let mut client = begun();
    let told = client.read(&names(2, "second"));
    let [Event::Answer(_), unasked @ .., last] = &told[..] else { panic!("{told:?}") };
    assert_eq!((ended(unasked).as_str(), last), ("first", &ALIVE));
    client.read(&said("second", "mine"));
    assert_eq!(client.read(&of_turn("turn/completed", "second")), [completed("mine")]);
    // Even all of it may be there before.
    let mut client = begun();
    client.read(&of_turn("turn/completed", "first"));
    assert_eq!(client.read(&names(2, "first")).last(), Some(&completed("early")));
}

#[test]
fn more_than_is_held_before_the_answer_fails_the_turn() {
    let mut client = asking();
    let long = said("first", &"x".repeat(1 << 18));
    for _ in 0..3 {
        assert_eq!(client.read(&long), [ALIVE]);
    }
    assert!(!client.is_broken());
    let over = client.read(&long);
    let [Event::Over(TurnOver::Failed(failed))] = &over[..] else {
        panic!("{} events", over.len())
    };
    assert_eq!(failed.kind, FailureKind::Protocol);
    assert!(failed.message.contains("before it said which turn was begun"), "{}", failed.message);
    assert!(client.is_broken(), "it is given no other turn");
    // It fails once, and nothing of it is told in part.
    assert_eq!(client.read(&long), [ALIVE]);
    let told = client.read(&names(2, "first"));
    assert!(matches!(&told[..], [Event::Answer(_)]), "{told:?}");
}

#[test]
fn a_turn_that_nobody_asked_for_is_ended_and_never_answers_the_next_prompt() {
    let mut client = asking();
    client.read(&names(2, "one"));
    client.read(&of_turn("turn/completed", "one"));
    assert_eq!(ended(&client.read(&of_turn("turn/started", "goal"))), "goal");
    let ask = json!({"threadId": "t", "turnId": "goal", "itemId": "c", "command": "rm -rf /"});
    let ask = json!({"id": 0, "method": "item/commandExecution/requestApproval", "params": ask});
    let refused = client.read(&ask.to_string());
    let [Event::Write(refused)] = &refused[..] else { panic!("{refused:?}") };
    assert!(refused.contains("nobody asked for its turn"), "{refused}");
    // The interruption is request 3.
    client.start("y").unwrap();
    for line in [said("goal", "not yours"), of_turn("turn/completed", "goal")] {
        assert_eq!(client.read(&line), [ALIVE], "{line}");
    }
    client.read(&names(4, "two"));
    client.read(&said("two", "yours"));
    assert_eq!(client.read(&of_turn("turn/completed", "two")), [completed("yours")]);
}
