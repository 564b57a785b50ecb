//! What a daemon finds when it starts after one that died, as events.
//!
//! Live sessions become suspended, running turns interrupted; the messages of those turns are
//! still in their inboxes and start new turns by themselves. A turn that USER had cancelled is
//! cancelled. Roots are told by policy.

use super::decide::{Context, Draft, Plan};
use super::message::{Kind, Party};
use super::{
    Agent, Blob, DaemonRecovered, Resume, SessionState, Stage, State, SuspendResult, Turn,
};

/// What was found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reconciliation {
    /// The events that put it right.
    pub events: Vec<Draft>,
    /// Turns that were interrupted.
    pub interrupted_turns: u32,
    /// Tool calls whose outcome is unknown.
    pub orphaned_calls: u32,
    /// Messages that went back to their inboxes.
    pub returned_messages: u32,
}

/// Puts right what the end of a daemon left behind. Nothing is to be done after a clean stop.
pub fn reconcile(state: &State, cx: &mut Context<'_>) -> Reconciliation {
    if state.is_clean() {
        return Reconciliation::default();
    }
    let mut found = Reconciliation::default();
    let mut lost: Vec<&Agent> = Vec::new();
    let mut plan = Plan::new(state, cx);
    for agent in state.agents() {
        if let Some(turn) = agent.turn().filter(|turn| turn.is_cancelled_by_user()) {
            plan.close_calls(agent, turn, super::decide::UNKNOWN);
            plan.end_cancelled(agent, turn);
        } else if let Some(turn) = agent.turn() {
            found.interrupted_turns += 1;
            found.orphaned_calls += turn.calls.len() as u32;
            found.returned_messages += turn.messages.len() as u32;
            plan.close_calls(agent, turn, super::decide::UNKNOWN);
            let wakes = agent.setbacks + 1 < plan.cx.policy.max_setbacks;
            plan.interrupt(agent, turn, wakes);
            lost.push(agent);
        }
        if matches!(agent.session.state, SessionState::Active | SessionState::Suspending) {
            plan.push(
                agent.session.id,
                SuspendResult {
                    state_size: agent.session.saved.as_ref().map_or(0, Blob::size),
                    provider_state: None,
                    error: Some("the daemon died".into()),
                },
            );
        }
    }
    let most = plan.cx.policy.max_setbacks;
    let given_up = |agent: &Agent| lost_turn(agent).is_some() && agent.setbacks + 1 >= most;
    let prompts = recovery_prompts(state, plan.cx.policy.resume, &lost);
    // A prompt would wake an agent that is to be left alone.
    for (agent, text) in prompts.into_iter().filter(|(agent, _)| !given_up(agent)) {
        plan.tell(Party::Agent(agent.id), Kind::Notification, text);
    }
    for agent in lost.into_iter().filter(|agent| given_up(agent)) {
        plan.give_up(agent);
    }
    plan.push(
        None,
        DaemonRecovered {
            interrupted_turns: found.interrupted_turns,
            orphaned_calls: found.orphaned_calls,
            returned_messages: found.returned_messages,
        },
    );
    found.events = plan.events;
    found
}

impl Plan<'_, '_> {
    /// An agent whose turns keep dying with the daemon is left alone until someone writes to it.
    fn give_up(&mut self, agent: &Agent) {
        let text = format!(
            "{} was interrupted {} times in a row and is not started again by itself; \
             send it a message to go on",
            agent.name,
            agent.setbacks + 1
        );
        self.tell(agent.superior(), Kind::Error, text);
    }
}

/// Who is told of the recovery, and what.
fn recovery_prompts<'a>(
    state: &'a State,
    policy: Resume,
    lost: &[&'a Agent],
) -> Vec<(&'a Agent, String)> {
    let mut prompts = Vec::new();
    if policy == Resume::None {
        return prompts;
    }
    for root in state.agents().filter(|agent| agent.is_live() && agent.parent.is_none()) {
        let team: Vec<String> = lost
            .iter()
            .filter(|agent| agent.id != root.id && state.is_within(agent.id, root.id))
            .map(|agent| state.path(agent))
            .collect();
        let own = lost.iter().any(|agent| agent.id == root.id);
        if own || !team.is_empty() {
            prompts.push((root, recovery_prompt(root, &team)));
        }
    }
    if policy == Resume::All {
        let others = lost.iter().filter(|agent| agent.parent.is_some());
        prompts.extend(others.map(|agent| (*agent, recovery_prompt(agent, &[]))));
    }
    prompts
}

/// The turn that an agent lost with the daemon.
fn lost_turn(agent: &Agent) -> Option<&Turn> {
    agent.turn().filter(|turn| !turn.is_cancelled_by_user())
}

fn recovery_prompt(agent: &Agent, team: &[String]) -> String {
    let mut text = "The daemon restarted after a crash.".to_owned();
    if let Some(turn) = lost_turn(agent) {
        text += match turn.stage() {
            Stage::AfterFailure => {
                " Your turn was interrupted after an attempt at it had failed, before the next one."
            }
            _ => " Your turn was interrupted while you were at work; it may have had effects.",
        };
        if !turn.calls.is_empty() {
            let tools: Vec<&str> = turn.calls.iter().map(|call| call.tool.as_ref()).collect();
            text += &format!(" The outcome of these tool calls is unknown: {}.", tools.join(", "));
        }
        match turn.messages.len() {
            0 => {}
            1 => text += " Its message is delivered again.",
            count => text += &format!(" Its {count} messages are delivered again."),
        }
    }
    if !team.is_empty() {
        text += &format!(" These agents of your team were interrupted, too: {}.", team.join(", "));
    }
    text
}
