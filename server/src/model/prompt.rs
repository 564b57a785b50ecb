//! What a provider is prompted with: everything that waits in the inbox, but for what may have to
//! be refused, which is alone in its turn.

use std::fmt::Write as _;

use super::{Agent, Kind, Message, MessageId, Party};

/// Most bytes of messages in one prompt; at least one message is always in it.
const MAX_BYTES: usize = 2 << 20;

/// The prompt for an agent's next turn and the messages in it.
///
/// A lone message of USER is the prompt as it stands; others are introduced by their senders, and
/// several are numbered.
pub(super) fn compose(agent: &Agent) -> (String, Vec<MessageId>) {
    let mut bytes = 0;
    let messages: Vec<&Message> = agent
        .unread()
        .take_while(|message| {
            let first = bytes == 0;
            let alone = message.is_suspect();
            bytes += if alone { MAX_BYTES } else { 0 } + message.text.len().max(1);
            first || bytes <= MAX_BYTES
        })
        .collect();
    let prompt = match messages.as_slice() {
        [one] if one.sender == Party::User => one.text.to_string(),
        [one] => format!("{}:\n{}", introduction(one), one.text),
        several => {
            let mut prompt = String::new();
            for (number, message) in (1..).zip(several) {
                // Writing to a String cannot fail.
                let _ =
                    writeln!(prompt, "{number}. {}:\n{}\n", introduction(message), message.text);
            }
            prompt.truncate(prompt.trim_end().len());
            prompt
        }
    };
    (prompt, messages.iter().map(|message| message.id).collect())
}

fn introduction(message: &Message) -> String {
    let from = &message.sender_name;
    match message.kind {
        Kind::Request => format!("Request from {from} (your final answer goes back)"),
        Kind::Multicast => format!("Message from {from} to the team (your final answer goes back)"),
        Kind::Response => format!("Answer from {from}"),
        Kind::Notification => format!("Message from {from}"),
        Kind::Error => format!("Error from {from}"),
    }
}
