//! Programs that do what they should not: each harms its own turn, and nothing is left of it.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::fs;
use std::process::Command;

use substrat_tests::harness::{reason, text};
use substrat_tests::program::Shop;
use tokio::task::JoinHandle;

/// Most memory that what a program writes may cost the daemon, in KiB: its lines are of 1 MiB at
/// most, and the output that is kept for who attaches is as much.
const MOST_KIB: u64 = 24 << 10;

/// Waits for a word from outside in the midst of its turn.
const BYSTANDER: &str = r#"
for turn in turns():
    say(type="text", text="waiting")
    open("waits", "w")
    done(open("gate").read())
"#;

/// An agent whose turn runs meanwhile.
struct Bystander {
    answer: JoinHandle<Result<String, tonic::Status>>,
}

impl Bystander {
    async fn start(shop: &Shop) -> Self {
        let gate = shop.root.join("gate");
        assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
        shop.python("bystander", BYSTANDER).await;
        let answer = shop.asking("bystander", "wait");
        shop.wait_for("waits").await;
        Self { answer }
    }

    /// Its turn was not disturbed.
    async fn ends_well(self, shop: &Shop) {
        assert!(!self.answer.is_finished(), "its turn still runs");
        let gate = shop.root.join("gate");
        // Blocks until it is opened on the other side.
        tokio::task::spawn_blocking(move || fs::write(gate, "well")).await.unwrap().unwrap();
        assert_eq!(self.answer.await.unwrap().unwrap(), "well");
        let again = shop.asking("bystander", "wait");
        let gate = shop.root.join("gate");
        tokio::task::spawn_blocking(move || fs::write(gate, "still")).await.unwrap().unwrap();
        assert_eq!(again.await.unwrap().unwrap(), "still");
    }
}

/// What fails by itself: a program, and what the failure says of it.
const FAILING: &[(&str, &str, &str)] = &[
    (
        "garbage",
        "for turn in turns(): print('\\x1b[31mno \\\"json\\\" at all', flush=True); signal.pause()",
        r#"expected value at line 1 column 1: "\x1b[31mno \"json\" at all""#,
    ),
    (
        "binary",
        "for turn in turns(): os.write(1, bytes(range(256)) * 100); signal.pause()",
        r#"expected value at line 1 column 1: "\x00\x01\x02"#,
    ),
    (
        "long",
        "
for turn in turns():
    for _ in range(100): os.write(1, b'x' * (1 << 20))
    print()
    done('never')
",
        "a line of more than 1048576 bytes: \"xxxx",
    ),
    (
        "half",
        "for turn in turns(): os.write(1, b'{\"type\":\"text\",\"text\":\"\\xc3'); sys.exit()",
        r#"no UTF-8: "{\"type\":\"text\",\"text\":\"\xc3""#,
    ),
    (
        "unknown",
        "for turn in turns(): say(type='dance', step=1); signal.pause()",
        "its type is none that is known",
    ),
    (
        "quits",
        "print('such is life', file=sys.stderr); sys.exit(7)",
        "ended before its turn was done: exit 7; its standard error ends with:\nsuch is life",
    ),
    (
        "forks",
        "
for turn in turns():
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if os.fork() == 0:
                while True: signal.pause()
            os._exit(0)
    os._exit(0)
",
        "ended before its turn was done: exit 0",
    ),
    (
        "closes",
        "
for turn in turns():
    os.close(1)
    signal.pause()
",
        "closed its output before its turn was done",
    ),
    ("dies", "for turn in turns(): os.kill(os.getpid(), signal.SIGSEGV)", "signal 11 (SIGSEGV)"),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_breaks_the_protocol_breaks_its_own_turn() {
    let shop = Shop::open(&[]).await;
    let bystander = Bystander::start(&shop).await;
    for (name, program, problem) in FAILING {
        let agent = shop.python(name, program).await;
        let before = shop.daemon.peak_kib();
        let failed = shop.failure(name).await;
        assert!(failed.contains(problem), "{name}: {failed}");
        assert_eq!(shop.processes(name), 0, "{name}");
        let grown = shop.daemon.peak_kib() - before;
        assert!(grown < MOST_KIB, "{name}: {grown} KiB");
        let exited = shop.events(&agent, "process.exited").await;
        assert_eq!(exited.len(), 1, "{name}");
        let failed = shop.events(&agent, "turn.failed").await;
        let class = if problem.contains("its turn was done") || problem.contains("signal") {
            "killed"
        } else {
            "protocol"
        };
        assert_eq!(text(&failed[0], "class"), class, "{name}");
    }
    bystander.ends_well(&shop).await;
}

/// What has to be ended.
const STUCK: &[(&str, &str)] = &[
    ("silent", "for turn in turns(): signal.pause()"),
    (
        "stubborn",
        "
for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)
for turn in turns():
    while True: signal.pause()
",
    ),
    (
        "spawner",
        "
import subprocess
for turn in turns():
    subprocess.Popen(['setsid', sys.executable, '-c', 'import signal; signal.pause()', sys.argv[1]])
    while True:
        try: signal.pause()
        except KeyboardInterrupt: pass
",
    ),
    (
        "deaf",
        "
for turn in turns():
    sys.stdin.close(); os.close(0)
    signal.pause()
",
    ),
    (
        "talker",
        "
for turn in turns():
    text = 'x' * 100_000
    for _ in range(500): say(type='text', text=text)
    open('talked', 'w')
    while True: say(type='text', text=text)
",
    ),
    (
        "meter",
        "
for turn in turns():
    for _ in range(100_000): say(type='usage', input_tokens=1)
    open('metered', 'w')
    while True: say(type='usage', input_tokens=1)
",
    ),
    (
        "caller",
        "
for turn in turns():
    while True: say(type='call', id='x' * 100_000, tool='list_children')
",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_end_is_ended() {
    let shop = Shop::open(&[]).await;
    let bystander = Bystander::start(&shop).await;
    let before = shop.daemon.peak_kib();
    let mut asked = Vec::new();
    for (name, program) in STUCK {
        let agent = shop.python(name, program).await;
        let from = shop.client.sequence().await;
        asked.push((name, agent.clone(), shop.asking(name, "go")));
        shop.client.wait_type(from, &agent, "turn.start").await;
    }
    shop.wait_for("talked").await;
    shop.wait_for("metered").await;
    for (name, ..) in &asked {
        shop.cancel(name).await;
    }
    for (name, agent, answer) in asked {
        let cancelled = answer.await.unwrap().unwrap_err();
        assert_eq!(reason(&cancelled), "TURN_CANCELLED", "{name}");
        assert_eq!(shop.processes(name), 0, "{name}");
        let exited = shop.events(&agent, "process.exited").await;
        assert_eq!(text(&exited[0], "reason"), "its turn was cancelled", "{name}");
        if *name == "stubborn" {
            assert_eq!(text(&exited[0], "status"), "ended with its sandbox");
        }
    }
    let grown = shop.daemon.peak_kib() - before;
    assert!(grown < 2 * MOST_KIB, "{grown} KiB");
    let meter = shop.client.agent("meter").await;
    assert!(meter.usage.unwrap().input_tokens >= 100_000, "what is used is booked");
    bystander.ends_well(&shop).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_on_stderr_is_read_and_its_end_is_kept() {
    let shop = Shop::open(&[]).await;
    let program = "
for turn in turns():
    for _ in range(1600): os.write(2, b'x' * 65535 + b'\\n')
    os.write(2, 'the last w\u{f6}rd'.encode())
    done('fine')
";
    let agent = shop.python("a", program).await;
    let before = shop.daemon.peak_kib();
    assert_eq!(shop.client.ask("a", "go").await.unwrap(), "fine");
    let grown = shop.daemon.peak_kib() - before;
    assert!(grown < MOST_KIB, "{grown} KiB");
    let stderr = &shop.events(&agent, "turn.stderr").await[0];
    let kept = text(stderr, "text");
    assert!(kept.len() <= 16 << 10 && kept.len() > 16_000, "{}", kept.len());
    assert!(kept.ends_with("the last w\u{f6}rd"), "{}", &kept[kept.len() - 40..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn blank_lines_without_end_between_turns_hold_nobody_up() {
    let shop = Shop::open(&[]).await;
    let program = "
import fcntl
fcntl.fcntl(1, 1031, 1 << 20)
for turn in turns():
    done(uuid.uuid4().hex)
    for _ in range(2):
        if os.fork() == 0:
            os.write(1, b'\\n' * (1 << 19))
            open('floods ' + sys.argv[1].split('@')[0], 'w')
            while True: os.write(1, b'\\n' * (1 << 20))
";
    let mut agents = Vec::new();
    for name in ["a", "b", "c"] {
        let agent = shop.python(name, program).await;
        let first = shop.client.ask(name, "go").await.unwrap();
        agents.push((name, agent, first));
        shop.wait_for(&format!("floods {name}")).await;
    }
    for (name, agent, first) in agents {
        assert_ne!(shop.client.ask(name, "go").await.unwrap(), first);
        let exited = shop.events(&agent, "process.exited").await;
        assert!(text(&exited[0], "reason").contains("between two turns"), "{:?}", exited[0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_between_turns_is_no_answer() {
    let shop = Shop::open(&[]).await;
    let program = "
name = uuid.uuid4().hex
for turn in turns():
    done(name)
    done('twice')
    open('said', 'w')
";
    let agent = shop.python("a", program).await;
    let first = shop.client.ask("a", "go").await.unwrap();
    shop.wait_for("said").await;
    let second = shop.client.ask("a", "go").await.unwrap();
    assert!(second != "twice" && second != first, "{second}");
    let exited = shop.events(&agent, "process.exited").await;
    assert!(text(&exited[0], "reason").contains("between two turns"), "{:?}", exited[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_hears_nothing_more_is_replaced() {
    let shop = Shop::open(&[]).await;
    let program = "
turn = next(turns())
os.close(0)
done(uuid.uuid4().hex)
open('closed', 'w')
signal.pause()
";
    shop.python("a", program).await;
    let first = shop.client.ask("a", "go").await.unwrap();
    shop.wait_for("closed").await;
    let second = shop.client.ask("a", "go").await.unwrap();
    assert_ne!(first, second);
}

/// Is in the midst of a turn, with descendants that got away from it.
const BUSY: &str = "
import subprocess
for turn in turns():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open('got away', 'w')
            while True: signal.pause()
        os._exit(0)
    signal.pause()
";

async fn busy(settings: &[&str]) -> Shop {
    let shop = Shop::open(settings).await;
    shop.python("a", BUSY).await;
    shop.client.tell("a", "go").await;
    shop.wait_for("got away").await;
    assert!(shop.processes("a") >= 2);
    shop
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_its_agent() {
    let shop = busy(&[]).await;
    shop.terminate("a").await;
    shop.gone("a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_a_daemon_that_stops() {
    let mut shop = busy(&["drain_seconds=0"]).await;
    assert!(shop.daemon.stop());
    shop.gone("a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_a_daemon_that_is_killed() {
    for policy in ["required", "off"] {
        let mut shop = busy(&[&format!("sandbox.policy={policy}")]).await;
        shop.daemon.kill();
        shop.gone("a").await;
        shop.daemon.start_again();
        shop.client = shop.daemon.client().await;
        shop.terminate("a").await;
        shop.gone("a").await;
    }
}
