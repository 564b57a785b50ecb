//! What the model is told to do.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::conversation::{Api, Conversation};

/// One thing that the model does; a list of them is an answer. The module's page describes them.
#[derive(Clone, Debug, PartialEq)]
pub enum Behaviour {
    Say(String),
    Count(usize),
    Think(String),
    Recall,
    Tools,
    Call {
        tool: String,
        args: Value,
    },
    Slow(Duration),
    Hold(String),
    Stall,
    Hang,
    Cut,
    Midstream(String),
    Status {
        status: u16,
        /// Seconds.
        retry_after: Option<u32>,
    },
    Overflow,
    /// Not of any API: these bytes with a status and a content type.
    Raw {
        status: u16,
        content_type: String,
        body: Vec<u8>,
    },
}

#[derive(Debug)]
struct Command {
    behaviour: Behaviour,
    /// Belongs to the same answer as the call before it.
    also: bool,
    once: bool,
}

/// Commands that were given with `once` and obeyed: the text and their places in it.
pub(super) type Spent = BTreeSet<(Api, String, usize)>;

/// What to answer to a conversation, by the commands in it.
pub(super) fn answer(api: Api, conversation: &Conversation, spent: &mut Spent) -> Vec<Behaviour> {
    let said = conversation.said();
    let text = said.last().copied().unwrap_or_default();
    let commands = parse(text);
    if commands.is_empty() {
        return vec![Behaviour::Say(format!("You said: {text}"))];
    }
    let mut results = conversation.results().len();
    for step in steps(commands) {
        let calls = step.iter().filter(|(_, command)| command.calls()).count();
        if calls > 0 && results >= calls {
            results -= calls;
            continue;
        }
        let mut chosen = Vec::new();
        for (place, command) in step {
            if command.once && !spent.insert((api, text.to_owned(), place)) {
                continue;
            }
            let ends = command.once && command.behaviour.ends();
            chosen.push(command.behaviour);
            if ends {
                break;
            }
        }
        return chosen;
    }
    vec![Behaviour::Say("The tool said: {result}".to_owned())]
}

/// The commands of each answer, with their places in the text.
fn steps(commands: Vec<Command>) -> Vec<Vec<(usize, Command)>> {
    let mut steps: Vec<Vec<(usize, Command)>> = vec![Vec::new()];
    for (place, command) in commands.into_iter().enumerate() {
        let called = steps.last().is_some_and(|step| step.iter().any(|(_, it)| it.calls()));
        if called && !command.also {
            steps.push(Vec::new());
        }
        steps.last_mut().expect("there is a first").push((place, command));
    }
    steps
}

impl Command {
    fn calls(&self) -> bool {
        matches!(self.behaviour, Behaviour::Call { .. })
    }
}

impl Behaviour {
    /// Whether nothing can follow in the same answer.
    pub(super) fn ends(&self) -> bool {
        match self {
            Self::Stall
            | Self::Hang
            | Self::Cut
            | Self::Midstream(_)
            | Self::Status { .. }
            | Self::Overflow
            | Self::Raw { .. } => true,
            Self::Say(_)
            | Self::Count(_)
            | Self::Think(_)
            | Self::Recall
            | Self::Tools
            | Self::Call { .. }
            | Self::Slow(_)
            | Self::Hold(_) => false,
        }
    }
}

fn parse(text: &str) -> Vec<Command> {
    text.lines().filter_map(command_in).collect()
}

/// The command of a line, at its start or after a prefix such as "bob: ".
fn command_in(line: &str) -> Option<Command> {
    let start = line.trim_start_matches(|c: char| !c.is_alphanumeric());
    let after = line.match_indices(": ").map(|(at, _)| &line[at + 2..]);
    std::iter::once(start).chain(after).find_map(command)
}

fn command(text: &str) -> Option<Command> {
    // An agent may have put the whole text in quotes.
    let text = text.trim().trim_end_matches('"').trim_end();
    let (text, once) = match text.strip_suffix(" once") {
        Some(text) => (text.trim_end(), true),
        None => (text, false),
    };
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let rest = rest.trim();
    let behaviour = match word {
        "SAY" => Behaviour::Say(rest.to_owned()),
        "COUNT" => Behaviour::Count(rest.parse().ok()?),
        "THINK" => Behaviour::Think(rest.to_owned()),
        "RECALL" => Behaviour::Recall,
        "TOOLS" => Behaviour::Tools,
        "CALL" | "ALSO" => call(rest),
        "SLOW" => Behaviour::Slow(duration(rest)?),
        "HOLD" => Behaviour::Hold(rest.to_owned()),
        "STALL" => Behaviour::Stall,
        "HANG" => Behaviour::Hang,
        "CUT" => Behaviour::Cut,
        "MIDSTREAM" => Behaviour::Midstream(rest.to_owned()),
        "STATUS" => status(rest)?,
        "OVERFLOW" => Behaviour::Overflow,
        _ => return None,
    };
    Some(Command { behaviour, also: word == "ALSO", once })
}

fn call(text: &str) -> Behaviour {
    let (tool, args) = text.split_once(' ').unwrap_or((text, "{}"));
    // Whatever follows the first value is not the model's.
    let mut values = serde_json::Deserializer::from_str(args).into_iter::<Value>();
    match values.next().unwrap_or_else(|| Ok(json!({}))) {
        Ok(args) => Behaviour::Call { tool: tool.to_owned(), args },
        Err(error) => Behaviour::Say(format!("I cannot read {args}: {error}")),
    }
}

fn duration(text: &str) -> Option<Duration> {
    match text.strip_suffix("ms") {
        Some(number) => number.parse().ok().map(Duration::from_millis),
        None => text.strip_suffix('s')?.parse().ok().map(Duration::from_secs_f64),
    }
}

fn status(text: &str) -> Option<Behaviour> {
    let mut words = text.split_whitespace();
    let status = words.next()?.parse().ok()?;
    let retry_after = match words.next() {
        Some("retry-after") => Some(words.next()?.parse().ok()?),
        Some(_) => return None,
        None => None,
    };
    Some(Behaviour::Status { status, retry_after })
}
