//! A team of three levels, a lead with 5 managers with 5 workers each, does a job that uses every
//! kind of message, while the daemon is killed again and again.
//!
//! The scripts are written as agents must be that survive crashes: a turn may run again, so they
//! look what is there before they act. After three interruptions in a row an agent is left alone
//! until someone writes to it; here that is USER.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use substrat_proto::v1;
use substrat_tests::harness::{Client, Daemon, reason, text};
use substrat_tests::judge::judge;
use substrat_tests::mail::{Ledger, Mail};
use substrat_tests::watch::PATIENCE;

/// Kills under running turns.
const KILLS: usize = 200;
/// About how many of them fall on one job.
const KILLS_A_JOB: u64 = 6;
const LEAD: &str = include_str!("team/lead.rhai");
const MANAGER: &str = include_str!("team/manager.rhai");
const WORKER: &str = include_str!("team/worker.rhai");

/// What a job comes to: every worker's number is asked for one by one and in a census, that of the
/// fifth once more; a failure counts 1000 and a worker that ended 1.
fn expected(job: u64) -> String {
    let number = |place: u64, n: u64| place * 100 + n * n + job;
    let all = |place| (1..=5).map(|n| number(place, n)).sum::<u64>();
    let total: u64 = (1..=5).map(|place| 2 * all(place) + number(place, 5) + 1001).sum();
    format!("result {job}: {total}")
}

/// The daemon, what its log told so far, and the kills.
struct Trial {
    daemon: Daemon,
    ledger: Ledger,
    rng: StdRng,
    kills: usize,
    /// Where in its job each kill fell, from 0 to 1.
    moments: Vec<f64>,
    pokes: usize,
}

impl Trial {
    async fn new() -> Self {
        let given = std::env::var("SUBSTRAT_TEST_SEED").ok();
        let seed =
            given.map_or_else(|| rand::rng().random(), |seed| seed.parse().expect("a number"));
        println!("SUBSTRAT_TEST_SEED={seed}");
        let daemon = Daemon::with(&["journal.segment_mib=1", "journal.checkpoint_mib=1"]);
        let client = daemon.client().await;
        let desk = v1::CreateWorkspaceRequest { name: "desk".into(), ..Default::default() };
        let desk = client.workspaces.clone().create_workspace(desk).await.unwrap();
        let root = desk.into_inner().workspace.unwrap().root;
        // The daemon makes the folder behind its answer.
        std::fs::create_dir_all(&root).unwrap();
        for (name, script) in [("manager.rhai", MANAGER), ("worker.rhai", WORKER)] {
            std::fs::write(std::path::Path::new(&root).join(name), script).unwrap();
        }
        let (ledger, rng) = (Ledger::default(), StdRng::seed_from_u64(seed));
        Self { daemon, ledger, rng, kills: 0, moments: Vec::new(), pokes: 0 }
    }

    /// Reads events until something is reached; everything that is durable now in any case.
    async fn read(&mut self, client: &Client, reached: impl Fn(&Ledger) -> bool) {
        let durable = client.sequence().await as usize;
        let next = |ledger: &Ledger| ledger.events.len() as u64 + 1;
        let request =
            v1::WatchEventsRequest { from_sequence: next(&self.ledger), ..Default::default() };
        let mut events = client.sessions.clone().watch_events(request).await.unwrap().into_inner();
        while self.ledger.events.len() < durable || !reached(&self.ledger) {
            let event = tokio::time::timeout(PATIENCE, events.message()).await;
            let event =
                event.unwrap_or_else(|_| panic!("it stands still: {:?}", self.ledger.agents));
            self.ledger.take(event.unwrap().and_then(|next| next.event).expect("an event"));
        }
    }

    /// Does a job to its end, and kills the daemon about every so many events.
    async fn job(&mut self, job: u64, gap: Option<u64>) {
        let name = format!("lead-{job}");
        let client = self.daemon.client().await;
        client.create_in(&name, LEAD, "desk").await;
        let begun = self.ledger.events.len();
        let mut killed_at = Vec::new();
        let begin = loop {
            let client = self.daemon.client().await;
            let begin = begin(&client, &name, job).await;
            self.poke(&client).await;
            let gap = gap.filter(|_| self.kills < KILLS);
            let more = gap.map_or(u64::MAX, |gap| self.rng.random_range(1..=2 * gap)) as usize;
            let enough = self.ledger.events.len().saturating_add(more);
            let over = |ledger: &Ledger| ledger.is_settled() && answers(ledger, &begin).len() == 1;
            let reached = |ledger: &Ledger| ledger.events.len() >= enough || over(ledger);
            self.read(&client, reached).await;
            if over(&self.ledger) {
                break begin;
            }
            // A moment between two events.
            tokio::time::sleep(Duration::from_micros(self.rng.random_range(0..3000))).await;
            self.daemon.kill();
            self.daemon.start_again();
            let client = self.daemon.client().await;
            let recovery = client.status().await.recovery.unwrap();
            assert!(!recovery.clean && recovery.quarantined.is_empty(), "{recovery:?}");
            if recovery.interrupted_turns > 0 {
                self.kills += 1;
                killed_at.push(self.ledger.events.len());
            }
        };
        let length = (self.ledger.events.len() - begun) as f64;
        let share = |at: usize| (at - begun) as f64 / length;
        self.moments.extend(killed_at.into_iter().map(share));
        let texts = answers(&self.ledger, &begin);
        assert_eq!(texts, [expected(job)], "job {job}");
        self.empty_inbox().await;
    }

    /// Writes to agents that were interrupted too often in a row.
    async fn poke(&mut self, client: &Client) {
        self.read(client, |_| true).await;
        for agent in self.ledger.left_alone() {
            let (text, no_wait) = ("poke".into(), true);
            let request = v1::SendMessageRequest { agent, text, no_wait, ..Default::default() };
            match client.agents.clone().send_message(request).await {
                Ok(_) => self.pokes += 1,
                // Someone else wrote to it, and it ended.
                Err(status) => assert_eq!(reason(&status), "AGENT_TERMINATED", "{status}"),
            }
        }
    }

    /// Reads and acknowledges what USER was sent, which is what the log says.
    async fn empty_inbox(&mut self) {
        let client = self.daemon.client().await;
        let request = v1::ListInboxRequest { page_size: 1000, ..Default::default() };
        let inbox = client.agents.clone().list_inbox(request).await.unwrap().into_inner();
        let ids: BTreeSet<String> = inbox.messages.into_iter().map(|message| message.id).collect();
        assert_eq!(ids, self.ledger.of_user);
        let message_ids = ids.into_iter().collect();
        let request = v1::AckInboxRequest { message_ids, ..Default::default() };
        client.agents.clone().ack_inbox(request).await.unwrap();
        self.read(&client, |_| true).await;
        assert!(self.ledger.of_user.is_empty());
    }

    /// Asserts that no message was lost or came twice, and that the jobs used all there is.
    fn finish(&self) {
        judge(&self.ledger.events);
        // A worker that ends may have been asked twice to.
        let discarded = self.ledger.judge();
        let known = |mail: &&&Mail| !matches!(mail.text.as_str(), "finish" | "poke");
        assert_eq!(discarded.iter().filter(known).count(), 0, "{discarded:?}");
        let kinds: BTreeSet<&str> = self.ledger.mail.values().map(|mail| &*mail.kind).collect();
        assert_eq!(
            kinds.into_iter().collect::<Vec<_>>(),
            ["error", "multicast", "notification", "request", "response"]
        );
        let count = |kind: &str| self.ledger.events.iter().filter(|e| e.r#type == kind).count();
        assert!(count("wait.expired") >= 5);
        println!(
            "{} events, {} messages, {} turns complete, {} interrupted, {} waits expired, \
             {} kills, {} pokes, {} discarded",
            self.ledger.events.len(),
            self.ledger.mail.len(),
            count("turn.complete"),
            count("turn.interrupted"),
            count("wait.expired"),
            self.kills,
            self.pokes,
            discarded.len(),
        );
    }
}

/// Asks a lead to begin a job, once however often this is called; the id of the message.
async fn begin(client: &Client, lead: &str, job: u64) -> String {
    let request = v1::SendMessageRequest {
        agent: lead.into(),
        text: format!("begin {job}"),
        no_wait: true,
        request_id: format!("begin-{job}"),
        ..Default::default()
    };
    client.agents.clone().send_message(request).await.unwrap().into_inner().message_id
}

/// What USER was answered to a message.
fn answers<'a>(ledger: &'a Ledger, message: &str) -> Vec<&'a str> {
    let user = ledger.of_user.iter().map(|id| &ledger.mail[id]);
    user.filter(|mail| mail.reply_to == message).map(|mail| mail.text.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_team_killed_two_hundred_times_comes_to_the_result_of_an_undisturbed_one() {
    let mut trial = Trial::new().await;
    trial.job(0, None).await;
    let spawned = |event: &&v1::Event| {
        event.r#type == "agent.created" && !text(event, "name").starts_with("lead")
    };
    assert_eq!(trial.ledger.events.iter().filter(spawned).count(), 30);
    let gap = trial.ledger.events.len() as u64 / KILLS_A_JOB;
    let mut job = 1;
    while trial.kills < KILLS {
        trial.job(job, Some(gap)).await;
        job += 1;
    }
    trial.finish();
    let mut fifths = [0; 5];
    for moment in &trial.moments {
        fifths[((moment * 5.0) as usize).min(4)] += 1;
    }
    println!("{job} jobs, kills in each fifth of them: {fifths:?}");
    assert!(fifths.iter().all(|kills| *kills > 0), "{fifths:?}");
}
