//! An MCP client that speaks raw lines to the real `substratctl mcp`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::harness::{binary, forget_environment};

const PATIENCE: Duration = Duration::from_secs(60);

/// A running `substratctl mcp`. Killed when dropped.
pub struct Bridge {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::UnboundedReceiver<Value>,
    /// What came while something else was waited for.
    aside: Vec<Value>,
    last: i64,
}

impl Bridge {
    /// Starts one on a tool socket.
    pub fn start(socket: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(binary("substratctl"));
        forget_environment(&mut command);
        command.arg("mcp").args(args).env("SUBSTRAT_TOOL_SOCKET", socket);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("substratctl runs");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let line = line.expect("UTF-8");
                let message = serde_json::from_str(&line);
                let message = message.unwrap_or_else(|error| panic!("{error}: {line}"));
                // Whoever read may have gone.
                let _ = sender.send(message);
            }
        });
        Self { child, stdin, lines, aside: Vec::new(), last: 0 }
    }

    /// Starts one and says hello.
    pub async fn ready(socket: &Path, args: &[&str]) -> Self {
        let mut bridge = Self::start(socket, args);
        bridge.initialize("2025-11-25").await;
        bridge
    }

    pub fn raw(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        writeln!(stdin, "{line}").expect("it reads");
        stdin.flush().expect("it reads");
    }

    /// Sends a request, and returns its id.
    pub fn send(&mut self, method: &str, params: &Value) -> i64 {
        self.last += 1;
        let id = self.last;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.raw(&request.to_string());
        id
    }

    pub fn notify(&mut self, method: &str, params: &Value) {
        let notification = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.raw(&notification.to_string());
    }

    /// The next message that fits; others are put aside.
    pub async fn wait(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(place) = self.aside.iter().position(&fits) {
            return self.aside.remove(place);
        }
        loop {
            let next = tokio::time::timeout(PATIENCE, self.lines.recv()).await;
            let next = next.expect("a message comes").expect("the server goes on");
            if fits(&next) {
                return next;
            }
            self.aside.push(next);
        }
    }

    pub async fn response(&mut self, id: i64) -> Value {
        self.wait(|message| message["id"] == id && message.get("method").is_none()).await
    }

    pub async fn notification(&mut self, method: &str) -> Value {
        self.wait(|message| message["method"] == method).await
    }

    pub async fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        self.response(id).await
    }

    /// Says hello in a version of the protocol, and returns what the server said of itself.
    pub async fn initialize(&mut self, version: &str) -> Value {
        let params = json!({
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": { "name": "raw", "version": "1" },
        });
        let response = self.request("initialize", &params).await;
        self.notify("notifications/initialized", &json!({}));
        response["result"].clone()
    }

    pub async fn tools(&mut self) -> Vec<Value> {
        let response = self.request("tools/list", &json!({})).await;
        response["result"]["tools"].as_array().expect("a list").clone()
    }

    /// Sends a call, and returns its id.
    pub fn send_call(&mut self, name: &str, args: &Value, meta: &Value) -> i64 {
        self.send("tools/call", &json!({ "name": name, "arguments": args, "_meta": meta }))
    }

    /// Calls a tool; the result.
    pub async fn call(&mut self, name: &str, args: &Value) -> Value {
        let id = self.send_call(name, args, &json!({}));
        self.response(id).await["result"].clone()
    }

    /// Everything that came and was not waited for, once the server has answered a ping.
    pub async fn rest(&mut self) -> Vec<Value> {
        self.request("ping", &json!({})).await;
        std::mem::take(&mut self.aside)
    }

    /// Waits for the end, with stdin open.
    pub fn ended(&mut self) -> ExitStatus {
        self.child.wait().expect("it ends")
    }

    /// Closes stdin, and waits for the end.
    pub fn close(&mut self) -> ExitStatus {
        drop(self.stdin.take());
        self.child.wait().expect("it ends")
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text of a tool's result.
pub fn said(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}
