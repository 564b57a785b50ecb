//! Random turns, watched by a client that reads when it likes and attaches again with what it
//! has seen.

use proptest::prelude::*;

use super::*;
use crate::model::{
    DaemonStopped, FailureClass, Json, LimitHit, Name, ProcessExited, SandboxOff, Timestamp,
    ToolCallInvoked, ToolCallResult, TurnComplete, TurnId, TurnRetry, TurnStart,
};

const AGENT: AgentId = AgentId::from_u128(1);

/// What happens, in order.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A turn starts; one that runs ends first.
    Start,
    /// The turn says something, unless it waits for a tool.
    Delta,
    /// The turn calls a tool; with a call that is open, that one returns.
    Call,
    /// The turn ends.
    End,
    /// Something in another log.
    Elsewhere,
    /// The client reads the events that there are, and then what is put out.
    Read,
    /// The client reads only what is put out.
    ReadOutput,
    /// The client loses its connection, and comes back with what it has seen.
    Attach,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => Just(Step::Start),
        8 => Just(Step::Delta),
        6 => Just(Step::Call),
        1 => Just(Step::End),
        1 => Just(Step::Elsewhere),
        4 => Just(Step::Read),
        2 => Just(Step::ReadOutput),
        2 => Just(Step::Attach),
    ];
    proptest::collection::vec(step, 1..120)
}

/// An item as the client got it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Got {
    Event(u64),
    Delta(u64, u64),
    Lagged(u64, u64, u64),
}

#[derive(Default)]
struct World {
    entries: Vec<Entry>,
    outputs: Outputs,
    /// The running turn: the sequence of its start, and its deltas so far.
    turn: Option<(u64, u64)>,
    /// The open tool call.
    open: Option<CallId>,
    /// What a client that misses nothing sees.
    all: Vec<Got>,
}

impl World {
    fn push(&mut self, event: impl Into<Event>) -> u64 {
        let seq = self.entries.len() as u64 + 1;
        let event = event.into();
        self.entries.push(Entry { seq, session: None, at: Timestamp::default(), event });
        seq
    }

    fn turn_id(&self) -> TurnId {
        TurnId::from_u64(self.turn.map_or(0, |(start, _)| start))
    }

    fn start(&mut self) {
        self.end();
        let turn_id = TurnId::from_u64(self.entries.len() as u64 + 1);
        let start = self.push(TurnStart::new(turn_id, "go".into(), Vec::new()));
        self.outputs.begin(AGENT, start);
        self.turn = Some((start, 0));
        self.all.push(Got::Event(start));
    }

    fn delta(&mut self, text: &str) {
        let Some((start, deltas)) = &mut self.turn else { return };
        self.outputs.get(AGENT).unwrap().push_delta(OutputKind::Text, text);
        self.all.push(Got::Delta(*start, *deltas));
        *deltas += 1;
    }

    fn call(&mut self) {
        if self.turn.is_none() {
            return;
        }
        let turn_id = self.turn_id();
        let tool = "list_files".into();
        let output = self.outputs.get(AGENT).unwrap();
        if let Some(call_id) = self.open.take() {
            let result =
                ToolCallResult { turn_id, call_id, tool, result: None, error: None, reason: None };
            let result = self.push(result);
            output.push_mark(Output::After(result));
            self.all.push(Got::Event(result));
        } else {
            let call_id = CallId::from_u64(self.entries.len() as u64);
            output.push_mark(Output::Call(call_id));
            let args = Json::null();
            let invoked = self.push(ToolCallInvoked { turn_id, call_id, tool, args });
            self.open = Some(call_id);
            self.all.push(Got::Event(invoked));
        }
    }

    fn end(&mut self) {
        if self.turn.is_none() {
            return;
        }
        self.open = None;
        let (turn_id, agent) = (self.turn_id(), Name::known("a"));
        let ended = TurnComplete { turn_id, response: "done".into(), agent, answers: Vec::new() };
        let ended = self.push(ended);
        self.outputs.end(AGENT, ended);
        self.turn = None;
        self.all.push(Got::Event(ended));
    }
}

#[derive(Default)]
struct Client {
    weave: Weave,
    read: u64,
    got: Vec<Got>,
    /// Turns whose output went while the client did not follow it.
    missed: BTreeSet<u64>,
}

impl Client {
    fn read_events(&mut self, world: &World) {
        for entry in &world.entries[self.read as usize..] {
            self.read = entry.seq;
            if matches!(entry.event, Event::DaemonStopped(_)) {
                self.weave.pass(entry.seq);
                continue;
            }
            if matches!(entry.event, Event::TurnStart(_))
                && world.turn.is_none_or(|(start, _)| start != entry.seq)
            {
                self.missed.insert(entry.seq);
            }
            self.weave.event(AGENT, entry, &world.outputs);
        }
    }

    fn read_all(&mut self, world: &World) {
        self.read_events(world);
        loop {
            self.weave.read_outputs();
            if self.take() == 0 {
                break;
            }
        }
    }

    fn take(&mut self) -> usize {
        let mut count = 0;
        while let Some(response) = self.weave.pop() {
            count += 1;
            self.got.push(match response.item {
                Some(Item::OutputDelta(delta)) => Got::Delta(delta.turn, delta.index),
                Some(Item::Lagged(lag)) => Got::Lagged(lag.turn, lag.from_index, lag.to_index),
                _ => Got::Event(response.sequence),
            });
        }
        count
    }

    /// Attaches again, as the service does, with what the client has seen.
    fn attach(&mut self, world: &World) {
        self.take();
        let seen = |got: &Got| match got {
            Got::Event(sequence) => Some(*sequence),
            _ => None,
        };
        let cursor = self.got.iter().filter_map(seen).max().unwrap_or(0);
        self.weave = Weave::default();
        self.weave.pass(cursor);
        // A turn that started and ended before this is not followed any more.
        let started = self.got.iter().filter_map(seen);
        let running = world.turn.map(|(start, _)| start);
        self.missed.extend(started.filter(|sequence| Some(*sequence) != running));
        self.read = cursor;
        if let Some(start) = running.filter(|start| *start <= cursor) {
            let next = |got: &Got| match got {
                Got::Delta(turn, index) if *turn == start => Some(index + 1),
                Got::Lagged(turn, _, to) if *turn == start => Some(*to),
                _ => None,
            };
            let deltas = self.got.iter().filter_map(next).max().unwrap_or(0);
            let past = &world.entries[start as usize - 1..cursor as usize];
            let passed = past.iter().filter_map(|entry| match &entry.event {
                Event::ToolCallInvoked(data) => Some(data.call_id),
                _ => None,
            });
            let output = world.outputs.get(AGENT).unwrap();
            self.weave.follow(AGENT, output, deltas, passed.collect());
        }
    }
}

fn judge(world: &World, client: &Client) {
    // Where a turn went by unfollowed, its deltas may be missing: its final text has come.
    let missed = |got: &&Got| match got {
        Got::Delta(turn, _) => client.missed.contains(turn),
        _ => false,
    };
    let expected: Vec<&Got> = world.all.iter().filter(|got| !missed(got)).collect();
    let got: Vec<&Got> = client.got.iter().filter(|got| !missed(got)).collect();
    assert_eq!(got, expected);
    // And those that did come are in order among the rest.
    let mut rest = world.all.iter();
    for got in &client.got {
        assert!(rest.any(|happened| happened == got), "{got:?} is out of order");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_client_sees_everything_once_and_in_order_however_often_it_attaches(steps in steps()) {
        let (mut world, mut client) = (World::default(), Client::default());
        for step in steps {
            match step {
                Step::Start => world.start(),
                Step::Delta if world.open.is_some() => {}
                Step::Delta => world.delta("x"),
                Step::Call => world.call(),
                Step::End => world.end(),
                Step::Elsewhere => drop(world.push(DaemonStopped {})),
                Step::Read => {
                    client.read_all(&world);
                    judge(&world, &client);
                }
                Step::ReadOutput => {
                    client.weave.read_outputs();
                    client.take();
                }
                Step::Attach => client.attach(&world),
            }
        }
        client.read_all(&world);
        judge(&world, &client);
    }
}

#[test]
fn a_client_that_attaches_after_a_tool_call_sees_what_is_said_next() {
    let (mut world, mut client) = (World::default(), Client::default());
    world.start();
    world.call();
    world.call();
    client.read_all(&world);
    client.attach(&world);
    world.delta("live");
    client.read_all(&world);
    assert_eq!(client.got.last(), Some(&Got::Delta(1, 0)));
}

#[test]
fn calls_made_at_once_keep_their_places() {
    let (mut world, mut client) = (World::default(), Client::default());
    world.start();
    client.read_all(&world);
    let output = world.outputs.get(AGENT).unwrap();
    let [first, second, third] = [1, 2, 3].map(CallId::from_u64);
    let invoked = |call_id| {
        let (tool, args) = ("list_files".into(), Json::null());
        ToolCallInvoked { turn_id: TurnId::from_u64(1), call_id, tool, args }
    };
    output.push_mark(Output::Call(first));
    output.push_mark(Output::Call(second));
    world.push(invoked(second));
    world.push(invoked(first));
    world.delta("between");
    output.push_mark(Output::Call(third));
    world.delta("behind");
    client.read_all(&world);
    assert_eq!(client.got, [Got::Event(1), Got::Event(2), Got::Event(3), Got::Delta(1, 0)]);
    world.push(invoked(third));
    client.read_all(&world);
    assert_eq!(client.got[4..], [Got::Event(4), Got::Delta(1, 1)]);
}

#[test]
fn a_client_that_lags_is_told_what_it_missed() {
    let (mut world, mut client) = (World::default(), Client::default());
    world.start();
    client.read_all(&world);
    let text = "x".repeat(1 << 18);
    (0..10).for_each(|_| world.delta(&text));
    client.read_all(&world);
    let (first, rest) = client.got[1..].split_first().unwrap();
    let Got::Lagged(1, 0, kept) = first else { panic!("{first:?}") };
    let expected: Vec<Got> = (*kept..10).map(|index| Got::Delta(1, index)).collect();
    assert_eq!(rest, expected);
    assert!(*kept > 0 && !rest.is_empty());
}

/// The pieces and the events that a client was sent.
fn shown(weave: &mut Weave) -> Vec<String> {
    let items = std::iter::from_fn(|| weave.pop()).filter_map(|response| response.item);
    let shown = items.map(|item| match item {
        Item::OutputDelta(delta) => delta.text,
        Item::OutputReplaced(replaced) => {
            format!("{}-{}={}", replaced.from_index, replaced.to_index, replaced.text)
        }
        Item::ToolCallStarted(call) => format!("{} starts", call.tool),
        Item::ToolCallFinished(call) => format!("{} ends", call.tool),
        other => format!("{other:?}"),
    });
    shown.collect()
}

#[test]
fn a_tool_of_a_backend_keeps_its_place_and_is_waited_for() {
    use futures_util::FutureExt;
    let (mut world, mut weave) = (World::default(), Weave::default());
    world.start();
    weave.event(AGENT, &world.entries[0], &world.outputs);
    weave.pop();
    let output = world.outputs.get(AGENT).unwrap();
    world.delta("before");
    let mark = output.mark();
    world.delta("after");
    weave.read_outputs();
    assert_eq!(shown(&mut weave), ["before"]);
    assert_eq!(weave.changed().now_or_never(), None, "the tool is not in the log yet");
    let (turn_id, use_id, tool) = (world.turn_id(), "a".into(), "Bash".into());
    let input = Json::of(&"ls").unwrap();
    let started = world.push(crate::model::ToolUseStarted { turn_id, use_id, tool, input });
    output.settle(&mark, started);
    assert_eq!(weave.changed().now_or_never(), None, "its event comes first");
    weave.event(AGENT, &world.entries[1], &world.outputs);
    weave.read_outputs();
    assert_eq!(shown(&mut weave), ["Bash starts", "after"]);
    // One that is not logged keeps nobody waiting.
    let mark = output.mark();
    world.delta("more");
    assert_eq!(weave.changed().now_or_never(), None);
    output.settle(&mark, started);
    assert_eq!(weave.changed().now_or_never(), Some(()));
    weave.read_outputs();
    assert_eq!(shown(&mut weave), ["more"]);
}

#[test]
fn an_attempt_that_failed_is_told_between_what_it_and_the_next_one_put_out() {
    let (mut world, mut weave) = (World::default(), Weave::default());
    world.start();
    weave.event(AGENT, &world.entries[0], &world.outputs);
    weave.pop();
    world.delta("of the first");
    let output = world.outputs.get(AGENT).unwrap();
    output.replace(0, OutputKind::Text, "");
    let mark = output.mark();
    world.delta("of the next");
    let retry = |error: &str, provider: Option<&str>| TurnRetry {
        turn_id: TurnId::from_u64(1),
        attempt: 2,
        delay_ms: 1,
        class: FailureClass::RateLimit,
        error: error.to_owned(),
        provider: provider.map(Into::into),
    };
    let retried = world.push(retry("Too many requests", None));
    output.settle(&mark, retried);
    weave.event(AGENT, &world.entries[1], &world.outputs);
    weave.read_outputs();
    let items: Vec<Item> =
        std::iter::from_fn(|| weave.pop()).filter_map(|response| response.item).collect();
    let [Item::OutputDelta(_), Item::OutputReplaced(_), Item::ProcessNotice(told), rest] =
        &items[..]
    else {
        panic!("{items:?}")
    };
    assert!(matches!(rest, Item::OutputDelta(delta) if delta.text == "of the next"), "{rest:?}");
    assert_eq!(told.event, "turn.retry");
    assert_eq!(told.turn_id, world.turn_id().to_string());
    assert_eq!(told.text, "rate-limit: Too many requests; trying again");
    let mut text = |error: &str, provider: Option<&str>| {
        world.push(retry(error, provider));
        match item(AGENT, &world.entries[world.entries.len() - 1]) {
            Some(Item::ProcessNotice(told)) => told.text,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(text("no\nmore\n", Some("ant")), "rate-limit: no…; asking ant");
    let long = format!("rate-limit: {}…; trying again", "é".repeat(200));
    assert_eq!(text(&"é".repeat(201), None), long);
}

#[test]
fn what_is_replaced_is_told_once_and_after_what_it_replaces() {
    let (mut world, mut weave) = (World::default(), Weave::default());
    world.start();
    weave.event(AGENT, &world.entries[0], &world.outputs);
    weave.pop();
    world.delta("a");
    world.delta("b");
    let output = world.outputs.get(AGENT).unwrap();
    output.replace(1, OutputKind::Text, "c");
    world.delta("d");
    weave.read_outputs();
    assert_eq!(shown(&mut weave), ["a", "b", "1-2=c", "d"]);
    for (seen, rest) in [(2, &["1-2=c", "d"][..]), (3, &[])] {
        let mut again = Weave::default();
        again.pass(1);
        again.follow(AGENT, output.clone(), seen, BTreeSet::new());
        again.read_outputs();
        assert_eq!(shown(&mut again), rest, "a client that has seen {seen}");
    }
}

#[test]
fn a_client_waits_only_for_what_it_can_read() {
    use futures_util::FutureExt;
    let (mut world, mut client) = (World::default(), Client::default());
    assert_eq!(client.weave.changed().now_or_never(), None, "nothing is followed");
    world.start();
    client.read_all(&world);
    assert_eq!(client.weave.changed().now_or_never(), None, "nothing is said");
    world.delta("x");
    assert_eq!(client.weave.changed().now_or_never(), Some(()));
    client.read_all(&world);
    world.call();
    assert_eq!(client.weave.changed().now_or_never(), None, "the event comes first");
}

#[test]
fn a_watcher_sees_what_befalls_processes_but_not_that_one_ended_well() {
    let turn_id = TurnId::from_u64(1);
    let exited = |status: &str, reason: Option<&str>| {
        let (status, reason) = (status.to_owned(), reason.map(str::to_owned));
        let event =
            ProcessExited { turn_id: Some(turn_id), workspace_id: None, pid: 7, status, reason };
        process(&event.into()).map(|notice| notice.text)
    };
    assert_eq!(exited("exit 0", None), None);
    assert_eq!(exited("exit 0", Some("the session ended")), None);
    assert_eq!(exited("exit 3", None).as_deref(), Some("process 7 ended with exit 3"));
    let killed = exited("signal 9 (SIGKILL)", Some("it took too long"));
    let told = "process 7 ended with signal 9 (SIGKILL): it took too long";
    assert_eq!(killed.as_deref(), Some(told));
    let workspace_id = crate::model::WorkspaceId::from_u128(1);
    let (limit, detail) = (crate::model::LimitKind::OpenFiles, "512 files".to_owned());
    let hit = LimitHit { turn_id: None, workspace_id, limit, detail };
    let told = process(&hit.into()).unwrap();
    assert_eq!((told.event.as_str(), told.turn_id.as_str()), ("limit.hit", ""));
    assert_eq!(told.text, "limit of open files met: 512 files");
    let off = process(&SandboxOff { turn_id, reason: "why".to_owned() }.into()).unwrap();
    assert_eq!((off.event.as_str(), off.turn_id), ("sandbox.off", turn_id.to_string()));
}
