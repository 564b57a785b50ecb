//! What Claude Code is offered to go on with when its turn is over.

use super::{Bench, CLAUDE};

/// Whether its model is offered to run a command in the background, with these settings.
async fn is_offered(settings: &[&str]) -> Option<bool> {
    let bench = Bench::start(CLAUDE, settings)?;
    let client = bench.client().await;
    assert_eq!(client.ask("m", "SAY one").await.unwrap(), "one");
    let asked = bench.server.request(|it| !it.aside && it.user.contains("SAY one")).await;
    let tools = asked.body["tools"].as_array().unwrap();
    let bash = tools.iter().find(|tool| tool["name"] == "Bash").unwrap();
    Some(bash["input_schema"]["properties"]["run_in_background"].is_object())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_goes_on_after_a_turn_unless_that_is_asked_for() {
    let usual = is_offered(&[]).await;
    let on = [r#"providers.cli.env={CLAUDE_CODE_DISABLE_BACKGROUND_TASKS="0"}"#];
    let asked_for = is_offered(&on).await;
    assert!(
        matches!((usual, asked_for), (Some(false), Some(true)) | (None, None)),
        "{usual:?} {asked_for:?}"
    );
}
