//! `substratctl agent retry` and `discard`.

use substrat_proto::v1;

use super::Context;
use crate::client::{Client, request_id};
use crate::commands::events::SHORT_ID;
use crate::error::{Error, Kind};
use crate::output::line;

/// Hexadecimal digits of the id of a message.
const DIGITS: usize = 32;

/// Characters of a message that are shown.
const MAX_TEXT: usize = 100;

/// Let an agent go on with messages that lie in its inbox.
///
/// They lie there when a turn failed with them, or are set aside when turns with them were refused
/// twice. "agent inspect" shows them.
#[derive(clap::Args)]
pub(crate) struct Retry {
    /// The agent
    agent: String,
    /// Ids of the messages, or their beginnings; all without
    messages: Vec<String>,
}

/// Remove messages from the inbox of an agent, undelivered.
///
/// Who waits for an answer to one of them is told. "agent inspect" shows what lies there.
#[derive(clap::Args)]
pub(crate) struct Discard {
    /// The agent
    agent: String,
    /// Ids of the messages, or their beginnings
    #[arg(required = true)]
    messages: Vec<String>,
}

pub(super) async fn retry(context: &Context, args: Retry) -> Result<(), Error> {
    let client = context.connect().await?;
    let message_ids = whole(&client, &args.agent, args.messages).await?;
    let agent = args.agent;
    let request = v1::RetryMessagesRequest { agent, message_ids, request_id: request_id() };
    let response = client.agents().retry_messages(request).await?.into_inner();
    context.output.response(&response, |response| {
        if let Some(agent) = &response.agent {
            line(&format!("{} takes up what lies in its inbox next", agent.path));
        }
    })
}

pub(super) async fn discard(context: &Context, args: Discard) -> Result<(), Error> {
    let client = context.connect().await?;
    let message_ids = whole(&client, &args.agent, args.messages).await?;
    let what = match message_ids.len() {
        1 => "1 message".to_owned(),
        count => format!("{count} messages"),
    };
    let agent = args.agent;
    let request = v1::DiscardMessagesRequest { agent, message_ids, request_id: request_id() };
    let response = client.agents().discard_messages(request).await?.into_inner();
    context.output.response(&response, |response| {
        if let Some(agent) = &response.agent {
            line(&format!("discarded {what} of {}", agent.path));
        }
    })
}

/// The ids of messages of which beginnings are given.
async fn whole(client: &Client, agent: &str, given: Vec<String>) -> Result<Vec<String>, Error> {
    if given.iter().all(|id| id.len() >= DIGITS) {
        return Ok(given);
    }
    let request = v1::InspectAgentRequest { agent: agent.to_owned(), recent: 1 };
    let inbox = client.agents().inspect_agent(request).await?.into_inner().inbox;
    let mut ids: Vec<String> = Vec::new();
    for part in given {
        let found: Vec<&v1::Message> =
            inbox.iter().filter(|message| message.id.starts_with(&part)).collect();
        match found.as_slice() {
            [one] if ids.contains(&one.id) => {}
            [one] => ids.push(one.id.clone()),
            [] => return Err(unknown(agent, &part)),
            several => {
                let count = several.len();
                let said =
                    format!("{count} messages in the inbox of {agent:?} begin with {part:?}");
                return Err(Error::new(Kind::Conflict, said, "give more of the id"));
            }
        }
    }
    Ok(ids)
}

fn unknown(agent: &str, part: &str) -> Error {
    let said = format!("no message {part:?} lies in the inbox of {agent:?}");
    Error::new(Kind::NotFound, said, "\"substratctl agent inspect\" shows what lies there")
}

/// A message of an inbox, in a line.
pub(super) fn in_line(message: &v1::Message) -> String {
    let what = if message.set_aside { "set aside " } else { "unread    " };
    let id = message.id.get(..SHORT_ID).unwrap_or(&message.id);
    let line = message.text.lines().next().unwrap_or_default();
    let mut text: String = line.chars().take(MAX_TEXT).collect();
    if text.len() < message.text.trim_end().len() {
        text.push('…');
    }
    format!("{what} {id} from {}: {text}", message.sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_line_with_what_is_to_be_typed() {
        let shown = |text: &str, set_aside| {
            let (id, sender) = ("0123456789abcdef".repeat(2), "lead".to_owned());
            let text = text.to_owned();
            in_line(&v1::Message { id, sender, text, set_aside, ..Default::default() })
        };
        assert_eq!(shown("go\n", false), "unread     01234567 from lead: go");
        assert_eq!(shown("go\non", true), "set aside  01234567 from lead: go…");
        let long = shown(&"é".repeat(101), false);
        assert!(long.ends_with(&format!(" {}…", "é".repeat(100))), "{long}");
    }
}
