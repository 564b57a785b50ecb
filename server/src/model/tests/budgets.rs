//! Budgets: told, enforced, raised.

use serde_json::json;

use super::world::{World, send};
use crate::model::*;

fn limit(scope: Scope, measure: Measure, limit: impl Into<Option<u64>>) -> BudgetChanged {
    BudgetChanged { scope, measure, limit: limit.into() }
}

impl World {
    fn create_with(&mut self, name: &str, budgets: Vec<BudgetChanged>) -> AgentId {
        let agent = NewAgent { name: name.into(), budgets, ..NewAgent::default() };
        match self.run(Command::CreateAgent { agent, parent: None }) {
            Ok(Outcome::Agent(id)) => id,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn set_budget(
        &mut self,
        agent: &str,
        changed: BudgetChanged,
    ) -> Result<Outcome, Rejection> {
        self.run(Command::UpdateAgent {
            agent: agent.into(),
            instructions: None,
            role: None,
            metadata: Default::default(),
            budgets: vec![changed],
        })
    }

    /// Lets the running turn of an agent report what it used.
    fn uses(&mut self, agent: &str, input_tokens: u64) {
        let (agent, turn) = (self.agent(agent).id, self.turn(agent));
        let usage = Usage { input_tokens, ..Usage::default() };
        self.run(Command::ReportUsage { agent, turn, usage }).expect("never rejected");
    }

    fn spawn(&mut self, parent: &str, name: &str) {
        self.call(parent, "spawn_agent", &json!({ "name": name, "instructions": "x" }));
    }

    /// Names of the events since a sequence that are about budgets.
    fn told(&self, since: u64) -> Vec<&'static str> {
        let new = self.entries.iter().filter(|entry| entry.seq > since);
        let names = new.map(|entry| entry.event.name());
        names.filter(|name| name.starts_with("budget.") || *name == "turn.refused").collect()
    }

    fn user_has(&self, text: &str) -> bool {
        self.state.user_inbox().iter().any(|message| message.text.contains(text))
    }
}

#[test]
fn a_budget_of_two_turns_permits_two_turns() {
    let mut world = World::new(4);
    world.create_with("a", vec![limit(Scope::Agent, Measure::Turns, 2)]);
    for text in ["1", "2"] {
        world.send("a", text);
        world.complete("a", "x");
    }
    let refused = world.run(send("a", "3"));
    let Err(Rejection::BudgetExhausted { excess, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(excess.to_string(), "the turn budget of \"a\" is used up: 2 of 2");
    assert_eq!(world.agent("a").usage().turns, 2);
    assert_eq!(world.told(0), ["budget.changed", "budget.warning", "budget.exhausted"]);
}

#[test]
fn what_is_used_is_told_at_80_percent_and_when_all_is_used() {
    let mut world = World::new(4);
    world.create_with("a", vec![limit(Scope::Agent, Measure::Tokens, 100)]);
    world.send("a", "1");
    let start = world.state.seq();
    world.uses("a", 79);
    assert!(world.told(start).is_empty());
    world.uses("a", 1);
    assert_eq!(world.told(start), ["budget.warning"]);
    world.uses("a", 19);
    assert_eq!(world.told(start), ["budget.warning"], "once");
    world.uses("a", 100);
    assert_eq!(world.told(start), ["budget.warning", "budget.exhausted"]);
    assert!(world.agent("a").turn().is_some(), "a running turn goes on");
    world.complete("a", "x");
    let turn = world.entries.iter().find_map(|entry| match &entry.event {
        Event::TurnComplete(data) => Some(data.turn_id),
        _ => None,
    });
    let (agent, turn) = (world.agent("a").id, turn.expect("it completed"));
    let usage = Usage { cache_read_tokens: 9, cost_micro_usd: 5, ..Usage::default() };
    world.run(Command::ReportUsage { agent, turn, usage }).unwrap();
    let used = world.agent("a").usage();
    assert_eq!((used.input_tokens, used.cost_micro_usd), (199, 5), "a late report counts");
    assert_eq!(used.tokens(), 199, "what is read from the cache does not");
}

#[test]
fn mail_that_waits_is_refused_once_and_goes_on_when_the_budget_is_raised() {
    let mut world = World::new(4);
    world.create_with("a", vec![limit(Scope::Agent, Measure::Tokens, 100)]);
    world.send("a", "1");
    let waiting = world.send("a", "2");
    world.uses("a", 100);
    let start = world.state.seq();
    world.complete("a", "x");
    assert_eq!(world.told(start), ["turn.refused"]);
    let refused = world.entries.iter().find_map(|entry| match &entry.event {
        Event::TurnRefused(data) => Some(data.messages.clone()),
        _ => None,
    });
    assert_eq!(refused, Some(vec![waiting]));
    assert!(world.user_has("no turn of a may start (budget): the token budget of \"a\""));
    assert!(world.agent("a").account.is_held() && !world.state.is_queued(world.agent("a")));

    world.set_budget("a", limit(Scope::Agent, Measure::Tokens, 100)).unwrap();
    assert!(world.agent("a").turn().is_none(), "the same budget is no other one");
    world.set_budget("a", limit(Scope::Agent, Measure::Tokens, 120)).unwrap();
    let told = ["turn.refused", "budget.changed", "budget.warning", "budget.released"];
    assert_eq!(world.told(start), told);
    assert_eq!(world.prompt("a"), "2");
}

#[test]
fn who_waits_for_the_answer_is_told_without_a_message() {
    let mut world = World::new(4);
    world.create_with("a", vec![limit(Scope::Agent, Measure::Tokens, 100)]);
    world.send("a", "1");
    let waiting = world.send("a", "2");
    world.attended.insert(waiting);
    world.uses("a", 100);
    world.complete("a", "x");
    assert!(!world.user_has("no turn of a may start"));
}

#[test]
fn the_budget_of_a_tree_holds_a_grandchild_until_it_is_removed() {
    let mut world = World::new(8);
    world.create_with("top", vec![limit(Scope::Tree, Measure::Turns, 4)]);
    world.send("top", "go");
    world.spawn("top", "mid");
    world.complete("top", "x");
    world.spawn("mid", "low");
    let ask = json!({ "recipient": "low", "text": "?" });
    world.call("mid", "send_message", &ask);
    world.complete("low", "first");
    assert_eq!(world.agent("top").tree_usage().turns, 3);
    // The answer ends the wait of mid; its own messages, the fourth turn.
    world.complete("mid", "x");
    world.send("top", "again");
    let call = world.call("top", "send_message", &json!({ "recipient": "mid", "text": "?" }));
    let refused = world.result(call).expect("at once").expect_err("a refusal");
    assert!(refused.contains("the turn budget of the tree of \"top\" is used up: 4 of 4"));
    world.complete("top", "x");
    let refused = world.run(send("low", "go"));
    assert!(matches!(refused, Err(Rejection::BudgetExhausted { .. })), "{refused:?}");

    // A notice of the daemon still enters, and does not start a turn.
    world.run(Command::Terminate { agent: "low".into(), recursive: false }).unwrap();
    assert!(world.agent("mid").account.is_held());
    world.set_budget("top", limit(Scope::Tree, Measure::Turns, None)).unwrap();
    assert!(world.prompt("mid").contains("low was terminated by USER"));
    // The top, which was told of the refusal, goes on as well.
    assert_eq!(world.agent("top").tree_usage().turns, 6, "low counts, though it ended");
}

#[test]
fn an_agent_that_asked_is_answered_when_the_turn_is_refused() {
    let mut world = World::new(4);
    world.create("top");
    world.send("top", "go");
    world.spawn("top", "kid");
    world.complete("top", "x");
    world.set_budget("kid", limit(Scope::Agent, Measure::Tokens, 10)).unwrap();
    world.send("top", "ask");
    let call = world.call("top", "send_message", &json!({ "recipient": "kid", "text": "?" }));
    assert_eq!(world.result(call), None, "the kid works on something else");
    world.uses("kid", 10);
    world.complete("kid", "x");
    let told = world.result(call).expect("told").expect_err("an error");
    assert!(told.contains("the token budget of \"kid\" is used up: 10 of 10"), "{told}");
    world.complete("top", "x");
    assert_eq!(world.agent("top").turns.completed, 2, "told once");
    world.set_budget("kid", limit(Scope::Agent, Measure::Tokens, None)).unwrap();
    world.complete("kid", "late");
    assert!(world.agent("top").turn().is_none(), "answered already");
}

#[test]
fn usage_outlives_a_crash_the_end_of_agents_and_their_sessions() {
    let mut world = World::new(4);
    world.create("top");
    world.send("top", "go");
    world.spawn("top", "kid");
    world.uses("top", 7);
    world.crash();
    assert_eq!(world.agent("top").usage().input_tokens, 7);
    world.uses("kid", 30);
    world.complete("kid", "x");
    let session = world.agent("kid").session.id.to_string();
    world.run(Command::Terminate { agent: "kid".into(), recursive: false }).unwrap();
    world.run(Command::DeleteSession { session }).unwrap();
    let used = world.agent("top").tree_usage();
    assert_eq!((used.input_tokens, used.turns), (37, world.agent("top").usage().turns + 1));
}

#[test]
fn a_log_that_is_gone_is_made_up_for_by_the_note_of_its_deletion() {
    let mut world = World::new(4);
    world.create("top");
    world.send("top", "go");
    world.spawn("top", "kid");
    world.complete("top", "x");
    world.uses("kid", 30);
    world.complete("kid", "x");
    let session = world.agent("kid").session.id;
    world.run(Command::Terminate { agent: "kid".into(), recursive: false }).unwrap();
    world.run(Command::DeleteSession { session: session.to_string() }).unwrap();
    let mut fold = State::default();
    for entry in world.entries.iter().filter(|entry| entry.session != Some(session)) {
        fold.apply(entry);
    }
    let top = fold.resolve("top").expect("top");
    assert_eq!(top.tree_usage(), world.agent("top").tree_usage());
    assert_eq!(top.account, world.agent("top").account);
}

#[test]
fn a_budget_of_nothing_is_used_up_from_the_start() {
    let mut world = World::new(4);
    world.create_with("a", vec![limit(Scope::Tree, Measure::Cost, 0)]);
    assert_eq!(world.told(0), ["budget.changed", "budget.warning", "budget.exhausted"]);
    assert!(world.run(send("a", "1")).is_err());
    world.set_budget("a", limit(Scope::Tree, Measure::Cost, 1)).unwrap();
    world.send("a", "1");
    assert!(world.agent("a").turn().is_some());
}

#[test]
fn a_refusal_needs_no_slot() {
    let mut world = World::new(1);
    world.create("busy");
    world.send("busy", "1");
    world.create_with("a", vec![limit(Scope::Agent, Measure::Turns, 1)]);
    world.send("a", "1");
    world.set_budget("a", limit(Scope::Agent, Measure::Turns, 0)).unwrap();
    assert!(world.agent("a").account.is_held(), "though no slot is free");
    assert!(world.agent("busy").turn().is_some());
}
