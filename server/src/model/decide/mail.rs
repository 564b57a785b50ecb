//! What becomes of messages that no turn completed with.

use super::Plan;
use super::turn::messages_of;
use crate::model::{
    Agent, DiscardReason, FailureClass, Kind, Message, MessageDiscarded, MessageId, MessageRetried,
    Outcome, Party, Rejection, Turn,
};

/// What a sender is told whose message USER discards.
const WITHDRAWN: &str = "USER discarded the message before it was answered";

impl Plan<'_, '_> {
    /// Those of a turn's messages that are not tried again: an earlier turn with them was refused,
    /// too.
    pub(super) fn refused_again<'a>(
        &self,
        agent: &'a Agent,
        turn: &'a Turn,
        class: FailureClass,
    ) -> Vec<&'a Message> {
        // Alone in its turn, it is why that failed, however it did.
        let blamed = !turn.blamed(class).spares_messages();
        messages_of(agent, turn).filter(|message| blamed && message.is_suspect()).collect()
    }

    /// Tells an agent what other agents said that it will not read: it can ask them again.
    pub(super) fn tell_refused(&mut self, agent: &Agent, refused: &[&Message]) {
        for message in refused.iter().filter(|message| message.sender.agent().is_some()) {
            let text = format!(
                "{}. You have not read it: if you need it, ask {} for it in another form, such as \
                 in parts",
                set_aside(message),
                message.sender_name
            );
            self.tell(Party::Agent(agent.id), Kind::Notification, text);
        }
    }

    /// USER wants a turn with messages that lie in an inbox: these, or all.
    pub(super) fn retry_messages(
        &mut self,
        reference: &str,
        messages: &[MessageId],
    ) -> Result<Outcome, Rejection> {
        if self.cx.policy.draining {
            return Err(Rejection::Draining);
        }
        let agent = self.state.resolve(reference)?;
        if let Some(excess) = self.state.excess(agent) {
            return Err(Rejection::BudgetExhausted { name: agent.name.clone(), excess });
        }
        let found = lying(agent, messages)?;
        for message_id in found {
            self.push(agent.session.id, MessageRetried { message_id });
        }
        Ok(Outcome::Agent(agent.id))
    }

    /// USER does not want messages to be delivered that lie in an inbox.
    pub(super) fn discard_messages(
        &mut self,
        reference: &str,
        messages: &[MessageId],
    ) -> Result<Outcome, Rejection> {
        let agent = self.state.resolve(reference)?;
        let found = if messages.is_empty() { Vec::new() } else { lying(agent, messages)? };
        for message_id in &found {
            let (message_id, reason) = (*message_id, DiscardReason::Withdrawn);
            self.push(agent.session.id, MessageDiscarded { message_id, reason });
        }
        for message in found.iter().filter_map(|id| agent.message(*id)) {
            // USER knows, and who waits for an answer is told with the event.
            let waits = message.kind.wants_answer() && !message.answered;
            if waits && message.sender != Party::User {
                self.answer(agent, message, Kind::Error, WITHDRAWN.into());
            }
        }
        Ok(Outcome::Agent(agent.id))
    }
}

/// The messages of an inbox that no turn has, or is about to read: these, or all.
fn lying(agent: &Agent, asked: &[MessageId]) -> Result<Vec<MessageId>, Rejection> {
    let read = agent.answer().map(|message| message.id);
    let all = agent.idle_mail().map(|message| message.id).filter(|id| Some(*id) != read);
    let all: Vec<MessageId> = all.collect();
    let not_found = |id: Option<MessageId>| Rejection::MessageNotFound {
        name: agent.name.clone(),
        id,
        taken: id.is_some_and(|id| agent.message(id).is_some()),
    };
    if asked.is_empty() {
        return if all.is_empty() { Err(not_found(None)) } else { Ok(all) };
    }
    if let Some(id) = asked.iter().find(|id| !all.contains(id)) {
        return Err(not_found(Some(*id)));
    }
    Ok(all.into_iter().filter(|id| asked.contains(id)).collect())
}

/// What is told of a message that is set aside.
pub(super) fn set_aside(message: &Message) -> String {
    let (kind, from, bytes) = (message.kind.as_str(), &message.sender_name, message.text.len());
    let times = message.refusals + 1;
    format!(
        "message {} ({kind} from {from}, {bytes} bytes) is set aside: {times} turns with it were \
         refused. It is kept, and USER can let it be tried again or discard it",
        message.id
    )
}
