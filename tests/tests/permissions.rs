//! Answers to questions of backends that are not open, and settings that make no sense.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

use substrat_proto::v1;
use substrat_proto::v1::attach_request::Request as Asked;
use substrat_tests::harness::{Daemon, reason, say};

const NOBODY: &str = "permission-0000000000000007";

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_nobody_waits_for_is_refused() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    client.create("a", "fn turn(prompt) { prompt }").await;
    for named in [&[][..], &[NOBODY]] {
        let args = [&["agent", "answer", "a"], named, &["deny", "--reason", "no"]].concat();
        let said = say(&daemon.home, &args);
        assert_eq!(said.code, Some(5), "{said:?}");
        assert!(said.stderr.contains("agent \"a\" has no open question"), "{said:?}");
    }
    let mut request = v1::AnswerPermissionRequest {
        agent: "a".into(),
        permission_id: NOBODY.into(),
        verdict: v1::PermissionVerdict::Allow.into(),
        ..Default::default()
    };
    let refused = client.agents.clone().answer_permission(request.clone()).await.unwrap_err();
    assert_eq!(reason(&refused), "PERMISSION_NOT_OPEN");
    request.permission_id = "nonsense".into();
    let refused = client.agents.clone().answer_permission(request.clone()).await.unwrap_err();
    assert_eq!(reason(&refused), "FIELD_INVALID");
    request.permission_id = NOBODY.into();
    request.verdict = 0;
    let refused = client.agents.clone().answer_permission(request.clone()).await.unwrap_err();
    assert_eq!(reason(&refused), "FIELD_INVALID");
    request.agent = "nobody".into();
    request.verdict = 3;
    let refused = client.agents.clone().answer_permission(request).await.unwrap_err();
    assert_eq!(reason(&refused), "AGENT_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attached_client_is_told_what_became_of_its_answer() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    client.create("a", "fn turn(prompt) { prompt }").await;
    let open =
        v1::AttachOpen { answers_permissions: true, ..substrat_tests::watch::open("a", None) };
    let mut watch = client.try_attach(open).await.unwrap();
    assert!(watch.attached.permissions.is_empty());
    let decision = v1::PermissionDecision {
        permission_id: NOBODY.into(),
        verdict: v1::PermissionVerdict::Always.into(),
        request_id: "mine".into(),
        ..Default::default()
    };
    watch.ask(Asked::Decision(decision)).await;
    let result = watch.result().await;
    assert_eq!((&*result.request_id, &*result.reason), ("mine", "PERMISSION_NOT_OPEN"));
}

#[test]
fn settings_that_make_no_sense_are_refused_by_their_key() {
    for (setting, told) in [
        ("providers.scripted.permissions=perhaps", "providers.scripted.permissions"),
        ("providers.scripted.unattended=never", "providers.scripted.unattended"),
        ("providers.scripted.stall_seconds=700000", "providers.scripted.stall_seconds"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let refused = Daemon::try_on(home.path(), &[setting]).err().expect("it does not start");
        assert!(refused.contains(told), "{refused}");
    }
}
