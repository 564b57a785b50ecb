//! `substratctl demo`: a team of scripted agents reviews a source tree; in the middle the daemon
//! is killed with -9 and started again; the report comes out as if nothing had happened.
#![allow(clippy::disallowed_methods, reason = "makes and removes the folder of the demonstration")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use substrat_proto::v1;
use tonic::Streaming;

use super::{Context, daemon};
use crate::client::{Client, Place, request_id};
use crate::error::{Error, Kind};
use crate::output::{Output, line, write};

/// The lead's script.
const LEAD: &str = include_str!("lead.rhai");
/// The script of each reviewer.
const REVIEWER: &str = include_str!("reviewer.rhai");
/// How long a report may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Milliseconds that a reviewer rests after each file, so that there is a middle to be killed in.
const PACE: u32 = 15;

/// A guided demonstration.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder to review: one reviewer for each folder in it
    #[arg(long, default_value = ".", value_name = "DIR")]
    source: PathBuf,
    /// Leave the home of the demonstration in place, with its daemon running
    #[arg(long)]
    keep: bool,
}

/// The folder and the daemon of a demonstration; both are gone when it is dropped.
struct Stage {
    folder: PathBuf,
    place: Place,
    keep: bool,
}

impl Stage {
    fn set(keep: bool) -> Result<Self, Error> {
        let name = format!("substrat-demo-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(folder.join("team"))?;
        std::fs::write(folder.join("team/reviewer.rhai"), REVIEWER)?;
        let home = folder.join("home");
        let socket = home.join("substratd.sock");
        let place = Place { home, socket, timeout: None, start: false };
        Ok(Self { folder, place, keep })
    }

    fn set_pace(&self, milliseconds: u32) -> Result<(), Error> {
        Ok(std::fs::write(self.folder.join("team/pace"), format!("{milliseconds}\n"))?)
    }

    /// Kills the daemon, if one runs. Returns whether one did.
    fn kill_daemon(&self) -> bool {
        let lock = std::fs::read_to_string(self.place.home.join("substratd.lock"));
        let pid = lock.ok().and_then(|text| text.lines().next()?.parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else { return false };
        kill_process(pid, Signal::KILL).is_ok()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        self.kill_daemon();
        // What is left of it lies in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<(), Error> {
    let stage = Stage::set(args.keep)?;
    let source = std::path::absolute(&args.source)?;
    tokio::select! {
        played = play(context.output, &stage, &source) => played?,
        _ = tokio::signal::ctrl_c() => {
            return Err(Error::new(Kind::Interrupted, "the demonstration was interrupted", ""));
        }
    }
    next_commands(&stage);
    Ok(())
}

async fn play(output: Output, stage: &Stage, source: &Path) -> Result<(), Error> {
    let step =
        |number: u32, text: &str| line(&format!("\n{}", output.bold(&format!("{number}. {text}"))));
    line(&output.bold("Substrat: a team of agents, a crash, and nothing lost"));

    step(1, "A daemon in a fresh home, and a lead whose workspace shows the source read-only");
    daemon::start_quietly(&stage.place).await?;
    let client = stage.place.try_connect().await?;
    stage.set_pace(PACE)?;
    create_lead(&client, stage, source, "lead").await?;
    line(&format!("   lead: a scripted agent; it sees {}", source.display()));

    step(2, "USER asks the lead for a review; the lead spawns a reviewer for each folder");
    let events = watch(&client, 1).await?;
    ask(&client, "lead").await?;
    let mut team = Team::default();
    team.follow(events, |team| team.answered * 3 >= team.spawned && team.answered > 0).await?;

    step(3, "kill -9 to the daemon, in the middle of the work");
    let before = durable(&client).await?;
    if !stage.kill_daemon() {
        return Err(Error::failed("the daemon of the demonstration was not there to be killed"));
    }
    line(&format!("   the daemon is gone; its journal ends at or after event {before}"));

    step(4, "A new daemon on the same home");
    restart(stage).await?;
    let client = stage.place.try_connect().await?;
    show_recovery(&client).await?;

    step(5, "The team goes on by itself");
    // From what was seen, since the team went on until the daemon was gone.
    let events = watch(&client, team.seen + 1).await?;
    team.follow(events, |team| team.reported).await?;
    let report = take_report(&client).await?;

    step(6, "The same review by a second team, undisturbed");
    stage.set_pace(0)?;
    let from = durable(&client).await? + 1;
    create_lead(&client, stage, source, "lead-2").await?;
    let events = watch(&client, from).await?;
    ask(&client, "lead-2").await?;
    Team { quiet: true, ..Team::default() }.follow(events, |team| team.reported).await?;
    let undisturbed = take_report(&client).await?;

    step(7, "The report");
    write(&report);
    if report != undisturbed {
        write(&undisturbed);
        return Err(Error::failed("the report differs from the one made without a crash"));
    }
    line("   equal to the one made without the crash, byte for byte");
    if !stage.keep {
        stop(&client).await?;
    }
    Ok(())
}

/// A lead with a workspace of its own.
async fn create_lead(
    client: &Client,
    stage: &Stage,
    source: &Path,
    name: &str,
) -> Result<(), Error> {
    let mut workspaces = client.workspaces();
    let workspace = format!("{name}-desk");
    let request = v1::CreateWorkspaceRequest {
        name: workspace.clone(),
        request_id: request_id(),
        ..Default::default()
    };
    workspaces.create_workspace(request).await?;
    let links = [(source.to_owned(), "source"), (stage.folder.join("team"), "team")];
    for (host_path, mount_path) in links {
        let request = v1::LinkDirectoryRequest {
            workspace: workspace.clone(),
            host_path: host_path.to_string_lossy().into_owned(),
            mount_path: mount_path.to_owned(),
            mode: v1::LinkMode::ReadOnly.into(),
            request_id: request_id(),
        };
        workspaces.link_directory(request).await?;
    }
    let request = v1::CreateAgentRequest {
        name: name.to_owned(),
        role: "lead".to_owned(),
        instructions: LEAD.to_owned(),
        workspace,
        request_id: request_id(),
        ..Default::default()
    };
    client.agents().create_agent(request).await?;
    Ok(())
}

async fn ask(client: &Client, agent: &str) -> Result<(), Error> {
    let request = v1::SendMessageRequest {
        agent: agent.to_owned(),
        text: "Review the source, please.".to_owned(),
        no_wait: true,
        request_id: request_id(),
        ..Default::default()
    };
    client.agents().send_message(request).await?;
    Ok(())
}

async fn watch(client: &Client, from: u64) -> Result<Streaming<v1::WatchEventsResponse>, Error> {
    let request = v1::WatchEventsRequest { from_sequence: from, ..Default::default() };
    Ok(client.sessions().watch_events(request).await?.into_inner())
}

/// What is known of the team from the events so far.
#[derive(Default)]
struct Team {
    spawned: u32,
    answered: u32,
    reported: bool,
    quiet: bool,
    /// Sequence of the last event.
    seen: u64,
}

impl Team {
    /// Follows the events, and tells of them, until something is the case.
    async fn follow(
        &mut self,
        mut events: Streaming<v1::WatchEventsResponse>,
        until: impl Fn(&Self) -> bool,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        while !until(self) {
            let next = tokio::time::timeout_at(deadline.into(), events.message()).await;
            let next = next.map_err(|_| Error::failed("the team did not get anywhere"))?;
            match next?.and_then(|response| response.event) {
                Some(event) => {
                    self.seen = event.sequence;
                    self.see(&event)?;
                }
                None => return Err(Error::failed("the events ended")),
            }
        }
        Ok(())
    }

    fn see(&mut self, event: &v1::Event) -> Result<(), Error> {
        let text = |key: &str| {
            let value = event.data.as_ref()?.fields.get(key)?;
            match &value.kind {
                Some(prost_types::value::Kind::StringValue(text)) => Some(text.as_str()),
                _ => None,
            }
        };
        match event.r#type.as_str() {
            "agent.created" if text("parent_session_id").is_some() => {
                self.spawned += 1;
                self.say(&format!("spawned   {}", text("name").unwrap_or_default()));
            }
            "turn.complete" if text("agent").is_some_and(|name| name.starts_with("reviewer-")) => {
                self.answered += 1;
                self.say(&format!("answered  {}", text("response").unwrap_or_default()));
            }
            "message.enqueued" if text("recipient_name") == Some("USER") => {
                if text("kind") == Some("error") {
                    return Err(Error::failed(text("payload").unwrap_or_default()));
                }
                self.reported |= text("kind") == Some("notification");
            }
            _ => {}
        }
        Ok(())
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            line(&format!("   {text}"));
        }
    }
}

async fn durable(client: &Client) -> Result<u64, Error> {
    let daemon = client.daemon().get_daemon(v1::GetDaemonRequest {}).await?.into_inner();
    let journal = daemon.daemon.and_then(|daemon| daemon.journal);
    Ok(journal.map_or(0, |journal| journal.durable_sequence))
}

/// Starts the daemon again, as soon as the lock of the killed one is free.
async fn restart(stage: &Stage) -> Result<(), Error> {
    let lock = std::fs::File::open(stage.place.home.join("substratd.lock"))?;
    let free = tokio::task::spawn_blocking(move || lock.lock_shared());
    free.await.map_err(|error| Error::failed(error.to_string()))??;
    daemon::start_quietly(&stage.place).await.map(drop)
}

async fn show_recovery(client: &Client) -> Result<(), Error> {
    let daemon = client.daemon().get_daemon(v1::GetDaemonRequest {}).await?.into_inner();
    if let Some(recovery) = daemon.daemon.and_then(|daemon| daemon.recovery) {
        line(&format!("   recovered {}", daemon::recovery_line(&recovery)));
    }
    Ok(())
}

/// Takes the report out of USER's inbox.
async fn take_report(client: &Client) -> Result<String, Error> {
    let mut agents = client.agents();
    let wait = Some(prost_types::Duration { seconds: 30, nanos: 0 });
    let mut page_token = String::new();
    loop {
        let request = v1::ListInboxRequest { page_size: 100, page_token, wait };
        let messages = agents.list_inbox(request).await?.into_inner().messages;
        let Some(last) = messages.last() else {
            return Err(Error::failed("the report did not arrive"));
        };
        page_token = last.sequence.to_string();
        let message_ids = messages.iter().map(|message| message.id.clone()).collect();
        agents.ack_inbox(v1::AckInboxRequest { message_ids, request_id: request_id() }).await?;
        let report = messages.into_iter().find(|m| m.kind() == v1::MessageKind::Notification);
        if let Some(report) = report {
            return Ok(report.text);
        }
    }
}

async fn stop(client: &Client) -> Result<(), Error> {
    let deadline = Some(prost_types::Duration { seconds: 2, nanos: 0 });
    client.daemon().shutdown(v1::ShutdownRequest { deadline }).await?;
    Ok(())
}

fn next_commands(stage: &Stage) {
    let me = std::env::args().next().unwrap_or_else(|| "substratctl".to_owned());
    if stage.keep {
        let home = stage.place.home.display();
        line(&format!(
            "\nThe daemon still runs; look around with {me} --home {home} agent list --tree"
        ));
        return;
    }
    line("\nNothing is left running. Try next:");
    line(&format!("   {me} daemon start"));
    line(&format!(
        "   {me} agent create echo --instructions 'fn turn(prompt) {{ \"you said: \" + prompt }}'"
    ));
    line(&format!("   {me} agent attach echo"));
}
