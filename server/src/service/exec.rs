//! ExecService: commands that people run where agents work.

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use substrat_proto::v1;
use substrat_proto::v1::exec_request::Request as Asked;
use substrat_proto::v1::exec_response::Response as Told;
use substrat_proto::v1::exec_service_server::ExecService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};

use super::status::{Reason, invalid, not_launched, refused, rejected, status};
use super::uses::InUse;
use super::{Api, request};
use crate::engine::Handle;
use crate::launcher::limits::Hit;
use crate::launcher::{Ends, Exit, Launch, Launched, Process, Terminal};
use crate::model::{
    Command, Event, Name, Rejection, State, WorkspaceId, World, check_environment, workspace_path,
};

/// Bytes of output in one response.
const PIECE: usize = 32 << 10;
/// Largest size of a terminal in either direction.
const MAX_SIZE: u32 = 10_000;

#[tonic::async_trait]
impl ExecService for Api {
    type ExecStream = BoxStream<'static, Result<v1::ExecResponse, Status>>;

    async fn exec(
        &self,
        request: Request<Streaming<v1::ExecRequest>>,
    ) -> Result<Response<Self::ExecStream>, Status> {
        let mut requests = request.into_inner();
        let first = requests.message().await?.and_then(|first| first.request);
        let Some(Asked::Open(open)) = first else {
            return Err(invalid("the first request of Exec must be an open"));
        };
        let (_, workspace) = self.world_of(open.workspace.clone(), open.agent.clone()).await?;
        let in_use = self.uses.enter(workspace).ok_or_else(|| being_deleted(&workspace))?;
        // What is looked at before it counts may be gone by then.
        let launch =
            self.launch_of(v1::ExecOpen { workspace: workspace.to_string(), ..open }).await?;
        tracing::info!(program = launch.argv.first(), "a command is run for a user");
        let shared = launch.world.as_ref().map_or(workspace, |world| world.workspace);
        let launched = self.launcher.start(launch).await.map_err(|no| not_launched(&no))?;
        let told = Hits { engine: self.engine.clone(), workspace: shared, all: Vec::new() };
        let deleted = until_deleted(self.engine.clone(), workspace).boxed();
        let running = Running::new(launched, requests, told, (in_use, deleted));
        let (sender, told) = mpsc::channel(1);
        // It ends with its workspace, whether or not anybody reads what it writes.
        self.tasks.spawn(running.run(sender));
        Ok(Response::new(ReceiverStream::new(told).boxed()))
    }
}

impl Api {
    /// What is to be run.
    async fn launch_of(&self, open: v1::ExecOpen) -> Result<Launch, Status> {
        if open.command.is_empty() || open.command.iter().any(|word| word.contains('\0')) {
            return Err(invalid("command must name a program, and hold no NUL"));
        }
        check_environment(&open.environment).map_err(|no| bad_variables(&no))?;
        let terminal = open.terminal.map(|size| size_of(&size)).transpose()?;
        let dir = workspace_path(&open.directory).map_err(|no| rejected(&no))?;
        let (world, _) = self.world_of(open.workspace, open.agent).await?;
        Ok(Launch {
            argv: open.command,
            env: open.environment.into_iter().collect(),
            world: Some(world),
            dir,
            terminal,
            ..Launch::default()
        })
    }

    /// What is seen in a workspace, by an agent of it or by one who may do everything.
    async fn world_of(
        &self,
        workspace: String,
        agent: String,
    ) -> Result<(World, WorkspaceId), Status> {
        let found = match request::given(agent) {
            None => {
                let read = move |state: &State| {
                    let workspace = state.resolve_workspace(&workspace)?;
                    Ok((state.workspace_world(workspace), workspace.id))
                };
                self.engine.read(read).await.map_err(|no| refused(&no))?
            }
            Some(agent) => {
                let named = request::given(workspace);
                let read = move |state: &State, agent: &crate::model::Agent| {
                    let none = || Rejection::NoWorkspace { name: agent.name.clone() };
                    let named = named.map(|named| state.resolve_workspace(&named)).transpose()?;
                    match named {
                        Some(other) if agent.workspace != Some(other.id) => {
                            let (name, other) = (agent.name.as_str(), other.name.as_str());
                            let problem = format!("{name:?} does not work in {other:?}");
                            let hint = "name the workspace that it works in, or leave it out";
                            Err(Rejection::WorkspaceInvalid { problem, hint })
                        }
                        _ => state.world(agent).zip(agent.workspace).ok_or_else(none),
                    }
                };
                self.of_agent(agent, read).await?
            }
        };
        found.map_err(|no| rejected(&no))
    }
}

fn bad_variables(no: &Rejection) -> Status {
    match no {
        Rejection::WorkspaceInvalid { problem, hint } => {
            let message = format!("the command is refused: {problem}");
            status(Code::InvalidArgument, Reason::FieldInvalid, message, hint)
        }
        other => rejected(other),
    }
}

fn size_of(size: &v1::TerminalSize) -> Result<(u16, u16), Status> {
    let fits = |count: u32| match u16::try_from(count) {
        Ok(count @ 1..) if u32::from(count) <= MAX_SIZE => Ok(count),
        _ => Err(invalid("rows and columns of a terminal must be between 1 and 10,000")),
    };
    Ok((fits(size.rows)?, fits(size.columns)?))
}

fn being_deleted(workspace: &WorkspaceId) -> Status {
    let name = Name::known(&workspace.to_string());
    let by = "its making or its deletion, which is under way".to_owned();
    rejected(&Rejection::WorkspaceInUse { name, by })
}

/// Where a command reads and writes.
enum Streams {
    Pipes {
        /// None when no more input comes.
        stdin: Option<pipe::Sender>,
        /// None when it has ended.
        stdout: Option<pipe::Receiver>,
        /// None when it has ended.
        stderr: Option<pipe::Receiver>,
    },
    Terminal {
        terminal: Terminal,
        /// Whether nobody has its far side open any more.
        silent: bool,
    },
}

/// How long the output of a command that has ended is waited for that somebody else holds open.
const HELD: Duration = Duration::from_secs(1);
/// Bytes of it that are read at most, which is more than a pipe holds.
const MAX_AFTER: usize = 4 << 20;

/// A command that runs.
struct Running {
    process: Process,
    streams: Streams,
    requests: Option<Streaming<v1::ExecRequest>>,
    /// Input that the command has not taken yet.
    input: Vec<u8>,
    started: Option<v1::ExecStarted>,
    waiting: mpsc::Receiver<Hit>,
    hits: Hits,
    deleted: BoxFuture<'static, Rejection>,
    /// How it ended, once it did.
    exit: Option<Exit>,
    /// Bytes of its output that were read since.
    read_after: usize,
    _in_use: InUse,
}

/// Limits that were hit.
struct Hits {
    engine: Handle,
    /// The workspace whose limits they are.
    workspace: WorkspaceId,
    all: Vec<Hit>,
}

impl Hits {
    /// Takes one, and has it told by an event.
    async fn take(&mut self, hit: Hit) {
        let Hit { kind: limit, detail, .. } = hit.clone();
        self.all.push(hit);
        let (agent, turn, workspace) = (None, None, Some(self.workspace));
        let report = Command::ReportLimit { agent, turn, workspace, limit, detail };
        if let Err(error) = self.engine.execute(report, None).await {
            tracing::warn!(%error, "that a command met a limit was not told");
        }
    }
}

/// What happened next.
enum Woken {
    Output(Told),
    /// A stream ended, or took its input.
    Changed,
    Exited(Exit),
    /// It has ended, and somebody else holds its output open, who says nothing.
    Held,
    Hit(Hit),
    Request(Result<Option<v1::ExecRequest>, Status>),
}

impl Running {
    fn new(
        launched: Launched,
        requests: Streaming<v1::ExecRequest>,
        hits: Hits,
        (in_use, deleted): (InUse, BoxFuture<'static, Rejection>),
    ) -> Self {
        let Launched { mut process, ends, unsandboxed, .. } = launched;
        let streams = match ends {
            Ends::Pipes { stdin, stdout, stderr } => {
                Streams::Pipes { stdin: Some(stdin), stdout: Some(stdout), stderr: Some(stderr) }
            }
            Ends::Terminal(terminal) => Streams::Terminal { terminal, silent: false },
        };
        let unsandboxed_reason = unsandboxed.unwrap_or_default();
        let started = Some(v1::ExecStarted { pid: process.pid(), unsandboxed_reason });
        let waiting = process.take_hits();
        let (requests, input) = (Some(requests), Vec::new());
        Self {
            process,
            streams,
            requests,
            input,
            started,
            waiting,
            hits,
            deleted,
            exit: None,
            read_after: 0,
            _in_use: in_use,
        }
    }

    /// Tells what happens until it has ended, nobody is told any more, or its workspace is gone.
    async fn run(mut self, sender: mpsc::Sender<Result<v1::ExecResponse, Status>>) {
        let end = loop {
            let told = tokio::select! {
                told = self.next() => told,
                () = sender.closed() => return,
            };
            let goes_on = matches!(&told, Ok(told) if !matches!(told, Told::Exited(_)));
            let told = told.map(|told| v1::ExecResponse { response: Some(told) });
            if !goes_on {
                break told;
            }
            tokio::select! {
                sent = sender.send(told) => if sent.is_err() {
                    return;
                },
                gone = &mut self.deleted => break Err(rejected(&gone)),
            }
        };
        // The command ends before whoever reads slowly knows.
        drop(self);
        let _ = sender.send(end).await;
    }

    async fn next(&mut self) -> Result<Told, Status> {
        if let Some(started) = self.started.take() {
            return Ok(Told::Started(started));
        }
        loop {
            let is_read = self.streams.are_silent() || self.read_after > MAX_AFTER;
            if let Some(exit) = self.exit.filter(|_| is_read) {
                return Ok(Told::Exited(self.exited(exit).await));
            }
            let (takes_input, is_over) = (self.input.is_empty(), self.exit.is_some());
            let woken = tokio::select! {
                woken = self.streams.next(&mut self.input) => woken,
                exit = self.process.wait(), if !is_over => Woken::Exited(exit),
                () = tokio::time::sleep(HELD), if is_over => Woken::Held,
                Some(hit) = self.waiting.recv() => Woken::Hit(hit),
                // What runs ends with this.
                gone = &mut self.deleted => return Err(rejected(&gone)),
                request = next_request(&mut self.requests), if takes_input => {
                    Woken::Request(request)
                }
            };
            match woken {
                Woken::Output(told) => {
                    if let (true, Told::Stdout(piece) | Told::Stderr(piece)) = (is_over, &told) {
                        self.read_after += piece.len();
                    }
                    return Ok(told);
                }
                Woken::Changed => {}
                Woken::Exited(exit) => self.exit = Some(exit),
                Woken::Held => self.read_after = usize::MAX,
                Woken::Hit(hit) => self.hits.take(hit).await,
                Woken::Request(request) => self.obey(request?)?,
            }
        }
    }

    fn obey(&mut self, request: Option<v1::ExecRequest>) -> Result<(), Status> {
        let Some(request) = request else {
            self.requests = None;
            self.streams.end_input();
            return Ok(());
        };
        match request.request {
            Some(Asked::Input(bytes)) => self.input = bytes,
            Some(Asked::EndOfInput(_)) => self.streams.end_input(),
            Some(Asked::Resize(size)) => {
                let (rows, columns) = size_of(&size)?;
                if let Streams::Terminal { terminal, .. } = &self.streams {
                    // One that is gone has no size.
                    let _ = terminal.resize(rows, columns);
                }
            }
            Some(Asked::Signal(signal)) => match v1::ExecSignal::try_from(signal) {
                Ok(v1::ExecSignal::Interrupt) => self.process.interrupt(),
                Ok(v1::ExecSignal::Terminate) => self.process.terminate(),
                Ok(v1::ExecSignal::Kill) => self.process.kill_now(),
                Ok(v1::ExecSignal::Unspecified) | Err(_) => {
                    return Err(invalid("signal is not one that can be sent"));
                }
            },
            Some(Asked::Open(_)) | None => {
                return Err(invalid("only the first request of Exec is an open"));
            }
        }
        Ok(())
    }

    async fn exited(&mut self, exit: Exit) -> v1::ExecExited {
        while let Some(hit) = self.waiting.recv().await {
            self.hits.take(hit).await;
        }
        let ended_by = self.process.explain(exit, &self.hits.all);
        if let Some(hit) = ended_by.filter(|hit| !self.hits.all.contains(hit)) {
            self.hits.take(hit).await;
        }
        let (code, signal) = match exit {
            Exit::Code(code) => (code, 0),
            Exit::Signal(signal) => (128 + signal, signal),
            Exit::Gone => (128 + 9, 9),
        };
        let limits_hit = self.hits.all.iter().map(|hit| hit.detail.clone()).collect();
        v1::ExecExited { code, signal, limits_hit }
    }
}

/// Waits until a workspace is deleted: an agent that manages it need not ask who is in it.
async fn until_deleted(engine: Handle, workspace: WorkspaceId) -> Rejection {
    let mut news = engine.feed().watch();
    let mut seen = engine.feed().last();
    loop {
        let found = move |state: &State| state.resolve_workspace(&workspace.to_string()).map(drop);
        match engine.read(found).await {
            Ok(Ok(())) => {}
            Ok(Err(gone)) => return gone,
            // The daemon ends, and all that runs with it.
            Err(_) => std::future::pending().await,
        }
        while !may_be_deleted(&engine, workspace, &mut seen) {
            if news.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Whether the events after one that was seen tell of a deletion, or are too many to look at.
fn may_be_deleted(engine: &Handle, workspace: WorkspaceId, seen: &mut u64) -> bool {
    let mut is_deleted = false;
    let read = engine.feed().read(*seen, |line| {
        *seen = line.entry.seq;
        let event = &line.entry.event;
        is_deleted |=
            matches!(event, Event::WorkspaceDeleted(data) if data.workspace_id == workspace);
        true
    });
    if read.is_err() {
        *seen = engine.feed().last();
    }
    is_deleted || read.is_err()
}

async fn next_request(
    requests: &mut Option<Streaming<v1::ExecRequest>>,
) -> Result<Option<v1::ExecRequest>, Status> {
    match requests {
        Some(requests) => requests.message().await,
        None => std::future::pending().await,
    }
}

impl Streams {
    /// Whether all output was read.
    fn are_silent(&self) -> bool {
        match self {
            Self::Pipes { stdout, stderr, .. } => stdout.is_none() && stderr.is_none(),
            Self::Terminal { silent, .. } => *silent,
        }
    }

    /// Waits for output, or until the input was taken.
    async fn next(&mut self, input: &mut Vec<u8>) -> Woken {
        match self {
            Self::Pipes { stdin, stdout, stderr } => {
                tokio::select! {
                    piece = read(stdout), if stdout.is_some() => match piece {
                        Some(piece) => return Woken::Output(Told::Stdout(piece)),
                        None => *stdout = None,
                    },
                    piece = read(stderr), if stderr.is_some() => match piece {
                        Some(piece) => return Woken::Output(Told::Stderr(piece)),
                        None => *stderr = None,
                    },
                    taken = write(stdin, input), if !input.is_empty() => if !taken {
                        // Nobody reads what else is sent.
                        *stdin = None;
                        input.clear();
                    },
                    else => std::future::pending().await,
                }
            }
            Self::Terminal { terminal, silent } => {
                let typed = terminal.input.clone();
                tokio::select! {
                    piece = terminal.output.recv(), if !*silent => match piece {
                        Some(piece) => return Woken::Output(Told::Stdout(piece)),
                        None => *silent = true,
                    },
                    place = typed.reserve(), if !input.is_empty() => {
                        let piece = std::mem::take(input);
                        // One that has ended takes nothing.
                        place.into_iter().for_each(|place| place.send(piece.clone()));
                    }
                    else => std::future::pending().await,
                }
            }
        }
        Woken::Changed
    }

    fn end_input(&mut self) {
        match self {
            Self::Pipes { stdin, .. } => *stdin = None,
            // What ends the input of a terminal is typed: Ctrl-D.
            Self::Terminal { .. } => {}
        }
    }
}

/// The next piece of output. None at its end, which an error is, too.
async fn read(from: &mut Option<pipe::Receiver>) -> Option<Vec<u8>> {
    let mut piece = Vec::with_capacity(PIECE);
    let count = from.as_mut()?.read_buf(&mut piece).await.unwrap_or(0);
    (count > 0).then_some(piece)
}

/// Writes some of the input, and takes that off it. False if nobody reads it.
async fn write(to: &mut Option<pipe::Sender>, input: &mut Vec<u8>) -> bool {
    let Some(to) = to else { return false };
    match to.write(input).await {
        Ok(count @ 1..) => {
            input.drain(..count);
            true
        }
        Ok(0) | Err(_) => false,
    }
}
