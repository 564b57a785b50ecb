//! Random commands on a small team, judged after each.

use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use serde_json::{Value, json};

use super::world::World;
use super::{backends, desks};
use crate::model::*;

/// What happens; numbers choose among what there is.
#[derive(Debug, Clone)]
enum Step {
    Create { name: u8 },
    Send { agent: u8, urgent: bool, key: Option<u8> },
    Tool { agent: u8, tool: Tool, other: u8, key: Option<u8> },
    CancelCall { agent: u8 },
    FinishTool { agent: u8 },
    Complete { agent: u8, saved: bool, attended: bool },
    Fail { agent: u8, refused: bool },
    TryAgain { agent: u8, message: u8 },
    Discard { agent: u8, message: u8 },
    Retry { agent: u8 },
    Attempt { agent: u8 },
    Cancel { agent: u8 },
    AskToEnd { agent: u8 },
    CancelAll,
    EndCancelled { agent: u8 },
    LateTool { call: u8 },
    Gate { agent: u8 },
    Ungate { agent: u8 },
    Permit { agent: u8 },
    Terminate { agent: u8, recursive: bool },
    Suspend { agent: u8 },
    Resume { agent: u8 },
    FinishSuspend { agent: u8, fails: bool },
    Update { agent: u8 },
    Delete { agent: u8 },
    Ack,
    Time { seconds: u8 },
    CrashRunner { agent: u8 },
    CrashDaemon,
    Slots { count: u8 },
    Use { agent: u8, tokens: u8, late: bool },
    Budget { agent: u8, tree: bool, turns: bool, limit: Option<u8> },
    Desk(desks::Step),
    Backend(backends::Step),
}

#[derive(Debug, Clone, Copy)]
enum Tool {
    Spawn,
    Ask,
    AskWithTimeout,
    Tell,
    Broadcast,
    CheckInbox,
    Complete,
    ReadFile,
    Inspect,
    Reply,
    Poke,
    Remind,
    RemindAgain,
    CancelReminder,
    Subscribe,
    SubscribeOnce,
    Unsubscribe,
    Label,
    Gate,
    Ungate,
    Permit,
    Nonsense,
}

fn step() -> impl Strategy<Value = Step> {
    use Step as S;
    let n = any::<u8>;
    let tool = prop_oneof![
        3 => Just(Tool::Spawn),
        3 => Just(Tool::Ask),
        1 => Just(Tool::AskWithTimeout),
        3 => Just(Tool::Tell),
        2 => Just(Tool::Broadcast),
        1 => Just(Tool::CheckInbox),
        1 => Just(Tool::Complete),
        1 => Just(Tool::ReadFile),
        1 => Just(Tool::Inspect),
        2 => Just(Tool::Reply),
        1 => Just(Tool::Poke),
        1 => Just(Tool::Remind),
        1 => Just(Tool::RemindAgain),
        1 => Just(Tool::CancelReminder),
        2 => Just(Tool::Subscribe),
        2 => Just(Tool::SubscribeOnce),
        1 => Just(Tool::Unsubscribe),
        1 => Just(Tool::Label),
        1 => Just(Tool::Gate),
        1 => Just(Tool::Ungate),
        1 => Just(Tool::Permit),
        1 => Just(Tool::Nonsense),
    ];
    prop_oneof![
        4 => (0..5_u8).prop_map(|name| S::Create { name }),
        8 => (n(), any::<bool>(), proptest::option::of(0..4_u8))
            .prop_map(|(agent, urgent, key)| S::Send { agent, urgent, key }),
        14 => (n(), tool, n(), proptest::option::of(0..3_u8))
            .prop_map(|(agent, tool, other, key)| S::Tool { agent, tool, other, key }),
        2 => n().prop_map(|agent| S::CancelCall { agent }),
        2 => n().prop_map(|agent| S::FinishTool { agent }),
        14 => (n(), any::<bool>(), any::<bool>())
            .prop_map(|(agent, saved, attended)| S::Complete { agent, saved, attended }),
        4 => (n(), any::<bool>()).prop_map(|(agent, refused)| S::Fail { agent, refused }),
        2 => (n(), n()).prop_map(|(agent, message)| S::TryAgain { agent, message }),
        1 => (n(), n()).prop_map(|(agent, message)| S::Discard { agent, message }),
        1 => n().prop_map(|agent| S::Retry { agent }),
        1 => n().prop_map(|agent| S::Attempt { agent }),
        2 => n().prop_map(|agent| S::Cancel { agent }),
        2 => n().prop_map(|agent| S::AskToEnd { agent }),
        1 => Just(S::CancelAll),
        2 => n().prop_map(|agent| S::EndCancelled { agent }),
        1 => n().prop_map(|call| S::LateTool { call }),
        1 => n().prop_map(|agent| S::Gate { agent }),
        1 => n().prop_map(|agent| S::Ungate { agent }),
        1 => n().prop_map(|agent| S::Permit { agent }),
        2 => (n(), any::<bool>())
            .prop_map(|(agent, recursive)| S::Terminate { agent, recursive }),
        1 => n().prop_map(|agent| S::Suspend { agent }),
        1 => n().prop_map(|agent| S::Resume { agent }),
        6 => (n(), any::<bool>())
            .prop_map(|(agent, fails)| S::FinishSuspend { agent, fails }),
        1 => n().prop_map(|agent| S::Update { agent }),
        1 => n().prop_map(|agent| S::Delete { agent }),
        1 => Just(S::Ack),
        1 => n().prop_map(|seconds| S::Time { seconds }),
        1 => n().prop_map(|agent| S::CrashRunner { agent }),
        1 => Just(S::CrashDaemon),
        1 => (1..5_u8).prop_map(|count| S::Slots { count }),
        5 => (n(), n(), any::<bool>())
            .prop_map(|(agent, tokens, late)| S::Use { agent, tokens, late }),
        3 => (n(), any::<bool>(), any::<bool>(), proptest::option::of(n()))
            .prop_map(|(agent, tree, turns, limit)| S::Budget { agent, tree, turns, limit }),
        16 => desks::step().prop_map(S::Desk),
        12 => backends::step().prop_map(S::Backend),
    ]
}

struct Steps;

impl ReferenceStateMachine for Steps {
    type State = ();
    type Transition = Step;

    fn init_state() -> BoxedStrategy<()> {
        Just(()).boxed()
    }

    fn transitions((): &()) -> BoxedStrategy<Step> {
        step().boxed()
    }

    fn apply((): (), _: &Step) {}
}

impl World {
    fn pick(&self, number: u8) -> Option<Agent> {
        let count = self.state.agents().len();
        self.state.agents().nth(usize::from(number) % count.max(1)).cloned()
    }

    /// An agent with a running turn.
    pub(super) fn pick_busy(&self, number: u8) -> Option<Agent> {
        let busy: Vec<&Agent> =
            self.state.agents().filter(|agent| agent.turn().is_some()).collect();
        busy.get(usize::from(number) % busy.len().max(1)).copied().cloned()
    }

    fn reference(&self, number: u8) -> String {
        self.pick(number).map_or_else(|| "nobody".to_owned(), |agent| agent.id.to_string())
    }

    fn finish(&mut self, agent: &Agent, end: TurnEnd, attended: bool) {
        let Some(turn) = agent.turn() else { return };
        let attended = if attended { turn.messages.clone() } else { Vec::new() };
        let command = Command::FinishTurn { agent: agent.id, turn: turn.id, end, attended };
        self.run(command).expect("an end is never rejected");
    }

    fn call_random(&mut self, agent: &Agent, tool: Tool, other: u8, key: Option<u8>) {
        let recipient = self.pick(other).map(|agent| agent.name.to_string()).unwrap_or_default();
        let (name, args) = match tool {
            Tool::Spawn => {
                let name = format!("n{}", other % 5);
                ("spawn_agent", json!({ "name": name, "instructions": "x" }))
            }
            Tool::Ask => ("send_message", json!({ "recipient": recipient, "text": "?" })),
            Tool::AskWithTimeout => {
                ("send_message", json!({ "recipient": recipient, "text": "?", "timeout": 3 }))
            }
            Tool::Tell => {
                ("send_message", json!({ "recipient": recipient, "text": "!", "sync": false }))
            }
            Tool::Broadcast => ("broadcast", json!({ "text": "all" })),
            Tool::CheckInbox => ("check_inbox", json!({})),
            Tool::Complete => ("complete", json!({ "result": "r" })),
            Tool::ReadFile => ("read_file", json!({ "path": "p" })),
            Tool::Inspect => ("inspect_agent", json!({ "name": recipient })),
            other => self.governing(agent, other, &recipient),
        };
        // Another call may be made while one waits: from the tool socket.
        if agent.turn().is_none_or(|turn| turn.cancelling.is_some()) {
            return;
        }
        let agent = agent.id.to_string();
        match key {
            Some(key) => {
                let _ = self.call_as(&agent, name, &args, &format!("key-{key}"));
            }
            None => drop(self.call(&agent, name, &args)),
        }
    }

    fn governing(&self, agent: &Agent, tool: Tool, other: &str) -> (&'static str, Value) {
        let id = |id: Option<String>| id.unwrap_or_default();
        match tool {
            Tool::Reply => {
                let asked = agent.inbox.iter().find(|message| message.kind.wants_answer());
                let to = asked.map_or(other, |asked| asked.sender_name.as_str());
                let reply_to = id(asked.map(|asked| asked.id.to_string()));
                ("send_message", json!({ "recipient": to, "text": "re", "reply_to": reply_to }))
            }
            Tool::Poke => ("poke", json!({ "agent_name": other })),
            Tool::Remind => ("remind_me", json!({ "reason": "r", "after": 7 })),
            Tool::RemindAgain => ("remind_me", json!({ "reason": "r", "after": 0, "every": 20 })),
            Tool::CancelReminder => {
                let reminder = id(agent.reminders.first().map(|one| one.id.to_string()));
                ("cancel_reminder", json!({ "reminder_id": reminder }))
            }
            Tool::Subscribe => ("subscribe", json!({ "agent_name": other, "transition": "*->*" })),
            Tool::SubscribeOnce => {
                let transition = "busy->idle";
                let args = json!({ "agent_name": other, "transition": transition, "once": true });
                ("subscribe", args)
            }
            Tool::Unsubscribe => {
                let subscription = id(agent.subscriptions.first().map(|one| one.id.to_string()));
                ("unsubscribe", json!({ "subscription_id": subscription }))
            }
            Tool::Label => {
                ("set_agent_metadata", json!({ "agent_name": other, "key": "k", "value": "v" }))
            }
            Tool::Gate => ("gate", json!({ "agent_name": other })),
            Tool::Ungate => ("ungate", json!({ "agent_name": other })),
            Tool::Permit => ("permit_turn", json!({ "agent_name": other })),
            _ => ("no_such_tool", json!([])),
        }
    }

    /// Finishes a file tool whose call may be over, in a turn that may be, too.
    fn finish_any_tool(&mut self, number: u8) {
        let calls = self.entries.iter().filter_map(|entry| match &entry.event {
            Event::ToolCallInvoked(data) if &*data.tool == "read_file" => {
                Some((entry.session?, data.turn_id, data.call_id))
            }
            _ => None,
        });
        let calls: Vec<_> = calls.collect();
        let Some(&(session, turn, call)) = calls.get(usize::from(number) % calls.len().max(1))
        else {
            return;
        };
        let Some(agent) = self.state.agent_of(session).map(|agent| agent.id) else { return };
        let result = Err("late".to_owned());
        self.run(Command::FinishTool { agent, turn, call, result }).expect("never rejected");
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Create { name } => {
                let (name, workspace) = (format!("n{name}"), Some("desk".into()));
                let agent = NewAgent { name, workspace, ..NewAgent::default() };
                let _ = self.run(Command::CreateAgent { agent, parent: None });
            }
            Step::Send { agent, urgent, key } => {
                let priority = urgent.then(|| ("priority".to_owned(), "high".to_owned()));
                let command = Command::SendMessage {
                    agent: self.reference(agent),
                    text: "hello".into(),
                    metadata: priority.into_iter().collect(),
                };
                let request = key.map(|key| Request {
                    id: format!("key-{key}"),
                    fingerprint: format!("{agent}{urgent}"),
                });
                let _ = self.run_request(command, request.as_ref());
            }
            Step::Tool { agent, tool, other, key } => {
                if let Some(agent) = self.pick_busy(agent) {
                    self.call_random(&agent, tool, other, key);
                }
            }
            Step::CancelCall { agent } => {
                let Some(agent) = self.pick_busy(agent) else { return };
                let calls = agent.turn().map(|turn| turn.calls.clone()).unwrap_or_default();
                for call in calls {
                    let command = Command::CancelCall { agent: agent.id, call: call.id };
                    self.run(command).expect("never rejected");
                }
            }
            Step::FinishTool { agent } => {
                let Some(agent) = self.pick_busy(agent) else { return };
                let Some(turn) = agent.turn() else { return };
                let beside = ["read_file", "inspect_agent"];
                let call = turn.calls.iter().find(|call| beside.contains(&&*call.tool));
                let (agent, turn, call) = match call {
                    Some(call) => (agent.id, turn.id, call.id),
                    None => return,
                };
                let result = Ok(Json::of(&"done").expect("JSON"));
                self.run(Command::FinishTool { agent, turn, call, result }).expect("never no");
            }
            Step::Complete { agent, saved, attended } => {
                let saved =
                    if saved { Saved::State(Blob::from(vec![agent])) } else { Saved::Unchanged };
                // A provider does not end a turn while a call of it waits.
                if let Some(agent) = self.pick_busy(agent).filter(|a| a.wait().is_none()) {
                    let response = "done".into();
                    self.finish(&agent, TurnEnd::Completed { response, saved }, attended);
                }
            }
            Step::Fail { agent, refused } => {
                if let Some(agent) = self.pick_busy(agent).filter(|a| a.wait().is_none()) {
                    let refused = refused.then_some(FailureClass::Overflow);
                    let class = refused.unwrap_or(FailureClass::Transient);
                    let end = TurnEnd::Failed { class, error: "no".into() };
                    self.finish(&agent, end, false);
                }
            }
            Step::Desk(step) => self.desk_step(step),
            Step::Backend(step) => self.backend_step(step),
            other => self.step_beside(other),
        }
    }

    fn step_beside(&mut self, step: Step) {
        match step {
            Step::Retry { agent } => {
                let Some(agent) = self.pick_busy(agent).filter(|a| a.wait().is_none()) else {
                    return;
                };
                let Some(turn) = agent.turn().map(|turn| turn.id) else { return };
                let command = Command::RetryTurn {
                    agent: agent.id,
                    turn,
                    attempt: 2,
                    delay_ms: 1,
                    class: FailureClass::Transient,
                    error: "no".into(),
                    provider: None,
                };
                self.run(command).expect("never rejected");
            }
            Step::Attempt { agent } => {
                let Some(agent) = self.pick_busy(agent) else { return };
                let Some(turn) = agent.turn().map(|turn| turn.id) else { return };
                self.run(Command::StartAttempt { agent: agent.id, turn }).expect("never rejected");
            }
            Step::Cancel { agent } => {
                let agent = self.reference(agent);
                if self.run(Command::CancelTurn { agent: agent.clone(), turn: None }).is_ok() {
                    let agent = self.agent(&agent).clone();
                    self.finish(&agent, TurnEnd::Cancelled, false);
                }
            }
            Step::AskToEnd { agent } => {
                let _ = self.run(Command::CancelTurn { agent: self.reference(agent), turn: None });
            }
            Step::Gate { agent } => {
                let _ = self.run(Command::Gate { agent: self.reference(agent) });
            }
            Step::Ungate { agent } => {
                let _ = self.run(Command::Ungate { agent: self.reference(agent) });
            }
            Step::Permit { agent } => {
                let _ = self.run(Command::PermitTurn { agent: self.reference(agent) });
            }
            Step::Terminate { agent, recursive } => {
                let agent = self.reference(agent);
                let _ = self.run(Command::Terminate { agent, recursive });
            }
            Step::Suspend { agent } => {
                if let Some(session) = self.pick(agent).map(|a| a.session.id.to_string()) {
                    let _ = self.run(Command::SuspendSession { session });
                }
            }
            Step::Resume { agent } => {
                if let Some(session) = self.pick(agent).map(|a| a.session.id.to_string()) {
                    let _ = self.run(Command::ResumeSession { session });
                }
            }
            Step::FinishSuspend { agent, fails } => {
                let Some(session) = self.pick(agent).map(|agent| agent.session.id) else { return };
                let result = if fails {
                    Err("no".to_owned())
                } else {
                    Ok(Saved::State(Blob::from(vec![agent])))
                };
                self.run(Command::FinishSuspend { session, result }).expect("never rejected");
            }
            other => self.step_of_fate(&other),
        }
    }

    fn step_of_fate(&mut self, step: &Step) {
        match step {
            Step::Update { agent } => {
                let command = Command::UpdateAgent {
                    agent: self.reference(*agent),
                    instructions: Some("new".into()),
                    role: None,
                    metadata: [("k".to_owned(), Some("v".to_owned()))].into(),
                    budgets: Vec::new(),
                };
                let _ = self.run(command);
            }
            Step::Delete { agent } => {
                if let Some(session) = self.pick(*agent).map(|a| a.session.id.to_string()) {
                    let _ = self.run(Command::DeleteSession { session });
                }
            }
            Step::CancelAll => {
                self.run(Command::CancelAll).expect("never rejected");
            }
            Step::EndCancelled { agent } => {
                let asked = |agent: &Agent| agent.turn().is_some_and(|t| t.cancelling.is_some());
                if let Some(agent) = self.pick_busy(*agent).filter(asked) {
                    self.finish(&agent, TurnEnd::Cancelled, false);
                }
            }
            Step::LateTool { call } => self.finish_any_tool(*call),
            Step::Ack => {
                let messages = self.state.user_inbox().iter().map(|m| m.id).take(2).collect();
                self.run(Command::AckInbox { messages }).expect("never rejected");
            }
            Step::Time { seconds } => {
                self.now = self.now.after(std::time::Duration::from_secs((*seconds).into()));
                self.run(Command::Tick).expect("never rejected");
            }
            Step::CrashRunner { agent } => {
                let Some(session) = self.pick(*agent).map(|agent| agent.session.id) else {
                    return;
                };
                let (reason, attended) = ("panicked".to_owned(), Vec::new());
                self.run(Command::Crash { session, reason, attended }).expect("never rejected");
            }
            Step::CrashDaemon => {
                self.crash_with_leftovers();
            }
            Step::Slots { count } => {
                // Taken over with the next command; never below what is held, as on a restart.
                let held = self.state.pool("scripted").held;
                let slots = usize::from(*count).max(held);
                let provider = ProviderPolicy { slots, call_limit: None };
                self.policy.providers.insert("scripted".into(), provider);
                self.run(Command::Tick).expect("never rejected");
            }
            other => self.step_of_money(other),
        }
    }

    /// A message of an inbox, or none.
    fn any_message(&self, agent: u8, number: u8) -> Vec<MessageId> {
        let Some(agent) = self.pick(agent) else { return Vec::new() };
        let found = agent.inbox.get(usize::from(number) % (agent.inbox.len() + 1));
        found.map(|message| message.id).into_iter().collect()
    }

    /// The daemon dies and leaves a process of every agent.
    fn crash_with_leftovers(&mut self) {
        let left = self.state.agents().enumerate().map(|(number, agent)| Leftover {
            pid: number as u32,
            session: Some(agent.session.id),
            workspace: agent.workspace,
            ended: number % 2 == 0,
        });
        let left: Vec<Leftover> = left.collect();
        let turns = self.state.agents().map(|agent| agent.turn().map(|turn| turn.id));
        let turns: Vec<Option<TurnId>> = turns.collect();
        let first = self.entries.len();
        self.crash_leaving(&left);
        let told = self.entries[first..].iter().filter_map(|entry| match &entry.event {
            Event::ProcessExited(data) => Some(data.turn_id),
            _ => None,
        });
        assert_eq!(told.collect::<Vec<_>>(), turns, "what was left is told, in its turn");
    }

    fn step_of_money(&mut self, step: &Step) {
        match step {
            Step::TryAgain { agent, message } => {
                let messages = self.any_message(*agent, *message);
                let agent = self.reference(*agent);
                let _ = self.run(Command::RetryMessages { agent, messages });
            }
            Step::Discard { agent, message } => {
                let messages = self.any_message(*agent, *message);
                let agent = self.reference(*agent);
                let _ = self.run(Command::DiscardMessages { agent, messages });
            }
            Step::Use { agent, tokens, late } => {
                let agent = if *late { self.pick(*agent) } else { self.pick_busy(*agent) };
                let Some(agent) = agent else { return };
                let turn = agent.turn().map_or(TurnId::from_u64(7), |turn| turn.id);
                let tokens = u64::from(*tokens);
                let usage = Usage {
                    input_tokens: tokens,
                    output_tokens: tokens / 2,
                    cache_read_tokens: tokens / 3,
                    ..Usage::default()
                };
                let report = Command::ReportUsage { agent: agent.id, turn, usage };
                self.run(report).expect("never rejected");
            }
            Step::Budget { agent, tree, turns, limit } => {
                let scope = if *tree { Scope::Tree } else { Scope::Agent };
                let measure = if *turns { Measure::Turns } else { Measure::Tokens };
                // Both are reached within a run: some turns, some hundred tokens.
                let scale = |limit: u8| if *turns { limit / 16 } else { limit };
                let limit = limit.map(|limit| u64::from(scale(limit)) * if *turns { 1 } else { 4 });
                let _ = self
                    .set_budget(&self.reference(*agent), BudgetChanged { scope, measure, limit });
            }
            _ => {}
        }
    }
}

struct Core;

impl StateMachineTest for Core {
    type SystemUnderTest = World;
    type Reference = Steps;

    fn init_test((): &()) -> World {
        let mut world = World::new(3);
        let desk = Command::CreateWorkspace { new: NewWorkspace::named("desk") };
        world.run(desk).expect("its name is free");
        world
    }

    fn apply(mut world: World, (): &(), step: Step) -> World {
        world.step(step);
        world
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { cases: 192, max_shrink_iters: 4000, ..Default::default() })]

    #[test]
    fn whatever_happens_what_must_hold_holds(sequential 1..120 => Core);
}
