//! What backends do in random turns, and what must hold of it.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::world::World;
use crate::model::*;

/// What a backend does; numbers choose among what there is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Say {
        agent: u8,
    },
    Start {
        agent: u8,
        id: u8,
    },
    End {
        agent: u8,
        id: u8,
        ok: bool,
    },
    Note {
        agent: u8,
    },
    Stall {
        agent: u8,
    },
    Save {
        agent: u8,
    },
    Ask {
        agent: u8,
        settled: bool,
    },
    Settle {
        agent: u8,
        question: u8,
        withdrawn: bool,
    },
    Answer {
        agent: u8,
        question: Option<u8>,
    },
    /// To a turn that is over, or never was.
    Late {
        agent: u8,
    },
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    use Step as S;
    let n = any::<u8>;
    prop_oneof![
        1 => n().prop_map(|agent| S::Say { agent }),
        4 => (n(), 0..4_u8).prop_map(|(agent, id)| S::Start { agent, id }),
        3 => (n(), 0..4_u8, any::<bool>()).prop_map(|(agent, id, ok)| S::End { agent, id, ok }),
        1 => n().prop_map(|agent| S::Note { agent }),
        1 => n().prop_map(|agent| S::Stall { agent }),
        1 => n().prop_map(|agent| S::Save { agent }),
        4 => (n(), any::<bool>()).prop_map(|(agent, settled)| S::Ask { agent, settled }),
        1 => (n(), n(), any::<bool>())
            .prop_map(|(agent, question, withdrawn)| S::Settle { agent, question, withdrawn }),
        3 => (n(), proptest::option::of(n()))
            .prop_map(|(agent, question)| S::Answer { agent, question }),
        1 => n().prop_map(|agent| S::Late { agent }),
    ]
}

fn told(step: &Step) -> Option<(u8, Told)> {
    Some(match step {
        Step::Say { agent } | Step::Late { agent } => (*agent, Told::Said("so".into())),
        Step::Start { agent, id } => {
            let (id, tool) = (format!("use-{id}").into(), "Bash".into());
            (*agent, Told::UseStarted { id, tool, input: Json::null() })
        }
        Step::End { agent, id, ok } => {
            let (id, output) = (format!("use-{id}").into(), "x".to_owned());
            (*agent, Told::UseEnded { id, ok: *ok, output })
        }
        Step::Note { agent } => (*agent, Told::Notice("note".to_owned())),
        Step::Stall { agent } => (*agent, Told::Stalled(10_000)),
        Step::Save { agent } => (*agent, Told::Saved(Blob::from(vec![*agent % 2]))),
        _ => return None,
    })
}

impl World {
    pub(super) fn backend_step(&mut self, step: Step) {
        if let Some((agent, told)) = told(&step) {
            let Some(agent) = self.pick_busy(agent) else { return };
            let late = matches!(step, Step::Late { .. });
            let running = agent.turn().map(|turn| turn.id).filter(|_| !late);
            let turn = running.unwrap_or(TurnId::from_u64(7));
            let command = Command::TellTurn { agent: agent.id, turn, told };
            self.run(command).expect("never rejected");
            return;
        }
        match step {
            Step::Ask { agent, settled } => {
                let Some(agent) = self.pick_busy(agent) else { return };
                self.ask(&agent, settled);
            }
            Step::Settle { agent, question, withdrawn } => {
                let Some(agent) = self.pick_busy(agent) else { return };
                let permission = question_of(&agent, question);
                let answer = (!withdrawn).then(|| answer(Permit::Deny));
                let command = Command::SettlePermission { agent: agent.id, permission, answer };
                self.run(command).expect("never rejected");
            }
            Step::Answer { agent, question } => {
                let Some(agent) = self.pick_busy(agent) else { return };
                let permission = question.map(|question| question_of(&agent, question));
                let _ = self.answer(&agent.id.to_string(), permission);
            }
            _ => {}
        }
    }

    /// Has the running turn of an agent ask something.
    pub(super) fn ask(&mut self, agent: &Agent, settled: bool) -> PermissionId {
        let id = PermissionId::fresh(&mut self.ids);
        let turn = agent.turn().expect("a turn runs").id;
        let (tool, input) = ("Bash".into(), Json::null());
        let asked = Permission { id, use_id: None, tool, input, options: Vec::new() };
        let policy = settled.then(|| answer(Permit::Allow));
        let command = Command::AskPermission { agent: agent.id, turn, asked, policy };
        self.run(command).expect("never rejected");
        id
    }

    pub(super) fn answer(
        &mut self,
        agent: &str,
        permission: Option<PermissionId>,
    ) -> Result<Outcome, Rejection> {
        let answer = answer(Permit::Always);
        self.run(Command::AnswerPermission { agent: agent.to_owned(), permission, answer })
    }
}

fn answer(decision: Permit) -> PermissionAnswer {
    PermissionAnswer { decision, reason: None }
}

/// A question of an agent; one that there is not if it has none.
fn question_of(agent: &Agent, number: u8) -> PermissionId {
    let open = agent.questions();
    let open = open.get(usize::from(number) % open.len().max(1));
    open.map_or(PermissionId::from_u64(7), |open| open.permission.id)
}

/// The tools and the questions of running turns, as the log has them.
#[derive(Debug, Default)]
pub(super) struct Backends {
    uses: BTreeMap<TurnId, BTreeSet<String>>,
    questions: BTreeMap<TurnId, BTreeSet<PermissionId>>,
    asked: BTreeSet<PermissionId>,
}

impl Backends {
    pub(super) fn take(&mut self, entry: &Entry) {
        match &entry.event {
            Event::TurnStart(data) => {
                self.uses.insert(data.turn_id, BTreeSet::new());
                self.questions.insert(data.turn_id, BTreeSet::new());
            }
            Event::ToolUseStarted(data) => {
                let uses = self.uses.get_mut(&data.turn_id).expect("a use is in a running turn");
                assert!(uses.insert(data.use_id.to_string()), "a use starts once: {data:?}");
            }
            Event::ToolUseEnded(data) => {
                let uses = self.uses.get_mut(&data.turn_id).expect("a use is in a running turn");
                assert!(uses.remove(&*data.use_id), "a use that ends has started: {data:?}");
            }
            Event::PermissionAsked(data) => {
                assert!(self.asked.insert(data.permission_id), "a question is asked once");
                let open = self.questions.get_mut(&data.turn_id);
                open.expect("a question is in a running turn").insert(data.permission_id);
            }
            Event::PermissionAnswered(data) => self.close(data.turn_id, data.permission_id),
            Event::PermissionWithdrawn(data) => self.close(data.turn_id, data.permission_id),
            event if event.ends_turn() => {
                let turn = event.data()["turn_id"].as_str().and_then(|id| id.parse().ok());
                let turn: TurnId = turn.expect("an end names its turn");
                assert_eq!(self.uses.remove(&turn), Some(BTreeSet::new()), "tools end first");
                assert_eq!(self.questions.remove(&turn), Some(BTreeSet::new()), "questions, too");
            }
            _ => {}
        }
    }

    fn close(&mut self, turn: TurnId, permission: PermissionId) {
        let open = self.questions.get_mut(&turn).expect("a question is in a running turn");
        assert!(open.remove(&permission), "an open question is answered, and once");
    }

    pub(super) fn judge(&self, state: &State) {
        for turn in state.agents().filter_map(Agent::turn) {
            let uses = turn.backend.uses.iter().map(|open| open.id.to_string());
            assert_eq!(uses.collect::<BTreeSet<_>>(), self.uses[&turn.id], "open uses");
            let open = turn.backend.questions.iter().map(|open| open.permission.id);
            assert_eq!(open.collect::<BTreeSet<_>>(), self.questions[&turn.id], "open questions");
            assert!(turn.backend.questions.len() <= 64);
        }
    }
}
