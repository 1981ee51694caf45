//! RFC 998 as written: the negotiated burst values, whatever the path says.

use crate::rate::{Belief, Pacing, RateControl, Sample};
use crate::time::Instant;
use crate::units::{Burst, Rate};

/// Sends at one rate. It follows the receiver's offers, but only toward more restrictive, as the
/// negotiation does (`docs/protocol.md §4.4`): an offer is a plea for mercy, never a licence.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    /// The negotiated ones, or what offers have left of them.
    burst: Burst,
    /// Bytes of the packets that they count, and of those that are sent: where the size changes,
    /// the rate stays.
    sizes: Option<(u32, u32)>,
}

impl Fixed {
    /// The negotiated burst values.
    pub fn new(burst: Burst) -> Self {
        let burst = Burst { packets: burst.packets.max(1), ..burst };
        Self { burst, sizes: None }
    }

    /// The same, of so many packets of `packet_bytes` (IP and UDP headers included), whatever the
    /// size of those that are sent.
    pub fn of_bytes(self, packet_bytes: u32) -> Self {
        let packet_bytes = packet_bytes.max(1);
        Self { sizes: Some((packet_bytes, packet_bytes)), ..self }
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

    fn on_packet_bytes(&mut self, bytes: u32) {
        if let Some((_, sent)) = &mut self.sizes {
            *sent = bytes.max(1);
        }
    }

    fn charges_bytes(&self) -> bool {
        self.sizes.is_some()
    }

    fn belief(&self) -> Belief {
        Belief { phase: "fixed", ..Belief::default() }
    }

    fn pacing(&self) -> Pacing {
        let burst = match self.sizes {
            Some((counted, sent)) if counted != sent => resized(self.burst, counted, sent),
            _ => self.burst,
        };
        Pacing::of(burst)
    }
}

/// `burst` of packets of `counted` bytes, in packets of `sent` bytes: as many bytes a second.
fn resized(burst: Burst, counted: u32, sent: u32) -> Burst {
    let bytes = u64::from(burst.packets) * u64::from(counted);
    let packets = u32::try_from(bytes / u64::from(sent)).unwrap_or(u32::MAX).max(1);
    let interval = match burst.interval.is_zero() {
        true => burst.interval,
        false => Rate::over(bytes, burst.interval).time_for(u64::from(packets) * u64::from(sent)),
    };
    Burst { packets, interval }
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
    fn packets_of_any_size_leave_at_the_same_rate() {
        let rate = |burst: Burst, packet: u64| {
            Rate::over(u64::from(burst.packets) * packet, burst.interval).bytes_per_second()
        };
        for packets in [1, 8, 64] {
            let mut fixed = Fixed::new(burst(packets, 5)).of_bytes(1260);
            assert_eq!(fixed.pacing().burst, burst(packets, 5));
            let agreed = rate(burst(packets, 5), 1260);
            for sent in [204, 592, 1260, 1500, 9000, 65_535] {
                fixed.on_packet_bytes(sent);
                let made = rate(fixed.pacing().burst, sent.into());
                assert!(made.abs_diff(agreed) <= agreed / 1000, "{packets} of {sent}: {made}");
            }
        }
    }

    #[test]
    fn a_new_packet_size_does_not_undo_an_offer() {
        let mut fixed = Fixed::new(burst(8, 1));
        fixed.on_offer(Instant::EPOCH, burst(2, 50));
        fixed.on_packet_bytes(700);
        assert_eq!(fixed.pacing().burst, burst(2, 50));
    }
}
