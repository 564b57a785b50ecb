//! What logs come to, and what repair makes of anything.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::model::{
    DiscardReason, MessageCollected, MessageDiscarded, Name, Party, Timestamp, ToolCallInvoked,
    ToolCallResult, TurnCancelled, TurnComplete, TurnFailed, TurnInterrupted, TurnRetry, TurnSaid,
    TurnStart,
};

fn turn_id(number: u64) -> TurnId {
    TurnId::from_u64(number)
}

fn call_id(number: u64) -> CallId {
    CallId::from_u64(number)
}

fn message(number: u128) -> MessageId {
    MessageId::from_u128(number)
}

/// A log in the making.
#[derive(Default)]
struct Log(Vec<Entry>);

impl Log {
    fn add(&mut self, event: impl Into<Event>) -> &mut Self {
        let (seq, at, event) = (self.0.len() as u64 + 1, Timestamp::default(), event.into());
        self.0.push(Entry { seq, session: None, at, event });
        self
    }

    /// A turn starts that is asked "ask N" with message N.
    fn start(&mut self, number: u64) -> &mut Self {
        let (prompt, messages) = (format!("ask {number}"), vec![message(number.into())]);
        self.add(TurnStart::new(turn_id(number), prompt.into(), messages))
    }

    fn invoke(&mut self, turn: u64, call: u64) -> &mut Self {
        let (turn_id, call_id, args) = (turn_id(turn), call_id(call), Json::null());
        self.add(ToolCallInvoked { turn_id, call_id, tool: "look".into(), args })
    }

    fn result(&mut self, turn: u64, call: u64, error: Option<&str>) -> &mut Self {
        let (turn_id, call_id, tool) = (turn_id(turn), call_id(call), "look".into());
        let (result, error) = (error.is_none().then(Json::null), error.map(str::to_owned));
        self.add(ToolCallResult { turn_id, call_id, tool, result, error, reason: None })
    }

    fn call(&mut self, turn: u64, call: u64) -> &mut Self {
        self.invoke(turn, call).result(turn, call, None)
    }

    fn say(&mut self, turn: u64, text: &str) -> &mut Self {
        self.add(TurnSaid { turn_id: turn_id(turn), text: text.into() })
    }

    fn take_in(&mut self, turn: u64, text: &str) -> &mut Self {
        let (message_id, turn_id) = (message(99), turn_id(turn));
        self.add(MessageCollected { message_id, turn_id, told: Some(text.into()) })
    }

    fn complete(&mut self, turn: u64, response: &str) -> &mut Self {
        let (turn_id, agent, answers) = (turn_id(turn), Name::known("a"), Vec::new());
        self.add(TurnComplete { turn_id, response: response.into(), agent, answers })
    }

    fn cancel(&mut self, turn: u64, withdrawn: &[u128]) -> &mut Self {
        for number in withdrawn {
            let (message_id, reason) = (message(*number), DiscardReason::Cancelled);
            self.add(MessageDiscarded { message_id, reason });
        }
        let (turn_id, agent, messages) = (turn_id(turn), Name::known("a"), Vec::new());
        self.add(TurnCancelled { turn_id, agent, by: Party::User, messages })
    }

    fn interrupt(&mut self, turn: u64) -> &mut Self {
        self.add(TurnInterrupted {
            turn_id: turn_id(turn),
            agent: Name::known("a"),
            stage: crate::model::Stage::DuringAgentExecution,
            recovery: crate::model::Advice::CheckAgentIdempotency,
            lost_calls: Vec::new(),
            wakes: true,
        })
    }

    fn fail(&mut self, turn: u64) -> &mut Self {
        let (turn_id, agent, messages) = (turn_id(turn), Name::known("a"), Vec::new());
        let (class, error) = (FailureClass::Permanent, "broken".to_owned());
        self.add(TurnFailed { turn_id, agent, class, error, messages })
    }

    fn retry(&mut self, turn: u64) -> &mut Self {
        let (class, error) = (FailureClass::Transient, "busy".to_owned());
        let (attempt, delay_ms, provider) = (2, 1, None);
        let turn_id = turn_id(turn);
        self.add(TurnRetry { turn_id, attempt, delay_ms, class, error, provider })
    }

    /// What the conversation is in turn 9, line by line. It must be valid before it is repaired.
    fn told(&mut self) -> Vec<String> {
        self.start(9);
        let turns = fold(self.0.clone(), turn_id(9));
        let (repaired, changes) = repair(turns);
        assert_eq!(changes, []);
        let history = History::newest(repaired, usize::MAX, 0);
        assert_eq!(problem(&history.turns), None);
        lines(&history.turns)
    }
}

fn lines(turns: &[Turn]) -> Vec<String> {
    let items = turns.iter().flat_map(|turn| &turn.items);
    let line = |item: &Item| match item {
        Item::User(text) => format!("user: {text}"),
        Item::Assistant(text) => format!("assistant: {text}"),
        Item::Call { id, tool, .. } => format!("{tool} {id}"),
        Item::Result { id, outcome: Ok(value) } => format!("= {} {id}", value.get()),
        Item::Result { id, outcome: Err(error) } => format!("= {error} {id}"),
    };
    items.map(line).collect()
}

/// Why a conversation is not valid: written apart from the repair.
fn problem(turns: &[Turn]) -> Option<String> {
    let items: Vec<(TurnId, &Item)> =
        turns.iter().flat_map(|turn| turn.items.iter().map(|item| (turn.id, item))).collect();
    let mut calls = BTreeSet::new();
    let mut at = 0;
    let mut before: Option<&Item> = None;
    while let Some((turn, item)) = items.get(at) {
        at += 1;
        match item {
            Item::User(text) | Item::Assistant(text) if text.trim().is_empty() => {
                return Some(format!("an empty text at {at}"));
            }
            Item::User(_) if !matches!(before, None | Some(Item::Assistant(_))) => {
                return Some(format!("no word of the assistant before {at}"));
            }
            Item::Assistant(_) if matches!(before, None | Some(Item::Assistant(_))) => {
                return Some(format!("a word of the assistant too much at {at}"));
            }
            Item::Result { .. } => return Some(format!("a result out of place at {at}")),
            Item::Call { .. } if before.is_none() => return Some("a call first".to_owned()),
            Item::Call { .. } => {
                let row = items[at - 1..]
                    .iter()
                    .take_while(|(other, item)| other == turn && matches!(item, Item::Call { .. }));
                let row: Vec<CallId> = row.filter_map(|(_, item)| id_of(item)).collect();
                at += row.len() - 1;
                for id in row {
                    let same = items.get(at).filter(|(of, _)| of == turn);
                    let found = same.map(|(_, item)| *item);
                    let fits = matches!(found, Some(Item::Result { id: of, .. }) if *of == id);
                    if !fits || !calls.insert(id) {
                        return Some(format!("{id} has no result of its own at {at}"));
                    }
                    at += 1;
                }
            }
            Item::User(_) | Item::Assistant(_) => {}
        }
        before = items.get(at - 1).map(|(_, item)| *item);
    }
    let answered = matches!(before, None | Some(Item::Assistant(_)));
    (!answered).then(|| "it does not end with the assistant".to_owned())
}

fn id_of(item: &Item) -> Option<CallId> {
    match item {
        Item::Call { id, .. } | Item::Result { id, .. } => Some(*id),
        Item::User(_) | Item::Assistant(_) => None,
    }
}

#[test]
fn a_completed_turn_is_its_prompt_its_calls_and_its_answer() {
    let told = Log::default().start(1).call(1, 7).complete(1, "done").told();
    let call = call_id(7);
    let wanted = [
        "user: ask 1".to_owned(),
        format!("look {call}"),
        format!("= null {call}"),
        "assistant: done".to_owned(),
    ];
    assert_eq!(told, wanted);
}

#[test]
fn what_was_said_before_the_answer_stands_where_it_was_said() {
    let mut log = Log::default();
    log.start(1).say(1, "let me look").call(1, 7).say(1, "so").say(1, "then").complete(1, "done");
    let call = call_id(7);
    let wanted = [
        "user: ask 1".to_owned(),
        "assistant: let me look".to_owned(),
        format!("look {call}"),
        format!("= null {call}"),
        "assistant: so\n\nthen\n\ndone".to_owned(),
    ];
    assert_eq!(log.told(), wanted);
    // An attempt that only spoke leaves nothing behind, as its prompt comes again.
    let mut log = Log::default();
    log.start(1).say(1, "hm").fail(1).start(1).complete(1, "done");
    assert_eq!(log.told(), ["user: ask 1", "assistant: done"]);
}

#[test]
fn a_prompt_that_comes_again_stands_there_once() {
    let ends: [fn(&mut Log); 3] =
        [|log| _ = log.fail(1), |log| _ = log.interrupt(1), |log| _ = log.cancel(1, &[])];
    for end in ends {
        let mut log = Log::default();
        log.start(1);
        end(&mut log);
        log.start(1).complete(1, "done");
        assert_eq!(log.told(), ["user: ask 1", "assistant: done"]);
    }
}

#[test]
fn what_a_turn_did_that_did_not_complete_is_known() {
    let mut log = Log::default();
    log.start(1).call(1, 7).invoke(1, 8).result(1, 8, Some("[Interrupted: outcome unknown]"));
    let told = log.interrupt(1).told();
    assert_eq!(told[0], "user: [What this turn was asked comes again in a later one.]");
    assert_eq!(told[4], format!("= [Interrupted: outcome unknown] {}", call_id(8)));
    assert!(told[5].starts_with("assistant: [The daemon stopped"), "{told:?}");
    let told = Log::default().start(1).call(1, 7).fail(1).told();
    assert_eq!(told[3], "assistant: [The turn failed (permanent): broken]");
}

#[test]
fn a_prompt_that_user_withdrew_stays_since_it_does_not_come_again() {
    let told = Log::default().start(1).cancel(1, &[1]).told();
    assert_eq!(told, ["user: ask 1", "assistant: [USER cancelled the turn.]"]);
}

#[test]
fn of_the_running_turn_only_failed_attempts_are_told() {
    let mut log = Log::default();
    log.start(1).complete(1, "one");
    let turn = |log: &Log| fold(log.0.clone(), turn_id(2)).pop().unwrap();
    log.start(2).call(2, 7);
    assert_eq!(turn(&log).items, [], "the attempt that runs");
    log.retry(2).call(2, 8);
    let told = lines(&[turn(&log)]);
    assert_eq!(told[0], "user: [An earlier attempt at what comes next.]");
    assert_eq!(told[1], format!("look {}", call_id(7)));
    assert_eq!(told[3], "assistant: [The attempt failed (transient): busy]");
    assert_eq!(told.len(), 4);
}

#[test]
fn the_own_provider_has_a_part_in_what_its_earlier_attempts_did() {
    let mut log = Log::default();
    let has_own = |log: &Log| {
        let turns = fold(log.0.clone(), turn_id(2));
        History::newest(turns, usize::MAX, 0).has_own()
    };
    log.start(1).fail(1).start(2).call(2, 7);
    assert!(!has_own(&log));
    log.retry(2);
    assert!(has_own(&log), "a call of a failed attempt");
    let mut other = Log::default();
    assert!(has_own(other.start(1).complete(1, "one")));
}

#[test]
fn empty_prompts_and_answers_are_said_to_be_empty() {
    let mut log = Log::default();
    log.add(TurnStart::new(turn_id(1), " ".into(), Vec::new()));
    assert_eq!(log.complete(1, "").told(), ["user: [Empty message]", "assistant: [No answer]"]);
}

#[test]
fn calls_that_overlap_are_put_in_order() {
    let mut log = Log::default();
    log.start(1).invoke(1, 7).invoke(1, 8).result(1, 8, None).invoke(1, 9);
    log.result(1, 7, None).result(1, 9, None).complete(1, "done");
    let (turns, changes) = repair(fold(log.0, turn_id(2)));
    assert_eq!(problem(&turns), None);
    let only_moved = changes.iter().all(|change| matches!(change, Change::Moved(_)));
    assert!(only_moved && !changes.is_empty(), "{changes:?}");
    let ids: Vec<CallId> = turns[0].items.iter().filter_map(id_of).collect();
    assert_eq!(ids, [7, 8, 7, 8, 9, 9].map(call_id));
}

#[test]
fn a_log_without_its_beginning_or_an_end_still_folds() {
    let mut log = Log::default();
    log.result(1, 7, None).complete(1, "lost").start(2).invoke(2, 8).start(3).complete(3, "x");
    let (turns, changes) = repair(fold(log.0, turn_id(4)));
    assert_eq!(changes, [Change::Missing(call_id(8))]);
    assert_eq!(problem(&turns), None);
    assert_eq!(turns[0].end, End::Interrupted);
    let unknown = format!("= [Interrupted: outcome unknown] {}", call_id(8));
    assert_eq!(lines(&turns)[2], unknown);
}

#[test]
fn the_newest_turns_that_fit_are_kept_whole() {
    let mut log = Log::default();
    for number in 1..=5 {
        log.start(number).call(number, number).complete(number, "done");
    }
    let turns = fold(log.0, turn_id(9));
    let each = turns[0].bytes();
    let history = History::newest(turns.clone(), 3 * each - 1, 5);
    assert_eq!((history.cut, history.turns.as_slice()), (3, &turns[3..]));
    let history = History::newest(turns.clone(), each - 1, 5);
    assert_eq!((history.cut, history.turns.len()), (5, 0));
    let history = History::newest(turns.clone(), 5 * each, 5);
    assert_eq!((history.cut, history.turns), (0, turns));
}

fn text() -> impl Strategy<Value = Arc<str>> {
    prop_oneof![4 => "[a-c]{1,3}", 1 => Just(" ".to_owned()), 1 => Just(String::new())]
        .prop_map(Arc::from)
}

fn item() -> impl Strategy<Value = Item> {
    let id = || (0..6_u64).prop_map(call_id);
    prop_oneof![
        2 => text().prop_map(Item::User),
        2 => text().prop_map(Item::Assistant),
        3 => id().prop_map(|id| Item::Call { id, tool: "t".into(), args: Json::null() }),
        3 => (id(), any::<bool>()).prop_map(|(id, well)| {
            let outcome = if well { Ok(Json::null()) } else { Err("no".to_owned()) };
            Item::Result { id, outcome }
        }),
    ]
}

fn soup() -> impl Strategy<Value = Vec<Turn>> {
    let end = prop_oneof![
        Just(End::Completed),
        Just(End::Failed),
        Just(End::Cancelled),
        Just(End::Interrupted),
        Just(End::Running),
    ];
    let turn = (end, proptest::collection::vec(item(), 0..8));
    proptest::collection::vec(turn, 0..5).prop_map(|turns| {
        let turns = (1..).zip(turns);
        turns
            .map(|(id, (end, items))| Turn { id: turn_id(id), end, stand_in: None, items })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..Default::default() })]

    #[test]
    fn whatever_comes_in_what_goes_out_is_valid_and_stays(turns in soup()) {
        let valid = problem(&turns).is_none();
        let (repaired, changes) = repair(turns.clone());
        prop_assert_eq!(problem(&repaired), None, "{:#?}", lines(&repaired));
        if valid {
            prop_assert_eq!(&changes, &[]);
        }
        if changes.is_empty() {
            let same: Vec<Turn> =
                turns.iter().filter(|turn| !turn.items.is_empty()).cloned().collect();
            prop_assert_eq!(&repaired, &same, "nothing is changed without a word");
        }
        let (again, changes) = repair(repaired.clone());
        prop_assert_eq!((again, changes), (repaired, vec![]));
    }

    #[test]
    fn every_call_and_its_result_outlive_the_repair(turns in soup()) {
        let items = || turns.iter().flat_map(|turn| &turn.items);
        let calls: BTreeSet<CallId> = items()
            .filter_map(|item| match item { Item::Call { id, .. } => Some(*id), _ => None })
            .collect();
        let (repaired, _) = repair(turns.clone());
        let kept = repaired.iter().flat_map(|turn| &turn.items);
        let results = kept.filter_map(|item| match item {
            Item::Result { id, outcome } => Some((*id, outcome.clone())),
            _ => None,
        });
        let results: Vec<_> = results.collect();
        prop_assert_eq!(results.iter().map(|(id, _)| *id).collect::<BTreeSet<_>>(), calls);
        for (id, outcome) in results {
            let first = items().find_map(|item| match item {
                Item::Result { id: of, outcome } if *of == id => Some(outcome.clone()),
                _ => None,
            });
            prop_assert!(first.is_none_or(|first| first == outcome), "the first result counts");
        }
    }
}

#[test]
fn what_a_turn_took_in_stands_where_it_did_unless_it_comes_again() {
    let mut log = Log::default();
    log.start(1).call(1, 1).take_in(1, "faster").say(1, "I hurry").complete(1, "done");
    log.start(2).call(2, 2).take_in(2, "stop").cancel(2, &[]);
    let turns = fold(log.0, turn_id(9));
    let users = |turn: &Turn| {
        let users = turn.items.iter().filter_map(|item| match item {
            Item::User(text) => Some(text.to_string()),
            _ => None,
        });
        users.collect::<Vec<_>>()
    };
    assert_eq!(users(&turns[0]), ["ask 1", "faster"]);
    assert_eq!(users(&turns[1]), [AGAIN]);
}
