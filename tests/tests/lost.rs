//! What `substratctl` takes for a lost daemon, what it does not, and how long it looks for it.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and touches what it tests from outside"
)]

use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use substrat_tests::harness::{Daemon, say, say_with};

const ECHO: &str = r#"fn turn(prompt) { "you said: " + messages()[0].text }"#;

#[test]
fn a_request_that_is_too_large_is_refused_and_not_repeated() {
    let daemon = Daemon::start();
    daemon.ctl_ok(&["agent", "create", "echo", "--instructions", ECHO]);
    let large = vec![b'x'; 5 << 20];
    let file = daemon.home.join("large");
    std::fs::write(&file, &large).unwrap();
    let file = format!("@{}", file.display());
    let cases: [&[&str]; 4] = [
        &["agent", "send", "echo", "--no-wait", "-"],
        &["agent", "send", "echo", "-"],
        &["agent", "update", "echo", "--instructions", &file],
        &["agent", "create", "other", "--instructions", &file],
    ];
    for args in cases {
        let said = say_with(&daemon.home, &[args, &["-v"]].concat(), &large);
        assert_eq!((said.code, said.stdout.as_str()), (Some(6), ""), "{said:?}");
        let told = "error: the request is larger than 4194304 bytes\n";
        assert!(said.stderr.starts_with(told), "{said:?}");
        assert!(said.stderr.contains("hint: write it to a file and send the path"), "{said:?}");
        assert!(said.stderr.contains("reason: MESSAGE_TOO_LARGE"), "{said:?}");
    }
    let said = say_with(&daemon.home, &["agent", "attach", "echo"], &large);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains("this input has 5242880 bytes"), "{}", said.stdout);
}

/// Reads until a request comes: the frames of HTTP/2 up to the first that has headers.
fn take_request(mut connection: UnixStream) -> std::io::Result<()> {
    connection.read_exact(&mut [0; 24])?;
    loop {
        let mut head = [0; 9];
        connection.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        connection.read_exact(&mut vec![0; length as usize])?;
        if head[3] == 1 {
            return Ok(());
        }
    }
}

/// A daemon that drops the connection with each request is lost again and again.
#[test]
fn a_daemon_that_stays_lost_is_looked_for_in_peace_and_in_time() {
    let home = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(home.path().join("substratd.sock")).unwrap();
    let taken = Arc::new(AtomicUsize::new(0));
    let count = taken.clone();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            // A client may go before it asks.
            let _ = take_request(connection.unwrap());
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    for args in [&["agent", "send", "echo", "hi"][..], &["inbox", "--follow"]] {
        let before = taken.load(Ordering::SeqCst);
        let said = say(home.path(), &[args, &["--timeout", "2s"]].concat());
        assert!(matches!(said.code, Some(3 | 124)), "{said:?}");
        assert!(said.stderr.contains("daemon lost, reconnecting…"), "{said:?}");
        let attempts = taken.load(Ordering::SeqCst) - before;
        assert!((2..30).contains(&attempts), "{attempts}: {said:?}");
    }
}
