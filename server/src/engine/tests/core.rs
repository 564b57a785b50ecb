use std::sync::{Arc, Mutex};

use super::*;
use crate::engine::{Core, RandomIds, Release, Staged, now};
use crate::model::{
    AgentId, CallId, Effect, Entry, IdSource, Json, Rejection, Request, Snapshot, State, Timestamp,
};

fn core() -> Core {
    Core::new(State::default(), policy(), Box::new(RandomIds::from_seed(7)), 1000)
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn image(state: &State) -> String {
    let mut image = Vec::new();
    Snapshot::write(state, &mut image).unwrap();
    String::from_utf8(image).unwrap()
}

fn lines(staged: &Staged) -> Vec<Entry> {
    let all = staged.records.iter().flat_map(|record| record.lines.split(|byte| *byte == b'\n'));
    all.filter(|line| !line.is_empty()).map(|line| Entry::decode(line).unwrap()).collect()
}

#[test]
fn one_command_is_one_record_and_records_follow_each_other() {
    let mut core = core();
    core.submit(create("a"), None, at(1)).unwrap();
    core.submit(create("b"), None, at(2)).unwrap();
    core.submit(send("a", "hello"), None, at(3)).unwrap();
    let staged = core.take().unwrap();
    assert_eq!(staged.records.len(), 3);
    let mut next = 1;
    for record in &staged.records {
        assert_eq!(record.sequence, next);
        next += u64::from(record.events);
    }
    assert_eq!(core.state().seq(), next - 1);
    let entries = lines(&staged);
    let committed: Vec<Entry> =
        staged.release.commit.lines.iter().map(|line| line.entry.clone()).collect();
    assert_eq!(entries, committed, "what is published is what is journalled");
    let mut folded = State::default();
    entries.iter().for_each(|entry| folded.apply(entry));
    assert!(folded == *core.state(), "state is the fold of what is journalled");
    assert!(core.take().is_none());
}

#[test]
fn what_follows_is_staged_and_not_done() {
    let mut core = core();
    let told = Arc::new(Mutex::new(Vec::new()));
    for name in ["first", "second"] {
        core.submit(create(name), None, at(1)).unwrap();
        let told = told.clone();
        core.tell(Box::new(move || told.lock().unwrap().push(name)));
    }
    core.submit(send("first", "go"), None, at(2)).unwrap();
    let staged = core.take().unwrap();
    assert!(told.lock().unwrap().is_empty(), "nobody is told before the batch is durable");
    let starts = |effect: &Effect| matches!(effect, Effect::StartTurn { .. });
    assert_eq!(staged.release.effects.iter().filter(|effect| starts(effect)).count(), 1);
    staged.release.tell.into_iter().for_each(|tell| tell());
    assert_eq!(*told.lock().unwrap(), ["first", "second"], "in the order in which they asked");
}

#[test]
fn a_rejection_changes_nothing_and_is_told_with_its_batch() {
    let mut core = core();
    core.submit(create("a"), None, at(1)).unwrap();
    let before = image(core.state());
    let twice = core.submit(create("a"), None, at(2));
    assert_eq!(twice, Err(Rejection::AgentExists { path: "a".into() }));
    assert_eq!(image(core.state()), before);
    core.tell(Box::new(|| {}));
    let staged = core.take().unwrap();
    assert_eq!(staged.records.len(), 1, "only the agent that there is");
    assert_eq!(staged.release.tell.len(), 1, "and not before it: the rejection speaks of it");

    core.submit(create("a"), None, at(3)).unwrap_err();
    assert!(core.take().is_none(), "a rejection on its own stages nothing");
    core.tell(Box::new(|| {}));
    let staged = core.take().unwrap();
    assert!(staged.records.is_empty() && !staged.release.is_empty());
}

#[test]
fn a_request_that_was_done_is_answered_and_not_done_again() {
    let mut core = core();
    let request = Request { id: "r1".into(), fingerprint: "f".into() };
    let first = core.submit(create("a"), Some(&request), at(1)).unwrap();
    core.take().unwrap();
    assert_eq!(core.submit(create("a"), Some(&request), at(2)), Ok(first));
    assert!(core.take().is_none());
    let other = Request { fingerprint: "g".into(), ..request };
    let reused = core.submit(create("b"), Some(&other), at(3));
    assert_eq!(reused, Err(Rejection::RequestIdReused { id: "r1".into() }));
}

#[test]
fn a_command_that_needs_too_large_a_record_is_refused() {
    let mut core = core();
    let args = Json::of(&"x".repeat(2000)).unwrap();
    let command = Command::CallTool {
        agent: AgentId::from_u128(1),
        turn: None,
        call: CallId::from_u64(1),
        tool: "list_files".into(),
        args,
        objection: None,
    };
    let refused = core.submit(command, None, at(1));
    assert_eq!(refused, Err(Rejection::RecordTooLarge { bytes: 2002, limit: 1000 }));
    let messages = (0..6).map(crate::model::MessageId::from_u128).collect();
    let refused = core.submit(Command::AckInbox { messages }, None, at(1));
    assert_eq!(refused, Err(Rejection::RecordTooLarge { bytes: 1200, limit: 1000 }));
    assert!(core.take().is_none());
}

#[test]
fn releases_that_wait_for_the_same_batch_go_out_in_order() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let release = |number: u32| {
        let order = order.clone();
        Release {
            tell: vec![Box::new(move || order.lock().unwrap().push(number))],
            ..Release::default()
        }
    };
    let mut first = release(1);
    first.append(release(2));
    first.append(release(3));
    first.tell.into_iter().for_each(|tell| tell());
    assert_eq!(*order.lock().unwrap(), [1, 2, 3]);
    assert!(Release::default().is_empty());
}

#[test]
fn identities_repeat_with_their_seed_and_differ_otherwise() {
    let draw = |mut ids: RandomIds| -> Vec<u128> { (0..100).map(|_| ids.next_u128()).collect() };
    let first = draw(RandomIds::from_seed(1));
    assert_eq!(first, draw(RandomIds::from_seed(1)));
    assert_ne!(first, draw(RandomIds::from_seed(2)));
    assert_ne!(draw(RandomIds::from_os().unwrap()), draw(RandomIds::from_os().unwrap()));
    let mut different = first.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), first.len());
}

#[test]
fn the_clock_reads_this_century_in_microseconds() {
    let start_of_2020 = 1_577_836_800_000_000;
    assert!((start_of_2020..start_of_2020 * 3).contains(&now().as_micros()));
}
