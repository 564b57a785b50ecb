//! A conversation in words, for a provider that keeps its own and was not there.

use std::sync::Arc;

use super::{End, History, Item, Turn, fitting};

/// What stands before a conversation.
const BEFORE: &str = "[What was said before, which you do not know:]";
/// What stands before turns that another provider ran.
const MISSED: &str = "[Another model stood in for you. What was said meanwhile:]";
/// What stands for turns that are not told.
const LEFT_OUT: &str = "[What was said at first is left out: it is too long.]";
/// What stands after either.
const AFTER: &str = "[What follows is new.]";

/// A prompt with a conversation before it, of which it has the newest turns that fit into `most`
/// bytes together.
pub fn retell(history: &History, most: usize, prompt: &str) -> Arc<str> {
    let (older, newest) =
        history.turns.split_at(history.turns.len() - fitting(&history.turns, most));
    match (older, newest) {
        ([], newest) => told(BEFORE, newest, prompt),
        (_, []) => format!("{LEFT_OUT}\n{AFTER}\n\n{prompt}").into(),
        (_, newest) => told(&format!("{BEFORE}\n{LEFT_OUT}"), newest, prompt),
    }
}

/// A prompt with what a session's own provider missed since its last turn before it, if another
/// one stood in for it.
pub fn retell_missed(history: &History, prompt: &Arc<str>) -> Arc<str> {
    let own = |turn: &Turn| turn.end == End::Completed && turn.stand_in.is_none();
    let since = history.turns.iter().rposition(own).map_or(0, |at| at + 1);
    let since = &history.turns[since..];
    let missed = since.iter().filter(|turn| turn.end == End::Completed);
    let missed: Vec<Turn> = missed.cloned().collect();
    if missed.is_empty() { prompt.clone() } else { told(MISSED, &missed, prompt) }
}

fn told(what: &str, turns: &[Turn], prompt: &str) -> Arc<str> {
    let items = turns.iter().flat_map(|turn| &turn.items);
    let lines: Vec<String> = items.filter_map(line).collect();
    if lines.is_empty() {
        return prompt.into();
    }
    format!("{what}\n{}\n{AFTER}\n\n{prompt}", lines.join("\n")).into()
}

fn line(item: &Item) -> Option<String> {
    match item {
        Item::User(text) => Some(format!("You were told: {text}")),
        Item::Assistant(text) => Some(format!("You said: {text}")),
        Item::Call { tool, args, .. } => Some(format!("You called {tool}({})", args.get())),
        // What calls came to is in what was said after them.
        Item::Result { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TurnId;

    fn turn(stand_in: Option<&str>, told: &str, said: &str) -> Turn {
        let items = vec![Item::User(told.into()), Item::Assistant(said.into())];
        let stand_in = stand_in.map(Arc::from);
        Turn { id: TurnId::from_u64(1), end: End::Completed, stand_in, items }
    }

    #[test]
    fn a_provider_is_told_what_it_missed_and_nothing_else() {
        let history = |turns| History { turns, cut: 0 };
        let prompt: Arc<str> = "now".into();
        let known = history(vec![turn(None, "one", "1")]);
        assert_eq!(retell_missed(&known, &prompt), prompt);
        let missed = history(vec![turn(None, "one", "1"), turn(Some("b"), "two", "2")]);
        let told = retell_missed(&missed, &prompt);
        assert!(told.contains("You were told: two\nYou said: 2"), "{told}");
        assert!(!told.contains("one") && told.ends_with("\n\nnow"), "{told}");
        assert!(retell(&missed, usize::MAX, "now").contains("You said: 1"));
        assert_eq!(&*retell(&history(Vec::new()), usize::MAX, "now"), "now");
    }

    #[test]
    fn what_does_not_fit_is_left_out_from_the_oldest_on() {
        let turns = vec![turn(None, "one", "1"), turn(None, "two", "2")];
        let (newest, all) = (turns[1].bytes(), turns[0].bytes() + turns[1].bytes());
        let history = History { turns, cut: 0 };
        let told = |most| retell(&history, most, "now");
        assert!(told(all).contains("one") && !told(all).contains(LEFT_OUT));
        let fewer = told(all - 1);
        assert!(fewer.contains(LEFT_OUT) && fewer.contains("two") && !fewer.contains("one"));
        let none = told(newest - 1);
        assert!(none.contains(LEFT_OUT) && !none.contains("two"), "{none}");
        assert!([fewer, none].iter().all(|told| told.ends_with("\n\nnow")));
    }
}
