//! The tests' own model, asked by a plain HTTP client.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use substrat_tests::model_server::{Api, Behaviour, End, ModelServer, TITLE};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

const APIS: [Api; 4] = [Api::Anthropic, Api::Chat, Api::Responses, Api::Gemini];

/// An answer on its way. Dropping it closes the connection.
struct Asked {
    response: Response<Incoming>,
    connection: AbortHandle,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Asked {
    fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// The next bytes, or what broke.
    async fn more(&mut self) -> Option<Result<String, hyper::Error>> {
        let frame = self.response.body_mut().frame().await?;
        Some(frame.map(|it| String::from_utf8(it.into_data().expect("data").to_vec()).unwrap()))
    }

    /// All of it, and whether it came whole.
    async fn rest(&mut self) -> (String, bool) {
        let mut all = String::new();
        while let Some(more) = self.more().await {
            let Ok(more) = more else { return (all, false) };
            all += &more;
        }
        (all, true)
    }

    /// Reads until a text has come.
    async fn until(&mut self, text: &str) {
        let mut all = String::new();
        while !all.contains(text) {
            all += &self.more().await.expect("more comes").expect("it is whole");
        }
    }

    async fn json(mut self) -> Value {
        serde_json::from_str(&self.rest().await.0).expect("JSON")
    }
}

async fn send(server: &ModelServer, method: &str, path: &str, body: &Value) -> Option<Asked> {
    let address = server.url().replace("http://", "");
    let stream = TcpStream::connect(&address).await.expect("it listens");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    let connection = tokio::spawn(async move {
        let _ = connection.await;
    })
    .abort_handle();
    let request = Request::builder().method(method).uri(path).header("host", address);
    let request = request.body(Full::new(Bytes::from(body.to_string()))).expect("a request");
    let response = sender.send_request(request).await.ok()?;
    Some(Asked { response, connection })
}

/// A request in which the user says these texts, one after the other.
fn request(api: Api, stream: bool, texts: &[&str]) -> (String, Value) {
    let tool = json!({ "name": "send_message", "description": "", "parameters": {} });
    let parts = |text: &str| json!({ "role": "user", "parts": [{ "text": text }] });
    let message = |text: &str| json!({ "role": "user", "content": text });
    match api {
        Api::Anthropic => {
            // Of turns, so that they stay apart.
            let turns = texts
                .iter()
                .flat_map(|text| [message(text), json!({ "role": "assistant", "content": "yes" })]);
            let mut turns: Vec<Value> = turns.collect();
            turns.pop();
            let body = json!({
                "model": "m", "max_tokens": 9, "stream": stream, "messages": turns,
                "tools": [{ "name": "mcp__substrat__send_message", "input_schema": {} }],
            });
            ("/v1/messages?beta=true".to_owned(), body)
        }
        Api::Chat => {
            let messages: Vec<Value> = texts.iter().map(|text| message(text)).collect();
            let body = json!({
                "model": "m", "stream": stream, "messages": messages,
                "stream_options": { "include_usage": true },
                "tools": [{ "type": "function", "function": { "name": "substrat_send_message" } }],
            });
            ("/v1/chat/completions".to_owned(), body)
        }
        Api::Responses => {
            let input: Vec<Value> = texts.iter().map(|text| message(text)).collect();
            let body = json!({
                "model": "m", "stream": stream, "input": input,
                "tools": [
                    { "type": "namespace", "name": "agents", "tools": [{ "name": "spawn_agent" }] },
                    { "type": "namespace", "name": "mcp__substrat", "tools": [tool] },
                ],
            });
            ("/v1/responses".to_owned(), body)
        }
        Api::Gemini => {
            let contents: Vec<Value> = texts.iter().map(|text| parts(text)).collect();
            let declared = json!([{ "name": "mcp_substrat_send_message" }]);
            let body =
                json!({ "contents": contents, "tools": [{ "functionDeclarations": declared }] });
            let verb = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
            (format!("/v1beta/models/m:{verb}"), body)
        }
    }
}

async fn ask(server: &ModelServer, api: Api, stream: bool, texts: &[&str]) -> Asked {
    let (path, body) = request(api, stream, texts);
    send(server, "POST", &path, &body).await.expect("an answer")
}

/// The events of a stream.
fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// Where an API has the text of a delta.
fn delta(api: Api, event: &Value) -> String {
    let text = match api {
        Api::Anthropic => &event["delta"]["text"],
        Api::Chat => &event["choices"][0]["delta"]["content"],
        Api::Responses if event["type"] == "response.output_text.delta" => &event["delta"],
        Api::Responses => &Value::Null,
        Api::Gemini => &event["candidates"][0]["content"]["parts"][0]["text"],
    };
    text.as_str().unwrap_or_default().to_owned()
}

/// Where an API has the text of a whole answer.
fn said(api: Api, body: &Value) -> String {
    let text = match api {
        Api::Anthropic => &body["content"][0]["text"],
        Api::Chat => &body["choices"][0]["message"]["content"],
        Api::Responses => &body["output"][0]["content"][0]["text"],
        Api::Gemini => &body["candidates"][0]["content"]["parts"][0]["text"],
    };
    text.as_str().unwrap_or_else(|| panic!("{body}")).to_owned()
}

#[tokio::test]
async fn every_api_says_what_the_user_tells_it_to_in_words_and_whole() {
    let server = ModelServer::start();
    for api in APIS {
        let (text, whole) = ask(&server, api, true, &["SAY hello to you"]).await.rest().await;
        let deltas: Vec<String> = events(&text).iter().map(|event| delta(api, event)).collect();
        let deltas: Vec<&str> =
            deltas.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
        assert!(whole, "{api:?}");
        assert_eq!(deltas, ["hello ", "to ", "you"], "{api:?}");
        let body = ask(&server, api, false, &["bob: SAY hello to you"]).await.json().await;
        assert_eq!(said(api, &body), "hello to you", "{api:?}");
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 8);
    assert_eq!(requests[0].user, "SAY hello to you");
    assert_eq!(requests[0].path, "/v1/messages?beta=true");
    assert_eq!(requests[0].tools, ["mcp__substrat__send_message"]);
    assert!(requests.iter().all(|request| request.end == End::Answered));
}

#[tokio::test]
async fn every_api_ends_a_stream_in_its_own_way_with_the_usage() {
    let server = ModelServer::start();
    let last = async |api| {
        let (text, _) = ask(&server, api, true, &["SAY x"]).await.rest().await;
        let events = events(&text);
        (text, events)
    };
    let (_, events) = last(Api::Anthropic).await;
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    let wanted = [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(kinds, wanted);
    assert_eq!(events[0]["message"]["usage"]["input_tokens"], 11);
    assert_eq!(events[5]["usage"]["output_tokens"], 17);
    let (text, events) = last(Api::Chat).await;
    assert!(text.starts_with(": processing\n\n") && text.ends_with("data: [DONE]\n\n"), "{text}");
    let usage = &events.last().unwrap()["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(11), &json!(17)));
    let (_, events) = last(Api::Responses).await;
    let done = events.last().unwrap();
    assert_eq!(done["type"], "response.completed");
    assert_eq!(done["response"]["usage"]["input_tokens_details"]["cached_tokens"], 5);
    let (_, events) = last(Api::Gemini).await;
    let done = events.last().unwrap();
    assert_eq!(done["candidates"][0]["finishReason"], "STOP");
    assert_eq!(done["usageMetadata"]["totalTokenCount"], 28);
}

#[tokio::test]
async fn a_tool_is_called_by_the_end_of_its_name_and_its_result_is_said() {
    let server = ModelServer::start();
    let script = "CALL send_message {\"to\": \"bob\"}\nSAY it said {result}";
    let (path, mut body) = request(Api::Anthropic, false, &[script]);
    let answer = send(&server, "POST", &path, &body).await.unwrap().json().await;
    let call = &answer["content"][0];
    assert_eq!(call["name"], "mcp__substrat__send_message");
    assert_eq!(call["input"], json!({ "to": "bob" }));
    assert_eq!(answer["stop_reason"], "tool_use");
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({ "role": "assistant", "content": answer["content"] }));
    let result =
        json!({ "type": "tool_result", "tool_use_id": call["id"], "content": "all is well" });
    messages.push(json!({ "role": "user", "content": [result] }));
    let answer = send(&server, "POST", &path, &body).await.unwrap().json().await;
    assert_eq!(said(Api::Anthropic, &answer), "it said all is well");
}

#[tokio::test]
async fn calls_are_answers_of_their_own_unless_they_are_made_together() {
    let server = ModelServer::start();
    let script = "CALL send_message {\"n\":1}\nALSO send_message {\"n\":2}\nCALL send_message";
    let (path, mut body) = request(Api::Chat, false, &[script]);
    let mut counts = Vec::new();
    loop {
        let answer = send(&server, "POST", &path, &body).await.unwrap().json().await;
        let message = &answer["choices"][0]["message"];
        let Some(calls) = message["tool_calls"].as_array() else {
            assert_eq!(message["content"], "The tool said: done");
            break;
        };
        counts.push(calls.len());
        let messages = body["messages"].as_array_mut().unwrap();
        messages.push(message.clone());
        messages.extend(
            calls.iter().map(
                |call| json!({ "role": "tool", "tool_call_id": call["id"], "content": "done" }),
            ),
        );
    }
    assert_eq!(counts, [2, 1]);
}

#[tokio::test]
async fn a_call_in_responses_repeats_the_namespace_of_its_tool() {
    let server = ModelServer::start();
    for name in ["send_message", "substrat_send_message", "mcp__substrat__send_message"] {
        let script = format!("CALL {name} {{\"to\":\"bob\"}}");
        let (text, _) = ask(&server, Api::Responses, true, &[&script]).await.rest().await;
        let events = events(&text);
        let kind = |kind: &str| -> Vec<&Value> {
            events.iter().filter(|event| event["type"] == kind).collect()
        };
        let done = &kind("response.output_item.done")[0]["item"];
        assert_eq!(done["namespace"], "mcp__substrat", "{name}");
        assert_eq!(done["name"], "send_message");
        let parts = kind("response.function_call_arguments.delta");
        let parts: String = parts.iter().filter_map(|part| part["delta"].as_str()).collect();
        assert_eq!(parts, "{\"to\":\"bob\"}");
    }
    let body = ask(&server, Api::Responses, false, &["CALL fly"]).await.json().await;
    let text = said(Api::Responses, &body);
    assert_eq!(text, "No tool fly is offered, only: spawn_agent, send_message");
}

#[tokio::test]
async fn gemini_calls_with_arguments_and_thinks_apart_from_what_it_says() {
    let server = ModelServer::start();
    let script = "THINK well\nSAY so\nCALL send_message {\"to\":\"bob\"}";
    let body = ask(&server, Api::Gemini, false, &[script]).await.json().await;
    let parts = body["candidates"][0]["content"]["parts"].as_array().unwrap();
    assert_eq!(parts[0], json!({ "text": "well", "thought": true }));
    assert_eq!(parts[1], json!({ "text": "so" }));
    assert_eq!(parts[2]["functionCall"]["name"], "mcp_substrat_send_message");
    assert_eq!(parts[2]["functionCall"]["args"], json!({ "to": "bob" }));
}

#[tokio::test]
async fn memory_is_what_the_request_holds_without_what_agents_add() {
    let server = ModelServer::start();
    for api in APIS {
        let texts = ["SAY one", "<system-reminder>SAY no</system-reminder>", "two", "RECALL"];
        let body = ask(&server, api, false, &texts).await.json().await;
        assert_eq!(said(api, &body), "I recall: SAY one | two", "{api:?}");
    }
}

#[tokio::test]
async fn a_message_that_claude_passes_on_inside_of_a_turn_is_the_users_last() {
    let server = ModelServer::start();
    let (path, mut body) = request(Api::Anthropic, false, &["SAY one"]);
    let passed = "The user sent a new message while you were working:\nSAY two\n\nThis is how \
                  Claude Code surfaces messages";
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({ "role": "system", "content": [{ "type": "text", "text": passed }] }));
    let answer = send(&server, "POST", &path, &body).await.unwrap().json().await;
    assert_eq!(said(Api::Anthropic, &answer), "two");
}

#[tokio::test]
async fn refusals_have_the_shape_of_their_api() {
    let server = ModelServer::start();
    for status in [400_u16, 401, 402, 403, 404, 413, 429, 500, 503, 529] {
        let script = format!("STATUS {status} retry-after 2");
        for api in APIS {
            let asked = ask(&server, api, true, &[&script]).await;
            assert_eq!(asked.status(), status, "{api:?}");
            assert_eq!(asked.response.headers()["retry-after"], "2");
            let body = asked.json().await;
            assert!(body["error"]["message"].is_string(), "{body}");
            match api {
                Api::Anthropic => assert_eq!(body["type"], "error"),
                Api::Chat | Api::Responses => assert!(body["error"]["code"].is_string(), "{body}"),
                Api::Gemini => assert_eq!(body["error"]["code"], status),
            }
        }
    }
    let body = ask(&server, Api::Anthropic, true, &["STATUS 529"]).await.json().await;
    assert_eq!(body["error"]["type"], "overloaded_error");
    let body = ask(&server, Api::Chat, true, &["OVERFLOW"]).await.json().await;
    assert_eq!(body["error"]["code"], "context_length_exceeded");
}

#[tokio::test]
async fn a_queue_comes_before_what_the_user_says_and_titles_take_nothing_from_it() {
    let server = ModelServer::start();
    server.next([Behaviour::Status { status: 429, retry_after: Some(1) }]);
    server.next([Behaviour::Say("queued".to_owned())]);
    let title = json!({ "messages": [
        { "role": "system", "content": "You are a title generator." },
        { "role": "user", "content": "SAY x" },
    ]});
    let answer = send(&server, "POST", "/v1/chat/completions", &title).await.unwrap();
    assert_eq!(said(Api::Chat, &answer.json().await), TITLE);
    assert_eq!(ask(&server, Api::Chat, false, &["SAY x"]).await.status(), 429);
    for wanted in ["queued", "x"] {
        let body = ask(&server, Api::Chat, false, &["SAY x"]).await.json().await;
        assert_eq!(said(Api::Chat, &body), wanted);
    }
    assert!(server.requests()[0].aside);
}

#[tokio::test]
async fn what_is_told_once_is_left_out_when_the_text_comes_again() {
    let server = ModelServer::start();
    let script = ["STATUS 503 once\nCUT once\nSAY better"];
    assert_eq!(ask(&server, Api::Chat, true, &script).await.status(), 503);
    let (_, whole) = ask(&server, Api::Chat, true, &script).await.rest().await;
    assert!(!whole, "it was cut");
    let (text, whole) = ask(&server, Api::Chat, true, &script).await.rest().await;
    assert!(whole && text.contains("better"), "{text}");
}

#[tokio::test]
async fn a_stream_breaks_off_or_has_an_error_inside() {
    let server = ModelServer::start();
    for api in APIS {
        let (text, whole) = ask(&server, api, true, &["SAY begun\nCUT"]).await.rest().await;
        assert!(!whole && text.contains("begun"), "{api:?}: {text}");
        let script = ["SAY begun\nMIDSTREAM overloaded"];
        let (text, whole) = ask(&server, api, true, &script).await.rest().await;
        let event = events(&text).pop().expect("an error");
        assert!(whole, "{api:?}");
        let error =
            if api == Api::Responses { &event["response"]["error"] } else { &event["error"] };
        assert!(error["message"].as_str().unwrap().starts_with("overloaded"), "{api:?}: {event}");
    }
}

#[tokio::test]
async fn a_held_answer_goes_on_when_it_is_released() {
    let server = ModelServer::start();
    let script = "SAY before\nHOLD gate\nSAY after";
    let mut asked = ask(&server, Api::Anthropic, true, &[script]).await;
    asked.until("before").await;
    assert_eq!(server.requests()[0].end, End::Open);
    server.release("gate");
    let (text, whole) = asked.rest().await;
    assert!(whole && text.contains("after"), "{text}");
    assert_eq!(server.ended(0).await, End::Answered);
}

#[tokio::test]
async fn a_client_that_goes_away_is_seen() {
    let server = ModelServer::start();
    for (number, script) in ["SAY before\nSTALL", "SAY before\nHOLD never"].iter().enumerate() {
        let mut asked = ask(&server, Api::Responses, true, &[script]).await;
        asked.until("before").await;
        drop(asked);
        assert_eq!(server.ended(number).await, End::Dropped);
    }
    let (path, body) = request(Api::Chat, true, &["HANG"]);
    tokio::select! {
        _ = send(&server, "POST", &path, &body) => panic!("it hangs"),
        request = server.request(|request| request.user == "HANG") => {
            assert_eq!(request.end, End::Open);
        }
    }
}

#[tokio::test]
async fn bytes_of_no_api_are_sent_as_they_are() {
    let server = ModelServer::start();
    let body = b"<html>\xff".to_vec();
    server.next([Behaviour::Raw { status: 502, content_type: "text/html".to_owned(), body }]);
    let mut asked = ask(&server, Api::Chat, true, &["SAY x"]).await;
    assert_eq!(asked.status(), 502);
    let frame = asked.response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap().as_ref(), b"<html>\xff");
}

#[tokio::test]
async fn the_models_are_listed_and_other_paths_are_not_found() {
    let server = ModelServer::start();
    let models = send(&server, "GET", "/v1/models", &Value::Null).await.unwrap().json().await;
    assert_eq!(models["data"][0]["id"], "fake-1");
    let other = send(&server, "GET", "/v2/models", &Value::Null).await.unwrap();
    assert_eq!(other.status(), 404);
    assert_eq!(server.requests()[1].api, None);
}

async fn refusal(server: &ModelServer, path: &str, body: &Value) -> String {
    let asked = send(server, "POST", path, body).await.unwrap();
    assert_eq!(asked.status(), 400, "{body}");
    asked.json().await["error"]["message"].as_str().expect("a message").to_owned()
}

#[tokio::test]
async fn calls_without_results_and_results_without_calls_are_refused() {
    let server = ModelServer::start();
    let ask = json!({ "role": "user", "content": "go" });
    let blocks = |role: &str, blocks: Value| json!({ "role": role, "content": blocks });
    let call = json!({ "type": "tool_use", "id": "t1", "name": "x", "input": {} });
    let result = json!({ "type": "tool_result", "tool_use_id": "t1", "content": "y" });
    let text = json!({ "type": "text", "text": "and" });
    let (called, answered) = (blocks("assistant", json!([call])), blocks("user", json!([result])));
    for (messages, wanted) in [
        (json!([ask, called]), "`tool_use` without `tool_result`"),
        (json!([ask, called, ask]), "`tool_use` ids were found without `tool_result`"),
        (json!([ask, answered]), "unexpected `tool_use_id`"),
        (json!([ask, called, blocks("user", json!([text, result]))]), "must come first"),
        (json!([ask, called, answered, called, answered]), "must be unique"),
        (json!([called, answered]), "first message must use"),
        (json!([blocks("user", json!([{ "type": "text", "text": "" }]))]), "non-empty"),
        (json!([]), "at least one message"),
    ] {
        let body = json!({ "model": "m", "max_tokens": 9, "messages": messages });
        let told = refusal(&server, "/v1/messages", &body).await;
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
    let told = refusal(&server, "/v1/messages", &json!({ "messages": [ask] })).await;
    assert!(told.contains("max_tokens"), "{told}");
    let called = json!({ "role": "assistant", "tool_calls": [{ "id": "c1" }] });
    let answered = json!({ "role": "tool", "tool_call_id": "c1", "content": "y" });
    for messages in [json!([ask, called]), json!([ask, called, ask]), json!([ask, answered])] {
        let told = refusal(&server, "/v1/chat/completions", &json!({ "messages": messages })).await;
        assert!(told.contains("tool"), "{told}");
    }
    let called = json!({ "type": "function_call", "call_id": "c1", "name": "x" });
    let told = refusal(&server, "/v1/responses", &json!({ "input": [called] })).await;
    assert_eq!(told, "No tool output found for function call c1.");
}
