//! How turns end, wait and are cancelled.

use std::sync::Arc;

use super::Plan;
use super::activity::bounded;
use super::mail::set_aside;
use super::message::Letter;
use crate::model::turn::Turn;
use crate::model::{
    Agent, AgentCrashed, AgentId, DiscardReason, EndReason, FailureClass, Kind, Message,
    MessageDelivered, MessageDiscarded, MessageId, MessageSetAside, Outcome, Party, Rejection,
    Saved, SessionId, SessionState, SuspendResult, ToolCallResult, TurnAttempt, TurnCancelled,
    TurnCancelling, TurnComplete, TurnEnd, TurnFailed, TurnId, TurnInterrupted, TurnNotice,
    TurnResumed, TurnRetry, WaitExpired,
};

/// What a tool call returns whose turn is cancelled.
const ABORTED: &str = "[Aborted by user]";
/// What a tool call returns whose outcome nobody knows.
pub(in crate::model) const UNKNOWN: &str = "[Interrupted: outcome unknown]";
/// Most bytes of what went wrong with a turn.
const MAX_ERROR: usize = 16 << 10;
/// Most bytes of an answer, as often as it stands in the end of a turn.
const MAX_ANSWERS: usize = 32 << 20;
/// What a child is told that starts without a message.
const BOOTSTRAP: &str = "You have been started. Follow your instructions.";

impl Plan<'_, '_> {
    pub(super) fn finish_turn(
        &mut self,
        id: AgentId,
        turn: TurnId,
        end: TurnEnd,
        attended: &[MessageId],
    ) -> Outcome {
        // A turn that is over already was ended by something stronger than its provider.
        let Some(agent) = self.state.live_agent(id) else { return Outcome::Done };
        let Some(turn) = agent.turn_is(turn) else { return Outcome::Done };
        self.close_calls(agent, turn, UNKNOWN);
        match end {
            TurnEnd::Completed { response, saved } => {
                let response = self.bounded_answer(agent, turn, response);
                self.complete_turn(agent, turn, response, saved, attended);
            }
            // A backend may fail over the first sign of a cancel that it sees, a tool call that is
            // refused, before it is asked to end.
            TurnEnd::Failed { class, error } if turn.cancelling.is_none() => {
                self.fail_turn(agent, turn, class, bounded(&error, MAX_ERROR), attended);
            }
            TurnEnd::Failed { .. } | TurnEnd::Cancelled => self.end_asked(agent, turn),
        }
        Outcome::Turn(turn.id)
    }

    /// An answer that fits into messages, and into a record as often as it is to stand there.
    fn bounded_answer(&mut self, agent: &Agent, turn: &Turn, response: Arc<str>) -> Arc<str> {
        let most = (2 * self.cx.policy.max_text).min(MAX_ANSWERS / (turn.messages.len() + 1));
        if response.len() <= most {
            return response;
        }
        let text = format!("its answer has {} bytes, of which {most} are kept", response.len());
        self.push(agent.session.id, TurnNotice { turn_id: turn.id, text });
        bounded(&response, most).into()
    }

    fn complete_turn(
        &mut self,
        agent: &Agent,
        turn: &Turn,
        response: Arc<str>,
        saved: Saved,
        attended: &[MessageId],
    ) {
        let session = agent.session.id;
        let messages: Vec<&Message> = messages_of(agent, turn).collect();
        for message in &messages {
            self.push(session, MessageDelivered { message_id: message.id, turn_id: Some(turn.id) });
        }
        let open = |message: &&&Message| message.kind.wants_answer() && !message.answered;
        // Whoever waits is told the answer of the turn, even if something was said to him before.
        let answers = messages
            .iter()
            .filter(|message| message.kind.wants_answer())
            .filter(|message| message.sender == Party::User && attended.contains(&message.id))
            .map(|message| message.id)
            .collect::<Vec<_>>();
        for message in messages.iter().filter(open) {
            if !answers.contains(&message.id) && Some(message.sender) != result_goes_to(agent, turn)
            {
                self.answer(agent, message, Kind::Response, response.clone());
            }
        }
        if let Saved::State(state) = saved {
            self.save_session(agent, state);
        }
        self.push(
            session,
            TurnComplete { turn_id: turn.id, response, agent: agent.name.clone(), answers },
        );
        self.bootstrap_children(agent, turn.id);
        if let (Some(result), Some(parent)) = (&turn.completing, agent.parent) {
            let to = Party::Agent(parent);
            let asked = messages.iter().filter(open).filter(|message| message.sender == to);
            let mut asked: Vec<Option<MessageId>> = asked.map(|message| Some(message.id)).collect();
            if asked.is_empty() {
                asked.push(None);
            }
            let from = Party::Agent(agent.id);
            for reply_to in asked {
                let letter = Letter::new(from, to, Kind::Response, result.clone());
                self.enqueue(Letter { reply_to, ..letter });
            }
            // One that got children in the meantime has a team to care for, and lives on.
            if agent.children.is_empty() {
                self.end_agent(agent, EndReason::Completed, &[]);
            }
        }
    }

    fn fail_turn(
        &mut self,
        agent: &Agent,
        turn: &Turn,
        class: FailureClass,
        error: String,
        attended: &[MessageId],
    ) {
        let refused = self.refused_again(agent, turn, class);
        // Nothing is tried at once unless what was refused is out of the way.
        let left =
            agent.unread().filter(|message| refused.is_empty() && message.since() < turn.seq);
        let left: Vec<&Message> = left.collect();
        let mut text = format!("the turn of {} failed ({}): {error}", agent.name, class.as_str());
        for message in &refused {
            text.push_str(&format!("\n{}", set_aside(message)));
        }
        let (turn_id, name) = (turn.id, agent.name.clone());
        let mut messages = turn.messages.clone();
        messages.extend(left.iter().map(|message| message.id));
        let end = TurnFailed { turn_id, agent: name, class, error, messages };
        self.push(agent.session.id, end);
        for message in &refused {
            let message_id = message.id;
            self.push(agent.session.id, MessageSetAside { message_id, turn_id, class });
        }
        let waits =
            |message: &&&Message| message.sender == Party::User && (self.cx.attended)(message.id);
        let mut attended = attended.to_vec();
        attended.extend(left.iter().filter(waits).map(|message| message.id));
        self.tell_those(agent, messages_of(agent, turn).chain(left), &text, &attended);
        self.tell_refused(agent, &refused);
        self.bootstrap_children(agent, turn.id);
    }

    fn end_asked(&mut self, agent: &Agent, turn: &Turn) {
        if turn.is_cancelled_by_user() {
            self.end_cancelled(agent, turn);
        } else {
            self.interrupt(agent, turn, true);
        }
    }

    /// Ends a turn that USER cancelled.
    pub(in crate::model) fn end_cancelled(&mut self, agent: &Agent, turn: &Turn) {
        let (session, name, by) = (agent.session.id, agent.name.clone(), Party::User);
        for message in messages_of(agent, turn).filter(|message| message.sender == Party::User) {
            let reason = DiscardReason::Cancelled;
            self.push(session, MessageDiscarded { message_id: message.id, reason });
        }
        let messages = turn.messages.clone();
        self.push(session, TurnCancelled { turn_id: turn.id, agent: name, by, messages });
        let text = format!("the turn of {} was cancelled", agent.name);
        let from_user: Vec<MessageId> = messages_of(agent, turn)
            .filter(|message| message.sender == Party::User)
            .map(|message| message.id)
            .collect();
        self.tell_of_end(agent, turn, &text, &from_user);
        self.bootstrap_children(agent, turn.id);
    }

    /// The daemon ends, or ended, under a running turn.
    pub(in crate::model) fn interrupt(&mut self, agent: &Agent, turn: &Turn, wakes: bool) {
        self.push(
            agent.session.id,
            TurnInterrupted {
                turn_id: turn.id,
                agent: agent.name.clone(),
                stage: turn.stage(),
                recovery: turn.stage().advice(),
                lost_calls: turn.calls.iter().map(|call| call.tool.clone()).collect(),
                wakes,
            },
        );
        self.bootstrap_children(agent, turn.id);
    }

    /// Tells whoever counts on a turn that it ended without an answer: those who asked, and the
    /// one above the agent. `attended` messages are answered by other means.
    fn tell_of_end(&mut self, agent: &Agent, turn: &Turn, text: &str, attended: &[MessageId]) {
        self.tell_those(agent, messages_of(agent, turn), text, attended);
    }

    /// The same of any messages of an agent.
    pub(super) fn tell_those<'m>(
        &mut self,
        agent: &Agent,
        messages: impl Iterator<Item = &'m Message>,
        text: &str,
        attended: &[MessageId],
    ) {
        let above = agent.superior();
        let mut told = above == Party::User && !attended.is_empty();
        for message in messages {
            if !message.kind.wants_answer() || message.answered || attended.contains(&message.id) {
                continue;
            }
            self.answer(agent, message, Kind::Error, text.into());
            told |= message.sender == above;
        }
        let there = above.agent().is_none_or(|id| self.state.live_agent(id).is_some());
        if !told && there {
            self.tell(above, Kind::Error, text);
        }
    }

    /// Children spawned in this turn that nobody wrote to start with a fixed message.
    fn bootstrap_children(&mut self, agent: &Agent, turn: TurnId) {
        self.bootstrap_children_except(agent, turn, agent.id);
    }

    /// The same, but for one that was just written to.
    pub(super) fn bootstrap_children_except(
        &mut self,
        agent: &Agent,
        turn: TurnId,
        written_to: AgentId,
    ) {
        for id in agent.children.iter().filter(|id| **id != written_to) {
            let Some(child) = self.state.live_agent(*id) else { continue };
            if child.born_in == Some(turn) && child.inbox.is_empty() {
                let to = Party::Agent(child.id);
                self.tell(to, Kind::Notification, BOOTSTRAP);
            }
        }
    }

    /// Gives every open tool call of a turn a result, so that its history is valid: that USER
    /// cancelled the turn, or else this error. What the backend does, and asks, is over as well.
    pub(in crate::model) fn close_calls(&mut self, agent: &Agent, turn: &Turn, error: &str) {
        let error = if turn.is_cancelled_by_user() { ABORTED } else { error };
        for call in &turn.calls {
            self.push(
                agent.session.id,
                ToolCallResult {
                    turn_id: turn.id,
                    call_id: call.id,
                    tool: call.tool.clone(),
                    result: None,
                    error: Some(error.to_owned()),
                    reason: None,
                },
            );
        }
        self.close_backend(agent, turn, error);
    }

    pub(super) fn cancel_turn(
        &mut self,
        reference: &str,
        turn: Option<TurnId>,
    ) -> Result<Outcome, Rejection> {
        let agent = self.state.resolve(reference)?;
        let running = agent.turn().filter(|running| turn.is_none_or(|id| id == running.id));
        let Some(running) = running else {
            return Err(Rejection::NoTurn { name: agent.name.clone(), turn });
        };
        // The daemon, too, may have asked it to end, but would start it again.
        if !running.is_cancelled_by_user() {
            self.ask_to_end(agent, running, Party::User);
        }
        Ok(Outcome::Turn(running.id))
    }

    /// Asks a turn to end. A call that waits for an answer returns at once.
    fn ask_to_end(&mut self, agent: &Agent, turn: &Turn, by: Party) {
        let session = agent.session.id;
        self.push(session, TurnCancelling { turn_id: turn.id, by });
        if let Some(wait) = agent.wait() {
            self.push(session, TurnResumed { turn_id: turn.id, call_id: wait.call });
            let error = if by == Party::System { UNKNOWN } else { ABORTED };
            let call = turn.calls.iter().find(|call| call.id == wait.call);
            self.push(
                session,
                ToolCallResult {
                    turn_id: turn.id,
                    call_id: wait.call,
                    tool: call.map_or_else(|| "send_message".into(), |call| call.tool.clone()),
                    result: None,
                    error: Some(error.to_owned()),
                    reason: None,
                },
            );
        }
    }

    pub(super) fn cancel_all(&mut self) -> Outcome {
        let state = self.state;
        for agent in state.agents() {
            if let Some(turn) = agent.turn().filter(|turn| turn.cancelling.is_none()) {
                self.ask_to_end(agent, turn, Party::System);
            }
        }
        Outcome::Done
    }

    pub(super) fn retry_turn(
        &mut self,
        agent: AgentId,
        turn_id: TurnId,
        (attempt, delay_ms): (u32, u64),
        (class, error): (FailureClass, String),
        provider: Option<Arc<str>>,
    ) -> Outcome {
        let Some(agent) = self.state.live_agent(agent) else { return Outcome::Done };
        let Some(turn) = agent.turn_is(turn_id) else { return Outcome::Done };
        // Who waited for an answer is gone. What comes to it is a message.
        if let Some(wait) = agent.wait() {
            self.push(agent.session.id, TurnResumed { turn_id, call_id: wait.call });
        }
        self.close_calls(agent, turn, UNKNOWN);
        if turn.cancelling.is_some() {
            return Outcome::Turn(turn_id);
        }
        self.push(
            agent.session.id,
            TurnRetry {
                turn_id,
                attempt,
                delay_ms,
                class,
                error: bounded(&error, MAX_ERROR),
                provider,
            },
        );
        Outcome::Turn(turn_id)
    }

    pub(super) fn start_attempt(&mut self, agent: AgentId, turn: TurnId) -> Outcome {
        let Some(agent) = self.state.live_agent(agent) else { return Outcome::Done };
        let Some(turn) = agent.turn_is(turn) else { return Outcome::Done };
        if let Some(attempt) = turn.next_attempt.filter(|_| turn.cancelling.is_none()) {
            self.push(agent.session.id, TurnAttempt { turn_id: turn.id, attempt });
        }
        Outcome::Turn(turn.id)
    }

    /// The task that ran a session is gone, and with it the provider instance.
    pub(super) fn crash(
        &mut self,
        session: SessionId,
        reason: String,
        attended: &[MessageId],
    ) -> Outcome {
        let Some(agent) = self.state.agent_of(session) else { return Outcome::Done };
        if !matches!(agent.session.state, SessionState::Active | SessionState::Suspending) {
            return Outcome::Done;
        }
        let turn = agent.turn();
        let turn_id = turn.map(|turn| turn.id);
        self.push(session, AgentCrashed { turn_id, reason: reason.clone(), recovered: true });
        if let Some(turn) = turn {
            self.close_calls(agent, turn, UNKNOWN);
            if turn.cancelling.is_some() {
                self.end_asked(agent, turn);
            } else {
                self.fail_turn(agent, turn, FailureClass::ProviderGone, reason.clone(), attended);
            }
        }
        let state_size = agent.session.saved.as_ref().map_or(0, crate::model::Blob::size);
        self.push(session, SuspendResult { state_size, provider_state: None, error: Some(reason) });
        Outcome::Done
    }

    /// Ends the waits whose time is up, and does what else is due.
    pub(super) fn tick(&mut self) -> Outcome {
        let state = self.state;
        for (at, id) in &state.slots.deadlines {
            if *at > self.cx.now {
                break;
            }
            let Some(agent) = state.agent(*id) else { continue };
            let wait = agent.wait().filter(|wait| wait.over.is_none());
            let wait = wait.filter(|wait| wait.until.is_some_and(|until| until <= self.cx.now));
            if let (Some(turn), Some(wait)) = (agent.turn(), wait) {
                let (turn_id, call_id, outcome) = (turn.id, wait.call, wait.on_expiry);
                self.push(agent.session.id, WaitExpired { turn_id, call_id, outcome });
            }
            let now = self.cx.now;
            for multicast in agent.multicasts.iter().filter(|one| one.until <= now) {
                self.end_multicast(agent, multicast);
            }
            self.remind(agent);
        }
        Outcome::Done
    }
}

/// The messages of a turn, as they stand in the inbox.
pub(super) fn messages_of<'a>(
    agent: &'a Agent,
    turn: &'a Turn,
) -> impl Iterator<Item = &'a Message> {
    turn.messages.iter().filter_map(|id| agent.message(*id))
}

/// Who gets the result of an agent that ends itself, instead of the turn's answer.
fn result_goes_to(agent: &Agent, turn: &Turn) -> Option<Party> {
    turn.completing.as_ref()?;
    agent.parent.map(Party::Agent)
}
