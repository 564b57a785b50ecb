//! Budgets: told, enforced before a turn starts, raised, and kept over kills.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use substrat_proto::v1;
use substrat_proto::v1::attach_response::Item;
use substrat_tests::harness::{Client, Daemon, reason, text};
use substrat_tests::watch::event_name;
use tonic::Code;

/// Uses 40 tokens a turn.
const FORTY: &str = "fn turn(prompt) { usage(30, 10, 0.25); prompt }";
const ECHO: &str = "fn turn(prompt) { prompt }";

async fn with_budgets(
    client: &Client,
    (name, parent, script): (&str, &str, &str),
    (own, tree): (v1::Budget, v1::Budget),
) -> v1::Agent {
    let request = v1::CreateAgentRequest {
        name: name.into(),
        parent: parent.into(),
        instructions: script.into(),
        budget: Some(own),
        tree_budget: Some(tree),
        ..Default::default()
    };
    let created = client.agents.clone().create_agent(request).await.expect("it is created");
    created.into_inner().agent.expect("an agent")
}

fn tokens(most: u64) -> v1::Budget {
    v1::Budget { tokens: Some(most), ..Default::default() }
}

fn turns(most: u64) -> v1::Budget {
    v1::Budget { turns: Some(most), ..Default::default() }
}

/// Sets the budgets that a mask names.
async fn update(client: &Client, agent: &str, mask: &str, budget: v1::Budget) -> v1::Agent {
    let request = v1::UpdateAgentRequest {
        agent: agent.into(),
        budget: Some(budget),
        tree_budget: Some(budget),
        update_mask: Some(prost_types::FieldMask { paths: vec![mask.into()] }),
        ..Default::default()
    };
    let updated = client.agents.clone().update_agent(request).await.expect("it is updated");
    updated.into_inner().agent.expect("an agent")
}

/// Names of the events about budgets, in order.
async fn told(client: &Client) -> Vec<String> {
    let events = client.events().await.into_iter().map(|event| event.r#type);
    events.filter(|name| name.starts_with("budget.") || name == "turn.refused").collect()
}

fn exhausted(refused: &tonic::Status) {
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    assert_eq!(reason(refused), "BUDGET_EXHAUSTED");
}

#[tokio::test]
async fn a_budget_is_warned_of_enforced_and_raised() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    with_budgets(&client, ("a", "", FORTY), (tokens(100), v1::Budget::default())).await;
    let mut watch = client.attach("a", None).await;
    for text in ["1", "2"] {
        assert_eq!(client.ask("a", text).await.expect("within the budget"), text);
    }
    watch.until(|item| event_name(item) == Some("budget.warning")).await;
    assert_eq!(client.ask("a", "3").await.expect("80 of 100 are used"), "3");
    exhausted(&client.ask("a", "4").await.expect_err("120 of 100 are used"));
    let seen = watch.until(|item| event_name(item) == Some("budget.exhausted")).await;
    let shown = seen.last().and_then(|item| item.item.clone());
    let Some(Item::StateChanged(v1::StateChanged { agent: Some(agent), .. })) = shown else {
        panic!("{shown:?}")
    };
    let excess = agent.budget_excess.expect("a budget");
    assert_eq!((excess.used, excess.limit, &*excess.agent_path), (120, 100, "a"));
    assert_eq!(told(&client).await, ["budget.changed", "budget.warning", "budget.exhausted"]);

    let agent = update(&client, "a", "budget.tokens", tokens(200)).await;
    assert!(agent.budget_excess.is_none());
    assert_eq!(agent.usage.map(|used| (used.input_tokens, used.turns)), Some((90, 3)));
    assert_eq!(client.ask("a", "5").await.expect("raised"), "5");
    let agent = update(&client, "a", "budget", v1::Budget::default()).await;
    assert_eq!(agent.budget, None);
}

#[tokio::test]
async fn who_waits_for_a_turn_that_is_refused_is_told_why() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    let script = r#"fn turn(prompt) {
        if prompt == "1" { send_message("kid", "?"); usage(100, 0); }
        "done " + prompt
    }"#;
    let lead =
        with_budgets(&client, ("lead", "", script), (tokens(50), v1::Budget::default())).await;
    with_budgets(&client, ("kid", "lead", ECHO), Default::default()).await;
    daemon.ctl_ok(&["agent", "gate", "lead/kid"]);
    client.tell("lead", "1").await;
    client.wait_type(1, &lead, "turn.waiting").await;
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.ask("lead", "2").await }
    });
    let sent = |event: &v1::Event| text(event, "payload") == "2";
    client.wait_event(1, sent).await;
    daemon.ctl_ok(&["agent", "ungate", "lead/kid"]);
    let refused = asking.await.expect("no panic").expect_err("no turn is left");
    exhausted(&refused);
    assert!(refused.message().contains("the token budget of \"lead\" is used up: 100 of 50"));
    assert_eq!(client.agent("lead").await.inbox_size, 1, "it keeps the message");
    let inbox = daemon.ctl_ok(&["inbox"]);
    assert!(!inbox.contains("budget"), "who waited was told: {inbox}");

    update(&client, "lead", "budget.tokens", v1::Budget::default()).await;
    let done = |event: &v1::Event| text(event, "payload") == "done 2";
    client.wait_event(1, done).await;
}

#[tokio::test]
async fn what_a_turn_used_before_kill_9_counts_after_it() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let script = "fn turn(prompt) { usage(#{ input_tokens: 60, cache_write_tokens: 50, \
                  cache_read_tokens: 1000, cost_usd: 1.5 }); sleep_ms(3600000); }";
    let agent = with_budgets(&client, ("a", "", script), (tokens(100), turns(9))).await;
    client.tell("a", "go").await;
    client.wait_type(1, &agent, "budget.exhausted").await;
    daemon.kill();
    daemon.start_again();

    let client = daemon.client().await;
    client.wait_type(1, &agent, "turn.refused").await;
    let events = client.events().await;
    let starts = events.iter().filter(|event| event.r#type == "turn.start").count();
    assert_eq!(starts, 1, "the interrupted turn is not run again");
    let now = client.agent("a").await;
    let used = now.usage.expect("usage");
    assert_eq!(
        (used.input_tokens, used.cache_write_tokens, used.cache_read_tokens),
        (60, 50, 1000)
    );
    assert_eq!((used.cost_micro_usd, used.turns), (1_500_000, 1));
    assert_eq!(now.tree_usage, now.usage);
    exhausted(&client.ask("a", "again").await.expect_err("nothing is left"));

    update(&client, "a", "budget.tokens", tokens(200)).await;
    let released = client.wait_type(1, &agent, "budget.released").await;
    client.wait_type(released.sequence, &agent, "usage.reported").await;
    daemon.kill();
    daemon.start_again();
    let client = daemon.client().await;
    client.wait_type(released.sequence, &agent, "turn.refused").await;
    let used = client.agent("a").await.usage.expect("usage");
    assert_eq!(used.input_tokens, 120, "both are kept");
}

#[tokio::test]
async fn the_budget_of_a_tree_stops_a_grandchild() {
    let daemon = Daemon::start();
    let client = daemon.client().await;
    with_budgets(&client, ("top", "", ECHO), (v1::Budget::default(), turns(2))).await;
    with_budgets(&client, ("mid", "top", ECHO), Default::default()).await;
    with_budgets(&client, ("low", "top/mid", ECHO), Default::default()).await;
    for (agent, text) in [("top", "1"), ("top/mid/low", "2")] {
        assert_eq!(client.ask(agent, text).await.expect("two turns are allowed"), text);
    }
    for agent in ["top", "top/mid", "top/mid/low"] {
        exhausted(&client.ask(agent, "3").await.expect_err("the third is not"));
    }
    let low = client.agent("top/mid/low").await.budget_excess.expect("held");
    assert_eq!((low.scope(), &*low.agent_path), (v1::BudgetScope::Tree, "top"));
    // What ended counts.
    daemon.ctl_ok(&["agent", "terminate", "top/mid", "--recursive"]);
    let top = client.agent("top").await;
    assert_eq!(top.usage.map(|used| used.turns), Some(1));
    assert_eq!(top.tree_usage.map(|used| used.turns), Some(2));
    update(&client, "top", "tree_budget.turns", turns(3)).await;
    let notice = |event: &v1::Event| {
        event.r#type == "turn.start" && text(event, "prompt").contains("mid was terminated")
    };
    client.wait_event(1, notice).await;
}

#[tokio::test]
async fn budgets_are_given_shown_and_removed_on_the_command_line() {
    let daemon = Daemon::start();
    let create = ["agent", "create", "a", "--instructions", FORTY, "--budget-usd", "0.30"];
    daemon.ctl_ok(&[&create[..], &["--tree-budget-turns", "5"]].concat());
    daemon.ctl_ok(&["agent", "send", "a", "hi"]);
    let shown = daemon.ctl_ok(&["agent", "inspect", "a"]);
    for line in [
        "usage      1 turn, 40 tokens (30 in, 10 out), $0.25\n",
        "budget     $0.25 of $0.30 (83 %)\n",
        "tree limit 1 of 5 turns (20 %)\n",
    ] {
        assert!(shown.contains(line), "{line:?} is not in\n{shown}");
    }
    daemon.ctl_ok(&["agent", "update", "a", "--budget-tokens", "40"]);
    let refused = daemon.ctl(&["-v", "agent", "send", "a", "more"]);
    assert_eq!(refused.status.code(), Some(7));
    let stderr = String::from_utf8(refused.stderr).expect("UTF-8");
    assert!(stderr.contains("the token budget of \"a\" is used up: 40 of 40"), "{stderr}");
    assert!(stderr.contains("BUDGET_EXHAUSTED"), "{stderr}");
    assert!(daemon.ctl_ok(&["agent", "list"]).contains("out of budget"));
    let shown = daemon.ctl_ok(&["agent", "inspect", "a"]);
    assert!(shown.contains("held       the token budget of a is used up: 40 of 40"), "{shown}");

    let remove = ["agent", "update", "a", "--budget-tokens", "none", "--budget-usd", "none"];
    daemon.ctl_ok(&remove);
    assert_eq!(daemon.ctl_ok(&["agent", "send", "a", "more"]), "more\n");
    for (flag, bad, fits) in [
        ("--budget-usd", "-1", "dollars such as 2.50"),
        ("--tree-budget-usd", "-0.5", "dollars such as 2.50"),
        ("--budget-usd", "1e3", "dollars such as 2.50"),
        ("--budget-turns", "many", "a whole number or none"),
        ("--budget-turns", "-1", "a whole number or none"),
        ("--budget-tokens", "-1", "a whole number or none"),
    ] {
        let refused = daemon.ctl(&["agent", "update", "a", flag, bad]);
        let stderr = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{flag} {bad}: {stderr}");
        assert!(stderr.contains(fits), "{flag} {bad}: {stderr}");
    }
}
