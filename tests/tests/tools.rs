//! The tools of agents: what each does, who may reach whom, and the socket that serves them.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde_json::{Value, json};
use substrat_proto::v1;
use substrat_proto::v1::tool_service_client::ToolServiceClient;
use substrat_tests::harness::{Client, Daemon, channel, reason, text};
use tonic::transport::Channel;

const ECHO: &str = r#"fn turn(prompt) { "you said: " + messages()[0].text }"#;

/// An agent whose turn does what `body` says.
fn script(body: &str) -> String {
    format!("fn turn(prompt) {{ {body} }}")
}

async fn parsed(client: &Client, agent: &str, text: &str) -> Value {
    let answer = client.ask(agent, text).await.unwrap();
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// What a turn of a fresh root comes to that does this.
async fn done(client: &Client, name: &str, body: &str) -> Result<String, String> {
    client.create(name, &script(body)).await;
    client.ask(name, "go").await.map_err(|status| status.message().to_owned())
}

async fn child(client: &Client, parent: &str, name: &str, script: &str) -> v1::Agent {
    let request = v1::CreateAgentRequest {
        name: name.into(),
        parent: parent.into(),
        instructions: script.into(),
        ..Default::default()
    };
    let created = client.agents.clone().create_agent(request).await.unwrap();
    created.into_inner().agent.unwrap()
}

async fn desk(client: &Client) -> PathBuf {
    let request = v1::CreateWorkspaceRequest { name: "desk".into(), ..Default::default() };
    let created = client.workspaces.clone().create_workspace(request).await.unwrap();
    PathBuf::from(created.into_inner().workspace.unwrap().root)
}

async fn inbox(client: &Client) -> Vec<v1::Message> {
    let wait = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let request = v1::ListInboxRequest { wait, ..Default::default() };
    client.agents.clone().list_inbox(request).await.unwrap().into_inner().messages
}

#[tokio::test]
async fn spawned_children_start_by_themselves_and_complete_to_their_parent() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let lead = script(
        r#"let message = messages()[0];
        if message.from == "USER" {
            let worker = "fn turn(prompt) { complete(\"the result\"); }";
            let made = spawn_agent("worker", worker, #{ role: "worker", metadata: #{ k: "v" } });
            let again = "";
            try { spawn_agent("worker", worker); } catch (error) { again = error; }
            remember("made", made);
            #{ made: made, again: again, children: list_children().children }
        } else {
            send_message("USER", `${message.from} (${message.kind}): ${message.text}`);
        }"#,
    );
    client.create("lead", &lead).await;
    let made = parsed(&client, "lead", "go").await;
    assert_eq!(
        (&made["made"]["status"], &made["made"]["name"]),
        (&json!("accepted"), &json!("worker"))
    );
    assert!(made["again"].as_str().unwrap().contains("already an agent \"lead/worker\""), "{made}");
    let shown = &made["children"][0];
    assert_eq!((&shown["name"], &shown["role"]), (&json!("worker"), &json!("worker")), "{made}");
    assert_eq!((&shown["metadata"], &shown["state"]), (&json!({"k": "v"}), &json!("idle")));
    let news = inbox(&client).await;
    assert_eq!(
        (news[0].sender.as_str(), news[0].text.as_str()),
        ("lead", "worker (response): the result")
    );
    assert_eq!(news[0].kind(), v1::MessageKind::Notification);
    let request = v1::GetAgentRequest { agent: "lead/worker".into() };
    let gone = client.agents.clone().get_agent(request).await.unwrap_err();
    assert_eq!(reason(&gone), "AGENT_NOT_FOUND");
    let by_id = made["made"]["agent_id"].as_str().unwrap();
    assert_eq!(client.agent(by_id).await.state(), v1::AgentState::Terminated);
}

#[tokio::test]
async fn a_message_is_answered_in_the_call_or_only_delivered() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    client
        .create("lead", &script(r#"#{ answer: send_message("echo", "one"), sent: send_message("quiet", "two", false) }"#))
        .await;
    child(&client, "lead", "echo", ECHO).await;
    let quiet = child(&client, "lead", "quiet", ECHO).await;
    let both = parsed(&client, "lead", "go").await;
    assert_eq!(both["answer"]["status"], "answered", "{both}");
    assert_eq!(both["answer"]["text"], "you said: one", "{both}");
    assert_eq!(both["sent"]["status"], "sent", "{both}");
    // The notification woke it, and wants no answer.
    let woken = client.wait_type(1, &quiet, "turn.complete").await;
    assert_eq!(text(&woken, "response"), "you said: two");
    let answers = client.events().await;
    let answers = answers.iter().filter(|event| event.r#type == "message.enqueued");
    let from_quiet = answers.filter(|event| text(event, "sender_name") == "quiet").count();
    assert_eq!(from_quiet, 0);
    assert_eq!(client.agent("lead").await.inbox_size, 0);
}

#[tokio::test]
async fn a_wait_ends_at_its_timeout() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let lead = script(r#"send_message("gated", "hello", true, 1)"#);
    client.create("lead", &lead).await;
    child(&client, "lead", "gated", ECHO).await;
    daemon.ctl_ok(&["agent", "gate", "gated"]);
    let refused = client.ask("lead", "go").await.unwrap_err();
    assert_eq!(reason(&refused), "TURN_FAILED");
    assert!(refused.message().contains("no answer within the timeout"), "{refused}");
    assert_eq!(client.agent("gated").await.inbox_size, 1);
}

#[tokio::test]
async fn a_broadcast_reaches_every_sibling_and_nobody_else() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    client.create("lead", ECHO).await;
    let caller = script(
        r#"let message = messages()[0];
        if message.kind == "request" { return broadcast("hear me"); }
        let said = "";
        for message in messages() { said += `${message.kind} of ${message.from};`; }
        said"#,
    );
    child(&client, "lead", "caller", &caller).await;
    let mut others = Vec::new();
    for name in ["b", "c"] {
        others.push(child(&client, "lead", name, ECHO).await);
    }
    let nephew = child(&client, "b", "nephew", ECHO).await;
    let sent = parsed(&client, "caller", "go").await;
    assert_eq!((&sent["status"], &sent["recipient_count"]), (&json!("sent"), &json!(2)));
    for other in &others {
        let heard = client.wait_type(1, other, "turn.complete").await;
        assert_eq!(text(&heard, "response"), "you said: hear me");
    }
    let caller = client.agent("caller").await;
    for name in ["b", "c"] {
        let reply = format!("response of {name}");
        let replied = |event: &v1::Event| {
            event.agent_id == caller.id && text(event, "response").contains(&reply)
        };
        client.wait_event(1, replied).await;
    }
    assert_eq!(client.agent(&nephew.id).await.turns.unwrap().completed, 0);
    assert_eq!(client.agent("lead").await.turns.unwrap().completed, 0);
    let alone = done(&client, "alone", r#"broadcast("anyone?")"#).await.unwrap_err();
    assert!(alone.contains("has no siblings to broadcast to"), "{alone}");
}

#[tokio::test]
async fn the_inbox_is_read_within_a_turn() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    desk(&client).await;
    let reader = script(
        r#"if messages()[0].text != "read" { return "later"; }
        write_file("begun", "");
        let found = [];
        while found.is_empty() { found = check_inbox(#{ sender: "USER" }).messages; sleep_ms(5); }
        #{ found: found, rest: check_inbox().messages }"#,
    );
    let agent = client.create_in("reader", &reader, "desk").await;
    let asked = {
        let client = client.clone();
        tokio::spawn(async move { client.ask("reader", "read").await })
    };
    client.wait_type(1, &agent, "tool_call.result").await;
    client.tell("reader", "news").await;
    let answer: Value = serde_json::from_str(&asked.await.unwrap().unwrap()).unwrap();
    let found = &answer["found"][0];
    assert_eq!((&found["from"], &found["text"]), (&json!("USER"), &json!("news")), "{answer}");
    assert_eq!((&found["kind"], &answer["rest"]), (&json!("request"), &json!([])));
    // What was collected was in that turn, and does not start another.
    let agent = client.agent("reader").await;
    assert_eq!((agent.inbox_size, agent.turns.unwrap().completed), (0, 1));
}

#[tokio::test]
async fn neighbours_are_inspected_and_others_are_not() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    client.create("lead", ECHO).await;
    let look = |name: &str| script(&format!("inspect_agent(\"{name}\")"));
    child(&client, "lead", "a", &look("parent")).await;
    child(&client, "lead", "b", &look("a")).await;
    child(&client, "b", "deep", &look("lead")).await;
    let seen = parsed(&client, "a", "go").await;
    assert_eq!((&seen["name"], &seen["children"]), (&json!("lead"), &json!(2)), "{seen}");
    let seen = parsed(&client, "b", "go").await;
    assert_eq!((&seen["name"], &seen["turns_completed"]), (&json!("a"), &json!(1)), "{seen}");
    let refused = client.ask("deep", "go").await.unwrap_err();
    assert_eq!(reason(&refused), "TURN_FAILED");
    assert!(refused.message().contains("not its parent, child or sibling"), "{refused}");
}

#[tokio::test]
async fn messages_go_one_hop_only() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    client.create("lead", ECHO).await;
    client.create("stranger", ECHO).await;
    child(&client, "lead", "a", ECHO).await;
    let send = |to: &str| script(&format!("send_message(\"{to}\", \"hi\")"));
    for (name, to, complaint) in [
        ("uncle", "lead", "it is not its parent, child or sibling"),
        ("root", "stranger", "it is not its parent, child or sibling"),
        ("self", "self", "cannot message itself"),
        ("child", "USER", "cannot message USER: it is not a root"),
        ("nobody", "nobody-there", "no agent \"nobody-there\""),
    ] {
        let sender = child(&client, "a", name, &send(to)).await;
        let refused = client.ask(&sender.id, "go").await.unwrap_err();
        assert_eq!(reason(&refused), "TURN_FAILED");
        assert!(refused.message().contains(complaint), "{name}: {refused}");
    }
    for agent in ["lead", "stranger"] {
        let agent = client.agent(agent).await;
        assert_eq!((agent.inbox_size, agent.turns.unwrap().completed), (0, 0));
    }
    let refused = done(&client, "root-1", r#"send_message("stranger", "hi")"#).await.unwrap_err();
    assert!(refused.contains("it is not its parent, child or sibling"), "{refused}");
    let refused = done(&client, "root-2", r#"complete("done")"#).await.unwrap_err();
    assert!(refused.contains("has no parent to complete to"), "{refused}");
    let sent = done(&client, "root-3", r#"send_message("USER", "news").status"#).await.unwrap();
    assert_eq!(sent, "sent");
    let news = inbox(&client).await;
    let news = news.iter().find(|message| message.sender == "root-3").unwrap();
    assert_eq!((news.text.as_str(), news.recipient.as_str()), ("news", "USER"));
}

#[tokio::test]
async fn files_are_written_listed_and_read_inside_the_workspace() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let root = desk(&client).await;
    let files = script(
        r#"write_file("notes/one.txt", "first\nsecond\nthird\n");
        write_file("notes/one.txt", "fourth\n", true);
        #{
            whole: read_file("notes/one.txt"),
            part: read_file("notes/one.txt", 2, 1),
            top: list_files().entries,
            all: list_files("", true).entries,
        }"#,
    );
    client.create_in("writer", &files, "desk").await;
    let found = parsed(&client, "writer", "go").await;
    assert_eq!(found["whole"]["text"], "first\nsecond\nthird\nfourth\n");
    assert_eq!((&found["whole"]["lines"], &found["whole"]["next_line"]), (&json!(4), &Value::Null));
    assert_eq!(
        (&found["part"]["text"], &found["part"]["next_line"]),
        (&json!("second\n"), &json!(3))
    );
    let paths = |entries: &Value| -> Vec<String> {
        let entries = entries.as_array().unwrap().iter();
        entries.map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(paths(&found["top"]), ["notes"]);
    assert_eq!(paths(&found["all"]), ["notes", "notes/one.txt"]);
    let written = root.join("notes/one.txt");
    assert_eq!(std::fs::read_to_string(written).unwrap(), "first\nsecond\nthird\nfourth\n");
    let homeless = done(&client, "homeless", r#"read_file("notes/one.txt")"#).await.unwrap_err();
    assert!(homeless.contains("has no workspace"), "{homeless}");
}

/// A script with a mistake in a tool call says where and what.
#[tokio::test]
async fn a_wrong_tool_call_says_what_is_wrong() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    for (name, body, complaint) in [
        ("few", "\n send_message()", "line 2"),
        ("type", r#"send_message("x", "y", "soon")"#, "bad arguments for send_message"),
        ("odd", r#"send_message("x", "y", #{ tiemout: 3 })"#, "unknown field `tiemout`"),
        ("many", r#"list_children(1, 2)"#, "list_children"),
        ("none", r#"fly_away("x")"#, "fly_away"),
    ] {
        let refused = done(&client, name, body).await.unwrap_err();
        assert!(refused.contains(complaint), "{name}: {refused}");
    }
}

/// The tool socket of an agent.
async fn tools(daemon: &Daemon, agent: &v1::Agent) -> ToolServiceClient<Channel> {
    let path = tool_socket(daemon, agent);
    ToolServiceClient::new(channel(&path).await.expect("the tool socket answers"))
}

fn tool_socket(daemon: &Daemon, agent: &v1::Agent) -> PathBuf {
    daemon.home.join("run").join(format!("{}.sock", agent.session_id))
}

fn call(name: &str, args: &[(&str, &str)]) -> v1::CallToolRequest {
    let value = |text: &str| prost_types::Value {
        kind: Some(prost_types::value::Kind::StringValue(text.into())),
    };
    let fields = args.iter().map(|(key, text)| ((*key).to_owned(), value(text))).collect();
    let arguments = Some(prost_types::Struct { fields });
    v1::CallToolRequest { name: name.into(), arguments, ..Default::default() }
}

const OF_A_ROOT_WITH_A_DESK: [&str; 24] = [
    "cancel_reminder",
    "check_inbox",
    "create_workspace",
    "delete_workspace",
    "gate",
    "inspect_agent",
    "link_dir",
    "link_from",
    "list_children",
    "list_files",
    "list_workspaces",
    "permit_turn",
    "poke",
    "read_file",
    "remind_me",
    "run_command",
    "send_message",
    "set_agent_metadata",
    "spawn_agent",
    "subscribe",
    "ungate",
    "unlink_dir",
    "unsubscribe",
    "write_file",
];

#[tokio::test]
async fn the_tool_socket_of_an_agent_is_that_agents_alone() {
    let daemon = Daemon::with(&["scripted.tool_socket=true"]);
    let client = daemon.client().await;
    let root = desk(&client).await;
    let hold = script("while list_files(\"\").entries.is_empty() { sleep_ms(10); } \"held\"");
    let agent = client.create_in("holder", &hold, "desk").await;
    let other = client.create("other", ECHO).await;
    assert!(!tool_socket(&daemon, &agent).exists(), "it is not live yet");
    client.ask("other", "hi").await.unwrap();
    let asked = {
        let client = client.clone();
        tokio::spawn(async move { client.ask("holder", "go").await })
    };
    client.wait_type(1, &agent, "turn.start").await;
    client.wait_type(1, &agent, "tool_call.invoked").await;
    let path = tool_socket(&daemon, &agent);
    assert_eq!(path.symlink_metadata().unwrap().mode() & 0o777, 0o600);
    assert_eq!(path.parent().unwrap().metadata().unwrap().mode() & 0o777, 0o700);

    let mut own = tools(&daemon, &agent).await;
    let listed = own.list_tools(v1::ListToolsRequest {}).await.unwrap().into_inner().tools;
    let names: Vec<&str> = listed.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, OF_A_ROOT_WITH_A_DESK);
    assert!(listed.iter().all(|tool| tool.input_schema.is_some() && !tool.description.is_empty()));

    // A call is that agent's, whoever makes it; nothing else is served there.
    let sent = own.call_tool(call("send_message", &[("recipient", "USER"), ("text", "by hand")]));
    assert_eq!(sent.await.unwrap().into_inner().error, "");
    let news = inbox(&client).await;
    assert_eq!((news[0].sender.as_str(), news[0].text.as_str()), ("holder", "by hand"));
    let failed = own.call_tool(call("send_message", &[("recipient", "other"), ("text", "hi")]));
    let failed = failed.await.unwrap().into_inner();
    assert!(failed.result.is_none());
    assert!(failed.error.contains("it is not its parent, child or sibling"), "{}", failed.error);
    let failed = own.call_tool(call("fly_away", &[])).await.unwrap().into_inner();
    assert!(failed.error.contains("no tool \"fly_away\"; there are: "), "{}", failed.error);
    let admin = Client::connect(&path).await;
    let refused = admin.agents.clone().list_agents(v1::ListAgentsRequest::default()).await;
    assert_eq!(refused.unwrap_err().code(), tonic::Code::Unimplemented);
    let api = channel(&daemon.socket()).await.unwrap();
    let refused = ToolServiceClient::new(api).list_tools(v1::ListToolsRequest {}).await;
    assert_eq!(refused.unwrap_err().code(), tonic::Code::Unimplemented);

    // The other one's session is live, but no turn of it runs.
    let before = client.agent("other").await.last_sequence;
    let idle = tools(&daemon, &other).await.call_tool(call("list_children", &[])).await;
    let refused = idle.unwrap_err();
    assert_eq!(
        (reason(&refused).as_str(), refused.code()),
        ("NO_TURN", tonic::Code::FailedPrecondition)
    );
    assert_eq!(client.agent("other").await.last_sequence, before);

    std::fs::write(root.join("go"), "").unwrap();
    assert_eq!(asked.await.unwrap().unwrap(), "held");
    let suspend =
        v1::SuspendSessionRequest { session: agent.session_id.clone(), ..Default::default() };
    client.sessions.clone().suspend_session(suspend).await.unwrap();
    assert!(own.call_tool(call("list_children", &[])).await.is_err());
    assert!(!path.exists(), "it goes with the session");
    daemon.ctl_ok(&["agent", "terminate", "other"]);
    assert!(tools_are_gone(&daemon, &other).await);
}

/// Waits until an agent's tool socket is closed: a call on it fails then.
async fn tools_are_gone(daemon: &Daemon, agent: &v1::Agent) -> bool {
    while let Ok(channel) = channel(&tool_socket(daemon, agent)).await {
        if ToolServiceClient::new(channel).list_tools(v1::ListToolsRequest {}).await.is_err() {
            break;
        }
    }
    !tool_socket(daemon, agent).exists()
}
