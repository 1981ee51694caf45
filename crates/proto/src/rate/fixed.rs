//! RFC 998 as written: the negotiated burst values, whatever the path says.

use crate::rate::{Belief, Pacing, RateControl, Sample};
use crate::time::Instant;
use crate::units::Burst;

/// Sends at one rate. It follows the receiver's offers, but only toward more restrictive, as the
/// negotiation does (`docs/protocol.md §4.4`): an offer is a plea for mercy, never a licence.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    /// The negotiated ones, or what offers have left of them.
    burst: Burst,
}

impl Fixed {
    /// The negotiated burst values.
    pub fn new(burst: Burst) -> Self {
        let burst = Burst { packets: burst.packets.max(1), ..burst };
        Self { burst }
    }
}

impl RateControl for Fixed {
    fn on_sample(&mut self, _now: Instant, _sample: &Sample) {}

    fn on_silence(&mut self, _now: Instant) {}

    fn on_offer(&mut self, _now: Instant, offer: Burst) {
        // A burst of nothing would stop the transfer for good.
        let offer = Burst { packets: offer.packets.max(1), ..offer };
        self.burst = self.burst.stricter(offer);
    }

    fn on_packet_bytes(&mut self, _bytes: u32) {}

    fn belief(&self) -> Belief {
        Belief { phase: "fixed", ..Belief::default() }
    }

    fn pacing(&self) -> Pacing {
        Pacing { burst: self.burst, cap_bytes: None }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn burst(packets: u32, millis: u64) -> Burst {
        Burst { packets, interval: Duration::from_millis(millis) }
    }

    #[test]
    fn offers_only_restrain() {
        let mut fixed = Fixed::new(burst(8, 10));
        fixed.on_offer(Instant::EPOCH, burst(16, 5));
        assert_eq!(fixed.pacing().burst, burst(8, 10));
        fixed.on_offer(Instant::EPOCH, burst(4, 5));
        fixed.on_offer(Instant::EPOCH, burst(6, 20));
        assert_eq!(fixed.pacing().burst, burst(4, 20));
        fixed.on_offer(Instant::EPOCH, burst(0, 0));
        assert_eq!(fixed.pacing().burst, burst(1, 20));
    }

    #[test]
    fn a_new_packet_size_does_not_undo_an_offer() {
        let mut fixed = Fixed::new(burst(8, 1));
        fixed.on_offer(Instant::EPOCH, burst(2, 50));
        fixed.on_packet_bytes(700);
        assert_eq!(fixed.pacing().burst, burst(2, 50));
    }
}
