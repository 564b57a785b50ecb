//! Calls on a tool socket: repeated ones, abandoned ones, and what else can be reached there.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use substrat_proto::v1;
use substrat_proto::v1::tool_service_client::ToolServiceClient;
use substrat_tests::harness::{Client, Daemon, channel, reason, text};
use substrat_tests::team::{Team, tool_socket};
use tonic::Code;
use tonic::transport::Channel;

async fn tools(daemon: &Daemon, agent: &v1::Agent) -> ToolServiceClient<Channel> {
    let path = tool_socket(daemon, agent);
    ToolServiceClient::new(channel(&path).await.expect("the tool socket answers"))
}

fn call(name: &str, args: &[(&str, &str)], request_id: &str) -> v1::CallToolRequest {
    let value = |text: &str| prost_types::Value {
        kind: Some(prost_types::value::Kind::StringValue(text.into())),
    };
    let fields = args.iter().map(|(key, text)| ((*key).to_owned(), value(text))).collect();
    let arguments = Some(prost_types::Struct { fields });
    v1::CallToolRequest { name: name.into(), arguments, request_id: request_id.into() }
}

fn ask(request_id: &str) -> v1::CallToolRequest {
    call("send_message", &[("recipient", "gated"), ("text", "?")], request_id)
}

async fn invoked(client: &Client, tool: &str) -> usize {
    let events = client.events().await;
    let calls = events.iter().filter(|event| event.r#type == "tool_call.invoked");
    calls.filter(|event| text(event, "tool") == tool).count()
}

#[tokio::test]
async fn a_repeated_call_returns_what_the_first_one_did() {
    let team = Team::start().await;
    let mut own = tools(&team.daemon, &team.lead).await;
    let tell = |text| call("send_message", &[("recipient", "USER"), ("text", text)], "one");
    let first = own.call_tool(tell("news")).await.unwrap().into_inner();
    assert_eq!(first.error, "");
    assert_eq!(own.call_tool(tell("news")).await.unwrap().into_inner(), first);
    assert_eq!(invoked(&team.client, "send_message").await, 1);
    let refused = own.call_tool(tell("other news")).await.unwrap_err();
    assert_eq!((refused.code(), &*reason(&refused)), (Code::AlreadyExists, "REQUEST_ID_REUSED"));
    let failed = own.call_tool(call("fly_away", &[], "two")).await.unwrap().into_inner();
    assert!(failed.error.contains("no tool"), "{}", failed.error);
    assert_eq!(failed.reason, "TOOL_UNKNOWN");
    assert_eq!(own.call_tool(call("fly_away", &[], "two")).await.unwrap().into_inner(), failed);
    let long = own.call_tool(call("list_children", &[], &"x".repeat(129))).await.unwrap_err();
    assert_eq!(reason(&long), "REQUEST_ID_INVALID");
    // USER's keys are others, and so are those of another agent.
    let request = v1::SendMessageRequest {
        agent: "lead".into(),
        text: "hello".into(),
        no_wait: true,
        request_id: "one".into(),
        ..Default::default()
    };
    team.client.agents.clone().send_message(request).await.unwrap();
}

#[tokio::test]
async fn a_repeated_call_is_answered_after_a_crash() {
    let mut team = Team::start().await;
    let mut own = tools(&team.daemon, &team.lead).await;
    let tell = call("send_message", &[("recipient", "USER"), ("text", "news")], "told");
    let first = own.call_tool(tell.clone()).await.unwrap().into_inner();
    assert_eq!(first.reason, "");
    let far = call("send_message", &[("recipient", "nobody"), ("text", "?")], "far");
    let refused = own.call_tool(far.clone()).await.unwrap().into_inner();
    assert_eq!(refused.reason, "AGENT_NOT_FOUND");
    let waits = {
        let mut own = own.clone();
        tokio::spawn(async move { own.call_tool(ask("asked")).await })
    };
    team.client.wait_type(1, &team.lead, "turn.waiting").await;
    team.crash().await;
    waits.await.unwrap().unwrap_err();
    let mut own = tools(&team.daemon, &team.lead).await;
    assert_eq!(own.call_tool(tell).await.unwrap().into_inner(), first);
    assert_eq!(own.call_tool(far).await.unwrap().into_inner(), refused);
    let lost = own.call_tool(ask("asked")).await.unwrap().into_inner();
    assert_eq!(lost.error, "[Interrupted: outcome unknown]");
    assert_eq!(lost.reason, "TOOL_FAILED");
    assert_eq!(invoked(&team.client, "send_message").await, 3);
}

#[tokio::test]
async fn a_call_repeated_while_it_runs_waits_for_the_same_result() {
    let team = Team::start().await;
    let own = tools(&team.daemon, &team.lead).await;
    let asked = || {
        let mut own = own.clone();
        tokio::spawn(async move { own.call_tool(ask("asked")).await })
    };
    let first = asked();
    team.client.wait_type(1, &team.lead, "turn.waiting").await;
    let (second, third) = (asked(), asked());
    team.daemon.ctl_ok(&["agent", "ungate", "gated"]);
    let first = first.await.unwrap().unwrap().into_inner();
    assert_eq!(first.error, "");
    for other in [second, third] {
        assert_eq!(other.await.unwrap().unwrap().into_inner(), first);
    }
    assert_eq!(invoked(&team.client, "send_message").await, 1);
}

#[tokio::test]
async fn a_call_that_its_caller_leaves_ends_and_the_turn_goes_on() {
    let team = Team::start().await;
    let own = tools(&team.daemon, &team.lead).await;
    let asked = {
        let mut own = own.clone();
        tokio::spawn(async move { own.call_tool(ask("asked")).await })
    };
    let waiting = team.client.wait_type(1, &team.lead, "turn.waiting").await;
    asked.abort();
    let expired = team.client.wait_type(1, &team.lead, "wait.expired").await;
    assert_eq!(text(&expired, "outcome"), "cancelled");
    let id = text(&waiting, "call_id").to_owned();
    let closes =
        |event: &v1::Event| event.r#type == "tool_call.result" && text(event, "call_id") == id;
    let closed = team.client.wait_event(1, closes).await;
    assert_eq!(text(&closed, "error"), "[Cancelled by the caller]");
    // Told so, too, when it is repeated; and another call works.
    let mut own = own.clone();
    let again = own.call_tool(ask("asked")).await.unwrap().into_inner();
    assert_eq!(again.error, "[Cancelled by the caller]");
    let listed = own.call_tool(call("list_children", &[], "")).await.unwrap().into_inner();
    assert_eq!(listed.error, "");
    // The answer comes as a message, which starts the next turn.
    team.daemon.ctl_ok(&["agent", "ungate", "gated"]);
    let answered = |event: &v1::Event| {
        event.r#type == "message.enqueued" && text(event, "sender_name") == "gated"
    };
    team.client.wait_event(1, answered).await;
    team.release();
    let next = |event: &v1::Event| {
        event.agent_id == team.lead.id
            && event.r#type == "turn.start"
            && text(event, "prompt").contains("you said: ?")
    };
    team.client.wait_event(1, next).await;
}

#[tokio::test]
async fn an_agent_is_listed_what_can_work_for_it() {
    let team = Team::start().await;
    let mut own = tools(&team.daemon, &team.lead).await;
    let listed = own.list_tools(v1::ListToolsRequest {}).await.unwrap().into_inner().tools;
    let names: Vec<&str> = listed.iter().map(|tool| tool.name.as_str()).collect();
    assert!(names.contains(&"send_message") && names.contains(&"read_file"), "{names:?}");
    assert!(!names.contains(&"complete") && !names.contains(&"broadcast"), "{names:?}");
    let mut lists = own.watch_tools(v1::WatchToolsRequest {}).await.unwrap().into_inner();
    assert_eq!(lists.message().await.unwrap().unwrap().tools, listed);
    // One that is not listed says why.
    let refused = own.call_tool(call("complete", &[("result", "x")], "")).await.unwrap();
    let refused = refused.into_inner().error;
    assert!(refused.contains("has no parent to complete to"), "{refused}");
    // It ends with the session.
    team.release();
    team.client.wait_type(1, &team.lead, "turn.complete").await;
    let session = team.lead.session_id.clone();
    let suspend = v1::SuspendSessionRequest { session, ..Default::default() };
    team.client.sessions.clone().suspend_session(suspend).await.unwrap();
    assert_eq!(lists.message().await.unwrap(), None);
}

#[tokio::test]
async fn nothing_but_the_tools_is_served_on_a_tool_socket() {
    let team = Team::start().await;
    let client = Client::connect(&tool_socket(&team.daemon, &team.lead)).await;
    let codes = [
        client.agents.clone().list_agents(v1::ListAgentsRequest::default()).await.map(drop),
        client.daemon.clone().get_daemon(v1::GetDaemonRequest {}).await.map(drop),
        client.providers.clone().list_providers(v1::ListProvidersRequest {}).await.map(drop),
        client.sessions.clone().list_events(v1::ListEventsRequest::default()).await.map(drop),
        client
            .workspaces
            .clone()
            .list_workspaces(v1::ListWorkspacesRequest::default())
            .await
            .map(drop),
        client.attach.clone().attach(tokio_stream::empty()).await.map(drop),
    ];
    for refused in codes {
        assert_eq!(refused.unwrap_err().code(), Code::Unimplemented);
    }
    assert_ne!(tool_socket(&team.daemon, &team.lead), tool_socket(&team.daemon, &team.echo));
}
