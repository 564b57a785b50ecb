//! What lies in the inbox of an agent, and what it goes on with.
//!
//! A message stays until a turn completes with it. One that a backend refuses would be in every
//! turn that follows, and fail it: so messages of a refused turn come again one by one, and what is
//! refused once more is set aside. It lies in the inbox, in no turn, until USER lets it be tried
//! again or discards it.

use super::{Activity, Agent, Message, MessageId, Priority, Reminder, Timestamp};

impl Agent {
    /// Whether a message starts a turn: an answer to a multicast does not before that is over.
    pub(super) fn wakes(&self, message: &Message) -> bool {
        let held = |asked| self.multicasts.iter().any(|multicast| multicast.has(asked));
        !message.reply_to.is_some_and(held)
    }

    /// Whether mail lies in the inbox that a turn did not complete with, and the agent does not go
    /// on by itself.
    fn stalls(&self) -> bool {
        matches!(self.activity, Activity::Idle)
            && !self.is_to_run()
            && self.has_unread()
            && !self.account.is_held()
    }

    /// Goes on with the mail that lies there, if it does not by itself.
    pub(super) fn go_on_with_mail(&mut self, seq: u64) {
        if self.stalls() {
            self.want_turn(seq);
        }
    }

    /// Whether a reminder that is due comes now: not while its last message is still to be read.
    pub(super) fn hears(&self, reminder: &Reminder) -> bool {
        !reminder.lies || self.stalls()
    }

    /// Whether a message that starts a turn waits in the inbox, outside of the running turn.
    pub(super) fn has_mail(&self) -> bool {
        self.unread().any(|message| self.wakes(message))
    }

    /// The same of what came since the running turn started: that has not been tried.
    pub(super) fn has_new_mail(&self) -> bool {
        let start = self.turn().map_or(0, |turn| turn.seq);
        self.unread().any(|message| message.since() > start && self.wakes(message))
    }

    /// The message with this id, if it is in the inbox.
    pub fn message(&self, id: MessageId) -> Option<&Message> {
        self.inbox.iter().find(|message| message.id == id)
    }

    /// Messages that belong to no running turn and are not set aside, in the order in which they
    /// are delivered.
    pub fn unread(&self) -> impl Iterator<Item = &Message> {
        self.idle_mail().filter(|message| !message.set_aside)
    }

    /// Messages that belong to no running turn, those that are set aside included.
    pub fn idle_mail(&self) -> impl Iterator<Item = &Message> {
        let taken = self.turn().map_or(&[][..], |turn| &turn.messages);
        self.inbox.iter().filter(move |message| !taken.contains(&message.id))
    }

    /// Whether a message lies in the inbox since its turn did not complete, and the agent does not
    /// go on by itself.
    pub fn leaves(&self, id: MessageId) -> bool {
        let goes_on = self.turn().is_some() || self.is_to_run();
        self.message(id).is_some_and(|message| message.set_aside || !goes_on)
    }

    /// Puts a message into the inbox.
    pub(super) fn insert(&mut self, message: Message) {
        let place = match message.priority() {
            Priority::Normal => self.inbox.len(),
            Priority::High => self
                .inbox
                .iter()
                .position(|other| other.priority() == Priority::Normal)
                .unwrap_or(self.inbox.len()),
        };
        self.inbox.insert(place, message);
    }

    fn message_mut(&mut self, id: MessageId) -> Option<&mut Message> {
        self.inbox.iter_mut().find(|message| message.id == id)
    }

    /// The backend refused the running turn, and each message of it may be why.
    pub(super) fn suspect_messages(&mut self) {
        for id in self.turn().map_or_else(Vec::new, |turn| turn.messages.clone()) {
            if let Some(message) = self.message_mut(id) {
                message.refusals = message.refusals.saturating_add(1);
            }
        }
    }

    /// Lets the other mail, and reminders, go on without a message.
    pub(super) fn set_aside(&mut self, id: MessageId, (seq, at): (u64, Timestamp)) {
        let Some(message) = self.message_mut(id) else { return };
        message.set_aside = true;
        let message = message.clone();
        self.heard(&message, at);
        self.go_on_with_mail(seq);
    }

    /// Goes on with a message as if it had come now.
    pub(super) fn try_again(&mut self, id: MessageId, seq: u64) {
        if let Some(message) = self.message_mut(id) {
            (message.refusals, message.set_aside, message.retried) = (0, false, Some(seq));
            // What it is answered now is told whoever asked, after the error that was told then.
            message.answered = false;
            self.go_on_with_mail(seq);
        }
    }

    /// Starts no turn where what it was to be about is gone.
    pub(super) fn rest_without_mail(&mut self) {
        let idle = matches!(self.activity, Activity::Idle);
        if idle && !self.has_unread() {
            self.want_no_turn();
        }
    }

    fn has_unread(&self) -> bool {
        self.unread().next().is_some()
    }
}
