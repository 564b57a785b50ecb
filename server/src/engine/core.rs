//! Deciding and staging, without I/O.
//!
//! What was decided is applied at once, so memory may be ahead of the disk. Nobody sees that: all
//! that follows from a batch, rejections and reads included, is in its [`Release`], and that is
//! carried out when the batch is durable.

use bytes::Bytes;

use crate::model::{
    Command, Commit, Context, Effect, IdSource, MessageId, Outcome, Policy, Rejection, Request,
    State, Timestamp, Transaction, transact,
};

/// Word to a caller, who may have gone.
pub type Tell = Box<dyn FnOnce() + Send>;

/// What follows from a batch when it is durable.
#[derive(Default)]
pub struct Release {
    /// What became durable.
    pub commit: Commit,
    /// Callers to be told, with what they asked for.
    pub tell: Vec<Tell>,
    /// What is to be done in the world.
    pub effects: Vec<Effect>,
}

impl Release {
    /// Whether nothing follows.
    pub fn is_empty(&self) -> bool {
        self.commit.lines.is_empty() && self.tell.is_empty() && self.effects.is_empty()
    }

    /// Adds what follows from a later batch that has nothing to make durable.
    pub fn append(&mut self, later: Self) {
        debug_assert!(later.commit.lines.is_empty());
        self.tell.extend(later.tell);
        self.effects.extend(later.effects);
    }
}

/// One command's events, as they go into the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Sequence of the first event.
    pub sequence: u64,
    /// How many events.
    pub events: u32,
    /// Their lines.
    pub lines: Bytes,
}

/// What was decided since the last batch was taken.
pub struct Staged {
    /// What is to be made durable, in order.
    pub records: Vec<Record>,
    /// What follows from it.
    pub release: Release,
}

/// The state and the decisions on it.
pub struct Core {
    state: State,
    policy: Policy,
    ids: Box<dyn IdSource + Send>,
    max_record: usize,
    records: Vec<Record>,
    release: Release,
}

impl Core {
    /// A core that goes on from a state.
    pub fn new(
        state: State,
        policy: Policy,
        ids: Box<dyn IdSource + Send>,
        max_record: usize,
    ) -> Self {
        Self { state, policy, ids, max_record, records: Vec::new(), release: Release::default() }
    }

    /// The state, ahead of the disk by what is staged and not durable yet.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What the configuration lets the core do.
    pub fn policy_mut(&mut self) -> &mut Policy {
        &mut self.policy
    }

    /// Decides a command and stages what follows. Nobody may be told what it came to, not even
    /// that it was rejected, but through [`Core::tell`].
    pub fn submit(
        &mut self,
        command: Command,
        request: Option<&Request>,
        now: Timestamp,
    ) -> Result<Outcome, Rejection> {
        self.submit_attended(command, request, now, &|_| false)
    }

    /// The same while clients wait for answers to messages of USER: `attended` says to which.
    pub fn submit_attended(
        &mut self,
        command: Command,
        request: Option<&Request>,
        now: Timestamp,
        attended: &dyn Fn(MessageId) -> bool,
    ) -> Result<Outcome, Rejection> {
        check_size(&command, self.max_record)?;
        let cx = &mut Context { now, policy: &self.policy, ids: &mut *self.ids, attended };
        let first = self.state.seq() + 1;
        let done = transact(&mut self.state, cx, command, request)?;
        let Transaction { entries, effects, outcome } = done;
        if !entries.is_empty() {
            let mut lines = Vec::new();
            let mut ends = Vec::with_capacity(entries.len());
            for entry in &entries {
                entry.encode(&mut lines);
                ends.push(lines.len());
            }
            let lines = Bytes::from(lines);
            let events = entries.len() as u32;
            let mut start = 0;
            for (entry, end) in entries.into_iter().zip(ends) {
                self.release.commit.push(&self.state, entry, lines.slice(start..end));
                start = end;
            }
            self.records.push(Record { sequence: first, events, lines });
        }
        self.release.effects.extend(effects);
        Ok(outcome)
    }

    /// Stages word to a caller: called when all that the state holds now is durable.
    pub fn tell(&mut self, tell: Tell) {
        self.release.tell.push(tell);
    }

    /// Takes what was staged; none if nothing was.
    pub fn take(&mut self) -> Option<Staged> {
        if self.records.is_empty() && self.release.is_empty() {
            return None;
        }
        let records = std::mem::take(&mut self.records);
        Some(Staged { records, release: std::mem::take(&mut self.release) })
    }
}

/// Refuses a command whose record would be too large, by the texts that it brings along.
fn check_size(command: &Command, limit: usize) -> Result<(), Rejection> {
    let bytes = match command {
        Command::CallTool { args, .. } => args.get().len(),
        Command::AckInbox { messages } => messages.len() * 200,
        // The other texts have limits of their own.
        _ => 0,
    };
    if bytes > limit {
        return Err(Rejection::RecordTooLarge { bytes, limit });
    }
    Ok(())
}
