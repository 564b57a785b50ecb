//! Command-line agents, the real ones, in teams: turns, tools, memory, every failure. Their models
//! are on loopback. An agent that is not installed is not tested, which is said aloud.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

mod background;
mod cases;
mod commands;
mod goals;
mod hostile;
mod keys;
mod questions;
mod stand_in;
mod steering;
mod team;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use substrat_tests::agents::installed;
use substrat_tests::harness::{Client, Daemon, say};
use substrat_tests::model_server::ModelServer;

pub const KEY: &str = "sk-test-4711-abcdef";

/// Classes of failures.
type Classes = [&'static str; 7];

/// What each failure is by its status.
const ALL: Classes =
    ["invalid-request", "auth", "provider-gone", "rate-limit", "overload", "overload", "network"];

/// A command-line agent.
#[derive(Debug, Clone, Copy)]
pub struct Agent {
    /// Its program.
    program: &'static str,
    /// The kind of provider.
    kind: &'static str,
    /// Settings of it for a model at an address.
    settings: fn(&str) -> Vec<(&'static str, String)>,
    /// Classes of the failures 400, 401, 404, 429, 500, 529, and of a stream that breaks off.
    classes: Classes,
    /// Whether it makes a conversation shorter by itself that its model refuses as too long.
    shortens: bool,
}

pub const CLAUDE: Agent = Agent {
    program: "claude",
    kind: "claude-code",
    settings: |url| vec![("base_url", url.to_owned()), ("model", "fake-1".to_owned())],
    classes: ALL,
    shortens: true,
};

pub const CODEX: Agent = Agent {
    program: "codex",
    kind: "codex",
    settings: |url| vec![("base_url", format!("{url}/v1")), ("model", "fake-1".to_owned())],
    classes: ALL,
    shortens: false,
};

pub const CODEX_EXEC: Agent = Agent {
    settings: |url| {
        let transport = ("transport", "exec".to_owned());
        (CODEX.settings)(url).into_iter().chain([transport]).collect()
    },
    ..CODEX
};

pub const OPENCODE: Agent = Agent {
    program: "opencode",
    kind: "acp",
    settings: |url| {
        // It has a server of its own on 127.0.0.1, to which no proxy leads.
        let url = &url.replace("127.0.0.1", "localhost");
        let options = json!({"baseURL": format!("{url}/v1"), "apiKey": "{env:OPENCODE_KEY}"});
        let config = json!({
            "model": "fake/fake-1",
            "small_model": "fake/fake-1",
            "autoupdate": false,
            "share": "disabled",
            "enabled_providers": ["fake"],
            "provider": {"fake": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Fake",
                "options": options,
                "models": {"fake-1": {
                    "name": "fake-1",
                    "limit": {"context": 100_000, "output": 4096},
                }},
            }},
        });
        let env = toml::Table::from_iter([
            ("OPENCODE_CONFIG_CONTENT".to_owned(), config.to_string().into()),
            ("NO_PROXY".to_owned(), "127.0.0.1".into()),
            ("no_proxy".to_owned(), "127.0.0.1".into()),
            ("OPENCODE_DISABLE_MODELS_FETCH".to_owned(), "1".into()),
            ("OPENCODE_DISABLE_DEFAULT_PLUGINS".to_owned(), "1".into()),
        ]);
        vec![
            ("args", r#"["acp"]"#.to_owned()),
            ("key_as", "OPENCODE_KEY".to_owned()),
            ("endpoints", format!("[{url:?}]")),
            ("env", toml::Value::Table(env).to_string()),
        ]
    },
    // It tells of some no more than words.
    classes: [
        "transient",
        "transient",
        "provider-gone",
        "rate-limit",
        "transient",
        "overload",
        "network",
    ],
    shortens: true,
};

pub const GEMINI: Agent = Agent {
    program: "gemini",
    kind: "acp",
    settings: |url| {
        let settings = json!({
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": false},
            "telemetry": {"enabled": false},
            "general": {"enableAutoUpdate": false, "maxAttempts": 1},
        });
        let file = (".gemini/settings.json".to_owned(), settings.to_string().into());
        let env = toml::Table::from_iter([
            ("GOOGLE_GEMINI_BASE_URL".to_owned(), url.into()),
            ("GEMINI_CLI_TRUST_WORKSPACE".to_owned(), "true".into()),
            ("GEMINI_CLI_NO_RELAUNCH".to_owned(), "true".into()),
        ]);
        vec![
            ("args", r#"["--acp", "-m", "gemini-2.5-flash"]"#.to_owned()),
            ("key_as", "GEMINI_API_KEY".to_owned()),
            ("endpoints", format!("[{url:?}]")),
            ("env", toml::Value::Table(env).to_string()),
            ("files", toml::Value::Table(toml::Table::from_iter([file])).to_string()),
        ]
    },
    classes: ALL,
    shortens: false,
};

/// Claude Code by its adapter.
pub const CLAUDE_ACP: Agent = Agent {
    program: "claude-agent-acp",
    kind: "acp",
    settings: |url| {
        let env = toml::Table::from_iter([
            ("ANTHROPIC_BASE_URL".to_owned(), url.into()),
            ("ANTHROPIC_MODEL".to_owned(), "fake-1".into()),
            ("CLAUDE_CODE_EXECUTABLE".to_owned(), path(CLAUDE.program).into()),
            ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS".to_owned(), "1".into()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC".to_owned(), "1".into()),
            ("CLAUDE_CODE_MAX_RETRIES".to_owned(), "1".into()),
            ("ENABLE_TOOL_SEARCH".to_owned(), "false".into()),
        ]);
        vec![
            ("key_as", "ANTHROPIC_API_KEY".to_owned()),
            ("endpoints", format!("[{url:?}]")),
            ("env", toml::Value::Table(env).to_string()),
        ]
    },
    classes: ALL,
    shortens: true,
};

/// Codex by its adapter.
pub const CODEX_ACP: Agent = Agent {
    program: "codex-acp",
    kind: "acp",
    settings: |url| {
        let config = format!(
            "model = \"fake-1\"\nmodel_provider = \"fake\"\nsandbox_mode = \"danger-full-access\"\n\
             [model_providers.fake]\nname = \"fake\"\nbase_url = \"{url}/v1\"\n\
             env_key = \"FAKE_KEY\"\nwire_api = \"responses\"\n\
             request_max_retries = 1\nstream_max_retries = 1\n"
        );
        let file = (".codex/config.toml".to_owned(), config.into());
        let env = toml::Table::from_iter([
            ("CODEX_PATH".to_owned(), path(CODEX.program).into()),
            ("INITIAL_AGENT_MODE".to_owned(), "agent-full-access".into()),
        ]);
        vec![
            ("key_as", "FAKE_KEY".to_owned()),
            ("endpoints", format!("[{url:?}]")),
            ("env", toml::Value::Table(env).to_string()),
            ("files", toml::Value::Table(toml::Table::from_iter([file])).to_string()),
        ]
    },
    classes: ALL,
    shortens: false,
};

/// Where a program of another agent lies, which an adapter runs.
fn path(program: &str) -> String {
    installed(program).unwrap_or_default().display().to_string()
}

/// A stand-in for one that no registry carries.
pub const CURSOR: Agent = Agent {
    program: "cursor-agent",
    kind: "cursor-agent",
    settings: |url| vec![("base_url", format!("{url}/v1")), ("model", "fake-1".to_owned())],
    classes: ALL,
    shortens: false,
};

impl Agent {
    /// Its program. None if it is not installed. A stand-in is put into a folder.
    pub fn find(self, folder: &Path) -> Option<PathBuf> {
        if self.program != CURSOR.program {
            return installed(self.program);
        }
        let folder = folder.join("bin");
        std::fs::create_dir_all(&folder).unwrap();
        let program = folder.join(self.program);
        std::fs::write(&program, include_str!("../../src/cursor_agent.py")).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        Some(program)
    }
}

/// A daemon with an agent, and the agent's model.
pub struct Bench {
    pub server: ModelServer,
    pub daemon: Daemon,
    pub folder: tempfile::TempDir,
}

impl Bench {
    /// None if it is not installed.
    pub fn start(agent: Agent, more: &[&str]) -> Option<Self> {
        let (server, folder) = (ModelServer::start(), tempfile::tempdir().unwrap());
        let program = agent.find(folder.path())?;
        let own = Self::section("cli", agent, &program, &server, folder.path());
        let settings: Vec<&str> =
            own.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let daemon = Daemon::on(&folder.path().join("home"), &settings);
        Some(Self { server, daemon, folder })
    }

    /// Settings that make a provider of an agent.
    pub fn section(
        name: &str,
        agent: Agent,
        program: &Path,
        server: &ModelServer,
        folder: &Path,
    ) -> Vec<String> {
        let key = folder.join("key");
        std::fs::write(&key, format!("{KEY}\n")).unwrap();
        let usual = [
            ("kind", agent.kind.to_owned()),
            ("program", program.display().to_string()),
            ("key_file", key.display().to_string()),
        ];
        let all = usual.into_iter().chain((agent.settings)(&server.url()));
        all.map(|(key, value)| format!("providers.{name}.{key}={value}")).collect()
    }

    /// The root of a workspace on the host.
    pub fn root(&self, workspace: &str) -> PathBuf {
        let shown = say(&self.daemon.home, &["workspace", "show", workspace, "-o", "json"]);
        PathBuf::from(shown.json()["workspace"]["root"].as_str().unwrap())
    }

    /// A client, and an agent `m` with a workspace.
    pub async fn client(&self) -> Client {
        let client = self.daemon.client().await;
        self.daemon.ctl_ok(&["workspace", "create", "desk"]);
        let create = ["agent", "create", "m", "--provider", "cli", "--instructions", "be good"];
        self.daemon.ctl_ok(&[&create[..], &["--workspace", "desk"]].concat());
        client
    }
}

macro_rules! agents {
    ($($name:ident = $agent:ident),+ $(,)?) => {$(
        mod $name {
            use crate::cases;

            #[tokio::test(flavor = "multi_thread")]
            async fn a_turn_streams_its_answer_and_counts_what_it_used() {
                cases::turn(crate::$agent).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_message_to_another_agent_arrives_and_its_answer_comes_back() {
                cases::message(crate::$agent).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn what_was_said_is_remembered_over_suspension_restart_and_kill() {
                cases::memory(crate::$agent).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_turn_that_is_cancelled_ends_and_the_session_goes_on() {
                cases::cancel(crate::$agent).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn instructions_that_change_hold_from_the_next_turn_on() {
                cases::instructions(crate::$agent).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn its_models_are_what_its_program_tells() {
                cases::models(crate::$agent).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_message_that_is_too_long_keeps_no_other_from_being_read() {
                cases::refused(crate::$agent, 1).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_turn_goes_on_where_its_conversation_has_grown_too_long() {
                cases::outgrown(crate::$agent).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn what_may_pass_is_tried_again_and_what_may_not_is_told() {
                cases::failures(crate::$agent).await;
            }
        }
    )+};
}

agents! {
    claude = CLAUDE,
    codex = CODEX,
    codex_exec = CODEX_EXEC,
    opencode = OPENCODE,
    gemini = GEMINI,
    claude_acp = CLAUDE_ACP,
    codex_acp = CODEX_ACP,
    cursor = CURSOR,
}
