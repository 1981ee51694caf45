//! Evidence that a sender's data arrive, for the stall watchdog (`docs/protocol §7.6`).

use std::time::Duration;

use super::Sender;
use super::scheduler::ResendEvidence;
use crate::negotiated::{ProgressCounter, ProgressTimescale};
use crate::time::Instant;

/// Times that the same data are sent again without progress before they count as not arriving.
const FUTILE_RESENDS: u32 = 3;

/// Signs of progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgressEvidence {
    count: u64,
    /// The shortest full DATA datagram sent since the newest sign, and before it: an arriving
    /// datagram as large as these is data.
    shortest: (u32, u32),
    /// Without REPORTs: the count of signs at which data were sent repeatedly without progress.
    futile: Option<u64>,
}

impl ProgressEvidence {
    pub(super) fn new() -> Self {
        Self { count: 0, shortest: (u32::MAX, u32::MAX), futile: None }
    }

    /// A full DATA packet was sent.
    pub(super) fn on_full_sent(&mut self, bytes: u32) {
        self.shortest.0 = self.shortest.0.min(bytes);
    }

    fn add(&mut self) {
        self.count += 1;
        if self.shortest.0 < u32::MAX {
            self.shortest = (u32::MAX, self.shortest.0);
        }
    }

    /// Buffers were accepted.
    pub(super) fn on_accepted(&mut self) {
        self.add();
    }

    /// A report has `bytes` as the largest recent arrival.
    pub(super) fn on_largest(&mut self, bytes: u16) {
        if u32::from(bytes) >= self.shortest.0.min(self.shortest.1) {
            self.add();
        }
    }

    /// A RESEND came.
    pub(super) fn on_resend(&mut self, evidence: ResendEvidence) {
        if evidence.futile >= FUTILE_RESENDS {
            self.futile = Some(self.count);
        }
        if evidence.shorter {
            self.add();
        }
    }
}

impl Sender {
    /// A DATA packet of the first pass left. Without REPORTs that is a sign of progress, as long as
    /// the circuit breaker is closed.
    pub(super) fn on_fresh_sent(&mut self, now: Instant) {
        if !self.negotiated.profile.reports && !self.breaker_open(now) {
            self.progress.add();
        }
    }

    /// The signs so far, where a RESEND can be one.
    pub(super) fn countable_progress(&self) -> Option<u64> {
        let counts = !self.negotiated.profile.reports && self.coins.is_none();
        counts.then_some(self.progress.count)
    }

    /// The progress that the watchdog expects, if any: of supplied buffers, or of END. A receiver
    /// that grants nothing may be waiting for its client. Without REPORTs it may have everything
    /// and wait as well, unless it requests the same packets repeatedly.
    pub(crate) fn underway(&self) -> Option<ProgressCounter> {
        let may_stall =
            self.negotiated.profile.reports || self.progress.futile == Some(self.progress.count);
        let supplied = self.scheduler.has_supplied() && may_stall;
        let goes_on = self.end.is_sending() && !self.pause.is_on();
        let some = goes_on && (supplied || self.end.end_due().is_some());
        let tries = self.records.stats.data_packets_sent;
        some.then_some(ProgressCounter { signs: self.progress.count, tries })
    }

    /// The time scale of progress.
    pub(crate) fn pace_of_progress(&self) -> ProgressTimescale {
        let (round_trip, interval) = (self.rtt.assumed(), self.pacing().burst.interval);
        ProgressTimescale { round_trip, answer: Duration::ZERO, interval }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_datagram_as_large_as_data_is_a_sign_of_progress() {
        let mut signs = ProgressEvidence::new();
        signs.on_largest(1200);
        assert_eq!(signs.count, 0, "nothing was sent");
        signs.on_full_sent(1232);
        signs.on_largest(104);
        assert_eq!(signs.count, 0);
        signs.on_largest(1232);
        // Packets sent before the newest sign are still in flight.
        signs.on_largest(1232);
        assert_eq!(signs.count, 2);
        signs.on_full_sent(400);
        signs.on_largest(400);
        signs.on_full_sent(1232);
        signs.on_largest(400);
        assert_eq!(signs.count, 4);
        signs.on_largest(400);
        assert_eq!(signs.count, 4, "short ones are no longer under way");
    }
}
