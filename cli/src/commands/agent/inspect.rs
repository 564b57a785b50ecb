//! `substratctl agent inspect`.

use substrat_proto::v1;

use super::answer::question;
use super::show::{self, state_word};
use super::{Context, mail};
use crate::commands::events::event_line;
use crate::error::Error;
use crate::output::line;
use crate::time;

/// Show what an agent is doing.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The agent
    agent: String,
    /// How many recent events to show
    #[arg(long, default_value_t = 10, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(1..=1000))]
    recent: i32,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<(), Error> {
    let client = context.connect().await?;
    let request = v1::InspectAgentRequest { agent: args.agent, recent: args.recent };
    let response = client.agents().inspect_agent(request).await?.into_inner();
    let output = context.output;
    output.response(&response, |response| {
        if let Some(agent) = &response.agent {
            show::agent(output, agent);
        }
        if let Some(turn) = &response.turn {
            let waits = if turn.waiting_for.is_empty() { "" } else { ", waiting for an answer" };
            let tools = [&turn.open_tools[..], &turn.native_tools[..]].concat();
            let tools = match tools.as_slice() {
                [] => String::new(),
                tools => format!(", in {}", tools.join(", ")),
            };
            let since = time::ago(turn.start_time.as_ref());
            line(&format!("turn       {} for {since}{tools}{waits}", turn.id));
        }
        let stall = response.turn.as_ref().and_then(|turn| turn.stall.as_ref());
        if let Some(stall) = stall {
            line(&format!("silent     for {}", time::ago(stall.start_time.as_ref())));
        }
        for asked in &response.permissions {
            line(&format!("asks       {} ({})", question(asked), asked.id));
        }
        for message in &response.inbox {
            line(&mail::in_line(message));
        }
        for child in &response.children {
            line(&format!("child      {}: {}", child.name, state_word(child)));
        }
        waiting(response);
        line(&output.bold("recent"));
        for event in &response.recent {
            line(&event_line(output, event, ""));
        }
    })
}

/// What it waits for beside messages.
fn waiting(response: &v1::InspectAgentResponse) {
    for reminder in &response.reminders {
        let again = match reminder.every_seconds {
            0 => String::new(),
            seconds => format!(", every {seconds} s"),
        };
        let due = time::date(reminder.due_time.as_ref());
        line(&format!("reminder   {} at {due}{again}", first_line(&reminder.reason)));
    }
    for subscription in &response.subscriptions {
        let once = if subscription.once { ", once" } else { "" };
        line(&format!("watches    {} {}{once}", subscription.target, subscription.transition));
    }
    for multicast in &response.multicasts {
        let open = multicast.open.join(", ");
        let until = time::date(multicast.end_time.as_ref());
        let answered = multicast.answered;
        line(&format!("broadcast  {answered} answered; until {until} waiting for {open}"));
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
