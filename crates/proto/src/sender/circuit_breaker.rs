//! Missing feedback: the feedback timeout, and the circuit breaker (RFC 8084).
//!
//! Inputs: the times at which the receiver's packets and news in its feedback came, and at which
//! data left. Outputs: when missing feedback counts as a timeout, whether the breaker is open, and
//! the probes that an open one lets through.

use std::time::Duration;

use crate::rate::Sample;
use crate::rtt::RttEstimator;
use crate::time::Instant;

/// The breaker opens after this, or eight round trips (`docs/protocol §7.5`).
const BREAKER: Duration = Duration::from_secs(2);

/// An open breaker lets one packet through in this time.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Probes at that interval, whatever the receiver does.
const QUICK_PROBES: u32 = 8;

/// Doublings of the probe interval, up to 32 s, for a receiver that repeats its requests when
/// nothing arrives.
const MAX_DOUBLINGS: u32 = 5;

/// The times of the receiver's feedback.
#[derive(Clone, Copy, Debug)]
pub(super) struct CircuitBreaker {
    last_packet: Instant,
    /// When the rate law was informed of the feedback timeout, since the last packet.
    silence_reported: Option<Instant>,
    /// When the newest report came, or the oldest packet in flight left.
    reported: Instant,
    /// The counts in the newest report: delivered and lost packets.
    counts: (u64, u64),
    probe_due: Instant,
    /// Probes since data other than probes left.
    probes: u32,
    /// When data other than probes left last.
    last_data: Instant,
}

impl CircuitBreaker {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            last_packet: now,
            silence_reported: None,
            reported: now,
            counts: (0, 0),
            probe_due: now,
            probes: 0,
            last_data: now,
        }
    }

    /// An authentic packet of the receiver came.
    pub(super) fn on_authentic(&mut self, now: Instant) {
        self.last_packet = now;
        self.silence_reported = None;
    }

    /// A report came; one without a new packet does not count.
    pub(super) fn on_sample(&mut self, now: Instant, sample: &Sample) {
        let counts = (sample.delivered_packets, sample.lost_packets);
        if std::mem::replace(&mut self.counts, counts) != counts {
            self.reported = now;
        }
    }

    /// The wait for a report begins now.
    pub(super) fn restart(&mut self, now: Instant) {
        self.reported = now;
    }

    /// A pause is over: no report was due meanwhile.
    pub(super) fn on_pause_over(&mut self, now: Instant) {
        self.reported = self.reported.max(now);
    }

    /// When the newest report came, or the oldest packet in flight left.
    pub(super) fn reported(&self) -> Instant {
        self.reported
    }

    /// When missing feedback on packets in flight, the newest of which left at `last_sent`, counts
    /// as a timeout.
    pub(super) fn deadline(&self, rtt: &RttEstimator, last_sent: Option<Instant>) -> Instant {
        let timeout = (rtt.assumed() * 3).max(rtt.timeout()).max(Duration::from_millis(200));
        let since = self.silence_reported.unwrap_or(self.last_packet).max(self.last_packet);
        since.max(last_sent.unwrap_or(since)) + timeout
    }

    /// That timeout has come.
    pub(super) fn expire(&mut self, now: Instant) {
        self.silence_reported = Some(now);
    }

    /// When all data that left until `last_sent` count as lost, if that is `after` so long without
    /// feedback.
    pub(super) fn all_lost_at(
        &self,
        after: Duration,
        rtt: &RttEstimator,
        last_sent: Instant,
    ) -> Instant {
        self.reported.max(last_sent) + after.max(rtt.assumed() * 2)
    }

    /// Data leave that are no probe.
    pub(super) fn on_data_left(&mut self, now: Instant) {
        self.last_data = now;
        self.probes = 0;
    }

    /// When data other than probes left last.
    pub(super) fn last_data(&self) -> Instant {
        self.last_data
    }

    /// Whether the breaker is open, if feedback on packets in flight can be expected `since` then.
    pub(super) fn is_open(&self, now: Instant, rtt: &RttEstimator, since: Instant) -> bool {
        now.since(since.max(self.reported)) > BREAKER.max(rtt.assumed() * 8)
    }

    /// When an open breaker lets the next packet through.
    pub(super) fn probe_due(&self) -> Instant {
        self.probe_due
    }

    /// Whether an open breaker lets a packet through now. For a receiver that `waits` for data, and
    /// repeats requests meanwhile, the probes get rarer.
    pub(super) fn probe(&mut self, now: Instant, waits: bool) -> bool {
        let due = self.probe_due <= now;
        if due {
            self.probes = self.probes.saturating_add(1);
            let late = if waits { self.probes.saturating_sub(QUICK_PROBES) } else { 0 };
            self.probe_due = now + PROBE_INTERVAL * (1 << late.min(MAX_DOUBLINGS));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds between the probes of a breaker that stays open.
    fn pauses(waits: bool) -> Vec<u64> {
        let mut breaker = CircuitBreaker::new(Instant::EPOCH);
        let seconds = (0..200)
            .filter(|second| breaker.probe(Instant::EPOCH + Duration::from_secs(*second), waits));
        let at: Vec<u64> = seconds.collect();
        at.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn probes_get_rarer_for_a_receiver_that_repeats_its_requests() {
        assert!(pauses(false).iter().all(|pause| *pause == 1));
        let (quick, slow) = ([1; 8], [2, 4, 8, 16, 32, 32, 32, 32]);
        assert_eq!(pauses(true)[..15], [&quick[..], &slow[..]].concat()[..15]);
    }

    #[test]
    fn the_breaker_opens_two_seconds_or_eight_round_trips_after_the_last_report() {
        let at = |seconds| Instant::EPOCH + Duration::from_secs(seconds);
        let mut breaker = CircuitBreaker::new(at(0));
        for (rtt, opens) in [(Duration::from_millis(10), 2), (Duration::from_secs(1), 8)] {
            let rtt = RttEstimator::new(Some(rtt), None);
            assert!(!breaker.is_open(at(opens), &rtt, at(0)));
            assert!(breaker.is_open(at(opens + 1), &rtt, at(0)));
            assert!(!breaker.is_open(at(opens + 1), &rtt, at(3)), "nothing was due before");
        }
        let delivered = Sample { delivered_packets: 1, ..Sample::default() };
        let rtt = RttEstimator::new(Some(Duration::from_millis(10)), None);
        breaker.on_sample(at(9), &delivered);
        assert!(!breaker.is_open(at(10), &rtt, at(0)));
        breaker.on_sample(at(11), &delivered);
        assert!(breaker.is_open(at(12), &rtt, at(0)), "the same counts again are no news");
    }
}
