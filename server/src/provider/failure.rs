//! Kinds of failure of a backend, and how its words and codes tell them.

use std::time::Duration;

use super::Failure;
use crate::model::FailureClass;

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::EnumIter)]
pub enum FailureKind {
    /// Too many requests, or too many tokens in a time.
    RateLimit,
    /// The backend has trouble of its own, or too much to do.
    Overload,
    /// It cannot be reached, or the stream broke off.
    Network,
    /// It does not know who asks, or does not let them.
    Auth,
    /// It says that the request is wrong.
    InvalidRequest,
    /// The conversation does not fit the model any more.
    Overflow,
    /// A budget that the backend was given is used up.
    Budget,
    /// A limit of the backend was met: steps of a turn, or length of an answer.
    Limit,
    /// The model declined.
    Refused,
    /// The backend does not know the session that was to be resumed.
    Gone,
    /// The process ended before its turn did.
    Killed,
    /// A program that it runs is not there.
    Missing,
    /// The backend is there, and has no such model, or nothing at such an address.
    NotFound,
    /// What its section names is none of what it offers.
    Misconfigured,
    /// What it wrote is not the protocol.
    Protocol,
    /// It said nothing for too long.
    Stalled,
    /// The backend had trouble that it does not tell.
    Unclear,
    /// Anything else.
    Other,
}

impl FailureKind {
    /// The class under which it is told, which says what may be tried next.
    pub fn class(self) -> FailureClass {
        match self {
            Self::RateLimit => FailureClass::RateLimit,
            Self::Overload => FailureClass::Overload,
            Self::Network => FailureClass::Network,
            Self::Stalled => FailureClass::Stalled,
            Self::Unclear => FailureClass::Transient,
            Self::Auth => FailureClass::Auth,
            Self::InvalidRequest => FailureClass::InvalidRequest,
            Self::Protocol => FailureClass::Protocol,
            Self::Killed => FailureClass::Killed,
            Self::Missing | Self::NotFound | Self::Misconfigured => FailureClass::ProviderGone,
            Self::Overflow => FailureClass::Overflow,
            Self::Budget => FailureClass::Budget,
            Self::Limit | Self::Refused | Self::Gone | Self::Other => FailureClass::Permanent,
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RateLimit => "rate-limit",
            Self::Overload => "overload",
            Self::Network => "network",
            Self::Auth => "auth",
            Self::InvalidRequest => "invalid-request",
            Self::Overflow => "overflow",
            Self::Budget => "budget",
            Self::Limit => "limit",
            Self::Refused => "refused",
            Self::Gone => "gone",
            Self::Killed => "killed",
            Self::Missing => "missing",
            Self::NotFound => "not-found",
            Self::Misconfigured => "misconfigured",
            Self::Protocol => "protocol",
            Self::Stalled => "stalled",
            Self::Unclear => "unclear",
            Self::Other => "other",
        }
    }

    /// What an HTTP status of a model's endpoint means. None if it is no failure.
    pub fn of_status(status: i64) -> Option<Self> {
        match status {
            401..=403 => Some(Self::Auth),
            404 | 410 => Some(Self::NotFound),
            408 => Some(Self::Network),
            413 => Some(Self::Overflow),
            429 => Some(Self::RateLimit),
            400..=499 => Some(Self::InvalidRequest),
            500..=599 => Some(Self::Overload),
            _ => None,
        }
    }

    /// What the name of an error means that backends and endpoints use, in any spelling:
    /// `rate_limit_error`, `serverOverloaded`.
    pub fn of_name(name: &str) -> Option<Self> {
        let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
        Some(match name.to_ascii_lowercase().as_str() {
            "ratelimit" | "ratelimiterror" | "ratelimitexceeded" | "usagelimitexceeded" => {
                Self::RateLimit
            }
            "overloaded"
            | "overloadederror"
            | "serveroverloaded"
            | "servererror"
            | "apierror"
            | "internalservererror" => Self::Overload,
            "httpconnectionfailed"
            | "responsestreamconnectionfailed"
            | "responsestreamdisconnected"
            | "responsetoomanyfailedattempts"
            | "timeouterror" => Self::Network,
            "authenticationfailed"
            | "authenticationerror"
            | "permissionerror"
            | "billingerror"
            | "unauthorized" => Self::Auth,
            "invalidrequest" | "invalidrequesterror" | "badrequest" | "invalidprompt" => {
                Self::InvalidRequest
            }
            "notfounderror" | "modelnotfound" => Self::NotFound,
            "contextwindowexceeded" | "contextlengthexceeded" | "requesttoolarge" => Self::Overflow,
            "sessionbudgetexceeded" => Self::Budget,
            "maxoutputtokens" => Self::Limit,
            "cyberpolicy" | "biopolicy" | "misalignmentpolicyviolation" => Self::Refused,
            _ => return None,
        })
    }

    /// What the words of an error say. None if they say nothing that is known.
    pub fn of_text(text: &str) -> Option<Self> {
        const WORDS: &[(&str, FailureKind)] = &[
            // The daemon's own proxy, which a CLI may quote under another status.
            ("substrat: the name of", FailureKind::Network),
            ("proxy_tunnel", FailureKind::Network),
            ("fetch failed", FailureKind::Network),
            (OUT_OF_CREDIT, FailureKind::Auth),
            ("prompt is too long", FailureKind::Overflow),
            ("context_length_exceeded", FailureKind::Overflow),
            ("context window", FailureKind::Overflow),
            ("maximum context length", FailureKind::Overflow),
            ("exceed context limit", FailureKind::Overflow),
            ("exceeds the available context", FailureKind::Overflow),
            ("input is too long", FailureKind::Overflow),
            ("context exceeds model limit", FailureKind::Overflow),
            ("exceeds the maximum number of tokens", FailureKind::Overflow),
            ("too many tokens", FailureKind::Overflow),
            ("issue with the selected model", FailureKind::NotFound),
            ("is not a valid model", FailureKind::NotFound),
            ("model is not supported", FailureKind::NotFound),
            ("` does not exist", FailureKind::NotFound),
            ("is not found for api version", FailureKind::NotFound),
            ("try pulling it first", FailureKind::NotFound),
            ("no conversation found", FailureKind::Gone),
            ("no rollout found", FailureKind::Gone),
            ("rate limit", FailureKind::RateLimit),
            ("too many requests", FailureKind::RateLimit),
            ("usage limit", FailureKind::RateLimit),
            ("exceeded your current quota", FailureKind::RateLimit),
            ("quota exceeded", FailureKind::RateLimit),
            ("overloaded", FailureKind::Overload),
            ("internal server error", FailureKind::Overload),
            ("had an error while processing", FailureKind::Overload),
            ("service unavailable", FailureKind::Overload),
            ("bad gateway", FailureKind::Overload),
            ("high demand", FailureKind::Overload),
            ("invalid api key", FailureKind::Auth),
            ("incorrect api key", FailureKind::Auth),
            ("api key not valid", FailureKind::Auth),
            ("invalid x-api-key", FailureKind::Auth),
            ("missing environment variable", FailureKind::Auth),
            ("unauthorized", FailureKind::Auth),
            ("not logged in", FailureKind::Auth),
            ("stream disconnected", FailureKind::Network),
            ("connection refused", FailureKind::Network),
            ("connection error", FailureKind::Network),
            ("connection to the api was lost", FailureKind::Network),
            ("cannot connect to api", FailureKind::Network),
            ("connection reset", FailureKind::Network),
            ("connection dropped", FailureKind::Network),
            ("econnreset", FailureKind::Network),
            // A stream that broke off, and was not whole when it was asked for again.
            ("empty or malformed response", FailureKind::Network),
        ];
        let lower = text.to_lowercase();
        let said = |found: &[FailureKind]| {
            WORDS
                .iter()
                .find(|(words, kind)| {
                    (found.is_empty() || found.contains(kind)) && lower.contains(words)
                })
                .map(|(_, kind)| *kind)
        };
        // A status says less than these words: a request that is too long has status 400, and so
        // may one for a model that is not there.
        said(&[Self::Overflow, Self::Gone, Self::NotFound])
            .or_else(|| status_in(&lower).and_then(Self::of_status))
            .or_else(|| said(&[]))
    }
}

/// What is said where the account has no money left.
const OUT_OF_CREDIT: &str = "credit balance is too low";

/// The HTTP status that an error's words name.
fn status_in(lower: &str) -> Option<i64> {
    ["api error: ", "status: ", "status ", "(", "http "].iter().find_map(|before| {
        lower.match_indices(before).find_map(|(at, _)| {
            let rest = &lower[at + before.len()..];
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let status: i64 = (digits == 3).then(|| rest[..3].parse().ok())??;
            (400..600).contains(&status).then_some(status)
        })
    })
}

/// How long an error's words ask to wait: `try again in 11.05s`.
fn wait_in(text: &str) -> Option<Duration> {
    let lower = text.to_lowercase();
    let rest = lower.split_once("try again in ")?.1;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let number: f64 = rest[..end].parse().ok()?;
    let unit = rest[end..].trim_start();
    let seconds = match unit.as_bytes() {
        [b'm', b's', ..] => number / 1000.0,
        [b'm', ..] => number * 60.0,
        [b'h', ..] => number * 3600.0,
        [b's', ..] => number,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// The line of these words that says that a program was not there to be started, as Node.js, shells
/// and the adapters of CLIs say it.
pub(super) fn missing_program(words: &str) -> Option<&str> {
    const SAID: &[&str] = &[
        "claude native binary not found",
        "claude native binary not installed",
        "claude code native binary not found",
        "claude code executable not found",
        "cannot find module '@openai/codex",
        "missing optional dependency @openai/codex",
        ": command not found",
    ];
    words.lines().map(str::trim).find(|line| {
        let line = line.to_lowercase();
        let spawned = line.split_once("spawn ").map(|(_, rest)| rest);
        SAID.iter().any(|said| line.contains(said))
            || spawned.is_some_and(|rest| rest.contains(" enoent"))
    })
}

/// The words of an endpoint that refused, if its answer stands in the place of words.
pub(super) fn body(message: &str) -> Option<String> {
    let body = serde_json::from_str::<serde_json::Value>(message).ok()?;
    body.get("error")?.get("message")?.as_str().map(str::to_owned)
}

/// A failure of a turn or a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// Its kind.
    pub kind: FailureKind,
    /// What happened, in the backend's words.
    pub message: String,
    /// How long the backend asked to be left alone.
    pub retry_after: Option<Duration>,
}

impl Failed {
    /// A failure of a kind.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        let message = message.into();
        // Anthropic refuses as wrong what is not paid for: elsewhere it would be right.
        let is_unpaid = || message.to_lowercase().contains(OUT_OF_CREDIT);
        let kind = match kind {
            FailureKind::InvalidRequest if is_unpaid() => FailureKind::Auth,
            kind => kind,
        };
        let retry_after = kind.class().may_pass().then(|| wait_in(&message)).flatten();
        Self { kind, message, retry_after }
    }

    /// What words say of themselves, and of the kind that is given if they say nothing.
    pub fn of_text(message: impl Into<String>, otherwise: FailureKind) -> Self {
        let message = message.into();
        Self::new(FailureKind::of_text(&message).unwrap_or(otherwise), message)
    }

    /// A process whose output ended before its turn was done.
    pub fn ended() -> Self {
        Self::new(FailureKind::Killed, "its output ended before its turn was done")
    }
}

impl From<Failed> for Failure {
    fn from(failed: Failed) -> Self {
        Self {
            class: failed.kind.class(),
            message: failed.message,
            retry_after: failed.retry_after,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_what_went_wrong() {
        for (text, kind) in [
            ("API Error: 400 fake 400", Some(FailureKind::InvalidRequest)),
            ("API Error: 400 prompt is too long: 210000 tokens", Some(FailureKind::Overflow)),
            ("API Error: Request rejected (429) · fake 429", Some(FailureKind::RateLimit)),
            (
                "The input token count (9) exceeds the maximum number of tokens allowed (8).",
                Some(FailureKind::Overflow),
            ),
            ("unexpected status 401 Unauthorized: x", Some(FailureKind::Auth)),
            (
                "exceeded retry limit, last status: 429 Too Many Requests",
                Some(FailureKind::RateLimit),
            ),
            ("stream disconnected before completion: x", Some(FailureKind::Network)),
            ("unexpected status 404 Not Found: no", Some(FailureKind::NotFound)),
            ("There's an issue with the selected model (x).", Some(FailureKind::NotFound)),
            (
                "The model `x` does not exist or you do not have access to it.",
                Some(FailureKind::NotFound),
            ),
            ("API Error: 400 x is not a valid model ID", Some(FailureKind::NotFound)),
            ("We’re currently experiencing high demand", Some(FailureKind::Overload)),
            ("Connection to the API was lost (ECONNRESET)", Some(FailureKind::Network)),
            ("API Error: Connection dropped (ECONNRESET)", Some(FailureKind::Network)),
            (
                "API returned an empty or malformed response (HTTP 200): stream_truncated",
                Some(FailureKind::Network),
            ),
            ("Incorrect API key provided: x", Some(FailureKind::Auth)),
            ("The server had an error while processing your request", Some(FailureKind::Overload)),
            ("You exceeded your current quota", Some(FailureKind::RateLimit)),
            ("Your credit balance is too low to access the API", Some(FailureKind::Auth)),
            ("Couldn't connect through your proxy (ERR_PROXY_TUNNEL)", Some(FailureKind::Network)),
            ("Bad Gateway: substrat: the name of x:443 was not found", Some(FailureKind::Network)),
            ("it read 400 lines (1234)", None),
            ("", None),
        ] {
            assert_eq!(FailureKind::of_text(text), kind, "{text}");
        }
    }

    #[test]
    fn a_program_is_missing_where_starting_it_found_none() {
        for line in [
            "Claude Code native binary not found at /nowhere/claude. Please ensure that",
            "Claude native binary not found for linux-x64. Reinstall it",
            "Error: Cannot find module '@openai/codex/bin/codex.js'",
            "Error: Missing optional dependency @openai/codex-linux-x64. Reinstall Codex",
            "The Codex app-server could not be started (spawn /nowhere/codex ENOENT).",
            "agent: line 3: claude: command not found",
        ] {
            assert_eq!(missing_program(&format!("hello\n  {line}\n")), Some(line));
        }
        for other in [
            "",
            "ENOENT: no such file or directory, open '/workspace/a'",
            "spawn E2BIG\nENOENT",
            "session not found",
            "Cannot find module './a'",
        ] {
            assert_eq!(missing_program(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_not_paid_for_is_not_wrong() {
        let kind = |words: &str| Failed::new(FailureKind::InvalidRequest, words).kind;
        assert_eq!(kind("Credit balance is too low"), FailureKind::Auth);
        assert_eq!(kind("max_tokens is too large"), FailureKind::InvalidRequest);
    }

    #[test]
    fn an_asked_wait_is_honoured_only_where_waiting_helps() {
        let wait = |text: &str, kind| Failed::new(kind, text).retry_after;
        let text = "Rate limit reached. Please try again in 11.5s.";
        assert_eq!(wait(text, FailureKind::RateLimit), Some(Duration::from_millis(11_500)));
        assert_eq!(
            wait("try again in 20ms", FailureKind::Overload),
            Some(Duration::from_millis(20))
        );
        assert_eq!(
            wait("try again in 2 minutes", FailureKind::Network),
            Some(Duration::from_secs(120))
        );
        assert_eq!(wait(text, FailureKind::Auth), None);
        assert_eq!(wait("try again in 9e99s", FailureKind::Network), None);
        assert_eq!(wait("try again in ...s", FailureKind::Network), None);
    }
}
