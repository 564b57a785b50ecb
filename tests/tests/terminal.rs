//! What agents write does nothing to the terminal on which it is shown.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use substrat_tests::harness::{Daemon, binary, forget_environment, say, say_with};

/// Takes over a terminal, writes to the clipboard, hides and reorders text.
const HOSTILE: &str = "\u{1b}]52;c;eA==\u{7}\u{1b}[2Ja\0b\u{9b}2Jc\u{7f}d\re\u{202e}f\u{2067}g";
const ESCAPED: &str =
    "\\u{1b}]52;c;eA==\\u{7}\\u{1b}[2Ja\\u{0}b\\u{9b}2Jc\\u{7f}d\\u{d}e\\u{202e}f\\u{2067}g";
const ECHO: &str = "fn turn(prompt) { let text = messages()[-1].text; say(text); text }";

/// What a command writes to a terminal, with something on its stdin.
fn on_terminal(home: &Path, args: &str, stdin: &Path) -> String {
    let (program, stdin) = (binary("substratctl"), stdin.display());
    let run = format!("{} --home {} {args} < '{stdin}'", program.display(), home.display());
    let mut command = Command::new("script");
    forget_environment(&mut command);
    command.args(["-qefc", &run, "/dev/null"]).env("TERM", "xterm").env("NO_COLOR", "1");
    let output = command.stdin(Stdio::null()).output().expect("script runs");
    let text = String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n");
    // What shows on a terminal that an answer is waited for is this program's own.
    text.split('\r').filter(|part| !part.starts_with("waiting")).collect()
}

fn is_harmless(text: &str) -> bool {
    let harmful = |c: char| c.is_control() || ('\u{202a}'..='\u{2069}').contains(&c);
    !text.contains(|c| harmful(c) && c != '\n' && c != '\t')
}

struct Stage {
    daemon: Daemon,
    hostile: PathBuf,
}

impl Stage {
    fn new() -> Self {
        let daemon = Daemon::start();
        daemon.ctl_ok(&["agent", "create", "echo", "--instructions", ECHO]);
        let hostile = daemon.home.parent().unwrap().join("hostile");
        std::fs::write(&hostile, HOSTILE).unwrap();
        Self { daemon, hostile }
    }

    fn send(&self, more: &[&str]) -> substrat_tests::harness::Said {
        let args = [&["agent", "send", "echo", "-"], more].concat();
        say_with(&self.daemon.home, &args, HOSTILE.as_bytes())
    }
}

#[test]
fn on_a_terminal_nothing_that_an_agent_wrote_is_a_command() {
    let stage = Stage::new();
    let home = stage.daemon.home.as_path();
    assert_eq!(on_terminal(home, "agent send echo -", &stage.hostile), format!("{ESCAPED}\n"));
    let turns = say(home, &["turn", "list", "echo", "-o", "json"]).json();
    let turn = turns["turns"][0]["turnId"].as_str().unwrap();
    let show = format!("turn show {turn}");
    for args in ["agent transcript echo", "agent log echo", "events", &show] {
        let text = on_terminal(home, args, Path::new("/dev/null"));
        assert!(is_harmless(&text), "{args}: {text:?}");
        assert!(text.contains("\\u{1b}]52") || args == "agent log echo", "{args}: {text:?}");
    }
    let text = on_terminal(home, "agent attach echo", &stage.hostile);
    assert!(is_harmless(&text) && text.contains(&ESCAPED[..20]), "{text:?}");
    let sent = stage.send(&["--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    // An answer that is waited for is put into no inbox, but comes after the one before it.
    let sent = stage.send(&[]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let text = on_terminal(home, "inbox", Path::new("/dev/null"));
    assert!(is_harmless(&text) && text.contains(ESCAPED), "{text:?}");
}

#[test]
fn json_on_a_terminal_is_harmless_and_says_the_same() {
    let stage = Stage::new();
    let text = on_terminal(&stage.daemon.home, "-o json agent send echo -", &stage.hostile);
    assert!(is_harmless(&text), "{text:?}");
    let said: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(said["answer"], HOSTILE);
}

#[test]
fn what_is_piped_is_what_was_written() {
    let stage = Stage::new();
    assert_eq!(stage.send(&[]).stdout, format!("{HOSTILE}\n"));
    let transcript = say(&stage.daemon.home, &["agent", "transcript", "echo"]);
    assert!(transcript.stdout.contains("\u{1b}]52;c;eA==\u{7}"), "{transcript:?}");
}

#[test]
fn a_name_holds_no_control_character() {
    let stage = Stage::new();
    for name in ["a\u{1b}[2J", "a\u{9b}", "a\u{7f}", "a\n"] {
        for noun in ["agent", "workspace"] {
            let mut args = vec![noun, "create", name];
            if noun == "agent" {
                args.extend(["--instructions", ECHO]);
            }
            let said = say(&stage.daemon.home, &args);
            assert_eq!(said.code, Some(6), "{said:?}");
        }
    }
}
