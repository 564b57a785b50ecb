//! Whether processes are kept in a sandbox, as every answer says it.

use std::sync::Arc;

use substrat_proto::v1;

use super::Api;
use crate::model::Agent;
use crate::workspace::{SandboxPolicy, SandboxReport};

/// How processes are started here. Clones are cheap.
#[derive(Debug, Clone)]
pub(super) struct Confinement {
    all: Arc<v1::SandboxStatus>,
    /// Providers that start processes.
    starting: Arc<[Arc<str>]>,
}

impl Api {
    /// How processes are started, looked for if that is not known.
    pub(super) async fn confinement(&self) -> Confinement {
        let all = self.engine.providers().all();
        let infos = all.values().map(|entry| entry.provider.info());
        let starting = infos.filter(|info| info.capabilities.processes).map(|info| info.name);
        let all = Arc::new(status(&self.launcher.seen().await));
        Confinement { all, starting: starting.collect() }
    }
}

impl Confinement {
    /// What is told of a workspace.
    pub(super) fn of_workspace(&self) -> v1::SandboxStatus {
        v1::SandboxStatus::clone(&self.all)
    }

    /// What is told of a provider.
    pub(super) fn of_provider(&self, name: &str) -> v1::SandboxStatus {
        self.if_any(self.starts(name))
    }

    /// What is told of an agent: it has processes of its provider, and commands where it has a
    /// workspace.
    pub(super) fn of_agent(&self, agent: &Agent) -> v1::SandboxStatus {
        self.if_any(agent.workspace.is_some() || self.starts(&agent.session.provider))
    }

    fn starts(&self, provider: &str) -> bool {
        self.starting.iter().any(|starting| **starting == *provider)
    }

    fn if_any(&self, any: bool) -> v1::SandboxStatus {
        let none = v1::SandboxState::NoProcesses.into();
        let none = || v1::SandboxStatus { state: none, reason: String::new() };
        if any { self.of_workspace() } else { none() }
    }
}

fn status(report: &SandboxReport) -> v1::SandboxStatus {
    v1::SandboxStatus { state: state(report).into(), reason: report.reason.clone() }
}

/// How processes are started, as far as that is known.
pub(super) fn state(report: &SandboxReport) -> v1::SandboxState {
    match (report.policy, report.in_force) {
        (SandboxPolicy::Preferred, false) if report.may_pass => v1::SandboxState::Unavailable,
        (SandboxPolicy::Off, _) | (SandboxPolicy::Preferred, false) => v1::SandboxState::Off,
        (SandboxPolicy::Required, false) => v1::SandboxState::Unavailable,
        (SandboxPolicy::Required | SandboxPolicy::Preferred, true) => v1::SandboxState::InForce,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_is_in_force_off_or_cannot_be_had() {
        let told = |policy, in_force| {
            let reason = if in_force { "" } else { "why" }.to_owned();
            let told = status(&SandboxReport { policy, in_force, reason, ..Default::default() });
            assert_eq!(told.reason.is_empty(), in_force);
            told.state()
        };
        assert_eq!(told(SandboxPolicy::Required, true), v1::SandboxState::InForce);
        assert_eq!(told(SandboxPolicy::Preferred, true), v1::SandboxState::InForce);
        assert_eq!(told(SandboxPolicy::Required, false), v1::SandboxState::Unavailable);
        assert_eq!(told(SandboxPolicy::Preferred, false), v1::SandboxState::Off);
        assert_eq!(told(SandboxPolicy::Off, false), v1::SandboxState::Off);
        let policy = SandboxPolicy::Preferred;
        let passing = status(&SandboxReport { policy, may_pass: true, ..Default::default() });
        assert_eq!(passing.state(), v1::SandboxState::Unavailable);
    }

    #[test]
    fn a_provider_without_processes_needs_no_sandbox() {
        let off = v1::SandboxStatus { state: v1::SandboxState::Off.into(), reason: "why".into() };
        let known =
            Confinement { all: Arc::new(off.clone()), starting: Arc::new(["program".into()]) };
        assert_eq!(known.of_provider("program"), off);
        assert_eq!(known.of_provider("scripted").state(), v1::SandboxState::NoProcesses);
        assert_eq!(known.of_workspace(), off);
    }
}
