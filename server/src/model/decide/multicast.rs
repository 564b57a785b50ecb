//! Multicasts: sent to every sibling, and over when all have answered or the time is up.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::Plan;
use super::agent::check_text;
use super::message::Letter;
use crate::model::{
    Agent, AgentId, Broadcast, Kind, Multicast, MulticastEnded, MulticastId, MulticastSent, Name,
    Party, Rejection, Sent,
};

/// Most bytes that one broadcast may put into inboxes.
const MAX_BYTES: usize = 4 << 20;
/// Names of a team that are told one by one.
const MAX_NAMES: usize = 20;

impl Plan<'_, '_> {
    pub(super) fn tool_broadcast(
        &mut self,
        agent: &Agent,
        args: Broadcast,
    ) -> Result<Value, Rejection> {
        let team: Vec<AgentId> = self.state.team(agent).collect();
        if team.is_empty() {
            return Err(Rejection::NoTeam { sender: agent.name.clone() });
        }
        let policy = self.cx.policy;
        check_text(&args.text, policy.max_text.min(MAX_BYTES / team.len()))?;
        for id in &team {
            self.check_room(Party::Agent(*id))?;
        }
        let wait = args
            .timeout
            .map_or(policy.multicast_timeout, |seconds| Duration::from_secs(seconds.into()));
        let until = self.cx.now.after(wait);
        let multicast_id = MulticastId::fresh(self.cx.ids);
        let text: Arc<str> = args.text.into();
        let mut copies = Vec::with_capacity(team.len());
        for recipient in team {
            let (from, to) = (Party::Agent(agent.id), Party::Agent(recipient));
            let mut letter = Letter::new(from, to, Kind::Multicast, text.clone());
            letter.set_priority(args.priority);
            letter.metadata.insert("multicast_id".to_owned(), multicast_id.to_string());
            let message = self.enqueue(letter);
            copies.push(Sent { message, recipient, answered: false, failed: false });
        }
        let ids: Vec<_> = copies.iter().map(|copy| copy.message).collect();
        self.push(agent.session.id, MulticastSent { multicast_id, copies, until });
        Ok(json!({
            "status": "sent",
            "multicast_id": multicast_id,
            "recipient_count": ids.len(),
            "message_ids": ids,
        }))
    }

    /// Ends the collecting of answers, and tells the sender.
    pub(in crate::model) fn end_multicast(&mut self, agent: &Agent, multicast: &Multicast) {
        let names = |wanted: fn(&Sent) -> bool| -> Vec<Name> {
            let copies = multicast.copies.iter().filter(|copy| wanted(copy));
            copies.map(|copy| self.state.party_name(Party::Agent(copy.recipient))).collect()
        };
        let (missing, failed) = (names(|copy| !copy.answered), names(|copy| copy.failed));
        let all = multicast.copies.len();
        let answered = all - missing.len() - failed.len();
        let mut text = format!("{answered} of {all} have answered your broadcast");
        if !failed.is_empty() {
            text += &format!("; failed: {}", listed(&failed));
        }
        if !missing.is_empty() {
            text += &format!("; no answer in time from {}", listed(&missing));
            text += ". A late answer comes as a message.";
        }
        let (multicast_id, answered) = (multicast.id, u32::try_from(answered).unwrap_or(u32::MAX));
        self.push(agent.session.id, MulticastEnded { multicast_id, answered, failed, missing });
        let mut letter =
            Letter::new(Party::System, Party::Agent(agent.id), Kind::Notification, text);
        letter.metadata.insert("multicast_id".to_owned(), multicast_id.to_string());
        self.enqueue(letter);
    }
}

fn listed(names: &[Name]) -> String {
    let shown: Vec<&str> = names.iter().map(Name::as_str).take(MAX_NAMES).collect();
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
