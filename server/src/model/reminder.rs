//! Reminders: messages to oneself, later.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Agent, Message, ReminderFired, ReminderId, Timestamp};

/// A reminder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reminder {
    /// Identity.
    pub id: ReminderId,
    /// What it reminds of.
    pub reason: Arc<str>,
    /// When it is due next.
    pub due: Timestamp,
    /// Seconds between repetitions; none for once only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// Whether its last message still lies in the inbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lies: bool,
}

/// Metadata key of the message that a reminder sends.
pub(super) const KEY: &str = "reminder_id";

impl Reminder {
    /// When it is due after it was told at `now`; none if it is over. Times that were missed are
    /// not made up for, and the rhythm stays.
    pub(super) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let every = Duration::from_secs(self.every?.max(1));
        let missed = now.since(self.due).as_secs() / every.as_secs();
        let ahead = every.checked_mul(u32::try_from(missed + 1).unwrap_or(u32::MAX));
        Some(self.due.after(ahead.unwrap_or(Duration::MAX)))
    }
}

impl Agent {
    pub(super) fn remind(&mut self, data: &ReminderFired, seq: u64) {
        let Some(place) = self.reminders.iter().position(|one| one.id == data.reminder_id) else {
            return;
        };
        let reminder = &mut self.reminders[place];
        match data.next {
            Some(next) => {
                reminder.due = next;
                reminder.lies |= data.told;
            }
            None => {
                self.reminders.remove(place);
            }
        }
        if !data.told {
            self.go_on_with_mail(seq);
        }
    }

    /// A message left the inbox. Times of its reminder that went by meanwhile are not made up for.
    pub(super) fn heard(&mut self, message: &Message, at: Timestamp) {
        let Some(id) = message.metadata.get(KEY) else { return };
        let reminder = self.reminders.iter_mut().find(|one| one.lies && one.id.to_string() == *id);
        if let Some(reminder) = reminder {
            reminder.lies = false;
            if reminder.due <= at {
                reminder.due = reminder.next(at).unwrap_or(reminder.due);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_reminder_keeps_its_rhythm_and_makes_up_for_nothing() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let reminder = |every| Reminder {
            id: ReminderId::from_u64(1),
            reason: "tea".into(),
            due: at(100),
            every,
            lies: false,
        };
        assert_eq!(reminder(None).next(at(100)), None);
        assert_eq!(reminder(Some(60)).next(at(100)), Some(at(160)));
        assert_eq!(reminder(Some(60)).next(at(159)), Some(at(160)));
        assert_eq!(reminder(Some(60)).next(at(160)), Some(at(220)));
        assert_eq!(reminder(Some(60)).next(at(1_000)), Some(at(1_060)));
    }
}
