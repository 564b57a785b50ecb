//! The bounds of an answer. A server may be broken, or not mean well: what it sends is held in
//! memory, and is several times as long as JSON in the log.

use crate::model::FailureClass;
use crate::provider::Failure;

/// Most bytes of an answer: its texts, its thinking, and the names and arguments of its calls.
pub(super) const MAX_ANSWER: usize = 16 << 20;
/// Most calls of tools in an answer.
pub(super) const MAX_CALLS: usize = 128;

/// How far an answer has come.
#[derive(Debug, Default)]
pub(super) struct Room {
    bytes: usize,
    calls: usize,
}

impl Room {
    /// Counts bytes of the answer.
    ///
    /// # Errors
    ///
    /// The failure that an answer is which is too long.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), Failure> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_ANSWER {
            let most = MAX_ANSWER >> 20;
            return Err(beyond(&format!("is longer than {most} MiB")));
        }
        Ok(())
    }

    /// Counts a call.
    ///
    /// # Errors
    ///
    /// The failure that an answer is which calls too much.
    pub(super) fn take_call(&mut self) -> Result<(), Failure> {
        self.calls += 1;
        if self.calls > MAX_CALLS {
            return Err(beyond(&format!("holds more than {MAX_CALLS} calls of tools")));
        }
        Ok(())
    }
}

fn beyond(what: &str) -> Failure {
    let message = format!(
        "the server's answer {what}, and the connection was dropped: look at what runs there"
    );
    Failure::new(FailureClass::Protocol, message)
}
