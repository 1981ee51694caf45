//! Evidence that a sender's data arrive, for the stall watchdog (`docs/protocol §7.6`).
//!
//! Inputs: packets that leave, and OK, RESEND and REPORT. Outputs: the signs of progress so far,
//! and whether progress can be expected.

use super::scheduler::ResendEvidence;

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
    /// The receiver sends REPORTs.
    reports: bool,
}

impl ProgressEvidence {
    pub(super) fn new(reports: bool) -> Self {
        Self { count: 0, shortest: (u32::MAX, u32::MAX), futile: None, reports }
    }

    /// Whether a packet that leaves is a sign of progress.
    pub(super) fn counts_sending(&self) -> bool {
        !self.reports
    }

    /// A DATA packet of the first pass left while the circuit breaker was closed. Without REPORTs
    /// that is a sign of progress.
    pub(super) fn on_fresh_sent(&mut self) {
        if self.counts_sending() {
            self.add();
        }
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

    /// The signs so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The signs so far, where a RESEND can be one.
    pub(super) fn if_resends_count(&self) -> Option<u64> {
        (!self.reports).then_some(self.count)
    }

    /// Whether progress can be expected of supplied buffers. Without REPORTs the receiver may have
    /// everything and wait as well, unless it requests the same packets repeatedly.
    pub(super) fn is_expected(&self) -> bool {
        self.reports || self.futile == Some(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_datagram_as_large_as_data_is_a_sign_of_progress() {
        let mut signs = ProgressEvidence::new(true);
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

    #[test]
    fn without_reports_progress_is_expected_once_the_same_packets_are_requested_repeatedly() {
        let mut signs = ProgressEvidence::new(false);
        signs.on_fresh_sent();
        assert!(!signs.is_expected() && signs.if_resends_count() == Some(1));
        signs.on_resend(ResendEvidence { shorter: false, futile: FUTILE_RESENDS });
        assert!(signs.is_expected());
        signs.on_resend(ResendEvidence { shorter: true, futile: 0 });
        assert!(!signs.is_expected(), "there was another sign");
        let reports = ProgressEvidence::new(true);
        assert!(reports.is_expected() && reports.if_resends_count().is_none());
    }
}
