//! Execution records: what was asked in a turn, what happened, how it ended, and the same again.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use prost_types::value::Kind;
use sha2::{Digest, Sha256};
use substrat_proto::v1;
use substrat_tests::harness::{Client, Daemon, reason, say};
use tonic::{Code, Status};

const ECHO: &str = r#"fn turn(prompt) { "you said: " + prompt }"#;
const WITH_TOOLS: &str = r#"fn turn(prompt) {
    list_children();
    try { inspect_agent("nobody") } catch {}
    "looked around"
}"#;
const STUCK: &str = "fn turn(prompt) { list_children(); sleep_ms(3600000); }";

async fn get(client: &Client, turn: &str) -> Result<v1::ExecutionRecord, Status> {
    let request = v1::GetTurnRequest { turn_id: turn.to_owned() };
    let found = client.sessions.clone().get_turn(request).await?;
    Ok(found.into_inner().record.expect("a record"))
}

async fn replay(client: &Client, turn: &str) -> Result<v1::ReplayTurnResponse, Status> {
    let request = v1::ReplayTurnRequest { turn_id: turn.to_owned() };
    Ok(client.sessions.clone().replay_turn(request).await?.into_inner())
}

/// All turns of an agent, so many at once.
async fn list(client: &Client, agent: &str, incomplete: bool, size: i32) -> Vec<v1::TurnSummary> {
    let mut turns = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = v1::ListTurnsRequest {
            agent: agent.to_owned(),
            page_size: size,
            page_token,
            incomplete,
        };
        let page = client.sessions.clone().list_turns(request).await.expect("a page").into_inner();
        assert!(size == 0 || page.turns.len() <= size as usize);
        turns.extend(page.turns);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return turns;
        }
    }
}

async fn last_turn(client: &Client, agent: &str) -> v1::TurnSummary {
    list(client, agent, false, 0).await.pop().expect("a turn")
}

fn kinds(record: &v1::ExecutionRecord) -> Vec<&str> {
    record.events.iter().map(|event| event.r#type.as_str()).collect()
}

fn answer(response: &v1::FinalResponse) -> &str {
    let payload = response.payload.as_ref().expect("a payload");
    match payload.fields["response"].kind.as_ref() {
        Some(Kind::StringValue(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_turn_with_tools_is_recorded_and_answers_again_without_a_provider() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let agent = client.create("looker", WITH_TOOLS).await;
    assert_eq!(client.ask("looker", "look around").await.unwrap(), "looked around");
    let turn = last_turn(&client, "looker").await;
    assert_eq!(turn.turn_id[5..9], agent.session_id[..4], "an id says whose it is");
    let record = get(&client, &turn.turn_id).await.unwrap();
    let expected = [
        "INTENT_RECEIVED",
        "AGENT_ATTEMPT_START",
        "SIDE_EFFECT_INTENTION",
        "SIDE_EFFECT_COMPLETION",
        "SIDE_EFFECT_INTENTION",
        "SIDE_EFFECT_FAILURE",
        "AGENT_ATTEMPT_END",
        "ROUTER_DECISION",
        "FINAL_RESPONSE",
    ];
    assert_eq!(kinds(&record), expected);
    assert!(record.events.iter().map(|event| event.seq).eq(1..=9));
    assert_eq!(record.hash_match(), v1::HashMatch::Matches);
    let header = record.header.clone().unwrap();
    assert_eq!((header.execution_id, header.replayable), (turn.turn_id.clone(), true));
    assert!(header.envelope_hash.starts_with("sha256:") && header.envelope_hash.len() == 71);
    assert_eq!(record.turn.as_ref(), Some(&turn));
    assert_eq!((turn.state(), turn.tool_call_count), (v1::TurnState::Completed, 2));
    assert_eq!(answer(record.final_response.as_ref().unwrap()), "looked around");

    let before = client.sequence().await;
    let replayed = replay(&client, &turn.turn_id).await.unwrap();
    assert_eq!(replayed.final_response, record.final_response);
    assert_eq!(replayed.hash_match(), v1::HashMatch::Matches);
    assert_eq!(replayed.sequence, turn.end_sequence);
    assert_eq!(client.sequence().await, before, "nothing happened");
}

#[tokio::test]
async fn a_turn_that_died_with_the_daemon_is_found_and_not_replayed() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let agent = client.create("stuck", STUCK).await;
    client.tell("stuck", "get stuck").await;
    client.wait_type(1, &agent, "tool_call.result").await;
    let running = last_turn(&client, "stuck").await;
    assert_eq!(running.state(), v1::TurnState::Running);
    let listed = daemon.ctl_ok(&["turn", "list", "stuck", "--incomplete"]);
    let row: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[row.len() - 2..], ["-", "-"], "a turn that runs needs no recovery: {listed}");
    let shown = daemon.ctl_ok(&["turn", "show", &running.turn_id]);
    assert!(!shown.contains("check_agent_idempotency"), "{shown}");
    let refused = replay(&client, &running.turn_id).await.unwrap_err();
    assert_eq!(reason(&refused), "TURN_NOT_REPLAYABLE");

    daemon.kill();
    daemon.start_again();
    let client = daemon.client().await;
    client.wait_type(1, &agent, "turn.interrupted").await;
    let incomplete = list(&client, "stuck", true, 0).await;
    let dead = incomplete.first().expect("the turn is found");
    assert_eq!((&dead.turn_id, dead.state()), (&running.turn_id, v1::TurnState::Interrupted));
    assert_eq!((dead.replayable, dead.reason.as_str()), (false, "execution_incomplete"));
    let point = dead.crash_point.as_ref().expect("a crash point");
    assert_eq!(point.stage, "during_agent_execution");
    assert_eq!((&*point.recovery, &*point.agent), ("check_agent_idempotency", "scripted"));
    let listed = daemon.ctl_ok(&["turn", "list", "stuck", "--incomplete"]);
    let row = listed.lines().nth(1).unwrap();
    assert!(row.ends_with("during_agent_execution  check_agent_idempotency"), "{listed}");
    let shown = daemon.ctl_ok(&["turn", "show", &dead.turn_id]);
    assert!(shown.contains("\nstands      during_agent_execution: check_agent_idempotency\n"));
    let refused = replay(&client, &dead.turn_id).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(reason(&refused), "TURN_NOT_REPLAYABLE");
    assert!(refused.message().contains("during_agent_execution"), "{}", refused.message());
    let record = get(&client, &dead.turn_id).await.unwrap();
    assert!(record.final_response.is_none());
    assert_eq!(record.hash_match(), v1::HashMatch::Matches);
}

#[tokio::test]
async fn a_turn_that_dies_between_two_attempts_says_so() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let busy = r#"fn turn(prompt) { fail("transient", "busy") }"#;
    let agent = client.create("busy", busy).await;
    client.tell("busy", "try").await;
    let retry = client.wait_type(1, &agent, "turn.retry").await;
    client.wait_event(retry.sequence, |event| event.r#type == "turn.attempt").await;
    client.wait_event(retry.sequence + 2, |event| event.r#type == "turn.retry").await;
    daemon.kill();
    daemon.start_again();
    let client = daemon.client().await;
    let dead = client.wait_type(1, &agent, "turn.interrupted").await;
    let turn = substrat_tests::harness::text(&dead, "turn_id");
    let record = get(&client, turn).await.unwrap();
    let point = record.turn.and_then(|turn| turn.crash_point).expect("a crash point");
    assert_eq!(point.stage, substrat_tests::harness::text(&dead, "stage"));
    // The pause before the next attempt is long; only a slow machine gets beyond it.
    assert!(["after_failure", "during_agent_execution"].contains(&&*point.stage), "{point:?}");
}

#[tokio::test]
async fn a_log_that_was_edited_does_not_match_its_hash() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let agent = client.create("echo", ECHO).await;
    client.ask("echo", "hello there").await.unwrap();
    let turn = last_turn(&client, "echo").await;
    let log = daemon.home.join("agents").join(&agent.session_id).join("events.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    let edited = text.replace(r#""prompt":"hello there""#, r#""prompt":"hullo there""#);
    assert_ne!(edited, text);
    fs::write(&log, edited).unwrap();

    let record = get(&client, &turn.turn_id).await.unwrap();
    assert_eq!(record.hash_match(), v1::HashMatch::Differs);
    let replayed = replay(&client, &turn.turn_id).await.unwrap();
    assert_eq!(replayed.hash_match(), v1::HashMatch::Differs);
    let said = say(&daemon.home, &["turn", "replay", &turn.turn_id]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "you said: hello there\n"));
    assert!(said.stderr.starts_with("warning: the hash does not match"), "{said:?}");
}

#[tokio::test]
async fn anyone_can_hash_the_envelope_that_is_handed_out() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    client.create("echo", ECHO).await;
    client.ask("echo", "größe 😀 \"\u{7f}\" a/b\n\t2 2.0 1e400").await.unwrap();
    let turn = last_turn(&client, "echo").await.turn_id;
    let shown = say(&daemon.home, &["-o", "json", "turn", "show", &turn]).json();
    let record = &shown["record"];
    let text = record["envelopeJson"].as_str().expect("the canonical text");
    let hash = Sha256::digest(text.as_bytes());
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(record["header"]["envelopeHash"], format!("sha256:{hex}"));
    let envelope: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(envelope["payload"], record["envelope"]["payload"]);
    assert_eq!(envelope["routingMetadata"]["retries"].to_string(), "0");
}

#[tokio::test]
async fn turns_are_listed_page_by_page() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    client.create("echo", ECHO).await;
    for number in 0..23 {
        client.ask("echo", &format!("number {number}")).await.unwrap();
    }
    let turns = list(&client, "echo", false, 5).await;
    let prompts: Vec<String> = turns.iter().map(|turn| turn.prompt_start.clone()).collect();
    assert_eq!(prompts, (0..23).map(|number| format!("number {number}")).collect::<Vec<_>>());
    let ids: BTreeSet<&str> = turns.iter().map(|turn| turn.turn_id.as_str()).collect();
    assert_eq!(ids.len(), 23);
    assert_eq!(list(&client, "echo", false, 0).await, turns);
    assert_eq!(list(&client, "echo", true, 5).await, []);
    for turn in &turns {
        let replayed = replay(&client, &turn.turn_id).await.unwrap();
        let expected = format!("you said: {}", turn.prompt_start);
        assert_eq!(answer(&replayed.final_response.unwrap()), expected);
    }
}

#[tokio::test]
async fn turns_of_older_versions_are_found_without_a_hash_to_check() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/golden/home-v1");
    copy(&golden, &home);
    let mut logs = fs::read_dir(home.join("agents")).unwrap();
    let text = logs.find_map(|folder| {
        let text = fs::read_to_string(folder.unwrap().path().join("events.jsonl")).unwrap();
        text.contains(r#""event":"turn.complete""#).then_some(text)
    });
    let text = text.expect("a turn completed");
    let line = text.lines().find(|line| line.contains(r#""event":"turn.complete""#)).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let turn = line["data"]["turn_id"].as_str().unwrap();

    let daemon = Daemon::on(&home, &[]);
    let client = daemon.client().await;
    let record = get(&client, turn).await.unwrap();
    assert_eq!(record.hash_match(), v1::HashMatch::Unknown);
    assert_eq!(record.header.unwrap().execution_id, turn);
    let replayed = replay(&client, turn).await.unwrap();
    assert_eq!(answer(&replayed.final_response.unwrap()), line["data"]["response"]);
    let refused = get(&client, "exec-0123456789abcdef").await.unwrap_err();
    assert_eq!(reason(&refused), "TURN_NOT_FOUND");
}

fn copy(from: &Path, to: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for item in fs::read_dir(from).unwrap() {
        let item = item.unwrap();
        let to = to.join(item.file_name());
        if item.file_type().unwrap().is_dir() {
            copy(&item.path(), &to);
        } else {
            fs::copy(item.path(), to).unwrap();
        }
    }
}

#[tokio::test]
async fn people_read_turns_on_the_command_line() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    client.create("looker", WITH_TOOLS).await;
    client.create("broken", r#"fn turn(prompt) { fail("permanent", "no way") }"#).await;
    client.ask("looker", "look\naround").await.unwrap();
    client.ask("broken", "try").await.unwrap_err();
    let listed = daemon.ctl_ok(&["turn", "list", "looker"]);
    let turn = last_turn(&client, "looker").await.turn_id;
    let mut lines = listed.lines();
    let headings: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(headings, ["TURN", "STATE", "FROM", "STARTED", "TOOK", "TOOLS", "PROMPT"]);
    let row = lines.next().unwrap();
    assert!(row.starts_with(&format!("{turn}  completed  USER")), "{row}");
    assert!(row.ends_with("look around"), "{row}");

    let shown = daemon.ctl_ok(&["turn", "show", &turn]);
    for part in [
        &*format!("turn        {turn} completed\n"),
        "agent       looker (",
        "from        USER\n",
        "provider    scripted: 1 attempt, 2 tool calls\n",
        "hash        sha256:",
        "(matches the log)\n",
        "replayable  yes\n",
        "prompt\n  look\n  around\nevents\n     1 ",
        "INTENT_RECEIVED         from USER\n",
        "SIDE_EFFECT_INTENTION   list_children {}\n",
        "AGENT_ATTEMPT_END       scripted: ok\n",
        "ROUTER_DECISION         scripted: direct match\n",
        "answer\n  looked around\n",
    ] {
        assert!(shown.contains(part), "{part:?} is not in\n{shown}");
    }
    assert_eq!(daemon.ctl_ok(&["turn", "replay", &turn]), "looked around\n");
    let json = say(&daemon.home, &["turn", "show", &turn, "-o", "json"]).json();
    assert_eq!(json["record"]["header"]["executionId"], turn);
    assert_eq!(json["record"]["envelope"]["payload"]["prompt"], "look\naround");

    let failed = last_turn(&client, "broken").await.turn_id;
    let said = say(&daemon.home, &["turn", "replay", &failed]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""));
    assert!(said.stderr.contains("failed (permanent): no way\nhint: see what"), "{said:?}");
    let said = say(&daemon.home, &["turn", "list", "looker", "--incomplete"]);
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("", "no incomplete turns\n"));
    let said = say(&daemon.home, &["turn", "show", "exec-0000000000000000"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert_eq!(say(&daemon.home, &["turn", "show", "nonsense"]).code, Some(6));
}
