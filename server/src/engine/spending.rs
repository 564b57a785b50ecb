//! How often what a turn uses is told to the log.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::Usage;

/// Reports of one attempt that are told at once, before others are told together.
const AT_ONCE: u32 = 64;
/// How long those are kept together that come after.
const TOGETHER: Duration = Duration::from_secs(1);

/// What an attempt at a turn used, and is not told yet: whoever reports without end fills no log.
pub(super) struct Spending {
    told: u32,
    /// When something was told last.
    last: Instant,
    kept: Usage,
}

impl Spending {
    pub(super) fn new() -> Self {
        Self { told: 0, last: Instant::now(), kept: Usage::default() }
    }

    /// Adds a report. Returns what is to be told now.
    pub(super) fn add(&mut self, usage: Usage) -> Option<Usage> {
        self.kept = self.kept.plus(usage);
        if self.told >= AT_ONCE && self.last.elapsed() < TOGETHER {
            return None;
        }
        (self.told, self.last) = (self.told.saturating_add(1), Instant::now());
        Some(self.rest())
    }

    /// What is not told yet.
    pub(super) fn rest(&mut self) -> Usage {
        std::mem::take(&mut self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_reports_are_told_together_and_none_is_lost() {
        let (mut spending, mut told) = (Spending::new(), Vec::new());
        let one = Usage { input_tokens: 1, ..Usage::default() };
        for _ in 0..10_000 {
            told.extend(spending.add(one));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(told.len() < 80, "{}", told.len());
        told.push(spending.rest());
        assert_eq!(told.iter().map(|usage| usage.input_tokens).sum::<u64>(), 10_000);
        assert_eq!(spending.rest(), Usage::default());
    }
}
