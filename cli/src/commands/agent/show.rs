//! How agents are shown.

use substrat_proto::v1;

use super::budget;
use crate::output::{Output, count, line};
use crate::sandbox;
use crate::time;

/// What an agent is doing, in a word.
pub(crate) fn state_word(agent: &v1::Agent) -> String {
    let mut word = match agent.state() {
        v1::AgentState::Unspecified => "?",
        v1::AgentState::Idle => "idle",
        v1::AgentState::Busy => "busy",
        v1::AgentState::Waiting => "waiting",
        v1::AgentState::Terminated => "terminated",
    }
    .to_owned();
    if agent.queued {
        word += ", queued";
    }
    if agent.gated {
        word += ", gated";
    }
    if agent.open_permissions > 0 {
        word += ", asks";
    }
    if agent.budget_excess.is_some() {
        word += ", out of budget";
    }
    word
}

/// How its processes are started; nothing of one that starts no more.
pub(super) fn sandbox_of(agent: &v1::Agent) -> Option<&v1::SandboxStatus> {
    agent.sandbox.as_ref().filter(|_| agent.state() != v1::AgentState::Terminated)
}

/// How turns ended, such as `12 (1 failed)`.
pub(super) fn turns(agent: &v1::Agent) -> String {
    let counts = agent.turns.unwrap_or_default();
    format!("{}{}", counts.completed, otherwise(&counts))
}

/// The same in words, such as `12 turns (1 failed)`.
pub(super) fn turns_in_words(agent: &v1::Agent) -> String {
    let counts = agent.turns.unwrap_or_default();
    format!("{}{}", count(counts.completed, "turn"), otherwise(&counts))
}

/// How each of them ended, such as `12 completed, 1 failed`.
fn ends(agent: &v1::Agent) -> String {
    let counts = agent.turns.unwrap_or_default();
    let completed = format!("{} completed", counts.completed);
    [vec![completed], others(&counts)].concat().join(", ")
}

fn otherwise(counts: &v1::TurnCounts) -> String {
    let others = others(counts);
    if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) }
}

fn others(counts: &v1::TurnCounts) -> Vec<String> {
    let others = [
        (counts.failed, "failed"),
        (counts.cancelled, "cancelled"),
        (counts.interrupted, "interrupted"),
    ];
    let others = others.iter().filter(|(number, _)| *number > 0);
    others.map(|(number, word)| format!("{number} {word}")).collect()
}

/// One agent, in lines.
pub(super) fn agent(output: Output, agent: &v1::Agent) {
    line(&format!("{}  {}", output.bold(&agent.path), state_word(agent)));
    line(&format!("id         {}", agent.id));
    line(&format!("session    {}", agent.session_id));
    let model = if agent.model.is_empty() { "" } else { &format!(" ({})", agent.model) };
    line(&format!("provider   {}{model}", agent.provider));
    if !agent.role.is_empty() {
        line(&format!("role       {}", agent.role));
    }
    if !agent.workspace_id.is_empty() {
        let folder = agent.workspace_subdir.as_str();
        let folder = if folder.is_empty() { "" } else { &format!(", folder {folder}") };
        line(&format!("workspace  {}{folder}", agent.workspace_id));
    }
    if let Some(lack) = sandbox::lack_line(sandbox_of(agent)) {
        line(&format!("sandbox    {lack}"));
    }
    for (key, value) in &agent.metadata {
        line(&format!("label      {key} = {value}"));
    }
    line(&format!("created    {}", time::date(agent.create_time.as_ref())));
    line(&format!("turns      {}", ends(agent)));
    line(&format!("inbox      {}", count(agent.inbox_size, "message")));
    if agent.gated {
        line(&format!("gate       closed, {} turns permitted", agent.permits));
    }
    spending(agent);
}

/// What was used, and how much of each budget that is.
fn spending(agent: &v1::Agent) {
    if let Some(usage) = &agent.usage {
        line(&format!("usage      {}", budget::usage(usage)));
    }
    for share in budget::shares(agent.usage.as_ref(), agent.budget.as_ref()) {
        line(&format!("budget     {share}"));
    }
    if let Some(usage) = agent.tree_usage.filter(|usage| Some(*usage) != agent.usage) {
        line(&format!("tree usage {}", budget::usage(&usage)));
    }
    for share in budget::shares(agent.tree_usage.as_ref(), agent.tree_budget.as_ref()) {
        line(&format!("tree limit {share}"));
    }
    if let Some(excess) = &agent.budget_excess {
        line(&format!("held       {}", budget::excess(excess)));
    }
}

/// What a watcher is told of a budget.
pub(super) fn budget_note(agent: &v1::Agent, event: &str) -> Option<String> {
    let own = budget::shares(agent.usage.as_ref(), agent.budget.as_ref());
    let tree = budget::shares(agent.tree_usage.as_ref(), agent.tree_budget.as_ref());
    let tree = tree.into_iter().map(|share| format!("{share} in its tree"));
    let used: Vec<String> = own.into_iter().chain(tree).collect();
    match (event, &agent.budget_excess) {
        ("budget.warning", None) => {
            Some(format!("{} has used most of a budget: {}", agent.path, used.join(", ")))
        }
        ("turn.refused", Some(excess)) => {
            Some(format!("no turn of {} may start: {}", agent.path, budget::excess(excess)))
        }
        ("budget.exhausted", Some(excess)) => Some(budget::excess(excess)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_counted_in_words() {
        let told = |completed, interrupted| {
            let turns = v1::TurnCounts { completed, interrupted, ..Default::default() };
            turns_in_words(&v1::Agent { turns: Some(turns), ..Default::default() })
        };
        assert_eq!(told(0, 0), "0 turns");
        assert_eq!(told(1, 0), "1 turn");
        assert_eq!(told(1, 1), "1 turn (1 interrupted)");
    }

    #[test]
    fn each_end_of_turns_is_named() {
        let told = |failed| {
            let turns = v1::TurnCounts { completed: 4, failed, ..Default::default() };
            ends(&v1::Agent { turns: Some(turns), ..Default::default() })
        };
        assert_eq!(told(0), "4 completed");
        assert_eq!(told(3), "4 completed, 3 failed");
    }
}
