//! `substratctl workspace exec`: run a command as an agent would see it.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read, Write};
use std::time::Duration;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use substrat_proto::v1;
use substrat_proto::v1::exec_request::Request as Asked;
use substrat_proto::v1::exec_response::Response as Told;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;

use crate::commands::Context;
use crate::error::{Error, Kind};
use crate::output::note;

/// Requests that may wait to be sent.
const WAITING: usize = 16;
/// Bytes of input in one request.
const PIECE: usize = 32 << 10;

/// Run a command exactly as an agent would see it.
///
/// The command runs in the sandbox of the workspace, with its links, variables, limits and network
/// switch. Its exit code becomes that of substratctl. With --timeout it is ended after that time.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name or id
    workspace: String,
    /// See and do only what this agent may, which works in the workspace
    #[arg(long = "as", value_name = "AGENT")]
    agent: Option<String>,
    /// Working directory, relative to the root of the workspace
    #[arg(long, value_name = "DIR", default_value = "", hide_default_value = true)]
    dir: String,
    /// A variable, such as KEY=VALUE; may be given again
    #[arg(long, value_name = "KEY=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Give it no terminal, even if there is one
    #[arg(long)]
    no_tty: bool,
    /// The command [default: a shell]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a name and a value fit, such as KEY=VALUE".to_owned()),
    }
}

/// A terminal that passes everything on as it is typed, until this is dropped.
struct Raw(Termios);

impl Raw {
    fn new() -> Option<Self> {
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
    }
}

fn size() -> Option<v1::TerminalSize> {
    let size = tcgetwinsize(std::io::stdout()).ok()?;
    // Some terminals do not know theirs.
    let or = |count: u16, usual: u32| if count == 0 { usual } else { u32::from(count) };
    Some(v1::TerminalSize { rows: or(size.ws_row, 24), columns: or(size.ws_col, 80) })
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<(), Error> {
    let command = follow(context, args);
    match context.place.timeout {
        // The command ends with its stream, which is given up here.
        Some(time) => tokio::time::timeout(time, command).await.map_err(|_| late())?,
        None => command.await,
    }
}

/// The command took longer than the caller gave it.
fn late() -> Error {
    let hint = "give more time with --timeout, or none for as long as it takes";
    Error::new(Kind::TimedOut, "the command did not end in time, and was ended", hint)
}

/// Runs the command, and passes on what it says.
async fn follow(context: &Context, args: Args) -> Result<(), Error> {
    let terminal =
        !args.no_tty && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let command = match args.command {
        command if command.is_empty() => vec!["/bin/bash".to_owned()],
        command => command,
    };
    let open = v1::ExecOpen {
        workspace: args.workspace,
        agent: args.agent.unwrap_or_default(),
        command,
        directory: args.dir,
        environment: args.env.into_iter().collect::<BTreeMap<_, _>>(),
        terminal: terminal.then(size).flatten(),
    };
    let client = context.connect().await?;
    let (requests, sent) = mpsc::channel(WAITING);
    let first = v1::ExecRequest { request: Some(Asked::Open(open)) };
    // The receiver is right here.
    let _ = requests.send(first).await;
    let response = client.exec().exec(ReceiverStream::new(sent)).await?;
    let mut told = response.into_inner();
    let mut raw = None;
    let mut resized = signal(SignalKind::window_change()).map_err(failed)?;
    let mut stop = Stop::new().map_err(failed)?;
    let send = |asked| {
        // A command that has ended takes nothing.
        let _ = requests.try_send(v1::ExecRequest { request: Some(asked) });
    };
    loop {
        let response = tokio::select! {
            response = told.message() => response?,
            signal = stop.wanted() => {
                send(Asked::Signal(signal.into()));
                continue;
            }
            _ = resized.recv(), if terminal => {
                size().into_iter().for_each(|size| send(Asked::Resize(size)));
                continue;
            }
        };
        match response.and_then(|response| response.response) {
            Some(Told::Started(started)) => {
                if !started.unsandboxed_reason.is_empty() {
                    let why = started.unsandboxed_reason;
                    note(&format!("warning: it runs without a sandbox: {why}"));
                }
                raw = if terminal { Raw::new() } else { None };
                let requests = requests.clone();
                std::thread::spawn(move || read_input(&requests));
            }
            Some(Told::Stdout(bytes)) => print(&mut std::io::stdout(), &bytes),
            Some(Told::Stderr(bytes)) => print(&mut std::io::stderr(), &bytes),
            Some(Told::Exited(exited)) => {
                drop(raw);
                exited.limits_hit.iter().for_each(|hit| note(&format!("limit hit: {hit}")));
                return exited_with(exited.code);
            }
            None => {
                drop(raw);
                let hint = "look at the daemon with \"substratctl daemon status\"";
                return Err(Error::new(Kind::Failed, "the daemon ended the stream", hint));
            }
        }
    }
}

/// How long a command has to heed SIGTERM.
const GRACE: Duration = Duration::from_secs(10);
/// So many requests to end, and it is ended whether it heeds them or not.
const ENOUGH: u32 = 3;

/// Requests to end, of which a command may heed none.
struct Stop {
    interrupted: Signal,
    terminated: Signal,
    asked: u32,
    /// When it is ended.
    at: Option<Instant>,
}

impl Stop {
    fn new() -> std::io::Result<Self> {
        let interrupted = signal(SignalKind::interrupt())?;
        let terminated = signal(SignalKind::terminate())?;
        Ok(Self { interrupted, terminated, asked: 0, at: None })
    }

    /// The signal that it is to be sent next.
    async fn wanted(&mut self) -> v1::ExecSignal {
        let at = self.at;
        let late = async move {
            match at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let signal = tokio::select! {
            _ = self.interrupted.recv() => v1::ExecSignal::Interrupt,
            _ = self.terminated.recv() => v1::ExecSignal::Terminate,
            () = late => v1::ExecSignal::Kill,
        };
        self.asked += 1;
        if self.asked >= ENOUGH || signal == v1::ExecSignal::Kill {
            self.at = None;
            return v1::ExecSignal::Kill;
        }
        if signal == v1::ExecSignal::Terminate {
            self.at.get_or_insert(Instant::now() + GRACE);
        }
        signal
    }
}

#[expect(clippy::needless_pass_by_value, reason = "is handed to map_err")]
fn failed(error: std::io::Error) -> Error {
    Error::failed(error.to_string())
}

fn exited_with(code: i32) -> Result<(), Error> {
    match u8::try_from(code) {
        Ok(0) => Ok(()),
        Ok(code) => Err(Error::exited(code)),
        Err(_) => Err(Error::exited(u8::MAX)),
    }
}

fn print(to: &mut impl Write, bytes: &[u8]) {
    // Who reads no more has said enough.
    let _ = to.write_all(bytes).and_then(|()| to.flush());
}

/// Passes on what is typed, on a thread of its own.
fn read_input(requests: &mpsc::Sender<v1::ExecRequest>) {
    let mut piece = vec![0; PIECE];
    loop {
        let asked = match std::io::stdin().read(&mut piece) {
            Ok(count @ 1..) => Asked::Input(piece[..count].to_vec()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => Asked::EndOfInput(true),
        };
        let last = matches!(asked, Asked::EndOfInput(_));
        let sent = requests.blocking_send(v1::ExecRequest { request: Some(asked) });
        if last || sent.is_err() {
            return;
        }
    }
}
