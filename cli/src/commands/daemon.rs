//! `substratctl daemon`: start, stop and look at the daemon.
#![allow(clippy::disallowed_methods, reason = "starts the daemon and reads its log")]

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::time::{Duration, Instant};

use clap::Subcommand;
use prost::Message;
use substrat_proto::v1;

use super::Context;
use crate::args::duration;
use crate::client::Place;
use crate::error::{Error, Kind};
use crate::output::{count, line, note};
use crate::time;

/// How long a daemon that has the home may take until it serves.
const SETTLING: Duration = Duration::from_secs(30);

/// Start, stop and look at the daemon.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start the daemon and wait until it serves
    Start {
        /// Stay in the foreground and log to stderr
        #[arg(long)]
        foreground: bool,
        /// Set a configuration value, such as slots.default=8
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
    },
    /// Stop the daemon: running turns may go on for a while, then sessions are suspended
    Stop {
        /// How long running turns may go on [default: as configured]
        #[arg(long, value_parser = duration, value_name = "TIME")]
        deadline: Option<Duration>,
    },
    /// Have the daemon read its configuration again; running turns go on undisturbed
    Reload,
    /// Show how the daemon is doing
    Status,
    /// Show the daemon's log
    Logs {
        /// Go on with new lines
        #[arg(long, short)]
        follow: bool,
        /// How many of the last lines to show
        #[arg(long, short = 'n', default_value_t = 100, value_name = "LINES")]
        lines: usize,
    },
}

pub(crate) async fn run(context: &Context, command: Command) -> Result<(), Error> {
    match command {
        Command::Start { foreground: true, set } => {
            // Replaces this process, so signals and the exit code are the daemon's own.
            Err(Error::failed(daemon(&context.place, &set)?.exec().to_string()))
        }
        Command::Start { foreground: false, set } => {
            let started = start_with(&context.place, &set).await?;
            if context.output.is_json() {
                return status(context).await;
            }
            line(&started);
            Ok(())
        }
        Command::Stop { deadline } => stop(context, deadline).await,
        Command::Reload => reload(context).await,
        Command::Status => status(context).await,
        Command::Logs { follow, lines } => logs(context, follow, lines).await,
    }
}

/// The command that runs the daemon of a place.
fn daemon(place: &Place, set: &[String]) -> Result<Process, Error> {
    let mut process = Process::new(binary()?);
    process.arg("--home").arg(&place.home).arg("--socket").arg(&place.socket);
    for setting in set {
        process.arg("--set").arg(setting);
    }
    Ok(process)
}

/// `substratd`: as SUBSTRAT_DAEMON says, beside this binary, or on the PATH.
fn binary() -> Result<PathBuf, Error> {
    if let Some(path) = std::env::var_os("SUBSTRAT_DAEMON") {
        return Ok(path.into());
    }
    let beside = std::env::current_exe().ok().map(|path| path.with_file_name("substratd"));
    let on_path = std::env::var_os("PATH").into_iter().flat_map(|path| {
        std::env::split_paths(&path).map(|folder| folder.join("substratd")).collect::<Vec<_>>()
    });
    beside.into_iter().chain(on_path).find(|path| path.is_file()).ok_or_else(|| {
        let hint = "put substratd beside substratctl or on the PATH, or set SUBSTRAT_DAEMON";
        Error::new(Kind::Failed, "there is no substratd to start", hint)
    })
}

/// Starts the daemon of a place if it does not run.
pub(crate) async fn start(place: &Place) -> Result<(), Error> {
    note(&start_quietly(place).await?);
    Ok(())
}

/// The same; what there is to say is returned.
pub(crate) async fn start_quietly(place: &Place) -> Result<String, Error> {
    start_with(place, &[]).await
}

async fn start_with(place: &Place, set: &[String]) -> Result<String, Error> {
    loop {
        match running(place).await {
            Some(daemon) if !daemon.draining => {
                let (pid, socket) = (daemon.pid, place.socket.display());
                return Ok(format!("already running (pid {pid}) on {socket}"));
            }
            Some(_) => {
                note("the daemon is stopping; a new one starts when it has stopped");
                ended(&place.home).await?;
            }
            None => {}
        }
        match spawn(place, set).await {
            // Someone else was faster, or the one before has not quite ended.
            Err(error) if error.message.contains(TAKEN) && settled(place).await => {}
            other => return other,
        }
    }
}

async fn reload(context: &Context) -> Result<(), Error> {
    let client = context.connect().await?;
    let response = client.daemon().reload_config(v1::ReloadConfigRequest {}).await?.into_inner();
    context.output.response(&response, |changes| {
        let told = [
            ("provider added", &changes.added_providers),
            ("provider changed", &changes.changed_providers),
            ("provider removed", &changes.removed_providers),
            ("in force", &changes.changed_keys),
            ("in force after a restart", &changes.restart_keys),
        ];
        let rows = told.iter().flat_map(|(what, names)| names.iter().map(move |name| (what, name)));
        for (what, name) in rows.clone() {
            line(&format!("{what}: {name}"));
        }
        if rows.count() == 0 {
            line("nothing has changed");
        }
    })
}

/// What the daemon says where another one has its home.
const TAKEN: &str = "a daemon already runs on";

/// The daemon of a place, if it serves.
async fn running(place: &Place) -> Option<v1::Daemon> {
    let client = place.try_connect().await.ok()?;
    let response = client.daemon().get_daemon(v1::GetDaemonRequest {}).await.ok()?;
    response.into_inner().daemon
}

/// Waits until the daemon that has a home serves, or is gone. False if it does neither.
async fn settled(place: &Place) -> bool {
    let deadline = Instant::now() + SETTLING;
    while Instant::now() < deadline {
        let lock = File::open(place.home.join("substratd.lock"));
        if lock.is_ok_and(|lock| lock.try_lock_shared().is_ok()) || running(place).await.is_some() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}

/// Waits until the daemon that has a home is gone.
async fn ended(home: &Path) -> Result<(), Error> {
    // The daemon holds this lock for as long as it lives.
    let lock = File::open(home.join("substratd.lock"))?;
    let waited = tokio::task::spawn_blocking(move || lock.lock_shared());
    Ok(waited.await.map_err(|error| Error::failed(error.to_string()))??)
}

/// Starts a daemon, and waits until it serves.
async fn spawn(place: &Place, set: &[String]) -> Result<String, Error> {
    let mut child = daemon(place, set)?
        .arg("--background")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| not_startable(&error))?;
    // The pipe closes when the daemon serves, or has ended: no guessing how long that takes.
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let read = tokio::task::spawn_blocking(move || {
        let (mut said, mut complained) = (String::new(), String::new());
        let read = stdout.as_mut().map(|pipe| pipe.read_to_string(&mut said));
        let ready = said.starts_with("ready ");
        if !ready {
            let _ = stderr.as_mut().map(|pipe| pipe.read_to_string(&mut complained));
        }
        (read, said, complained)
    });
    let (_, said, complained) = read.await.map_err(|error| Error::failed(error.to_string()))?;
    let Some(pid) = said.strip_prefix("ready ").and_then(|rest| rest.split(' ').next()) else {
        // It has ended: its error is on stderr.
        let _ = child.wait();
        return Err(not_started(place, &complained));
    };
    let (socket, log) = (place.socket.display(), place.home.join("substratd.log"));
    Ok(format!("started (pid {pid}) on {socket}, log in {}", log.display()))
}

fn not_started(place: &Place, complained: &str) -> Error {
    let said = complained.lines().find_map(|line| line.strip_prefix("substratd: "));
    match said {
        Some(said) => {
            let (message, hint) = message_and_hint(said);
            Error::new(Kind::Failed, format!("the daemon did not start: {message}"), hint)
        }
        None => {
            let log = place.home.join("substratd.log");
            let hint = format!("look into {}", log.display());
            let last = complained.lines().last().unwrap_or("it said nothing");
            Error::new(Kind::Failed, format!("the daemon did not start: {last}"), hint)
        }
    }
}

/// The binary cannot be run.
fn not_startable(error: &std::io::Error) -> Error {
    let hint =
        "put substratd beside substratctl or on the PATH, or set SUBSTRAT_DAEMON to its path";
    Error::new(Kind::Failed, format!("substratd could not be started: {error}"), hint)
}

/// What the daemon complained of, and what it says to do next.
fn message_and_hint(said: &str) -> (&str, &str) {
    said.split_once("; ").unwrap_or((said, ""))
}

/// Whether a home's configuration says `autostart = true`.
pub(crate) fn starts_by_itself(home: &Path) -> bool {
    let wanted = |config: v1::GetConfigResponse| {
        config.values.iter().any(|value| value.key == "autostart" && value.value == "true")
    };
    home.join("config.toml").is_file() && offline_config(home).is_ok_and(wanted)
}

/// The configuration that a daemon would start with.
pub(crate) fn offline_config(home: &Path) -> Result<v1::GetConfigResponse, Error> {
    let shown = Process::new(binary()?)
        .arg("--home")
        .arg(home)
        .arg("--print-config")
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| not_startable(&error))?;
    if !shown.status.success() {
        let complained = String::from_utf8_lossy(&shown.stderr).trim().to_owned();
        let said = complained.strip_prefix("substratd: ").unwrap_or(&complained);
        let (message, hint) = message_and_hint(said);
        return Err(Error::new(Kind::Invalid, message, hint));
    }
    v1::GetConfigResponse::decode(shown.stdout.as_slice())
        .map_err(|error| Error::failed(format!("substratd gave no configuration: {error}")))
}

async fn stop(context: &Context, deadline: Option<Duration>) -> Result<(), Error> {
    let place = &context.place;
    let client = match place.try_connect().await {
        Ok(client) => client,
        Err(_) => return stopped(context, &v1::ShutdownResponse::default(), "not running"),
    };
    let deadline = deadline.map(prost_types::Duration::try_from).transpose();
    let deadline = deadline.map_err(|_| Error::invalid("the deadline is too long"))?;
    // The socket may be another home's than the one that is meant by default.
    let daemon = client.daemon().get_daemon(v1::GetDaemonRequest {}).await?.into_inner().daemon;
    let home = daemon.map_or_else(|| place.home.clone(), |daemon| daemon.home.into());
    let response = client.daemon().shutdown(v1::ShutdownRequest { deadline }).await?.into_inner();
    match response.running_turns {
        0 => {}
        1 => note("waiting for a running turn"),
        many => note(&format!("waiting for {many} running turns")),
    }
    drop(client);
    match place.timeout {
        Some(timeout) => tokio::time::timeout(timeout, ended(&home)).await.map_err(|_| {
            let hint = "it goes on stopping; see \"substratctl daemon logs\"";
            Error::new(Kind::TimedOut, "the daemon has not stopped in time", hint)
        })??,
        None => ended(&home).await?,
    }
    stopped(context, &response, "stopped")
}

fn stopped(context: &Context, response: &v1::ShutdownResponse, word: &str) -> Result<(), Error> {
    context.output.response(response, |_| line(word))
}

async fn status(context: &Context) -> Result<(), Error> {
    let client = context.place.try_connect().await?;
    let response = client.daemon().get_daemon(v1::GetDaemonRequest {}).await?.into_inner();
    context.output.response(&response, |response| {
        let Some(daemon) = &response.daemon else { return };
        let draining = if daemon.draining { ", stopping" } else { "" };
        line(&format!(
            "running   substratd {} (pid {}), up {}{draining}",
            daemon.version,
            daemon.pid,
            time::ago(daemon.start_time.as_ref())
        ));
        line(&format!("home      {}", daemon.home));
        line(&format!(
            "agents    {} ({} busy, {} waiting, {} queued for a slot)",
            daemon.agent_count, daemon.busy_count, daemon.waiting_count, daemon.queued_count
        ));
        line(&format!("inbox     {}", count(daemon.inbox_size, "message")));
        if let Some(journal) = &daemon.journal {
            let full = match journal.full {
                true => ", DISK FULL: only ending agents and deleting workspaces is done",
                false => "",
            };
            line(&format!(
                "journal   event {}, checkpoint {}, {} since, {}{full}",
                journal.durable_sequence,
                journal.checkpoint_sequence,
                time::bytes(journal.tail_bytes),
                count(journal.segment_count, "segment")
            ));
        }
        if let Some(sandbox) = &daemon.sandbox {
            line(&format!("sandbox   {}", crate::sandbox::line(sandbox)));
        }
        if let Some(recovery) = &daemon.recovery {
            line(&format!("recovery  {}", recovery_line(recovery)));
            for folder in &recovery.quarantined {
                let what = if folder.contains(".damaged") { "was set aside" } else { "is gone" };
                line(&format!("damaged   {folder} {what}"));
            }
            if !recovery.imported.is_empty() {
                let report = Path::new(&daemon.home).join("import-report.txt");
                line(&format!("imported  {}", recovery.imported));
                line(&format!("          see {}", report.display()));
            }
        }
    })
}

/// What recovery found, in a line.
pub(crate) fn recovery_line(recovery: &v1::RecoveryReport) -> String {
    let took = recovery.duration.and_then(|took| Duration::try_from(took).ok());
    let took = took.map(|took| format!(" in {} ms", took.as_millis())).unwrap_or_default();
    if recovery.clean {
        return format!("clean start{took}, {} replayed", count(recovery.replayed_events, "event"));
    }
    let mut parts =
        vec![format!("after a crash{took}: {} replayed", count(recovery.replayed_events, "event"))];
    if recovery.torn_bytes > 0 {
        parts.push(format!("{} of a torn write cut off", time::bytes(recovery.torn_bytes)));
    }
    if recovery.rebuilt {
        parts.push("state made anew from the logs".to_owned());
    }
    if recovery.repaired_projections > 0 {
        parts.push(format!("{} mended", count(recovery.repaired_projections, "log")));
    }
    parts.push(format!("{} interrupted", count(recovery.interrupted_turns, "turn")));
    parts.push(format!("{} returned", count(recovery.returned_messages, "message")));
    parts.join(", ")
}

async fn logs(context: &Context, follow: bool, lines: usize) -> Result<(), Error> {
    let path = context.place.home.join("substratd.log");
    let mut file = File::open(&path).map_err(|error| {
        let message = format!("{}: {error}", path.display());
        Error::new(Kind::NotFound, message, "a daemon in the foreground logs to its terminal")
    })?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let all: Vec<&str> = text.lines().collect();
    for shown in all.iter().skip(all.len().saturating_sub(lines)) {
        line(shown);
    }
    if !follow {
        return Ok(());
    }
    let mut place = file.stream_position()?;
    loop {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let length = file.metadata()?.len();
        if length < place {
            place = 0;
        }
        file.seek(SeekFrom::Start(place))?;
        let mut text = String::new();
        place += file.read_to_string(&mut text)? as u64;
        if !text.is_empty() {
            crate::output::write(&text);
        }
    }
}
