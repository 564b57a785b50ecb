//! When a turn that failed is tried again: bounded exponential backoff with jitter.

use std::time::Duration;

use super::Failure;
use crate::model::FailureClass;

/// How often and how soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Attempts at most, the first included.
    pub attempts: u32,
    /// Delay before the second attempt; doubles with each.
    pub first_delay: Duration,
    /// The same at least where the backend limits how often it is asked: many do not tell for how
    /// long.
    pub limit_delay: Duration,
    /// Longest delay, unless the backend asks for a longer one.
    pub max_delay: Duration,
    /// Longest delay that the backend may ask for. One that asks for more is not asked again.
    pub max_asked: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 4,
            first_delay: Duration::from_millis(500),
            limit_delay: Duration::from_secs(10),
            max_delay: Duration::from_secs(60),
            max_asked: Duration::from_secs(60),
        }
    }
}

impl Retry {
    /// The delay before the next attempt after `done` attempts; none if there is none. `jitter` is
    /// a number below 1 that spreads retries: the delay is between half and all of its length.
    ///
    /// What the backend asked for is honoured, or it is not asked again: a shorter wait would end at
    /// a closed door.
    pub fn delay(&self, failure: &Failure, done: u32, jitter: f64) -> Option<Duration> {
        let asked = failure.retry_after.unwrap_or_default();
        if !failure.class.may_pass() || done >= self.attempts || asked > self.max_asked {
            return None;
        }
        let first = match failure.class {
            FailureClass::RateLimit => self.first_delay.max(self.limit_delay),
            _ => self.first_delay,
        };
        let doubled = first.saturating_mul(1 << done.saturating_sub(1).min(20));
        let backoff = doubled.min(self.max_delay).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0);
        match failure.retry_after {
            Some(asked) if failure.class == FailureClass::RateLimit => {
                Some(asked.max(self.first_delay))
            }
            _ => Some(backoff.max(asked)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_bound_and_end() {
        let retry = Retry::default();
        let passing = Failure {
            class: FailureClass::Transient,
            message: String::new(),
            retry_after: Some(Duration::from_secs(3)),
        };
        let delay = |failure: &Failure, done| retry.delay(failure, done, 1.0);
        assert_eq!(delay(&passing, 1), Some(Duration::from_secs(3)), "asked for");
        let long = |seconds| Failure {
            retry_after: Some(Duration::from_secs(seconds)),
            ..passing.clone()
        };
        assert_eq!(delay(&long(60), 1), Some(Duration::from_secs(60)));
        assert_eq!(delay(&long(61), 1), None, "it would be asked too early");
        let passing = Failure { retry_after: None, ..passing };
        assert_eq!(delay(&passing, 1), Some(Duration::from_millis(500)));
        assert_eq!(delay(&passing, 3), Some(Duration::from_secs(2)));
        assert_eq!(delay(&passing, 4), None);
        assert_eq!(delay(&Failure::permanent("x"), 1), None);
        let limited = Failure { class: FailureClass::RateLimit, ..passing.clone() };
        assert_eq!(
            delay(&limited, 1),
            Some(Duration::from_secs(10)),
            "it does not say for how long"
        );
        assert_eq!(delay(&limited, 3), Some(Duration::from_secs(40)));
        let asked = Failure { retry_after: Some(Duration::from_secs(1)), ..limited };
        assert_eq!(delay(&asked, 2), Some(Duration::from_secs(1)));
        assert_eq!(retry.delay(&passing, 1, 0.0), Some(Duration::from_millis(250)));
    }
}
