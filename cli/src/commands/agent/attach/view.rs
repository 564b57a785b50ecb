//! How the items of an attached stream are shown.

use std::collections::BTreeMap;

use substrat_proto::v1;
use substrat_proto::v1::attach_response::Item;

use super::super::answer;
use super::input::Console;
use crate::output::{Output, count};

/// What a user is told whose turn was lost.
const LOST_TURN: &str =
    "The agent crashed and lost its current turn. Your conversation history is saved.";

/// Shows items, and keeps what that takes: names, and output that is not a whole line yet.
pub(super) struct View {
    output: Output,
    tree: bool,
    own: String,
    names: BTreeMap<String, String>,
    /// Agents by the sequences of their running turns.
    turns: BTreeMap<u64, String>,
    /// What an agent put out in its running turn, and how much of that is shown.
    texts: BTreeMap<String, Text>,
    /// Whether the cursor stands after a text that did not end with a newline.
    midway: bool,
    daemon_started: Option<prost_types::Timestamp>,
}

#[derive(Default)]
struct Text {
    all: String,
    /// Numbers of the pieces that it is made of, and where each begins.
    pieces: Vec<(u64, usize)>,
    /// Where it goes on after the last tool call.
    since: usize,
    /// In a tree: what waits for the rest of its line.
    rest: String,
}

impl View {
    pub(super) fn new(output: Output, tree: bool) -> Self {
        Self {
            output,
            tree,
            own: String::new(),
            names: BTreeMap::new(),
            turns: BTreeMap::new(),
            texts: BTreeMap::new(),
            midway: false,
            daemon_started: None,
        }
    }

    /// Takes the attached agent.
    pub(super) fn set_own(&mut self, agent: &str) {
        agent.clone_into(&mut self.own);
    }

    /// Whether this is the attached agent.
    pub(super) fn is_own(&self, agent: &str) -> bool {
        agent == self.own
    }

    /// Says something about the attachment itself.
    pub(super) fn note(&mut self, console: &Console, text: &str) {
        if self.output.is_json() {
            return crate::output::note(text);
        }
        self.line(console, &self.output.dim(&format!("[{text}]")));
    }

    /// The daemon went away.
    pub(super) fn lost(&mut self, console: &Console) {
        self.note(console, "daemon lost, reconnecting…");
    }

    fn line(&mut self, console: &Console, text: &str) {
        let fresh = if std::mem::take(&mut self.midway) { "\n" } else { "" };
        console.write(&format!("{fresh}{text}\n"));
    }

    /// A line about an agent, with its name before it in a tree.
    fn agent_line(&mut self, console: &Console, agent: &str, text: &str) {
        let text = format!("{}{text}", self.prefix(agent));
        self.line(console, &text);
    }

    fn prefix(&self, agent: &str) -> String {
        if !self.tree {
            return String::new();
        }
        let number = self.names.keys().position(|id| id == agent).unwrap_or(0);
        let name = self.names.get(agent).map_or("?", String::as_str);
        format!("{} ", self.output.colored(number, &format!("{name} |")))
    }

    pub(super) fn show(&mut self, console: &Console, response: &v1::AttachResponse) {
        match &response.item {
            Some(Item::Attached(attached)) => self.attached(console, attached),
            Some(Item::TurnStarted(turn)) => {
                self.turns.insert(response.sequence, turn.agent_id.clone());
                self.texts.insert(turn.agent_id.clone(), Text::default());
            }
            Some(Item::OutputDelta(delta)) => self.delta(console, delta),
            Some(Item::OutputReplaced(replaced)) => self.replaced(console, replaced),
            Some(Item::PermissionRequested(asked)) => {
                self.asked(console, &asked.permission);
            }
            Some(Item::PermissionResolved(resolved)) => {
                let text = self.output.dim(&format!("[{}]", answer::resolved(resolved)));
                self.agent_line(console, &resolved.agent_id, &text);
            }
            Some(Item::ToolCallStarted(call)) => {
                if let Some(text) = self.texts.get_mut(&call.agent_id) {
                    text.since = text.all.len();
                }
                let text = self.output.dim(&format!("· {}{}", call.tool, arguments(call)));
                self.agent_line(console, &call.agent_id, &text);
            }
            Some(Item::ToolCallFinished(call)) if !call.error.is_empty() => {
                let text = self.output.dim(&format!("· {} failed: {}", call.tool, call.error));
                self.agent_line(console, &call.agent_id, &text);
            }
            Some(Item::MessageSeen(seen)) => self.message(console, seen.message.as_ref()),
            Some(Item::TurnEnded(turn)) => self.ended(console, turn),
            Some(Item::StateChanged(changed)) => self.changed(console, changed),
            Some(Item::AgentCrashed(crashed)) => {
                let text = format!("[crashed: {}] {LOST_TURN}", crashed.reason);
                self.agent_line(console, &crashed.agent_id, &text);
            }
            Some(Item::ProcessNotice(notice)) => {
                let text = self.output.dim(&format!("[{}]", notice.text));
                self.agent_line(console, &notice.agent_id, &text);
            }
            Some(Item::DaemonRecovered(recovered)) => {
                let text = format!(
                    "the daemon recovered: {} interrupted, {} returned",
                    count(recovered.interrupted_turns, "turn"),
                    count(recovered.returned_messages, "message")
                );
                self.note(console, &text);
            }
            Some(Item::DaemonDraining(_)) => self.note(console, "the daemon is stopping"),
            Some(Item::Lagged(lagged)) => {
                let count = lagged.to_index - lagged.from_index;
                self.note(console, &format!("{count} pieces of output were skipped"));
            }
            Some(Item::InputResult(result)) if !result.reason.is_empty() => {
                self.note(console, &format!("not done: {}", result.error));
            }
            Some(Item::ToolCallFinished(_) | Item::InputResult(_) | Item::Heartbeat(_)) | None => {}
        }
    }

    fn attached(&mut self, console: &Console, attached: &v1::Attached) {
        let Some(agent) = &attached.agent else { return };
        self.set_own(&agent.id);
        self.names.insert(agent.id.clone(), agent.path.clone());
        let again = self.daemon_started.is_some();
        let restarted = again && self.daemon_started != attached.daemon_start_time;
        self.daemon_started = attached.daemon_start_time;
        if restarted {
            // The turns that put it out are lost.
            self.texts.clear();
        }
        let state = super::super::state_word(agent);
        let text = match (again, restarted) {
            (false, _) => format!(
                "attached to {} ({state}); type to send, Ctrl-C cancels a turn, /quit detaches",
                agent.path
            ),
            (true, false) => format!("reconnected; {} is {state}", agent.path),
            (true, true) => format!("reconnected to a restarted daemon; {} is {state}", agent.path),
        };
        self.note(console, &text);
        self.asked(console, &attached.permissions);
    }

    /// Shows questions.
    pub(super) fn asked<'a>(
        &mut self,
        console: &Console,
        asked: impl IntoIterator<Item = &'a v1::Permission>,
    ) {
        for asked in asked {
            let text = self.output.bold(&format!("? {}", answer::question(asked)));
            self.agent_line(console, &asked.agent_id, &text);
            if console.is_terminal() {
                let text = self.output.dim("  /allow, /always or /deny [REASON] answers");
                self.agent_line(console, &asked.agent_id, &text);
            }
        }
    }

    /// Says that the text so far is another, and shows it.
    fn replaced(&mut self, console: &Console, replaced: &v1::OutputReplaced) {
        let Some(agent) = self.turns.get(&replaced.turn).cloned() else { return };
        if replaced.kind() == v1::OutputKind::Thinking {
            return;
        }
        let text = self.texts.entry(agent.clone()).or_default();
        let first = text.pieces.partition_point(|(index, _)| *index < replaced.from_index);
        let start = text.pieces.get(first).map_or(text.all.len(), |(_, start)| *start);
        text.all.truncate(start);
        text.pieces.truncate(first);
        text.rest.clear();
        let what = if replaced.text.is_empty() {
            "[the text so far is void]"
        } else {
            "[the text so far is replaced by:]"
        };
        self.agent_line(console, &agent, &self.output.dim(what));
        self.delta(
            console,
            &v1::OutputDelta {
                turn: replaced.turn,
                index: replaced.from_index,
                kind: replaced.kind,
                text: replaced.text.clone(),
            },
        );
    }

    fn delta(&mut self, console: &Console, delta: &v1::OutputDelta) {
        let Some(agent) = self.turns.get(&delta.turn).cloned() else { return };
        let thinking = delta.kind() == v1::OutputKind::Thinking;
        let text = self.texts.entry(agent.clone()).or_default();
        if !thinking {
            text.pieces.push((delta.index, text.all.len()));
            text.all.push_str(&delta.text);
        }
        if thinking {
            let text = self.output.dim(&format!("({})", delta.text.trim_end()));
            return self.agent_line(console, &agent, &text);
        }
        if !self.tree && !console.is_prompting() {
            self.midway = !delta.text.ends_with('\n');
            return console.write(&delta.text);
        }
        // Whole lines only, where other text may come in between.
        text.rest.push_str(&delta.text);
        if let Some(end) = text.rest.rfind('\n') {
            let rest = text.rest.split_off(end + 1);
            let lines = std::mem::replace(&mut text.rest, rest);
            for line in lines.lines() {
                self.agent_line(console, &agent, line);
            }
        }
    }

    fn message(&mut self, console: &Console, message: Option<&v1::Message>) {
        let Some(message) = message else { return };
        // What this user typed, and what streams as the answer, is on the screen already.
        if message.sender == "USER" && !self.tree {
            return;
        }
        let first = message.text.lines().next().unwrap_or_default();
        let more = if first.len() < message.text.trim_end().len() { " …" } else { "" };
        let text = format!("✉ {} → {}: {first}{more}", message.sender, message.recipient);
        self.line(console, &self.output.dim(&text));
    }

    fn ended(&mut self, console: &Console, turn: &v1::TurnEnded) {
        self.turns.retain(|_, agent| *agent != turn.agent_id);
        let text = self.texts.remove(&turn.agent_id).unwrap_or_default();
        if !text.rest.is_empty() {
            self.agent_line(console, &turn.agent_id, &text.rest);
        }
        match turn.outcome() {
            v1::TurnOutcome::Completed => {
                let last = text.all.get(text.since..).unwrap_or_default();
                if [text.all.as_str(), last].map(str::trim_end).contains(&turn.response.trim_end())
                {
                    if self.midway {
                        self.line(console, "");
                    }
                    return;
                }
                // What was missed of the output, or an answer that is another.
                let rest = turn.response.strip_prefix(&text.all).unwrap_or(&turn.response);
                if std::mem::take(&mut self.midway) && rest.len() < turn.response.len() {
                    console.write(&format!("{}\n", rest.trim_end()));
                    return;
                }
                for line in rest.lines() {
                    self.agent_line(console, &turn.agent_id, line);
                }
            }
            v1::TurnOutcome::Failed => {
                let text = format!("[turn failed ({}): {}]", turn.error_class, turn.error);
                self.agent_line(console, &turn.agent_id, &text);
            }
            v1::TurnOutcome::Cancelled => {
                self.agent_line(console, &turn.agent_id, "[turn cancelled]");
            }
            v1::TurnOutcome::Interrupted => {
                self.agent_line(console, &turn.agent_id, &format!("[{LOST_TURN}]"));
            }
            v1::TurnOutcome::Unspecified => {}
        }
    }

    fn changed(&mut self, console: &Console, changed: &v1::StateChanged) {
        let Some(agent) = &changed.agent else { return };
        self.names.insert(agent.id.clone(), agent.path.clone());
        let text = match changed.event.as_str() {
            "agent.created" => format!("created {}", agent.path),
            "agent.terminated" => format!("{} ended", agent.path),
            "tool.gate" if agent.gated => format!("{} is gated", agent.path),
            "tool.gate" => format!("{} is ungated", agent.path),
            "message.set_aside" => {
                format!("{} sets a message aside: \"agent inspect\" shows it", agent.path)
            }
            event => match super::super::show::budget_note(agent, event) {
                Some(text) => text,
                None => return,
            },
        };
        self.note(console, &text);
    }
}

/// The arguments of a call, short.
fn arguments(call: &v1::ToolCallStarted) -> String {
    use prost_types::value::Kind;
    let Some(arguments) = &call.arguments else { return String::new() };
    let shown: Vec<String> = arguments
        .fields
        .values()
        .filter_map(|value| match &value.kind {
            Some(Kind::StringValue(text)) => {
                let first = text.lines().next().unwrap_or_default();
                let cut: String = first.chars().take(40).collect();
                let more = if cut.len() < text.len() { "…" } else { "" };
                Some(format!("{cut}{more}"))
            }
            Some(Kind::NumberValue(number)) => Some(number.to_string()),
            _ => None,
        })
        .collect();
    if shown.is_empty() { String::new() } else { format!(" {}", shown.join(", ")) }
}
