//! Commands of a real agent's own, which run in its turn and no longer.

use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

use serde_json::json;

use super::{Agent, Bench, CLAUDE, CLAUDE_ACP, CODEX, CODEX_ACP, CODEX_EXEC, OPENCODE};

/// How long a command may take to begin and to be gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// Holds a pipe open, and waits for what never comes.
const WAITS: &str = "exec 9>held; echo begun >&9; cat never";

/// A pipe that a command in the workspace writes to.
struct Pipe(BufReader<std::fs::File>);

impl Pipe {
    /// Waits until the command has begun.
    async fn begun(bench: &Bench) -> Self {
        let path = bench.root("desk").join("held");
        let open = move || {
            let mut pipe = BufReader::new(std::fs::File::open(path).unwrap());
            let mut line = String::new();
            pipe.read_line(&mut line).unwrap();
            assert_eq!(line, "begun\n");
            Self(pipe)
        };
        let opened = tokio::task::spawn_blocking(open);
        tokio::time::timeout(PATIENCE, opened).await.expect("it begins").unwrap()
    }

    /// Waits until nobody holds it any more.
    async fn let_go(mut self) {
        let read = tokio::task::spawn_blocking(move || self.0.read_to_end(&mut Vec::new()));
        tokio::time::timeout(PATIENCE, read).await.expect("it is gone").unwrap().unwrap();
    }
}

fn make_pipes(bench: &Bench) {
    for name in ["held", "never"] {
        let made = std::process::Command::new("mkfifo").arg(bench.root("desk").join(name)).status();
        assert!(made.unwrap().success());
    }
}

/// A command is gone when its turn was cancelled, and the session goes on.
async fn cancelled(agent: Agent, call: String) {
    let Some(bench) = Bench::start(agent, &[]) else { return };
    let client = bench.client().await;
    make_pipes(&bench);
    client.ask("m", "SAY alpha noted").await.unwrap();
    client.tell("m", &format!("{call}\nSAY ran")).await;
    let pipe = Pipe::begun(&bench).await;
    bench.daemon.ctl_ok(&["agent", "cancel", "m"]);
    client.wait_event(0, |event| event.r#type == "turn.cancelled").await;
    pipe.let_go().await;
    let recalled = client.ask("m", "RECALL").await.unwrap();
    assert!(recalled.contains("alpha noted"), "{recalled}");
}

/// What Claude Code is told to run.
fn bash() -> String {
    format!("CALL Bash {}", json!({"command": WAITS, "description": "waits"}))
}

/// What Codex is told to run, and after how many milliseconds it goes on without it.
fn exec(goes_on: u32) -> String {
    format!("CALL exec_command {}", json!({"cmd": WAITS, "yield_time_ms": goes_on}))
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_ends_them_when_it_is_cancelled() {
    cancelled(CLAUDE, bash()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_acp_ends_them_when_it_is_cancelled() {
    cancelled(CLAUDE_ACP, bash()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_ends_them_when_it_is_cancelled() {
    cancelled(CODEX, exec(25_000)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_exec_ends_them_when_it_is_cancelled() {
    cancelled(CODEX_EXEC, exec(25_000)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_acp_ends_them_when_it_is_cancelled() {
    cancelled(CODEX_ACP, exec(25_000)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn opencode_ends_them_when_it_is_cancelled() {
    let call = json!({"command": WAITS, "description": "waits"});
    cancelled(OPENCODE, format!("CALL bash {call}")).await;
}

/// Codex goes on while a command runs; that ends with the turn.
async fn over(agent: Agent) {
    let Some(bench) = Bench::start(agent, &[]) else { return };
    let client = bench.client().await;
    make_pipes(&bench);
    client.tell("m", &format!("{}\nSAY went on", exec(300))).await;
    let pipe = Pipe::begun(&bench).await;
    client.wait_event(0, |event| event.r#type == "turn.complete").await;
    pipe.let_go().await;
    let recalled = client.ask("m", "RECALL").await.unwrap();
    assert!(recalled.contains("SAY went on"), "{recalled}");
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_leaves_none_behind_when_its_turn_is_over() {
    over(CODEX).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_acp_leaves_none_behind_when_its_turn_is_over() {
    over(CODEX_ACP).await;
}

/// Codex went on while a command runs, and is cancelled then.
async fn cancelled_beside(agent: Agent) {
    let Some(bench) = Bench::start(agent, &[]) else { return };
    let client = bench.client().await;
    make_pipes(&bench);
    client.ask("m", "SAY alpha noted").await.unwrap();
    client.tell("m", &format!("{}\nSTALL", exec(300))).await;
    let pipe = Pipe::begun(&bench).await;
    let went_on = bench.server.request(|request| {
        request.user.contains("STALL") && request.body.to_string().contains("function_call_output")
    });
    went_on.await;
    bench.daemon.ctl_ok(&["agent", "cancel", "m"]);
    client.wait_event(0, |event| event.r#type == "turn.cancelled").await;
    pipe.let_go().await;
    let recalled = client.ask("m", "RECALL").await.unwrap();
    assert!(recalled.contains("alpha noted"), "{recalled}");
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_leaves_none_behind_when_it_is_cancelled_later() {
    cancelled_beside(CODEX).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_acp_leaves_none_behind_when_it_is_cancelled_later() {
    cancelled_beside(CODEX_ACP).await;
}
