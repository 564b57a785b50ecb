//! How an error travels: a gRPC status with `google.rpc.ErrorInfo` in its details.
#![allow(clippy::disallowed_types, reason = "tonic-types has its metadata in a HashMap")]

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The domain of every `ErrorInfo` of this schema.
pub const DOMAIN: &str = "substrat";

/// An error as client and server see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The canonical code.
    pub code: Code,
    /// The reason, such as `AGENT_NOT_FOUND`; each has a page under `docs/errors/`. Empty when a
    /// status came from elsewhere and has none.
    pub reason: String,
    /// What failed and why, in a sentence.
    pub message: String,
    /// What to do next, in a sentence; empty when there is nothing to say.
    pub hint: String,
    /// How long to wait before a retry can help, where that is known.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// An error with a reason and without a hint.
    pub fn new(code: Code, reason: impl Into<String>, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.into(), message.into());
        Self { code, reason, message, hint: String::new(), retry_after: None }
    }

    /// The same with a hint what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let mut metadata = HashMap::new();
        if !refusal.hint.is_empty() {
            metadata.insert("hint".to_owned(), refusal.hint);
        }
        let mut details = ErrorDetails::with_error_info(refusal.reason, DOMAIN, metadata);
        if let Some(delay) = refusal.retry_after {
            details.set_retry_info(Some(delay));
        }
        Self::with_error_details(refusal.code, refusal.message, details)
    }
}

impl From<&Status> for Refusal {
    fn from(status: &Status) -> Self {
        let mut refusal = Self::new(status.code(), "", status.message());
        let Ok(details) = status.check_error_details() else { return refusal };
        if let Some(info) = details.error_info().filter(|info| info.domain == DOMAIN) {
            refusal.reason.clone_from(&info.reason);
            refusal.hint = info.metadata.get("hint").cloned().unwrap_or_default();
        }
        refusal.retry_after = details.retry_info().and_then(|retry| retry.retry_delay);
        refusal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_survives_the_wire() {
        let mut sent = Refusal::new(Code::NotFound, "AGENT_NOT_FOUND", "no agent \"x\"").hint("y");
        sent.retry_after = Some(Duration::from_millis(1500));
        assert_eq!(Refusal::from(&Status::from(sent.clone())), sent);
    }

    #[test]
    fn a_foreign_status_has_no_reason() {
        let refusal = Refusal::from(&Status::unavailable("gone"));
        assert_eq!((refusal.code, refusal.reason.as_str()), (Code::Unavailable, ""));
    }
}
