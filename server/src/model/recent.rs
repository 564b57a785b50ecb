//! An agent as another one sees it: what it is doing, and for its parent what it did last.

use serde_json::{Value, json};

use super::{Agent, Entry, Event, Gate, Message, State};

/// Longest text of one item, in characters.
const MAX_TEXT: usize = 300;
/// Most messages of an inbox that are shown.
const MAX_MESSAGES: usize = 20;

/// What is seen from one hop away.
pub(super) fn describe(state: &State, agent: &Agent) -> Value {
    let (gated, permits) = match agent.gate {
        Gate::Open => (false, 0),
        Gate::Gated { permits } => (true, permits),
    };
    json!({
        "name": agent.name,
        "agent_id": agent.id,
        "role": agent.role,
        "state": agent.doing(),
        "queued": state.is_queued(agent),
        "gated": gated,
        "permits": permits,
        "unread": agent.unread().count(),
        "children": agent.children.len(),
        "turns_completed": agent.turns.completed,
        "turns_failed": agent.turns.failed,
        "metadata": agent.metadata,
    })
}

/// What a parent sees of a child. What it did last is added by who reads its log.
pub(super) fn describe_child(state: &State, agent: &Agent) -> Value {
    let mut shown = describe(state, agent);
    let names = agent.children.iter().filter_map(|id| state.agent(*id)).map(|child| &child.name);
    let inbox: Vec<Value> = agent.unread().take(MAX_MESSAGES).map(in_short).collect();
    let turn = agent.turn().map(|turn| {
        let calls: Vec<&str> = turn.calls.iter().map(|call| call.tool.as_ref()).collect();
        json!({ "turn_id": turn.id, "started": turn.at, "open_tools": calls })
    });
    shown["child_names"] = names.map(|name| json!(name)).collect();
    shown["inbox"] = inbox.into();
    shown["turn"] = turn.into();
    shown
}

/// What an agent sees of itself.
pub(super) fn describe_self(state: &State, agent: &Agent) -> Value {
    let mut shown = describe(state, agent);
    let reminders = agent.reminders.iter().map(|one| {
        json!({
            "reminder_id": one.id, "reason": clip(&one.reason), "due": one.due, "every": one.every,
        })
    });
    let subscriptions = agent.subscriptions.iter().map(|one| {
        json!({
            "subscription_id": one.id,
            "agent_name": state.party_name(super::Party::Agent(one.target)),
            "transition": format!("{}->{}", one.from, one.to),
            "once": one.once,
        })
    });
    shown["reminders"] = reminders.collect();
    shown["subscriptions"] = subscriptions.collect();
    shown
}

fn in_short(message: &Message) -> Value {
    json!({
        "message_id": message.id,
        "from": message.sender_name,
        "kind": message.kind,
        "text": clip(&message.text),
    })
}

/// A line on an event for a parent that looks at a child; none for what tells nothing.
pub fn recent(entry: &Entry) -> Option<Value> {
    let (what, text) = match &entry.event {
        Event::MessageEnqueued(data) => {
            let what = format!("{} from {}", data.kind.as_str(), data.sender_name);
            (what, clip(&data.payload))
        }
        Event::TurnStart(data) => ("turn started".to_owned(), clip(&data.prompt)),
        Event::TurnComplete(data) => ("turn completed".to_owned(), clip(&data.response)),
        Event::TurnFailed(data) => ("turn failed".to_owned(), clip(&data.error)),
        Event::MessageSetAside(data) => {
            let why = format!("turns with it fail ({})", data.class.as_str());
            ("set a message aside".to_owned(), why)
        }
        Event::TurnCancelled(_) => ("turn cancelled".to_owned(), String::new()),
        Event::TurnInterrupted(_) => ("turn interrupted".to_owned(), String::new()),
        Event::TurnRetry(data) => ("turn tried again".to_owned(), clip(&data.error)),
        Event::ToolCallInvoked(data) => (format!("called {}", data.tool), clip(data.args.get())),
        Event::ToolCallResult(data) => {
            let result = data.result.as_ref().map_or("", super::Json::get);
            match &data.error {
                Some(error) => (format!("{} failed", data.tool), clip(error)),
                None => (format!("{} returned", data.tool), clip(result)),
            }
        }
        Event::TurnSaid(data) => ("said".to_owned(), clip(&data.text)),
        Event::ToolUseStarted(data) => (format!("uses {}", data.tool), clip(data.input.get())),
        Event::ToolUseEnded(data) => {
            let how = if data.ok { "is done" } else { "failed" };
            (format!("{} {how}", data.tool), clip(&data.output))
        }
        Event::TurnNotice(data) => ("notes".to_owned(), clip(&data.text)),
        Event::TurnStalled(data) => ("is silent".to_owned(), format!("{} ms", data.silent_ms)),
        Event::PermissionAsked(data) => {
            (format!("asks whether it may use {}", data.tool), clip(data.input.get()))
        }
        Event::PermissionAnswered(data) => {
            let who = format!("{} answers {}", data.by.as_str(), data.decision.as_str());
            (who, clip(data.reason.as_deref().unwrap_or_default()))
        }
        Event::AgentCrashed(data) => ("crashed".to_owned(), clip(&data.reason)),
        Event::TurnStderr(data) => {
            let last = data.text.trim_end().rsplit('\n').next().unwrap_or_default();
            ("wrote to standard error".to_owned(), clip(last))
        }
        Event::ProcessExited(data) => {
            let why = data.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            ("process ended".to_owned(), clip(&format!("{}{why}", data.status)))
        }
        Event::LimitHit(data) => {
            (format!("met its limit of {}", data.limit.as_str()), clip(&data.detail))
        }
        Event::SandboxOff(data) => ("ran without a sandbox".to_owned(), clip(&data.reason)),
        _ => return None,
    };
    Some(json!({ "at": entry.at, "what": what, "text": text }))
}

fn clip(text: &str) -> String {
    let mut clipped: String = text.chars().take(MAX_TEXT).collect();
    if clipped.len() < text.len() {
        clipped.push('…');
    }
    clipped
}
