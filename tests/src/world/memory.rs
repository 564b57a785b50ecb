//! What the clients remember, whatever becomes of the daemon.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use substrat_server::engine::Answer;
use substrat_server::model::{Command, Outcome, Request};

/// A mutation that was asked for.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) client: u64,
    pub(super) command: Command,
    /// What it came to, once that was acknowledged.
    pub(super) outcome: Option<Outcome>,
    /// Whether it was refused: it may be asked again, or not.
    pub(super) refused: bool,
    pub(super) answer: Option<Answer>,
}

impl Asked {
    /// Its idempotency key.
    pub(super) fn request(&self, key: &str) -> Request {
        Request { id: key.to_owned(), fingerprint: format!("{:?}", self.command) }
    }
}

#[derive(Default)]
pub(super) struct Facts {
    /// By key.
    pub(super) asked: BTreeMap<String, Asked>,
    /// Lines of events that a client saw, by sequence.
    pub(super) seen: BTreeMap<u64, Vec<u8>>,
    /// Lines of the whole history, as it was last found on the disk.
    pub(super) history: Vec<Vec<u8>>,
    /// How many of them a daemon has served with: those stay, whatever happens. Of the others,
    /// which nobody was told of, the next crash may take some.
    pub(super) served: usize,
    keys: u64,
}

/// What everyone remembers; clones share it.
#[derive(Clone, Default)]
pub(super) struct Memory(Arc<Mutex<Facts>>);

impl Memory {
    pub(super) fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.lock().expect("nobody panicked with the memory")
    }

    /// Notes a mutation before it is asked for; its key.
    pub(super) fn note(
        &self,
        client: u64,
        prefix: &str,
        command: impl FnOnce(&str) -> Command,
    ) -> String {
        let mut facts = self.facts();
        facts.keys += 1;
        let key = format!("{prefix}{}", facts.keys);
        let command = command(&key);
        let asked = Asked { client, command, outcome: None, refused: false, answer: None };
        facts.asked.insert(key.clone(), asked);
        key
    }

    pub(super) fn asked(&self, key: &str) -> Asked {
        self.facts().asked[key].clone()
    }

    /// Notes what was acknowledged. A repetition must come to the same.
    pub(super) fn acknowledge(&self, key: &str, outcome: Outcome) {
        let mut facts = self.facts();
        let asked = facts.asked.get_mut(key).expect("it was noted");
        if let Some(before) = &asked.outcome {
            assert_eq!(*before, outcome, "{key} came to something else when it was repeated");
        }
        asked.outcome = Some(outcome);
    }

    pub(super) fn refuse(&self, key: &str) {
        let mut facts = self.facts();
        let asked = facts.asked.get_mut(key).expect("it was noted");
        assert!(asked.outcome.is_none(), "{key} was acknowledged, and refused when repeated");
        asked.refused = true;
    }

    pub(super) fn answer(&self, key: &str, answer: Answer) {
        self.facts().asked.get_mut(key).expect("it was noted").answer = Some(answer);
    }

    /// A daemon serves with what was found.
    pub(super) fn serve(&self) {
        let mut facts = self.facts();
        facts.served = facts.history.len();
    }

    pub(super) fn see(&self, sequence: u64, line: &[u8]) {
        let mut facts = self.facts();
        if let Some(before) = facts.seen.insert(sequence, line.to_vec()) {
            assert_eq!(before, line, "event {sequence} was seen as something else");
        }
    }

    /// Events in the history, acknowledged mutations, answers.
    pub(super) fn counts(&self) -> (u64, usize, usize) {
        let facts = self.facts();
        let acknowledged = facts.asked.values().filter(|asked| asked.outcome.is_some()).count();
        let answers = facts.asked.values().filter(|asked| asked.answer.is_some()).count();
        (facts.history.len() as u64, acknowledged, answers)
    }
}
