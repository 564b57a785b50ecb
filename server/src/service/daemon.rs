//! DaemonService.

use std::time::Duration;

use substrat_proto::v1;
use substrat_proto::v1::daemon_service_server::DaemonService;
use tonic::{Code, Request, Response, Status};

use super::status::{Reason, invalid, refused, status};
use super::{About, Api, Mended, convert};
use crate::recovery::Report;
use crate::workspace::{SandboxPolicy, SandboxReport};

fn recovery(about: &About, mended: Mended) -> v1::RecoveryReport {
    let (report, took): (&Report, _) = (&about.recovery, about.recovery_took);
    v1::RecoveryReport {
        clean: report.clean,
        duration: prost_types::Duration::try_from(took).ok(),
        checkpoint_sequence: report.checkpoint,
        replayed_events: report.replayed,
        rebuilt: report.rebuilt.is_some(),
        torn_bytes: report.torn_bytes,
        repaired_projections: mended.repaired as u32,
        interrupted_turns: report.interrupted_turns,
        orphaned_calls: report.orphaned_calls,
        returned_messages: report.returned_messages,
        quarantined: report.quarantined.iter().cloned().chain(mended.quarantined).collect(),
        imported: about.imported.clone().unwrap_or_default(),
    }
}

fn sandbox(report: &SandboxReport) -> v1::Sandbox {
    v1::Sandbox {
        policy: match report.policy {
            SandboxPolicy::Required => v1::SandboxPolicy::Required,
            SandboxPolicy::Preferred => v1::SandboxPolicy::Preferred,
            SandboxPolicy::Off => v1::SandboxPolicy::Off,
        }
        .into(),
        in_force: report.in_force,
        reason: report.reason.clone(),
        bubblewrap_version: report.bubblewrap.clone(),
        limits: report.limits.clone(),
        state: super::sandbox::state(report).into(),
    }
}

/// What keeps a provider from running here; empty for nothing.
pub(super) fn problem(sandbox: &v1::SandboxStatus) -> String {
    match sandbox.state() {
        v1::SandboxState::Unavailable => {
            format!("no process can be started without a sandbox: {}", sandbox.reason)
        }
        _ => String::new(),
    }
}

impl Api {
    /// Whoever asks is told what is so now; the report says what came of it.
    pub(super) async fn look_for_sandbox(&self) {
        if self.launcher.settings().policy != SandboxPolicy::Off {
            let _ = self.launcher.sandbox().await;
        }
    }
}

#[tonic::async_trait]
impl DaemonService for Api {
    async fn get_daemon(
        &self,
        _: Request<v1::GetDaemonRequest>,
    ) -> Result<Response<v1::GetDaemonResponse>, Status> {
        let mut daemon = self
            .engine
            .read(|state| {
                let (busy, waiting) = state.busy_and_waiting();
                let queued = state.agents().filter(|agent| state.is_queued(agent)).count();
                v1::Daemon {
                    agent_count: state.live_count() as u32,
                    busy_count: busy as u32,
                    waiting_count: waiting as u32,
                    queued_count: queued as u32,
                    session_count: state.agents().len() as u32,
                    workspace_count: state.workspaces().len() as u32,
                    inbox_size: state.user_inbox().len() as u32,
                    ..Default::default()
                }
            })
            .await
            .map_err(|no| refused(&no))?;
        let about = &self.about;
        daemon.version = crate::VERSION.to_owned();
        daemon.pid = std::process::id();
        daemon.start_time = Some(convert::timestamp(about.started));
        daemon.home = about.home.to_string_lossy().into_owned();
        let status = (about.journal)();
        daemon.journal = Some(v1::Journal {
            durable_sequence: status.durable,
            checkpoint_sequence: status.checkpoint,
            segment_count: status.segments,
            tail_bytes: status.tail_bytes,
            commit_count: status.commits,
            full: status.full,
        });
        self.look_for_sandbox().await;
        daemon.sandbox = Some(sandbox(&(about.sandbox)()));
        let mended = (about.mended)();
        daemon.recovery = Some(recovery(about, mended));
        daemon.draining = *self.engine.draining().borrow();
        Ok(Response::new(v1::GetDaemonResponse { daemon: Some(daemon) }))
    }

    async fn get_config(
        &self,
        _: Request<v1::GetConfigRequest>,
    ) -> Result<Response<v1::GetConfigResponse>, Status> {
        Ok(Response::new(self.about.configuration.show()))
    }

    async fn reload_config(
        &self,
        _: Request<v1::ReloadConfigRequest>,
    ) -> Result<Response<v1::ReloadConfigResponse>, Status> {
        let reloaded = self.about.configuration.reload().await;
        let changes = reloaded.map_err(|problem| {
            let hint = "mend it and reload again; the daemon goes on as it was";
            status(Code::FailedPrecondition, Reason::ConfigInvalid, problem, hint)
        })?;
        Ok(Response::new(changes))
    }

    async fn shutdown(
        &self,
        request: Request<v1::ShutdownRequest>,
    ) -> Result<Response<v1::ShutdownResponse>, Status> {
        let limit = match request.into_inner().deadline.map(Duration::try_from) {
            None => None,
            Some(Ok(limit)) => Some(limit),
            Some(Err(_)) => return Err(invalid("deadline is negative")),
        };
        let running_turns = self.engine.drain(limit).await.map_err(|no| refused(&no))?;
        Ok(Response::new(v1::ShutdownResponse { running_turns }))
    }
}
