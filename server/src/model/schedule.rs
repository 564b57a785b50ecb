//! What has become possible: turns that can start, waits that are over, sessions to suspend.
//!
//! Called after every command until nothing is left, so that its events stand in the same record
//! as their cause. Slots go to agents in the order in which they became ready; nobody overtakes.
//! A ready agent that needs a slot gets, in this order: a free one, one that is being freed, or
//! that of the least recently used idle session. A busy session never loses its slot; an agent
//! that waits for an answer holds none. An agent whose budget is used up needs no slot: its turn is
//! refused.

use serde_json::json;

use super::decide::{Context, Draft, Plan};
use super::slots::Pool;
use super::turn::Over;
use super::{
    Activity, Agent, AgentId, CallId, Excess, Expiry, Json, Kind, MessageCollected, Policy,
    SessionOpened, SessionRestored, SessionState, SessionSuspending, State, SuspendReason,
    ToolCallResult, Turn, TurnId, TurnResumed, TurnStart, Usage, Wait, prompt,
};

/// The next thing that has become possible, as events; none when there is nothing.
pub fn next_step(state: &State, cx: &mut Context<'_>) -> Vec<Draft> {
    let mut plan = Plan::new(state, cx);
    plan.next_step();
    plan.events
}

/// What a place in the queue comes to.
enum Step {
    Suspend(AgentId, SuspendReason),
    GoOn(AgentId),
    Refuse(AgentId, Excess),
}

impl Plan<'_, '_> {
    fn next_step(&mut self) {
        let (state, policy) = (self.state, self.cx.policy);
        if let Some(agent) = state.slots.news.first().and_then(|id| state.agent(*id)) {
            return self.tell_news(agent);
        }
        let stale = state.slots.stale.first().map(|id| Step::Suspend(*id, SuspendReason::Updated));
        let step = stale.or_else(|| {
            let mut pools = state.slots.pools.iter();
            pools.find_map(|(provider, pool)| pool_step(state, policy, provider, pool))
        });
        match step {
            Some(Step::Suspend(id, reason)) => {
                if let Some(agent) = state.agent(id) {
                    self.push(agent.session.id, SessionSuspending { reason });
                }
            }
            Some(Step::GoOn(id)) => {
                if let Some(agent) = state.agent(id) {
                    self.go_on(agent);
                }
            }
            Some(Step::Refuse(id, excess)) => {
                if let Some(agent) = state.agent(id) {
                    self.refuse_turn(agent, excess);
                }
            }
            None => {}
        }
    }

    /// Tells an agent the first of what there is to tell it.
    fn tell_news(&mut self, agent: &Agent) {
        if let Some(notice) = agent.notices.first() {
            self.tell_transition(agent, *notice);
        } else if let Some(over) = agent.multicasts.iter().find(|one| one.is_complete()) {
            self.end_multicast(agent, over);
        }
    }

    /// Lets an agent go on that has a slot, or gets one with this.
    fn go_on(&mut self, agent: &Agent) {
        let session = &agent.session;
        match &agent.activity {
            Activity::Waiting(turn, wait) => return self.end_wait(agent, turn, wait),
            Activity::Idle => {}
            Activity::Busy(_) | Activity::Terminated => return,
        }
        let (provider, model) = (session.provider.clone(), session.model.clone());
        match session.state {
            SessionState::Created => self.push(session.id, SessionOpened { provider, model }),
            SessionState::Suspended => self.push(session.id, SessionRestored { provider, model }),
            SessionState::Active | SessionState::Suspending | SessionState::Terminated => {}
        }
        if agent.wants_turn() {
            let seq = self.state.seq() + self.events.len() as u64 + 1;
            let (prompt, messages) = prompt::compose(agent);
            let turn_id = TurnId::starting_at(session.id, seq);
            let start = TurnStart::new(turn_id, prompt.into(), messages);
            self.push(session.id, start.described(agent, self.cx.now));
            self.tell_levels(agent, Usage::TURN);
        }
    }

    /// Lets a call return that waited for an answer.
    fn end_wait(&mut self, agent: &Agent, turn: &Turn, wait: &Wait) {
        let (session, turn_id, call_id) = (agent.session.id, turn.id, wait.call);
        self.push(session, TurnResumed { turn_id, call_id });
        let (result, error) = match &wait.over {
            Some(Over::Answered(message_id)) => {
                let message_id = *message_id;
                self.push(session, MessageCollected { message_id, turn_id, told: None });
                match agent.answer() {
                    Some(answer) if answer.kind == Kind::Error => {
                        (None, Some(answer.text.to_string()))
                    }
                    answer => (
                        Some(json!({
                            "status": "answered",
                            "from": answer.map(|message| message.sender_name.as_str()),
                            "text": answer.map(|message| message.text.as_ref()),
                            "message_id": message_id,
                        })),
                        None,
                    ),
                }
            }
            Some(Over::Expired(Expiry::Pending)) => {
                (Some(super::decide::pending(wait.request)), None)
            }
            Some(Over::Expired(Expiry::Cancelled)) => {
                (None, Some("[Cancelled by the caller]".to_owned()))
            }
            Some(Over::Expired(Expiry::Timeout)) | None => (
                None,
                Some("no answer within the timeout; if it comes, it comes as a message".to_owned()),
            ),
        };
        let result = result.map(|value| Json::of(&value).unwrap_or_else(|_| Json::null()));
        self.push(session, tool_result(turn, turn_id, call_id, result, error));
    }
}

fn tool_result(
    turn: &Turn,
    turn_id: TurnId,
    call_id: CallId,
    result: Option<Json>,
    error: Option<String>,
) -> ToolCallResult {
    let call = turn.calls.iter().find(|call| call.id == call_id);
    let tool = call.map_or_else(|| "send_message".into(), |call| call.tool.clone());
    ToolCallResult { turn_id, call_id, tool, result, error, reason: None }
}

/// The first place in the queue of a provider that something can be done for.
fn pool_step(state: &State, policy: &Policy, provider: &str, pool: &Pool) -> Option<Step> {
    let limit = policy.slots(provider);
    if pool.held - pool.suspending > limit
        && let Some(victim) = victim(state, pool)
    {
        // More are held than there are where a blocked turn was ended without a slot.
        return Some(Step::Suspend(victim, SuspendReason::Evicted));
    }
    let free = limit.saturating_sub(pool.held);
    let mut coming = pool.suspending;
    for (_, id) in &pool.queue {
        let agent = state.agent(*id)?;
        let waits = matches!(agent.activity, Activity::Waiting(..));
        if policy.draining && !waits {
            continue;
        }
        if !waits
            && agent.wants_turn()
            && let Some(excess) = state.excess(agent)
        {
            return Some(Step::Refuse(*id, excess));
        }
        match agent.session.state {
            SessionState::Active if !waits => return Some(Step::GoOn(*id)),
            // It goes on once it is suspended, with another slot.
            SessionState::Suspending if !waits => {}
            _ if free > 0 => return Some(Step::GoOn(*id)),
            _ if coming > 0 => coming -= 1,
            _ => match victim(state, pool) {
                Some(victim) => return Some(Step::Suspend(victim, SuspendReason::Evicted)),
                None => break,
            },
        }
    }
    let idle = pool.idle.first().filter(|_| policy.draining);
    idle.map(|(_, id)| Step::Suspend(*id, SuspendReason::Shutdown))
}

/// The idle session whose slot is taken: the least recently used one that has nothing to do, or
/// else the one that waits at the end of the queue.
fn victim(state: &State, pool: &Pool) -> Option<AgentId> {
    let queue_of = |id: &AgentId| state.agent(*id).and_then(|agent| agent.place.queue);
    let idle = || pool.idle.iter().map(|(_, id)| *id);
    idle().find(|id| queue_of(id).is_none()).or_else(|| idle().max_by_key(queue_of))
}
