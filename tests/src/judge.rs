//! Judging the log of a daemon from outside.

use std::collections::BTreeMap;

use substrat_proto::v1;

use crate::harness::text;

/// What a session may be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Session {
    #[default]
    Created,
    Active,
    Suspending,
    Suspended,
    Terminated,
}

#[derive(Debug, Default)]
struct Log {
    session: Session,
    turn: Option<String>,
    waits: bool,
}

impl Log {
    fn holds_slot(&self) -> bool {
        matches!(self.session, Session::Active | Session::Suspending) && !self.waits
    }
}

/// Asserts that events are numbered without a gap, and that every session and turn goes the way
/// that it may go. Returns the most slots that were held at once.
pub fn judge(events: &[v1::Event]) -> usize {
    let mut logs: BTreeMap<&str, Log> = BTreeMap::new();
    let (mut held, mut most) = (0, 0);
    for (number, event) in (1..).zip(events) {
        assert_eq!(event.sequence, number, "{event:?}");
        if event.session_id.is_empty() {
            continue;
        }
        let log = logs.entry(&event.session_id).or_default();
        let held_before = log.holds_slot();
        let turn = || Some(text(event, "turn_id").to_owned());
        let went = match event.r#type.as_str() {
            "session.opened" => step(&mut log.session, &[Session::Created], Session::Active),
            "session.restored" => step(&mut log.session, &[Session::Suspended], Session::Active),
            "session.suspending" => {
                log.turn.is_none()
                    && step(&mut log.session, &[Session::Active], Session::Suspending)
            }
            "suspend.result" => {
                let from = [Session::Active, Session::Suspending];
                log.turn.is_none() && step(&mut log.session, &from, Session::Suspended)
            }
            "agent.terminated" => {
                log.turn = None;
                log.waits = false;
                std::mem::replace(&mut log.session, Session::Terminated) != Session::Terminated
            }
            "turn.start" => {
                log.session == Session::Active && std::mem::replace(&mut log.turn, turn()).is_none()
            }
            "turn.waiting" => log.turn == turn() && !std::mem::replace(&mut log.waits, true),
            "turn.resumed" => log.turn == turn() && std::mem::replace(&mut log.waits, false),
            "turn.complete" => log.turn.take() == turn() && !log.waits,
            "turn.failed" | "turn.cancelled" | "turn.interrupted" => {
                log.waits = false;
                log.turn.take() == turn()
            }
            _ => true,
        };
        assert!(went, "{log:?} came from {event:?}");
        held = held + usize::from(log.holds_slot()) - usize::from(held_before);
        most = most.max(held);
    }
    most
}

fn step(session: &mut Session, from: &[Session], to: Session) -> bool {
    from.contains(&std::mem::replace(session, to))
}
