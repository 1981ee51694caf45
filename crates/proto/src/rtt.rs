//! Round trip time estimation (RFC 6298), and the timers derived from it.

use std::time::Duration;

/// The control timer before anything was measured (RFC 998 §5.2.1 leaves it arbitrary).
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// No timer is shorter: finer than this, a busy host's own delays would fire it.
const MIN_TIMEOUT: Duration = Duration::from_millis(5);
/// Assumed round trip before a measurement.
const UNKNOWN: Duration = Duration::from_millis(100);
/// Longest timer after back-off, unless four round trips are longer: a path that recovers is
/// noticed this soon (`docs/protocol §6.2`).
const MAX_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest report interval before a measurement. The time of a handshake with repetitions says
/// little of the path, and a sender that waits as long for reports takes each pause for an outage.
const MAX_UNMEASURED_INTERVAL: Duration = Duration::from_millis(125);
/// A round trip longer than this is taken for a fault of the measurement.
const MAX_RTT: Duration = Duration::from_secs(60);

/// Smoothed round trip time and deviation, with the constants of RFC 6298.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RttEstimator {
    smoothed: Option<Duration>,
    deviation: Duration,
    smallest: Option<Duration>,
    /// Upper bound before a measurement.
    longest: Option<Duration>,
    expiries: u32,
    /// Acknowledgements are piggybacked on whatever the peer sends next.
    piggybacked: bool,
    /// [`Self::timeout`] and [`Self::report_interval`], which are asked for far more often than
    /// they change.
    timeout: Duration,
    report_interval: Duration,
}

impl RttEstimator {
    /// Starts from the handshake: a measurement, or only an upper bound if packets were repeated.
    pub(crate) fn new(measured: Option<Duration>, longest: Option<Duration>) -> Self {
        let mut new = Self {
            smoothed: None,
            deviation: Duration::ZERO,
            smallest: None,
            longest: longest.map(|rtt| rtt.min(MAX_RTT)),
            expiries: 0,
            piggybacked: false,
            timeout: Duration::ZERO,
            report_interval: Duration::ZERO,
        };
        match measured {
            Some(rtt) => new.sample(rtt),
            None => new.recompute(),
        }
        new
    }

    /// The same where acknowledgements are piggybacked (`rfc998`): most come with a NULL-ACK, and
    /// now and then one with a full packet, later than the deviation of the others predicts.
    pub(crate) fn with_piggybacked_acks(self, piggybacked: bool) -> Self {
        let mut riders = Self { piggybacked, ..self };
        riders.recompute();
        riders
    }

    /// Adds a sample, which must be of a packet sent only once (Karn's rule).
    pub(crate) fn sample(&mut self, rtt: Duration) {
        let rtt = rtt.min(MAX_RTT);
        self.expiries = 0;
        self.smallest = Some(self.smallest.map_or(rtt, |s| s.min(rtt)));
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.deviation = rtt / 2;
            }
            Some(smoothed) => {
                self.deviation = (self.deviation * 3 + smoothed.abs_diff(rtt)) / 4;
                self.smoothed = Some((smoothed * 7 + rtt) / 8);
            }
        }
        self.recompute();
    }

    /// Recomputes the cached timers.
    fn recompute(&mut self) {
        self.timeout = self.longest_wait();
        let most = if self.smoothed.is_some() { Duration::MAX } else { MAX_UNMEASURED_INTERVAL };
        self.report_interval = (self.assumed() / 8).clamp(Duration::from_millis(1), most);
    }

    /// The smoothed round trip, if one was measured.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The smoothed round trip; before a measurement its upper bound.
    pub(crate) fn bound(&self) -> Option<Duration> {
        self.smoothed.or(self.longest)
    }

    /// The same, or a default if neither is known.
    pub(crate) fn assumed(&self) -> Duration {
        self.bound().unwrap_or(UNKNOWN)
    }

    /// The smallest measured.
    pub(crate) fn smallest(&self) -> Option<Duration> {
        self.smallest
    }

    /// The timer ran out: the next one is longer.
    pub(crate) fn back_off(&mut self) {
        self.expiries = (self.expiries + 1).min(16);
        self.recompute();
    }

    /// A packet arrived: ends the back-off.
    pub(crate) fn reset_back_off(&mut self) {
        if std::mem::take(&mut self.expiries) > 0 {
            self.recompute();
        }
    }

    /// Smoothed round trip plus four deviations, at least an eighth (where acknowledgements ride, a
    /// half) of it, and 1.5 times longer for every expiry in a row.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    fn longest_wait(&self) -> Duration {
        let Some(smoothed) = self.smoothed else {
            // Sent again within the round trip, a message would never measure it (Karn's rule).
            let longest = self.longest.unwrap_or_default();
            let initial = INITIAL_TIMEOUT.max(longest + longest / 8);
            return grown(initial, self.expiries).min(MAX_TIMEOUT.max(longest * 4));
        };
        let limit = MAX_TIMEOUT.max(smoothed * 4);
        let least = smoothed / if self.piggybacked { 2 } else { 8 };
        let base = (smoothed + (self.deviation * 4).max(least)).max(MIN_TIMEOUT);
        grown(base.min(limit), self.expiries).min(limit)
    }

    /// The interval of reports and repeated copies: an eighth of a round trip, at least a
    /// millisecond (before a measurement at most 125 ms).
    pub(crate) fn report_interval(&self) -> Duration {
        self.report_interval
    }
}

/// A `measured` time without the time `still` for which this host was suspended. That comes from a
/// clock that may be set, or may run during suspension: a value above `measured` is ignored.
pub(crate) fn without(measured: Duration, still: Duration) -> Duration {
    if still < measured { measured - still } else { measured }
}

fn grown(mut timeout: Duration, expiries: u32) -> Duration {
    for _ in 0..expiries {
        timeout = (timeout + timeout / 2).min(MAX_RTT * 4);
    }
    timeout
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspended_time_is_subtracted_from_a_round_trip_but_never_all_of_it() {
        let ms = Duration::from_millis;
        for (measured, still, left) in [(40, 0, 40), (30_040, 30_000, 40), (40, 30_000, 40)] {
            assert_eq!(without(ms(measured), ms(still)), ms(left));
        }
    }

    #[test]
    fn expiries_lengthen_the_timer_up_to_its_limit() {
        let mut rtt = RttEstimator::new(None, None);
        rtt.sample(Duration::from_millis(100));
        let first = rtt.timeout();
        assert_eq!(first, Duration::from_millis(300));
        rtt.back_off();
        assert_eq!(rtt.timeout(), first * 3 / 2);
        for _ in 0..20 {
            rtt.back_off();
        }
        assert_eq!(rtt.timeout(), MAX_TIMEOUT);
        rtt.reset_back_off();
        assert_eq!(rtt.timeout(), first);
    }

    #[test]
    fn a_slow_handshake_does_not_slow_the_report_interval() {
        let mut rtt = RttEstimator::new(None, Some(Duration::from_secs(19)));
        assert_eq!(rtt.report_interval(), MAX_UNMEASURED_INTERVAL);
        assert!(rtt.timeout() > Duration::from_secs(19), "but it may be the round trip");
        rtt.sample(Duration::from_secs(2));
        assert_eq!(rtt.report_interval(), Duration::from_millis(250));
        assert_eq!(RttEstimator::new(None, None).report_interval(), UNKNOWN / 8);
    }

    #[test]
    fn a_long_path_may_wait_four_round_trips() {
        let mut rtt = RttEstimator::new(None, None);
        rtt.sample(Duration::from_millis(1800));
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.timeout(), Duration::from_millis(7200));
    }

    #[test]
    fn a_steady_path_shrinks_the_deviation() {
        let mut rtt = RttEstimator::new(None, None);
        for _ in 0..100 {
            rtt.sample(Duration::from_millis(80));
        }
        assert_eq!(rtt.smoothed(), Some(Duration::from_millis(80)));
        assert_eq!(rtt.timeout(), Duration::from_millis(90));
    }

    #[test]
    fn the_timer_is_never_closer_than_an_eighth_to_the_round_trip() {
        for (piggybacked, least) in [(false, 112_500), (true, 150_000)] {
            let mut rtt = RttEstimator::new(None, None).with_piggybacked_acks(piggybacked);
            for _ in 0..100 {
                rtt.sample(Duration::from_millis(100));
            }
            assert_eq!(rtt.timeout().as_micros(), least, "{piggybacked}");
        }
    }
}
