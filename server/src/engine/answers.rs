//! Who waits for the answers to messages, and what they are told.

use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use super::Answer;
use crate::model::{AgentId, Commit, DiscardReason, Event, MessageId, State};

/// Callers that wait for answers, by the messages that they sent.
#[derive(Default)]
pub(super) struct Answers {
    waiting: FxHashMap<MessageId, Vec<oneshot::Sender<Answer>>>,
}

impl Answers {
    pub(super) fn wait(&mut self, message: MessageId, waiter: oneshot::Sender<Answer>) {
        self.waiting.entry(message).or_default().push(waiter);
    }

    /// Whether someone waits right now for the answer to a message.
    pub(super) fn is_attended(&self, message: MessageId) -> bool {
        let waiters = self.waiting.get(&message);
        waiters.is_some_and(|waiters| waiters.iter().any(|waiter| !waiter.is_closed()))
    }

    /// Tells those who wait what became of their messages.
    pub(super) fn take(&mut self, commit: &Commit) {
        for line in &commit.lines {
            match &line.entry.event {
                Event::TurnComplete(data) => {
                    let (turn, sequence) = (data.turn_id, line.entry.seq);
                    let response = data.response.clone();
                    let answer = Answer::Completed { turn, response, sequence };
                    self.tell(&data.answers, &answer);
                }
                Event::TurnFailed(data) => {
                    let (turn, class, error) = (data.turn_id, data.class, data.error.clone());
                    self.tell(&data.messages, &Answer::Failed { turn, class, error });
                }
                Event::TurnCancelled(data) => {
                    self.tell(&data.messages, &Answer::Cancelled { turn: data.turn_id });
                }
                Event::TurnRefused(data) => {
                    self.tell(&data.messages, &Answer::Refused(data.excess()));
                }
                Event::MessageDiscarded(data) => match data.reason {
                    DiscardReason::Terminated => self.tell(&[data.message_id], &Answer::Terminated),
                    DiscardReason::Withdrawn => self.tell(&[data.message_id], &Answer::Discarded),
                    // Told with the end of its turn.
                    DiscardReason::Cancelled => {}
                },
                _ => {}
            }
        }
    }

    fn tell(&mut self, messages: &[MessageId], answer: &Answer) {
        for message in messages {
            for waiter in self.waiting.remove(message).unwrap_or_default() {
                // Whoever waited may have gone.
                let _ = waiter.send(answer.clone());
            }
        }
    }
}

/// Why a message that was sent is not going to be answered as things stand.
pub(super) fn unanswered(state: &State, agent: AgentId, message: MessageId) -> Option<Answer> {
    // One that has ended answers nothing any more; nor does one that is forgotten.
    let Some(agent) = state.agent(agent).filter(|agent| agent.is_live()) else {
        return Some(Answer::Terminated);
    };
    if agent.message(message).is_none() {
        return Some(Answer::Discarded);
    }
    let held = Some(agent).filter(|agent| agent.leaves(message))?.account.is_held();
    let excess = if held { state.excess(agent) } else { None };
    Some(excess.map_or(Answer::Left, Answer::Refused))
}
