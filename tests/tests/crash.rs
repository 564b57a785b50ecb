//! kill -9 under load, through the public API only, against a client that remembers.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use substrat_proto::v1;
use substrat_tests::harness::{Client, Daemon, text};
use substrat_tests::judge::judge;
use substrat_tests::remember::{Memory, Worker};
use substrat_tests::watch::PATIENCE;
use tokio::sync::watch;
use tokio::task::JoinSet;

const KILLS: u32 = 50;
const WORKERS: u64 = 12;

/// The seed of a run: fresh, or `SUBSTRAT_TEST_SEED` to repeat one.
fn seed() -> u64 {
    let given = std::env::var("SUBSTRAT_TEST_SEED").ok();
    let seed = given.map_or_else(|| rand::rng().random(), |seed| seed.parse().expect("a number"));
    println!("SUBSTRAT_TEST_SEED={seed}");
    seed
}

/// Everything that was ever seen of the log.
#[derive(Default)]
struct Log {
    events: Vec<v1::Event>,
}

impl Log {
    /// Takes an event: a new one, or the same as before under its sequence.
    fn take(&mut self, event: v1::Event) {
        let place = event.sequence as usize - 1;
        match self.events.get(place) {
            Some(known) => assert_eq!(known, &event, "another event under its sequence"),
            None => {
                assert_eq!(place, self.events.len(), "a gap before {event:?}");
                self.events.push(event);
            }
        }
    }

    /// Reads what there is, the last that is known once more.
    async fn read(&mut self, client: &Client) {
        let known = self.events.len() as u64;
        let mut page_token = String::new();
        let mut last = 0;
        loop {
            let request = v1::ListEventsRequest {
                from_sequence: known.saturating_sub(500) + 1,
                page_size: 1000,
                page_token,
                ..Default::default()
            };
            let page = client.sessions.clone().list_events(request).await.unwrap().into_inner();
            for event in page.events {
                last = event.sequence;
                self.take(event);
            }
            page_token = page.next_page_token;
            if page_token.is_empty() {
                assert!(last >= known, "{last} is less than the {known} events that were seen");
                return;
            }
        }
    }
}

/// Watches events until the daemon goes away.
async fn observe(client: Client, log: &mut Log) {
    let from_sequence = log.events.len() as u64 + 1;
    let request = v1::WatchEventsRequest { from_sequence, ..Default::default() };
    let Ok(events) = client.sessions.clone().watch_events(request).await else { return };
    let mut events = events.into_inner();
    while let Ok(Some(next)) = events.message().await {
        log.take(next.event.expect("an event"));
    }
}

/// Asserts that all that was acknowledged is there.
async fn check(client: &Client, log: &Log, workers: &[Worker]) {
    let agents = client.all_agents().await.into_iter();
    let names: BTreeMap<String, String> = agents.map(|agent| (agent.name, agent.id)).collect();
    let inbox = v1::ListInboxRequest { page_size: 1000, ..Default::default() };
    let inbox = client.agents.clone().list_inbox(inbox).await.unwrap().into_inner();
    let inbox: BTreeSet<String> = inbox.messages.into_iter().map(|message| message.id).collect();
    let enqueued: BTreeSet<&str> = log
        .events
        .iter()
        .filter(|event| event.r#type == "message.enqueued")
        .map(|event| text(event, "message_id"))
        .collect();
    for Memory { agents, sent, removed, .. } in workers.iter().map(|worker| &worker.memory) {
        for (name, id) in agents {
            assert_eq!(names.get(name), Some(id), "{name}");
        }
        for message in sent {
            assert!(enqueued.contains(message.id.as_str()), "lost: {message:?}");
            if let Some((answer, turn, sequence)) = &message.answer {
                let event = &log.events[*sequence as usize - 1];
                assert_eq!(event.r#type, "turn.complete");
                assert_eq!((text(event, "response"), text(event, "turn_id")), (&**answer, &**turn));
            }
        }
        assert!(inbox.is_disjoint(removed), "messages came back to the inbox");
    }
}

/// One life of the daemon: load until so much was done, and then the end.
async fn life(daemon: &mut Daemon, workers: Vec<Worker>, log: &mut Log, more: u64) -> Vec<Worker> {
    let client = daemon.client().await;
    let (done, mut count) = watch::channel(0);
    let mut tasks = JoinSet::new();
    for mut worker in workers {
        let (client, done) = (client.clone(), done.clone());
        tasks.spawn(async move {
            worker.work(&client, &done).await;
            worker
        });
    }
    let observer = observe(client.clone(), log);
    let killer = async {
        let reached = count.wait_for(|count| *count >= more);
        tokio::time::timeout(PATIENCE, reached).await.expect("work goes on").unwrap();
        daemon.kill();
    };
    tokio::join!(observer, killer);
    let mut workers = tasks.join_all().await;
    workers.sort_by_key(Worker::order);
    workers
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_or_done_twice_over_fifty_kills() {
    let seed = seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut daemon = Daemon::with(&["journal.segment_mib=1", "journal.checkpoint_mib=1"]);
    let client = daemon.client().await;
    let desk = v1::CreateWorkspaceRequest { name: "desk".into(), ..Default::default() };
    client.workspaces.clone().create_workspace(desk).await.unwrap();
    let mut workers: Vec<Worker> = (0..WORKERS)
        .map(|number| Worker::new(&format!("w{number:02}"), seed.wrapping_add(number)))
        .collect();
    let mut log = Log::default();
    for _ in 0..KILLS {
        let more = rng.random_range(0..120);
        workers = life(&mut daemon, workers, &mut log, more).await;
        daemon.start_again();
        let client = daemon.client().await;
        log.read(&client).await;
        check(&client, &log, &workers).await;
        judge(&log.events);
    }
    finish(&daemon, workers, log).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_message_whose_turn_was_interrupted_is_answered_by_the_next() {
    let mut daemon = Daemon::start();
    let client = daemon.client().await;
    let desk = v1::CreateWorkspaceRequest { name: "desk".into(), ..Default::default() };
    client.workspaces.clone().create_workspace(desk).await.unwrap();
    let script = r#"fn turn(prompt) {
        while list_files().entries.len() == 0 { sleep_ms(50); }
        messages()[0].text }"#;
    client.create_in("patient", script, "desk").await;
    let ask = |client: Client| async move {
        let request = v1::SendMessageRequest {
            agent: "patient".into(),
            text: "hello".into(),
            request_id: "once".into(),
            ..Default::default()
        };
        client.agents.clone().send_message(request).await
    };
    let mut asking = JoinSet::new();
    asking.spawn(ask(client.clone()));
    client.wait_event(1, |event| event.r#type == "turn.start").await;
    daemon.kill();
    assert!(asking.join_all().await[0].is_err());
    daemon.start_again();
    let client = daemon.client().await;
    let mut asking = JoinSet::new();
    asking.spawn(ask(client.clone()));
    let interrupted = client.wait_event(1, |event| event.r#type == "turn.interrupted").await;
    let working = |event: &v1::Event| event.r#type == "tool_call.result";
    client.wait_event(interrupted.sequence, working).await;
    for workspace in std::fs::read_dir(daemon.home.join("workspaces")).unwrap() {
        std::fs::write(workspace.unwrap().path().join("root/go"), "").unwrap();
    }
    let answers = asking.join_all().await;
    assert_eq!(answers[0].as_ref().unwrap().get_ref().answer, "hello");
}

/// Everything that is open is done, everyone answers, and the counts are those of the clients.
async fn finish(daemon: &Daemon, workers: Vec<Worker>, mut log: Log) {
    let client = daemon.client().await;
    let names: Vec<String> =
        workers.iter().flat_map(|worker| worker.memory.agents.keys().cloned()).collect();
    let mut tasks = JoinSet::new();
    for mut worker in workers {
        let client = client.clone();
        tasks.spawn(async move {
            assert!(worker.settle(&client).await, "the daemon runs");
            worker
        });
    }
    let mut last_words = JoinSet::new();
    for name in names.clone() {
        let client = client.clone();
        last_words.spawn(async move {
            let answer = client.ask(&name, "last").await.expect("it answers");
            assert!(answer.contains("last;"), "{answer}");
        });
    }
    last_words.join_all().await;
    let workers = tokio::time::timeout(PATIENCE, tasks.join_all()).await.expect("all is settled");
    log.read(&client).await;
    check(&client, &log, &workers).await;
    judge(&log.events);
    let count = |event: &str, key: &str, value: &str| {
        let fits = |e: &&v1::Event| e.r#type == event && text(e, key) == value;
        log.events.iter().filter(fits).count()
    };
    let mut requests = 0;
    for Memory { agents, sent, labels, requests: done, .. } in workers.iter().map(|w| &w.memory) {
        requests += done.len();
        for id in done {
            assert_eq!(count("request.recorded", "request_id", id), 1, "{id}");
        }
        for message in sent {
            assert_eq!(count("message.enqueued", "payload", &message.text), 1, "{message:?}");
            assert_eq!(count("message.delivered", "message_id", &message.id), 1, "{message:?}");
        }
        for name in agents.keys() {
            assert_eq!(count("agent.created", "name", name), 1, "{name}");
            let agent = client.agent(name).await;
            assert_eq!(agent.state(), v1::AgentState::Idle, "{name}");
            assert_eq!(agent.metadata.get("label"), labels.get(name), "{name}");
            let messages = sent.iter().filter(|message| message.agent == *name).count();
            let answer = client.ask(name, "count").await.unwrap();
            let counted = answer.split(' ').next().unwrap();
            let last = usize::from(names.contains(name));
            assert_eq!(counted, (messages + last + 1).to_string(), "{name}");
        }
    }
    let recorded = log.events.iter().filter(|e| e.r#type == "request.recorded").count();
    assert_eq!(recorded, requests, "every request was acknowledged in the end");
    let sent: usize = workers.iter().map(|worker| worker.memory.sent.len()).sum();
    println!("{} events, {requests} requests, {sent} messages", log.events.len());
}
