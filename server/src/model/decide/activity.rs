//! What runners tell of what the backends of their turns do.

use std::sync::Arc;

use super::Plan;
use crate::model::turn::Turn;
use crate::model::{
    Agent, AgentId, Blob, Json, MessageCollected, Outcome, PermissionWithdrawn, SessionSaved, Told,
    ToolUseEnded, ToolUseStarted, TurnId, TurnNotice, TurnSaid, TurnStalled,
};

/// Most uses of a backend's own tools that are logged in a turn: two events each.
pub(in crate::model) const MAX_USES: u32 = 5000;
/// Most notices that are logged in a turn.
pub(in crate::model) const MAX_NOTICES: u32 = 100;
/// Most bytes of the arguments of a tool, and of what it gave.
pub(in crate::model) const MAX_CARRIED: usize = 16 << 10;
/// Most bytes of a text of a model that is not its answer.
const MAX_SAID: usize = 1 << 20;
/// Most bytes of what a session is resumed from.
const MAX_STATE: u64 = 1 << 20;
/// Most bytes of a notice.
const MAX_NOTICE: usize = 4 << 10;
/// Most bytes of a name.
pub(super) const MAX_NAME: usize = 256;

impl Plan<'_, '_> {
    pub(super) fn tell_turn(&mut self, id: AgentId, turn_id: TurnId, told: Told) -> Outcome {
        let Some(agent) = self.state.live_agent(id) else { return Outcome::Done };
        let Some(turn) = agent.turn_is(turn_id) else { return Outcome::Done };
        let session = agent.session.id;
        match told {
            Told::Said(text) => {
                let text =
                    if text.len() > MAX_SAID { bounded(&text, MAX_SAID).into() } else { text };
                self.push(session, TurnSaid { turn_id, text });
            }
            Told::UseStarted { id, tool, input } => self.start_use(agent, turn, (id, tool), input),
            Told::UseEnded { id, ok, output } => {
                let id = name(&id);
                let Some(open) = turn.backend.uses.iter().find(|open| open.id == id) else {
                    return Outcome::Done;
                };
                let (tool, output) = (open.tool.clone(), bounded(&output, MAX_CARRIED));
                self.push(session, ToolUseEnded { turn_id, use_id: id, tool, ok, output });
            }
            Told::Notice(text) => self.note(agent, turn, &text),
            Told::Stalled(silent_ms) => {
                let tool = turn.backend.uses.last().map(|open| open.tool.clone());
                self.push(session, TurnStalled { turn_id, silent_ms, tool });
            }
            Told::TookIn { message: message_id, text } => {
                if agent.unread().any(|message| message.id == message_id) {
                    let told = Some(text);
                    self.push(session, MessageCollected { message_id, turn_id, told });
                    self.note(agent, turn, "took a message in while it worked");
                }
            }
            Told::Saved(state) => self.save_session(agent, state),
        }
        Outcome::Turn(turn_id)
    }

    fn start_use(
        &mut self,
        agent: &Agent,
        turn: &Turn,
        (id, tool): (Arc<str>, Arc<str>),
        input: Json,
    ) {
        let (use_id, tool, turn_id) = (name(&id), name(&tool), turn.id);
        let backend = &turn.backend;
        let known = backend.uses.iter().any(|open| open.id == use_id);
        if known || backend.started >= MAX_USES {
            return;
        }
        let input = carried(input);
        self.push(agent.session.id, ToolUseStarted { turn_id, use_id, tool, input });
        if backend.started + 1 == MAX_USES {
            let text = format!("used its own tools {MAX_USES} times; further uses are not logged");
            self.push(agent.session.id, TurnNotice { turn_id, text });
        }
    }

    fn note(&mut self, agent: &Agent, turn: &Turn, text: &str) {
        let last = match turn.backend.notices + 1 {
            more if more > MAX_NOTICES => return,
            MAX_NOTICES => "\n(further notices of this turn are not logged)",
            _ => "",
        };
        let text = bounded(text, MAX_NOTICE) + last;
        self.push(agent.session.id, TurnNotice { turn_id: turn.id, text });
    }

    /// Keeps what a session is resumed from, if it is something new.
    pub(super) fn save_session(&mut self, agent: &Agent, state: Blob) {
        if state.size() > MAX_STATE {
            if let Some(turn) = agent.turn() {
                let text = format!("what it saves is too large: {} bytes", state.size());
                self.note(agent, turn, &text);
            }
            return;
        }
        if agent.session.saved.as_ref() != Some(&state) {
            let state_size = state.size();
            self.push(agent.session.id, SessionSaved { state_size, provider_state: state });
        }
    }

    /// Ends the tools of a backend that still run, and takes back what it asks.
    pub(super) fn close_backend(&mut self, agent: &Agent, turn: &Turn, why: &str) {
        let (session, turn_id) = (agent.session.id, turn.id);
        for open in &turn.backend.uses {
            let (use_id, tool) = (open.id.clone(), open.tool.clone());
            let (ok, output) = (false, why.to_owned());
            self.push(session, ToolUseEnded { turn_id, use_id, tool, ok, output });
        }
        for open in &turn.backend.questions {
            let permission_id = open.permission.id;
            self.push(session, PermissionWithdrawn { permission_id, turn_id });
        }
    }
}

/// A name that a backend gave.
pub(super) fn name(text: &Arc<str>) -> Arc<str> {
    match text.len() {
        ..=MAX_NAME => text.clone(),
        _ => text[..text.floor_char_boundary(MAX_NAME)].into(),
    }
}

/// The beginning of a text, and how much is left out.
pub(super) fn bounded(text: &str, limit: usize) -> String {
    let end = text.floor_char_boundary(limit);
    match text.len() - end {
        0 => text.to_owned(),
        left => format!("{}\n({left} more bytes are left out)", &text[..end]),
    }
}

/// Arguments as they are logged: JSON in any case.
pub(super) fn carried(input: Json) -> Json {
    let bytes = input.get().len();
    if bytes <= MAX_CARRIED {
        return input;
    }
    Json::of(&format!("({bytes} bytes are left out)")).unwrap_or_else(|_| Json::null())
}
