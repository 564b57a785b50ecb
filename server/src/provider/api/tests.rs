//! Bodies that are sent and streams that are read, without a server.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Map, Value, json};

use super::anthropic::Anthropic;
use super::chat::{Answer, Call, CallResult, Conversation, Fitted, Message, Reply, Stop};
use super::openai::{MaxTokensAs, OpenAi};
use super::room::{MAX_ANSWER, MAX_CALLS};
use super::sse::{Event, Events};
use super::{Ask, Dialect, is_listed};
use crate::model::{CallId, FailureClass, Json, SessionId, TurnId, Usage};
use crate::provider::history::{End, History, Item, Turn};
use crate::provider::secret::Secrets;
use crate::provider::{Failure, Model, OutputKind};

const OPENAI: OpenAi = OpenAi { stream_usage: true, max_tokens_as: MaxTokensAs::MaxTokens };

const TEXT_AND_CALL: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"m","role":"assistant","content":[],"usage":{"input_tokens":11,"cache_creation_input_tokens":3,"cache_read_input_tokens":5,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig"}}

event: ping
data: {"type":"ping"}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hel"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"lo"}}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"send_message","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"to\": \"b"}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"\"}"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":17}}

event: message_stop
data: {"type":"message_stop"}

"#;

const CHUNKS: &str = r#": OPENROUTER PROCESSING

data: {"id":"g","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}

data: {"id":"g","choices":[{"index":0,"delta":{"reasoning":"hm"},"finish_reason":null}]}

data: {"id":"g","choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}

data: {"id":"g","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}]}

data: {"id":"g","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"send_message","arguments":""}}]},"finish_reason":null}]}

data: {"id":"g","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"to\": \"b"}}]},"finish_reason":null}]}

data: {"id":"g","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"}"}}]},"finish_reason":null}]}

data: {"id":"g","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"id":"g","choices":[],"usage":{"prompt_tokens":16,"completion_tokens":17,"prompt_tokens_details":{"cached_tokens":5},"cost":0.000093}}

data: [DONE]

"#;

/// What a stream comes to: pieces of output, and the answer.
fn read(
    dialect: &dyn Dialect,
    pieces: &[&[u8]],
) -> (Vec<(OutputKind, String)>, Result<Answer, Failure>) {
    let (mut events, mut found) = (Events::default(), Vec::new());
    for piece in pieces {
        events.push(piece, &mut found).unwrap();
    }
    let (mut fold, mut output) = (dialect.fold(), Vec::new());
    for event in found {
        match fold.event(&event, &Secrets::default()) {
            Ok(piece) => output.extend(piece.map(|piece| (piece.kind, piece.text))),
            Err(failure) => return (output, Err(failure)),
        }
    }
    (output, fold.answer())
}

fn call() -> Call {
    Call { id: String::new(), tool: "send_message".into(), args: "{\"to\": \"b\"}".into() }
}

#[test]
fn a_stream_gives_text_thinking_calls_and_usage() {
    let (output, answer) = read(&Anthropic, &[TEXT_AND_CALL.as_bytes()]);
    let wanted = [
        (OutputKind::Thinking, "hm".to_owned()),
        (OutputKind::Text, "Hel".to_owned()),
        (OutputKind::Text, "lo".to_owned()),
    ];
    assert_eq!(output, wanted);
    let answer = answer.unwrap();
    assert_eq!(answer.reply.text, "Hello");
    assert_eq!(answer.reply.calls, [Call { id: "toolu_1".into(), ..call() }]);
    let opaque = json!([
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "toolu_1", "name": "send_message", "input": {"to": "b"}},
    ]);
    assert_eq!(Value::from(answer.reply.opaque), opaque);
    assert_eq!(answer.stop, Stop::Done);
    let used = Usage {
        input_tokens: 11,
        output_tokens: 17,
        cache_read_tokens: 5,
        cache_write_tokens: 3,
        ..Usage::default()
    };
    assert_eq!(answer.usage, used);

    let (output, answer) = read(&OPENAI, &[CHUNKS.as_bytes()]);
    assert_eq!(output, wanted);
    let answer = answer.unwrap();
    assert_eq!(answer.reply.text, "Hello");
    assert_eq!(answer.reply.calls, [Call { id: "call_1".into(), ..call() }]);
    assert_eq!(answer.usage, Usage { cache_write_tokens: 0, ..used });
    assert_eq!(answer.cost, Some(93));
}

#[test]
fn a_stream_that_is_cut_anywhere_is_no_answer() {
    for (dialect, stream) in [(&Anthropic as &dyn Dialect, TEXT_AND_CALL), (&OPENAI, CHUNKS)] {
        let whole = read(dialect, &[stream.as_bytes()]).1.unwrap();
        let events: Vec<_> = stream.match_indices("\n\n").map(|(at, _)| at + 2).collect();
        for end in 0..stream.len() {
            let cut = &stream.as_bytes()[..end];
            match read(dialect, &[cut, &stream.as_bytes()[end..]]).1 {
                Ok(answer) => assert_eq!(answer, whole, "split at {end}"),
                Err(failure) => panic!("{failure} when split at {end}"),
            }
            let last = events.len() - 1;
            // The words of the end of a stream of chunks can be missing.
            let enough = if stream == CHUNKS { events[last - 2] } else { events[last] };
            let came = read(dialect, &[cut]).1;
            assert_eq!(came.is_ok(), end >= enough, "cut at {end}");
            if let Err(failure) = came {
                assert_eq!(failure.class, FailureClass::Network);
            }
        }
    }
}

#[test]
fn errors_in_the_midst_of_a_stream_have_a_class() {
    let overloaded = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    let gone = "data: {\"error\":{\"code\":502,\"message\":\"Provider disconnected\"},\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\"}]}\n\n";
    for (dialect, stream) in [(&Anthropic as &dyn Dialect, overloaded), (&OPENAI, gone)] {
        let failure = read(dialect, &[stream.as_bytes()]).1.unwrap_err();
        assert_eq!(failure.class, FailureClass::Overload, "{failure}");
    }
    for dialect in [&Anthropic as &dyn Dialect, &OPENAI] {
        let failure = read(dialect, &[b"data: <html>\n\n"]).1.unwrap_err();
        assert_eq!(failure.class, FailureClass::Protocol);
    }
}

#[test]
fn calls_of_servers_that_differ_are_read() {
    let calls = |chunks: &[Value]| {
        let chunk = |delta: &Value| format!("data: {}\n\n", json!({"choices": [{"delta": delta}]}));
        let stream: String = chunks.iter().map(chunk).collect::<String>() + "data: [DONE]\n\n";
        read(&OPENAI, &[stream.as_bytes()]).1.unwrap().reply.calls
    };
    let whole = json!({"function": {"name": "send_message", "arguments": "{\"to\": \"b\"}"}});
    assert_eq!(calls(&[json!({"tool_calls": [whole]})]), [Call { id: "call_0".into(), ..call() }]);
    let (first, second) = (
        json!({"id": "a", "function": {"name": "x", "arguments": "{"}}),
        json!({"function": {"arguments": "}"}}),
    );
    let third = json!({"id": "b", "function": {"name": "y", "arguments": {"k": 1}}});
    let read = calls(&[
        json!({"tool_calls": [first]}),
        json!({"tool_calls": [second]}),
        json!({"tool_calls": [third]}),
    ]);
    let of = |id: &str, tool: &str, args: &str| Call {
        id: id.into(),
        tool: tool.into(),
        args: args.into(),
    };
    assert_eq!(read, [of("a", "x", "{}"), of("b", "y", "{\"k\":1}")]);
}

/// What a stream of such events comes to: those of the beginning, and one again and again.
fn flood(dialect: &dyn Dialect, begin: &[Value], event: impl Fn(usize) -> Value) -> Failure {
    let mut fold = dialect.fold();
    let events = begin.iter().cloned().chain((0..1 << 20).map(event));
    for data in events {
        let event = Event { name: String::new(), data: data.to_string() };
        if let Err(failure) = fold.event(&event, &Secrets::default()) {
            return failure;
        }
    }
    panic!("it takes all of it");
}

#[test]
fn an_answer_has_a_bound_in_each_of_its_parts() {
    let part = "\u{1}".repeat(MAX_ANSWER / 40);
    let choice = |delta: Value| json!({"choices": [{"delta": delta}]});
    for delta in [
        json!({"content": part}),
        json!({"reasoning": part}),
        json!({"reasoning_details": [{"text": part}]}),
        json!({"tool_calls": [{"index": 0, "function": {"arguments": part}}]}),
        json!({"tool_calls": [{"index": 0, "function": {"arguments": {"a": part}}}]}),
        json!({"tool_calls": [{"index": 0, "function": {"name": part}}]}),
    ] {
        let failure = flood(&OPENAI, &[], |_| choice(delta.clone()));
        assert_eq!(failure.class, FailureClass::Protocol);
        assert!(failure.message.contains("is longer than 16 MiB"), "{failure}");
    }
    let start = |index: usize, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let block = start(0, json!({"type": "text", "text": ""}));
    for (kind, key) in [
        ("text_delta", "text"),
        ("thinking_delta", "thinking"),
        ("signature_delta", "signature"),
        ("input_json_delta", "partial_json"),
    ] {
        let event = |_| {
            let delta = json!({"type": kind, key: part});
            json!({"type": "content_block_delta", "index": 0, "delta": delta})
        };
        let failure = flood(&Anthropic, std::slice::from_ref(&block), event);
        assert!(failure.message.contains("is longer than 16 MiB"), "{failure}");
    }
    let whole = json!({"type": "text", "text": part});
    let failure = flood(&Anthropic, &[], |index| start(index, whole.clone()));
    assert!(failure.message.contains("is longer than 16 MiB"), "{failure}");
    let call = |index| choice(json!({"tool_calls": [{"index": index, "id": "", "function": {}}]}));
    let use_of = |index| start(index, json!({"type": "tool_use", "name": "x"}));
    for failure in [flood(&OPENAI, &[], call), flood(&Anthropic, &[], use_of)] {
        assert_eq!(failure.class, FailureClass::Protocol);
        assert!(failure.message.contains("more than 128 calls"), "{failure}");
    }
    let calls: String = (0..MAX_CALLS).map(|index| format!("data: {}\n\n", call(index))).collect();
    let read = read(&OPENAI, &[calls.as_bytes(), b"data: [DONE]\n\n"]).1.unwrap();
    assert_eq!(read.reply.calls.len(), MAX_CALLS);
}

fn conversation() -> Vec<Message> {
    let id = |number| CallId::from_u64(number);
    let turn = |items| Turn { id: TurnId::from_u64(1), end: End::Completed, stand_in: None, items };
    let args: Json = serde_json::from_str("{\"to\":\"b\"}").unwrap();
    let items = vec![
        Item::User("do it".into()),
        Item::Call { id: id(1), tool: "send_message".into(), args: args.clone() },
        Item::Call { id: id(2), tool: "send_message".into(), args },
        Item::Result { id: id(1), outcome: Ok(serde_json::from_str("{}").unwrap()) },
        Item::Result { id: id(2), outcome: Err("no".into()) },
        Item::Assistant("done".into()),
    ];
    let history = History { turns: vec![turn(items)], cut: 3 };
    Conversation::new(history, (TurnId::from_u64(2), "next".into()), Fitted::default()).messages
}

fn body(dialect: &dyn Dialect, messages: &[Message]) -> Value {
    let (instructions, extra) = ("be good", Map::from_iter([("temperature".to_owned(), json!(0))]));
    let ask =
        Ask { model: "m", instructions, messages, tools: &[], max_tokens: None, extra: &extra };
    dialect.body(&ask)
}

#[test]
fn a_conversation_is_sent_in_the_form_of_each_api() {
    let messages = conversation();
    let Message::User(first) = &messages[0] else { panic!("{messages:?}") };
    assert!(first.starts_with("[Earlier turns"), "{first}");
    let sent = body(&Anthropic, &messages);
    assert_eq!(sent["temperature"], 0);
    assert_eq!(sent["system"][0]["text"], "be good");
    let roles: Vec<&Value> =
        sent["messages"].as_array().unwrap().iter().map(|m| &m["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    let (calls, results) = (&sent["messages"][1]["content"], &sent["messages"][2]["content"]);
    assert_eq!(calls[0]["input"], json!({"to": "b"}));
    assert_eq!(results[0]["tool_use_id"], calls[0]["id"]);
    assert_eq!((&results[1]["is_error"], &results[1]["content"]), (&json!(true), &json!("no")));
    for (at, block) in [(2, 1), (4, 0)] {
        let marked = &sent["messages"][at]["content"][block];
        assert_eq!(marked["cache_control"]["type"], "ephemeral");
    }
    assert_eq!(sent["messages"].to_string().matches("cache_control").count(), 2);

    let sent = body(&OPENAI, &messages);
    let roles: Vec<&Value> =
        sent["messages"].as_array().unwrap().iter().map(|m| &m["role"]).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "assistant", "user"]);
    let calls = &sent["messages"][2]["tool_calls"];
    assert_eq!(calls[0]["function"]["arguments"], "{\"to\":\"b\"}");
    assert_eq!(sent["messages"][3]["tool_call_id"], calls[0]["id"]);
    assert_eq!(sent["messages"][4]["content"], "Error: no");
}

#[test]
fn arguments_that_are_no_json_are_told_to_the_model_and_not_sent_again() {
    let broken = Call { args: "{\"to\": ".into(), ..call() };
    assert!(broken.parsed().unwrap_err().contains("no JSON"));
    assert_eq!(Call { args: String::new(), ..call() }.parsed().unwrap().get(), "{}");
    let reply = Reply { calls: vec![broken], ..Reply::default() };
    let sent = [Message::User("x".into()), Message::Assistant(reply)];
    assert_eq!(body(&OPENAI, &sent)["messages"][2]["tool_calls"][0]["function"]["arguments"], "{}");
    assert_eq!(body(&Anthropic, &sent)["messages"][1]["content"][0]["input"], json!({}));
}

#[test]
fn fields_that_a_server_refuses_are_not_sent() {
    let sent = |dialect: OpenAi| {
        let (messages, extra) = ([Message::User("x".into())], Map::new());
        let messages = &messages;
        let (instructions, max_tokens) = ("", Some(9));
        let ask = Ask { model: "m", instructions, messages, tools: &[], max_tokens, extra: &extra };
        dialect.body(&ask)
    };
    let usual = sent(OPENAI);
    assert_eq!(
        (&usual["stream_options"]["include_usage"], &usual["max_tokens"]),
        (&json!(true), &json!(9))
    );
    let max_tokens_as = MaxTokensAs::MaxCompletionTokens;
    let other = sent(OpenAi { stream_usage: false, max_tokens_as });
    assert_eq!(other["max_completion_tokens"], 9);
    assert!(other.get("stream_options").is_none() && other.get("max_tokens").is_none(), "{other}");
}

#[test]
fn an_answer_that_fills_the_context_is_told_apart_from_one_that_is_too_long() {
    let full = TEXT_AND_CALL
        .replace("\"tool_use\"},\"usage\"", "\"model_context_window_exceeded\"},\"usage\"");
    assert_eq!(read(&Anthropic, &[full.as_bytes()]).1.unwrap().stop, Stop::Overflow);
    let full =
        CHUNKS.replace("\"finish_reason\":\"tool_calls\"", "\"finish_reason\":\"model_length\"");
    assert_eq!(read(&OPENAI, &[full.as_bytes()]).1.unwrap().stop, Stop::Overflow);
}

fn turn_id(number: u64) -> TurnId {
    TurnId::starting_at(SessionId::from_u128(1), number)
}

/// A turn of a question, a call whose result has so many bytes, and an answer.
fn turn(number: u64, bytes: usize) -> Turn {
    let id = CallId::from_u64(number);
    let value = Ok(serde_json::from_str(&json!("é".repeat(bytes / 2)).to_string()).unwrap());
    let items = vec![
        Item::User(format!("q{number}").into()),
        Item::Call { id, tool: "x".into(), args: serde_json::from_str("{}").unwrap() },
        Item::Result { id, outcome: value },
        Item::Assistant("a".into()),
    ];
    Turn { id: turn_id(number), end: End::Completed, stand_in: None, items }
}

fn first(conversation: &Conversation) -> &str {
    let Message::User(text) = &conversation.messages[0] else { panic!("{conversation:?}") };
    text
}

#[test]
fn a_conversation_is_made_shorter_until_nothing_more_can_be_left_out() {
    let history = |turns: u64| History { turns: (0..turns).map(|n| turn(n, 4)).collect(), cut: 0 };
    let told = (turn_id(8), "now".into());
    let mut long = Conversation::new(history(8), told, Fitted::default());
    let result = CallResult { id: "1".into(), outcome: Ok("é".repeat(9000)) };
    long.messages.push(Message::Results(vec![result]));
    assert_eq!(long.notice(), None);
    let mut lengths = vec![long.messages.len()];
    let mut notices = Vec::new();
    while long.compact() {
        lengths.push(long.messages.len());
        notices.extend(long.notice());
        assert!(lengths.len() < 20, "{lengths:?}");
    }
    assert_eq!(lengths, [34, 18, 10, 6, 2, 2]);
    assert!(notices[0].ends_with("4 earlier turns are left out for it"), "{notices:?}");
    let last = "8 earlier turns are left out, and long results of tools are shortened for it";
    assert!(notices[4].ends_with(last), "{notices:?}");
    let now = first(&long);
    assert!(now.starts_with("[Earlier turns") && now.ends_with("now"), "{now}");
    let Message::Results(results) = &long.messages[1] else { panic!("{long:?}") };
    assert!(results[0].text().contains("bytes are left out here"));
}

#[test]
fn a_conversation_begins_where_it_fitted_last() {
    let history = |from: u64, to: u64| {
        let turns = (from..to).map(|n| turn(n, if n == 4 { 9000 } else { 4 })).collect();
        History { turns, cut: from }
    };
    let of = |from, to, fitted| {
        Conversation::new(history(from, to), (turn_id(to), "now".into()), fitted)
    };
    let mut long = of(0, 4, Fitted::default());
    assert!(long.compact());
    let fitted = long.fitted();
    let next = of(0, 5, fitted);
    assert!(first(&next).starts_with("[Earlier turns") && first(&next).ends_with("q2"), "{next:?}");
    assert!(next.notice().unwrap().contains("2 earlier turns are left out"));
    assert_eq!(next.messages[..long.messages.len() - 1], long.messages[..long.messages.len() - 1]);
    // What was left out for its length in bytes is none of these.
    let later = of(3, 5, fitted);
    assert!(first(&later).ends_with("q3") && later.notice().is_none(), "{later:?}");
    // A result that was shortened stays so.
    let mut alone = of(0, 4, Fitted::default());
    while alone.messages.len() > 1 {
        assert!(alone.compact());
    }
    let result = CallResult { id: "1".into(), outcome: Ok("é".repeat(9000)) };
    alone.messages.push(Message::Results(vec![result]));
    assert!(alone.compact() && !alone.compact());
    let next = of(0, 5, alone.fitted());
    assert!(first(&next).ends_with("q4"), "{next:?}");
    let Message::Results(results) = &next.messages[2] else { panic!("{next:?}") };
    assert!(results[0].text().contains("bytes are left out here"));
    // A turn that came to nothing is passed over.
    let mut history = history(0, 5);
    history.turns.remove(4);
    let next = Conversation::new(history, (turn_id(5), "now".into()), alone.fitted());
    assert!(first(&next).ends_with("now"), "{next:?}");
}

#[test]
fn a_call_has_one_name_in_its_turn_and_after_it() {
    let reply = |id: &str, opaque: Vec<Value>| {
        let call = |more: &str| Call { id: format!("{id}{more}"), ..call() };
        Message::Assistant(Reply { text: "hm".into(), opaque, calls: vec![call("a"), call("b")] })
    };
    let results = |id: &str| {
        let result = |more: &str| CallResult { id: format!("{id}{more}"), outcome: Ok("1".into()) };
        Message::Results(vec![result("a"), result("b")])
    };
    let tool = |id: &str| json!({"type": "tool_use", "id": id, "name": "send_message", "input": {"to": "b"}});
    let blocks = vec![json!({"type": "text", "text": "hm"}), tool("ta"), tool("tb")];
    let thought = json!({"type": "thinking", "thinking": "t", "signature": "s"});
    let within = [&[thought][..], &blocks].concat();
    let sent = |id: &str, opaque: Vec<Value>| {
        let own = [reply(id, opaque), results(id)];
        let messages = [&[Message::User("x".into())][..], &own, &own].concat();
        body(&Anthropic, &messages)["messages"].clone()
    };
    let later = sent("call-", Vec::new());
    assert_eq!(sent("t", blocks), later);
    assert_eq!(later[3]["content"][2]["id"], "call_4");
    assert_eq!(later[4]["content"][1]["tool_use_id"], "call_4");
    let mut thinking = sent("t", within);
    for at in [1, 3] {
        let first = thinking[at]["content"].as_array_mut().unwrap().remove(0);
        assert_eq!(first["signature"], "s");
    }
    assert_eq!(thinking, later);
}

/// Both dialects, each with a whole stream of it.
const STREAMS: [(&dyn Dialect, &str); 2] = [(&Anthropic, TEXT_AND_CALL), (&OPENAI, CHUNKS)];

/// Something else in the place of a part of a stream.
fn damaged() -> impl Strategy<Value = (usize, Vec<u8>)> {
    let damage = (any::<Index>(), 0_usize..40, prop::collection::vec(any::<u8>(), 0..20));
    (0..STREAMS.len(), prop::collection::vec(damage, 0..4)).prop_map(|(which, damages)| {
        let mut stream = STREAMS[which].1.as_bytes().to_vec();
        for (at, length, bytes) in damages {
            let at = at.index(stream.len() + 1);
            let end = (at + length).min(stream.len());
            stream.splice(at..end, bytes);
        }
        (which, stream)
    })
}

proptest! {
    #[test]
    fn however_a_stream_comes_in_it_says_the_same(
        (which, stream) in damaged(),
        cuts in prop::collection::vec(any::<Index>(), 0..6),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|two| &stream[two[0]..two[1]]).collect();
        let (dialect, _) = STREAMS[which];
        let (whole, in_pieces) = (read(dialect, &[&stream]), read(dialect, &pieces));
        prop_assert_eq!(format!("{whole:?}"), format!("{in_pieces:?}"));
    }

    #[test]
    fn any_bytes_give_an_answer_or_an_error(
        which in 0..STREAMS.len(),
        lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
    ) {
        let stream: Vec<u8> = lines.iter().flat_map(|line| [b"data: ", &line[..], b"\n\n"].concat()).collect();
        // An answer needs a word of its end.
        prop_assert!(read(STREAMS[which].0, &[&stream]).1.is_err());
    }
}

#[test]
fn a_model_is_known_by_the_names_that_its_server_lists() {
    let ids = ["claude-haiku-4-5-20251001", "gpt-5-2025-08-07", "llama3:latest", "v/model:free"];
    let models = ids.map(|id| Model { id: id.into(), ..Model::default() });
    let short = ["claude-haiku-4-5", "claude-haiku-4-5-latest", "gpt-5", "llama3", "v/model"];
    for known in ids.into_iter().chain(short) {
        assert!(is_listed(known, &models), "{known}");
    }
    for unknown in ["claude-opus-4-5", "claude-haiku", "llama", "model", "gpt-5-mini", "gpt", ""] {
        assert!(!is_listed(unknown, &models), "{unknown}");
    }
}
