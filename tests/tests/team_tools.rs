//! The tools with which agents govern each other and their time, across deaths of the daemon.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use serde_json::{Value, json};
use substrat_proto::v1;
use substrat_tests::harness::{Client, Daemon, text};

const ECHO: &str = r#"fn turn(prompt) { "you said: " + messages()[0].text }"#;

/// A script that does `body` when USER says "go", and otherwise says what it was told.
fn on_go(body: &str) -> String {
    format!(
        r#"fn turn(prompt) {{
            if messages()[0].text == "go" {{ {body} }} else {{ "heard: " + prompt }}
        }}"#
    )
}

async fn child(client: &Client, parent: &str, name: &str, script: &str) -> v1::Agent {
    let request = v1::CreateAgentRequest {
        name: name.into(),
        parent: parent.into(),
        instructions: script.into(),
        ..Default::default()
    };
    client.agents.clone().create_agent(request).await.unwrap().into_inner().agent.unwrap()
}

async fn done(client: &Client, agent: &str) -> Value {
    let answer = client.ask(agent, "go").await.unwrap();
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// The answer of the turn of an agent that contains some text.
async fn heard(client: &Client, agent: &v1::Agent, what: &str) -> String {
    let fits = |event: &v1::Event| {
        event.agent_id == agent.id
            && event.r#type == "turn.complete"
            && text(event, "response").contains(what)
    };
    text(&client.wait_event(1, fits).await, "response").to_owned()
}

#[tokio::test]
async fn a_reminder_comes_although_the_daemon_was_killed_and_down_when_it_was_due() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let script = on_go(r#"remind_me("look at the build", 1)"#);
    let agent = client.create("sleeper", &script).await;
    assert_eq!(done(&client, "sleeper").await["status"], "set");
    daemon.kill();
    daemon.start_again();
    let client = daemon.client().await;
    heard(&client, &agent, "heard: Message from SYSTEM:\nReminder: look at the build").await;
    let fired = client.wait_type(1, &agent, "reminder.fired").await;
    assert_eq!(text(&fired, "next"), "", "it is over");
}

#[tokio::test]
async fn a_subscription_outlives_the_daemon_and_ends_with_whom_it_watches() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let lead = client.create("lead", &on_go(r#"subscribe("kid", "busy->idle", true)"#)).await;
    let kid = child(&client, "lead", "kid", ECHO).await;
    done(&client, "lead").await;
    daemon.kill();
    daemon.start_again();
    let client = daemon.client().await;
    client.ask("kid", "work").await.unwrap();
    heard(&client, &lead, "kid went from busy to idle").await;
    // A once one tells once.
    client.ask("kid", "more").await.unwrap();
    done(&client, "lead").await;
    daemon.ctl_ok(&["agent", "terminate", "kid"]);
    heard(&client, &lead, "kid has ended, and with it your subscription").await;
    let fired = client.events().await;
    let fired = fired.iter().filter(|event| event.r#type == "subscription.fired");
    assert_eq!(fired.filter(|event| text(event, "target_id") == kid.id).count(), 2);
}

#[tokio::test]
async fn what_a_parent_does_to_a_child_in_the_turn_that_spawned_it_survives_a_kill() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let script = format!(
        r#"fn turn(prompt) {{
            if list_children().children.is_empty() {{
                spawn_agent("kid", `{ECHO}`);
                gate("kid");
                subscribe("kid", "*->busy");
                send_message("kid", "hello", false);
                sleep_ms(3600000);
            }}
            "again"
        }}"#
    );
    let lead = client.create("lead", &script).await;
    client.tell("lead", "go").await;
    let sent =
        |event: &v1::Event| event.agent_id == lead.id && text(event, "tool") == "send_message";
    client.wait_event(1, |event| event.r#type == "tool_call.result" && sent(event)).await;
    daemon.kill();
    daemon.start_again();
    let client = daemon.client().await;
    let kid = client.agent("lead/kid").await;
    assert!(kid.gated && kid.inbox_size > 0, "{kid:?}");
    daemon.ctl_ok(&["agent", "permit", "lead/kid"]);
    heard(&client, &kid, "hello").await;
    client
        .wait_event(1, |event| {
            event.r#type == "subscription.fired" && text(event, "target_id") == kid.id
        })
        .await;
    assert_eq!(client.agent("lead/kid").await.permits, 0);
}

#[tokio::test]
async fn a_parent_sees_what_a_child_did_last() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    client.create("lead", &on_go(r#"inspect_agent("kid")"#)).await;
    child(&client, "lead", "kid", ECHO).await;
    child(&client, "kid", "grandkid", ECHO).await;
    client.ask("kid", "count the lines").await.unwrap();
    daemon.ctl_ok(&["agent", "gate", "kid"]);
    client.tell("kid", "and the words").await;
    let seen = done(&client, "lead").await;
    assert_eq!((&seen["state"], &seen["gated"]), (&json!("idle"), &json!(true)), "{seen}");
    assert_eq!(seen["child_names"], json!(["grandkid"]));
    assert_eq!(seen["inbox"][0]["text"], "and the words");
    let recent = seen["recent"].as_array().unwrap();
    let lines: Vec<String> = recent
        .iter()
        .map(|line| {
            format!("{}: {}", line["what"].as_str().unwrap(), line["text"].as_str().unwrap())
        })
        .collect();
    assert!(lines.contains(&"request from USER: count the lines".to_owned()), "{lines:?}");
    assert!(lines.contains(&"turn completed: you said: count the lines".to_owned()), "{lines:?}");
    assert_eq!(lines.last().unwrap(), "request from USER: and the words");
}

#[tokio::test]
async fn an_answer_within_the_turn_ends_the_wait_of_who_asked() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    client.create("lead", &on_go(r#"send_message("kid", "how far?")"#)).await;
    let kid = r#"fn turn(prompt) {
        let asked = messages()[0];
        let said = send_message(asked.from, "half way", #{ reply_to: asked.id });
        try { send_message(asked.from, "again", #{ reply_to: asked.id }); } catch (e) { return e; }
    }"#;
    let kid = child(&client, "lead", "kid", kid).await;
    let answer = done(&client, "lead").await;
    assert_eq!((&answer["status"], &answer["text"]), (&json!("answered"), &json!("half way")));
    heard(&client, &kid, "is answered already").await;
    assert_eq!(client.agent("lead").await.inbox_size, 0, "nothing comes after it");
}

#[tokio::test]
async fn a_child_in_a_folder_of_the_workspace_sees_that_folder_alone() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let request = v1::CreateWorkspaceRequest { name: "desk".into(), ..Default::default() };
    let made = client.workspaces.clone().create_workspace(request).await.unwrap().into_inner();
    let root = std::path::PathBuf::from(made.workspace.unwrap().root);
    let kid = r#"fn turn(prompt) {
        write_file("out.txt", "from the kid");
        let up = "";
        try { read_file("../secret.txt"); } catch (e) { up = e; }
        #{ files: list_files("", true).entries, up: up }
    }"#;
    let body = format!(
        r#"write_file("secret.txt", "s");
        write_file("part/in.txt", "for the kid");
        spawn_agent("kid", `{kid}`, #{{ workspace_subdir: "part" }});
        parse_json(send_message("kid", "look").text)"#
    );
    client.create_in("lead", &on_go(&body), "desk").await;
    let seen = done(&client, "lead").await;
    let paths: Vec<&str> = seen["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["in.txt", "out.txt"]);
    assert!(seen["up"].as_str().unwrap().contains("\"..\""), "{seen}");
    assert_eq!(std::fs::read_to_string(root.join("part/out.txt")).unwrap(), "from the kid");
}

#[tokio::test]
async fn an_answer_that_comes_after_the_daemon_died_arrives_as_a_message() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let script = r#"fn turn(prompt) {
        if prompt.contains("restarted after a crash") { return "awake"; }
        if messages()[0].text == "go" { return send_message("kid", "how far?"); }
        "heard: " + prompt
    }"#;
    let lead = client.create("lead", script).await;
    let kid = child(&client, "lead", "kid", ECHO).await;
    daemon.ctl_ok(&["agent", "gate", "kid"]);
    client.tell("lead", "go").await;
    client.wait_type(1, &lead, "turn.waiting").await;
    daemon.kill();
    daemon.start_again();
    let client = daemon.client().await;
    let closed = client.wait_type(1, &lead, "tool_call.result").await;
    assert_eq!(text(&closed, "error"), "[Interrupted: outcome unknown]");
    heard(&client, &lead, "awake").await;
    daemon.ctl_ok(&["agent", "ungate", "kid"]);
    heard(&client, &kid, "how far?").await;
    heard(&client, &lead, "heard: Answer from kid:\nyou said: how far?").await;
}
