//! Missing feedback: the feedback timeout, and the circuit breaker (RFC 8084).

use std::time::Duration;

use super::Sender;
use crate::rate::Sample;
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
pub(super) struct FeedbackWatch {
    last_packet: Instant,
    /// When the rate law was informed of the feedback timeout, since the last packet.
    pub(super) silence_reported: Option<Instant>,
    /// When the newest report came, or the oldest packet in flight left.
    pub(super) reported: Instant,
    /// The counts in the newest report: delivered and lost packets.
    counts: (u64, u64),
    probe_due: Instant,
    /// Probes since data other than probes left.
    probes: u32,
    /// When data other than probes left last.
    last_data: Instant,
}

impl FeedbackWatch {
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

    pub(super) fn on_authentic(&mut self, now: Instant) {
        self.last_packet = now;
        self.silence_reported = None;
    }

    /// A report came; one without a new packet does not count.
    pub(super) fn on_reported(&mut self, now: Instant, sample: &Sample) {
        let counts = (sample.delivered_packets, sample.lost_packets);
        if std::mem::replace(&mut self.counts, counts) != counts {
            self.reported = now;
        }
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

impl Sender {
    /// When the missing feedback counts as a timeout.
    pub(super) fn feedback_overdue_at(&self) -> Option<Instant> {
        if !self.has_feedback() || self.is_fully_paused() || self.sampler.in_flight_bytes() == 0 {
            return None;
        }
        let rtt = self.rtt.assumed();
        let timeout = (rtt * 3).max(self.rtt.timeout()).max(Duration::from_millis(200));
        let since = self
            .feedback
            .silence_reported
            .unwrap_or(self.feedback.last_packet)
            .max(self.feedback.last_packet);
        Some(since.max(self.sampler.last_sent().unwrap_or(since)) + timeout)
    }

    /// When an emulated protocol with such a rule declares all outstanding data lost.
    pub(super) fn all_lost_at(&self) -> Option<Instant> {
        let after = self.scheduler.ways().all_lost_after?;
        let waits = self.scheduler.has_supplied() && !self.scheduler.may_be_due();
        let since = self.feedback.reported.max(self.sampler.last_sent()?);
        (waits && !self.is_fully_paused()).then(|| since + after.max(self.rtt.assumed() * 2))
    }

    /// Whether the sender gets feedback on its packets.
    pub(super) fn has_feedback(&self) -> bool {
        self.negotiated.profile.reports || self.ledger.is_some()
    }

    /// Data leave that are no probe.
    pub(super) fn on_data_left(&mut self, now: Instant) {
        self.records.block_over(now);
        self.feedback.last_data = now;
        self.feedback.probes = 0;
    }

    pub(super) fn breaker_open(&self, now: Instant) -> bool {
        let rtt = self.rtt.assumed();
        let since = match &self.ledger {
            // Before a buffer was sent there can be no feedback on it; but packets that the window
            // holds back are never sent.
            Some(ledger) => {
                let held = || (self.room(&self.pacing()) == 0).then_some(self.feedback.last_data);
                ledger.waits_since().or_else(held).map(|at| at.max(self.feedback.reported))
            }
            None => Some(self.feedback.reported),
        };
        self.has_feedback()
            && self.sampler.in_flight_bytes() > 0
            && since.is_some_and(|since| now.since(since) > BREAKER.max(rtt * 8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds between the probes of a breaker that stays open.
    fn pauses(waits: bool) -> Vec<u64> {
        let mut feedback = FeedbackWatch::new(Instant::EPOCH);
        let seconds = (0..200)
            .filter(|second| feedback.probe(Instant::EPOCH + Duration::from_secs(*second), waits));
        let at: Vec<u64> = seconds.collect();
        at.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn probes_get_rarer_for_a_receiver_that_repeats_its_requests() {
        assert!(pauses(false).iter().all(|pause| *pause == 1));
        let (quick, slow) = ([1; 8], [2, 4, 8, 16, 32, 32, 32, 32]);
        assert_eq!(pauses(true)[..15], [&quick[..], &slow[..]].concat()[..15]);
    }
}
