//! The receiver's restrictions of the rate: burst values in OK (RFC 998 §4), and its rate limit
//! (`docs/protocol §6.9`).
//!
//! Inputs: both as they come. Outputs: the burst values that the rate law must not exceed, whenever
//! they were set.

use crate::rate::burst_for;
use crate::units::{Burst, PacketNumber};
use crate::wire::packet::RateLimit;

/// The negotiated burst values, as far as the receiver has restricted them.
#[derive(Clone, Copy, Debug)]
pub(super) struct BurstOffers {
    negotiated: Burst,
    /// Bytes of the IP packet that burst values count.
    packet_bytes: u32,
    /// Each offer can only restrict; else the newest counts.
    restrict_only: bool,
    burst: Burst,
    /// The receiver's rate limit, and the number of the packet that carried it.
    limit: (PacketNumber, RateLimit),
}

impl BurstOffers {
    pub(super) fn new(negotiated: Burst, packet_bytes: u32, restrict_only: bool) -> Self {
        let limit = (PacketNumber(0), RateLimit::Unset);
        Self { negotiated, packet_bytes, restrict_only, burst: negotiated, limit }
    }

    /// The strictest of the negotiated burst values and the receiver's offers.
    pub(super) fn burst(&self) -> Burst {
        self.burst
    }

    /// A control packet has the receiver's rate limit (`sealed`). The newest packet counts. Returns
    /// the burst values if the limit has changed.
    pub(super) fn on_limit(&mut self, number: PacketNumber, limit: RateLimit) -> Option<Burst> {
        if limit == RateLimit::Unset || number < self.limit.0 {
            return None;
        }
        let before = std::mem::replace(&mut self.limit, (number, limit));
        if before.1 == limit {
            return None;
        }
        let burst = match limit {
            RateLimit::At(rate) => burst_for(rate, self.packet_bytes),
            RateLimit::Agreed | RateLimit::Unset => self.negotiated,
        };
        self.burst = self.negotiated.slower(burst);
        Some(self.burst)
    }

    /// An OK offers burst values; without packets it is no offer. On `rfc998` each can only
    /// restrict; else the newest counts, as far as it is slower than the negotiated values. Returns
    /// the burst values, unless the offer is ignored.
    pub(super) fn on_offer(&mut self, offer: Burst) -> Option<Burst> {
        // A receiver with a rate limit sends it in each control packet, which is newer.
        if self.limit.1 != RateLimit::Unset {
            return None;
        }
        let offer = Burst { packets: offer.packets.max(1), ..offer };
        self.burst = match self.restrict_only {
            true => self.burst.stricter(offer),
            false => self.negotiated.slower(offer),
        };
        Some(self.burst)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::units::Rate;

    fn burst(packets: u32, millis: u64) -> Burst {
        Burst { packets, interval: Duration::from_millis(millis) }
    }

    #[test]
    fn offers_restrict_or_replace_each_other() {
        for restrict_only in [true, false] {
            let mut offers = BurstOffers::new(burst(8, 1), 1000, restrict_only);
            offers.on_offer(burst(8, 4));
            let then = offers.on_offer(burst(8, 2));
            assert_eq!(then, Some(burst(8, if restrict_only { 4 } else { 2 })));
        }
    }

    #[test]
    fn the_limit_of_the_newest_packet_counts_and_stands_above_offers() {
        let mut offers = BurstOffers::new(burst(8, 1), 1000, false);
        let limit = RateLimit::At(Rate::from_bytes_per_second(1_000_000));
        assert!(offers.on_limit(PacketNumber(7), limit).is_some());
        assert_eq!(offers.on_limit(PacketNumber(8), limit), None, "it is the same");
        assert_eq!(offers.on_limit(PacketNumber(3), RateLimit::Agreed), None, "it is older");
        assert_eq!(offers.on_offer(burst(1, 9)), None);
        assert_eq!(offers.on_limit(PacketNumber(9), RateLimit::Agreed), Some(burst(8, 1)));
    }
}
