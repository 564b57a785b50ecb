//! What the turns of a session were refused for.
//!
//! A command-line agent keeps its conversation, also what its model refused in it: that is in every
//! request that follows, and each is refused again. So such a conversation is begun anew, and told
//! from the log.

use serde::{Deserialize, Serialize};

use crate::provider::activity::TurnOver;
use crate::provider::failure::FailureKind;

/// Bytes of a conversation that are told after one was too long: about a quarter of what the
/// smallest models of such agents take.
const MAX_TOLD: usize = 128 << 10;
/// By how many bits less is told with each one that is too long again.
const LESS: u32 = 2;

/// Refusals since a turn completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Refusals {
    /// Of conversations that were too long.
    pub(super) overflows: u32,
    /// Of what was wrong in another way, since the conversation was begun.
    pub(super) others: u32,
}

impl Refusals {
    /// Takes the end of a turn. Whether its conversation is of no use any more: one that is too
    /// long at once, and one that is refused twice for anything else that may be in it.
    pub(super) fn take(&mut self, over: &TurnOver) -> bool {
        let kind = match over {
            TurnOver::Completed { .. } => {
                *self = Self::default();
                return false;
            }
            TurnOver::Cancelled => return false,
            TurnOver::Failed(failed) => failed.kind,
        };
        match kind {
            FailureKind::Overflow => self.overflows += 1,
            FailureKind::InvalidRequest | FailureKind::Protocol | FailureKind::Other => {
                self.others += 1;
                if self.others < 2 {
                    return false;
                }
            }
            _ => return false,
        }
        self.others = 0;
        true
    }

    /// How many bytes of the conversation are told to a new one.
    pub(super) fn may_tell(self) -> usize {
        match self.overflows.checked_sub(1) {
            None => usize::MAX,
            Some(again) => MAX_TOLD.checked_shr(LESS * again).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::failure::Failed;

    fn failed(kind: FailureKind) -> TurnOver {
        TurnOver::Failed(Failed::new(kind, "no"))
    }

    #[test]
    fn a_conversation_that_is_too_long_is_told_in_less_and_less() {
        let mut refusals = Refusals::default();
        assert_eq!(refusals.may_tell(), usize::MAX);
        let mut told = Vec::new();
        for _ in 0..12 {
            assert!(refusals.take(&failed(FailureKind::Overflow)));
            told.push(refusals.may_tell());
        }
        assert_eq!(told[..3], [128 << 10, 32 << 10, 8 << 10]);
        assert!(told.is_sorted_by(|a, b| a > b || (*a, *b) == (0, 0)), "{told:?}");
        assert_eq!(told.last(), Some(&0));
        assert!(!refusals.take(&TurnOver::Completed { response: "".into() }));
        assert_eq!(refusals, Refusals::default());
    }

    #[test]
    fn a_conversation_is_given_up_when_it_is_refused_twice() {
        let mut refusals = Refusals::default();
        let mut take = |kind| refusals.take(&failed(kind));
        assert!(!take(FailureKind::InvalidRequest));
        assert!(!take(FailureKind::Network));
        assert!(take(FailureKind::Protocol));
        assert!(!take(FailureKind::InvalidRequest), "the new one has one more");
        for kind in [FailureKind::Auth, FailureKind::Limit, FailureKind::RateLimit] {
            assert!(!take(kind));
        }
    }
}
