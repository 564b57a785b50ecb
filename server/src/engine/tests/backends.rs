//! What backends tell and ask, by a provider that does what its prompt says.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::driver::World;
use super::*;
use crate::engine::{Answer, Item};
use crate::model::{
    AgentId, Blob, FailureClass, Json, Outcome, PermissionAnswer, PermissionId, Permit, Rejection,
    Saved,
};
use crate::provider::activity::Activity;
use crate::provider::registry::{Common, Entry, Permissions, Unattended};
use crate::provider::{
    Capabilities, Ended, Failure, Health, Info, Instance, Objection, OutputKind, Prompt, Provider,
    Question, Registry, Spec, TurnIo,
};

/// What a command-line agent saves of its session.
const SESSION: &[u8] = br#"{"kind":"fake","session_id":"s"}"#;

#[derive(Default)]
struct Backend {
    /// Whether it is a command-line agent.
    resumes: bool,
    /// What its session was opened with.
    found: Option<Blob>,
}

impl Provider for Backend {
    fn info(&self) -> Info {
        Info {
            name: "fake".into(),
            kind: "fake",
            description: "does as it is told".into(),
            capabilities: Capabilities {
                pulse: true,
                resumes: self.resumes,
                ..Capabilities::default()
            },
            call_limit: None,
        }
    }
    fn examine(&self, _: bool) -> BoxFuture<'_, Health> {
        std::future::ready(Health::default()).boxed()
    }
    fn check(&self, _: &str, _: Option<&str>) -> Result<(), Objection> {
        Ok(())
    }
    fn open(&self, spec: Spec) -> BoxFuture<'_, Result<Box<dyn Instance>, Failure>> {
        let instance = Self { resumes: self.resumes, found: spec.saved };
        async { Ok(Box::new(instance) as Box<dyn Instance>) }.boxed()
    }
}

fn question() -> Question {
    let (tool, input) = ("Bash".to_owned(), Json::of(&"ls").unwrap());
    Question { call: None, tool, input, options: Vec::new() }
}

fn text(text: &str) -> Activity {
    Activity::Text { kind: OutputKind::Text, text: text.to_owned() }
}

fn uses(io: &dyn TurnIo, id: &str, tool: &str) {
    let (id, tool) = (id.to_owned(), tool.to_owned());
    io.tell(Activity::ToolStarted { id: id.clone(), tool, input: Json::null() });
    io.tell(Activity::ToolEnded { id, ok: true, output: "x".to_owned() });
}

impl Instance for Backend {
    fn turn<'a>(
        &'a mut self,
        prompt: Prompt,
        io: Arc<dyn TurnIo>,
    ) -> BoxFuture<'a, Result<Ended, Failure>> {
        async move {
            let response = match &*prompt.messages[0].text {
                "ask" => format!("{:?}", io.ask(question()).await),
                "found" => {
                    let found = self.found.as_ref().map(|found| found.as_slice());
                    format!("{:?}", found.map(String::from_utf8_lossy))
                }
                "keep" => {
                    let saved = Saved::State(Blob::from(SESSION.to_vec()));
                    return Ok(Ended::Completed { response: String::new(), saved });
                }
                "give up" => {
                    let asked = io.ask(question());
                    let gone = tokio::time::timeout(Duration::from_secs(1), asked).await.is_err();
                    format!("gave up: {gone}")
                }
                told @ ("talk" | "ask and talk") => {
                    if told != "talk" {
                        io.ask(question()).await;
                    }
                    io.emit(OutputKind::Text, "one");
                    io.tell(text("one"));
                    uses(&*io, "a", "Bash");
                    io.emit(OutputKind::Text, "twx");
                    io.tell(text("two"));
                    uses(&*io, "b", "mcp__substrat__send_message");
                    io.tell(text("three"));
                    "three".to_owned()
                }
                "save" => {
                    io.save(Blob::from(vec![7]));
                    return Err(Failure::permanent("told to"));
                }
                _ => {
                    io.cancelled().cancelled().await;
                    return Ok(Ended::Cancelled);
                }
            };
            Ok(Ended::Completed { response, saved: Saved::Unchanged })
        }
        .boxed()
    }
    fn suspend(self: Box<Self>) -> BoxFuture<'static, Result<Saved, Failure>> {
        async { Ok(Saved::Unchanged) }.boxed()
    }
}

/// A world with an agent, whose provider is set up like this.
async fn world(common: Common) -> (World, AgentId) {
    let entry = Entry::of(Arc::new(Backend::default()), common);
    let world = World::with(1 << 20, Registry::new([("fake".into(), entry)].into()));
    let Ok(Outcome::Agent(agent)) = world.handle.execute(create("a"), None).await else {
        panic!("an agent was created")
    };
    (world, agent)
}

fn unattended(unattended: Unattended) -> Common {
    Common { unattended, ..Common::default() }
}

/// Waits until an agent has as many open questions, and returns them.
async fn until_open(world: &World, agent: AgentId, count: usize) -> Vec<PermissionId> {
    let mut news = world.handle.feed().watch();
    loop {
        let open = world.handle.read(move |state| {
            let open = state.agent(agent).unwrap().questions().iter();
            open.map(|open| open.permission.id).collect::<Vec<_>>()
        });
        let open = open.await.unwrap();
        if open.len() == count {
            return open;
        }
        news.changed().await.unwrap();
    }
}

fn answer(permission: Option<PermissionId>, decision: Permit) -> Command {
    let answer = PermissionAnswer { decision, reason: None };
    Command::AnswerPermission { agent: "a".into(), permission, answer }
}

async fn ask(world: &World, prompt: &str) -> String {
    match world.ask("a", prompt).await {
        Answer::Completed { response, .. } => response.to_string(),
        other => panic!("{other:?}"),
    }
}

fn count(world: &World, name: &str) -> usize {
    world.events().iter().filter(|known| *known == name).count()
}

#[tokio::test]
async fn a_backend_is_told_the_first_answer_and_a_later_one_is_refused() {
    let (world, agent) = world(Common::default()).await;
    let _here = world.handle.attend(agent, false);
    let sent = world.handle.send(send("a", "ask"), None).await.unwrap();
    let asked = until_open(&world, agent, 1).await[0];
    let first = world.handle.execute(answer(None, Permit::Always), None).await;
    assert_eq!(first, Ok(Outcome::Permission(asked)));
    let late = world.handle.execute(answer(Some(asked), Permit::Deny), None).await;
    let refusal = Rejection::PermissionNotOpen {
        name: crate::model::Name::known("a"),
        permission: Some(asked),
    };
    assert_eq!(late, Err(crate::engine::Refusal::Rejected(refusal)));
    assert!(matches!(sent.answer.await.unwrap(),
        Answer::Completed { response, .. } if &*response == "AllowAlways"));
}

#[tokio::test]
async fn where_nobody_can_answer_the_settings_do() {
    for (setting, told) in [
        (Unattended::Allow, "Allow"),
        (Unattended::Deny, "Reject("),
        // This engine has no sandbox.
        (Unattended::Sandbox, "Reject("),
    ] {
        let (world, _) = world(unattended(setting)).await;
        let answer = ask(&world, "ask").await;
        assert!(answer.starts_with(told), "{setting:?}: {answer}");
        assert_eq!(count(&world, "permission.asked"), 1);
        assert_eq!(count(&world, "permission.answered"), 1);
    }
}

#[tokio::test]
async fn settings_that_always_answer_ask_nobody() {
    for (permissions, told) in [(Permissions::Allow, "Allow"), (Permissions::Deny, "Reject(")] {
        let (world, agent) = world(Common { permissions, ..Common::default() }).await;
        let _here = world.handle.attend(agent, false);
        assert!(ask(&world, "ask").await.starts_with(told));
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_waits_for_is_withdrawn() {
    let (world, agent) = world(Common::default()).await;
    let _here = world.handle.attend(agent, false);
    assert_eq!(ask(&world, "give up").await, "gave up: true");
    assert_eq!(count(&world, "permission.withdrawn"), 1);
}

#[tokio::test(start_paused = true)]
async fn who_left_has_some_time_to_come_back() {
    let (world, agent) = world(unattended(Unattended::Deny)).await;
    let here = world.handle.attend(agent, false);
    let sent = world.handle.send(send("a", "ask"), None).await.unwrap();
    until_open(&world, agent, 1).await;
    drop(here);
    let back = world.handle.attend(agent, false);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    until_open(&world, agent, 1).await;
    let left = tokio::time::Instant::now();
    drop(back);
    assert!(matches!(sent.answer.await.unwrap(),
        Answer::Completed { response, .. } if response.starts_with("Reject(")));
    assert!(left.elapsed() >= Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_question_may_wait_until_somebody_answers() {
    let (world, agent) = world(unattended(Unattended::Wait)).await;
    let sent = world.handle.send(send("a", "ask"), None).await.unwrap();
    until_open(&world, agent, 1).await;
    tokio::time::sleep(Duration::from_secs(86_400)).await;
    assert_eq!(count(&world, "turn.stalled"), 0, "a backend that waits is not silent");
    world.handle.execute(answer(None, Permit::Allow), None).await.unwrap();
    assert!(matches!(sent.answer.await.unwrap(),
        Answer::Completed { response, .. } if &*response == "Allow"));
}

#[tokio::test]
async fn who_watches_a_tree_answers_for_all_in_it() {
    let (world, lead) = world(unattended(Unattended::Deny)).await;
    let agent = NewAgent { name: "b".into(), ..NewAgent::default() };
    let create = Command::CreateAgent { agent, parent: Some("a".into()) };
    let Ok(Outcome::Agent(child)) = world.handle.execute(create, None).await else {
        panic!("an agent was created")
    };
    let here = world.handle.attend(lead, true);
    let _sent = world.handle.send(send("b", "ask"), None).await.unwrap();
    until_open(&world, child, 1).await;
    drop(here);
    let _not_of_it = world.handle.attend(lead, false);
    let sent = world.handle.send(send("a", "ask"), None).await.unwrap();
    until_open(&world, lead, 1).await;
    world.handle.execute(answer(None, Permit::Allow), None).await.unwrap();
    sent.answer.await.unwrap();
}

#[tokio::test]
async fn the_end_of_a_turn_takes_its_question_back() {
    let (world, agent) = world(Common::default()).await;
    let _here = world.handle.attend(agent, false);
    let sent = world.handle.send(send("a", "ask"), None).await.unwrap();
    until_open(&world, agent, 1).await;
    let cancel = Command::CancelTurn { agent: "a".into(), turn: None };
    world.handle.execute(cancel, None).await.unwrap();
    let told = sent.answer.await.unwrap();
    // The backend was told "Cancel", and ended its turn as it liked.
    assert!(matches!(told, Answer::Completed { response, .. } if &*response == "Cancel"));
    assert_eq!(count(&world, "permission.withdrawn"), 1);
}

#[tokio::test]
async fn what_a_backend_does_is_in_the_log_and_the_answer_not_twice() {
    let (world, _) = world(Common::default()).await;
    assert_eq!(ask(&world, "talk").await, "three");
    let events = world.events();
    let from = events.iter().position(|name| name == "turn.start").unwrap();
    let of_turn: Vec<&str> = events[from..].iter().map(String::as_str).collect();
    let expected = [
        "turn.start",
        "turn.said",
        "tool_use.started",
        "tool_use.ended",
        "turn.said",
        "message.delivered",
        "turn.complete",
    ];
    assert_eq!(of_turn[..7], expected, "{of_turn:?}");
}

#[tokio::test]
async fn a_watcher_sees_marks_where_events_stand_and_what_is_replaced() {
    let (world, agent) = world(unattended(Unattended::Wait)).await;
    let sent = world.handle.send(send("a", "ask and talk"), None).await.unwrap();
    // It is there as long as the turn runs.
    until_open(&world, agent, 1).await;
    let output = world.handle.outputs().get(agent).unwrap();
    world.handle.execute(answer(None, Permit::Allow), None).await.unwrap();
    sent.answer.await.unwrap();
    let items = output.read(&mut 0, 100).items;
    let items = items.iter().skip_while(|item| !matches!(item, Item::Delta { .. }));
    let kinds = items.map(|item| match item {
        Item::Delta { text, .. } => text.to_string(),
        Item::Replaced { from, to, text, .. } => format!("{from}-{to}={text}"),
        Item::Mark(mark) if mark.seq().is_some() => "mark".to_owned(),
        other => format!("{other:?}"),
    });
    let kinds: Vec<String> = kinds.collect();
    assert_eq!(kinds, ["one", "mark", "mark", "twx", "1-2=two", "mark", "three"]);
}

#[tokio::test]
async fn a_state_is_saved_though_the_turn_fails() {
    let (world, agent) = world(Common::default()).await;
    assert!(matches!(world.ask("a", "save").await, Answer::Failed { .. }));
    let saved = world.handle.read(move |state| state.agent(agent).unwrap().session.saved.clone());
    assert_eq!(saved.await.unwrap(), Some(Blob::from(vec![7])));
}

#[tokio::test]
async fn what_a_command_line_agent_left_is_for_such_alone_and_not_once_another_ran_a_turn() {
    let (world, _) = world(Common::default()).await;
    let becomes = |resumes| {
        let backend = Backend { resumes, ..Backend::default() };
        let entry = Entry::of(Arc::new(backend), Common::default());
        world.handle.providers().replace([("fake".into(), entry)].into());
    };
    becomes(true);
    ask(&world, "keep").await;
    becomes(true);
    let kept = format!("Some({:?})", String::from_utf8_lossy(SESSION));
    assert_eq!(ask(&world, "found").await, kept);
    becomes(false);
    assert_eq!(ask(&world, "found").await, "None");
    becomes(true);
    assert_eq!(ask(&world, "found").await, r#"Some("null")"#);
}

#[tokio::test(start_paused = true)]
async fn a_silent_backend_is_told_of_and_its_attempt_ended() {
    let (world, _) =
        world(Common { attempts: 2, stall_seconds: Some(60), ..Common::default() }).await;
    let begun = tokio::time::Instant::now();
    let answer = world.ask("a", "silent").await;
    assert!(
        matches!(&answer, Answer::Failed { class: FailureClass::Stalled, error, .. }
            if error == "nothing was heard of it for 60 s"),
        "{answer:?}"
    );
    assert!(begun.elapsed() >= Duration::from_secs(120));
    assert_eq!((count(&world, "turn.stalled"), count(&world, "turn.retry")), (2, 1));
}
