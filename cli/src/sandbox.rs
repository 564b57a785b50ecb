//! Whether processes of agents are kept in their workspaces, as a person is told it.

use substrat_proto::v1;

use crate::client::Client;
use crate::error::Error;
use crate::output::note;

/// How processes are kept in their workspaces, in a line.
pub(crate) fn line(sandbox: &v1::Sandbox) -> String {
    let reason = sandbox.reason.as_str();
    let state = match (sandbox.policy(), sandbox.in_force) {
        (v1::SandboxPolicy::Off, _) => {
            "OFF: processes of agents have the rights of the daemon".to_owned()
        }
        (policy, true) => format!("{}, in force", word(policy)),
        (v1::SandboxPolicy::Preferred, false) => {
            format!("preferred, but OFF: processes have the rights of the daemon ({reason})")
        }
        (policy, false) => {
            format!("{}, NOT AVAILABLE: no process is started ({reason})", word(policy))
        }
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

/// Says beside a listing that there is no sandbox, if there is none.
pub(crate) async fn warn(client: &Client) -> Result<(), Error> {
    let daemon = client.daemon().get_daemon(v1::GetDaemonRequest {}).await?.into_inner().daemon;
    if let Some(sandbox) = daemon.and_then(|daemon| daemon.sandbox).filter(|one| !one.in_force) {
        note(&format!("warning: sandbox {}", line(&sandbox)));
    }
    Ok(())
}
