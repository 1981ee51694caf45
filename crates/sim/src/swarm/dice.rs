//! A stream of draws.

use std::time::Duration;

use netblt_path::rng::{Probability, Rng};

/// A stream of draws.
pub(super) struct Dice(Rng);

impl Dice {
    pub(super) fn new(seed: u64, name: &str) -> Self {
        Self(Rng::named(seed, name))
    }

    pub(super) fn range(&mut self, low: u64, high: u64) -> u64 {
        self.0.range(low..=high.max(low))
    }

    /// A number from `low` to `high`, every power of two of it as likely as the others.
    pub(super) fn scale(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.max(1), high.max(low).max(1));
        let power = self.range(u64::from(low.ilog2()), u64::from(high.ilog2()));
        self.range((1 << power).max(low), (2 << power.min(62)).min(high))
    }

    pub(super) fn percent(&mut self, percent: u32) -> bool {
        self.0.chance(Probability::from_percent(percent))
    }

    pub(super) fn time(&mut self, low: Duration, high: Duration) -> Duration {
        Duration::from_nanos(self.scale(low.as_nanos() as u64, high.as_nanos() as u64))
    }

    /// A time somewhere within `whole`.
    pub(super) fn within(&mut self, whole: Duration) -> Duration {
        Duration::from_nanos(self.range(0, whole.as_nanos() as u64))
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.range(0, of.len() as u64 - 1) as usize]
    }
}
