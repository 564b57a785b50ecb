//! Turns of real command-line agents through the daemon, beside the same agent run directly; and
//! how long a piece of output is on its way from an agent's pipe to an attached client.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use substrat_tests::agents::{Home, installed};
use substrat_tests::harness::Daemon;
use substrat_tests::model_server::ModelServer;
use substrat_tests::watch::{deltas, event_name};

use crate::figures::{Figures, Target, percentile};

const ROUNDS: usize = 40;
const KEY: &str = "of-a-test";

/// An ACP agent that says when it says something: nanoseconds of the monotonic clock.
const CLOCK: &str = r#"#!/usr/bin/python3
import json, sys, time
def write(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "session/prompt":
        for _ in range(2000):
            time.sleep(0.001)
            text = {"type": "text", "text": "%d " % time.monotonic_ns()}
            update = {"sessionUpdate": "agent_message_chunk", "content": text}
            write({"method": "session/update", "params": {"sessionId": "s", "update": update}})
    results = {"initialize": {"protocolVersion": 1, "agentCapabilities": {}},
               "session/new": {"sessionId": "s"}, "session/prompt": {"stopReason": "end_turn"}}
    if "id" in asked:
        write({"id": asked["id"], "result": results[asked["method"]]})
"#;

pub(crate) fn run(figures: &mut Figures) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let turns: [(&str, Begin); 2] = [("claude", Direct::claude), ("codex", Direct::codex)];
    for (name, direct) in turns {
        let Some(program) = installed(name) else { continue };
        runtime.block_on(added(figures, name, &program, direct));
    }
    runtime.block_on(on_the_way(figures));
}

/// Starts an agent without a daemon.
type Begin = fn(&Path, &Home, &ModelServer) -> Direct;

/// An agent without a daemon.
struct Direct {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Begins a turn.
    turn: Box<dyn Fn(&str) -> Value>,
    /// Whether a line ends one.
    is_over: fn(&Value) -> bool,
}

impl Direct {
    fn start(mut command: Command) -> (Child, ChildStdin, BufReader<ChildStdout>) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        (child, stdin, BufReader::new(stdout))
    }

    fn claude(program: &Path, home: &Home, server: &ModelServer) -> Self {
        let mut command = home.command(program);
        command.env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", KEY);
        command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").env("DISABLE_TELEMETRY", "1");
        command.args(["-p", "--output-format", "stream-json", "--verbose", "--strict-mcp-config"]);
        command.args(["--input-format", "stream-json", "--include-partial-messages"]);
        command.args(["--setting-sources=", "--model", "fake-1"]);
        let (child, stdin, stdout) = Self::start(command);
        let turn =
            |text: &str| json!({"type": "user", "message": {"role": "user", "content": text}});
        Self {
            child,
            stdin,
            stdout,
            turn: Box::new(turn),
            is_over: |line| line["type"] == "result",
        }
    }

    fn codex(program: &Path, home: &Home, server: &ModelServer) -> Self {
        let mut command = home.command(program);
        command.env("OPENAI_API_KEY", KEY).args(["-c", "analytics.enabled=false"]);
        command.args(["-c", "check_for_update_on_startup=false"]);
        command.args(["--disable", "plugins", "--disable", "apps", "-c", "model_provider=\"x\""]);
        command.arg("-c").arg(format!(
            "model_providers.x={{name=\"x\",base_url=\"{}/v1\",env_key=\"OPENAI_API_KEY\",\
             wire_api=\"responses\"}}",
            server.url(),
        ));
        command.arg("app-server");
        let (child, stdin, stdout) = Self::start(command);
        let is_over = |line: &Value| line["method"] == "turn/completed";
        let mut direct = Self { child, stdin, stdout, turn: Box::new(|_| Value::Null), is_over };
        let client = json!({"name": "bench", "title": "bench", "version": "1"});
        direct.write(&json!({"id": 0, "method": "initialize", "params": {"clientInfo": client}}));
        direct.until(|line| line["id"] == 0);
        direct.write(&json!({"method": "initialized"}));
        let thread = json!({
            "model": "fake-1", "cwd": home.work(),
            "approvalPolicy": "never", "sandbox": "danger-full-access",
        });
        direct.write(&json!({"id": 1, "method": "thread/start", "params": thread}));
        let started = direct.until(|line| line["id"] == 1);
        let thread = started["result"]["thread"]["id"].clone();
        direct.turn = Box::new(move |text| {
            let input = json!([{"type": "text", "text": text}]);
            let params = json!({"threadId": thread, "input": input});
            json!({"id": 2, "method": "turn/start", "params": params})
        });
        direct
    }

    fn write(&mut self, message: &Value) {
        self.stdin.write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut line = String::new();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "it goes on");
            match serde_json::from_str(&line) {
                Ok(value) if fits(&value) => return value,
                _ => {}
            }
        }
    }

    fn turn(&mut self, text: &str) -> f64 {
        let begun = Instant::now();
        self.write(&(self.turn)(text));
        self.until(self.is_over);
        begun.elapsed().as_secs_f64() * 1e3
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Turns through the daemon and directly, in turn.
async fn added(figures: &mut Figures, name: &str, program: &Path, direct: Begin) {
    let (server, home, folder) = (ModelServer::start(), Home::new(), tempfile::tempdir().unwrap());
    let key = folder.path().join("key");
    std::fs::write(&key, KEY).unwrap();
    let (kind, path) = if name == "claude" { ("claude-code", "") } else { ("codex", "/v1") };
    let settings = [
        format!("providers.cli.kind={kind}"),
        format!("providers.cli.program={}", program.display()),
        format!("providers.cli.key_file={}", key.display()),
        format!("providers.cli.base_url={}{path}", server.url()),
        "providers.cli.model=fake-1".to_owned(),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let daemon = Daemon::on(&folder.path().join("home"), &settings);
    let client = daemon.client().await;
    daemon.ctl_ok(&["workspace", "create", "desk"]);
    daemon.ctl_ok(&["agent", "create", "m", "--provider", "cli", "--workspace", "desk"]);
    let mut direct = direct(program, &home, &server);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS + 3 {
        let text = format!("SAY round {round}");
        let begun = Instant::now();
        client.ask("m", &text).await.unwrap();
        let (our, their) = (begun.elapsed().as_secs_f64() * 1e3, direct.turn(&text));
        // The first ones start processes.
        if round >= 3 {
            ours.push(our);
            theirs.push(their);
        }
    }
    let (our, their) = (percentile(&mut ours, 0.5), percentile(&mut theirs, 0.5));
    figures.add(
        format!("{name}, a turn through the daemon: p50"),
        (our, "ms"),
        Some(("ms run directly", their)),
        Target::AtMost(their + 20.0),
    );
}

/// Pieces of output of an agent that says when it wrote them, beside the same ones read from its
/// pipe.
async fn on_the_way(figures: &mut Figures) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("clock");
    std::fs::write(&program, CLOCK).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let mut read = from_pipe(&program);
    let program = format!("providers.clock.program={}", program.display());
    let settings = ["providers.clock.kind=acp", &program];
    let daemon = Daemon::on(&folder.path().join("home"), &settings);
    let client = daemon.client().await;
    daemon.ctl_ok(&["agent", "create", "m", "--provider", "clock"]);
    let mut watch = client.attach("m", None).await;
    watch.input("go", "1").await;
    let mut late = Vec::new();
    loop {
        let item = watch.next().await;
        for text in deltas(std::slice::from_ref(&item)).into_iter().filter_map(|(.., text)| text) {
            late.extend(lateness(&text));
        }
        if event_name(&item) == Some("turn.complete") {
            break;
        }
    }
    assert!(late.len() >= 1000, "{}", late.len());
    for (share, name, target) in [(0.5, "p50", Target::None), (0.99, "p99", Target::AtMost(2.0))] {
        let value = percentile(&mut late, share);
        figures.add(
            format!("a delta, pipe to attached client: {name}"),
            (value, "ms"),
            Some(("ms from the pipe alone", percentile(&mut read, share))),
            target,
        );
    }
}

/// How long pieces of output are on their way where nothing but a pipe is between, in ms.
fn from_pipe(program: &Path) -> Vec<f64> {
    let mut command = Command::new(program);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}", json!({ "id": 1, "method": "session/prompt" })).unwrap();
    drop(stdin);
    let mut late = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let text = message["params"]["update"]["content"]["text"].as_str();
        late.extend(text.into_iter().flat_map(lateness));
    }
    child.wait().unwrap();
    late
}

/// How long ago the times of a text were, in ms.
fn lateness(text: &str) -> impl Iterator<Item = f64> + '_ {
    let now = Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic));
    let now = now.unwrap().as_nanos();
    let times = text.split_whitespace().map(|time| time.parse::<u128>().unwrap());
    times.map(move |then| now.saturating_sub(then) as f64 / 1e6)
}
