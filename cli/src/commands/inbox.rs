//! `substratctl inbox`.

use std::time::Duration;

use substrat_proto::v1;
use tokio::time::Instant;

use super::Context;
use crate::client::{Client, request_id};
use crate::error::{Error, is_lost};
use crate::output::{line, note, write};
use crate::time;

/// Messages to you; shown messages are removed.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Go on with new messages
    #[arg(long, short)]
    follow: bool,
    /// Leave the messages in the inbox
    #[arg(long)]
    keep: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Result<(), Error> {
    let mut client = context.connect().await?;
    let mut page_token = String::new();
    let mut count = 0;
    let mut lost_since = None;
    loop {
        let wait = args.follow.then_some(prost_types::Duration { seconds: 60, nanos: 0 });
        let request = v1::ListInboxRequest { page_size: 100, page_token: page_token.clone(), wait };
        let page = match client.agents().list_inbox(request).await {
            Ok(page) => page.into_inner(),
            Err(status) if args.follow && is_lost(&status) => {
                let since = *lost_since.get_or_insert_with(Instant::now);
                if context.place.timeout.is_some_and(|most| since.elapsed() > most) {
                    return Err(status.into());
                }
                note("daemon lost, reconnecting…");
                client = context.place.in_time(reconnect(context)).await?;
                continue;
            }
            Err(status) => return Err(status.into()),
        };
        lost_since = None;
        for message in &page.messages {
            context.output.item(message, show)?;
        }
        count += page.messages.len();
        if !args.keep {
            acknowledge(&client, &page.messages).await?;
        }
        if let Some(last) = page.messages.last() {
            page_token = last.sequence.to_string();
        }
        if page.next_page_token.is_empty() && !args.follow {
            break;
        }
    }
    if count == 0 && !context.output.is_json() {
        note("no messages");
    }
    Ok(())
}

async fn acknowledge(client: &Client, messages: &[v1::Message]) -> Result<(), Error> {
    if messages.is_empty() {
        return Ok(());
    }
    let message_ids = messages.iter().map(|message| message.id.clone()).collect();
    let request = v1::AckInboxRequest { message_ids, request_id: request_id() };
    client.agents().ack_inbox(request).await?;
    Ok(())
}

async fn reconnect(context: &Context) -> Result<Client, Error> {
    loop {
        // One that answers may be about to go.
        tokio::time::sleep(Duration::from_millis(500)).await;
        if let Ok(client) = context.connect().await {
            return Ok(client);
        }
    }
}

fn show(message: &v1::Message) {
    let kind = match message.kind() {
        v1::MessageKind::Error => " (error)",
        v1::MessageKind::Response => " (answer)",
        _ => "",
    };
    line(&format!("[{}] {}{kind}:", time::date(message.create_time.as_ref()), message.sender));
    write(&message.text);
    if !message.text.ends_with('\n') {
        write("\n");
    }
}
