//! Reminders: set, ended, told when they are due.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::Plan;
use super::agent::check_text;
use super::message::Letter;
use crate::model::reminder::KEY;
use crate::model::{
    Agent, CancelReminder, Kind, Party, Rejection, RemindMe, ReminderCancelled, ReminderFired,
    ReminderId, ReminderSet,
};

/// Longest time until a reminder, and between its repetitions, in seconds: ten years.
const LONGEST: u64 = 10 * 365 * 86_400;
/// How much later a reminder comes that finds the inbox full.
const LATER: Duration = Duration::from_secs(60);

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

    /// Tells the reminders of an agent that are due. One whose last message was not read yet sends
    /// no other, so that it does not fill the inbox; but it wakes the agent if that does not go on
    /// by itself.
    pub(super) fn remind(&mut self, agent: &Agent) {
        let now = self.cx.now;
        let mut room = match self.check_space(Party::Agent(agent.id)) {
            Ok(()) => self.cx.policy.max_inbox.saturating_sub(agent.inbox.len()),
            Err(_) => 0,
        };
        for reminder in agent.reminders.iter().filter(|one| one.due <= now && agent.hears(one)) {
            let told = !reminder.lies && room > 0;
            let (id, reminder_id) = (reminder.id.to_string(), reminder.id);
            let next = if room > 0 { reminder.next(now) } else { Some(now.after(LATER)) };
            self.push(agent.session.id, ReminderFired { reminder_id, told, next });
            if told {
                room -= 1;
                let text = format!("Reminder: {}", reminder.reason);
                self.enqueue(Letter {
                    metadata: BTreeMap::from([(KEY.to_owned(), id)]),
                    ..Letter::new(Party::System, Party::Agent(agent.id), Kind::Notification, text)
                });
            }
        }
    }
}
