//! The conversation as a person reads it: `[12:00:05] alpha → beta: …`.

use super::{Entry, Event, Name, Party, SessionId, State, Timestamp};

/// The lines that an event adds to transcripts, each with its newline. `state` is the state right
/// after the event.
pub(super) fn lines(state: &State, entry: &Entry) -> Vec<(SessionId, String)> {
    let at = entry.at;
    match &entry.event {
        Event::MessageEnqueued(data) => {
            let arrow = format!("{} → {}", data.sender_name, data.recipient_name);
            let text = line(at, &arrow, &data.payload);
            // The same line stands in the transcripts of both ends.
            [data.sender, data.recipient]
                .into_iter()
                .filter_map(Party::agent)
                .filter_map(|id| state.agent(id))
                .map(|agent| (agent.session.id, text.clone()))
                .collect()
        }
        Event::TurnComplete(data) if !data.answers.is_empty() => {
            own(entry, line(at, &format!("{} → USER", data.agent), &data.response))
        }
        Event::TurnFailed(data) => {
            let text = format!("turn failed ({}): {}", data.class.as_str(), data.error);
            own(entry, note(at, &data.agent, &text))
        }
        Event::TurnRefused(data) => {
            own(entry, note(at, &data.agent, &format!("turn refused: {}", data.excess())))
        }
        Event::TurnCancelled(data) => own(entry, note(at, &data.agent, "turn cancelled")),
        Event::TurnInterrupted(data) => {
            own(entry, note(at, &data.agent, "turn interrupted: the daemon stopped"))
        }
        Event::TurnRetry(data) => {
            let name = own_name(state, entry);
            let text = format!("trying again in {} ms after: {}", data.delay_ms, data.error);
            own(entry, note(at, &name, &text))
        }
        Event::AgentCrashed(data) => {
            own(entry, note(at, &own_name(state, entry), &format!("crashed: {}", data.reason)))
        }
        Event::ProcessExited(data) if data.reason.is_some() || data.status != "exit 0" => {
            let why = data.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            let text = format!("process {} ended with {}{why}", data.pid, data.status);
            own(entry, note(at, &own_name(state, entry), &text))
        }
        Event::LimitHit(data) => {
            let text = format!("met its limit of {}: {}", data.limit.as_str(), data.detail);
            own(entry, note(at, &own_name(state, entry), &text))
        }
        Event::SandboxOff(data) => {
            let text = format!("runs without a sandbox: {}", data.reason);
            own(entry, note(at, &own_name(state, entry), &text))
        }
        event @ (Event::TurnSaid(_)
        | Event::ToolUseStarted(_)
        | Event::ToolUseEnded(_)
        | Event::TurnNotice(_)
        | Event::TurnStalled(_)
        | Event::PermissionAsked(_)
        | Event::PermissionAnswered(_)) => backend(state, entry, event),
        Event::AgentTerminated(data) => {
            let text = format!("ended ({})", data.reason.as_str());
            own(entry, note(at, &own_name(state, entry), &text))
        }
        _ => Vec::new(),
    }
}

/// What the backend of a turn does between the prompt and the answer.
fn backend(state: &State, entry: &Entry, event: &Event) -> Vec<(SessionId, String)> {
    let (at, name) = (entry.at, own_name(state, entry));
    let text = match event {
        Event::TurnSaid(data) => return own(entry, line(at, name.as_str(), &data.text)),
        Event::ToolUseStarted(data) => format!("uses {}: {}", data.tool, clip(data.input.get())),
        Event::ToolUseEnded(data) if !data.ok => {
            format!("used {}, which failed: {}", data.tool, clip(&data.output))
        }
        Event::TurnNotice(data) => format!("notes: {}", data.text),
        Event::TurnStalled(data) => format!("is silent for {} ms", data.silent_ms),
        Event::PermissionAsked(data) => {
            format!("asks whether it may use {}: {}", data.tool, clip(data.input.get()))
        }
        Event::PermissionAnswered(data) => {
            let why = data.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            format!("was answered {} by {}{why}", data.decision.as_str(), data.by.as_str())
        }
        _ => return Vec::new(),
    };
    own(entry, note(at, &name, &text))
}

/// As much of what a tool was given, or gave, as a transcript has.
fn clip(text: &str) -> String {
    let end = text.floor_char_boundary(300);
    if end < text.len() { format!("{}…", &text[..end]) } else { text.to_owned() }
}

fn own(entry: &Entry, text: String) -> Vec<(SessionId, String)> {
    entry.session.map(|session| (session, text)).into_iter().collect()
}

fn own_name(state: &State, entry: &Entry) -> Name {
    let agent = entry.session.and_then(|session| state.agent_of(session));
    agent.map_or_else(|| Name::known("?"), |agent| agent.name.clone())
}

fn line(at: Timestamp, who: &str, text: &str) -> String {
    // Further lines of a text are indented, so that a line that starts with "[" is a new one.
    format!("[{}] {who}: {}\n", at.time_of_day(), text.trim_end().replace('\n', "\n    "))
}

fn note(at: Timestamp, who: &Name, text: &str) -> String {
    format!("[{}] ({who} {})\n", at.time_of_day(), text.trim_end().replace('\n', "\n    "))
}
