//! Questions of a real agent, whether it may use a tool of its own.

use substrat_tests::harness::text;
use substrat_tests::typing::Attach;

use super::{Bench, CLAUDE};

const JOB: &str =
    "CALL Bash {\"command\":\"echo hi > made\",\"description\":\"makes it\"}\nSAY ran";

/// Whether the command was run, for settings and what USER answers.
async fn was_made(settings: &[&str], answer: Option<&[&str]>) -> Option<bool> {
    let bench = Bench::start(CLAUDE, settings)?;
    let client = bench.client().await;
    client.tell("m", JOB).await;
    if let Some(answer) = answer {
        let asked = client.wait_event(0, |event| event.r#type == "permission.asked").await;
        assert_eq!(text(&asked, "tool"), "Bash", "{asked:?}");
        let shown = bench.daemon.ctl_ok(&["agent", "inspect", "m"]);
        assert!(shown.contains("echo hi > made"), "{shown}");
        bench.daemon.ctl_ok(&[&["agent", "answer", "m"], answer].concat());
    }
    let done = client.wait_event(0, |event| event.r#type == "turn.complete").await;
    assert_eq!(text(&done, "response"), "ran");
    let events = client.events().await;
    let count = |name: &str| events.iter().filter(|event| event.r#type == name).count();
    assert_eq!((count("permission.asked"), count("permission.answered")), (1, 1));
    assert_eq!((count("tool_use.started"), count("tool_use.ended")), (1, 1));
    Some(bench.root("desk").join("made").exists())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_asked_decides() {
    let wait = ["providers.cli.unattended=wait"];
    let allowed = was_made(&wait, Some(&["allow"])).await;
    let denied = was_made(&wait, Some(&["deny", "--reason", "not today"])).await;
    assert!(matches!((allowed, denied), (Some(true), Some(false)) | (None, None)));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_is_there_the_policy_decides() {
    let in_sandbox = was_made(&[], None).await;
    let never = was_made(&["providers.cli.unattended=deny"], None).await;
    assert!(matches!((in_sandbox, never), (Some(true), Some(false)) | (None, None)));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_attached_answers_by_typing() {
    let Some(bench) = Bench::start(CLAUDE, &[]) else { return };
    let client = bench.client().await;
    let mut attach = Attach::on_terminal(&bench.daemon, &["agent", "attach", "m"]);
    let commands =
        [("/deny not$now", false, "denied"), ("/allow", true, "one"), ("/always", true, "two")];
    for (number, (typed, made, name)) in commands.into_iter().enumerate() {
        let call =
            format!("CALL Bash {{\"command\":\"echo hi > {name}\",\"description\":\"makes it\"}}");
        client.tell("m", &format!("{call}\nSAY ran {number}")).await;
        attach.wait_for("/allow, /always or /deny");
        attach.write(&format!("{}\r", typed.replace('$', " ")));
        attach.wait_for(&format!("ran {number}"));
        assert_eq!(bench.root("desk").join(name).exists(), made, "{typed}");
    }
    let asked = |event: &substrat_proto::v1::Event| event.r#type == "permission.asked";
    let events = client.events().await;
    assert_eq!(events.iter().filter(|event| asked(event)).count(), 3);
    let denied = events.iter().find(|event| event.r#type == "permission.answered").unwrap();
    assert_eq!(text(denied, "reason"), "not now", "{denied:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn always_is_for_the_command_and_writes_nothing() {
    let Some(bench) = Bench::start(CLAUDE, &["providers.cli.unattended=wait"]) else { return };
    let client = bench.client().await;
    let turns = [("touch one", Some("always")), ("touch one", None), ("rm one", Some("allow"))];
    for (command, answer) in turns {
        let from = client.sequence().await + 1;
        let call = format!("CALL Bash {{\"command\":\"{command}\",\"description\":\"does it\"}}");
        client.tell("m", &format!("{call}\nSAY ran")).await;
        if let Some(answer) = answer {
            client.wait_event(from, |event| event.r#type == "permission.asked").await;
            bench.daemon.ctl_ok(&["agent", "answer", "m", answer]);
        }
        client.wait_event(from, |event| event.r#type == "turn.complete").await;
    }
    let desk = bench.root("desk");
    assert!(!desk.join("one").exists() && !desk.join(".claude").exists());
}
