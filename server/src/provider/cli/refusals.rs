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
/// How often less is told. If that is too long as well, it is not the conversation that is.
const TIMES: u32 = 3;

/// What becomes of a conversation by the end of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It goes on.
    Kept,
    /// It is of no use any more.
    GivenUp,
    /// It is too long. The same turn may do in a new one, which is told less.
    TooLong,
}

/// Refusals since a turn completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Refusals {
    /// Of conversations that were too long: no more than less is told.
    pub(super) overflows: u32,
    /// Of what was wrong in another way, since the conversation was begun.
    pub(super) others: u32,
}

impl Refusals {
    /// Takes the end of a turn. A conversation is given up at once if it is too long, and when it
    /// is refused twice for anything else that may be in it.
    pub(super) fn take(&mut self, over: &TurnOver) -> Fate {
        let kind = match over {
            TurnOver::Completed { .. } => {
                *self = Self::default();
                return Fate::Kept;
            }
            TurnOver::Cancelled => return Fate::Kept,
            TurnOver::Failed(failed) => failed.kind,
        };
        let fate = match kind {
            FailureKind::Overflow if self.overflows < TIMES => {
                self.overflows += 1;
                Fate::TooLong
            }
            FailureKind::Overflow => {
                // What the turn was asked is. The next one need not lose more by it.
                self.overflows = 1;
                Fate::GivenUp
            }
            FailureKind::InvalidRequest | FailureKind::Protocol | FailureKind::Other => {
                self.others += 1;
                if self.others < 2 {
                    return Fate::Kept;
                }
                Fate::GivenUp
            }
            _ => return Fate::Kept,
        };
        self.others = 0;
        fate
    }

    /// How many bytes of the conversation are told to a new one.
    pub(super) fn may_tell(self) -> usize {
        match self.overflows.checked_sub(1) {
            None => usize::MAX,
            Some(again) => MAX_TOLD >> (LESS * again.min(TIMES - 1)),
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
        let mut take = || (refusals.take(&failed(FailureKind::Overflow)), refusals.may_tell());
        let less = [128 << 10, 32 << 10, 8 << 10].map(|most| (Fate::TooLong, most));
        assert_eq!([take(), take(), take()], less);
        // Where even that is too long, it is not for what was said before.
        assert_eq!(take(), (Fate::GivenUp, 128 << 10));
        assert_eq!([take(), take()], [less[1], less[2]]);
        assert_eq!(take(), (Fate::GivenUp, 128 << 10));
        assert_eq!(refusals.take(&TurnOver::Completed { response: "".into() }), Fate::Kept);
        assert_eq!(refusals, Refusals::default());
        // What an older version kept may be any number.
        assert_eq!(Refusals { overflows: u32::MAX, others: 0 }.may_tell(), 8 << 10);
    }

    #[test]
    fn a_conversation_is_given_up_when_it_is_refused_twice() {
        let mut refusals = Refusals::default();
        let mut take = |kind| refusals.take(&failed(kind));
        assert_eq!(take(FailureKind::InvalidRequest), Fate::Kept);
        assert_eq!(take(FailureKind::Network), Fate::Kept);
        assert_eq!(take(FailureKind::Protocol), Fate::GivenUp);
        assert_eq!(take(FailureKind::InvalidRequest), Fate::Kept, "the new one has one more");
        for kind in [FailureKind::Auth, FailureKind::Limit, FailureKind::RateLimit] {
            assert_eq!(take(kind), Fate::Kept);
        }
    }
}
