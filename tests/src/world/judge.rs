//! Whether what the disk holds is what it must hold.

use std::collections::{BTreeMap, BTreeSet};

use substrat_server::engine::RandomIds;
use substrat_server::journal::SimDisk;
use substrat_server::model::{
    Command, Entry, Event, Gate, MessageId, Outcome, Party, SessionId, State, Timestamp, TurnId,
};
use substrat_server::projection;
use substrat_server::recovery::Recovered;

use super::client::fits;
use super::life::{recover, replay};
use super::memory::{Facts, Memory};
use super::provider::answer_to;
use super::pumps::history;

/// Recovers a copy of the disk, and compares what comes back with what the clients remember.
pub(super) fn recovered(disk: &SimDisk, memory: &Memory, now: Timestamp, boot: u32) {
    let (copy, state) = recover_copy(disk, now, boot);
    let (again, _) = recover_copy(disk, now, boot);
    assert_eq!(copy.contents(), again.contents(), "recovering again comes to the same bytes");
    let durable = replay(&disk.fork(), boot).expect("it replays").state().seq();

    let entries = history(&copy);
    let mut fold = State::default();
    for (at, (entry, _)) in entries.iter().enumerate() {
        assert_eq!(entry.seq, at as u64 + 1, "no event is missing from the logs");
        fold.apply(entry);
    }
    assert_eq!(fold, state, "the state is the fold of the logs");
    let rebuilt = projection::rebuild(&copy.fork(), None).expect("the logs can be folded");
    assert_eq!(rebuilt.state, state, "a rebuild comes to the same state");

    let mut facts = memory.facts();
    let lines = entries.iter().map(|(_, line)| line.clone()).take(durable as usize);
    let lines: Vec<Vec<u8>> = lines.collect();
    let served = facts.served;
    assert!(lines.starts_with(&facts.history[..served]), "history is only added to");
    for (sequence, line) in &facts.seen {
        let there = lines.get(*sequence as usize - 1);
        assert_eq!(there, Some(line), "event {sequence} was seen, and is gone or changed");
    }
    facts.history = lines;
    let entries: Vec<Entry> =
        entries.into_iter().take(durable as usize).map(|(entry, _)| entry).collect();
    remembered(&facts, &entries);
    turns(&entries);
    messages(&entries);
}

fn recover_copy(disk: &SimDisk, now: Timestamp, boot: u32) -> (SimDisk, State) {
    let copy = disk.fork();
    let recovered = recover(&copy, now, &mut RandomIds::from_seed(1), boot);
    let Recovered { state, mut projector, report, .. } = recovered.expect("it recovers");
    projector.end_recovery().expect("projections are brought up to date");
    while projector.flush_record().expect("session records are written") {}
    assert!(report.rebuilt.is_none(), "{report:?}");
    assert!(projector.quarantined().is_empty(), "{:?}", projector.quarantined());
    (copy, state)
}

/// What was acknowledged happened, and nothing happened twice.
fn remembered(facts: &Facts, entries: &[Entry]) {
    let mut recorded: BTreeMap<&str, Vec<&Outcome>> = BTreeMap::new();
    let mut created: BTreeMap<&str, u32> = BTreeMap::new();
    let mut enqueued: BTreeMap<&str, Vec<MessageId>> = BTreeMap::new();
    for entry in entries {
        match &entry.event {
            Event::RequestRecorded(data) => {
                recorded.entry(&data.request_id).or_default().push(&data.outcome);
            }
            Event::AgentCreated(data) => *created.entry(data.name.as_str()).or_default() += 1,
            Event::MessageEnqueued(data) if data.sender == Party::User => {
                enqueued.entry(&data.payload).or_default().push(data.message_id);
            }
            _ => {}
        }
    }
    for (key, asked) in &facts.asked {
        let outcomes = recorded.get(key.as_str()).map_or(&[][..], Vec::as_slice);
        assert!(outcomes.len() <= 1, "{key} was done {} times", outcomes.len());
        if let Some(outcome) = &asked.outcome {
            assert_eq!(outcomes, [outcome], "{key} was acknowledged");
        }
        match &asked.command {
            Command::CreateAgent { .. } => {
                let count = created.get(key.as_str()).copied().unwrap_or_default();
                assert_eq!(count as usize, outcomes.len(), "agent {key}");
            }
            Command::SendMessage { .. } => {
                let messages = enqueued.get(key.as_str()).map_or(&[][..], Vec::as_slice);
                assert_eq!(messages.len(), outcomes.len(), "message {key}");
                if let Some(Outcome::Message { message, .. }) = &asked.outcome {
                    assert_eq!(messages, [*message], "message {key}");
                }
            }
            _ => {}
        }
        if let Some(answer) = &asked.answer {
            assert!(entries.iter().any(|entry| fits(answer, &entry.event)), "{key}: {answer:?}");
        }
    }
}

/// Every turn ends at most once, with the answer to its own prompt.
fn turns(entries: &[Entry]) {
    let mut prompts: BTreeMap<TurnId, &str> = BTreeMap::new();
    for entry in entries {
        let ended = match &entry.event {
            Event::TurnStart(data) => {
                let before = prompts.insert(data.turn_id, &data.prompt);
                assert!(before.is_none(), "turn {} started twice", data.turn_id);
                None
            }
            Event::TurnComplete(data) => {
                let prompt = prompts.get(&data.turn_id).expect("it started");
                assert_eq!(*data.response, answer_to(prompt), "turn {}", data.turn_id);
                Some(data.turn_id)
            }
            Event::TurnFailed(data) => Some(data.turn_id),
            Event::TurnCancelled(data) => Some(data.turn_id),
            Event::TurnInterrupted(data) => Some(data.turn_id),
            _ => None,
        };
        if let Some(turn) = ended {
            assert!(prompts.remove(&turn).is_some(), "turn {turn} ended twice");
        }
    }
}

/// No message leaves an inbox twice, or without having entered it. Those that are still there.
fn messages(entries: &[Entry]) -> BTreeSet<MessageId> {
    let (mut waiting, mut gone) = (BTreeSet::new(), BTreeSet::new());
    for entry in entries {
        let left = match &entry.event {
            Event::MessageEnqueued(data) => {
                let new = waiting.insert(data.message_id) && !gone.contains(&data.message_id);
                assert!(new, "message {} was enqueued twice", data.message_id);
                continue;
            }
            Event::MessageDelivered(data) => data.message_id,
            Event::MessageDiscarded(data) => data.message_id,
            _ => continue,
        };
        assert!(waiting.remove(&left), "message {left} left an inbox that it was not in");
        gone.insert(left);
    }
    waiting
}

/// After the last daemon stopped: nothing is open that could have been done.
pub(super) fn settled(disk: &SimDisk, memory: &Memory, now: Timestamp, boot: u32) {
    let facts = memory.facts();
    for (key, asked) in &facts.asked {
        assert!(asked.outcome.is_some() || asked.refused, "{key} was left open");
    }
    let recovered = recover(&disk.fork(), now, &mut RandomIds::from_seed(1), boot);
    let Recovered { state, report, .. } = recovered.expect("it recovers");
    assert!(report.clean && report.replayed == 0, "it stopped cleanly: {report:?}");
    let entries: Vec<Entry> =
        facts.history.iter().map(|line| Entry::decode(line).expect("an event")).collect();
    let mut waiting = messages(&entries);
    for message in state.user_inbox() {
        waiting.remove(&message.id);
    }
    let stalled = stalled(&entries);
    for agent in state.agents() {
        assert!(agent.turn().is_none(), "{} still works", agent.name);
        let held = agent.gate != Gate::Open || stalled.contains(&agent.session.id);
        // Answers to a broadcast wait until it is over.
        let copies = || agent.multicasts.iter().flat_map(|multicast| &multicast.copies);
        let collected = |asked| copies().any(|copy| Some(copy.message) == asked);
        let unread = agent.unread().find(|message| !held && !collected(message.reply_to));
        assert!(unread.is_none(), "{} has not read {unread:?}", agent.name);
        for message in &agent.inbox {
            assert!(waiting.remove(&message.id), "{message:?} is in an inbox");
        }
    }
    assert!(waiting.is_empty(), "in no inbox: {waiting:?}");
}

/// Sessions whose last turn did not complete: what they had to read waits for the next message.
fn stalled(entries: &[Entry]) -> BTreeSet<SessionId> {
    let mut stalled = BTreeSet::new();
    for entry in entries.iter().filter(|entry| entry.event.ends_turn()) {
        let session = entry.session.expect("a turn runs in a session");
        match entry.event {
            Event::TurnComplete(_) => stalled.remove(&session),
            _ => stalled.insert(session),
        };
    }
    stalled
}
