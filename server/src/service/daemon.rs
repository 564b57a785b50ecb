//! DaemonService and ProviderService.

use std::time::Duration;

use substrat_proto::v1;
use substrat_proto::v1::daemon_service_server::DaemonService;
use substrat_proto::v1::provider_service_server::ProviderService;
use tonic::{Request, Response, Status};

use super::status::{invalid, refused};
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
    }
}

/// What keeps a provider from running here; empty for nothing.
fn problem(sandbox: &v1::SandboxStatus) -> String {
    match sandbox.state() {
        v1::SandboxState::Unavailable => {
            format!("no process can be started without a sandbox: {}", sandbox.reason)
        }
        _ => String::new(),
    }
}

impl Api {
    /// Whoever asks is told what is so now; the report says what came of it.
    async fn look_for_sandbox(&self) {
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
        Ok(Response::new(self.about.config.clone()))
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

#[tonic::async_trait]
impl ProviderService for Api {
    async fn list_providers(
        &self,
        _: Request<v1::ListProvidersRequest>,
    ) -> Result<Response<v1::ListProvidersResponse>, Status> {
        let slots = self.about.slots.clone();
        let known: Vec<_> =
            self.engine.providers().iter().map(|provider| provider.info()).collect();
        self.look_for_sandbox().await;
        let confinement = self.confinement().await;
        let listed = self.engine.read(move |state| {
            let mut providers: Vec<v1::Provider> = known
                .into_iter()
                .map(|info| {
                    let pool = state.pool(info.name);
                    let sandbox = confinement.of_provider(info.name);
                    let problem = problem(&sandbox);
                    v1::Provider {
                        name: info.name.to_owned(),
                        description: info.description.to_owned(),
                        version: info.version,
                        available: problem.is_empty(),
                        problem,
                        capabilities: Some(v1::ProviderCapabilities {
                            keeps_history: info.capabilities.keeps_history,
                            native_tools: info.capabilities.native_tools,
                            tool_socket: info.capabilities.tool_socket,
                        }),
                        slot_limit: slots.get(info.name).copied().unwrap_or(0) as u32,
                        slots_held: pool.held as u32,
                        slots_wanted: pool.queued as u32,
                        sandbox: Some(sandbox),
                    }
                })
                .collect();
            providers.sort_by(|one, other| one.name.cmp(&other.name));
            providers
        });
        let providers = listed.await.map_err(|no| refused(&no))?;
        Ok(Response::new(v1::ListProvidersResponse { providers }))
    }
}
