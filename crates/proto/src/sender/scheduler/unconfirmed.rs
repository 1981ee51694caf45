//! Which packets of a buffer may be lost without the sender knowing (`docs/protocol §6.10`).
//!
//! Inputs: the times at which its packets left and the repair packets made for it. Output: how many
//! packets left too lately to have been requested again.

use std::ops::Range;
use std::time::Duration;

use super::packet::DataPacket;
use crate::time::{Instant, nanos};

/// Round trips after its sending within which a packet cannot have been requested again: one for
/// the answer, and half of one for the reordering window and the interval of control packets.
pub(crate) const UNCONFIRMED_TRIPS: (u32, u32) = (3, 2);

/// Packets of a buffer that may be lost without the sender knowing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnconfirmedPackets {
    /// When its first packet left, and the last of its first pass.
    pass: Option<(Instant, Instant)>,
    /// Packets sent again since repair packets left last.
    copies: u32,
    /// How many repair packets were made, and when.
    repairs: u32,
    repaired: Option<Instant>,
}

impl UnconfirmedPackets {
    /// A packet of the buffer left.
    pub(super) fn on_left(&mut self, now: Instant, piece: &DataPacket) {
        self.copies = self.copies.saturating_add(u32::from(piece.resend));
        if !piece.resend || piece.last_of_buffer {
            let (first, _) = self.pass.unwrap_or((now, now));
            self.pass = Some((first, now));
        }
    }

    /// Whether repair packets were made.
    pub(super) fn is_repaired(&self) -> bool {
        self.repairs > 0
    }

    /// The indexes of the next `count` repair packets, of which the buffer has `width`.
    pub(super) fn next_repairs(&mut self, now: Instant, count: u32, width: u32) -> Range<u32> {
        let from = self.repairs.min(width);
        let indexes = from..from.saturating_add(count).min(width);
        self.repairs = indexes.end;
        self.repaired = Some(now);
        indexes
    }

    /// How many of its `packets` left too lately to have been requested again.
    pub(super) fn packets(&mut self, now: Instant, rtt: Option<Duration>, packets: u32) -> u32 {
        let copies = std::mem::take(&mut self.copies);
        if let Some(repaired) = self.repaired {
            // Requests from before the repair packets arrived are covered by them.
            let knew = rtt.is_some_and(|rtt| repaired + rtt <= now);
            return if knew { copies } else { 0 };
        }
        let (Some(rtt), Some((first, last))) = (rtt, self.pass) else { return packets };
        let since = now.before(rtt * UNCONFIRMED_TRIPS.0 / UNCONFIRMED_TRIPS.1);
        let (all, late) = (nanos(last.since(first)), nanos(last.since(since.max(first))));
        let fresh = match all {
            _ if last < since => 0,
            0 => packets,
            all => (u128::from(packets) * u128::from(late)).div_ceil(all.into()) as u32,
        };
        fresh.min(packets).saturating_add(copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unconfirmed_packets_are_those_that_left_lately() {
        let ms = |n: u64| Instant::from_nanos(n * 1_000_000);
        let rtt = Some(Duration::from_millis(100));
        let pass = |first, last| UnconfirmedPackets {
            pass: Some((ms(first), ms(last))),
            ..UnconfirmedPackets::default()
        };
        for (first, last, packets) in
            [(0, 849, 0), (800, 900, 50), (860, 1000, 100), (700, 1000, 50)]
        {
            assert_eq!(pass(first, last).packets(ms(1000), rtt, 100), packets, "{first}");
        }
        assert_eq!(pass(0, 1).packets(ms(1000), None, 100), 100, "no round trip is known");
        let mut asked = UnconfirmedPackets { copies: 3, ..pass(0, 849) };
        assert_eq!(asked.packets(ms(1000), rtt, 100), 3, "the copies");
        assert_eq!(asked.packets(ms(1000), rtt, 100), 0, "once");
        for (at, packets) in [(1099, 0), (1100, 3)] {
            let mut again =
                UnconfirmedPackets { copies: 3, repaired: Some(ms(1000)), ..pass(0, 849) };
            assert_eq!(
                again.packets(ms(at), rtt, 100),
                packets,
                "the request came after the repair"
            );
        }
    }
}
