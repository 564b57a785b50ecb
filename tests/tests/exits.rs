//! The end of every process of an agent is told, whoever ended it, and so is a limit that it met.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use substrat_proto::v1;
use substrat_tests::harness::{Said, say, text};
use substrat_tests::program::Shop;

/// Waits in the midst of its turn.
const BUSY: &str = "
for turn in turns():
    open(sys.argv[1].split('@')[0] + ' runs', 'w')
    signal.pause()
";

/// Waits between turns.
const IDLE: &str = "for turn in turns(): done('done')";

/// Heeds nothing that it can refuse to.
const STUBBORN: &str = "
for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)
for turn in turns():
    open('stubborn runs', 'w')
    while True: signal.pause()
";

/// Runs what it is told as a command.
const SHELL: &str = "fn turn(prompt) { `${run_command(messages()[-1].text)}` }";
const SHELL_FOR_A_SECOND: &str = "fn turn(prompt) { `${run_command(messages()[-1].text, 1)}` }";

async fn begin(shop: &Shop, name: &str, program: &str) -> v1::Agent {
    let agent = shop.python(name, program).await;
    shop.client.tell(name, "go").await;
    shop.wait_for(&format!("{name} runs")).await;
    agent
}

/// The only exit in the log of an agent, and its place among all events.
fn only_exit<'a>(events: &'a [v1::Event], agent: &v1::Agent) -> (usize, &'a v1::Event) {
    let fits = |event: &v1::Event| event.agent_id == agent.id && event.r#type == "process.exited";
    let all: Vec<_> = events.iter().enumerate().filter(|(_, event)| fits(event)).collect();
    assert_eq!(all.len(), 1, "{}: {all:?}", agent.name);
    all[0]
}

fn place(events: &[v1::Event], kind: &str) -> usize {
    events.iter().position(|event| event.r#type == kind).unwrap_or_else(|| panic!("no {kind}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_ends_with_its_agent_is_told() {
    let shop = Shop::open(&[]).await;
    let busy = begin(&shop, "busy", BUSY).await;
    let idle = shop.python("idle", IDLE).await;
    shop.client.ask("idle", "go").await.unwrap();
    for agent in [&busy, &idle] {
        let from = shop.client.sequence().await;
        shop.terminate(&agent.name).await;
        let exited = shop.client.wait_type(from, agent, "process.exited").await;
        assert_eq!(text(&exited, "reason"), "its agent ended");
        assert_eq!(shop.processes(&agent.name), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_stops_tells_of_every_process_and_calls_no_cancel_a_crash() {
    let mut shop = Shop::open(&["drain_seconds=0"]).await;
    let busy = begin(&shop, "busy", BUSY).await;
    let stubborn = begin(&shop, "stubborn", STUBBORN).await;
    let idle = shop.python("idle", IDLE).await;
    shop.client.ask("idle", "go").await.unwrap();
    let shell = shop.client.create_in("shell", SHELL, "ws").await;
    shop.client.tell("shell", "trap '' TERM; touch 'shell runs'; sleep 98764").await;
    shop.wait_for("shell runs").await;
    // Ends with its agent, while the daemon stops.
    let ended = begin(&shop, "ended", BUSY).await;
    shop.terminate("ended").await;
    assert!(shop.daemon.stop());
    for name in ["busy", "stubborn", "idle", "ended"] {
        assert_eq!(shop.processes(name), 0, "{name}");
    }
    shop.daemon.start_again();
    shop.client = shop.daemon.client().await;
    let events = shop.client.events().await;
    let stopped = place(&events, "daemon.stopped");
    let reasons = [
        (&busy, "its turn was cancelled"),
        (&stubborn, "its turn was cancelled"),
        (&idle, "its session was suspended"),
        (&shell, "its turn was over"),
        (&ended, "its agent ended"),
    ];
    for (agent, reason) in reasons {
        let (at, exited) = only_exit(&events, agent);
        assert!(at < stopped, "{}", agent.name);
        assert_eq!(text(exited, "reason"), reason, "{}", agent.name);
    }
    assert!(events.iter().all(|event| event.r#type != "agent.crashed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_a_killed_daemon_left_is_told_once_in_the_turn_that_it_was_in() {
    let mut shop = Shop::open(&[]).await;
    let busy = begin(&shop, "busy", BUSY).await;
    let idle = shop.python("idle", IDLE).await;
    shop.client.ask("idle", "go").await.unwrap();
    let shell = shop.client.create_in("shell", SHELL, "ws").await;
    shop.client.tell("shell", "touch 'shell runs'; sleep 98763").await;
    shop.wait_for("shell runs").await;
    let mut exec = substrat_tests::harness::substratctl(&shop.daemon.home);
    exec.args(["workspace", "exec", "ws", "--", "sh", "-c", "touch 'exec runs'; sleep 98762"]);
    let mut exec = exec.spawn().unwrap();
    shop.wait_for("exec runs").await;
    shop.daemon.kill();
    exec.wait().unwrap();
    shop.daemon.start_again();
    shop.client = shop.daemon.client().await;
    let events = shop.client.events().await;
    let recovered = place(&events, "daemon.recovered");
    let left = events[..recovered].iter().filter(|event| event.r#type == "process.exited");
    let left: Vec<&v1::Event> = left.collect();
    assert_eq!(left.len(), 4, "{left:?}");
    for exited in left {
        assert_eq!(text(exited, "status"), "unknown");
        let reason = text(exited, "reason");
        assert!(reason.contains("a daemon that died") || reason.contains("one that died"));
        let is_one_of = |agents: &[&v1::Agent]| agents.iter().any(|one| one.id == exited.agent_id);
        let in_turn = !text(exited, "turn_id").is_empty();
        assert_eq!(in_turn, is_one_of(&[&busy, &shell]), "{exited:?}");
        let of_user = !text(exited, "workspace_id").is_empty();
        assert_eq!(of_user, exited.agent_id.is_empty(), "{exited:?}");
        assert!(of_user || is_one_of(&[&busy, &idle, &shell]), "{exited:?}");
    }
    for name in ["busy", "idle", "shell"] {
        shop.terminate(name).await;
    }
    assert!(shop.daemon.stop());
    shop.daemon.start_again();
    shop.client = shop.daemon.client().await;
    let events = shop.client.events().await;
    let unknown = events.iter().filter(|event| text(event, "status") == "unknown");
    assert_eq!(unknown.count(), 4, "it is told once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_told_where_it_did_not_end_by_itself() {
    let shop = Shop::open(&[]).await;
    let agent = shop.client.create_in("a", SHELL_FOR_A_SECOND, "ws").await;
    shop.client.ask("a", "exit 3").await.unwrap();
    assert!(shop.events(&agent, "process.exited").await.is_empty());
    shop.client.ask("a", "kill -9 $$").await.unwrap();
    shop.client.ask("a", "sleep 98761").await.unwrap();
    let exited = shop.events(&agent, "process.exited").await;
    let [killed, slow] = &exited[..] else { panic!("{exited:?}") };
    assert_eq!((text(killed, "status"), text(killed, "reason")), ("signal 9 (SIGKILL)", ""));
    assert_eq!(text(slow, "reason"), "its time was up");
    assert!(exited.iter().all(|event| !text(event, "turn_id").is_empty()));
}

/// Writes a file that is larger than it may be.
const LARGE: &str = "head -c 3000000 /dev/zero > large; exit $?";

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_told_to_whoever_ran_the_command_and_as_an_event() {
    let shop = Shop::open(&[]).await;
    done(&say(&shop.daemon.home, &["workspace", "set", "ws", "--file-size", "1M"]));
    let from = shop.client.sequence().await;
    let said = say(&shop.daemon.home, &["workspace", "exec", "ws", "--", "sh", "-c", LARGE]);
    assert_eq!(said.code, Some(153), "{said:?}");
    assert!(said.stderr.contains("larger than 1 MiB"), "{said:?}");
    let of_user = shop.client.wait_event(from, |event| event.r#type == "limit.hit").await;
    assert_eq!((of_user.agent_id.as_str(), text(&of_user, "limit")), ("", "file_size"));
    let agent = shop.client.create_in("a", SHELL, "ws").await;
    let answer = shop.client.ask("a", LARGE).await.unwrap();
    assert!(answer.contains("limits_hit") && answer.contains("larger than 1 MiB"), "{answer}");
    let hit = &shop.events(&agent, "limit.hit").await[..];
    let [hit] = hit else { panic!("{hit:?}") };
    assert_eq!(text(hit, "limit"), "file_size");
    assert_eq!(text(hit, "workspace_id"), text(&of_user, "workspace_id"));
    let exited = &shop.events(&agent, "process.exited").await[0];
    assert_eq!(text(exited, "status"), "exit 153");
    assert!(text(exited, "reason").contains("larger than 1 MiB"), "{exited:?}");
    // Of what is no shell the number says nothing.
    let python = ["workspace", "exec", "ws", "--", "python3", "-c", "exit(153)"];
    let said = say(&shop.daemon.home, &python);
    assert!(said.code == Some(153) && !said.stderr.contains("larger"), "{said:?}");
}

/// Writes more than a workspace may take, and stays until that is seen.
const TOO_MUCH: &str = "head -c 3000000 /dev/zero > FILE; sleep 600";

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_end_before_they_are_looked_at_do_not_fill_the_disk() {
    let shop = Shop::open(&[]).await;
    done(&say(&shop.daemon.home, &["workspace", "set", "ws", "--disk", "1M"]));
    let agent = shop.client.create_in("a", SHELL, "ws").await;
    let answer = shop.client.ask("a", &TOO_MUCH.replace("FILE", "first")).await.unwrap();
    assert!(answer.contains("1 MiB are allowed"), "{answer}");
    for name in ["second", "third"] {
        let command = format!("head -c 3000000 /dev/zero > {name}; exit $?");
        let answer = shop.client.ask("a", &command).await.unwrap();
        assert!(answer.contains("none can be written"), "{answer}");
        let command = format!("wc -c < {name}");
        let answer = shop.client.ask("a", &command).await.unwrap();
        assert!(answer.contains("\"0\\n"), "{answer}");
    }
    assert!(shop.events(&agent, "limit.hit").await.iter().all(|hit| text(hit, "limit") == "disk"));
    let answer = shop.client.ask("a", "rm first").await.unwrap();
    assert!(answer.contains("\"exit_code\": 0"), "{answer}");
    let answer = shop.client.ask("a", "head -c 3000 /dev/zero > small && wc -c < small").await;
    assert!(answer.as_ref().unwrap().contains("3000"), "{answer:?}");
}

/// Makes a workspace, and shows a folder of its own there for writing.
const SHARER: &str = r#"
fn turn(prompt) {
    run_command("mkdir d");
    create_workspace("other");
    link_dir("other", "d", "x", "rw");
    "done"
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_through_a_link_counts_where_it_lies() {
    let shop = Shop::open(&[]).await;
    done(&say(&shop.daemon.home, &["workspace", "set", "ws", "--disk", "1M"]));
    shop.client.create_in("a", SHARER, "ws").await;
    shop.client.ask("a", "go").await.unwrap();
    let agent = shop.client.create_in("b", SHELL, "other").await;
    let answer = shop.client.ask("b", &TOO_MUCH.replace("FILE", "x/first")).await.unwrap();
    assert!(answer.contains("1 MiB are allowed"), "{answer}");
    let answer = shop.client.ask("b", "head -c 3000000 /dev/zero > x/second; exit $?").await;
    assert!(answer.as_ref().unwrap().contains("none can be written"), "{answer:?}");
    assert!(!shop.events(&agent, "limit.hit").await.is_empty());
    let writer = WRITER.replace("notes", "x/notes");
    shop.client.create_in("c", &writer, "other").await;
    let answer = shop.client.ask("c", "65536").await.unwrap();
    assert!(answer.contains("1 MiB are allowed"), "{answer}");
}

/// Writes a file of so many bytes, and answers what came of it.
const WRITER: &str = r#"
fn turn(prompt) {
    let text = "x";
    let most = parse_int(messages()[-1].text);
    while text.len() < most { text += text; }
    let said = "written";
    try { write_file("notes", text, true); } catch (no) { said = `${no}`; }
    said
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_a_file_tool_met_is_told_as_well() {
    let shop = Shop::open(&[]).await;
    done(&say(&shop.daemon.home, &["workspace", "set", "ws", "--disk", "1M"]));
    let agent = shop.client.create_in("a", WRITER, "ws").await;
    assert_eq!(shop.client.ask("a", "524288").await.unwrap(), "written");
    assert_eq!(shop.client.ask("a", "262144").await.unwrap(), "written");
    let answer = shop.client.ask("a", "524288").await.unwrap();
    assert!(answer.contains("1 MiB are allowed") && answer.contains("nothing was"), "{answer}");
    let hit = &shop.events(&agent, "limit.hit").await[..];
    let [hit] = hit else { panic!("{hit:?}") };
    assert_eq!(text(hit, "limit"), "disk");
    assert!(!text(hit, "turn_id").is_empty() && !text(hit, "workspace_id").is_empty(), "{hit:?}");
    done(&say(&shop.daemon.home, &["workspace", "set", "ws", "--disk", "2M"]));
    assert_eq!(shop.client.ask("a", "262144").await.unwrap(), "written");
    done(&say(&shop.daemon.home, &["workspace", "set", "ws", "--file-size", "1M"]));
    let answer = shop.client.ask("a", "262144").await.unwrap();
    assert!(answer.contains("the file would have 1.2 MiB; 1 MiB are allowed"), "{answer}");
}

#[track_caller]
fn done(said: &Said) {
    assert_eq!(said.code, Some(0), "{said:?}");
}
