//! What was taken over, and what was not.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::model::HomeImported;

/// Most notes in the event; the file has all.
const MAX_NOTES: usize = 100;

/// What an import came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Agents that go on.
    pub agents: u64,
    /// Agents that had ended, or cannot go on.
    pub ended: u64,
    /// Workspaces.
    pub workspaces: u64,
    /// Turns.
    pub turns: u64,
    /// Messages.
    pub messages: u64,
    /// Messages that wait to be delivered.
    pub pending: u64,
    /// Subscriptions that go on.
    pub subscriptions: u64,
    /// Turns that nothing ended.
    pub open_turns: u64,
    /// What a person should know, each a sentence about one thing.
    pub notes: Vec<String>,
    /// Lines without a counterpart, by what they are.
    pub left: BTreeMap<String, u64>,
}

impl Report {
    pub(super) fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        tracing::warn!(text, "import");
        self.notes.push(text);
    }

    pub(super) fn leave(&mut self, what: impl Into<String>) {
        *self.left.entry(what.into()).or_default() += 1;
    }

    /// In a line.
    pub fn summary(&self) -> String {
        let Self { agents, ended, workspaces, turns, messages, pending, .. } = self;
        format!(
            "{} (and {ended} ended), {}, {} and {} ({pending} pending) of the Python Substrat; {}",
            count(*agents, "agent"),
            count(*workspaces, "workspace"),
            count(*turns, "turn"),
            count(*messages, "message"),
            count(self.notes.len() as u64, "note"),
        )
    }

    /// The whole, as it stands in the home. `kept` is the folder that has the old files.
    pub(super) fn text(&self, kept: &str) -> String {
        let mut text = format!("{}\n", self.summary());
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\nThe old files of the agents are in {kept}, unchanged; the workspaces stay where \
             they were.\nThis file is for you: read it, and remove it when you are done with it. \
             docs/python-home.md explains it.\n"
        );
        if !self.notes.is_empty() {
            text.push_str("\nWhat to look at:\n");
        }
        for note in &self.notes {
            let _ = writeln!(text, "- {note}");
        }
        if !self.left.is_empty() {
            text.push_str("\nLines without a counterpart:\n");
        }
        for (what, count) in &self.left {
            let _ = writeln!(text, "- {count} × {what}");
        }
        text
    }

    pub(super) fn event(&self, kept: &str) -> HomeImported {
        let left = self.left.iter().map(|(what, count)| format!("{count} × {what}"));
        let notes = self.notes.iter().cloned().chain(left);
        HomeImported {
            agents: self.agents,
            ended: self.ended,
            workspaces: self.workspaces,
            turns: self.turns,
            messages: self.messages,
            pending: self.pending,
            skipped: notes.take(MAX_NOTES).collect(),
            kept: kept.to_owned(),
        }
    }
}

/// How many of a thing, in words.
pub(super) fn count(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}
