//! Time as the core sees it: an integer handed in by the caller, never read from a clock.

use std::ops::{Add, AddAssign};
use std::time::Duration;

/// A point in time, in nanoseconds since an epoch that the caller chooses.
///
/// The real driver's epoch is the start of the process; the virtual world's is its own beginning.
/// Arithmetic saturates: the last representable instant (584 years) means "never".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The beginning of time.
    pub const EPOCH: Self = Self(0);
    /// Later than anything that happens.
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the epoch.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the epoch, for people and plots.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Time passed since `earlier`; zero when `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This instant moved back by `by`; the epoch at the earliest.
    #[inline]
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(by)))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    #[inline]
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl AddAssign<Duration> for Instant {
    #[inline]
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

/// A duration in nanoseconds, saturating.
#[inline]
pub fn nanos(duration: Duration) -> u64 {
    let whole = duration.as_secs().saturating_mul(1_000_000_000);
    whole.saturating_add(u64::from(duration.subsec_nanos()))
}

/// A duration in whole microseconds, saturating at `u32::MAX` (71 minutes).
pub fn micros_u32(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

/// The earliest of several optional deadlines.
#[inline]
pub fn earliest(deadlines: impl IntoIterator<Item = Option<Instant>>) -> Option<Instant> {
    let mut earliest = Instant::NEVER;
    let mut any = false;
    for at in deadlines.into_iter().flatten() {
        earliest = earliest.min(at);
        any = true;
    }
    any.then_some(earliest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Instant::EPOCH.before(Duration::from_secs(1)), Instant::EPOCH);
        assert_eq!(Instant::NEVER + Duration::MAX, Instant::NEVER);
        assert_eq!(Instant::EPOCH.since(Instant::NEVER), Duration::ZERO);
    }

    #[test]
    fn earliest_ignores_timers_that_are_not_set() {
        let (a, b) = (Instant::from_nanos(5), Instant::from_nanos(3));
        assert_eq!(earliest([Some(a), None, Some(b)]), Some(b));
        assert_eq!(earliest([None, None]), None);
    }
}
