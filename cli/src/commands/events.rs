//! `substratctl events`.

use prost_types::value::Kind;
use substrat_proto::v1;

use super::Context;
use crate::error::Error;
use crate::output::{Output, line, note};
use crate::time;

/// Digits of the id of a message that are shown; they tell it from others in an inbox.
pub(crate) const SHORT_ID: usize = 8;

/// Events of all logs, or of one agent's.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Go on with new events
    #[arg(long, short)]
    follow: bool,
    /// First sequence to show [default: the last 100 events; with --follow only new ones]
    #[arg(long, value_name = "SEQ")]
    from: Option<u64>,
    /// Only those of this agent
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// Only these, such as turn.complete or turn.*; may be given more than once
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
}

/// Which events are wanted.
pub(crate) struct Wanted {
    pub(crate) agent: String,
    pub(crate) follow: bool,
    pub(crate) from: Option<u64>,
    pub(crate) types: Vec<String>,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<(), Error> {
    let agent = args.agent.unwrap_or_default();
    show(context, Wanted { agent, follow: args.follow, from: args.from, types: args.types }).await
}

/// Writes the events that are wanted.
pub(crate) async fn show(context: &Context, wanted: Wanted) -> Result<(), Error> {
    let client = context.connect().await?;
    let output = context.output;
    if wanted.follow {
        let request = v1::WatchEventsRequest {
            agent: wanted.agent,
            from_sequence: wanted.from.unwrap_or(0),
            types: wanted.types,
        };
        let mut events = client.sessions().watch_events(request).await?.into_inner();
        while let Some(response) = events.message().await? {
            if let Some(event) = &response.event {
                output.item(event, |event| line(&event_line(output, event, &event.session_id)))?;
            }
        }
        return Ok(());
    }
    let from = match wanted.from {
        Some(from) => from,
        None => {
            let daemon = client.daemon().get_daemon(v1::GetDaemonRequest {}).await?.into_inner();
            let journal = daemon.daemon.and_then(|daemon| daemon.journal);
            let last = journal.map_or(0, |journal| journal.durable_sequence);
            let some = wanted.agent.is_empty() && wanted.types.is_empty();
            if some { last.saturating_sub(99) } else { 1 }
        }
    };
    let mut page_token = String::new();
    let mut count = 0;
    loop {
        let request = v1::ListEventsRequest {
            agent: wanted.agent.clone(),
            from_sequence: from,
            types: wanted.types.clone(),
            page_size: 1000,
            page_token,
        };
        let page = client.sessions().list_events(request).await?.into_inner();
        for event in &page.events {
            output.item(event, |event| line(&event_line(output, event, &event.session_id)))?;
        }
        count += page.events.len();
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    if count == 0 && !output.is_json() {
        note("no events");
    }
    Ok(())
}

/// An event in a line.
pub(crate) fn event_line(output: Output, event: &v1::Event, session: &str) -> String {
    let session = if session.is_empty() { String::new() } else { format!("{session:.8}  ") };
    let clock = output.dim(&time::clock(event.time.as_ref()));
    let name = output.bold(&format!("{:<18}", event.r#type));
    let line = format!("{clock} {:>6}  {session}{name}  {}", event.sequence, summary(event));
    line.trim_end().to_owned()
}

/// The data of an event that says most, in a line.
fn summary(event: &v1::Event) -> String {
    let Some(data) = &event.data else { return String::new() };
    let text = |key: &str| match data.fields.get(key).and_then(|value| value.kind.as_ref()) {
        Some(Kind::StringValue(text)) => Some(text.clone()),
        Some(Kind::NumberValue(number)) => Some(number.to_string()),
        _ => None,
    };
    let shown: Vec<String> = match event.r#type.as_str() {
        "message.enqueued" => {
            let ends = format!(
                "{} → {}:",
                text("sender_name").unwrap_or_default(),
                text("recipient_name").unwrap_or_default()
            );
            [Some(ends), text("payload")].into_iter().flatten().collect()
        }
        "message.set_aside" | "message.retried" | "message.discarded" => {
            let id = text("message_id").map(|id| id.chars().take(SHORT_ID).collect());
            [id, text("class"), text("reason")].into_iter().flatten().collect()
        }
        "turn.complete" => text("response").into_iter().collect(),
        "turn.failed" | "turn.retry" => {
            let asked = text("provider").map(|provider| format!(", asks {provider}:"));
            let delay = text("delay_ms").and_then(|delay| delay.parse::<u64>().ok());
            let seconds = delay.map(|delay| delay.div_ceil(1000)).filter(|seconds| *seconds > 1);
            let wait = seconds.map(|seconds| format!(", again in {seconds} s:"));
            let next = asked.or(wait).unwrap_or_default();
            let class = text("class").unwrap_or_default() + &next;
            [Some(class), text("error")].into_iter().flatten().collect()
        }
        "usage.reported" => {
            let used = [("input_tokens", "in"), ("output_tokens", "out")];
            let used = used.iter().filter_map(|(key, word)| Some(format!("{} {word}", text(key)?)));
            let cost = text("cost_micro_usd").and_then(|cost| cost.parse::<f64>().ok());
            let cost = cost.filter(|cost| *cost > 0.0).map(|cost| format!("${:.4}", cost / 1e6));
            [text("turn_id")].into_iter().flatten().chain(used).chain(cost).collect()
        }
        "budget.changed" => {
            let limit = text("limit").unwrap_or_else(|| "none".to_owned());
            let keys = ["scope", "measure"];
            keys.iter().filter_map(|key| text(key)).chain([limit]).collect()
        }
        "budget.warning" | "budget.exhausted" | "turn.refused" => {
            let keys = ["whose_name", "scope", "measure", "used"];
            let of = text("limit").map(|limit| format!("of {limit}"));
            keys.iter().filter_map(|key| text(key)).chain(of).collect()
        }
        "turn.said" | "turn.notice" | "turn.stderr" => text("text").into_iter().collect(),
        "process.exited" => [text("status"), text("reason")].into_iter().flatten().collect(),
        "limit.hit" => [text("limit"), text("detail")].into_iter().flatten().collect(),
        "turn.stalled" => {
            let silent = text("silent_ms").map(|silent| format!("{silent} ms"));
            silent.into_iter().chain(text("tool")).collect()
        }
        "tool_use.ended" => ["tool", "output"].iter().filter_map(|key| text(key)).collect(),
        "permission.answered" => {
            ["decision", "by", "reason"].iter().filter_map(|key| text(key)).collect()
        }
        "sandbox.off" => text("reason").into_iter().collect(),
        "tool_call.result" => [text("tool"), text("error")].into_iter().flatten().collect(),
        _ => {
            let keys = ["name", "tool", "turn_id", "reason", "key", "mount_path", "state_size"];
            keys.iter().filter_map(|key| text(key)).take(2).collect()
        }
    };
    let shown = shown.join(" ");
    match event.r#type.as_str() {
        "turn.failed" | "turn.retry" | "tool_call.result" => ends(&shown),
        _ => start(&shown),
    }
}

/// The first line of a text.
fn start(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    if first.chars().count() < text.chars().count() || first.chars().count() > 100 {
        let cut: String = first.chars().take(100).collect();
        return format!("{cut}…");
    }
    first.to_owned()
}

/// The first line of an error and its last one, which names the reason.
fn ends(text: &str) -> String {
    let first = start(text);
    match text.lines().skip(1).map(str::trim).filter(|line| !line.is_empty()).last() {
        Some(last) => format!("{first} {}", start(last)),
        None => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, error: &str) -> v1::Event {
        let text =
            |text: &str| prost_types::Value { kind: Some(Kind::StringValue(text.to_owned())) };
        let fields = [("class", "permanent"), ("error", error), ("text", error)];
        let fields = fields.map(|(key, value)| (key.to_owned(), text(value))).into();
        let data = Some(prost_types::Struct { fields });
        v1::Event { r#type: kind.to_owned(), data, ..Default::default() }
    }

    #[test]
    fn an_error_is_told_with_its_last_line() {
        let error = "it ended with 1; it said:\n  Traceback\n  File x\n  ValueError: no key\n\n";
        let told = "permanent it ended with 1; it said:… ValueError: no key";
        assert_eq!(summary(&event("turn.failed", error)), told);
        assert_eq!(summary(&event("turn.retry", error)), told);
        assert_eq!(summary(&event("turn.failed", "refused")), "permanent refused");
        let mut asks = event("turn.retry", "refused");
        let provider = prost_types::Value { kind: Some(Kind::StringValue("ant".to_owned())) };
        let fields = asks.data.as_mut().map(|data| &mut data.fields);
        fields.unwrap().insert("provider".to_owned(), provider);
        assert_eq!(summary(&asks), "permanent, asks ant: refused");
        assert_eq!(summary(&event("turn.said", "one\ntwo")), "one…");
        let long = format!("{}\n{}", "x".repeat(200), "y".repeat(200));
        let (x, y) = ("x".repeat(90), "y".repeat(100));
        assert_eq!(summary(&event("turn.failed", &long)), format!("permanent {x}… {y}…"));
    }
}
