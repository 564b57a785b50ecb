use std::io;
use std::sync::Mutex;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::*;
use crate::engine::Span;
use crate::model::{Entry, Timestamp, TurnStart};

/// Logs that remember what was read of them.
#[derive(Default)]
struct Logs {
    entries: Vec<Entry>,
    read: Mutex<Vec<u64>>,
}

impl Logs {
    /// A turn starts in the log of a session; one of an older version has no hash.
    fn with(mut self, number: u64, seq: u64, id: u64, hash: Option<&str>) -> Self {
        let mut start = TurnStart::new(TurnId::from_u64(id), "do it".into(), vec![]);
        start.envelope_hash = hash.map(str::to_owned);
        let (session, at) = (Some(session(number)), Timestamp::default());
        self.entries.push(Entry { seq, session, at, event: start.into() });
        self
    }

    /// Where a turn starts, and what was read to find it. Four sessions begin at 10, 20, 30, 40.
    fn find(&self, id: u64) -> (Option<u64>, Vec<u64>) {
        let owner = |number: u64| Owner {
            session: session(number),
            first: 10 * number,
            agent: String::new(),
            path: String::new(),
            provider: "scripted".into(),
        };
        let owners = (1..=4).map(owner).collect();
        let found = old_record(self, owners, TurnId::from_u64(id)).unwrap();
        let read = std::mem::take(&mut *self.read.lock().unwrap());
        (found.map(|found| found.record.seq), read)
    }
}

fn session(number: u64) -> SessionId {
    SessionId::from_u128(u128::from(number))
}

impl Archive for Logs {
    fn settled(&self) -> BoxFuture<'_, ()> {
        async {}.boxed()
    }
    fn read(&self, _: &[Span], _: u64, _: u64) -> io::Result<Vec<Entry>> {
        Ok(Vec::new())
    }
    fn scan(
        &self,
        session: SessionId,
        from: u64,
        each: &mut dyn FnMut(Entry) -> bool,
    ) -> io::Result<()> {
        let own = |entry: &&Entry| entry.session == Some(session) && entry.seq >= from;
        for entry in self.entries.iter().filter(own) {
            self.read.lock().unwrap().push(entry.seq);
            if !each(entry.clone()) {
                break;
            }
        }
        Ok(())
    }
    fn tail(&self, _: SessionId, _: usize) -> io::Result<Vec<Entry>> {
        Ok(Vec::new())
    }
    fn before(&self, _: SessionId, _: u64, _: usize) -> io::Result<Vec<Entry>> {
        Ok(Vec::new())
    }
    fn transcript(&self, _: SessionId, _: u64, _: usize) -> io::Result<(String, u64)> {
        Ok((String::new(), 0))
    }
}

#[test]
fn no_log_is_searched_for_an_old_turn_beyond_the_first_new_one_of_the_daemon() {
    let new = Some("sha256:0");
    let logs = Logs::default()
        .with(1, 11, 1, None)
        .with(1, 25, 2, new)
        .with(1, 26, 3, new)
        .with(2, 21, 4, None)
        .with(2, 41, 5, new)
        .with(2, 42, 6, new)
        .with(3, 31, 7, new)
        .with(4, 43, 8, new);
    assert_eq!(logs.find(4), (Some(21), vec![11, 25, 21, 21, 41]));
    // The second log is left after 25; those of the third and fourth session begin later.
    assert_eq!(logs.find(99), (None, vec![11, 25, 21, 41]));
}
