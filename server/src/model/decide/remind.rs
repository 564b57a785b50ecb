//! Reminders: set, ended, told when they are due.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::Plan;
use super::agent::check_text;
use super::message::Letter;
use crate::model::{
    Agent, CancelReminder, Kind, Party, Rejection, RemindMe, ReminderCancelled, ReminderFired,
    ReminderId, ReminderSet,
};

/// Longest time until a reminder, and between its repetitions, in seconds: ten years.
const LONGEST: u64 = 10 * 365 * 86_400;
/// Metadata key of the message that a reminder sends.
const KEY: &str = "reminder_id";

impl Plan<'_, '_> {
    pub(super) fn tool_remind_me(
        &mut self,
        agent: &Agent,
        args: RemindMe,
    ) -> Result<Value, Rejection> {
        check_text(&args.reason, self.cx.policy.max_text)?;
        if args.every == Some(0) {
            return Err(Rejection::ReminderInvalid { problem: "every is 0" });
        }
        if args.after.max(args.every.unwrap_or(0)) > LONGEST {
            return Err(Rejection::ReminderInvalid { problem: "it is more than ten years away" });
        }
        let limit = self.cx.policy.max_reminders;
        if agent.reminders.len() >= limit {
            return Err(Rejection::TooMany { what: "reminders", limit });
        }
        let reminder_id = ReminderId::fresh(self.cx.ids);
        let due = self.cx.now.after(Duration::from_secs(args.after));
        let (reason, every) = (args.reason.into(), args.every);
        self.push(agent.session.id, ReminderSet { reminder_id, reason, due, every });
        Ok(json!({ "status": "set", "reminder_id": reminder_id, "due": due }))
    }

    pub(super) fn tool_cancel_reminder(
        &mut self,
        agent: &Agent,
        args: &CancelReminder,
    ) -> Result<Value, Rejection> {
        let found = agent.reminders.iter().find(|one| one.id.to_string() == args.reminder_id);
        let Some(reminder) = found else {
            let id = args.reminder_id.chars().take(80).collect();
            return Err(Rejection::ReminderNotFound { id });
        };
        self.push(agent.session.id, ReminderCancelled { reminder_id: reminder.id });
        Ok(json!({ "status": "cancelled" }))
    }

    /// Tells the reminders of an agent that are due. One whose last message was not read yet is
    /// not told again: a reminder that nobody hears must not fill the inbox.
    pub(super) fn remind(&mut self, agent: &Agent) {
        let now = self.cx.now;
        for reminder in agent.reminders.iter().filter(|reminder| reminder.due <= now) {
            let id = reminder.id.to_string();
            let told = !agent.unread().any(|message| message.metadata.get(KEY) == Some(&id));
            let (reminder_id, next) = (reminder.id, reminder.next(now));
            self.push(agent.session.id, ReminderFired { reminder_id, told, next });
            if told {
                let text = format!("Reminder: {}", reminder.reason);
                self.enqueue(Letter {
                    metadata: BTreeMap::from([(KEY.to_owned(), id)]),
                    ..Letter::new(Party::System, Party::Agent(agent.id), Kind::Notification, text)
                });
            }
        }
    }
}
