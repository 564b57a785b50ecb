//! The daemon's own log: lines for people, to stderr or to `substratd.log` in the home.
#![allow(clippy::disallowed_methods, reason = "the log is no file of the journal")]

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::ChronoUtc;

/// From this size on a log is put aside when a daemon starts.
const MAX_BYTES: u64 = 8 << 20;

/// Logs from here on to a file, or to stderr.
pub(super) fn start(level: &str, file: Option<File>) {
    let filter = EnvFilter::new(format!("{level},h2=warn,hyper=warn,tower=warn"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_timer(ChronoUtc::rfc_3339())
        .with_target(false)
        // What cannot be written would be told on stderr, which is the same full disk; a panic
        // there would wait for the log that it holds.
        .log_internal_errors(false);
    let started = match file {
        Some(file) => builder.with_ansi(false).with_writer(Mutex::new(BestEffort(file))).try_init(),
        None => builder.with_ansi(false).with_writer(io::stderr).try_init(),
    };
    // Only a test that starts two daemons in one process meets a second one.
    let _ = started;
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!(%panic, "a thread panicked");
    }));
}

/// A log that loses lines where the disk takes none, and stops nothing by it.
struct BestEffort(File);

impl Write for BestEffort {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let _ = self.0.write_all(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens the log of a home; one that has grown large becomes `substratd.log.1`.
pub(super) fn open(home: &Path) -> io::Result<File> {
    let path = home.join("substratd.log");
    if path.metadata().is_ok_and(|found| found.len() > MAX_BYTES) {
        std::fs::rename(&path, home.join("substratd.log.1"))?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_does_not_stop_whoever_logs() {
        // A device that is always full.
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut log = BestEffort(full);
        assert_eq!(log.write(b"line").unwrap(), 4);
        log.flush().unwrap();
    }
}
