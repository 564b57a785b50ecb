//! What `codex exec --json` writes for a turn: one event a line, whole texts only.
//!
//! A turn went well if `turn.completed` comes. An `error` alone does not end it, and the stream
//! may end without a word. Usage is counted over the thread, across processes. Names of items are
//! unique within a process only.

use serde_json::Value;

use super::items::{attempt, completed, failed, snake_usage, started};
use crate::provider::activity::{Activity, Event, TurnOver, text};
use crate::provider::failure::Failed;
use crate::provider::meter::Totals;
use crate::provider::progress::Progress;

/// Nothing is asked outside of turns.
pub type Answer = std::convert::Infallible;

/// The output of one process, which runs one turn.
#[derive(Debug, Default)]
pub struct Stream {
    turn: Progress<Answer, ()>,
    totals: Totals,
    failed: Option<Failed>,
}

impl Stream {
    /// The output of a process that goes on with what was counted so far.
    pub fn new(totals: Totals) -> Self {
        Self { totals, ..Self::default() }
    }

    /// What was counted so far, to be kept with the thread.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The output ended before the turn did.
    pub fn end(&mut self) -> Vec<Event<Answer>> {
        let failed = self.failed.take().unwrap_or_else(Failed::ended);
        self.turn.over(TurnOver::Failed(failed));
        self.turn.take()
    }

    /// What a line says.
    pub fn read(&mut self, line: &str) -> Vec<Event<Answer>> {
        match serde_json::from_str::<Value>(line) {
            Ok(event) if event.is_object() => self.event(&event),
            _ => self.turn.stray(line),
        }
        self.turn.take()
    }

    fn event(&mut self, event: &Value) {
        match text(event, "type") {
            "thread.started" => {
                self.turn.push(Activity::Session(text(event, "thread_id").to_owned()));
            }
            "item.started" => started(&mut self.turn, &event["item"]),
            "item.completed" => completed(&mut self.turn, &event["item"]),
            "error" => self.error(event),
            "turn.completed" => {
                let used = self.totals.advance(snake_usage(&event["usage"]));
                if !used.is_zero() {
                    self.turn.push(Activity::Used(used));
                }
                self.failed = None;
                self.turn.complete(None);
            }
            "turn.failed" => {
                self.failed = None;
                self.turn.over(TurnOver::Failed(failed(&event["error"])));
            }
            _ => self.turn.alive(),
        }
    }

    fn error(&mut self, error: &Value) {
        let found = failed(error);
        if let Some(attempt) = attempt(&found.message) {
            self.turn.push(Activity::Retrying {
                attempt,
                delay: found.retry_after,
                failure: found.kind,
                message: found.message,
            });
        } else {
            self.turn.alive();
            self.failed = Some(found);
        }
    }
}
