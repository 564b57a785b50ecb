use futures_util::FutureExt;

use super::driver::World;
use super::*;
use crate::engine::CallError;
use crate::model::{AgentId, Json, Outcome, Request};

/// A lead and its helper, both with a turn that ends when it is cancelled.
async fn team() -> (World, AgentId) {
    let world = World::new(1 << 20);
    let Ok(Outcome::Agent(lead)) = world.handle.execute(create("lead"), None).await else {
        panic!("an agent was created")
    };
    let agent = NewAgent { name: "helper".into(), ..NewAgent::default() };
    let create = Command::CreateAgent { agent, parent: Some("lead".into()) };
    world.handle.execute(create, None).await.unwrap();
    world.handle.execute(send("lead", "wait"), None).await.unwrap();
    (world, lead)
}

fn ask() -> Json {
    Json::of(&serde_json::json!({ "recipient": "helper", "text": "wait" })).unwrap()
}

fn key() -> Option<Request> {
    Some(Request { id: "one".into(), fingerprint: "f".into() })
}

/// Waits until an agent waits for an answer, or does not any more.
async fn until_waiting(world: &World, agent: AgentId, waits: bool) {
    let mut news = world.handle.feed().watch();
    loop {
        let read = world.handle.read(move |state| state.agent(agent).unwrap().wait().is_some());
        if read.await.unwrap() == waits {
            return;
        }
        news.changed().await.unwrap();
    }
}

#[tokio::test]
async fn who_repeats_a_call_waits_for_its_result_and_may_leave() {
    let (world, lead) = team().await;
    let call = || world.handle.call_tool(lead, None, "send_message", ask(), key());
    let mut first = Box::pin(call());
    assert!(first.as_mut().now_or_never().is_none());
    until_waiting(&world, lead, true).await;
    let (mut second, mut third) = (Box::pin(call()), Box::pin(call()));
    assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
    drop(first);
    // After this read the driver has heard of the one that left.
    world.handle.read(|_| ()).await.unwrap();
    until_waiting(&world, lead, true).await;
    let cancel = Command::CancelTurn { agent: "helper".into(), turn: None };
    world.handle.execute(cancel, None).await.unwrap();
    let (second, third) = (second.await, third.await);
    assert!(
        matches!(&second, Err(CallError::Failed(failure)) if failure.error.contains("was cancelled"))
    );
    assert_eq!(second, third);
    let invoked = world.events().iter().filter(|name| *name == "tool_call.invoked").count();
    assert_eq!(invoked, 1);
}

#[tokio::test]
async fn a_call_that_everyone_left_stops_waiting() {
    let (world, lead) = team().await;
    let call = || world.handle.call_tool(lead, None, "send_message", ask(), key());
    let (mut first, mut second) = (Box::pin(call()), Box::pin(call()));
    assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
    until_waiting(&world, lead, true).await;
    drop(first);
    drop(second);
    until_waiting(&world, lead, false).await;
    let events = world.events();
    assert!(events.iter().any(|name| name == "wait.expired"), "{events:?}");
    let turn = world.handle.read(move |state| state.agent(lead).unwrap().turn().is_some());
    assert!(turn.await.unwrap(), "the turn goes on");
}

#[tokio::test]
async fn a_call_with_the_key_of_another_one_is_refused() {
    let (world, lead) = team().await;
    let none = Json::of(&serde_json::json!({})).unwrap();
    let call = |request| world.handle.call_tool(lead, None, "list_children", none.clone(), request);
    call(key()).await.unwrap();
    let other = Request { id: "one".into(), fingerprint: "g".into() };
    let refused = call(Some(other)).await;
    assert!(matches!(
        refused,
        Err(CallError::Refused(crate::model::Rejection::RequestIdReused { .. }))
    ));
}

#[tokio::test]
async fn an_answer_that_nobody_waits_for_goes_to_the_inbox_however_soon_it_comes() {
    let world = World::new(1 << 20);
    world.handle.execute(create("a"), None).await.unwrap();
    let mut news = world.handle.feed().watch();
    let request = Request { id: "one".into(), fingerprint: "f".into() };
    let post = || world.handle.post(send("a", "hello"), Some(request.clone()));
    let mut posted = Box::pin(post());
    assert!((&mut posted).now_or_never().is_none(), "it is handed over, and not durable yet");
    // It is answered before whoever posted it is told that it was sent.
    while !world.events().iter().any(|name| name == "turn.complete") {
        news.changed().await.unwrap();
    }
    let (message, sequence) = posted.await.unwrap();
    assert_eq!(world.events()[sequence as usize - 1], "message.enqueued");
    assert_eq!(post().await.unwrap(), (message, sequence));
    let inbox = world.handle.read(|state| state.user_inbox().clone()).await.unwrap();
    let answers: Vec<_> = inbox.iter().map(|answer| (answer.reply_to, &*answer.text)).collect();
    assert_eq!(answers, [(Some(message), "done: hello")]);
}
