//! A team in which every agent is of another provider does one job.

use substrat_tests::harness::{Daemon, text};
use substrat_tests::model_server::ModelServer;

use super::{Bench, CLAUDE, CODEX, CURSOR, GEMINI, KEY, OPENCODE};

const ECHO: &str = r#"fn turn(prompt) { "scripted here" }"#;

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_every_provider_do_one_job_together() {
    let (server, folder) = (ModelServer::start(), tempfile::tempdir().unwrap());
    let all = [
        ("claude", CLAUDE),
        ("codex", CODEX),
        ("opencode", OPENCODE),
        ("gemini", GEMINI),
        ("cursor", CURSOR),
    ];
    let mut settings = Vec::new();
    for (name, agent) in all {
        let Some(program) = agent.find(folder.path()) else { return };
        settings.extend(Bench::section(name, agent, &program, &server, folder.path()));
    }
    for (kind, path) in [("anthropic", ""), ("openai", "/v1")] {
        let url = server.url();
        settings.push(format!("providers.{kind}.base_url={url}{path}"));
        settings.push(format!("providers.{kind}.key_file={}", folder.path().join("key").display()));
        settings.push(format!("providers.{kind}.model=fake-1"));
    }
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let daemon = Daemon::on(&folder.path().join("home"), &settings);
    let client = daemon.client().await;
    daemon.ctl_ok(&["workspace", "create", "desk"]);
    let create = ["agent", "create", "lead", "--provider", "claude", "--workspace", "desk"];
    daemon.ctl_ok(&create);
    let team = ["codex", "opencode", "gemini", "cursor", "anthropic", "openai", "scripted"];
    let mut job = String::new();
    for name in team {
        let create = ["agent", "create", name, "--parent", "lead", "--provider", name];
        let scripted = ["--instructions", ECHO];
        let more: &[&str] = if name == "scripted" { &scripted } else { &["--workspace", "desk"] };
        daemon.ctl_ok(&[&create[..], more].concat());
        job += &format!(
            "CALL send_message {{\"recipient\":\"{name}\",\"text\":\"SAY {name} here\"}}\n"
        );
    }
    job += "SAY the last said {result}";
    let answer = client.ask("lead", &job).await.unwrap();
    assert!(answer.contains("scripted here"), "{answer}");
    let events = client.events().await;
    for name in team {
        let answered = events.iter().any(|event| {
            event.r#type == "turn.complete" && text(event, "response") == format!("{name} here")
        });
        assert!(answered, "{name} did its part");
    }
    assert!(events.iter().all(|event| !format!("{event:?}").contains(KEY)));
}
