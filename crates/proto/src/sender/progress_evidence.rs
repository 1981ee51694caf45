//! Evidence that a sender's data arrive, for the stall watchdog (`docs/protocol.md §7.6`).

use std::time::Duration;

use super::resend_rounds::Heard;
use super::{Phase, Sender};
use crate::negotiated::{Pace, Underway};
use crate::time::Instant;

/// Times that the same data are sent again without progress before they count as not arriving.
const VAIN: u32 = 3;

/// Signs of progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signs {
    count: u64,
    /// The shortest full DATA datagram sent since the newest sign, and before it: an arriving
    /// datagram as large as these is data.
    shortest: (u32, u32),
    /// Without REPORTs: the count of signs at which data were sent repeatedly without progress.
    vain: Option<u64>,
}

impl Signs {
    pub(super) fn new() -> Self {
        Self { count: 0, shortest: (u32::MAX, u32::MAX), vain: None }
    }

    /// A full DATA packet was sent.
    pub(super) fn on_full_sent(&mut self, bytes: u32) {
        self.shortest.0 = self.shortest.0.min(bytes);
    }

    fn see(&mut self) {
        self.count += 1;
        if self.shortest.0 < u32::MAX {
            self.shortest = (u32::MAX, self.shortest.0);
        }
    }

    /// Buffers were accepted.
    pub(super) fn on_accepted(&mut self) {
        self.see();
    }

    /// A report has `bytes` as the largest recent arrival.
    pub(super) fn on_largest(&mut self, bytes: u16) {
        if u32::from(bytes) >= self.shortest.0.min(self.shortest.1) {
            self.see();
        }
    }

    /// A RESEND came.
    pub(super) fn on_asked(&mut self, heard: Heard) {
        if heard.vain >= VAIN {
            self.vain = Some(self.count);
        }
        if heard.shorter {
            self.see();
        }
    }
}

impl Sender {
    /// A DATA packet of the first pass left. Without REPORTs that is a sign of progress, as long as
    /// the circuit breaker is closed.
    pub(super) fn on_fresh_sent(&mut self, now: Instant) {
        if !self.negotiated.rules.reports && !self.breaker_open(now) {
            self.signs.see();
        }
    }

    /// The signs so far, where a RESEND can be one.
    pub(super) fn signs_to_count(&self) -> Option<u64> {
        let counts = !self.negotiated.rules.reports && !self.is_in_doubt();
        counts.then_some(self.signs.count)
    }

    /// The progress that the watchdog expects, if any: of supplied buffers, or of END. A receiver
    /// that grants nothing may be waiting for its client. Without REPORTs it may have everything
    /// and wait as well, unless it requests the same packets repeatedly.
    pub(crate) fn underway(&self) -> Option<Underway> {
        let told = self.negotiated.rules.reports || self.signs.vain == Some(self.signs.count);
        let supplied = self.schedule.has_supplied() && told;
        let goes_on = self.phase == Phase::Sending && !self.pause.is_on();
        let some = goes_on && (supplied || self.ending.due.is_some());
        let tries = self.stats.data_packets_sent;
        some.then_some(Underway { signs: self.signs.count, tries })
    }

    /// The time scale of progress.
    pub(crate) fn pace_of_progress(&self) -> Pace {
        let (round_trip, interval) = (self.rtt.assumed(), self.pacing().burst.interval);
        Pace { round_trip, answer: Duration::ZERO, interval }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_as_large_as_data_is_a_sign_of_them() {
        let mut signs = Signs::new();
        signs.on_largest(1200);
        assert_eq!(signs.count, 0, "nothing was sent");
        signs.on_full_sent(1232);
        signs.on_largest(104);
        assert_eq!(signs.count, 0);
        signs.on_largest(1232);
        // What was sent before the newest sign is still under way.
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
