//! The parts that need no process: lines, the protocol, command lines.

use proptest::prelude::*;
use serde_json::json;
use serde_json::value::to_raw_value;

use super::lines::{Broken, Lines, MAX_LINE};
use super::protocol::{CallOutcome, Said, ToProgram, parse};
use super::split;
use crate::model::{FailureClass, Json};

/// What a program said, up to what was no message.
fn said(lines: &mut Lines, into: &mut Vec<Result<String, String>>, at_end: bool) {
    while into.last().is_none_or(Result::is_ok) {
        let Some(line) = lines.next().or_else(|| at_end.then(|| lines.last()).flatten()) else {
            return;
        };
        let read = line.map_err(|broken: Broken| broken.to_string());
        into.push(read.and_then(|line| parse(&line)).map(|said| format!("{said:?}")));
    }
}

/// The same of bytes that come in pieces of these lengths.
fn heard(bytes: &[u8], pieces: &[usize]) -> Vec<Result<String, String>> {
    let (mut lines, mut all, mut rest) = (Lines::default(), Vec::new(), bytes);
    for length in pieces.iter().copied().chain([usize::MAX]) {
        let (piece, after) = rest.split_at(length.min(rest.len()));
        rest = after;
        lines.push(piece);
        said(&mut lines, &mut all, false);
    }
    said(&mut lines, &mut all, true);
    all
}

fn a_line() -> impl Strategy<Value = Vec<u8>> {
    let message = prop_oneof![
        Just(json!({"type": "text", "text": "sch\u{f6}n \u{1f980}\n"})),
        Just(json!({"type": "thinking", "text": ""})),
        Just(json!({"type": "call", "id": [1, "x"], "tool": "poke", "args": {"agent_name": "b"}})),
        Just(json!({"type": "usage", "input_tokens": 7})),
        Just(json!({"type": "done", "response": "yes", "state": {"n": 1.5}})),
        Just(json!({"type": "error", "message": "no", "class": "overflow"})),
        Just(json!({"type": "dance"})),
        Just(json!([1, 2])),
    ];
    let message = message.prop_map(|message| message.to_string().into_bytes());
    prop_oneof![
        8 => message,
        1 => Just(Vec::new()),
        1 => Just(b" \t\r".to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
    ]
}

fn a_stream() -> impl Strategy<Value = Vec<u8>> {
    let end = prop_oneof![Just(&b"\n"[..]), Just(&b"\r\n"[..]), Just(&b""[..])];
    proptest::collection::vec((a_line(), end), 0..12).prop_map(|lines| {
        lines.into_iter().flat_map(|(line, end)| [line, end.to_vec()].concat()).collect()
    })
}

proptest! {
    #[test]
    fn however_output_is_cut_it_says_the_same(
        bytes in a_stream(),
        pieces in proptest::collection::vec(0_usize..40, 0..40),
    ) {
        prop_assert_eq!(heard(&bytes, &pieces), heard(&bytes, &[]));
    }

    #[test]
    fn no_output_does_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let heard = heard(&bytes, &[]);
        let wrong = heard.iter().filter(|item| item.is_err()).count();
        prop_assert!(wrong <= 1 && heard.iter().rev().skip(1).all(Result::is_ok));
        // Quotes are short and of one line, whatever they quote.
        for error in heard.iter().filter_map(|item| item.as_ref().err()) {
            prop_assert!(error.len() < 800 && !error.contains('\n'), "{}", error);
        }
    }
}

#[test]
fn a_line_without_end_is_refused_before_it_takes_room() {
    let (mut lines, piece) = (Lines::default(), vec![b'x'; 64 << 10]);
    let mut pushed = 0;
    let broken = loop {
        lines.push(&piece);
        pushed += piece.len();
        if let Some(line) = lines.next() {
            break line.unwrap_err();
        }
    };
    assert!(pushed <= MAX_LINE + piece.len(), "{pushed}");
    assert!(matches!(broken, Broken::TooLong(ref start, _) if start.len() == 80), "{broken}");
    let mut lines = Lines::default();
    let text = format!("{{\"type\":\"text\",\"text\":\"{}\"}}", "x".repeat(MAX_LINE - 25));
    assert_eq!(text.len(), MAX_LINE);
    for _ in 0..3 {
        lines.push(text.as_bytes());
        assert_eq!(lines.next(), None);
        lines.push(b"\n");
        assert_eq!(lines.next().unwrap().unwrap().len(), text.len());
    }
}

#[test]
fn half_a_character_is_no_text() {
    let heard = heard(b"{\"type\":\"text\",\"text\":\"\xc3", &[]);
    let error = heard[0].as_ref().unwrap_err();
    assert!(
        error.ends_with("no UTF-8: \"{\\\"type\\\":\\\"text\\\",\\\"text\\\":\\\"\\xc3\""),
        "{error}"
    );
}

#[test]
fn what_is_no_message_is_said_with_its_beginning() {
    let deep = format!("{}1{}", "[".repeat(101), "]".repeat(101));
    for (line, problem) in [
        ("Traceback (most recent", "expected value at line 1 column 1: \"Traceback (most recent\""),
        (r#"{"type":"dance"}"#, "its type is none that is known"),
        (r#"{"text":"x"}"#, "missing field `type`"),
        (r#"{"type":"text"}"#, "missing field `text`"),
        (r#"{"type":"text","text":"x","bold":true}"#, "unknown field `bold`"),
        (r#"{"type":"text","text":"x"} y"#, "trailing characters"),
        (r#"{"type":"call","tool":"poke"}"#, "missing field `id`"),
        (r#"{"type":"usage","input_tokens":-1}"#, "invalid value: integer `-1`"),
        (r#"{"type":"usage","turns":1}"#, "unknown field `turns`"),
        (r#"{"type":"usage","tur\nns":1}"#, "unknown field `tur ns`"),
        (r#"{"type":"done"}"#, "missing field `response`"),
        (r#"{"type":"error","message":"x","class":"sandbox"}"#, "unknown variant `sandbox`"),
        (&format!(r#"{{"type":"call","id":1,"tool":"x","args":{deep}}}"#), "more than 100 deep"),
        (&"[".repeat(200_000), "invalid type"),
        (
            &format!(r#"{{"type":"done","response":"","state":"{}"}}"#, "x".repeat(256 << 10)),
            "a state of 262146 bytes; 262144 are allowed",
        ),
    ] {
        let error = parse(line).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn what_a_program_says_is_read() {
    let Said::Call { id, tool, args } =
        parse(r#"{"id": {"a": 1.0}, "type": "call", "tool": "list_children"}"#).unwrap()
    else {
        panic!("a call");
    };
    assert_eq!((id.get(), tool.as_str(), args.get()), (r#"{"a": 1.0}"#, "list_children", "{}"));
    let Said::Done { response, state } =
        parse(r#"{"type":"done","response":"r","state":[1e400, 0.10]}"#).unwrap()
    else {
        panic!("done");
    };
    let state = state.unwrap();
    assert_eq!((response.as_str(), state.get()), ("r", "[1e400, 0.10]"), "kept as it is");
    let Said::Error(failure) =
        parse(r#"{"type":"error","message":"m","class":"transient","retry_after_seconds":9}"#)
            .unwrap()
    else {
        panic!("an error");
    };
    assert_eq!(failure.class, FailureClass::Transient);
    assert_eq!(failure.retry_after, Some(std::time::Duration::from_secs(9)));
}

#[test]
fn what_a_call_came_to_is_a_line_with_its_id() {
    let id = to_raw_value(&json!({"n": 1})).unwrap();
    let value = Json::of(&json!({"status": "sent\n"})).unwrap();
    let line = |outcome| {
        let mut bytes = Vec::new();
        ToProgram::Result { id: &id, outcome }.write_to(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(
        line(CallOutcome::Result(&value)),
        "{\"type\":\"result\",\"id\":{\"n\":1},\"result\":{\"status\":\"sent\\n\"}}\n"
    );
    assert_eq!(
        line(CallOutcome::Error("no")),
        "{\"type\":\"result\",\"id\":{\"n\":1},\"error\":\"no\"}\n"
    );
    let mut cancel = Vec::new();
    ToProgram::Cancel.write_to(&mut cancel).unwrap();
    assert_eq!(cancel, b"{\"type\":\"cancel\"}\n");
}

#[test]
fn a_command_line_is_split_as_a_shell_does_it() {
    assert_eq!(
        split(Some(r#"python3 "my agent.py" --x='a b' \$y"#)).unwrap(),
        ["python3", "my agent.py", "--x=a b", "$y"]
    );
    for (line, problem) in [
        (None, "no command line was given"),
        (Some("  "), "no command line was given"),
        (Some("'agent"), "missing closing quote"),
        (Some("'' x"), "an empty word"),
        (Some("a\0b"), "a byte that no command line can hold"),
    ] {
        assert!(split(line).unwrap_err().contains(problem), "{line:?}");
    }
}
