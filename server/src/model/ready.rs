//! What an agent wants to go on with: a turn, or no more than its session live.

use serde::{Deserialize, Serialize};

use super::{Agent, Gate, GateAction};

/// An agent wants to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Sequence of the event since which it does: its place in the queue for a slot.
    pub since: u64,
    /// Whether it is its session that is wanted live, without a turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    resume_only: bool,
    /// Whether its session is wanted live, too, where its turn may not start yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    resumes_too: bool,
}

impl Ready {
    /// It wants a turn.
    pub(super) fn for_turn(since: u64) -> Self {
        Self { since, resume_only: false, resumes_too: false }
    }

    /// Whether it wants a turn.
    pub fn is_for_turn(self) -> bool {
        !self.resume_only
    }

    /// Whether its session is wanted live, whether or not a turn may start.
    pub fn resumes(self) -> bool {
        self.resume_only || self.resumes_too
    }

    fn to_resume(since: u64) -> Self {
        Self { resume_only: true, ..Self::for_turn(since) }
    }

    fn without_turn(self) -> Option<Self> {
        self.resumes().then_some(Self::to_resume(self.since))
    }
}

impl Agent {
    /// Whether it wants a turn, which may have to wait.
    pub(super) fn is_to_run(&self) -> bool {
        self.ready.is_some_and(Ready::is_for_turn)
    }

    /// Whether there is something for a turn of it, and nothing of its own that holds it back.
    pub(super) fn wants_turn(&self) -> bool {
        self.is_to_run() && self.may_start()
    }

    /// Wants a turn from an event on, if it did not before.
    pub(super) fn want_turn(&mut self, seq: u64) {
        self.ready = Some(match self.ready {
            Some(ready) => Ready { resume_only: false, resumes_too: ready.resumes(), ..ready },
            None => Ready::for_turn(seq),
        });
    }

    /// Wants no turn any more.
    pub(super) fn want_no_turn(&mut self) {
        self.ready = self.ready.and_then(Ready::without_turn);
    }

    /// Wants its session live from an event on.
    pub(super) fn want_session(&mut self, seq: u64) {
        self.ready = Some(match self.ready {
            Some(ready) if ready.is_for_turn() => Ready { resumes_too: true, ..ready },
            Some(ready) => ready,
            None => Ready::to_resume(seq),
        });
    }

    /// Has its session live.
    pub(super) fn has_session(&mut self) {
        self.ready = self.ready.filter(|ready| ready.is_for_turn());
        if let Some(ready) = &mut self.ready {
            ready.resumes_too = false;
        }
    }

    /// Closes its gate or opens it. Permits are of one closed gate, and end with that.
    pub(super) fn set_gate(&mut self, action: GateAction) {
        self.gate = match action {
            GateAction::Gate => Gate::Gated { permits: 0 },
            GateAction::Ungate => Gate::Open,
        };
        if let Some(turn) = self.turn_mut() {
            turn.permitted = false;
        }
    }

    /// Permits one more turn, if its gate is closed.
    pub(super) fn give_permit(&mut self) {
        if let Gate::Gated { permits } = &mut self.gate {
            *permits += 1;
        }
    }

    /// Uses a permit up, if its gate is closed. Whether it did.
    pub(super) fn use_permit(&mut self) -> bool {
        let Gate::Gated { permits } = &mut self.gate else { return false };
        let left = permits.checked_sub(1);
        *permits = left.unwrap_or_default();
        left.is_some()
    }

    /// Gives the permit of a turn back that did not come to its end.
    pub(super) fn give_permit_back(&mut self) {
        if self.turn().is_some_and(|turn| turn.permitted) {
            self.give_permit();
        }
    }
}
