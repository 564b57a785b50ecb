//! Which provider is asked at which attempt at a turn.
//!
//! The session's own is asked as often as its settings allow, then each of those that stand in
//! for it. A provider that stands in holds the turn and nothing else: it is told the conversation
//! so far, its session ends with the turn, and the next turn begins with the session's own again.

use std::sync::Arc;
use std::time::Duration;

use crate::provider::Failure;
use crate::provider::registry::{Providers, split_fallback};
use crate::provider::retry::Retry;

/// Longest wait that the last one of a chain may ask for.
const MAX_ASKED: Duration = Duration::from_secs(15 * 60);
/// Bytes that are told of a failure before the last one.
const MAX_BEFORE: usize = 400;

/// One that can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    /// The provider.
    pub(super) provider: Arc<str>,
    /// The model; none for the provider's default.
    pub(super) model: Option<Arc<str>>,
    /// How often it is asked.
    attempts: u32,
}

/// The attempt that comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Next {
    /// The pause before it.
    pub(super) delay: Duration,
    /// The provider that is asked, if it is not the one that failed.
    pub(super) provider: Option<Arc<str>>,
}

/// The attempts at a turn.
#[derive(Debug)]
pub(super) struct Attempts {
    chain: Vec<Link>,
    at: usize,
    /// How often the one that is asked was asked.
    asked: u32,
    /// How those failed for whom it stands in.
    before: Vec<Failure>,
    /// How many attempts there were.
    pub(super) count: u32,
}

impl Attempts {
    /// The attempts at a turn of a session with this provider, one of these.
    pub(super) fn of(provider: &Arc<str>, model: Option<&Arc<str>>, all: &Providers) -> Self {
        let attempts = |name: &str| {
            let usual = Retry::default().attempts;
            all.get(name).map_or(usual, |entry| entry.common.attempts)
        };
        let own = Link {
            provider: provider.clone(),
            model: model.cloned(),
            attempts: attempts(provider),
        };
        let others = all.get(provider).map_or(&[][..], |entry| &entry.common.fallback);
        let others = others.iter().map(|text| {
            let (name, model) = split_fallback(text);
            Link { provider: name.into(), model: model.map(Arc::from), attempts: attempts(name) }
        });
        Self::new(std::iter::once(own).chain(others).collect())
    }

    fn new(chain: Vec<Link>) -> Self {
        Self { chain, at: 0, asked: 1, before: Vec::new(), count: 1 }
    }

    /// Who stands in at this attempt; none for the session's own.
    pub(super) fn stand_in(&self) -> Option<&Link> {
        self.chain.get(self.at).filter(|_| self.at > 0)
    }

    /// The attempt after one that failed; none if there is none. `anew` says that the one that is
    /// asked begins its conversation anew, without what it failed for. `jitter` is a number below
    /// 1.
    pub(super) fn next(&mut self, failure: &Failure, anew: bool, jitter: f64) -> Option<Next> {
        let attempts = self.chain.get(self.at)?.attempts;
        let usual = Retry::default();
        // Where another one can be asked, nobody waits for long.
        let is_last = self.at + 1 == self.chain.len();
        let max_asked = if is_last { MAX_ASKED } else { usual.max_asked };
        let limit_delay = if is_last { usual.limit_delay } else { Duration::ZERO };
        let retry = Retry { attempts, max_asked, limit_delay, ..usual };
        let at_once = (anew && self.asked < attempts).then_some(Duration::ZERO);
        let next = match at_once.or_else(|| retry.delay(failure, self.asked, jitter)) {
            Some(delay) => {
                self.asked += 1;
                Next { delay, provider: None }
            }
            None if failure.class.may_fall_back() => {
                let provider = Some(self.chain.get(self.at + 1)?.provider.clone());
                (self.at, self.asked) = (self.at + 1, 1);
                self.before.push(failure.clone());
                Next { delay: Duration::ZERO, provider }
            }
            None => return None,
        };
        self.count += 1;
        Some(next)
    }

    /// The failure of the last attempt, with who made it and how those failed before it, if there
    /// was more than one.
    pub(super) fn told(&self, mut last: Failure) -> Failure {
        if let Some(wait) =
            last.retry_after.filter(|wait| (MAX_ASKED..Duration::MAX).contains(wait))
        {
            let minutes = wait.as_secs().div_ceil(60);
            last.message += &format!("; it asks to be left alone for {minutes} minutes");
        }
        let mut message = String::new();
        for (link, Failure { class, message: why, .. }) in self.chain.iter().zip(&self.before) {
            let cut = &why[..why.floor_char_boundary(MAX_BEFORE)];
            let more = if cut.len() < why.len() { "…" } else { "" };
            let stood_in = if message.is_empty() { "" } else { " stood in and" };
            let class = class.as_str();
            message += &format!("{}{stood_in} failed ({class}): {cut}{more}\n", link.provider);
        }
        match self.stand_in() {
            None => last,
            Some(Link { provider, .. }) => {
                message += &format!("{provider} stood in and failed: {}", last.message);
                Failure { message, ..last }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FailureClass;

    fn attempts(chain: &[(&str, u32)]) -> Attempts {
        let link = |(name, attempts): &(&str, u32)| Link {
            provider: (*name).into(),
            model: None,
            attempts: *attempts,
        };
        Attempts::new(chain.iter().map(link).collect())
    }

    fn course(chain: &[(&str, u32)], class: FailureClass) -> Vec<Option<String>> {
        let (mut attempts, failure) = (attempts(chain), Failure::new(class, "no"));
        let next = || attempts.next(&failure, false, 0.5).map(|next| next.provider);
        std::iter::from_fn(next).map(|provider| provider.map(|p| p.to_string())).collect()
    }

    #[test]
    fn who_asks_for_a_long_wait_gets_it_or_is_not_asked_again() {
        let next = |chain: &[(&str, u32)], seconds: u64| {
            let mut failure = Failure::new(FailureClass::RateLimit, "no");
            failure.retry_after = Some(Duration::from_secs(seconds));
            let next = attempts(chain).next(&failure, false, 0.5)?;
            Some((next.delay.as_secs(), next.provider.map(|name| name.to_string())))
        };
        let (alone, both) = ([("own", 3)], [("own", 3), ("a", 1)]);
        assert_eq!(next(&both, 60), Some((60, None)));
        assert_eq!(next(&both, 300), Some((0, Some("a".to_owned()))));
        assert_eq!(next(&alone, 300), Some((300, None)));
        assert_eq!(next(&alone, 900), Some((900, None)));
        assert_eq!(next(&alone, 901), None);
        assert_eq!(next(&both, u64::MAX), Some((0, Some("a".to_owned()))));
        assert_eq!(next(&alone, u64::MAX), None);
    }

    #[test]
    fn a_wait_that_is_too_long_is_told() {
        let mut failure = Failure::new(FailureClass::RateLimit, "no");
        for (seconds, told) in
            [(2, "no"), (1150, "no; it asks to be left alone for 20 minutes"), (u64::MAX, "no")]
        {
            let asked = Duration::from_secs(seconds);
            failure.retry_after = Some(if seconds == u64::MAX { Duration::MAX } else { asked });
            assert_eq!(attempts(&[("own", 1)]).told(failure.clone()).message, told);
        }
    }

    #[test]
    fn the_last_failure_names_who_made_it_and_those_before() {
        let mut attempts = attempts(&[("own", 2), ("a", 1), ("b", 1)]);
        let failure = |class, why: &str| Failure::new(class, why);
        let (network, auth) = (FailureClass::Network, FailureClass::Auth);
        assert!(attempts.next(&failure(network, "x"), false, 0.5).is_some());
        let alone = failure(auth, "no");
        assert_eq!(attempts.told(alone.clone()), alone);
        assert!(attempts.next(&alone, false, 0.5).is_some());
        assert!(attempts.next(&failure(network, &"é".repeat(MAX_BEFORE)), false, 0.5).is_some());
        let last = attempts.told(failure(auth, "nor here"));
        let cut = "é".repeat(MAX_BEFORE / 2);
        let told = format!(
            "own failed (auth): no\na stood in and failed (network): {cut}…\n\
             b stood in and failed: nor here"
        );
        assert_eq!((last.class, last.message), (auth, told));
    }

    #[test]
    fn who_begins_anew_is_asked_before_others() {
        let mut attempts = attempts(&[("own", 3), ("a", 1)]);
        let long = Failure::new(FailureClass::Overflow, "too long");
        let mut next =
            |anew| attempts.next(&long, anew, 0.5).map(|next| (next.delay, next.provider));
        let at_once = |provider: Option<&str>| Some((Duration::ZERO, provider.map(Arc::from)));
        assert_eq!([next(true), next(true)], [at_once(None), at_once(None)]);
        assert_eq!([next(true), next(false)], [at_once(Some("a")), None]);
    }

    #[test]
    fn each_is_asked_as_often_as_it_may_be_and_then_the_next() {
        use FailureClass as Is;
        let chain = [("own", 3), ("a", 1), ("b", 2)];
        let to = |name: &str| Some(name.to_owned());
        assert_eq!(course(&chain, Is::RateLimit), [None, None, to("a"), to("b"), None]);
        assert_eq!(course(&chain, Is::Auth), [to("a"), to("b")]);
        assert_eq!(course(&chain, Is::InvalidRequest), []);
        assert_eq!(course(&[("own", 1)], Is::Network), []);
    }
}
