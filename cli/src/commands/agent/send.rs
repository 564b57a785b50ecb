//! `substratctl agent send`.

use std::io::IsTerminal;
use std::time::Duration;

use substrat_proto::{Refusal, v1};
use tokio::time::{Instant, sleep};

use super::Context;
use crate::client::{Client, request_id};
use crate::error::{Error, is_lost};
use crate::output::{line, note, write};

/// How long a daemon that went away is waited for.
const RECONNECT: Duration = Duration::from_secs(10);
/// The pause before it is looked for again.
const PAUSE: Duration = Duration::from_millis(200);

/// Send a message and wait for the answer.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The agent
    agent: String,
    /// The message, or - to read it from stdin
    message: String,
    /// Do not wait; the answer goes to the inbox
    #[arg(long)]
    no_wait: bool,
    /// Deliver it before other messages
    #[arg(long)]
    urgent: bool,
    /// Have a turn that runs take it in, if the provider can: Codex does
    #[arg(long)]
    steer: bool,
    /// Repeating a command with the same id sends it once, and returns the first answer
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<(), Error> {
    let text = match args.message.as_str() {
        "-" => std::io::read_to_string(std::io::stdin())
            .map_err(|error| Error::invalid(format!("the message from stdin: {error}")))?,
        _ => args.message,
    };
    let metadata = [(args.urgent, "priority", "high"), (args.steer, "steer", "now")];
    let metadata = metadata.into_iter().filter(|(set, ..)| *set);
    let request = v1::SendMessageRequest {
        agent: args.agent,
        text,
        no_wait: args.no_wait,
        metadata: metadata.map(|(_, key, value)| (key.to_owned(), value.to_owned())).collect(),
        request_id: args.request_id.unwrap_or_else(request_id),
    };
    let client = context.connect().await?;
    let answered = context.place.in_time(send(context, client, request));
    let response = tokio::select! {
        response = answered => response?,
        never = progress() => match never {},
    };
    context.output.response(&response, |response| {
        if response.answered {
            write(&response.answer);
            if !response.answer.ends_with('\n') {
                write("\n");
            }
        } else {
            line(&format!("sent {}", response.message_id));
        }
    })
}

/// Sends, and sends again under the same id when the daemon goes away: it happens once.
async fn send(
    context: &Context,
    mut client: Client,
    request: v1::SendMessageRequest,
) -> Result<v1::SendMessageResponse, Error> {
    let mut lost_since: Option<Instant> = None;
    loop {
        let asked = Instant::now();
        let status = match client.agents().send_message(request.clone()).await {
            Ok(response) => return Ok(response.into_inner()),
            Err(status) if is_lost(&status) => status,
            Err(status) => return Err(status.into()),
        };
        // A request that waited for long was lost with another daemon than the one before.
        lost_since = lost_since.filter(|_| asked.elapsed() < RECONNECT);
        if lost_since.is_none() {
            note("daemon lost, reconnecting…");
        }
        // One that refuses because it stops is still there.
        let stops = !Refusal::from(&status).reason.is_empty();
        let since = lost_since.filter(|_| !stops).unwrap_or_else(Instant::now);
        lost_since = Some(since);
        client = loop {
            sleep(PAUSE).await;
            if since.elapsed() > RECONNECT {
                return Err(status.into());
            }
            if let Ok(client) = context.connect().await {
                break client;
            }
        };
    }
}

/// Shows on a terminal that an answer is waited for.
async fn progress() -> std::convert::Infallible {
    if !std::io::stderr().is_terminal() {
        return std::future::pending().await;
    }
    let begun = Instant::now();
    loop {
        sleep(Duration::from_secs(1)).await;
        let seconds = begun.elapsed().as_secs();
        // The cursor goes back, so that the answer is written over it.
        eprint_progress(&format!("\rwaiting for the answer… {seconds}s\x1b[K\r"));
    }
}

fn eprint_progress(text: &str) {
    use std::io::Write;
    let mut stderr = std::io::stderr();
    // Only for show.
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}
