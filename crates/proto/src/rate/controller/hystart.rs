//! HyStart++ (RFC 9406): slow start ends before the queue overflows, when round trips grow.

use std::time::Duration;

/// Round trips measured in a round before its smallest one is believed. RFC 9406 §4.3 has eight
/// acknowledgements; a receiver reports eight times a round trip, of which some are lost.
const RTT_SAMPLES: u32 = 4;
/// "MIN_RTT_THRESH" and "MAX_RTT_THRESH" (RFC 9406 §4.3).
const MIN_THRESHOLD: Duration = Duration::from_millis(4);
const MAX_THRESHOLD: Duration = Duration::from_millis(16);
/// "MIN_RTT_DIVISOR" (RFC 9406 §4.3).
const DIVISOR: u32 = 8;
/// "CSS_GROWTH_DIVISOR" (RFC 9406 §4.3).
const CONSERVATIVE_DIVISOR: f64 = 4.0;
/// "CSS_ROUNDS" (RFC 9406 §4.3).
const CONSERVATIVE_ROUNDS: u32 = 5;

/// What slow start does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Growth {
    /// The window grows by this share of what was acknowledged.
    Goes(f64),
    /// The path is full: congestion avoidance begins.
    Ends,
}

/// Conservative slow start: the growth of a round trip is under suspicion.
#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// "cssBaselineMinRtt" (RFC 9406 §4.2): below it the growth was no queue.
    baseline: Duration,
    rounds: u32,
}

/// The state of slow start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HyStart {
    round: u64,
    samples: u32,
    smallest: Option<Duration>,
    last_round: Option<Duration>,
    conservative: Option<Conservative>,
}

impl HyStart {
    /// A packet of `round` was reported with this round trip.
    pub(super) fn on_rtt(&mut self, round: u64, rtt: Option<Duration>) -> Growth {
        if round != self.round {
            self.begin_round(round);
        }
        if let Some(rtt) = rtt {
            self.samples += 1;
            self.smallest = Some(self.smallest.map_or(rtt, |least| least.min(rtt)));
        }
        if self.samples >= RTT_SAMPLES
            && let Some(smallest) = self.smallest
        {
            self.judge(smallest);
        }
        match self.conservative {
            None => Growth::Goes(1.0),
            Some(css) if css.rounds >= CONSERVATIVE_ROUNDS => Growth::Ends,
            Some(_) => Growth::Goes(1.0 / CONSERVATIVE_DIVISOR),
        }
    }

    fn begin_round(&mut self, round: u64) {
        if let Some(css) = &mut self.conservative {
            css.rounds += 1;
        }
        self.last_round = self.smallest.or(self.last_round);
        (self.round, self.samples, self.smallest) = (round, 0, None);
    }

    fn judge(&mut self, smallest: Duration) {
        match self.conservative {
            // "if currentRoundMinRTT < cssBaselineMinRtt [...] resume slow start" (RFC 9406 §4.2).
            Some(css) if smallest < css.baseline => self.conservative = None,
            Some(_) => {}
            None => {
                let Some(last) = self.last_round else { return };
                let threshold = (last / DIVISOR).clamp(MIN_THRESHOLD, MAX_THRESHOLD);
                if smallest >= last + threshold {
                    let baseline = smallest;
                    self.conservative = Some(Conservative { baseline, rounds: 0 });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Option<Duration> {
        Some(Duration::from_millis(n))
    }

    fn round(hystart: &mut HyStart, round: u64, rtt: u64) -> Growth {
        (0..8).map(|_| hystart.on_rtt(round, ms(rtt))).last().expect("eight")
    }

    #[test]
    fn slow_start_ends_five_rounds_after_the_round_trip_grew() {
        let mut hystart = HyStart::default();
        assert_eq!(round(&mut hystart, 1, 40), Growth::Goes(1.0));
        assert_eq!(round(&mut hystart, 2, 44), Growth::Goes(1.0), "less than an eighth");
        assert_eq!(round(&mut hystart, 3, 50), Growth::Goes(0.25));
        for n in 4..8 {
            assert_eq!(round(&mut hystart, n, 50), Growth::Goes(0.25), "{n}");
        }
        assert_eq!(round(&mut hystart, 8, 50), Growth::Ends);
    }

    #[test]
    fn a_round_trip_that_falls_again_was_no_queue() {
        let mut hystart = HyStart::default();
        round(&mut hystart, 1, 40);
        assert_eq!(round(&mut hystart, 2, 60), Growth::Goes(0.25));
        assert_eq!(round(&mut hystart, 3, 45), Growth::Goes(1.0));
    }

    #[test]
    fn a_round_with_few_measurements_decides_nothing() {
        let mut hystart = HyStart::default();
        round(&mut hystart, 1, 40);
        for _ in 0..3 {
            assert_eq!(hystart.on_rtt(2, ms(100)), Growth::Goes(1.0));
        }
        assert_eq!(hystart.on_rtt(2, None), Growth::Goes(1.0));
    }
}
