//! A daemon in a home of its own, and clients of it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use substrat_proto::v1;
use substrat_proto::v1::agent_service_client::AgentServiceClient;
use substrat_proto::v1::attach_service_client::AttachServiceClient;
use substrat_proto::v1::daemon_service_client::DaemonServiceClient;
use substrat_proto::v1::exec_service_client::ExecServiceClient;
use substrat_proto::v1::provider_service_client::ProviderServiceClient;
use substrat_proto::v1::session_service_client::SessionServiceClient;
use substrat_proto::v1::workspace_service_client::WorkspaceServiceClient;
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

/// The folder of the shipped binaries: built before the tests, without any test feature.
pub fn binaries() -> PathBuf {
    std::env::var_os("SUBSTRAT_BIN_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release"),
        PathBuf::from,
    )
}

/// A binary, which must be there.
pub fn binary(name: &str) -> PathBuf {
    let path = binaries().join(name);
    assert!(path.is_file(), "{} is missing: run \"make build\" first", path.display());
    path
}

/// Longest life of a daemon in a test: beyond any that gets on, whatever else the machine does.
const LONGEST: Duration = Duration::from_secs(900);

/// Ends the tests of this process if it is not dropped in time: one that hangs is to be told by
/// its name, and not by whoever loses patience with all of them.
struct Watchdog {
    _held: mpsc::Sender<()>,
}

impl Watchdog {
    fn start() -> Self {
        let (held, dropped) = mpsc::channel();
        let test = std::thread::current().name().unwrap_or("?").to_owned();
        std::thread::spawn(move || {
            if dropped.recv_timeout(LONGEST) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{test} has used a daemon for {} s: it hangs", LONGEST.as_secs());
                std::process::abort();
            }
        });
        Self { _held: held }
    }
}

/// A running daemon. Killed when dropped, if it still runs.
pub struct Daemon {
    pub home: PathBuf,
    pub pid: u32,
    settings: Vec<String>,
    child: Option<Child>,
    folder: Option<TempDir>,
    _watchdog: Watchdog,
}

impl Daemon {
    /// Starts a daemon in a fresh home.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a daemon in a fresh home with settings such as `slots.default=1`.
    pub fn with(settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the home");
        let mut daemon = Self::on(&folder.path().join("home"), settings);
        daemon.folder = Some(folder);
        daemon
    }

    /// Starts a daemon on a home that outlives it.
    pub fn on(home: &Path, settings: &[&str]) -> Self {
        Self::try_on(home, settings).expect("the daemon starts")
    }

    /// Starts a daemon on a home; its complaint if it does not start.
    pub fn try_on(home: &Path, settings: &[&str]) -> Result<Self, String> {
        Self::under(&[], home, settings)
    }

    /// Starts a daemon as the child of another program, such as a tracer, until its next start.
    pub fn under(tracer: &[&str], home: &Path, settings: &[&str]) -> Result<Self, String> {
        let settings: Vec<String> = settings.iter().map(|text| (*text).to_owned()).collect();
        let launched = launch(tracer, home, &settings)?;
        Ok(Self::new(home, launched, settings))
    }

    /// Runs a command that becomes a daemon on a home, such as `substratd` under a `ulimit`.
    pub fn run(home: &Path, command: Command) -> Result<Self, String> {
        Ok(Self::new(home, await_ready(command)?, Vec::new()))
    }

    fn new(home: &Path, (child, pid): (Child, u32), settings: Vec<String>) -> Self {
        let (home, child) = (home.to_owned(), Some(child));
        Self { home, pid, settings, child, folder: None, _watchdog: Watchdog::start() }
    }

    pub fn socket(&self) -> PathBuf {
        self.home.join("substratd.sock")
    }

    /// Kills the daemon with -9 and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            if child.try_wait().is_ok_and(|ended| ended.is_none()) {
                // It is there until it is reaped; under a tracer it may have gone.
                let pid = Pid::from_raw(self.pid as i32).expect("a pid");
                let _ = kill_process(pid, Signal::KILL);
            }
            child.wait().expect("the killed daemon is reaped");
        }
    }

    /// Whether the process is there.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().is_ok_and(|ended| ended.is_none()))
    }

    /// Starts the daemon again after it was killed or stopped.
    pub fn start_again(&mut self) {
        assert!(self.child.is_none(), "the daemon still runs");
        let (child, pid) =
            launch(&[], &self.home, &self.settings).expect("the daemon starts again");
        (self.child, self.pid) = (Some(child), pid);
    }

    /// Starts the daemon again with other settings.
    pub fn start_again_with(&mut self, settings: &[&str]) {
        self.settings = settings.iter().map(|text| (*text).to_owned()).collect();
        self.start_again();
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid as i32).expect("a pid");
        kill_process(pid, signal).expect("the daemon is there");
    }

    /// Stops the daemon with SIGTERM; whether it said that it stopped cleanly.
    pub fn stop(&mut self) -> bool {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Waits until the daemon has ended by itself; whether it ended with success.
    pub fn wait(&mut self) -> bool {
        let mut child = self.child.take().expect("the daemon runs");
        child.wait().expect("the daemon is reaped").success()
    }

    pub async fn client(&self) -> Client {
        Client::connect(&self.socket()).await
    }

    /// Runs `substratctl` on this daemon.
    pub fn ctl(&self, args: &[&str]) -> Output {
        ctl(&self.home, args)
    }

    /// Runs `substratctl` and returns what it wrote to stdout; it must succeed.
    pub fn ctl_ok(&self, args: &[&str]) -> String {
        let output = self.ctl(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "substratctl {args:?}: {stderr}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// What the daemon logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.join("substratd.log")).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of the daemon ---\n{}", self.log());
        }
        self.kill();
    }
}

fn launch(tracer: &[&str], home: &Path, settings: &[String]) -> Result<(Child, u32), String> {
    let substratd = binary("substratd");
    let mut command = match tracer {
        [] => Command::new(substratd),
        [program, args @ ..] => {
            let mut command = Command::new(program);
            command.args(args).arg(substratd);
            command
        }
    };
    command.arg("--home").arg(home).arg("--background");
    for setting in settings {
        command.arg("--set").arg(setting);
    }
    forget_environment(&mut command);
    await_ready(command)
}

/// Keeps what is set for the tests from the binaries, to which it would be settings.
pub fn forget_environment(command: &mut Command) {
    let set = std::env::vars_os().map(|(name, _)| name);
    for name in set.filter(|name| name.as_encoded_bytes().starts_with(b"SUBSTRAT_")) {
        command.env_remove(name);
    }
}

/// Starts a command that becomes a daemon in the background, and waits until it serves.
fn await_ready(mut command: Command) -> Result<(Child, u32), String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let mut line = String::new();
    let stdout = child.stdout.take().expect("stdout is a pipe");
    BufReader::new(stdout).read_line(&mut line).map_err(|error| error.to_string())?;
    match line.strip_prefix("ready ").and_then(|rest| rest.split(' ').next()) {
        Some(pid) => Ok((child, pid.parse().expect("a pid"))),
        None => {
            let output = child.wait_with_output().map_err(|error| error.to_string())?;
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
    }
}

/// `substratd` on a home, in the background, with a clean environment.
pub fn substratd(home: &Path) -> Command {
    let mut command = Command::new(binary("substratd"));
    command.arg("--home").arg(home).arg("--background");
    forget_environment(&mut command);
    command
}

/// `substratctl` on a home, with a clean environment.
pub fn substratctl(home: &Path) -> Command {
    let mut command = Command::new(binary("substratctl"));
    command.arg("--home").arg(home).stdin(Stdio::null());
    forget_environment(&mut command);
    command
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub struct Said {
    /// The exit code; none after a signal.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        Self { code: output.status.code(), stdout, stderr }
    }
}

impl Said {
    /// What stdout holds, which must be one JSON value.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs `substratctl` on a home: its exit code and what it said.
pub fn say(home: &Path, args: &[&str]) -> Said {
    ctl(home, args).into()
}

/// Runs `substratctl` on a home with something on its stdin.
pub fn say_with(home: &Path, args: &[&str], stdin: &[u8]) -> Said {
    let mut command = substratctl(home);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("substratctl runs");
    let mut pipe = child.stdin.take().expect("stdin is a pipe");
    // One that does not read it may have ended.
    let _ = std::io::Write::write_all(&mut pipe, stdin);
    drop(pipe);
    child.wait_with_output().expect("substratctl ends").into()
}

/// A daemon that `substratctl` starts on this home is not left behind.
pub struct Detached(pub PathBuf);

impl Detached {
    /// The process that has the home, or had it last.
    pub fn pid(&self) -> Option<u32> {
        let lock = std::fs::read_to_string(self.0.join("substratd.lock")).ok()?;
        lock.lines().next()?.parse().ok()
    }

    /// Whether a living process has the home.
    pub fn lives(&self) -> bool {
        let lock = std::fs::File::open(self.0.join("substratd.lock"));
        lock.is_ok_and(|lock| lock.try_lock_shared().is_err())
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        let pid = self.pid().filter(|_| self.lives()).and_then(|pid| Pid::from_raw(pid as i32));
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Runs `substratctl` on a home.
pub fn ctl(home: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(binary("substratctl"));
    command.arg("--home").arg(home).args(args);
    forget_environment(&mut command);
    command.stdin(Stdio::null());
    command.output().expect("substratctl runs")
}

/// Says that a test could not do what it is for.
pub fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A small file system of its own; unmounted when dropped.
pub struct Mount(PathBuf);

/// Mounts a small file system; says that the test is skipped where that is not possible.
pub fn tmpfs(path: &Path, options: &str) -> Option<Mount> {
    let mut mount = Command::new("mount");
    let mounted = mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(path).output();
    if mounted.is_ok_and(|output| output.status.success()) {
        return Some(Mount(path.to_owned()));
    }
    skipped("no file system can be mounted");
    None
}

impl Mount {
    /// Mounts it again with other options.
    pub fn again(&self, options: &str) {
        let mut mount = Command::new("mount");
        let options = format!("remount,{options}");
        let status = mount.args(["-o", &options]).arg(&self.0).status();
        assert!(status.is_ok_and(|status| status.success()), "{options}");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A connection with all services.
#[derive(Clone)]
pub struct Client {
    pub agents: AgentServiceClient<Channel>,
    pub attach: AttachServiceClient<Channel>,
    pub daemon: DaemonServiceClient<Channel>,
    pub exec: ExecServiceClient<Channel>,
    pub providers: ProviderServiceClient<Channel>,
    pub sessions: SessionServiceClient<Channel>,
    pub workspaces: WorkspaceServiceClient<Channel>,
}

/// Opens a channel over a Unix socket.
pub async fn channel(socket: &Path) -> Result<Channel, tonic::transport::Error> {
    let uri: tonic::transport::Uri = hyperlocal::Uri::new(socket, "/").into();
    Endpoint::from(uri).connect_with_connector(hyperlocal::UnixConnector).await
}

impl Client {
    pub async fn connect(socket: &Path) -> Self {
        Self::try_connect(socket).await.expect("the daemon answers")
    }

    pub async fn try_connect(socket: &Path) -> Result<Self, tonic::transport::Error> {
        let channel = channel(socket).await?;
        Ok(Self {
            agents: AgentServiceClient::new(channel.clone()),
            attach: AttachServiceClient::new(channel.clone()),
            daemon: DaemonServiceClient::new(channel.clone()),
            exec: ExecServiceClient::new(channel.clone()),
            providers: ProviderServiceClient::new(channel.clone()),
            sessions: SessionServiceClient::new(channel.clone()),
            workspaces: WorkspaceServiceClient::new(channel),
        })
    }

    /// Creates a scripted root.
    pub async fn create(&self, name: &str, script: &str) -> v1::Agent {
        self.create_in(name, script, "").await
    }

    /// Creates a scripted root in a workspace.
    pub async fn create_in(&self, name: &str, script: &str, workspace: &str) -> v1::Agent {
        let request = v1::CreateAgentRequest {
            name: name.into(),
            instructions: script.into(),
            workspace: workspace.into(),
            ..Default::default()
        };
        let created = self.agents.clone().create_agent(request).await;
        created.expect("the agent is created").into_inner().agent.expect("an agent")
    }

    /// Sends a message and returns the answer.
    pub async fn ask(&self, agent: &str, text: &str) -> Result<String, tonic::Status> {
        let request =
            v1::SendMessageRequest { agent: agent.into(), text: text.into(), ..Default::default() };
        Ok(self.agents.clone().send_message(request).await?.into_inner().answer)
    }

    /// Sends a message without waiting.
    pub async fn tell(&self, agent: &str, text: &str) -> v1::SendMessageResponse {
        let (agent, text) = (agent.into(), text.into());
        let request = v1::SendMessageRequest { agent, text, no_wait: true, ..Default::default() };
        self.agents.clone().send_message(request).await.expect("the message is sent").into_inner()
    }

    pub async fn agent(&self, agent: &str) -> v1::Agent {
        let request = v1::GetAgentRequest { agent: agent.into() };
        let found = self.agents.clone().get_agent(request).await.expect("the agent is there");
        found.into_inner().agent.expect("an agent")
    }

    /// Sequence of the last durable event: the same as before, if nothing changed.
    pub async fn sequence(&self) -> u64 {
        self.status().await.journal.expect("a journal").durable_sequence
    }

    /// Waits for an event of an agent from a sequence on.
    pub async fn wait_type(&self, from: u64, agent: &v1::Agent, kind: &str) -> v1::Event {
        let fits = |event: &v1::Event| event.agent_id == agent.id && event.r#type == kind;
        self.wait_event(from, fits).await
    }

    pub async fn status(&self) -> v1::Daemon {
        let response = self.daemon.clone().get_daemon(v1::GetDaemonRequest {}).await;
        response.expect("the daemon answers").into_inner().daemon.expect("a daemon")
    }

    /// Every agent, the ended ones too.
    pub async fn all_agents(&self) -> Vec<v1::Agent> {
        let mut agents = Vec::new();
        let mut page_token = String::new();
        loop {
            let request =
                v1::ListAgentsRequest { show_terminated: true, page_token, ..Default::default() };
            let page = self.agents.clone().list_agents(request).await.expect("agents");
            let page = page.into_inner();
            agents.extend(page.agents);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return agents;
            }
        }
    }

    /// Every event of the home, in order.
    pub async fn events(&self) -> Vec<v1::Event> {
        let mut events = Vec::new();
        let mut page_token = String::new();
        loop {
            let request =
                v1::ListEventsRequest { page_size: 1000, page_token, ..Default::default() };
            let page = self.sessions.clone().list_events(request).await.expect("events");
            let page = page.into_inner();
            events.extend(page.events);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return events;
            }
        }
    }

    /// Waits for the first event from a sequence on that fits.
    pub async fn wait_event(&self, from: u64, fits: impl Fn(&v1::Event) -> bool) -> v1::Event {
        let request = v1::WatchEventsRequest { from_sequence: from.max(1), ..Default::default() };
        let events = self.sessions.clone().watch_events(request).await.expect("a stream");
        let mut events = events.into_inner();
        let wait = async {
            loop {
                let next = events.message().await.expect("the stream goes on");
                let event = next.and_then(|next| next.event).expect("an event");
                if fits(&event) {
                    return event;
                }
            }
        };
        match tokio::time::timeout(Duration::from_secs(60), wait).await {
            Ok(event) => event,
            Err(_) => panic!("the event does not come; there is {}", self.told_from(from).await),
        }
    }

    /// What there is from a sequence on, an event a line.
    async fn told_from(&self, from: u64) -> String {
        let events = self.events().await.into_iter().filter(|event| event.sequence >= from);
        let lines = events.map(|event| {
            let (text, error) = (text(&event, "text"), text(&event, "error"));
            format!("\n{} {} {} {text}{error}", event.sequence, event.agent_id, event.r#type)
        });
        lines.collect()
    }
}

/// A text in the data of an event.
pub fn text<'a>(event: &'a v1::Event, key: &str) -> &'a str {
    let value = event.data.as_ref().and_then(|data| data.fields.get(key));
    match value.and_then(|value| value.kind.as_ref()) {
        Some(prost_types::value::Kind::StringValue(text)) => text,
        _ => "",
    }
}

/// The reason in a status, such as `AGENT_NOT_FOUND`.
pub fn reason(status: &tonic::Status) -> String {
    substrat_proto::Refusal::from(status).reason
}
