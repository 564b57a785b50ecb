//! Carrying out effects. Nothing here blocks; what takes time becomes a task that reports back.

use super::driver::Driver;
use super::handle::{CallError, Report};
use super::runner::{Owner, Turn};
use super::shell::Met;
use crate::launcher::limits::Hit;
use crate::model::{
    AgentId, CallId, Command, Effect, Json, Name, RunCommand, SessionId, Told, Tool, TurnId, World,
    recent,
};
use crate::provider::registry::Entry;
use crate::provider::{Addition, Spec};
use crate::workspace::{Error as Refused, Files};

/// Events at the end of a child's log that its parent is shown.
const RECENT: usize = 40;

impl Driver {
    pub(super) fn act(&mut self, effect: Effect) {
        match effect {
            Effect::Open { session, agent, provider, model, instructions, saved } => {
                let name = self
                    .core
                    .state()
                    .agent(agent)
                    .map_or_else(|| Name::known("?"), |agent| agent.name.clone());
                let owner = Owner { agent, name, session, provider };
                let spec =
                    Spec { session, model, instructions, saved, anew: false, tool_socket: None };
                let errand = self.errand();
                let to = (&self.handle, errand);
                self.runners.open(owner, spec, &self.sockets, to);
            }
            Effect::StartTurn { session, agent, turn, seq, prompt, messages, world } => {
                let outputs = self.handle.outputs();
                let output = outputs.get(agent).filter(|output| output.turn_seq == seq);
                let output = output.unwrap_or_else(|| outputs.begin(agent, seq));
                let agent = self.core.state().agent(agent);
                let tools = agent.map(|agent| self.handle.offered(agent));
                let tools = tools.unwrap_or_default();
                let turn = Turn { id: turn, prompt, messages, world, tools, output };
                if !self.runners.start_turn(session, turn) {
                    self.lost(session);
                }
            }
            Effect::AddToTurn { session, turn, message, text } => {
                self.add_to_turn((session, turn), Addition { message, text });
            }
            Effect::CancelTurn { session, turn } => self.runners.cancel_turn(session, turn),
            Effect::ReturnCall { call, seq, result } => {
                self.calls.end(call, seq, &result.map_err(CallError::Failed));
            }
            Effect::ReturnPermission { permission, seq, answer } => {
                self.return_permission(permission, seq, answer);
            }
            Effect::RunTool { agent, turn, call, tool: Tool::RunCommand(args), world } => {
                self.run_command((agent, turn, call), args, world);
            }
            Effect::RunTool { agent, turn, call, tool, world } => {
                self.run_tool((agent, turn, call), tool, world);
            }
            Effect::Inspect { agent, turn, call, child, shown } => {
                self.inspect((agent, turn, call), child, shown);
            }
            Effect::Suspend { session } => {
                if !self.runners.suspend(session) {
                    self.lost(session);
                }
            }
            Effect::Close { session } => self.runners.close(session, "its agent ended"),
            Effect::CreateFolder { root } => {
                self.change_folder(root, "made", |files, root| files.create_root(root));
            }
            Effect::RemovePlaces { places } => {
                let files = self.files.clone();
                self.runners.spawn(async move {
                    // A place that stays is an empty folder.
                    let removed = tokio::task::spawn_blocking(move || files.remove_places(&places));
                    let _ = removed.await;
                });
            }
            Effect::RemoveFolder { workspace, root, git } => {
                self.change_folder(root, "removed", move |files, root| {
                    files.remove_workspace(workspace, root, git.as_ref()).map(drop)
                });
            }
        }
    }

    /// Has a running turn take a message in, or says that it comes with the next one.
    fn add_to_turn(&self, (session, turn): (SessionId, TurnId), addition: Addition) {
        let Some(agent) = self.core.state().agent_of(session) else { return };
        let provider = &agent.session.provider;
        let can = |entry: Entry| entry.provider.info().capabilities.steering;
        if self.handle.providers().get(provider).is_some_and(can) {
            return self.runners.add_to_turn(session, turn, addition);
        }
        let text = format!("{provider} takes no message in while it works; it comes next");
        let told = Command::TellTurn { agent: agent.id, turn, told: Told::Notice(text) };
        // The receiver is this driver's own.
        let _ = self.handle.reports.send(Report::Command(told));
    }

    /// A session that should be live has no runner.
    fn lost(&mut self, session: SessionId) {
        let reason = "the session has no runner".to_owned();
        let crash = Command::Crash { session, reason, attended: Vec::new() };
        // The receiver is this driver's own.
        let _ = self.handle.reports.send(Report::Command(crash));
    }

    fn run_tool(&self, (agent, turn, call): (AgentId, TurnId, CallId), tool: Tool, world: World) {
        let (files, reports) = (self.files.clone(), self.handle.reports.clone());
        self.runners.spawn(async move {
            let work = tokio::task::spawn_blocking(move || files.run(&world, &tool));
            let work = work.await;
            if let Ok(Err(Refused::NoRoom(no))) = &work {
                let (limit, detail) = (no.kind, no.detail.clone());
                let (agent, turn, workspace) = (Some(agent), Some(turn), None);
                let told = Command::ReportLimit { agent, turn, workspace, limit, detail };
                // An engine that is gone has nobody to tell.
                let _ = reports.send(Report::Command(told));
            }
            let result = match work {
                Ok(Ok(value)) => Json::of(&value).map_err(|error| error.to_string()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(panic) => Err(format!("the tool crashed: {panic}")),
            };
            let done = Command::FinishTool { agent, turn, call, result };
            // An engine that is gone has nobody to tell.
            let _ = reports.send(Report::Command(done));
        });
    }

    fn run_command(
        &mut self,
        (agent, turn, call): (AgentId, TurnId, CallId),
        args: RunCommand,
        world: World,
    ) {
        let Some(session) = self.core.state().agent(agent).map(|agent| agent.session.id) else {
            return;
        };
        // A turn that is over has nobody to run it for.
        let Some(over) = self.runners.until_over(session, turn) else { return };
        let (shells, reports) = (self.shells.clone(), self.handle.reports.clone());
        let errand = self.errand();
        self.runners.spawn(async move {
            let _errand = errand;
            let (result, met) = shells.run(session, world, args, over).await;
            let result = result.and_then(|value| Json::of(&value).map_err(|no| no.to_string()));
            let met = met.into_iter().map(|met| match met {
                Met::Limit(Hit { kind: limit, detail, .. }) => {
                    let (agent, turn, workspace) = (Some(agent), Some(turn), None);
                    Command::ReportLimit { agent, turn, workspace, limit, detail }
                }
                Met::End { pid, status, reason } => {
                    Command::ReportExit { agent, turn: Some(turn), pid, status, reason }
                }
                Met::NoSandbox(reason) => Command::ReportUnsandboxed { agent, turn, reason },
            });
            for report in met.chain([Command::FinishTool { agent, turn, call, result }]) {
                // An engine that is gone has nobody to tell.
                let _ = reports.send(Report::Command(report));
            }
        });
    }

    /// Adds to what is known of a child what stands at the end of its log.
    fn inspect(
        &self,
        (agent, turn, call): (AgentId, TurnId, CallId),
        child: SessionId,
        mut shown: serde_json::Value,
    ) {
        let (archive, reports) = (self.handle.archive().clone(), self.handle.reports.clone());
        self.runners.spawn(async move {
            archive.settled().await;
            let read = tokio::task::spawn_blocking(move || archive.tail(child, RECENT));
            let result = match read.await {
                Ok(Ok(entries)) => {
                    shown["recent"] = entries.iter().filter_map(recent).collect();
                    Json::of(&shown).map_err(|error| error.to_string())
                }
                Ok(Err(error)) => Err(format!("its log cannot be read: {error}")),
                Err(panic) => Err(format!("the tool crashed: {panic}")),
            };
            let done = Command::FinishTool { agent, turn, call, result };
            // An engine that is gone has nobody to tell.
            let _ = reports.send(Report::Command(done));
        });
    }

    /// Changes the folder of a workspace.
    fn change_folder(
        &self,
        root: String,
        what: &'static str,
        change: impl FnOnce(&Files, &str) -> std::io::Result<()> + Send + 'static,
    ) {
        let files = self.files.clone();
        self.runners.spawn(async move {
            let path = root.clone();
            let work = tokio::task::spawn_blocking(move || change(&files, &root)).await;
            let done = work.unwrap_or_else(|panic| Err(panic.into()));
            if let Err(error) = done {
                tracing::error!(path, %error, "the folder of a workspace was not {what}");
            }
        });
    }
}
