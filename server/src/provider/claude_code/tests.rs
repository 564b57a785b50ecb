//! What Claude Code wrote, and what is written to it.

use serde_json::{Value, json};

use super::protocol::{Answer, MessageState, Stream};
use super::requests::{Control, control, user};
use crate::model::Usage;
use crate::provider::activity::{Activity, Decision, Event, RequestId, TurnOver};
use crate::provider::failure::FailureKind;
use crate::provider::fixtures::{self, Parser, Step, golden, steps, told};
use crate::provider::meter::Totals;

pub(in crate::provider) const CAPTURES: &[&str] = &[
    "claude_2.1.197_mcp_tool",
    "claude_bash",
    "claude_err400_rc1",
    "claude_err429_rc1",
    "claude_err500_rc1",
    "claude_err529_rc1",
    "claude_io_can_use_tool",
    "claude_io_control_requests",
    "claude_io_interrupt_stream",
    "claude_io_interrupt_tool_rc1",
    "claude_io_message_folded_into_turn",
    "claude_io_multi_turn",
    "claude_io_queue_then_interrupt",
    "claude_io_sigint",
    "claude_io_sigkill_in_tool",
    "claude_io_sigterm_rc143",
    "claude_max_budget_rc1",
    "claude_max_turns_rc1",
    "claude_mcp_server_failed",
    "claude_mcp_tool_partial",
    "claude_midstream_error",
    "claude_output_json",
    "claude_permission_denied",
    "claude_resume",
    "claude_resume_after_sigkill",
    "claude_resume_fork",
    "claude_resume_unknown_rc1",
    "claude_simple",
    "claude_stream_cut",
    "claude_thinking",
];

/// A process that is given what it was given when it was captured.
struct Captured {
    stream: Stream,
    /// Whether it is the output of one turn.
    one_turn: bool,
}

impl Parser for Captured {
    type Answer = Answer;

    fn runs_at_once(&self) -> bool {
        self.one_turn
    }

    fn given(&mut self, line: &str) -> bool {
        let Ok(given) = serde_json::from_str::<Value>(line) else { return false };
        if given["type"] == "control_response" {
            let answer = &given["response"];
            let request = RequestId::Text(answer["request_id"].as_str().unwrap().to_owned());
            let decision = match answer["response"]["behavior"].as_str() {
                Some("allow") => Decision::Allow,
                _ => Decision::Reject(answer["response"]["message"].as_str().unwrap().to_owned()),
            };
            if let Some(line) = self.stream.answer(&request, &decision) {
                assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), given);
            }
        }
        given["type"] == "user"
    }

    fn read(&mut self, line: &str) -> Vec<Event<Answer>> {
        self.stream.read(line)
    }

    fn end(&mut self) -> Vec<Event<Answer>> {
        self.stream.end()
    }
}

fn captured(name: &str) -> Captured {
    Captured { stream: Stream::default(), one_turn: !name.contains("_io_") }
}

fn read(lines: &[Value]) -> Vec<Event<Answer>> {
    let mut stream = Stream::default();
    lines.iter().flat_map(|line| stream.read(&line.to_string())).collect()
}

#[test]
fn captures_are_read_as_the_golden_files_say() {
    golden(CAPTURES, captured);
}

#[test]
fn it_says_the_same_however_its_output_is_cut() {
    fixtures::however_it_is_cut(CAPTURES, captured);
}

#[test]
fn nothing_that_it_writes_breaks_what_is_promised() {
    fixtures::whatever_it_reads(CAPTURES, captured);
}

#[test]
fn provisional_text_of_a_call_that_broke_off_is_void() {
    let told = told("claude_stream_cut");
    let voids = told.iter().filter(|line| *line == "void").count();
    assert_eq!(voids, 2, "{told:?}");
    let answer = "text \"Hello from the fake model (2 messages).\"";
    assert_eq!(told.iter().filter(|line| line.starts_with("text ")).collect::<Vec<_>>(), [answer]);
}

#[test]
fn a_message_folded_into_a_turn_has_a_way_but_no_result_of_its_own() {
    let told = told("claude_io_message_folded_into_turn");
    assert_eq!(told.iter().filter(|line| line.starts_with("over")).count(), 1);
    let second = format!(
        "answer {:?}",
        Answer::Message {
            uuid: "aaaaaaaa-0000-4000-8000-000000000002".to_owned(),
            state: MessageState::Completed,
        }
    );
    assert!(told.contains(&second), "{told:?}");
}

#[test]
fn a_compaction_is_noticed() {
    let metadata = json!({"trigger": "auto", "pre_tokens": 150_000});
    let line =
        json!({"type": "system", "subtype": "compact_boundary", "compact_metadata": metadata});
    let notice = "compacted its conversation, which had 150000 tokens".to_owned();
    assert_eq!(read(&[line]), [Event::Activity(Activity::Notice(notice))]);
}

#[test]
fn each_error_has_its_kind() {
    for (capture, over) in [
        ("claude_err400_rc1", "over failed invalid-request"),
        ("claude_err429_rc1", "over failed rate-limit"),
        ("claude_err500_rc1", "over failed overload"),
        ("claude_err529_rc1", "over failed overload"),
        ("claude_max_budget_rc1", "over failed budget"),
        ("claude_max_turns_rc1", "over failed limit"),
        ("claude_resume_unknown_rc1", "over failed gone"),
        ("claude_io_sigterm_rc143", "over failed killed"),
        ("claude_io_sigkill_in_tool", "over failed killed"),
        ("claude_io_interrupt_tool_rc1", "over cancelled"),
    ] {
        let told = told(capture);
        assert!(told.last().unwrap().starts_with(over), "{capture}: {told:?}");
    }
    let long = json!({
        "type": "result", "subtype": "success", "is_error": true, "api_error_status": 400,
        "result": "API Error: 400 prompt is too long: 250000 tokens > 200000 maximum",
    });
    let events = read(&[long]);
    let Some(Event::Over(TurnOver::Failed(failed))) = events.last() else { panic!("{events:?}") };
    assert_eq!(failed.kind, FailureKind::Overflow);
}

#[test]
fn a_limit_of_a_subscription_is_told_with_its_end() {
    let limit = |status: &str, overage: &str| {
        // 2026-11-06T21:20:00Z.
        let info = json!({
            "status": status, "resetsAt": 1_794_000_000, "rateLimitType": "five_hour",
            "overageStatus": overage,
        });
        json!({"type": "rate_limit_event", "rate_limit_info": info})
    };
    let said = |at: &str| {
        let content = json!([{"type": "text", "text": "You've hit your limit · resets 9:20pm"}]);
        json!({
            "type": "assistant", "message": {"model": "<synthetic>", "content": content},
            "error": "rate_limit", "api_error_status": 429, "timestamp": at,
        })
    };
    let result =
        json!({"type": "result", "subtype": "success", "is_error": true, "api_error_status": 429});
    let wait = |lines: &[Value]| match read(lines).pop() {
        Some(Event::Over(TurnOver::Failed(failed))) => {
            assert_eq!(failed.kind, FailureKind::RateLimit);
            failed.retry_after.map(|wait| wait.as_secs())
        }
        other => panic!("{other:?}"),
    };
    let (rejected, before) = (limit("rejected", "rejected"), said("2026-11-06T21:00:00.000Z"));
    assert_eq!(wait(&[rejected.clone(), before.clone(), result.clone()]), Some(1200));
    assert_eq!(wait(&[before.clone(), rejected.clone(), result.clone()]), Some(1200));
    // It holds on over turns, of which only the first is told of it.
    let turn = [rejected.clone(), before.clone(), result.clone(), before.clone(), result.clone()];
    assert_eq!(wait(&turn), Some(1200));
    // It is over, or nobody knows when it was that the request was refused, or it is no such limit.
    let after = said("2026-11-06T21:20:00.000Z");
    assert_eq!(wait(&[rejected.clone(), after, result.clone()]), None);
    assert_eq!(wait(&[rejected.clone(), said(""), result.clone()]), None);
    assert_eq!(wait(&[rejected.clone(), result.clone()]), None);
    for other in [limit("allowed_warning", ""), limit("rejected", "allowed")] {
        assert_eq!(wait(&[rejected.clone(), other, before.clone(), result.clone()]), None);
    }
}

/// What was used by the captures, one process after the other, of one session.
fn used(captures: &[&str], old: bool) -> Usage {
    let (mut totals, mut used) = (Totals::default(), Usage::default());
    for capture in captures {
        let mut stream = Stream::new(totals);
        for step in steps(capture) {
            let Step::Wrote(mut line) = step else { continue };
            if old {
                line = line.replace("model_usage_since_last_result", "_");
            }
            for event in stream.read(&line) {
                if let Event::Activity(Activity::Used(new)) = event {
                    used = used.plus(new);
                }
            }
        }
        let kept = serde_json::to_vec(&stream.totals()).unwrap();
        totals = serde_json::from_slice(&kept).unwrap();
    }
    used
}

#[test]
fn a_cost_that_runs_on_over_processes_is_booked_once() {
    let expected = Usage {
        input_tokens: 44,
        output_tokens: 68,
        cache_read_tokens: 20,
        cache_write_tokens: 12,
        cost_micro_usd: 1600,
        turns: 0,
    };
    let session = ["claude_bash", "claude_resume", "claude_resume_fork"];
    assert_eq!(used(&session, false), expected);
    // Without the difference in the result, the totals tell.
    assert_eq!(used(&session, true), expected);
    assert_eq!(used(&["claude_io_can_use_tool"], false), expected);
    assert_eq!(used(&["claude_io_can_use_tool"], true), expected);
    // A version that begins at zero with each process.
    let twice = used(&["claude_2.1.197_mcp_tool"; 2], true);
    assert_eq!((twice.output_tokens, twice.cost_micro_usd), (68, 2 * 1002));
}

#[test]
fn what_a_turn_used_is_told_while_it_runs() {
    let told = told("claude_mcp_tool_partial");
    let used = |line: &&String| line.starts_with("used ");
    let place = |what: &str| told.iter().position(|line| line.starts_with(what)).unwrap();
    assert!(place("used ") < place("text \"The tool answered"), "{told:?}");
    assert_eq!(told.iter().filter(used).count(), 3, "two calls of the model, and the cost");
}

#[test]
fn a_question_is_answered_once_and_as_it_was_asked() {
    let mut stream = Stream::default();
    let ask = json!({
        "type": "control_request", "request_id": "q",
        "request": {
            "subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"},
            "tool_use_id": "t", "permission_suggestions": [
                {"type": "addRules", "behavior": "allow", "destination": "session"},
            ],
        },
    });
    let asked = stream.read(&ask.to_string());
    let [Event::Activity(Activity::Permission { request, options, .. })] = &asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!(options.len(), 3);
    let line = stream.answer(request, &Decision::AllowAlways).unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&line).unwrap()["response"]["response"],
        json!({
            "behavior": "allow", "updatedInput": {"command": "ls"},
            "updatedPermissions": [
                {"type": "addRules", "behavior": "allow", "destination": "session"},
            ],
        }),
    );
    assert_eq!(stream.answer(request, &Decision::Allow), None);

    stream.read(&ask.to_string());
    let cancel = json!({"type": "control_cancel_request", "request_id": "q"});
    let gone = Event::Activity(Activity::Withdrawn { request: request.clone() });
    assert_eq!(stream.read(&cancel.to_string()), std::slice::from_ref(&gone));
    assert_eq!(stream.answer(request, &Decision::Allow), None);

    // One that is open when the turn ends is withdrawn.
    stream.read(&ask.to_string());
    assert!(stream.end().contains(&gone));

    let other = json!({
        "type": "control_request", "request_id": "h", "request": {"subtype": "hook_callback"},
    });
    let refused = stream.read(&other.to_string());
    let [Event::Write(line)] = &refused[..] else { panic!("{refused:?}") };
    assert!(line.contains("hook_callback is not supported") && line.contains("\"h\""), "{line}");
}

/// How many options a question with these suggestions has, and what `always` hands back.
fn always(suggestions: &Value) -> (usize, Value) {
    let mut stream = Stream::default();
    let ask = json!({
        "type": "control_request", "request_id": "q",
        "request": {
            "subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "touch a"},
            "tool_use_id": "t", "permission_suggestions": suggestions,
        },
    });
    let asked = stream.read(&ask.to_string());
    let [Event::Activity(Activity::Permission { request, options, .. })] = &asked[..] else {
        panic!("{asked:?}");
    };
    let line = stream.answer(request, &Decision::AllowAlways).unwrap();
    let answer = serde_json::from_str::<Value>(&line).unwrap();
    (options.len(), answer["response"]["response"]["updatedPermissions"].clone())
}

#[test]
fn always_is_for_the_command_and_the_process_alone() {
    let rule = |behavior: &str, destination: &str| {
        let rules = json!([{"toolName": "Bash", "ruleContent": "touch a"}]);
        json!({
            "type": "addRules", "rules": rules, "behavior": behavior, "destination": destination,
        })
    };
    let folder =
        json!({"type": "addDirectories", "directories": ["/workspace"], "destination": "session"});
    let mode = json!({"type": "setMode", "mode": "acceptEdits", "destination": "session"});
    let kept = json!([rule("allow", "session")]);
    assert_eq!(always(&json!([rule("allow", "localSettings"), folder, mode])), (3, kept));
    let none = (2, json!([]));
    assert_eq!(always(&json!([folder, mode])), none);
    assert_eq!(always(&json!([rule("deny", "session"), rule("ask", "session"), 1])), none);
    assert_eq!(always(&json!({"type": "addRules", "behavior": "allow"})), none);
    assert_eq!(always(&Value::Null), none);
}

#[test]
fn what_a_subagent_says_is_not_the_answer_but_its_tools_are_shown() {
    let events = read(&[
        json!({"type": "assistant", "parent_tool_use_id": "t", "message": {"content": [
            {"type": "text", "text": "inner"},
            {"type": "tool_use", "id": "u", "name": "Read", "input": {}},
        ]}}),
        json!({"type": "stream_event", "parent_tool_use_id": "t", "event": {
            "type": "content_block_delta", "delta": {"type": "text_delta", "text": "inner"},
        }}),
        json!({"result": "outer", "is_error": false, "type": "result"}),
    ]);
    let texts = events.iter().filter(|event| {
        matches!(event, Event::Activity(Activity::Text { .. } | Activity::Delta { .. }))
    });
    assert_eq!(texts.count(), 0, "{events:?}");
    assert!(matches!(&events[1], Event::Activity(Activity::ToolStarted { id, .. }) if id == "u"));
    let response = "outer".to_owned();
    assert_eq!(events.last(), Some(&Event::Over(TurnOver::Completed { response })));
}

#[test]
fn requests_are_those_that_were_captured() {
    let given = |capture: &str, at: usize| match &steps(capture)[at] {
        Step::Given(line) => serde_json::from_str::<Value>(line).unwrap(),
        Step::Wrote(line) => panic!("{line}"),
    };
    let same = |line: String, capture: &str, at: usize| {
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), given(capture, at));
    };
    let uuid = "aaaaaaaa-0000-4000-8000-000000000001";
    same(user(uuid, "CALLTOOL"), "claude_io_message_folded_into_turn", 0);
    same(control("r0", Control::Initialize), "claude_io_can_use_tool", 0);
    same(control("int1", Control::Interrupt), "claude_io_interrupt_tool_rc1", 3);
    let requests = "claude_io_control_requests";
    same(control("c1", Control::SetModel("claude-haiku-4-5")), requests, 0);
    same(control("c2", Control::SetPermissionMode("acceptEdits")), requests, 2);
    same(control("c3", Control::McpStatus), requests, 4);
    assert!(told(requests).contains(
        &"answer Control { request: \"c4\", outcome: Err(\"Unsupported control request subtype: \
          nonsense\") }"
            .to_owned()
    ));
}
