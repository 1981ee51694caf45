//! When samples come to [`super::Adaptive`], and which of them count.

use std::time::Duration;

use crate::time::Instant;

/// Longer than half a round trip and this is no time between reports but a pause.
const USUAL: Duration = Duration::from_millis(10);
/// So many long times between samples in a row, each of so many smallest round trips and longer
/// than any packet is waited for, are no pauses: the receiver reports that seldom.
const STEADY_GAPS: usize = 4;
const SELDOM_ROUND_TRIPS: u32 = 2;
const SELDOM_TIME: Duration = Duration::from_millis(100);

/// When samples came, and which of them count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hearing {
    pub(super) last_sample: Option<Instant>,
    /// When packets last waited behind what this host had made up for.
    pub(super) made_up: Option<Instant>,
    /// Longest recent time between samples.
    pub(super) gap: Duration,
    /// The newest times between samples, none where no report was to come sooner.
    gaps: [Duration; STEADY_GAPS],
    pub(super) silences: u32,
    /// Rounds until loss and marks are judged again.
    pub(super) deaf: u32,
}

impl Hearing {
    /// A sample came; before it reports were to come all the time if `told`.
    pub(super) fn on_sample(&mut self, now: Instant, min_rtt: Duration, told: bool) {
        if let Some(last) = self.last_sample {
            let newest = now.since(last);
            self.gaps.rotate_right(1);
            self.gaps[0] = if told { newest } else { Duration::ZERO };
            let most = (min_rtt / 2 + USUAL).max(self.steady_gap(min_rtt));
            self.gap = newest.min(most).max(self.gap - self.gap / 16);
        }
        self.last_sample = Some(now);
    }

    /// How far apart samples are where none comes sooner: a receiver measures the round trip by few
    /// messages, and may take it for much longer than it is.
    fn steady_gap(&self, min_rtt: Duration) -> Duration {
        let least = self.gaps.into_iter().min().unwrap_or_default();
        let seldom = min_rtt * SELDOM_ROUND_TRIPS + SELDOM_TIME;
        if least > seldom { least } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap_after(times_ms: &[(u64, bool)]) -> Duration {
        let mut hearing = Hearing::default();
        for (at, told) in times_ms {
            let at = Instant::from_nanos(1_000_000 * at);
            hearing.on_sample(at, Duration::from_millis(40), *told);
        }
        hearing.gap
    }

    #[test]
    fn a_pause_is_no_gap_and_four_alike_are() {
        let usual = Duration::from_millis(30);
        assert_eq!(gap_after(&[(1, true), (501, true)]), usual);
        let steady = [1, 501, 1001, 1501, 2001].map(|at| (at, true));
        assert_eq!(gap_after(&steady[..4]), usual);
        assert_eq!(gap_after(&steady), Duration::from_millis(500));
        let idle = steady.map(|(at, _)| (at, false));
        assert_eq!(gap_after(&idle), usual, "nothing was sent that could have been told of");
    }

    #[test]
    fn it_is_forgotten_when_reports_come_sooner() {
        let mut times: Vec<_> = (0..5).map(|n| (1 + n * 500, true)).collect();
        times.extend((0..100).map(|n| (2006 + n * 5, true)));
        assert_eq!(gap_after(&times), Duration::from_millis(5));
    }
}
