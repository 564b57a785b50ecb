//! Whether processes of agents are kept in their workspaces, as a person is told it.

use substrat_proto::v1;

use crate::client::Client;
use crate::error::Error;
use crate::output::note;

/// How processes are kept in their workspaces, in a line.
pub(crate) fn line(sandbox: &v1::Sandbox) -> String {
    let reason = sandbox.reason.as_str();
    let policy = word(sandbox.policy());
    let state = match (sandbox.policy(), sandbox.in_force, sandbox.state()) {
        (v1::SandboxPolicy::Off, ..) => {
            "OFF: processes of agents have the rights of the daemon".to_owned()
        }
        (_, true, _) => format!("{policy}, in force"),
        (v1::SandboxPolicy::Preferred, false, v1::SandboxState::Unavailable) => {
            format!("{policy}, NOT AVAILABLE: no process is started for now ({reason})")
        }
        (v1::SandboxPolicy::Preferred, false, _) => {
            format!("{policy}, but OFF: processes have the rights of the daemon ({reason})")
        }
        (_, false, _) => format!("{policy}, NOT AVAILABLE: no process is started ({reason})"),
    };
    let parts = [state, sandbox.bubblewrap_version.clone(), sandbox.limits.clone()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

fn word(policy: v1::SandboxPolicy) -> &'static str {
    match policy {
        v1::SandboxPolicy::Unspecified => "?",
        v1::SandboxPolicy::Required => "required",
        v1::SandboxPolicy::Preferred => "preferred",
        v1::SandboxPolicy::Off => "off",
    }
}

/// What is told of processes that are not kept in a sandbox; nothing where they are, or where
/// there are none.
pub(crate) fn lack(status: Option<&v1::SandboxStatus>) -> Option<&'static str> {
    match status.map_or(v1::SandboxState::Unspecified, v1::SandboxStatus::state) {
        v1::SandboxState::Off => Some("OFF"),
        v1::SandboxState::Unavailable => Some("NOT AVAILABLE"),
        v1::SandboxState::Unspecified
        | v1::SandboxState::InForce
        | v1::SandboxState::NoProcesses => None,
    }
}

/// The same with the reason, in a line.
pub(crate) fn lack_line(status: Option<&v1::SandboxStatus>) -> Option<String> {
    let reason = status.map_or("", |status| status.reason.as_str());
    let means = match lack(status)? {
        lack @ "OFF" => format!("{lack}: processes have the rights of the daemon"),
        lack => format!("{lack}: no process is started"),
    };
    Some(if reason.is_empty() { means } else { format!("{means} ({reason})") })
}

/// Whether processes run without a sandbox, so that nothing is enforced on them.
pub(crate) fn is_off(status: Option<&v1::SandboxStatus>) -> bool {
    status.is_some_and(|status| status.state() == v1::SandboxState::Off)
}

/// A column of a listing that is there where something is not kept in a sandbox.
pub(crate) struct Column(bool);

impl Column {
    pub(crate) fn of<'a>(mut all: impl Iterator<Item = Option<&'a v1::SandboxStatus>>) -> Self {
        Self(all.any(|one| lack(one).is_some()))
    }

    /// The headings, of which the last is this column's.
    pub(crate) fn headings(&self, all: &'static [&'static str]) -> &'static [&'static str] {
        if self.0 { all } else { &all[..all.len() - 1] }
    }

    /// The cells with what is told of one.
    pub(crate) fn cells(
        &self,
        mut cells: Vec<String>,
        status: Option<&v1::SandboxStatus>,
    ) -> Vec<String> {
        let state = status.map_or(v1::SandboxState::Unspecified, v1::SandboxStatus::state);
        let cell = match (lack(status), state) {
            (Some(lack), _) => lack,
            (None, v1::SandboxState::InForce) => "on",
            (None, _) => "-",
        };
        cells.extend(self.0.then(|| cell.to_owned()));
        cells
    }
}

/// Says beside a listing that there is no sandbox, if there is none.
pub(crate) async fn warn(client: &Client) -> Result<(), Error> {
    let daemon = client.daemon().get_daemon(v1::GetDaemonRequest {}).await?.into_inner().daemon;
    if let Some(sandbox) = daemon.and_then(|daemon| daemon.sandbox).filter(|one| !one.in_force) {
        note(&format!("warning: sandbox {}", line(&sandbox)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(policy: v1::SandboxPolicy, state: v1::SandboxState) -> String {
        line(&v1::Sandbox {
            policy: policy.into(),
            state: state.into(),
            in_force: state == v1::SandboxState::InForce,
            reason: if state == v1::SandboxState::InForce { "" } else { "why" }.to_owned(),
            ..v1::Sandbox::default()
        })
    }

    #[test]
    fn what_is_said_of_a_sandbox_is_what_happens_to_processes() {
        use v1::{SandboxPolicy as Policy, SandboxState as State};
        assert_eq!(told(Policy::Required, State::InForce), "required, in force");
        assert_eq!(
            told(Policy::Required, State::Unavailable),
            "required, NOT AVAILABLE: no process is started (why)"
        );
        assert_eq!(
            told(Policy::Preferred, State::Unavailable),
            "preferred, NOT AVAILABLE: no process is started for now (why)"
        );
        assert_eq!(
            told(Policy::Preferred, State::Off),
            "preferred, but OFF: processes have the rights of the daemon (why)"
        );
        // An older daemon tells no state.
        assert!(told(Policy::Preferred, State::Unspecified).starts_with("preferred, but OFF"));
        assert!(told(Policy::Off, State::Off).starts_with("OFF"));
    }
}
