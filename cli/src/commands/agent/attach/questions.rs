//! Questions of backends, and what the user types to answer them.

use std::collections::{BTreeSet, VecDeque};

use substrat_proto::v1;
use substrat_proto::v1::attach_response::Item;

use super::super::answer::Decision;
use crate::client::request_id;

/// The open questions of the watched agents, and answers on their way.
#[derive(Default)]
pub(super) struct Questions {
    /// Those that are open, oldest first.
    open: VecDeque<v1::Permission>,
    /// The one that was the oldest when it was shown, or when the user typed last: the next answer
    /// is for that one, whatever becomes of it meanwhile.
    meant: Option<String>,
    /// Answers that are still to be sent.
    answers: VecDeque<v1::PermissionDecision>,
    /// Answers whose result is not known.
    sent: BTreeSet<String>,
}

/// What a line means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meant {
    /// It is no answer to a question.
    Text,
    /// It answers one.
    Answered,
    /// It would, but the one that it was for is closed.
    Missed,
    /// It would, if one was open.
    NothingAsked,
}

impl Questions {
    /// Takes what the daemon says.
    pub(super) fn take(&mut self, item: &Item) {
        match item {
            Item::Attached(attached) => {
                self.open = attached.permissions.iter().cloned().collect();
            }
            Item::PermissionRequested(asked) => {
                let is_new = |new: &&v1::Permission| self.open.iter().all(|old| old.id != new.id);
                self.open.extend(asked.permission.as_ref().filter(is_new).cloned());
            }
            Item::PermissionResolved(resolved) => {
                self.open.retain(|open| open.id != resolved.permission_id);
            }
            _ => {}
        }
        if self.meant.is_none() {
            self.meant = self.oldest().map(|open| open.id.clone());
        }
    }

    /// The oldest one that is open.
    pub(super) fn oldest(&self) -> Option<&v1::Permission> {
        self.open.front()
    }

    /// Whether something is asked.
    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Takes a line that was typed: `/allow`, `/always` or `/deny REASON` for the question that was
    /// the oldest to who typed it.
    pub(super) fn typed(&mut self, line: &str) -> Meant {
        let meant = self.meant.take();
        let what = self.take_answer(line, meant.as_deref());
        self.meant = self.oldest().map(|open| open.id.clone());
        what
    }

    fn take_answer(&mut self, line: &str, meant: Option<&str>) -> Meant {
        let (word, reason) = match line.trim().split_once(char::is_whitespace) {
            Some((word, reason)) => (word, reason.trim()),
            None => (line.trim(), ""),
        };
        let decision = match word {
            "/allow" => Decision::Allow,
            "/always" => Decision::Always,
            "/deny" => Decision::Deny,
            _ => return Meant::Text,
        };
        let is_meant = |open: &mut v1::Permission| Some(open.id.as_str()) == meant;
        let permission_id = match self.open.pop_front_if(is_meant) {
            Some(open) => open.id,
            None if self.open.is_empty() => return Meant::NothingAsked,
            None => return Meant::Missed,
        };
        let (verdict, reason) = (decision.verdict(), reason.to_owned());
        let request_id = request_id();
        self.answers.push_back(v1::PermissionDecision {
            permission_id,
            verdict,
            reason,
            request_id,
        });
        Meant::Answered
    }

    /// Whether an answer is to be sent.
    pub(super) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// An answer to be sent.
    pub(super) fn next(&mut self) -> Option<v1::PermissionDecision> {
        let answer = self.answers.pop_front()?;
        self.sent.insert(answer.request_id.clone());
        Some(answer)
    }

    /// Whether a result is that of an answer.
    pub(super) fn is_result(&mut self, result: &v1::InputResult) -> bool {
        self.sent.remove(&result.request_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(id: &str) -> Item {
        let permission = Some(v1::Permission { id: id.to_owned(), ..Default::default() });
        Item::PermissionRequested(v1::PermissionRequested { permission })
    }

    fn resolved(id: &str) -> Item {
        let permission_id = id.to_owned();
        Item::PermissionResolved(v1::PermissionResolved { permission_id, ..Default::default() })
    }

    #[test]
    fn the_oldest_question_is_answered_first() {
        let mut questions = Questions::default();
        assert_eq!(questions.typed("/allow"), Meant::NothingAsked);
        questions.take(&asked("a"));
        questions.take(&asked("b"));
        questions.take(&asked("b"));
        assert_eq!(questions.typed("hello /deny"), Meant::Text);
        assert_eq!(questions.typed(" /deny not  there "), Meant::Answered);
        assert_eq!(questions.typed("/always"), Meant::Answered);
        assert!(!questions.is_open() && questions.has_answers());
        let (first, second) = (questions.next().expect("one"), questions.next().expect("two"));
        assert_eq!((first.permission_id.as_str(), first.reason.as_str()), ("a", "not  there"));
        assert_eq!(first.verdict(), v1::PermissionVerdict::Deny);
        assert_eq!(second.verdict(), v1::PermissionVerdict::Always);
        let result = v1::InputResult { request_id: first.request_id, ..Default::default() };
        assert!(questions.is_result(&result) && !questions.is_result(&result));
    }

    #[test]
    fn a_question_that_was_resolved_is_not_answered() {
        let mut questions = Questions::default();
        questions.take(&asked("a"));
        questions.take(&resolved("a"));
        assert_eq!(questions.typed("/allow"), Meant::NothingAsked);
    }

    #[test]
    fn an_answer_is_for_the_question_that_was_shown_as_the_oldest() {
        for with_both_open in [false, true] {
            let mut questions = Questions::default();
            questions.take(&asked("a"));
            if with_both_open {
                questions.take(&asked("b"));
            }
            questions.take(&resolved("a"));
            questions.take(&asked("b"));
            assert_eq!(questions.typed("/allow"), Meant::Missed);
            assert!(!questions.has_answers());
            assert_eq!(questions.oldest().map(|open| open.id.as_str()), Some("b"));
            assert_eq!(questions.typed("/allow"), Meant::Answered, "it was shown again");
            assert_eq!(questions.next().expect("one").permission_id, "b");
        }
    }

    #[test]
    fn who_typed_since_a_question_was_closed_means_the_next() {
        let mut questions = Questions::default();
        questions.take(&asked("a"));
        questions.take(&resolved("a"));
        assert_eq!(questions.typed("hello"), Meant::Text);
        questions.take(&asked("b"));
        assert_eq!(questions.typed("/deny"), Meant::Answered);
    }
}
