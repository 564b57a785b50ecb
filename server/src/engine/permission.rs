//! Questions of backends on their way to whoever answers them.
//!
//! A question is in the log before anybody can answer it, and its answer before the backend is
//! told. Who drops the future of a question takes it back.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, oneshot};

use super::calls::mix;
use super::driver::Driver;
use super::handle::Report;
use super::telling::Marked;
use super::turn_io::Io;
use crate::model::{
    AgentId, Choice, ChoiceKind, Command, Outcome, Permission, PermissionAnswer, PermissionId,
    Permit, State,
};
use crate::provider::Question;
use crate::provider::activity::{Decision, PermissionKind, PermissionOption};
use crate::provider::registry::{Permissions, Unattended};

/// How long somebody who could answer, and left, has to come back.
const ABSENCE: Duration = Duration::from_secs(30);

/// An answer, and the sequence of its event.
pub(super) type Answered = (u64, PermissionAnswer);

/// A question that is to be asked.
pub(super) struct Ask {
    permission: PermissionId,
    marked: Marked,
    waiter: oneshot::Sender<Answered>,
}

/// Who waits for which answer.
#[derive(Default)]
pub(super) struct Questions(FxHashMap<PermissionId, oneshot::Sender<Answered>>);

impl Driver {
    pub(super) fn ask(&mut self, ask: Ask) {
        let Ask { permission, marked, waiter } = ask;
        let Marked { command, mark, output } = marked;
        match self.decide(command, None) {
            Ok(Outcome::Permission(_)) => drop(self.questions.0.insert(permission, waiter)),
            Ok(Outcome::Denied) => {
                let denied = deny("its turn has asked too much");
                // Who asked may have gone.
                let _ = waiter.send((self.core.state().seq(), denied));
            }
            // A turn that is over asks nothing: its backend is told by the end of the waiter.
            _ => {}
        }
        output.settle(&mark, self.core.state().seq());
    }

    pub(super) fn return_permission(
        &mut self,
        permission: PermissionId,
        seq: u64,
        answer: Option<PermissionAnswer>,
    ) {
        if let (Some(waiter), Some(answer)) = (self.questions.0.remove(&permission), answer) {
            // Who asked may have gone.
            let _ = waiter.send((seq, answer));
        }
    }
}

/// Takes a question back when it is dropped before there is an answer.
struct Open {
    agent: AgentId,
    permission: PermissionId,
    reports: mpsc::UnboundedSender<Report>,
    over: bool,
}

impl Open {
    fn settle(&self, answer: Option<PermissionAnswer>) {
        let (agent, permission) = (self.agent, self.permission);
        let settled = Command::SettlePermission { agent, permission, answer };
        // An engine that is gone has no question to settle.
        let _ = self.reports.send(Report::Command(settled));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.over {
            self.settle(None);
        }
    }
}

impl Io {
    /// Asks, and waits for an answer.
    pub(super) async fn decision(&self, question: Question) -> Decision {
        if self.cancel.is_cancelled() {
            return Decision::Cancel;
        }
        let _waits = self.pulse.wait();
        let agent = self.agent;
        let lineage = self.handle.read(move |state| lineage(state, agent)).await;
        let lineage = lineage.unwrap_or_default();
        let policy = match self.common.permissions {
            Permissions::Allow => Some(allow("permissions = \"allow\"")),
            Permissions::Deny => Some(deny("permissions = \"deny\"")),
            Permissions::Ask if self.handle.shared.attendance.is_attended(&lineage) => None,
            Permissions::Ask => self.unattended().await,
        };
        let number = self.handle.shared.calls.fetch_add(1, Ordering::Relaxed);
        let permission = PermissionId::from_u64(mix(number));
        let (waiter, mut told) = oneshot::channel();
        let asked = asked(permission, question);
        let command = Command::AskPermission { agent, turn: self.turn, asked, policy };
        let marked = self.telling.marked(command);
        let reports = self.handle.reports.clone();
        if reports.send(Report::Ask(Ask { permission, marked, waiter })).is_err() {
            return Decision::Cancel;
        }
        let mut open = Open { agent, permission, reports, over: false };
        let answer = tokio::select! {
            biased;
            answer = &mut told => answer,
            () = self.cancel.cancelled() => return Decision::Cancel,
            answer = self.left_alone(&lineage) => {
                open.settle(Some(answer));
                told.await
            }
        };
        open.over = true;
        let Ok((seq, answer)) = answer else { return Decision::Cancel };
        self.telling.after(seq);
        decision(answer)
    }

    /// What is answered when nobody is there to; none to wait for somebody.
    async fn unattended(&self) -> Option<PermissionAnswer> {
        match self.common.unattended {
            Unattended::Wait => None,
            Unattended::Allow => Some(allow("nobody is attached, and unattended = \"allow\"")),
            Unattended::Deny => Some(deny("nobody is attached who could answer")),
            Unattended::Sandbox if self.processes && self.handle.shared.shells.confined().await => {
                Some(allow("nobody is attached, and its processes are in a sandbox"))
            }
            Unattended::Sandbox => {
                Some(deny("nobody is attached who could answer, and there is no sandbox"))
            }
        }
    }

    /// Returns what is answered when the last one who could answer has left, and stayed away.
    async fn left_alone(&self, lineage: &[AgentId]) -> PermissionAnswer {
        let attendance = &self.handle.shared.attendance;
        loop {
            attendance.until(lineage, false).await;
            let back = attendance.until(lineage, true);
            if tokio::time::timeout(ABSENCE, back).await.is_ok() {
                continue;
            }
            match self.unattended().await {
                Some(answer) => return answer,
                None => attendance.until(lineage, true).await,
            }
        }
    }
}

/// An agent and those above it.
fn lineage(state: &State, agent: AgentId) -> Vec<AgentId> {
    let above = |id: &AgentId| state.agent(*id).and_then(|agent| agent.parent);
    std::iter::successors(Some(agent), above).collect()
}

fn allow(why: &str) -> PermissionAnswer {
    PermissionAnswer { decision: Permit::Allow, reason: Some(why.to_owned()) }
}

fn deny(why: &str) -> PermissionAnswer {
    PermissionAnswer { decision: Permit::Deny, reason: Some(why.to_owned()) }
}

fn decision(answer: PermissionAnswer) -> Decision {
    match answer.decision {
        Permit::Allow => Decision::Allow,
        Permit::Always => Decision::AllowAlways,
        Permit::Deny => {
            Decision::Reject(answer.reason.unwrap_or_else(|| "the user said no".to_owned()))
        }
    }
}

fn asked(id: PermissionId, question: Question) -> Permission {
    let choice = |option: PermissionOption| Choice {
        id: option.id,
        name: option.name,
        kind: match option.kind {
            PermissionKind::AllowOnce => ChoiceKind::AllowOnce,
            PermissionKind::AllowAlways => ChoiceKind::AllowAlways,
            PermissionKind::RejectOnce => ChoiceKind::RejectOnce,
            PermissionKind::RejectAlways => ChoiceKind::RejectAlways,
        },
    };
    Permission {
        id,
        use_id: question.call.map(Into::into),
        tool: question.tool.into(),
        input: question.input,
        options: question.options.into_iter().map(choice).collect(),
    }
}
