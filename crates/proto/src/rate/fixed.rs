//! RFC 998 as written: the negotiated burst values, whatever the path says.

use crate::rate::{Belief, Pacing, RateControl, Sample, burst_for};
use crate::time::Instant;
use crate::units::Rate;
use crate::wire::packet::Burst;

/// Sends at one rate. It follows the receiver's offers, but only toward more restrictive, as the
/// negotiation does (`docs/protocol.md §4.4`): an offer is a plea for mercy, never a licence.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    burst: Burst,
    /// The rate from which the burst values are made, if they were not given.
    rate: Option<Rate>,
    /// The strictest of all offers.
    offered: Option<Burst>,
}

impl Fixed {
    /// The negotiated burst values.
    pub fn new(burst: Burst) -> Self {
        let burst = Burst { packets: burst.packets.max(1), ..burst };
        Self { burst, rate: None, offered: None }
    }

    /// The burst values that make `rate` with packets of `packet_bytes` (IP and UDP headers
    /// included), and go on making it when the packet size changes.
    pub fn from_rate(rate: Rate, packet_bytes: u32) -> Self {
        Self { burst: burst_for(rate, packet_bytes), rate: Some(rate), offered: None }
    }
}

impl RateControl for Fixed {
    fn on_sample(&mut self, _now: Instant, _sample: &Sample) {}

    fn on_silence(&mut self, _now: Instant) {}

    fn on_offer(&mut self, _now: Instant, offer: Burst) {
        // A burst of nothing would stop the transfer for good.
        let offer = Burst { packets: offer.packets.max(1), ..offer };
        self.offered = Some(self.offered.map_or(offer, |old| stricter(old, offer)));
    }

    fn on_packet_bytes(&mut self, bytes: u32) {
        if let Some(rate) = self.rate {
            self.burst = burst_for(rate, bytes);
        }
    }

    fn belief(&self) -> Belief {
        Belief { phase: "fixed", ..Belief::default() }
    }

    fn pacing(&self) -> Pacing {
        let burst = self.offered.map_or(self.burst, |offer| stricter(self.burst, offer));
        Pacing { burst, cap_bytes: None }
    }
}

fn stricter(a: Burst, b: Burst) -> Burst {
    Burst { packets: a.packets.min(b.packets), interval: a.interval.max(b.interval) }
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
    fn a_rate_is_kept_to_a_thousandth_at_every_packet_size() {
        for megabits in [1, 2, 10, 100, 200, 1000, 2500, 10_000, 40_000] {
            let rate = Rate::from_bits_per_second(megabits * 1_000_000);
            let mut fixed = Fixed::from_rate(rate, 1260);
            for packet in [300, 1260, 1500, 9000] {
                fixed.on_packet_bytes(packet);
                let burst = fixed.pacing().burst;
                let most = if megabits > 5000 { 64 } else { 44 };
                assert!((1..=most).contains(&burst.packets), "{burst:?}");
                let made = Rate::over(u64::from(burst.packets * packet), burst.interval);
                let wrong = made.bytes_per_second().abs_diff(rate.bytes_per_second());
                assert!(wrong * 1000 < rate.bytes_per_second(), "{rate} {made} {burst:?}");
            }
        }
    }

    #[test]
    fn a_new_packet_size_does_not_undo_an_offer() {
        let mut fixed = Fixed::from_rate(Rate::from_bits_per_second(100_000_000), 1260);
        fixed.on_offer(Instant::EPOCH, burst(2, 50));
        fixed.on_packet_bytes(700);
        assert_eq!(fixed.pacing().burst, burst(2, 50));
    }
}
