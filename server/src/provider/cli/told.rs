//! Instructions for a CLI that has no place for them but its conversation: they stand before a
//! prompt, and again before the next one after they changed. One that has a place notes them when a
//! conversation begins, and keeps to those: it is told of the change in the same way.

use crate::model::sha256;
use crate::provider::activity::TurnOver;

/// What stands before instructions that take the place of others.
const CHANGED: &str = "[Your instructions have changed. In place of those before, these hold:]";
/// What stands for them where there are none any more.
const NONE: &str = "[Your instructions have changed: those before do not hold any more.]";
/// What stands between new instructions and a prompt.
const AFTER: &str = "[What follows is new.]";

/// What a session remembers of instructions that its conversation holds.
pub(in crate::provider) fn mark(instructions: &str) -> String {
    sha256(instructions)
}

/// A prompt with the instructions before it, unless the conversation holds them: `told` is the
/// mark of those that it holds, none if that is not known.
pub(in crate::provider) fn prompt(told: Option<&str>, instructions: &str, prompt: &str) -> String {
    match told {
        Some(told) if told == mark(instructions) => prompt.to_owned(),
        Some(_) if instructions.is_empty() => format!("{NONE}\n\n{prompt}"),
        Some(_) => format!("{CHANGED}\n{instructions}\n{AFTER}\n\n{prompt}"),
        None if instructions.is_empty() => prompt.to_owned(),
        None => format!("{instructions}\n\n{prompt}"),
    }
}

/// The instructions of an agent, and those that its conversation holds.
#[derive(Debug)]
pub(in crate::provider) struct Told {
    instructions: String,
    /// The mark of those that the conversation holds, if it holds any.
    holds: Option<String>,
}

impl Told {
    /// For a conversation in which they are told; `holds` is what was kept of it.
    pub(in crate::provider) fn in_prompts(instructions: &str, holds: Option<String>) -> Self {
        Self { instructions: instructions.to_owned(), holds }
    }

    /// For one that begins with those that its program was given. Of one of which nothing was kept
    /// it is not known that they have changed.
    pub(in crate::provider) fn to_program(instructions: &str, holds: Option<String>) -> Self {
        Self::in_prompts(instructions, holds.or_else(|| Some(mark(instructions))))
    }

    /// A prompt with what is to be told before it.
    pub(in crate::provider) fn prompt(&self, text: &str) -> String {
        prompt(self.holds.as_deref(), &self.instructions, text)
    }

    /// Takes the end of a turn: one that was completed leaves them in the conversation.
    pub(in crate::provider) fn over(&mut self, over: &TurnOver) {
        if matches!(over, TurnOver::Completed { .. }) {
            self.holds = Some(mark(&self.instructions));
        }
    }

    /// What is to be kept of it.
    pub(in crate::provider) fn kept(&self) -> Option<String> {
        self.holds.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_told_once_and_again_when_they_changed() {
        let [good, better] = ["be good", "be better"].map(mark);
        assert_eq!(prompt(None, "be good", "hello"), "be good\n\nhello");
        assert_eq!(prompt(Some(&good), "be good", "hello"), "hello");
        let changed = prompt(Some(&good), "be better", "hello");
        assert_eq!(changed, format!("{CHANGED}\nbe better\n{AFTER}\n\nhello"));
        assert_eq!(prompt(Some(&better), "", "hello"), format!("{NONE}\n\nhello"));
        assert_eq!(prompt(None, "", "hello"), "hello");
        assert_eq!(prompt(Some(&mark("")), "", "hello"), "hello");
    }

    #[test]
    fn a_turn_that_was_completed_leaves_them_in_the_conversation() {
        let first = Told::to_program("be good", None);
        assert_eq!(first.prompt("hello"), "hello");
        let mut next = Told::to_program("be better", first.kept());
        assert!(next.prompt("hello").contains("be better"));
        next.over(&TurnOver::Cancelled);
        assert!(next.prompt("hello").contains("be better"));
        next.over(&TurnOver::Completed { response: String::new() });
        assert_eq!(next.prompt("hello"), "hello");
        let mut told = Told::in_prompts("be good", None);
        assert!(told.prompt("hello").starts_with("be good"));
        told.over(&TurnOver::Completed { response: String::new() });
        assert_eq!(told.prompt("hello"), "hello");
    }
}
