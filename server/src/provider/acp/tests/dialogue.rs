//! What is said to an agent, by its configuration, from its start to the end of a turn.

use std::path::Path;

use serde_json::{Value, json};

use super::super::cli::{KIND, parts};
use crate::model::{FailureClass, SessionId, TurnId};
use crate::provider::activity::{Event, TurnOver};
use crate::provider::cli::{Cli, Dialogue, Places, Start, Step};
use crate::provider::failure::{Failed, FailureKind};
use crate::provider::registry::{Common, Section};

/// A preset with further settings: a new dialogue of it, for a model, and the files that it writes.
fn begin(
    preset: &str,
    settings: &str,
    model: Option<&str>,
) -> (Box<dyn Dialogue>, Vec<(String, String)>) {
    let (_, text) = KIND.presets.iter().find(|(name, _)| *name == preset).unwrap();
    let mut table: toml::Table = text.parse().unwrap();
    table.remove("kind");
    table.extend(settings.parse::<toml::Table>().unwrap());
    let section =
        Section { name: preset.into(), kind: KIND.name, common: Common::default(), table };
    let (config, acp) = parts(&section).unwrap();
    let [home, workspace, bridge, socket] = [const { String::new() }; 4];
    let at = Places { home, workspace, bridge, socket };
    let start = Start {
        session: SessionId::from_u128(1),
        model,
        instructions: "",
        prompt: "hello",
        kept: &json!({"session_id": "s"}),
        anew: 0,
        home: Path::new("/"),
        at: &at,
        sandboxed: true,
        version: "",
    };
    (acp.dialogue(&config, &start), acp.command(&config, &start).files)
}

/// Answers the last request of these steps.
fn reply(talk: &mut dyn Dialogue, steps: &[Step], result: &Value) -> Vec<Step> {
    let mut answer = result.clone();
    answer["id"] = asked(steps)["id"].clone();
    talk.read(&answer.to_string())
}

/// The last request of these steps.
fn asked(steps: &[Step]) -> Value {
    let written = |step: &Step| match step {
        Event::Write(line) => Some(serde_json::from_str(line).unwrap()),
        _ => None,
    };
    steps.iter().rev().find_map(written).unwrap_or_default()
}

fn failed(steps: &[Step]) -> Failed {
    match steps.last() {
        Some(Event::Over(TurnOver::Failed(failed))) => failed.clone(),
        _ => panic!("{steps:?}"),
    }
}

/// What an agent says of itself.
fn agent(methods: &[&str]) -> Value {
    let methods: Vec<Value> = methods.iter().map(|id| json!({"id": id})).collect();
    let can = json!({"sessionCapabilities": {"resume": {}}});
    json!({"result": {
        "protocolVersion": 1, "agentInfo": {"name": "x"}, "agentCapabilities": can,
        "authMethods": methods,
    }})
}

/// What a preset asks when the agent has said which ways of being authenticated it has.
fn first(preset: &str, settings: &str, methods: &[&str]) -> Vec<Step> {
    let (mut talk, _) = begin(preset, settings, None);
    let steps = talk.start(TurnId::from_u64(1), "hello");
    reply(&mut *talk, &steps, &agent(methods))
}

const WITH_KEY: &str = "key_env = \"PATH\"";
const WITHOUT: &str = "key_env = \"\"";

#[test]
fn codex_is_authenticated_by_its_key_where_it_has_one() {
    let steps = first("codex-acp", WITH_KEY, &["api-key"]);
    assert_eq!(asked(&steps)["params"]["methodId"], "api-key");
    let opens =
        |settings: &str| asked(&first("codex-acp", settings, &["api-key"]))["method"].clone();
    assert_eq!(opens(WITHOUT), "session/resume");
    assert_eq!(opens(&format!("{WITH_KEY}\nauth = \"\"")), "session/resume");
    assert_eq!(opens(&format!("{WITHOUT}\nauth = \"api-key\"")), "authenticate");
    assert_eq!(asked(&first("claude-acp", WITH_KEY, &[]))["method"], "session/resume");
}

#[test]
fn codex_keeps_no_key_in_its_home_and_finds_a_login_there() {
    let written = |settings: &str| begin("codex-acp", settings, None).1;
    let store = |store: &str| {
        let settings = format!(
            "cli_auth_credentials_store = \"{store}\"\n\n\
             [features]\ngoals = false\nshell_snapshot = false\n\n\
             [agents]\nmax_depth = 0\n"
        );
        vec![(".codex/config.toml".to_owned(), settings)]
    };
    assert_eq!(written(WITH_KEY), store("ephemeral"));
    assert_eq!(written(&format!("{WITH_KEY}\nprogram = \"/x/codex-acp\"")), store("ephemeral"));
    assert_eq!(written(WITHOUT), store("file"));
    assert!(begin("claude-acp", WITH_KEY, None).1.is_empty());
}

#[test]
fn a_way_of_being_authenticated_that_is_not_offered_is_refused_with_those_that_are() {
    let auth = format!("{WITH_KEY}\nauth = \"openai-api-key\"");
    let refused = failed(&first("codex-acp", &auth, &["api-key", "chat-gpt"]));
    assert_eq!(refused.kind, FailureKind::Misconfigured);
    let problem = "it cannot be authenticated by \"openai-api-key\"; auth may be api-key, chat-gpt";
    assert_eq!(refused.message, problem);
    assert_eq!(failed(&first("codex-acp", &auth, &[])).kind, FailureKind::Misconfigured);
}

#[test]
fn what_refuses_to_begin_is_no_agent_and_blames_no_prompt() {
    let refused = |code: i64, message: &str| {
        let (mut talk, _) = begin("claude-acp", WITHOUT, None);
        let steps = talk.start(TurnId::from_u64(1), "hello");
        let error = json!({"error": {"code": code, "message": message}});
        failed(&reply(&mut *talk, &steps, &error))
    };
    let echoed = refused(-32601, "initialize is not supported");
    assert_eq!(echoed.kind, FailureKind::Misconfigured);
    assert!(
        echoed.message.ends_with("(initialize is not supported): look at its program and args")
    );
    assert_eq!(refused(-32000, "log in").kind, FailureKind::Auth);
}

/// How a turn fails in a session that was opened so, when choosing the model fails so.
fn chosen(opened: &Value, error: &Value) -> Failed {
    let (mut talk, _) = begin("claude-acp", WITHOUT, Some("nope"));
    let steps = talk.start(TurnId::from_u64(1), "hello");
    let steps = reply(&mut *talk, &steps, &agent(&[]));
    let steps = reply(&mut *talk, &steps, &json!({"result": opened}));
    let steps = reply(&mut *talk, &steps, &json!({"error": error}));
    assert!(!talk.is_ready());
    failed(&steps)
}

#[test]
fn a_model_that_is_not_known_is_refused_with_those_that_are() {
    let invalid = json!({"code": -32602, "message": "Invalid params"});
    let group = json!({"group": "g", "name": "G", "options": [{"value": "b"}, {"value": "c"}]});
    let setting = json!({"id": "model", "category": "model", "options": [{"value": "a"}, group]});
    let refused = chosen(&json!({"configOptions": [{"category": "mode"}, setting]}), &invalid);
    assert_eq!(refused.kind, FailureKind::Misconfigured);
    let problem = "it does not know the model \"nope\" (Invalid params); it offers a, b, c";
    assert_eq!(refused.message, problem);
    let models: Vec<Value> = (0..12).map(|at| json!({"modelId": at.to_string()})).collect();
    let opened = json!({"models": {"availableModels": models}});
    let unclear = json!({"code": -32603, "message": "Internal error", "data": {"details": "x"}});
    let refused = chosen(&opened, &unclear);
    assert_eq!(refused.kind, FailureKind::Misconfigured);
    assert!(refused.message.ends_with("7, 8, 9 and 2 more"), "{}", refused.message);
    let network = json!({"code": -32603, "message": "connection refused"});
    assert_eq!(chosen(&opened, &network).kind, FailureKind::Network);
}

#[test]
fn an_agent_that_lost_its_cli_is_given_no_other_turn() {
    let over = |error: &Value| {
        let (mut talk, _) = begin("claude-acp", WITHOUT, None);
        let steps = talk.start(TurnId::from_u64(1), "hello");
        let steps = reply(&mut *talk, &steps, &agent(&[]));
        let steps = reply(&mut *talk, &steps, &json!({"result": {}}));
        assert!(talk.is_ready());
        let steps = reply(&mut *talk, &steps, &json!({"error": error}));
        assert_eq!(talk.kept()["session_id"], "s", "another process goes on with it");
        (failed(&steps).kind, talk.is_ready())
    };
    let error =
        |words: &str| json!({"code": -32603, "message": "Internal error: ".to_owned() + words});
    let exited = error("The Claude Agent process exited unexpectedly.");
    assert_eq!(over(&exited), (FailureKind::Killed, false));
    // Nothing was done with the prompt, so it may be tried again.
    assert_eq!(over(&error("Session not found")), (FailureKind::Unclear, false));
    assert_eq!(over(&error("API Error: 400 x")), (FailureKind::InvalidRequest, true));
}

#[test]
fn an_agent_that_lacks_its_cli_is_not_installed() {
    let began = |preset: &str| {
        let (mut talk, _) = begin(preset, WITHOUT, None);
        let steps = talk.start(TurnId::from_u64(1), "hello");
        (talk, steps)
    };
    let details = "Claude native binary not found for linux-x64. Reinstall it";
    let data = json!({"details": details});
    let claude = json!({"error": {"code": -32603, "message": "Internal error", "data": data}});
    let (mut talk, steps) = began("claude-acp");
    let steps = reply(&mut *talk, &steps, &agent(&[]));
    assert!(!talk.has_session());
    let lacking = failed(&reply(&mut *talk, &steps, &claude));
    assert_eq!((lacking.kind, lacking.message.as_str()), (FailureKind::Missing, details));
    assert_eq!(lacking.kind.class(), FailureClass::ProviderGone);

    let words = "Codex process could not be started (spawn /nowhere/codex ENOENT)";
    let codex = json!({"error": {"code": 1001, "message": words}});
    let (mut talk, steps) = began("codex-acp");
    assert_eq!(failed(&reply(&mut *talk, &steps, &codex)).kind, FailureKind::Missing);
    let prompted = |acts: bool| {
        let (mut talk, steps) = began("codex-acp");
        let steps = reply(&mut *talk, &steps, &agent(&[]));
        let steps = reply(&mut *talk, &steps, &json!({"result": {}}));
        assert!(talk.has_session());
        if acts {
            let content = json!({"type": "text", "text": "I look."});
            let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
            let params = json!({"sessionId": "s", "update": update});
            talk.read(&json!({"method": "session/update", "params": params}).to_string());
        }
        (failed(&reply(&mut *talk, &steps, &codex)).kind, talk.is_ready())
    };
    assert_eq!(prompted(false), (FailureKind::Missing, false));
    // One that worked had it.
    assert_eq!(prompted(true), (FailureKind::Killed, false));
}
