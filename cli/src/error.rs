//! What can go wrong, as a person or a script sees it: a message, a hint, an exit code.

use substrat_proto::Refusal;
use tonic::{Code, Status};

/// Kinds of failure; each is an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Something failed.
    Failed,
    /// The daemon is not reachable.
    Unreachable,
    /// What was named is not there.
    NotFound,
    /// It exists already, or stands in a state that forbids it.
    Conflict,
    /// The input makes no sense.
    Invalid,
    /// A resource is used up.
    Exhausted,
    /// It is not allowed.
    Denied,
    /// It took too long.
    TimedOut,
    /// It was interrupted.
    Interrupted,
    /// A command that was run ended with this code; it has said what it had to say.
    Exited(u8),
}

/// A failure.
#[derive(Debug, Clone)]
pub(crate) struct Error {
    pub(crate) kind: Kind,
    /// What failed and why.
    pub(crate) message: String,
    /// What to do next; empty when there is nothing to say.
    pub(crate) hint: String,
    /// The daemon's reason, such as `AGENT_NOT_FOUND`; empty where this side failed.
    pub(crate) reason: String,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let (message, hint) = (message.into(), hint.into());
        Self { kind, message, hint, reason: String::new() }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Kind::Failed, message, "")
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message, "")
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        let hint = "start it with \"substratctl daemon start\", or give --start";
        Self::new(Kind::Unreachable, message, hint)
    }

    /// A command that was run ended with a code.
    pub(crate) fn exited(code: u8) -> Self {
        Self::new(Kind::Exited(code), "", "")
    }

    /// There was no answer within the time that the caller gave.
    pub(crate) fn late() -> Self {
        let hint = "give more time with --timeout; what was begun goes on in the daemon";
        Self::new(Kind::TimedOut, "no answer in time", hint)
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Failed => 1,
            Kind::Unreachable => 3,
            Kind::NotFound => 4,
            Kind::Conflict => 5,
            Kind::Invalid => 6,
            Kind::Exhausted => 7,
            Kind::Denied => 8,
            Kind::TimedOut => 124,
            Kind::Interrupted => 130,
            Kind::Exited(code) => code,
        }
    }
}

/// Whether a call failed because the daemon went away, so that trying again may help.
pub(crate) fn is_lost(status: &Status) -> bool {
    let wire = Refusal::from(status);
    match status.code() {
        _ if is_late(status) => false,
        // What the daemon itself refuses has a reason.
        Code::Unavailable => wire.reason.is_empty() || wire.reason == "DRAINING",
        Code::Unknown | Code::Cancelled | Code::Internal => {
            let failed_here = std::error::Error::source(status).is_some();
            wire.reason.is_empty() && failed_here && !is_late(status)
        }
        _ => false,
    }
}

/// Whether there was no answer within the time that the caller gave.
fn is_late(status: &Status) -> bool {
    // Only this side says "Timeout expired": the timeout is a flag of the command.
    status.code() == Code::DeadlineExceeded
        || (status.code() == Code::Cancelled && status.message().contains("Timeout"))
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        if is_lost(&status) && Refusal::from(&status).reason.is_empty() {
            return Self::unreachable("the daemon went away while it was asked");
        }
        let wire = Refusal::from(&status);
        let kind = match wire.code {
            Code::NotFound => Kind::NotFound,
            Code::AlreadyExists | Code::FailedPrecondition => Kind::Conflict,
            Code::InvalidArgument | Code::OutOfRange => Kind::Invalid,
            Code::ResourceExhausted => Kind::Exhausted,
            Code::PermissionDenied | Code::Unauthenticated => Kind::Denied,
            Code::DeadlineExceeded => Kind::TimedOut,
            Code::Unavailable => Kind::Unreachable,
            _ => Kind::Failed,
        };
        if is_late(&status) {
            return Self::late();
        }
        Self { kind, message: wire.message, hint: wire.hint, reason: wire.reason }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed_here(code: Code, message: &str) -> Status {
        let mut status = Status::new(code, message);
        status.set_source(std::sync::Arc::new(std::io::Error::other("the connection")));
        status
    }

    #[test]
    fn a_timeout_is_not_a_lost_daemon() {
        let late = failed_here(Code::Cancelled, "Timeout expired");
        assert!(!is_lost(&late));
        assert_eq!(Error::from(late).exit_code(), 124);
        assert!(is_lost(&failed_here(Code::Cancelled, "operation was canceled")));
    }
}
