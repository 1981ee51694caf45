//! When samples come to [`super::Adaptive`], and which of them count.

use std::time::Duration;

use crate::time::Instant;

/// Longer than half a round trip and this is no time between reports but a pause.
const USUAL: Duration = Duration::from_millis(10);

/// When samples came, and which of them count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hearing {
    pub(super) last_sample: Option<Instant>,
    /// When packets last waited behind what this host had made up for.
    pub(super) made_up: Option<Instant>,
    /// Longest recent time between samples.
    pub(super) gap: Duration,
    pub(super) silences: u32,
    /// Rounds until loss and marks are judged again.
    pub(super) deaf: u32,
}

impl Hearing {
    /// A sample came.
    pub(super) fn on_sample(&mut self, now: Instant, min_rtt: Duration) {
        if let Some(last) = self.last_sample {
            let newest = now.since(last).min(min_rtt / 2 + USUAL);
            self.gap = newest.max(self.gap - self.gap / 16);
        }
        self.last_sample = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_no_time_between_reports() {
        let mut hearing = Hearing::default();
        for at in [1, 21, 521] {
            let at = Instant::from_nanos(1_000_000 * at);
            hearing.on_sample(at, Duration::from_millis(1000));
        }
        assert_eq!(hearing.gap, Duration::from_millis(500));
        hearing.on_sample(Instant::from_nanos(9_000_000_000), Duration::from_millis(1000));
        assert_eq!(hearing.gap, Duration::from_millis(510));
    }
}
