//! `substratctl turn`: turns, and their execution records.

use std::time::{Duration, SystemTime};

use clap::Subcommand;
use prost_types::value::Kind;
use prost_types::{Struct, Value as WireValue};
use serde_json::{Map, Value};
use substrat_proto::v1;

use super::Context;
use crate::error::{Error, Kind as Failure};
use crate::output::{Output, Table, count, line, note, terminal_width};
use crate::time;

/// Columns that are filled where stdout is no terminal.
const WIDTH: usize = 100;
/// Lines of a prompt or an answer that are shown.
const TEXT_LINES: usize = 20;

/// What was asked in a turn, what happened, and how it ended.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the turns of an agent, oldest first
    List {
        /// The agent; a terminated one by its id
        agent: String,
        /// Only those that have no end of their own: running and interrupted ones
        #[arg(long)]
        incomplete: bool,
    },
    /// Show the record of a turn
    Show(Args),
    /// Answer again from the record of a turn, without asking a provider
    Replay(Args),
}

/// A turn.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Id of the turn, such as exec-dc29ae3c5e271c80
    turn: String,
}

pub(crate) async fn run(context: &Context, command: Command) -> Result<(), Error> {
    match command {
        Command::List { agent, incomplete } => list(context, agent, incomplete).await,
        Command::Show(Args { turn }) => {
            let mut service = context.connect().await?.sessions();
            let request = v1::GetTurnRequest { turn_id: turn };
            let response = service.get_turn(request).await?.into_inner();
            context.output.response(&response, |response| {
                if let Some(record) = &response.record {
                    show(context.output, record);
                }
            })
        }
        Command::Replay(Args { turn }) => replay(context, turn).await,
    }
}

async fn list(context: &Context, agent: String, incomplete: bool) -> Result<(), Error> {
    let mut service = context.connect().await?.sessions();
    let mut found = v1::ListTurnsResponse::default();
    loop {
        let page_token = std::mem::take(&mut found.next_page_token);
        let agent = agent.clone();
        let request = v1::ListTurnsRequest { agent, page_size: 1000, page_token, incomplete };
        let page = service.list_turns(request).await?.into_inner();
        found.turns.extend(page.turns);
        found.next_page_token = page.next_page_token;
        if found.next_page_token.is_empty() {
            break;
        }
    }
    context.output.response(&found, |found| {
        if incomplete {
            crash_points(context.output, &found.turns);
        } else {
            table(context.output, &found.turns);
        }
    })
}

fn table(output: Output, turns: &[v1::TurnSummary]) {
    let mut table = Table::new(&["TURN", "STATE", "FROM", "STARTED", "TOOK", "TOOLS", "PROMPT"]);
    for turn in turns {
        table.row(vec![
            turn.turn_id.clone(),
            state_word(turn).to_owned(),
            turn.source.clone(),
            time::ago(turn.start_time.as_ref()),
            took(turn),
            turn.tool_call_count.to_string(),
            turn.prompt_start.clone(),
        ]);
    }
    table.print(output, "no turns; an agent runs one when it gets a message");
}

fn crash_points(output: Output, turns: &[v1::TurnSummary]) {
    let mut table = Table::new(&["TURN", "STATE", "STARTED", "STAGE", "RECOVERY"]);
    for turn in turns {
        let point = died_at(turn);
        let told = |word: fn(&v1::CrashPoint) -> &String| {
            point.map_or_else(|| "-".to_owned(), |point| word(point).clone())
        };
        table.row(vec![
            turn.turn_id.clone(),
            state_word(turn).to_owned(),
            time::ago(turn.start_time.as_ref()),
            told(|point| &point.stage),
            told(|point| &point.recovery),
        ]);
    }
    table.print(output, "no incomplete turns");
}

async fn replay(context: &Context, turn: String) -> Result<(), Error> {
    let mut service = context.connect().await?.sessions();
    let request = v1::ReplayTurnRequest { turn_id: turn.clone() };
    let response = service.replay_turn(request).await?.into_inner();
    if response.hash_match() == v1::HashMatch::Differs && !context.output.is_json() {
        note("warning: the hash does not match: the log was changed since the turn ran");
    }
    let end = response.final_response.clone().unwrap_or_default();
    context.output.response(&response, |_| {
        if let Some(answer) = text(end.payload.as_ref(), "response") {
            line(&answer);
        }
    })?;
    match &end.error {
        None => Ok(()),
        Some(_) => {
            let message = format!("turn {turn} failed {}", failure(end.error.as_ref()));
            let hint = format!("see what happened with \"substratctl turn show {turn}\"");
            Err(Error::new(Failure::Failed, message, hint))
        }
    }
}

/// Where a turn stands that has no end and does not go on: one that runs needs no recovery.
fn died_at(turn: &v1::TurnSummary) -> Option<&v1::CrashPoint> {
    turn.crash_point.as_ref().filter(|_| turn.state() != v1::TurnState::Running)
}

fn state_word(turn: &v1::TurnSummary) -> &'static str {
    match turn.state() {
        v1::TurnState::Unspecified => "?",
        v1::TurnState::Running => "running",
        v1::TurnState::Completed => "completed",
        v1::TurnState::Failed => "failed",
        v1::TurnState::Cancelled => "cancelled",
        v1::TurnState::Interrupted => "interrupted",
    }
}

/// The time from one moment to another, if both are known.
fn between(
    from: Option<&prost_types::Timestamp>,
    to: Option<&prost_types::Timestamp>,
) -> Option<Duration> {
    let from = SystemTime::try_from(*from?).ok()?;
    SystemTime::try_from(*to?).ok()?.duration_since(from).ok()
}

fn took(turn: &v1::TurnSummary) -> String {
    between(turn.start_time.as_ref(), turn.end_time.as_ref()).map_or_else(|| "-".into(), exactly)
}

/// A duration to the millisecond, or in its largest unit where it is long.
fn exactly(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{}ms", time.as_millis()),
        1..60 => format!("{:.1}s", time.as_secs_f64()),
        _ => time::short(time),
    }
}

fn show(output: Output, record: &v1::ExecutionRecord) {
    let turn = record.turn.clone().unwrap_or_default();
    let header = record.header.clone().unwrap_or_default();
    let model =
        if turn.model.is_empty() { String::new() } else { format!(", model {}", turn.model) };
    let took = match turn.state() {
        v1::TurnState::Running => String::new(),
        _ => format!(", took {}", took(&turn)),
    };
    line(&format!("turn        {} {}", turn.turn_id, output.bold(state_word(&turn))));
    line(&format!("agent       {} ({})", turn.agent_path, turn.agent_id));
    if !turn.source.is_empty() {
        line(&format!("from        {}", turn.source));
    }
    let started = time::date(turn.start_time.as_ref());
    line(&format!("started     {started}{took}"));
    let asked = count(turn.attempt_count.unsigned_abs(), "attempt");
    let calls = count(turn.tool_call_count.unsigned_abs(), "tool call");
    line(&format!("provider    {}{model}: {asked}, {calls}", turn.provider));
    let hash = match record.hash_match() {
        v1::HashMatch::Unspecified => "?",
        v1::HashMatch::Matches => "matches the log",
        v1::HashMatch::Differs => "DIFFERS: the log was changed since the turn ran",
        v1::HashMatch::Unknown => "computed now: an older version recorded none",
    };
    line(&format!("hash        {} ({hash})", header.envelope_hash));
    let replayable = if header.replayable { "yes" } else { &format!("no: {}", header.reason) };
    line(&format!("replayable  {replayable}"));
    if let Some(point) = died_at(&turn) {
        line(&format!("stands      {}: {}", point.stage, point.recovery));
    }
    let prompt = record.envelope.as_ref().and_then(|envelope| match field(envelope, "payload") {
        Some(Kind::StructValue(payload)) => text(Some(payload), "prompt"),
        _ => None,
    });
    paragraph(output, "prompt", &prompt.unwrap_or_default());
    line(&output.bold("events"));
    let width = terminal_width().unwrap_or(WIDTH);
    for event in &record.events {
        line(&event_line(output, event, header.created_utc.as_ref(), width));
    }
    if record.omitted_event_count > 0 {
        let left = count(record.omitted_event_count.unsigned_abs(), "event");
        line(&format!("  and {left} more; \"substratctl agent log\" has them all"));
    }
    if let Some(report) = &record.processes {
        processes(output, report);
    }
    if let Some(end) = &record.final_response {
        match text(end.payload.as_ref(), "response") {
            Some(answer) => paragraph(output, "answer", &answer),
            None => {
                let end = format!("{} {}", end.status, failure(end.error.as_ref()));
                paragraph(output, "end", &end);
            }
        }
    }
}

/// What is known of the processes of a turn.
fn processes(output: Output, report: &v1::ProcessReport) {
    line(&output.bold("processes"));
    if !report.unsandboxed.is_empty() {
        line(&format!("  without a sandbox: {}", report.unsandboxed));
    }
    for limit in &report.limits {
        line(&format!("  limit met: {limit}"));
    }
    for exit in &report.exits {
        let why = if exit.reason.is_empty() { "" } else { ": " };
        line(&format!("  {} ended with {}{why}{}", exit.pid, exit.status, exit.reason));
    }
    if report.stderr_bytes > 0 {
        let cut = match report.stderr_bytes - (report.stderr.len() as u64).min(report.stderr_bytes)
        {
            0 => String::new(),
            left => format!(", after {} more", count(left, "byte")),
        };
        paragraph(output, &format!("standard error{cut}"), &report.stderr);
    }
}

/// A text under a heading, cut where it is long.
fn paragraph(output: Output, heading: &str, text: &str) {
    line(&output.bold(heading));
    let mut lines = text.lines();
    for text in lines.by_ref().take(TEXT_LINES) {
        line(format!("  {text}").trim_end());
    }
    let left = lines.count() as u64;
    if left > 0 {
        line(&output.dim(&format!("  … and {} more; -o json has all", count(left, "line"))));
    }
}

/// An event of an execution in a line.
fn event_line(
    output: Output,
    event: &v1::ExecutionEvent,
    start: Option<&prost_types::Timestamp>,
    width: usize,
) -> String {
    let after = between(start, event.timestamp.as_ref()).map(exactly).unwrap_or_default();
    let told = told(event);
    let room = width.saturating_sub(43).max(20);
    let told = if told.chars().count() > room {
        told.chars().take(room - 1).chain(['…']).collect()
    } else {
        told
    };
    let after = output.dim(&format!("{:>8}", format!("+{after}")));
    let line = format!(
        "  {:>4} {after}  {}  {told}",
        event.seq,
        output.bold(&format!("{:<22}", event.r#type))
    );
    line.trim_end().to_owned()
}

/// The payload of an event in words.
fn told(event: &v1::ExecutionEvent) -> String {
    let payload = event.payload.as_ref();
    let text = |key: &str| text(payload, key).unwrap_or_default();
    let json = |key: &str| match payload.and_then(|payload| payload.fields.get(key)) {
        Some(value) => json(value).to_string(),
        None => String::new(),
    };
    let told = match event.r#type.as_str() {
        "INTENT_RECEIVED" => match text("source") {
            source if source.is_empty() => String::new(),
            source => format!("from {source}"),
        },
        "AGENT_ATTEMPT_START" => text("agent"),
        "AGENT_ATTEMPT_END" => match payload.and_then(|payload| field(payload, "exception")) {
            Some(Kind::StructValue(exception)) => {
                format!("{}: {} {}", text("agent"), text("status"), failure(Some(exception)))
            }
            _ => format!("{}: {}", text("agent"), text("status")),
        },
        "FALLBACK_TRIGGERED" => format!("{} → {}", text("from"), text("to")),
        "SIDE_EFFECT_INTENTION" => format!("{} {}", text("tool"), json("args")),
        "SIDE_EFFECT_COMPLETION" => format!("{} → {}", text("tool"), json("result")),
        "SIDE_EFFECT_FAILURE" => format!("{} failed: {}", text("tool"), text("error")),
        "ROUTER_DECISION" => format!("{}: {}", text("agent"), text("reason")),
        "FINAL_RESPONSE" => text("status"),
        _ => payload.map(|payload| json_object(payload).to_string()).unwrap_or_default(),
    };
    told.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// An error such as `(transient): busy`.
fn failure(error: Option<&Struct>) -> String {
    let text = |key: &str| text(error, key).unwrap_or_default();
    format!("({}): {}", text("code"), text("message"))
}

fn field<'a>(object: &'a Struct, key: &str) -> Option<&'a Kind> {
    object.fields.get(key)?.kind.as_ref()
}

fn text(object: Option<&Struct>, key: &str) -> Option<String> {
    match field(object?, key)? {
        Kind::StringValue(text) => Some(text.clone()),
        _ => None,
    }
}

fn json_object(object: &Struct) -> Value {
    let fields = object.fields.iter().map(|(key, value)| (key.clone(), json(value)));
    Value::Object(fields.collect::<Map<_, _>>())
}

fn json(value: &WireValue) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => Value::from(*value),
        // Whole numbers look as they did before they were doubles.
        Some(Kind::NumberValue(number)) if number.fract() == 0.0 && number.abs() < 1e15 => {
            Value::from(*number as i64)
        }
        Some(Kind::NumberValue(number)) => Value::from(*number),
        Some(Kind::StringValue(text)) => Value::from(text.as_str()),
        Some(Kind::ListValue(list)) => list.values.iter().map(json).collect(),
        Some(Kind::StructValue(object)) => json_object(object),
    }
}
