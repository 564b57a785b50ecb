//! The real command-line agents against the tests' own model, without a daemon: when tests of
//! providers fail, this tells whether the agents or their versions are the cause.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use substrat_tests::agents::{Home, installed};
use substrat_tests::model_server::{Api, End, ModelServer, Request};

/// The lines that an agent prints when it ends well, as JSON.
fn run(mut command: Command, args: &[&str]) -> Vec<Value> {
    let output = command.args(args).stdin(Stdio::null()).output().expect("the agent runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}{told}", output.status);
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The events of a type.
fn events<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

/// The requests in which an agent spoke for its user.
fn turns(server: &ModelServer) -> Vec<Request> {
    let mut requests = server.requests();
    requests.retain(|request| request.api.is_some() && !request.aside);
    requests
}

/// Checks the requests of two turns, of which the second saw the first.
fn check(server: &ModelServer, api: Api) {
    let turns = turns(server);
    let texts: Vec<&str> = turns.iter().map(|turn| turn.user.as_str()).collect();
    assert_eq!(texts, ["SAY hello to you", "RECALL"], "{:#?}", server.summary());
    for turn in turns {
        assert_eq!((turn.api, turn.end), (Some(api), End::Answered));
        let keys = ["x-api-key", "authorization", "x-goog-api-key"];
        let key = keys.iter().find_map(|name| turn.headers.get(*name)).expect("a key");
        assert!(key.ends_with("of-a-test"), "{key}");
    }
}

fn claude(program: &Path, home: &Home, server: &ModelServer) -> Command {
    let mut command = home.command(program);
    command.env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", "of-a-test");
    command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").env("DISABLE_AUTOUPDATER", "1");
    command.env("DISABLE_TELEMETRY", "1").env("DISABLE_ERROR_REPORTING", "1");
    command.args(["-p", "--output-format", "stream-json", "--verbose", "--strict-mcp-config"]);
    command.args(["--setting-sources=", "--tools", "", "--model", "fake-1"]);
    command
}

#[test]
fn claude_answers_and_remembers() {
    let Some(program) = installed("claude") else { return };
    let (home, server) = (Home::new(), ModelServer::start());
    let id = uuid::Uuid::new_v4().to_string();
    let lines = run(claude(&program, &home, &server), &["--session-id", &id, "SAY hello to you"]);
    let result = events(&lines, "result")[0];
    assert_eq!(result["is_error"], false);
    assert_eq!(result["result"], "hello to you");
    assert_eq!(result["usage"]["output_tokens"], 17);
    let lines = run(claude(&program, &home, &server), &["--resume", &id, "RECALL"]);
    assert_eq!(events(&lines, "result")[0]["result"], "I recall: SAY hello to you");
    check(&server, Api::Anthropic);
}

fn codex(program: &Path, home: &Home, server: &ModelServer) -> Command {
    let mut command = home.command(program);
    command.env("FAKE_KEY", "of-a-test");
    command.args(["exec", "--json", "--skip-git-repo-check", "--ignore-user-config"]);
    // It would tell its makers of each run, and fetch plugins.
    command.args(["-c", "analytics.enabled=false", "-c", "check_for_update_on_startup=false"]);
    command.args(["--disable", "plugins", "--disable", "apps"]);
    command.args(["-m", "fake-1", "-c", "model_provider=\"fake\"", "-c"]);
    command.arg(format!(
        "model_providers.fake={{name=\"fake\",base_url=\"{}/v1\",env_key=\"FAKE_KEY\",\
         wire_api=\"responses\",request_max_retries=0,stream_max_retries=0}}",
        server.url(),
    ));
    command
}

#[test]
fn codex_answers_and_remembers() {
    let Some(program) = installed("codex") else { return };
    let (home, server) = (Home::new(), ModelServer::start());
    let said = |lines: &[Value]| -> Vec<Value> {
        let items = events(lines, "item.completed").into_iter().map(|line| &line["item"]);
        items.filter(|item| item["type"] == "agent_message").map(|it| it["text"].clone()).collect()
    };
    let lines = run(codex(&program, &home, &server), &["SAY hello to you"]);
    assert_eq!(said(&lines), ["hello to you"]);
    assert_eq!(events(&lines, "turn.completed")[0]["usage"]["output_tokens"], 17);
    let id = events(&lines, "thread.started")[0]["thread_id"].as_str().unwrap().to_owned();
    let lines = run(codex(&program, &home, &server), &["resume", &id, "RECALL"]);
    assert_eq!(said(&lines), ["I recall: SAY hello to you"]);
    check(&server, Api::Responses);
}

fn opencode(program: &Path, home: &Home, server: &ModelServer) -> Command {
    let options = json!({ "baseURL": format!("{}/v1", server.url()), "apiKey": "of-a-test" });
    let config = json!({
        "model": "fake/fake-1",
        "small_model": "fake/fake-1",
        "autoupdate": false,
        "share": "disabled",
        "enabled_providers": ["fake"],
        "provider": { "fake": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Fake",
            "options": options,
            "models": { "fake-1": { "limit": { "context": 100_000, "output": 4096 } } },
        }},
    });
    let mut command = home.command(program);
    command.env("OPENCODE_CONFIG_CONTENT", config.to_string());
    // Where it would look for its library of plugins.
    command.env("npm_config_registry", server.url());
    for name in ["AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS"] {
        command.env(format!("OPENCODE_DISABLE_{name}"), "1");
    }
    command.args(["run", "--format", "json"]);
    command
}

#[test]
fn opencode_answers_and_remembers() {
    let Some(program) = installed("opencode") else { return };
    let (home, server) = (Home::new(), ModelServer::start());
    let said = |lines: &[Value]| -> Vec<Value> {
        events(lines, "text").into_iter().map(|line| line["part"]["text"].clone()).collect()
    };
    // A text that has spaces comes in quotes.
    let lines = run(opencode(&program, &home, &server), &["SAY hello to you"]);
    assert_eq!(said(&lines), ["hello to you"]);
    let end = events(&lines, "step_finish")[0];
    assert_eq!(end["part"]["reason"], "stop");
    assert_eq!(end["part"]["tokens"]["output"], 17);
    let id = end["sessionID"].as_str().unwrap().to_owned();
    let lines = run(opencode(&program, &home, &server), &["-s", &id, "RECALL"]);
    assert_eq!(said(&lines), ["I recall: \"SAY hello to you\""]);
    let turns = turns(&server);
    let texts: Vec<&str> = turns.iter().map(|turn| turn.user.as_str()).collect();
    assert_eq!(texts, ["\"SAY hello to you\"", "RECALL"]);
    assert!(turns.iter().all(|turn| turn.api == Some(Api::Chat)));
}

fn gemini(program: &Path, home: &Home, server: &ModelServer) -> Command {
    let settings = json!({
        "security": { "auth": { "selectedType": "gemini-api-key" } },
        "privacy": { "usageStatisticsEnabled": false },
        "telemetry": { "enabled": false },
        "general": { "enableAutoUpdate": false },
    });
    let folder = home.path().join(".gemini");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("settings.json"), settings.to_string()).expect("settings");
    let mut command = home.command(program);
    command.env("GEMINI_API_KEY", "of-a-test").env("GOOGLE_GEMINI_BASE_URL", server.url());
    command.env("GEMINI_CLI_TRUST_WORKSPACE", "true").env("GEMINI_CLI_NO_RELAUNCH", "true");
    command.args(["-m", "gemini-2.5-flash", "-o", "stream-json"]);
    command
}

#[test]
fn gemini_answers_and_remembers() {
    let Some(program) = installed("gemini") else { return };
    let (home, server) = (Home::new(), ModelServer::start());
    let said = |lines: &[Value]| -> String {
        let messages = events(lines, "message").into_iter();
        let own = messages.filter(|line| line["role"] == "assistant");
        own.filter_map(|line| line["content"].as_str()).collect()
    };
    let id = uuid::Uuid::new_v4().to_string();
    let lines =
        run(gemini(&program, &home, &server), &["--session-id", &id, "-p", "SAY hello to you"]);
    assert_eq!(said(&lines), "hello to you");
    let result = events(&lines, "result")[0];
    assert_eq!(result["status"], "success");
    assert_eq!(result["stats"]["output_tokens"], 17);
    let lines = run(gemini(&program, &home, &server), &["--resume", &id, "-p", "RECALL"]);
    assert_eq!(said(&lines), "I recall: SAY hello to you");
    check(&server, Api::Gemini);
}
