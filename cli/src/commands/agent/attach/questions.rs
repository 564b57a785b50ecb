//! Questions of backends, and what the user types to answer them.

use std::collections::{BTreeSet, VecDeque};

use substrat_proto::v1;
use substrat_proto::v1::attach_response::Item;

use super::super::answer::Decision;
use crate::client::request_id;

/// The open questions of the watched agents, and answers on their way.
#[derive(Default)]
pub(super) struct Questions {
    /// Ids of those that are open, oldest first.
    open: VecDeque<String>,
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
    /// It would, if one was open.
    NothingAsked,
}

impl Questions {
    /// Takes what the daemon says.
    pub(super) fn take(&mut self, item: &Item) {
        match item {
            Item::Attached(attached) => {
                self.open = attached.permissions.iter().map(|asked| asked.id.clone()).collect();
            }
            Item::PermissionRequested(asked) => {
                let asked = asked.permission.as_ref().map(|permission| permission.id.clone());
                let asked = asked.filter(|id| !self.open.contains(id));
                self.open.extend(asked);
            }
            Item::PermissionResolved(resolved) => {
                self.open.retain(|id| *id != resolved.permission_id);
            }
            _ => {}
        }
    }

    /// Whether something is asked.
    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Takes a line that was typed: `/allow`, `/always` or `/deny REASON` for the oldest question.
    pub(super) fn typed(&mut self, line: &str) -> Meant {
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
        let Some(permission_id) = self.open.pop_front() else { return Meant::NothingAsked };
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
        let permission_id = "a".to_owned();
        let resolved = v1::PermissionResolved { permission_id, ..Default::default() };
        questions.take(&Item::PermissionResolved(resolved));
        assert_eq!(questions.typed("/allow"), Meant::NothingAsked);
    }
}
