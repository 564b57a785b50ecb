//! Agents that are programs: what they are told, what they can say, and what is kept of them.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use substrat_proto::v1;
use substrat_tests::harness::{Daemon, binary, is_root, reason, skipped, substratd, text};
use substrat_tests::program::Shop;

/// A user that owns nothing.
const NOBODY: u32 = 65534;

/// Counts its turns, and says who it is.
const COUNT: &str = r#"
name = uuid.uuid4().hex
for turn in turns():
    seen = (turn["state"] or 0) + 1
    done(f"{name} {seen}", state=seen)
"#;

/// The examples of a page in a language.
fn examples(page: &str, language: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    let text = fs::read_to_string(path).unwrap();
    let start = format!("```{language}\n");
    let blocks = text.split(&start).skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// The process that answered, and its count.
fn split(answer: &str) -> (&str, &str) {
    answer.split_once(' ').unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_do_what_their_page_says() {
    let shop = Shop::open(&[]).await;
    let [counter, asker] = &examples("program.md", "python")[..] else { panic!("two examples") };
    let [lister] = &examples("program.md", "sh")[..] else { panic!("one example") };
    for example in [counter, lister] {
        assert!(example.lines().count() <= 10, "{example}");
    }
    shop.put("counter.py", counter);
    shop.hire("counter", "python3 counter.py").await;
    assert_eq!(shop.client.ask("counter", "one").await.unwrap(), "message 1: one");
    assert_eq!(shop.client.ask("counter", "two").await.unwrap(), "message 2: two");
    shop.put("lister.sh", lister);
    shop.hire("lister", "sh lister.sh").await;
    // say.py and the two above.
    let before = shop.client.ask("lister", "how many?").await.unwrap();
    shop.put("one more", "");
    let after = shop.client.ask("lister", "how many?").await.unwrap();
    assert_eq!((before.as_str(), after.as_str()), ("3 files", "4 files"));
    shop.put("asker.py", asker);
    let asker = shop.hire("asker", "python3 asker.py").await;
    let reader = v1::CreateAgentRequest {
        name: "reader".into(),
        parent: "asker".into(),
        provider: "scripted".into(),
        instructions: r#"fn turn(prompt) { messages()[0].text + " Seven." }"#.into(),
        ..Default::default()
    };
    shop.client.agents.clone().create_agent(reader).await.unwrap();
    let answer = shop.client.ask("asker", "go").await.unwrap();
    assert_eq!(answer, "How many lines? Seven.");
    assert_eq!(shop.events(&asker, "tool_call.result").await.len(), 1);
    shop.terminate("asker/reader").await;
    let answer = shop.client.ask("asker", "go").await.unwrap();
    assert!(answer.contains("reader"), "the error of the call: {answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_told_who_it_is_and_what_it_can_do() {
    let shop = Shop::open(&[]).await;
    let agent = shop
        .python(
            "a",
            r#"
for turn in turns():
    turn["tools"] = [tool["name"] for tool in turn.get("tools", [])]
    turn["env"] = dict(os.environ)
    done(json.dumps(turn))
"#,
        )
        .await;
    let first = shop.client.ask("a", "Hello \u{1f980}\n").await.unwrap();
    let told: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(told["agent"], "a");
    assert_eq!(told["prompt"], "Hello \u{1f980}\n");
    assert_eq!(told["instructions"], "You are a.");
    assert_eq!(told["state"], serde_json::Value::Null);
    assert_eq!(told["messages"][0]["from"], "USER");
    assert_eq!(told["messages"][0]["kind"], "request");
    let tools = told["tools"].as_array().unwrap();
    assert!(tools.contains(&"send_message".into()) && tools.contains(&"read_file".into()));
    assert_eq!(told["env"]["SUBSTRAT_AGENT"], "a");
    assert_eq!(told["env"]["SUBSTRAT_TOOL_SOCKET"], "/run/substrat/tools.sock");
    assert_eq!(told["env"]["HOME"], "/home/agent");
    let start = shop.events(&agent, "turn.start").await;
    assert_eq!(told["turn"], text(&start[0], "turn_id"));
    let second = shop.client.ask("a", "again").await.unwrap();
    let told: serde_json::Value = serde_json::from_str(&second).unwrap();
    assert_eq!(told["tools"], serde_json::json!([]), "said once to a process");
    assert_eq!(told.get("instructions"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_calls_run_at_once_and_come_back_by_their_ids() {
    let shop = Shop::open(&[]).await;
    let lead = shop
        .python(
            "lead",
            r#"
for turn in turns():
    say(type="call", id={"n": 1}, tool="send_message", args={"recipient": "kid", "text": "?"})
    say(type="call", id=None, tool="dance")
    say(type="call", id="3", tool="list_children")
    results = [json.loads(sys.stdin.readline()) for _ in range(3)]
    results = {json.dumps(result["id"]): result for result in results}
    assert "no tool" in results["null"]["error"], results
    assert len(results['"3"']["result"]["children"]) == 1, results
    # Nobody waits for this one.
    say(type="call", id=0, tool="set_agent_metadata", args={"agent_name": "kid", "key": "k", "value": "v"})
    done(results['{"n": 1}']["result"]["text"])
"#,
        )
        .await;
    let kid = v1::CreateAgentRequest {
        name: "kid".into(),
        parent: "lead".into(),
        provider: "scripted".into(),
        instructions: r#"fn turn(prompt) { "!" }"#.into(),
        ..Default::default()
    };
    shop.client.agents.clone().create_agent(kid).await.unwrap();
    assert_eq!(shop.client.ask("lead", "go").await.unwrap(), "!");
    assert_eq!(shop.client.agent("kid").await.metadata["k"], "v", "done waits for its calls");
    assert_eq!(shop.events(&lead, "process.exited").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn state_outlives_process_session_and_daemon() {
    let mut shop = Shop::open(&[]).await;
    let agent = shop.python("a", COUNT).await;
    let first = shop.client.ask("a", "go").await.unwrap();
    let second = shop.client.ask("a", "go").await.unwrap();
    let (process, count) = split(&second);
    assert_eq!((process, count), (split(&first).0, "2"), "one process takes both turns");
    shop.suspend(&agent).await;
    let exited = shop.client.wait_type(1, &agent, "process.exited").await;
    assert_eq!(
        (text(&exited, "status"), text(&exited, "reason")),
        ("exit 0", "its session was suspended")
    );
    assert_eq!(shop.processes("a"), 0);
    let third = shop.client.ask("a", "go").await.unwrap();
    assert_eq!(split(&third).1, "3");
    assert_ne!(split(&third).0, split(&second).0);
    shop.daemon.kill();
    shop.gone("a").await;
    shop.daemon.start_again();
    shop.client = shop.daemon.client().await;
    assert_eq!(split(&shop.client.ask("a", "go").await.unwrap()).1, "4");
}

/// Leaves a state as deep as it is asked to, and answers how deep the one was that it was given.
const DEEP: &str = r#"
import re
for line in sys.stdin:
    turn, _, state = line.rpartition('"state":')
    asked = re.search(r'"text":"(\d+) (.) (.)"', turn)
    depth, opens, closes = int(asked[1]), asked[2], asked[3]
    before = str(state.count('{"a":') + state.count('['))
    opens = '{"a":' if opens == '{' else opens
    state = opens * depth + '0' + closes * depth if depth else 'null'
    print('{"type":"done","response":"' + before + '","state":' + state + '}', flush=True)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_state_of_any_depth_is_kept() {
    let mut shop = Shop::open(&[]).await;
    shop.python("a", DEEP).await;
    let none = "0 [ ]";
    let most = (256 << 10) / 2 - 1;
    for (depth, kind) in
        [(127, "[ ]"), (128, "{ }"), (129, "[ ]"), (130, "{ }"), (40_000, "{ }"), (most, "[ ]")]
    {
        shop.client.ask("a", &format!("{depth} {kind}")).await.unwrap();
        // From the journal, and from a checkpoint.
        shop.daemon.kill();
        shop.gone("a").await;
        shop.daemon.start_again();
        shop.client = shop.daemon.client().await;
        let back = shop.client.ask("a", &format!("{depth} {kind}")).await.unwrap();
        assert_eq!(back, depth.to_string());
        assert!(shop.daemon.stop());
        shop.daemon.start_again();
        shop.client = shop.daemon.client().await;
        assert_eq!(shop.client.ask("a", none).await.unwrap(), depth.to_string());
    }
    let request = shop.client.ask("a", &format!("{} [ ]", most + 1)).await;
    let refused = request.unwrap_err().message().to_owned();
    assert!(refused.contains("a state of 262145 bytes; 262144 are allowed"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_for_one_turn_is_one() {
    let shop = Shop::open(&[]).await;
    shop.put("once.sh", "read -r turn; echo '{\"type\":\"done\",\"response\":\"yes\"}'");
    let agent = shop.hire("a", "sh once.sh").await;
    shop.hire("b", r#"sh -c 'printf %s "{\"type\":\"done\",\"response\":\"deaf\"}"'"#).await;
    for _ in 0..20 {
        assert_eq!(shop.client.ask("a", "go").await.unwrap(), "yes");
        assert_eq!(shop.client.ask("b", "go").await.unwrap(), "deaf", "it reads nothing");
    }
    assert_eq!(shop.events(&agent, "turn.failed").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_agents_share_a_workspace() {
    let shop = Shop::open(&[]).await;
    shop.python(
        "writer",
        "for turn in turns():\n    open('note', 'w').write(turn['prompt']); done('')",
    )
    .await;
    shop.python("reader", "for turn in turns():\n    done(open('note').read())").await;
    shop.client.ask("writer", "left here").await.unwrap();
    assert_eq!(shop.client.ask("reader", "?").await.unwrap(), "left here");
    assert_eq!(fs::read_to_string(shop.root.join("note")).unwrap(), "left here");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_never_sees_less_or_more_than_its_agent() {
    let shop = Shop::open(&[]).await;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "linked").unwrap();
    let program = r#"
name = uuid.uuid4().hex
for turn in turns():
    try: done(name + " " + open("more/file").read())
    except OSError as error: done(name + " " + error.strerror)
"#;
    let agent = shop.python("a", program).await;
    let before = shop.client.ask("a", "?").await.unwrap();
    assert_eq!(split(&before).1, "No such file or directory");
    let link = v1::LinkDirectoryRequest {
        workspace: "ws".into(),
        host_path: folder.path().to_str().unwrap().into(),
        mount_path: "more".into(),
        ..Default::default()
    };
    shop.client.workspaces.clone().link_directory(link).await.unwrap();
    let after = shop.client.ask("a", "?").await.unwrap();
    assert_eq!(split(&after).1, "linked");
    assert_ne!(split(&after).0, split(&before).0);
    let exited = shop.events(&agent, "process.exited").await;
    assert_eq!(text(&exited[0], "reason"), "what it sees has changed");
    let unlink = v1::UnlinkDirectoryRequest {
        workspace: "ws".into(),
        mount_path: "more".into(),
        ..Default::default()
    };
    shop.client.workspaces.clone().unlink_directory(unlink).await.unwrap();
    let last = shop.client.ask("a", "?").await.unwrap();
    assert_eq!(split(&last).1, "No such file or directory");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_may_fail_and_a_passing_failure_is_tried_again() {
    let shop = Shop::open(&[]).await;
    let program = r#"
name, tries = uuid.uuid4().hex, 0
for turn in turns():
    tries += 1
    if turn["prompt"] == "flaky" and tries < 3:
        say(type="error", message="not now", **{"class": "transient"})
    elif turn["prompt"] == "broken":
        say(type="error", message="it is over")
    else:
        say(type="usage", input_tokens=5, cost_micro_usd=7)
        done(f"{name} {tries}")
"#;
    let agent = shop.python("a", program).await;
    let flaky = shop.client.ask("a", "flaky").await.unwrap();
    assert_eq!(split(&flaky).1, "3");
    let failed = shop.client.ask("a", "broken").await.unwrap_err();
    assert_eq!(reason(&failed), "TURN_FAILED");
    assert!(failed.message().contains("it is over"), "{failed}");
    let fine = shop.client.ask("a", "fine").await.unwrap();
    assert_eq!(split(&fine), (split(&flaky).0, "5"), "the process is kept");
    let usage = shop.client.agent("a").await.usage.unwrap();
    assert_eq!((usage.input_tokens, usage.cost_micro_usd), (10, 14));
    assert_eq!(shop.events(&agent, "process.exited").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_hears_of_a_cancel_keeps_its_process() {
    let shop = Shop::open(&[]).await;
    let program = r#"
name = uuid.uuid4().hex
for turn in turns():
    if turn["prompt"] == "wait":
        open("waits", "w")
        assert json.loads(sys.stdin.readline()) == {"type": "cancel"}
        done("I stopped", state="not kept")
    else:
        done(f"{name} {turn['state']}")
"#;
    let agent = shop.python("a", program).await;
    let before = shop.client.ask("a", "go").await.unwrap();
    let asked = shop.asking("a", "wait");
    shop.wait_for("waits").await;
    shop.cancel("a").await;
    let cancelled = asked.await.unwrap().unwrap_err();
    assert_eq!(reason(&cancelled), "TURN_CANCELLED");
    assert_eq!(shop.client.ask("a", "go").await.unwrap(), before);
    assert_eq!(shop.events(&agent, "process.exited").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_takes_no_longer_than_it_may() {
    let shop = Shop::open(&["program.turn_seconds=1"]).await;
    let program = r#"
for turn in turns():
    line = json.loads(sys.stdin.readline())
    done(line["type"])
"#;
    let agent = shop.python("a", program).await;
    let failed = shop.failure("a").await;
    assert!(failed.contains("not done after 1 s") && failed.contains("program.turn_seconds"));
    let failed = &shop.events(&agent, "turn.failed").await[0];
    assert_eq!(text(failed, "class"), "permanent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_without_a_command_line_is_refused() {
    let shop = Shop::open(&[]).await;
    let create = async |parent: &str, model: &str| {
        let request = v1::CreateAgentRequest {
            name: "x".into(),
            parent: parent.into(),
            provider: "program".into(),
            model: model.into(),
            ..Default::default()
        };
        shop.client.agents.clone().create_agent(request).await
    };
    for model in ["", "python3 'agent.py"] {
        let refused = create("", model).await.unwrap_err();
        assert_eq!(reason(&refused), "MODEL_INVALID", "{refused}");
    }
    shop.client
        .create("lead", "fn turn(p) { spawn_agent(\"x\", \"\", #{provider: \"program\"}) }")
        .await;
    let refused = create("lead", "").await.unwrap_err();
    assert_eq!(reason(&refused), "MODEL_INVALID", "a script is no command line");
    let failed = shop.failure("lead").await;
    assert!(failed.contains("no command line was given as the model"), "{failed}");
    shop.hire("program", "nothing-like-that").await;
    let failed = shop.failure("program").await;
    assert!(failed.contains("\"nothing-like-that\" cannot be run"), "{failed}");
    shop.hire_under("program", "kid", "").await;
    let failed = shop.failure("kid").await;
    assert!(
        failed.contains("\"nothing-like-that\" cannot be run"),
        "it has its parent's: {failed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_sandbox_it_works_the_same_and_each_turn_says_so() {
    let shop = Shop::open(&["sandbox.policy=off"]).await;
    let agent = shop.python("a", COUNT).await;
    for count in ["1", "2"] {
        assert_eq!(split(&shop.client.ask("a", "go").await.unwrap()).1, count);
    }
    let off = shop.events(&agent, "sandbox.off").await;
    assert_eq!(off.len(), 2);
    assert!(text(&off[0], "reason").contains("sandbox.policy"), "{:?}", off[0]);
    let leaves = "
for turn in turns():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: signal.pause()
        os._exit(0)
    open('forked', 'w')
    signal.pause()
";
    shop.python("b", leaves).await;
    shop.client.tell("b", "go").await;
    shop.wait_for("forked").await;
    assert!(shop.processes("b") > 0);
    shop.terminate("b").await;
    shop.gone("b").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_bubblewrap_it_is_said_what_is_to_be_installed() {
    let folder = tempfile::tempdir().unwrap();
    let on = async |policy: &str| {
        let home = folder.path().join(policy);
        let mut command = substratd(&home);
        command.env("PATH", "/nowhere").args(["--set", &format!("sandbox.policy={policy}")]);
        let shop = Shop::on(Daemon::run(&home, command).unwrap()).await;
        let agent = shop.python("a", COUNT).await;
        (shop, agent)
    };
    let (shop, agent) = on("required").await;
    let failed = shop.failure("a").await;
    assert!(failed.contains("install the package \"bubblewrap\""), "{failed}");
    assert_eq!(text(&shop.events(&agent, "turn.failed").await[0], "class"), "sandbox");
    let (shop, agent) = on("preferred").await;
    assert_eq!(split(&shop.client.ask("a", "go").await.unwrap()).1, "1");
    let off = shop.events(&agent, "sandbox.off").await;
    assert!(text(&off[0], "reason").contains("bubblewrap is not installed"), "{:?}", off[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_user_can_do_it_all() {
    if !is_root() {
        return skipped("the other tests do this already");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let reachable = Command::new(binary("substratd")).uid(NOBODY).arg("--version").output();
    if !reachable.is_ok_and(|output| output.status.success()) {
        return skipped("the binaries cannot be reached by another user");
    }
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = substratd(&home);
    command.uid(NOBODY).gid(NOBODY).current_dir("/").args(["--set", "allow_users=[0]"]);
    let shop = Shop::on(Daemon::run(&home, command).unwrap()).await;
    let agent = shop
        .python(
            "a",
            r#"
for turn in turns():
    open("made", "w").write("by it")
    done(str(call("list_children")["result"]) + f" {os.getuid()}")
"#,
        )
        .await;
    for file in ["a.py", "say.py"] {
        fs::set_permissions(shop.root.join(file), fs::Permissions::from_mode(0o644)).unwrap();
    }
    assert_eq!(shop.client.ask("a", "go").await.unwrap(), "{'children': []} 1000");
    assert_eq!(fs::read_to_string(shop.root.join("made")).unwrap(), "by it");
    assert_eq!(shop.events(&agent, "sandbox.off").await.len(), 0);
    shop.daemon.signal(Signal::KILL);
    shop.gone("a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_a_program_is_not_offered_is_refused_as_an_unknown_one() {
    let shop = Shop::open(&[]).await;
    let program = r#"
for turn in turns():
    said = call("run_command", command="touch made")
    done(said["error"])
"#;
    shop.python("a", program).await;
    let said = shop.client.ask("a", "go").await.unwrap();
    assert!(said.starts_with("no tool \"run_command\"; there are: "), "{said}");
    assert!(!said["no tool \"run_command\"".len()..].contains("run_command"), "{said}");
    assert!(!shop.root.join("made").exists());
}

/// Says all that it has to say, and goes, while its call is still to come back.
const HASTY: &str = r#"read turn
echo '{"type":"call","id":1,"tool":"send_message","args":{"recipient":"slow","text":"hi"}}'
echo '{"type":"done","response":"over"}'
"#;

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_done_and_gone_waits_for_its_calls() {
    let shop = Shop::open(&[]).await;
    shop.put("hasty.sh", HASTY);
    shop.hire("hasty", "sh hasty.sh").await;
    // Longer than a pipe of a process that has ended is listened to.
    let slow = r#"fn turn(prompt) { sleep_ms(2500); "at last" }"#;
    let create = ["agent", "create", "slow", "--parent", "hasty", "--provider", "scripted"];
    shop.daemon.ctl_ok(&[&create[..], &["--instructions", slow]].concat());
    assert_eq!(shop.client.ask("hasty", "go").await.unwrap(), "over");
    let returned = shop.client.wait_event(1, |event| event.r#type == "tool_call.result").await;
    assert!(format!("{returned:?}").contains("at last"), "{returned:?}");
}
