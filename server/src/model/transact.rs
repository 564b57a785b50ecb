//! One command, all the way: decide, apply, and start what has become possible.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::decide::Draft;
use super::{
    AgentId, CallId, Command, Context, Effect, Entry, Outcome, Rejection, Request, State, TurnId,
    decide, effect, next_step,
};

/// What a command came to. Its entries are one atomic record.
#[derive(Debug, Clone, PartialEq)]
pub struct Transaction {
    /// The events in order, applied already.
    pub entries: Vec<Entry>,
    /// What is to be done in the world once they are durable.
    pub effects: Vec<Effect>,
    /// What the caller is told once they are durable.
    pub outcome: Outcome,
}

/// Decides a command, applies its events, and starts what has become possible by it.
///
/// # Errors
///
/// A rejection changes nothing. A panic in the decision is one, too ([`Rejection::Bug`]).
pub fn transact(
    state: &mut State,
    cx: &mut Context<'_>,
    command: Command,
    request: Option<&Request>,
) -> Result<Transaction, Rejection> {
    let decision = guard(|| decide(state, cx, command, request))??;
    let mut done =
        Transaction { entries: Vec::new(), effects: Vec::new(), outcome: decision.outcome };
    done.take(state, cx, decision.events);
    start_possible(state, cx, &mut done);
    Ok(done)
}

/// Applies events that were decided elsewhere, and starts what has become possible by them.
pub fn settle(state: &mut State, cx: &mut Context<'_>, events: Vec<Draft>) -> Transaction {
    let mut done = Transaction { entries: Vec::new(), effects: Vec::new(), outcome: Outcome::Done };
    done.take(state, cx, events);
    start_possible(state, cx, &mut done);
    done
}

fn start_possible(state: &mut State, cx: &mut Context<'_>, done: &mut Transaction) {
    // A panic here leaves what is applied so far, which is consistent: each step is whole.
    while let Ok(events) = guard(|| next_step(state, cx)) {
        if events.is_empty() {
            break;
        }
        done.take(state, cx, events);
    }
}

fn guard<T>(f: impl FnOnce() -> T) -> Result<T, Rejection> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let what = panic
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| panic.downcast_ref::<String>().cloned());
        Rejection::Bug { what: what.unwrap_or_else(|| "a panic without text".to_owned()) }
    })
}

impl Transaction {
    fn take(&mut self, state: &mut State, cx: &Context<'_>, events: Vec<Draft>) {
        for draft in events {
            let entry = Entry::number(draft, state.seq() + 1, cx.now);
            state.apply(&entry);
            self.effects.extend(effect(state, &entry));
            self.entries.push(entry);
        }
        // A call that was refused, or is over for another reason, has nothing done for it.
        let is_open = |agent: AgentId, turn: TurnId, call: CallId| {
            let turn = state.agent(agent).and_then(|agent| agent.turn_is(turn));
            turn.is_some_and(|turn| turn.calls.iter().any(|open| open.id == call))
        };
        self.effects.retain(|effect| match effect {
            Effect::RunTool { agent, turn, call, .. }
            | Effect::Inspect { agent, turn, call, .. } => is_open(*agent, *turn, *call),
            _ => true,
        });
    }
}
