//! Instructions for a CLI that has no place for them but its conversation: they stand before a
//! prompt, and again before the next one after they changed.

use crate::model::sha256;

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
}
