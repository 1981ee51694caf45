//! What shows a sender that its data get anywhere (`docs/protocol.md §7.6`).

use std::time::Duration;

use super::resend_rounds::Heard;
use super::{Phase, Sender};
use crate::negotiated::{Pace, Underway};
use crate::time::Instant;

/// So many times were the same data sent again in vain before they count as not arriving.
const VAIN: u32 = 3;

/// The signs so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signs {
    count: u64,
    /// The shortest full DATA datagram sent since the newest sign, and before it: what is as large
    /// as these and arrives is data.
    shortest: (u32, u32),
    /// Where nobody reports: data were sent again and again in vain, with so many signs.
    vain: Option<u64>,
}

impl Signs {
    pub(super) fn new() -> Self {
        Self { count: 0, shortest: (u32::MAX, u32::MAX), vain: None }
    }

    /// A DATA packet left that is as long as its buffer's packets are.
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

    /// A report names a datagram of so many bytes among those that arrived lately.
    pub(super) fn on_largest(&mut self, bytes: u16) {
        if u32::from(bytes) >= self.shortest.0.min(self.shortest.1) {
            self.see();
        }
    }

    /// Data were asked for again.
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
    /// A DATA packet of the first pass left: where nobody reports that is a sign, for as long as
    /// what comes back does not forbid it.
    pub(super) fn on_fresh_sent(&mut self, now: Instant) {
        if !self.negotiated.rules.reports && !self.breaker_open(now) {
            self.signs.see();
        }
    }

    /// How many signs there were, where RESENDs can be one.
    pub(super) fn signs_to_count(&self) -> Option<u64> {
        let counts = !self.negotiated.rules.reports && !self.is_in_doubt();
        counts.then_some(self.signs.count)
    }

    /// What must move on, if anything: buffers that were supplied, or the word that there are no
    /// more. A receiver that grants nothing waits for its client, and may. Where nobody reports, it
    /// may have everything and wait likewise, unless it asks for the same over and over.
    pub(crate) fn underway(&self) -> Option<Underway> {
        let told = self.negotiated.rules.reports || self.signs.vain == Some(self.signs.count);
        let supplied = self.schedule.has_supplied() && told;
        let goes_on = self.phase == Phase::Sending && !self.pause.is_on();
        let some = goes_on && (supplied || self.ending.due.is_some());
        let tries = self.stats.data_packets_sent;
        some.then_some(Underway { signs: self.signs.count, tries })
    }

    /// How soon anything can move.
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
