//! Commands that run where agents work: for people by `workspace exec`, for agents by
//! `run_command`, and git in a worktree.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use substrat_proto::v1;
use substrat_proto::v1::exec_request::Request as Asked;
use substrat_proto::v1::exec_response::Response as Told;
use substrat_tests::harness::{Client, Daemon, Said, reason, say, say_with, substratctl};
use substrat_tests::probe::{eventually, processes};
use substrat_tests::repo::{self, git};
use substrat_tests::watch::PATIENCE;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Runs what it is told as a shell command, and answers with what came of it.
const SHELL: &str = r#"fn turn(prompt) { `${run_command(messages()[-1].text)}` }"#;

fn exec(daemon: &Daemon, workspace: &str, script: &str) -> Said {
    say(&daemon.home, &["workspace", "exec", workspace, "--", "sh", "-c", script])
}

fn done(said: &Said) -> &str {
    assert_eq!(said.code, Some(0), "{said:?}");
    &said.stdout
}

fn with_workspace(settings: &[&str]) -> Daemon {
    let daemon = Daemon::with(settings);
    done(&say(&daemon.home, &["workspace", "create", "ws", "--env", "COLOUR=green"]));
    daemon
}

#[test]
fn a_command_sees_the_workspace_and_gives_its_output_and_exit_code() {
    let daemon = with_workspace(&[]);
    let said = exec(&daemon, "ws", "pwd; echo $COLOUR; echo kept > file; echo oops >&2; exit 7");
    assert_eq!((said.code, said.stdout.as_str()), (Some(7), "/workspace\ngreen\n"), "{said:?}");
    assert_eq!(said.stderr, "oops\n");
    let said =
        say_with(&daemon.home, &["workspace", "exec", "ws", "--", "cat", "file", "-"], b"in");
    assert_eq!(done(&said), "kept\nin");
    let said = exec(&daemon, "ws", "kill -TERM $$");
    assert_eq!(said.code, Some(128 + 15), "{said:?}");
    let said = say(&daemon.home, &["workspace", "exec", "ws", "--", "no-such-program"]);
    assert_eq!(said.code, Some(5), "{said:?}");
    assert!(said.stderr.contains("\"no-such-program\" cannot be run"), "{said:?}");
    let said = say(&daemon.home, &["workspace", "exec", "ws", "--", "ls -la"]);
    assert!(said.stderr.contains("-- sh -c 'ls -la'"), "{said:?}");
    let said = say(&daemon.home, &["workspace", "exec", "ws", "--dir", "none", "--", "true"]);
    assert_eq!(said.code, Some(5), "{said:?}");
    assert!(said.stderr.contains("no folder \"/workspace/none\""), "{said:?}");
    assert!(said.stderr.contains("hint: name a folder that is there"), "{said:?}");
    let said = say(&daemon.home, &["workspace", "exec", "other", "--", "true"]);
    assert_eq!(said.code, Some(4), "{said:?}");
}

#[test]
fn a_large_input_comes_back_whole() {
    let daemon = with_workspace(&[]);
    let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut command = substratctl(&daemon.home);
    command.args(["workspace", "exec", "ws", "--", "cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, sent) = (child.stdin.take().unwrap(), bytes.clone());
    let feeding = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, &sent));
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap().unwrap();
    assert!(output.stdout == bytes, "{} bytes came back", output.stdout.len());
}

#[test]
fn what_an_agent_may_not_change_a_command_in_its_place_may_not_either() {
    let daemon = with_workspace(&[]);
    done(&exec(&daemon, "ws", "echo first > file"));
    let script = "fn turn(p) { 1 }";
    let create = ["agent", "create", "reader", "--workspace", "ws", "--ro", "--instructions"];
    done(&say(&daemon.home, &[&create[..], &[script]].concat()));
    let tail = ["--as", "reader", "--", "sh", "-c", "cat file; echo second > file"];
    let said = say(&daemon.home, &[&["workspace", "exec", "ws"][..], &tail].concat());
    assert_ne!(said.code, Some(0), "{said:?}");
    assert!(said.stdout == "first\n" && said.stderr.contains("Read-only"), "{said:?}");
    done(&say(&daemon.home, &["workspace", "create", "elsewhere"]));
    let said = say(&daemon.home, &["workspace", "exec", "elsewhere", "--as", "reader", "--", "ls"]);
    assert_eq!(said.code, Some(6), "{said:?}");
}

async fn open(client: &Client, open: v1::ExecOpen) -> Running {
    let (requests, sent) = mpsc::channel(16);
    requests.send(v1::ExecRequest { request: Some(Asked::Open(open)) }).await.unwrap();
    let told = client.exec.clone().exec(ReceiverStream::new(sent)).await.unwrap().into_inner();
    Running { requests, told, output: String::new() }
}

struct Running {
    requests: mpsc::Sender<v1::ExecRequest>,
    told: tonic::Streaming<v1::ExecResponse>,
    output: String,
}

impl Running {
    async fn ask(&self, asked: Asked) {
        self.requests.send(v1::ExecRequest { request: Some(asked) }).await.unwrap();
    }

    async fn next(&mut self) -> Told {
        let told = tokio::time::timeout(PATIENCE, self.told.message()).await;
        let told = told.unwrap_or_else(|_| panic!("nothing more after {:?}", self.output));
        told.unwrap().unwrap().response.unwrap()
    }

    /// Waits until the output holds a text.
    async fn until(&mut self, text: &str) {
        while !self.output.contains(text) {
            match self.next().await {
                Told::Stdout(bytes) => self.output += std::str::from_utf8(&bytes).unwrap(),
                // A shell may speak of what was ended beside it.
                Told::Started(_) | Told::Stderr(_) => {}
                other => panic!("{other:?} instead of {text:?} after {:?}", self.output),
            }
        }
    }

    async fn exited(&mut self) -> v1::ExecExited {
        loop {
            if let Told::Exited(exited) = self.next().await {
                return exited;
            }
        }
    }
}

fn shell(script: &str, terminal: Option<v1::TerminalSize>) -> v1::ExecOpen {
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    v1::ExecOpen { workspace: "ws".into(), command, terminal, ..Default::default() }
}

#[tokio::test]
async fn a_terminal_has_a_size_a_name_and_job_control() {
    let daemon = with_workspace(&[]);
    let client = daemon.client().await;
    let size = |rows, columns| v1::TerminalSize { rows, columns };
    let mut bash = shell("", Some(size(10, 20)));
    bash.command = vec!["bash".into(), "--norc".into()];
    let mut running = open(&client, bash).await;
    let typed = |text: &str| Asked::Input(text.as_bytes().to_vec());
    running.ask(typed("tty; stty size; echo rea''dy\n")).await;
    running.until("ready").await;
    assert!(running.output.contains("/dev/pts/0"), "{}", running.output);
    assert!(running.output.contains("10 20"), "{}", running.output);
    running.ask(Asked::Resize(size(30, 40))).await;
    // It speaks when it has the terminal: a shell that is about to hand it over can miss a signal.
    running.ask(typed("sh -c 'stty size; echo chang\"\"ed; exec sleep 1000'\n")).await;
    running.until("changed").await;
    assert!(running.output.contains("30 40"), "{}", running.output);
    // Ctrl-C ends what runs in it, and not the shell.
    running.ask(typed("\u{3}")).await;
    running.ask(typed("echo ali''ve; exit 3\n")).await;
    running.until("alive").await;
    assert_eq!(running.exited().await.code, 3);
}

#[tokio::test]
async fn a_command_can_be_signalled_and_ends_with_its_stream() {
    let daemon = with_workspace(&[]);
    let client = daemon.client().await;
    let script = "trap 'echo told; exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    let mut running = open(&client, shell(script, None)).await;
    running.until("ready").await;
    running.ask(Asked::Signal(v1::ExecSignal::Terminate.into())).await;
    running.until("told").await;
    assert_eq!(running.exited().await.code, 5);

    let mut running = open(&client, shell("trap '' TERM INT; echo ready; sleep 1000", None)).await;
    running.until("ready").await;
    running.ask(Asked::Signal(v1::ExecSignal::Kill.into())).await;
    assert_eq!(running.exited().await.signal, 9);

    let mut running = open(&client, shell("echo ready; sleep 1000", None)).await;
    let Told::Started(started) = running.next().await else { panic!("not started") };
    let pid = Pid::from_raw(started.pid).unwrap();
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    running.until("ready").await;
    drop(running);
    let ended = tokio::task::spawn_blocking(move || {
        let mut fds = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, None)
    });
    assert_eq!(ended.await.unwrap(), Ok(1), "the sandbox ends with the stream");
}

#[test]
fn a_command_that_heeds_no_signal_is_ended_all_the_same() {
    let daemon = with_workspace(&[]);
    let script = "trap '' INT TERM; echo ready; while :; do sleep 1000; done";
    let mut command = substratctl(&daemon.home);
    command.args(["workspace", "exec", "ws", "--", "sh", "-c", script]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut exec = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(exec.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let id = Pid::from_child(&exec);
    // Two that come at once are one: then its time to heed the first ends it.
    for signal in [Signal::TERM, Signal::INT, Signal::TERM] {
        kill_process(id, signal).unwrap();
    }
    assert_eq!(exec.wait().unwrap().code(), Some(137));
}

#[tokio::test]
async fn a_command_ends_when_its_time_is_over() {
    let daemon = with_workspace(&[]);
    let command = ["workspace", "exec", "ws", "--timeout", "2s", "--", "sh", "-c"];
    let script = "echo begun; trap '' TERM INT HUP; sleep 86447";
    let said = say(&daemon.home, &[&command[..], &[script]].concat());
    assert_eq!((said.code, said.stdout.as_str()), (Some(124), "begun\n"), "{said:?}");
    let told = "error: the command did not end in time, and was ended\nhint: give more time";
    assert!(said.stderr.starts_with(told), "{said:?}");
    eventually("its processes are gone", || processes("sleep\x0086447\0") == 0).await;
    let command = ["workspace", "exec", "ws", "--timeout", "10m", "--", "sh", "-c", "exit 3"];
    assert_eq!(say(&daemon.home, &command).code, Some(3));
}

#[tokio::test]
async fn a_stream_that_makes_no_sense_is_refused() {
    let daemon = with_workspace(&[]);
    let client = daemon.client().await;
    let mut exec = client.exec.clone();
    let request = |asked| tokio_stream::iter([v1::ExecRequest { request: Some(asked) }]);
    let no = exec.exec(request(Asked::Input(Vec::new()))).await.unwrap_err();
    assert_eq!(reason(&no), "FIELD_INVALID");
    for open in [
        v1::ExecOpen { workspace: "ws".into(), ..Default::default() },
        v1::ExecOpen { directory: "../..".into(), ..shell("true", None) },
        shell("true", Some(v1::TerminalSize { rows: 0, columns: 80 })),
        shell("a\0b", None),
    ] {
        let no = exec.exec(request(Asked::Open(open.clone()))).await.unwrap_err();
        assert!(["FIELD_INVALID", "PATH_INVALID"].contains(&reason(&no).as_str()), "{open:?}");
    }
}

fn ask(daemon: &Daemon, agent: &str, text: &str) -> String {
    done(&say(&daemon.home, &["agent", "send", agent, text])).to_owned()
}

#[test]
fn an_agent_runs_commands_and_its_shell_remembers() {
    let mut daemon = with_workspace(&[]);
    let create = ["agent", "create", "a", "--workspace", "ws", "--instructions", SHELL];
    done(&say(&daemon.home, &create));
    let said = ask(&daemon, "a", "mkdir sub; cd sub; export WORD='two words'; pwd; exit 4");
    assert!(said.contains(r#""exit_code": 4"#) && said.contains("/workspace/sub"), "{said}");
    assert!(ask(&daemon, "a", "pwd; echo \"[$WORD]\"").contains("/workspace/sub\\n[two words]"));
    daemon.kill();
    daemon.start_again();
    let said = ask(&daemon, "a", "pwd; echo \"[$WORD]\" >&2; nope");
    assert!(said.contains("/workspace/sub\\n[two words]"), "{said}");
    assert!(said.contains("nope: command not found"), "{said}");
    // A folder that is gone leaves the root.
    done(&exec(&daemon, "ws", "rmdir sub"));
    assert!(ask(&daemon, "a", "pwd").contains("/workspace\\n"));
}

#[test]
fn a_command_that_floods_hangs_or_lingers_is_bounded() {
    let daemon = with_workspace(&[]);
    let script = r#"fn turn(prompt) {
        let said = messages()[-1].text;
        `${run_command(said, 1)}`
    }"#;
    let create = ["agent", "create", "a", "--workspace", "ws", "--instructions", script];
    done(&say(&daemon.home, &create));
    let said = ask(&daemon, "a", "head -c 1000000 /dev/zero | tr '\\0' x; echo end");
    assert!(said.contains("dropped_bytes") && said.contains("bytes are left out"), "{said}");
    assert!(said.len() < 100_000 && said.contains(r#"end\n"#), "{} bytes", said.len());
    let said = ask(&daemon, "a", "trap '' TERM; echo begun; sleep 1000");
    assert!(said.contains("timed_out") && said.contains("begun"), "{said}");
    // What is left behind holds nobody up, and is gone.
    let said = ask(&daemon, "a", "setsid sleep 98765 & echo started");
    assert!(said.contains("started"), "{said}");
    let running = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("cmdline")).ok());
    assert!(!running.collect::<String>().contains("98765"));
}

/// Hands its output to whoever listens in the workspace, and ends.
const GIVE: &str = "import socket, array
s = socket.socket(socket.AF_UNIX); s.connect('socket')
fds = array.array('i', [1, 2])
s.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
print('given')
";

/// Takes what it is handed, and holds it.
const HOLD: &str = "import array, os, signal, socket
s = socket.socket(socket.AF_UNIX); s.bind('socket'); s.listen()
open('listens', 'w')
held = []
while True:
    held.append(s.accept()[0].recvmsg(1, socket.CMSG_SPACE(8)))
";

#[test]
fn who_holds_the_output_of_a_command_does_not_hold_its_end_up() {
    let daemon = with_workspace(&[]);
    let create = ["agent", "create", "a", "--workspace", "ws", "--instructions", SHELL];
    done(&say(&daemon.home, &create));
    let shown = say(&daemon.home, &["workspace", "show", "ws", "-o", "json"]).json();
    let root = Path::new(shown["workspace"]["root"].as_str().unwrap()).to_owned();
    fs::write(root.join("give.py"), GIVE).unwrap();
    fs::write(root.join("hold.py"), HOLD).unwrap();
    let mut hold = substratctl(&daemon.home);
    hold.args(["workspace", "exec", "ws", "--", "python3", "hold.py"]);
    let mut hold = hold.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let began = std::time::Instant::now();
    while !root.join("listens").exists() {
        assert!(began.elapsed() < PATIENCE, "it does not listen");
        std::thread::yield_now();
    }
    assert_eq!(done(&exec(&daemon, "ws", "python3 give.py")), "given\n");
    let said = ask(&daemon, "a", "python3 give.py");
    assert!(said.contains("given") && said.contains("exit_code"), "{said}");
    hold.kill().unwrap();
    hold.wait().unwrap();
}

fn repository(home: &Path) -> PathBuf {
    let repo = home.parent().unwrap().join("re po");
    repo::repository(&repo);
    repo
}

#[test]
fn a_worktree_is_worked_in_and_deleted_only_with_its_work_safe() {
    let daemon = Daemon::start();
    let repo = repository(&daemon.home);
    let create = ["workspace", "create", "wt", "--git", repo.to_str().unwrap()];
    done(&say(&daemon.home, &create));
    assert!(git(&repo, &["worktree", "list"]).contains("[substrat/wt/work]"));
    let said = exec(&daemon, "wt", "echo two >> file; git commit -qam second && git log --oneline");
    assert_eq!((done(&said).lines().count(), said.stderr.as_str()), (2, ""), "{said:?}");
    assert_eq!(git(&repo, &["log", "-1", "--format=%s", "substrat/wt/work"]), "second\n");
    let hook = repo.join(".git/hooks/post-commit");
    let said = exec(&daemon, "wt", &format!("echo evil > '{}'", hook.display()));
    assert!(said.code != Some(0) && !hook.exists(), "{said:?}");

    let delete =
        |more: &[&str]| say(&daemon.home, &[&["workspace", "delete", "wt"], more].concat());
    let said = delete(&[]);
    assert_eq!(said.code, Some(5), "{said:?}");
    assert!(said.stderr.contains("unpushed:") && said.stderr.contains("second"), "{said:?}");
    git(&repo, &["merge", "-q", "substrat/wt/work"]);
    done(&exec(&daemon, "wt", "echo new > untracked"));
    let said = delete(&[]);
    assert!(said.stderr.contains("uncommitted: untracked"), "{said:?}");
    done(&exec(&daemon, "wt", "rm untracked"));
    done(&delete(&[]));
    assert_eq!(git(&repo, &["worktree", "list"]).lines().count(), 1);
    assert_eq!(git(&repo, &["branch", "--format=%(refname:short)"]), "main\n");
    assert_eq!(fs::read_dir(daemon.home.join("workspaces")).unwrap().count(), 0);

    // With force, what is committed stays.
    done(&say(&daemon.home, &create));
    done(&exec(&daemon, "wt", "echo three >> file; git commit -qam third; echo x >> file"));
    let said = delete(&["--force"]);
    assert_eq!(done(&said), "deleted wt\n");
    assert!(said.stderr.contains("kept branch substrat/wt/work of "), "{said:?}");
    assert_eq!(git(&repo, &["log", "-1", "--format=%s", "substrat/wt/work"]), "third\n");
    assert_eq!(git(&repo, &["worktree", "list"]).lines().count(), 1);
}

#[test]
fn a_worktree_that_cannot_be_made_leaves_nothing() {
    let daemon = Daemon::start();
    let repo = repository(&daemon.home);
    git(&repo, &["update-ref", "refs/remotes/origin/main", "HEAD"]);
    let create = |repo: &str, branch: &str| {
        say(&daemon.home, &["workspace", "create", "wt", "--git", repo, "--branch", branch])
    };
    let (repo, home) = (repo.to_str().unwrap(), daemon.home.to_str().unwrap());
    for (repo, branch, complaint) in [
        (repo, "main", "is checked out at"),
        (repo, "no..name", "is no name for a branch"),
        (repo, "origin/main", "is a remote-tracking branch"),
        ("/usr", "main", "is no git repository"),
        ("/no/such/folder", "main", "cannot be its repository: it does not exist"),
        (home, "main", "cannot be its repository: it holds, or lies in, the daemon's home"),
    ] {
        let said = create(repo, branch);
        assert_ne!(said.code, Some(0), "{said:?}");
        assert!(said.stderr.contains(complaint), "{said:?}");
        let listed = say(&daemon.home, &["workspace", "list", "-o", "json"]);
        assert_eq!(listed.json(), serde_json::json!({}), "{branch}");
    }
    done(&create(repo, "topic"));
}

#[test]
fn what_a_deleted_worktree_leaves_behind_is_told() {
    let daemon = Daemon::start();
    let repo = repository(&daemon.home);
    done(&say(&daemon.home, &["workspace", "create", "wt", "--git", repo.to_str().unwrap()]));
    fs::rename(&repo, repo.with_file_name("elsewhere")).unwrap();
    let said = say(&daemon.home, &["workspace", "delete", "wt", "--force"]);
    assert_eq!(done(&said), "deleted wt\n");
    let told = "warning: its repository still knows the worktree: ";
    assert!(said.stderr.starts_with(told) && said.stderr.contains("worktree prune"), "{said:?}");
    assert_eq!(fs::read_dir(daemon.home.join("workspaces")).unwrap().count(), 0);
}

#[test]
fn what_a_command_leaves_that_killed_its_keeper_is_ended_without_a_sandbox() {
    let daemon = with_workspace(&["sandbox.policy=off"]);
    let stays = "setsid sh -c 'trap \"\" TERM HUP; sleep 86441; sleep 86441'";
    // The second one holds no output that could be waited for.
    for to in ["", "> /dev/null 2>&1"] {
        let said = exec(&daemon, "ws", &format!("{stays} {to} & kill -9 $PPID; sleep 86441 {to}"));
        assert_ne!(said.code, Some(0), "{said:?}");
        let all = fs::read_dir("/proc").unwrap();
        let all = all.filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
        assert_eq!(all.filter(|line| line.windows(5).any(|at| at == b"86441")).count(), 0);
    }
    // What others started goes on.
    assert_eq!(done(&exec(&daemon, "ws", "echo fine")), "fine\n");
}

#[test]
fn a_variable_that_a_workspace_may_not_set_a_command_may_not_have() {
    let daemon = with_workspace(&[]);
    for name in ["LD_PRELOAD", "LD_AUDIT", "SUBSTRAT_HOME", "A-B"] {
        let variable = format!("{name}=/x");
        let set = ["workspace", "set", "ws", "--env", &variable];
        let run = ["workspace", "exec", "ws", "--env", &variable, "--", "true"];
        for args in [&set[..], &run] {
            let said = say(&daemon.home, args);
            assert_eq!(said.code, Some(6), "{said:?}");
            let reserved = said.stderr.contains("is reserved") && said.stderr.contains("leave it");
            assert!(reserved || name == "A-B", "{said:?}");
        }
    }
    let run = ["workspace", "exec", "ws", "--env", "COLOUR=red", "--", "sh", "-c", "echo $COLOUR"];
    assert_eq!(done(&say(&daemon.home, &run)), "red\n");
}

#[test]
fn a_repository_that_is_swapped_for_another_is_not_shown() {
    let daemon = Daemon::start();
    let repo = repository(&daemon.home);
    let secret = daemon.home.parent().unwrap().join("secret");
    fs::rename(&repo, &secret).unwrap();
    let repo = repository(&daemon.home);
    fs::write(secret.join("file"), "secret\n").unwrap();
    git(&secret, &["commit", "-qam", "of another"]);
    done(&say(&daemon.home, &["workspace", "create", "wt", "--git", repo.to_str().unwrap()]));
    // Who may write in the folder of the repository leads its .git elsewhere.
    fs::rename(repo.join(".git"), repo.join(".kept")).unwrap();
    let elsewhere = secret.join(".git");
    for plant in [
        &(|at: &Path| fs::write(at, format!("gitdir: {}\n", elsewhere.display())).unwrap())
            as &dyn Fn(&Path),
        &|at: &Path| std::os::unix::fs::symlink(&elsewhere, at).unwrap(),
        &|at: &Path| {
            let copied = Command::new("cp").arg("-a").arg(&elsewhere).arg(at).status();
            assert!(copied.unwrap().success());
        },
    ] {
        plant(&repo.join(".git"));
        let before = git(&secret, &["for-each-ref"]);
        let said = exec(&daemon, "wt", "git log --all; ls -la /");
        assert_eq!(said.code, Some(5), "{said:?}");
        assert!(said.stderr.contains("is not the repository any more"), "{said:?}");
        assert_eq!(git(&secret, &["for-each-ref"]), before);
        assert!(!elsewhere.join("worktrees").exists() && !elsewhere.join("packed-refs").exists());
        let there = repo.join(".git");
        let removed = if there.is_symlink() || there.is_file() {
            fs::remove_file(&there)
        } else {
            fs::remove_dir_all(&there)
        };
        removed.unwrap();
    }
    fs::rename(repo.join(".kept"), repo.join(".git")).unwrap();
    done(&exec(&daemon, "wt", "git status"));
    // One that is gone leaves nothing of the workspace behind.
    fs::remove_dir_all(&repo).unwrap();
    done(&say(&daemon.home, &["workspace", "delete", "wt", "--force"]));
    assert_eq!(fs::read_dir(daemon.home.join("workspaces")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_workspace_in_which_a_command_runs_is_not_deleted() {
    let daemon = with_workspace(&[]);
    let client = daemon.client().await;
    let mut running = open(&client, shell("echo ready; cat", None)).await;
    running.until("ready").await;
    let said = say(&daemon.home, &["workspace", "delete", "ws"]);
    assert_eq!(said.code, Some(5), "{said:?}");
    assert!(said.stderr.contains("a command that runs in it"), "{said:?}");
    running.ask(Asked::EndOfInput(true)).await;
    assert_eq!(running.exited().await.code, 0);
    drop(running);
    done(&say(&daemon.home, &["workspace", "delete", "ws"]));
}

#[tokio::test]
async fn a_command_in_a_workspace_that_its_agent_deletes_ends_and_says_so() {
    let daemon = with_workspace(&[]);
    let client = daemon.client().await;
    let script = r#"fn turn(prompt) { if prompt.contains("make") { create_workspace("lab"); }
        else { delete_workspace("lab"); } "done" }"#;
    client.create_in("lead", script, "ws").await;
    client.ask("lead", "make it").await.unwrap();
    let command = ["sh", "-c", "echo ready; while :; do mkdir -p d$i; echo > d$i/$((i=i+1)); done"]
        .map(str::to_owned)
        .to_vec();
    let lab = v1::ExecOpen { workspace: "lab".into(), command, ..Default::default() };
    let mut running = open(&client, lab).await;
    running.until("ready").await;
    client.ask("lead", "delete it").await.unwrap();
    let refused = loop {
        let told = tokio::time::timeout(PATIENCE, running.told.message()).await;
        if let Err(refused) = told.expect("it is told") {
            break refused;
        }
    };
    assert_eq!(refused.code(), tonic::Code::NotFound, "{refused:?}");
    eventually("its folder is gone", || {
        fs::read_dir(daemon.home.join("workspaces")).unwrap().count() == 1
    })
    .await;
}

#[test]
fn a_filesystem_of_the_kernel_cannot_be_linked() {
    let daemon = with_workspace(&[]);
    for path in ["/proc", "/proc/sys/kernel", "/sys", "/dev"] {
        let said = say(&daemon.home, &["workspace", "link", "ws", path, "at", "--rw"]);
        assert_eq!(said.code, Some(6), "{path}: {said:?}");
        assert!(said.stderr.contains("a filesystem of the kernel"), "{path}: {said:?}");
    }
}

#[test]
fn a_missing_sandbox_is_said_beside_every_listing() {
    let daemon = with_workspace(&["sandbox.policy=off"]);
    let listings: [&[&str]; 4] = [
        &["workspace", "list"],
        &["workspace", "show", "ws"],
        &["agent", "list"],
        &["provider", "list"],
    ];
    for listing in listings {
        let said = say(&daemon.home, listing);
        done(&said);
        assert!(said.stderr.contains("warning: sandbox OFF"), "{listing:?}: {said:?}");
    }
    assert!(done(&say(&daemon.home, &["daemon", "status"])).contains("sandbox   OFF"));
    assert!(exec(&daemon, "ws", "true").stderr.contains("runs without a sandbox"));
}
