//! What a backend tells of its turn: to watchers at once, and to the log what is to last.
//!
//! A text is held back until something follows it: one that turns out to be the answer stands in
//! the end of the turn, and not twice.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use super::driver::Driver;
use super::handle::Report;
use super::output::{Mark, TurnOutput};
use crate::model::{AgentId, Command, Told, TurnId};
use crate::provider::OutputKind;

/// Deltas that no text stands for yet: not what they say, which has no bound, but what tells it
/// from other text.
#[derive(Default)]
struct Fresh {
    bytes: usize,
    checksum: crc32fast::Hasher,
    /// The first and the last of them.
    span: Option<(u64, u64)>,
}

impl Fresh {
    fn push(&mut self, text: &str, index: u64) {
        self.bytes += text.len();
        self.checksum.update(text.as_bytes());
        self.span = Some((self.span.map_or(index, |(first, _)| first), index));
    }

    /// What a text says beyond them. None if it does not begin with them.
    fn rest(self, text: &str) -> Option<&str> {
        let (begun, rest) = text.split_at_checked(self.bytes)?;
        (crc32fast::hash(begun.as_bytes()) == self.checksum.finalize()).then_some(rest)
    }
}

#[derive(Default)]
struct State {
    /// The last text, if nothing followed it.
    held: Option<Arc<str>>,
    answer: Fresh,
    thinking: Fresh,
}

impl State {
    fn fresh(&mut self, kind: OutputKind) -> (&mut Fresh, &mut Fresh) {
        match kind {
            OutputKind::Text => (&mut self.answer, &mut self.thinking),
            OutputKind::Thinking => (&mut self.thinking, &mut self.answer),
        }
    }
}

/// Tells of one turn.
pub(super) struct Telling {
    agent: AgentId,
    turn: TurnId,
    reports: mpsc::UnboundedSender<Report>,
    output: Arc<TurnOutput>,
    state: Mutex<State>,
}

/// Something for the log that watchers see in its place in the output.
pub(super) struct Marked {
    pub(super) command: Command,
    pub(super) mark: Mark,
    pub(super) output: Arc<TurnOutput>,
}

impl Telling {
    pub(super) fn new(
        (agent, turn): (AgentId, TurnId),
        reports: mpsc::UnboundedSender<Report>,
        output: Arc<TurnOutput>,
    ) -> Self {
        Self { agent, turn, reports, output, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under this lock can be left half done by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A provisional piece of output.
    pub(super) fn delta(&self, kind: OutputKind, text: &str) {
        if text.is_empty() {
            return;
        }
        let mut state = self.state();
        let index = self.output.push_delta(kind, text);
        let (fresh, _) = state.fresh(kind);
        fresh.push(text, index);
    }

    /// A finished piece, in place of its deltas.
    pub(super) fn text(&self, kind: OutputKind, text: String) {
        let mut state = self.state();
        let (own, other) = state.fresh(kind);
        let deltas = std::mem::take(own);
        // What was streamed before the first of these was of something else.
        if let (Some((first, _)), Some((_, last))) = (deltas.span, other.span)
            && last < first
        {
            *other = Fresh::default();
        }
        let span = deltas.span;
        match (deltas.rest(&text), span) {
            (Some(""), _) => {}
            (None, Some((first, _))) => self.output.replace(first, kind, &text),
            (Some(rest), _) => drop(self.output.push_delta(kind, rest)),
            (None, None) => {}
        }
        if kind == OutputKind::Text {
            self.say(&mut state);
            state.held = Some(text).filter(|text| !text.trim().is_empty()).map(Arc::from);
        }
    }

    /// What was streamed since the last text or tool is void.
    pub(super) fn void(&self) {
        let mut state = self.state();
        for kind in [OutputKind::Thinking, OutputKind::Text] {
            let (fresh, _) = state.fresh(kind);
            if let Some((first, _)) = std::mem::take(fresh).span {
                self.output.replace(first, kind, "");
            }
        }
    }

    /// A tool is used, or was: the text before it is no answer.
    pub(super) fn pass(&self) {
        let mut state = self.state();
        self.say(&mut state);
        (state.answer, state.thinking) = Default::default();
    }

    /// The turn, or an attempt at it, ended without an answer.
    pub(super) fn fail(&self) {
        self.say(&mut self.state());
    }

    /// The turn ended with an answer.
    pub(super) fn complete(&self, response: &str) {
        let mut state = self.state();
        state.held = state.held.take().filter(|text| text.trim() != response.trim());
        self.say(&mut state);
    }

    /// Makes the text that was held back last.
    fn say(&self, state: &mut State) {
        if let Some(text) = state.held.take() {
            self.report(Told::Said(text));
        }
    }

    /// Tells the log.
    pub(super) fn report(&self, told: Told) {
        let (agent, turn) = (self.agent, self.turn);
        // An engine that is gone has nobody to tell.
        let _ = self.reports.send(Report::Command(Command::TellTurn { agent, turn, told }));
    }

    /// Tells the log something that watchers see between the deltas before and after it.
    pub(super) fn report_in_place(&self, told: Told) {
        let (agent, turn) = (self.agent, self.turn);
        self.command_in_place(Command::TellTurn { agent, turn, told });
    }

    /// Gives a command whose event watchers see between the deltas before and after it.
    pub(super) fn command_in_place(&self, command: Command) {
        // An engine that is gone has nobody to tell.
        let _ = self.reports.send(Report::Marked(self.marked(command)));
    }

    /// Gives a command its place in the output.
    pub(super) fn marked(&self, command: Command) -> Marked {
        Marked { command, mark: self.output.mark(), output: self.output.clone() }
    }

    /// Watchers see an event before what follows.
    pub(super) fn after(&self, seq: u64) {
        self.output.push_mark(super::Item::After(seq));
    }
}

impl Driver {
    pub(super) fn marked(&mut self, marked: Marked) {
        let Marked { command, mark, output } = marked;
        self.command(command);
        // Before its event is published.
        output.settle(&mark, self.core.state().seq());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Item;
    use crate::provider::OutputKind::{Text, Thinking};

    struct World {
        telling: Telling,
        output: Arc<TurnOutput>,
        reports: mpsc::UnboundedReceiver<Report>,
    }

    fn world() -> World {
        let (sender, reports) = mpsc::unbounded_channel();
        let output = Arc::new(TurnOutput::new(1));
        let ids = (AgentId::from_u128(1), TurnId::from_u64(1));
        World { telling: Telling::new(ids, sender, output.clone()), output, reports }
    }

    impl World {
        /// What a watcher saw since the last look: pieces, and in brackets what replaced some.
        fn seen(&self, place: &mut u64) -> String {
            let items = self.output.read(place, 1000).items.into_iter();
            let shown = items.map(|item| match item {
                Item::Delta { text, .. } => text.to_string(),
                Item::Replaced { from, to, text, .. } => format!("[{from}-{to}: {text}]"),
                other => format!("{other:?}"),
            });
            shown.collect()
        }

        fn said(&mut self) -> Vec<String> {
            let said = std::iter::from_fn(|| self.reports.try_recv().ok());
            let said = said.filter_map(|report| match report {
                Report::Command(Command::TellTurn { told: Told::Said(text), .. }) => {
                    Some(text.to_string())
                }
                _ => None,
            });
            said.collect()
        }
    }

    #[test]
    fn a_text_that_its_deltas_told_tells_nothing_more() {
        let (world, place) = (world(), &mut 0);
        world.telling.delta(Text, "a");
        world.telling.delta(Text, "b");
        world.telling.text(Text, "ab".into());
        assert_eq!(world.seen(place), "ab");
        world.telling.text(Text, "without any".into());
        assert_eq!(world.seen(place), "without any");
        world.telling.delta(Text, "be");
        world.telling.text(Text, "begun".into());
        assert_eq!(world.seen(place), "begun");
    }

    #[test]
    fn a_text_that_differs_takes_the_place_of_its_deltas() {
        let (world, place) = (world(), &mut 0);
        world.telling.delta(Text, "a");
        world.telling.text(Text, "a".into());
        world.telling.delta(Thinking, "hm");
        world.telling.delta(Text, "b");
        world.telling.delta(Text, "c");
        world.telling.text(Thinking, "hm".into());
        world.telling.text(Text, "bd".into());
        assert_eq!(world.seen(place), "ahmbc[2-4: bd]");
        world.telling.void();
        assert_eq!(world.seen(place), "", "a text is not void");
        world.telling.delta(Thinking, "x");
        world.telling.delta(Text, "y");
        world.telling.void();
        assert_eq!(world.seen(place), "xy[4-6: ][5-6: ]");
    }

    #[test]
    fn thinking_that_no_text_stood_for_is_not_compared_with_later_thinking() {
        let (world, place) = (world(), &mut 0);
        world.telling.delta(Thinking, "first");
        world.telling.delta(Text, "a");
        world.telling.text(Text, "a".into());
        world.telling.delta(Thinking, "second");
        world.telling.text(Thinking, "second".into());
        assert_eq!(world.seen(place), "firstasecond");
    }

    #[test]
    fn a_text_lasts_when_something_follows_it_and_the_answer_does_not() {
        let mut world = world();
        world.telling.text(Text, "one".into());
        world.telling.text(Thinking, "hm".into());
        assert!(world.said().is_empty());
        world.telling.pass();
        world.telling.text(Text, "two".into());
        world.telling.text(Text, "three".into());
        assert_eq!(world.said(), ["one", "two"]);
        world.telling.complete("three");
        assert!(world.said().is_empty());
        world.telling.text(Text, "four".into());
        world.telling.complete("another");
        assert_eq!(world.said(), ["four"]);
        world.telling.text(Text, "five".into());
        world.telling.fail();
        world.telling.fail();
        assert_eq!(world.said(), ["five"]);
    }
}
