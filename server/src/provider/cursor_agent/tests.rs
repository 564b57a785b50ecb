//! What cursor-agent writes, as far as public descriptions tell.

use std::path::Path;

use serde_json::{Value, json};

use super::cli::{GO_ON, NEW_CHAT, Talk, WRITE_RULE, prompt};
use super::protocol::{Answer, Stream};
use crate::model::SessionId;
use crate::provider::activity::{Activity, Event, TurnOver};
use crate::provider::cli::{Dialogue, Places, Start};
use crate::provider::failure::FailureKind;
use crate::provider::fixtures::{self, Parser, golden, told};

pub(in crate::provider) const CAPTURES: &[&str] = &["cursor_synthetic"];

impl Parser for Stream {
    type Answer = Answer;

    fn read(&mut self, line: &str) -> Vec<Event<Answer>> {
        Self::read(self, line)
    }

    fn end(&mut self) -> Vec<Event<Answer>> {
        Self::end(self)
    }
}

fn stream(_: &str) -> Stream {
    Stream::default()
}

fn read(lines: &[Value]) -> Vec<Event<Answer>> {
    let mut stream = Stream::default();
    let events = lines.iter().flat_map(|line| stream.read(&line.to_string()));
    events.filter(|event| *event != Event::Activity(Activity::Alive)).collect()
}

fn said(text: &str, timestamp: bool, call: bool) -> Value {
    let mut event =
        json!({"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}});
    if timestamp {
        event["timestamp_ms"] = json!(1);
    }
    if call {
        event["model_call_id"] = json!("m");
    }
    event
}

#[test]
fn captures_are_read_as_the_golden_files_say() {
    golden(CAPTURES, stream);
}

#[test]
fn it_says_the_same_however_its_output_is_cut() {
    fixtures::however_it_is_cut(CAPTURES, stream);
}

#[test]
fn nothing_that_it_writes_breaks_what_is_promised() {
    fixtures::whatever_it_reads(CAPTURES, stream);
}

#[test]
fn text_that_comes_again_is_told_once() {
    let told = told("cursor_synthetic");
    let texts: Vec<&String> = told.iter().filter(|line| line.starts_with("text ")).collect();
    assert_eq!(texts, ["text \"Telling bob.\"", "text \"Done.\""]);
    let texts = |lines: &[Value]| -> Vec<String> {
        let text = |event| match event {
            Event::Activity(Activity::Text { text, .. }) => Some(text),
            _ => None,
        };
        read(lines).into_iter().filter_map(text).collect()
    };
    // The last one may hold all that the turn said.
    let all = [said("a", true, false), said("a", true, true), said("b ", true, false)];
    assert_eq!(texts(&[&all[..], &[said("ab ", false, false)]].concat()), ["a", "b "]);
    assert_eq!(texts(&[said("whole", true, true)]), ["whole"]);
}

#[test]
fn a_plain_line_is_what_it_failed_for() {
    let mut stream = Stream::default();
    let notice = stream.read("stderr: T: Rate limit reached, try again in 5s");
    assert!(matches!(&notice[..], [Event::Activity(Activity::Notice(_))]), "{notice:?}");
    let events = stream.end();
    let Some(Event::Over(TurnOver::Failed(failed))) = events.last() else { panic!("{events:?}") };
    assert_eq!(failed.kind, FailureKind::RateLimit);
    assert_eq!(failed.retry_after.map(|wait| wait.as_secs()), Some(5));
    let events = Stream::default().end();
    let Some(Event::Over(TurnOver::Failed(failed))) = events.last() else { panic!("{events:?}") };
    assert_eq!(failed.kind, FailureKind::Killed);
}

#[test]
fn a_result_says_whether_the_turn_went_well() {
    let over = |result: Value| match read(&[result]).pop() {
        Some(Event::Over(over)) => over,
        other => panic!("{other:?}"),
    };
    let failed = |result: Value| match over(result) {
        TurnOver::Failed(failed) => (failed.kind, failed.message),
        other => panic!("{other:?}"),
    };
    let error = json!({"type": "result", "subtype": "error", "is_error": true, "result": "no"});
    assert_eq!(failed(error), (FailureKind::Other, "no".to_owned()));
    let silent = json!({"type": "result", "subtype": "success"});
    assert_eq!(failed(silent).1, "it failed without a word");
    let good = json!({"type": "result", "subtype": "success", "is_error": false, "inputTokens": 7});
    let events = read(&[json!({"type": "error", "message": "passing"}), good]);
    assert!(matches!(
        &events[..],
        [Event::Activity(Activity::Used(_)), Event::Over(TurnOver::Completed { .. })]
    ));
}

#[test]
fn an_answer_that_is_not_streamed_is_the_answer() {
    let said = |text: &str| json!({"message": {"content": [{"type": "text", "text": text}]}});
    let whole = |text: &str| {
        let mut event = said(text);
        event["type"] = "assistant".into();
        event
    };
    let piece = |text: &str| {
        let mut event = whole(text);
        event["timestamp_ms"] = 1.into();
        event
    };
    let good = |all: &str| json!({"type": "result", "subtype": "success", "is_error": false, "result": all});
    let answer = |lines: &[Value]| match read(lines).pop() {
        Some(Event::Over(TurnOver::Completed { response })) => response,
        other => panic!("{other:?}"),
    };
    assert_eq!(answer(&[whole("all of it"), good("all of it")]), "all of it");
    assert_eq!(answer(&[good("all of it")]), "all of it");
    assert_eq!(answer(&[piece("al"), whole("all of it"), good("all of it")]), "all of it");
    assert_eq!(answer(&[piece("al"), piece("l"), whole("all"), good("all")]), "all");
    assert_eq!(answer(&[piece("all"), good("all")]), "all");
    let mut flushed = piece("first ");
    flushed["model_call_id"] = "m".into();
    let two = [flushed, piece("second"), whole("first second"), good("first second")];
    assert_eq!(answer(&two), "second");
}

#[test]
fn tools_are_read_in_each_of_their_shapes() {
    let ended = |call: Value| {
        let events = read(&[
            json!({"type": "tool_call", "subtype": "completed", "call_id": "c", "tool_call": call}),
        ]);
        let [
            Event::Activity(Activity::ToolStarted { tool, .. }),
            Event::Activity(Activity::ToolEnded { ok, output, .. }),
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        (tool.clone(), *ok, output.clone())
    };
    let shell = json!({"exitCode": 1, "stdout": "out", "stderr": "err"});
    assert_eq!(
        ended(json!({"toolCallId": "c", "shellToolCall": {"result": {"success": shell}}})),
        ("shell".to_owned(), false, "out\nerr".to_owned()),
    );
    let error = json!({"error": {"errorMessage": "no such file"}});
    assert_eq!(
        ended(json!({"readToolCall": {"args": {"path": "x"}, "result": error}})),
        ("read".to_owned(), false, "no such file".to_owned()),
    );
    let mcp =
        json!({"args": {"serverIdentifier": "s", "toolName": "t"}, "result": {"success": {}}});
    assert_eq!(ended(json!({"mcpToolCall": mcp})), ("s.t".to_owned(), true, String::new()));
    let function = json!({"function": {"name": "f", "arguments": "{}"}});
    assert_eq!(ended(function).0, "f");
}

#[test]
fn a_chat_is_told_what_it_is_to_be_until_a_turn_went_well_and_again_when_that_changed() {
    let [home, workspace, bridge, socket] = [const { String::new() }; 4];
    let at = Places { home, workspace, bridge, socket };
    // What a turn is given, and what is kept of it.
    let turn = |kept: &Value, instructions: &str, subtype: &str| {
        let start = Start {
            session: SessionId::from_u128(1),
            model: None,
            instructions,
            prompt: "hello",
            kept,
            anew: 0,
            home: Path::new("/"),
            at: &at,
            sandboxed: true,
            version: "",
        };
        let mut talk = Talk::new(&start);
        let result = json!({
            "type": "result", "subtype": subtype, "is_error": subtype != "success",
            "session_id": "chat",
        });
        talk.read(&result.to_string());
        (prompt(&start), talk.kept())
    };
    let (given, kept) = turn(&Value::Null, "be good", "error");
    assert_eq!(given, "be good\n\nhello");
    let (given, kept) = turn(&kept, "be good", "success");
    assert_eq!(given, "be good\n\nhello", "the chat may know nothing of a turn that failed");
    let (given, kept) = turn(&kept, "be good", "error");
    assert_eq!(given, "hello");
    let (given, kept) = turn(&kept, "be better", "success");
    assert!(given.contains("\nbe better\n") && given.ends_with("\n\nhello"), "{given}");
    assert_eq!(turn(&kept, "be better", "success").0, "hello");
    // Chats of a time at which that was not kept.
    let old = json!({"session_id": "chat"});
    assert_eq!(turn(&old, "be good", "success").0, "be good\n\nhello");
    // Another chat than the one that was to be gone on with knows nothing.
    let (_, gone) =
        turn(&json!({"session_id": "other", "told": kept["told"]}), "be better", "error");
    assert_eq!(gone, json!({"session_id": "chat"}));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "runs a script that takes the program's place")]
fn a_chat_is_made_whether_or_not_something_interprets_the_program() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    // It swallows what is there for the turn, if it gets at that.
    let text = "if [ \"$1\" = create-chat ]; then cat >/dev/null; echo new; \
                else echo \"$@\"; cat; fi\n";
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("agent");
    std::fs::write(&program, text).unwrap();
    let by_itself = folder.path().join("by itself");
    std::fs::write(&by_itself, format!("#!/bin/sh\n{text}")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&by_itself, mode).unwrap();
    // What an agent may have left in the place of the rule is neither written to nor waited for.
    let rules = folder.path().join(".cursor/rules");
    std::fs::create_dir_all(&rules).unwrap();
    std::fs::write(folder.path().join(".cursor/substrat.mdc"), "be good").unwrap();
    std::os::unix::fs::symlink(&program, rules.join("substrat.mdc")).unwrap();
    let with_rule = |script| format!("{WRITE_RULE}{script}");
    for (script, chat) in [
        (NEW_CHAT.to_owned(), "--resume new "),
        (with_rule(NEW_CHAT), "--resume new "),
        (with_rule(GO_ON), ""),
    ] {
        for words in [vec![by_itself.to_str().unwrap()], vec!["/bin/sh", program.to_str().unwrap()]]
        {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &script, "sh", &words.len().to_string()]).args(&words);
            command.args(["-p", "a prompt"]).stdin(Stdio::piped()).stdout(Stdio::piped());
            command.env("HOME", folder.path()).current_dir(folder.path());
            let mut child = command.spawn().unwrap();
            child.stdin.take().unwrap().write_all(b"over stdin").unwrap();
            let said = child.wait_with_output().unwrap();
            assert_eq!(
                String::from_utf8_lossy(&said.stdout),
                format!("{chat}-p a prompt\nover stdin"),
                "{words:?}",
            );
        }
    }
    let rule = rules.join("substrat.mdc");
    assert!(rule.symlink_metadata().unwrap().is_file());
    assert_eq!(std::fs::read_to_string(rule).unwrap(), "be good");
    assert_eq!(std::fs::read_to_string(program).unwrap(), text);
    // A folder there is no rule, which is said.
    let place = rules.join("substrat.mdc");
    std::fs::remove_file(&place).unwrap();
    std::fs::create_dir(&place).unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &with_rule(""), "sh"]).env("HOME", folder.path());
    let said = command.current_dir(folder.path()).output().unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("could not be written"));
    assert_eq!(std::fs::read_dir(&rules).unwrap().count(), 1);
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
}
