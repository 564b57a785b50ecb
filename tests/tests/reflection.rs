//! A client that knows nothing but the socket: it lists, describes and calls through reflection.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use substrat_tests::harness::{Daemon, Said};

/// The public client: as SUBSTRAT_BUF says, on the PATH, or where `make test` puts it.
fn buf() -> PathBuf {
    let named = std::env::var_os("SUBSTRAT_BUF").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("buf"));
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/tools/bin/buf");
    let mut places = named.into_iter().chain(on_path).chain([kept]);
    places.find(|path| path.is_file()).expect(
        "buf is missing: \"make test\" installs it (buf-bin of PyPI, into .cache/tools), or name \
         one in SUBSTRAT_BUF",
    )
}

struct Caller {
    daemon: Daemon,
    cache: tempfile::TempDir,
}

impl Caller {
    fn new() -> Self {
        Self { daemon: Daemon::start(), cache: tempfile::tempdir().unwrap() }
    }

    fn curl(&self, args: &[&str]) -> Said {
        let mut command = Command::new(buf());
        command.args(["curl", "--http2-prior-knowledge", "--protocol", "grpc", "--unix-socket"]);
        command.arg(self.daemon.socket()).args(args);
        command.env("BUF_CACHE_DIR", self.cache.path()).current_dir(self.cache.path());
        command.output().unwrap().into()
    }

    fn list(&self, args: &[&str]) -> Vec<String> {
        let said = self.curl(args);
        assert_eq!(said.code, Some(0), "{said:?}");
        said.stdout.lines().map(str::to_owned).collect()
    }

    /// Calls a method with JSON: its answer, or the error that it came to.
    fn call(&self, method: &str, request: &Value) -> Result<Value, Value> {
        let url = format!("http://localhost/{method}");
        let said = self.curl(&["-d", &request.to_string(), &url]);
        match said.code {
            Some(0) => Ok(said.json()),
            _ => Err(serde_json::from_str(&said.stderr).unwrap_or_else(|_| panic!("{said:?}"))),
        }
    }
}

#[test]
fn everything_that_is_served_is_listed_and_described() {
    let caller = Caller::new();
    for version in ["grpc-v1", "grpc-v1alpha"] {
        let with = |what| ["--reflect-protocol", version, what, "http://localhost"];
        let mut services = caller.list(&with("--list-services"));
        services.retain(|name| !name.starts_with("grpc.reflection."));
        let expected = [
            "grpc.health.v1.Health",
            "substrat.v1.AgentService",
            "substrat.v1.AttachService",
            "substrat.v1.DaemonService",
            "substrat.v1.ExecService",
            "substrat.v1.ProviderService",
            "substrat.v1.SessionService",
            "substrat.v1.WorkspaceService",
        ];
        assert_eq!(services, expected);
        let methods = caller.list(&with("--list-methods"));
        for method in ["AgentService/CreateAgent", "AttachService/Attach", "DaemonService/Shutdown"]
        {
            assert!(methods.contains(&format!("substrat.v1.{method}")), "{methods:?}");
        }
        assert!(!methods.iter().any(|method| method.contains("ToolService")), "{methods:?}");
    }
}

#[test]
fn an_agent_is_created_asked_and_listed_without_a_schema_at_hand() {
    let caller = Caller::new();
    let agents = |method: &str, request: Value| {
        caller.call(&format!("substrat.v1.AgentService/{method}"), &request)
    };
    let script = r#"fn turn(prompt) { "you said: " + messages()[0].text }"#;
    let request = json!({ "name": "echo", "instructions": script, "requestId": "one" });
    let created = agents("CreateAgent", request.clone()).unwrap();
    assert_eq!(created["agent"]["path"], "echo");
    assert_eq!(agents("CreateAgent", request).unwrap(), created, "the same request id");
    let answer = agents("SendMessage", json!({ "agent": "echo", "text": "hi" })).unwrap();
    assert_eq!((&answer["answer"], &answer["answered"]), (&json!("you said: hi"), &json!(true)));
    let listed = agents("ListAgents", json!({})).unwrap();
    assert_eq!(listed["agents"][0]["turns"], json!({ "completed": "1" }), "{listed}");
    // It is what substratctl prints.
    let same: Value =
        serde_json::from_str(&caller.daemon.ctl_ok(&["agent", "list", "-o", "json"])).unwrap();
    assert_eq!(listed, same);
    let events = caller.call("substrat.v1.SessionService/ListEvents", &json!({ "agent": "echo" }));
    let events = events.unwrap();
    let types = events["events"].as_array().unwrap().iter().map(|event| &event["type"]);
    assert!(types.clone().any(|kind| kind == "turn.complete"), "{events}");
}

#[test]
fn errors_carry_their_reason_to_any_client() {
    let caller = Caller::new();
    let missing = json!({ "agent": "nobody" });
    let error = caller.call("substrat.v1.AgentService/GetAgent", &missing).unwrap_err();
    assert_eq!(error["code"], "not_found", "{error}");
    assert_eq!(error["message"], "no agent \"nobody\"");
    let detail = &error["details"][0];
    assert_eq!(detail["type"], "google.rpc.ErrorInfo", "{error}");
    if let Some(shown) = detail.get("debug") {
        assert_eq!(
            (&shown["reason"], &shown["domain"]),
            (&json!("AGENT_NOT_FOUND"), &json!("substrat"))
        );
    }
}

#[test]
fn its_health_is_told() {
    let caller = Caller::new();
    for service in ["", "substrat.v1.AgentService", "substrat.v1.DaemonService"] {
        let request = json!({ "service": service });
        let health = caller.call("grpc.health.v1.Health/Check", &request);
        assert_eq!(health, Ok(json!({ "status": "SERVING" })), "{service:?}");
    }
    let error = caller.call("grpc.health.v1.Health/Check", &json!({ "service": "no.Such" }));
    assert_eq!(error.unwrap_err()["code"], "not_found");
}
