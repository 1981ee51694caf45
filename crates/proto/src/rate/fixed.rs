//! RFC 998 as written: the negotiated burst values, whatever the path says. On `sealed`, where
//! losses are reported, a circuit breaker halves the rate on a path that is overrun.

use std::time::Duration;

use super::MAX_INTERVAL;
use super::breaker::Breaker;
use crate::rate::{Belief, Pacing, RateControl, Sample, burst_for};
use crate::time::Instant;
use crate::units::{Burst, Rate};

/// Sends at one rate. It follows the receiver's offers, but only toward more restrictive, as the
/// negotiation does (`docs/protocol §4.4`): an offer is a plea for mercy, never a licence.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    /// The negotiated ones, or the user's newer ones.
    wanted: Burst,
    /// What offers have left of them.
    burst: Burst,
    /// Bytes of the packets that they count.
    packet: u32,
    /// Bytes of those that are sent, if that is another thing: where the size changes, the rate
    /// stays.
    sent: Option<u32>,
    ceiling: Option<Rate>,
    breaker: Option<Breaker>,
}

impl Fixed {
    /// The negotiated burst values, of packets of `packet_bytes` (IP and UDP headers included).
    pub fn new(burst: Burst, packet_bytes: u32) -> Self {
        let burst = Burst { packets: burst.packets.max(1), ..burst };
        let packet = packet_bytes.max(1);
        Self { wanted: burst, burst, packet, sent: None, ceiling: None, breaker: None }
    }

    /// The same, with a circuit breaker (`docs/protocol §7.5`): losses are reported.
    pub fn with_breaker(self) -> Self {
        Self { breaker: Some(Breaker::default()), ..self }
    }

    /// The same, of so many bytes, whatever the size of the packets that are sent.
    pub fn of_bytes(self) -> Self {
        Self { sent: Some(self.packet), ..self }
    }

    /// How often the breaker has halved the rate.
    fn steps(&self) -> u32 {
        self.breaker.as_ref().map_or(0, Breaker::steps)
    }

    /// The burst values below the ceiling. Where packets count, and whole milliseconds, they keep
    /// their interval as long as one packet fits.
    fn below_ceiling(&self) -> Burst {
        let Burst { packets, interval } = self.burst;
        let packet = u64::from(self.packet);
        let Some(ceiling) = self.ceiling else { return self.burst };
        if !interval.is_zero() && Rate::over(u64::from(packets) * packet, interval) <= ceiling {
            return self.burst;
        }
        if self.sent.is_some() || interval.is_zero() {
            return burst_for(ceiling, self.packet);
        }
        match u32::try_from(ceiling.bytes_in(interval) / packet).unwrap_or(u32::MAX) {
            0 => {
                let millis = ceiling.time_for(packet).as_nanos().div_ceil(1_000_000);
                let millis = u16::try_from(millis).unwrap_or(u16::MAX);
                Burst { packets: 1, interval: Duration::from_millis(millis.into()) }
            }
            packets => Burst { packets, interval },
        }
    }
}

impl RateControl for Fixed {
    fn on_sample(&mut self, now: Instant, sample: &Sample) {
        if let Some(breaker) = &mut self.breaker {
            breaker.on_sample(now, sample);
        }
    }

    fn on_silence(&mut self, _now: Instant) {}

    fn on_offer(&mut self, _now: Instant, offer: Burst) {
        // A burst of nothing would stop the transfer for good.
        let offer = Burst { packets: offer.packets.max(1), ..offer };
        self.burst = match self.sent {
            None => self.burst.stricter(offer),
            Some(_) => self.wanted.slower(offer),
        };
    }

    fn on_ceiling(&mut self, _now: Instant, ceiling: Option<Rate>) {
        self.ceiling = ceiling;
    }

    fn on_packet_bytes(&mut self, bytes: u32) {
        match &mut self.sent {
            Some(sent) => *sent = bytes.max(1),
            None => self.packet = bytes.max(1),
        }
    }

    fn charges_bytes(&self) -> bool {
        self.sent.is_some()
    }

    fn is_reduced(&self) -> bool {
        self.steps() > 0
    }

    fn belief(&self) -> Belief {
        Belief { phase: if self.steps() > 0 { "breaker" } else { "fixed" }, ..Belief::default() }
    }

    fn pacing(&self) -> Pacing {
        let burst = self.below_ceiling();
        let burst = match self.sent {
            Some(sent) if sent != self.packet => resized(burst, self.packet, sent),
            _ => burst,
        };
        let longest = MAX_INTERVAL.max(burst.interval);
        let interval = burst.interval.saturating_mul(1 << self.steps()).min(longest);
        Pacing::of(Burst { interval, ..burst })
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
    use super::*;

    fn burst(packets: u32, millis: u64) -> Burst {
        Burst { packets, interval: Duration::from_millis(millis) }
    }

    #[test]
    fn offers_only_restrain() {
        let mut fixed = Fixed::new(burst(8, 10), 1260);
        fixed.on_offer(Instant::EPOCH, burst(16, 5));
        assert_eq!(fixed.pacing().burst, burst(8, 10));
        fixed.on_offer(Instant::EPOCH, burst(4, 5));
        fixed.on_offer(Instant::EPOCH, burst(6, 20));
        assert_eq!(fixed.pacing().burst, burst(4, 20));
        fixed.on_offer(Instant::EPOCH, burst(0, 0));
        assert_eq!(fixed.pacing().burst, burst(1, 20));
    }

    #[test]
    fn a_ceiling_holds_and_is_lifted_again() {
        let rate = |fixed: &Fixed| {
            let Burst { packets, interval } = fixed.pacing().burst;
            Rate::over(u64::from(packets) * 1000, interval).bytes_per_second()
        };
        for by_bytes in [false, true] {
            let fixed = Fixed::new(burst(8, 10), 1000);
            let mut fixed = if by_bytes { fixed.of_bytes() } else { fixed };
            for (ceiling, least) in [(500_000, 500_000), (40_000, 40_000), (3000, 2990)] {
                fixed.on_ceiling(Instant::EPOCH, Some(Rate::from_bytes_per_second(ceiling)));
                assert!((least..=ceiling).contains(&rate(&fixed)), "{by_bytes} {fixed:?}");
            }
            fixed.on_ceiling(Instant::EPOCH, Some(Rate::from_bytes_per_second(9_000_000)));
            assert_eq!(rate(&fixed), 800_000);
            fixed.on_ceiling(Instant::EPOCH, None);
            assert_eq!(fixed.pacing().burst, burst(8, 10));
        }
    }

    #[test]
    fn where_a_rate_counts_the_newest_offer_does() {
        let mut fixed = Fixed::new(burst(8, 10), 1000).of_bytes();
        for (offer, left) in [((1, 10), (1, 10)), ((4, 10), (4, 10)), ((64, 10), (8, 10))] {
            fixed.on_offer(Instant::EPOCH, burst(offer.0, offer.1));
            assert_eq!(fixed.pacing().burst, burst(left.0, left.1));
        }
    }

    #[test]
    fn packets_of_any_size_leave_at_the_same_rate() {
        let rate = |burst: Burst, packet: u64| {
            Rate::over(u64::from(burst.packets) * packet, burst.interval).bytes_per_second()
        };
        for packets in [1, 8, 64] {
            let mut fixed = Fixed::new(burst(packets, 5), 1260).of_bytes();
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
    fn a_path_that_is_overrun_halves_the_rate() {
        let mut fixed = Fixed::new(burst(8, 10), 1260).of_bytes().with_breaker();
        for n in 0..=100 {
            let now = Instant::EPOCH + Duration::from_millis(n * 100);
            let counts = Sample {
                round: n,
                lost_packets: n * 20,
                delivered_packets: n * 60,
                ..Sample::default()
            };
            assert_eq!(fixed.pacing().burst, burst(8, 10));
            fixed.on_sample(now, &counts);
        }
        assert_eq!(fixed.pacing().burst, burst(8, 20));
        assert_eq!((fixed.belief().phase, fixed.is_reduced()), ("breaker", true));
    }

    #[test]
    fn a_new_packet_size_does_not_undo_an_offer() {
        let mut fixed = Fixed::new(burst(8, 1), 1260);
        fixed.on_offer(Instant::EPOCH, burst(2, 50));
        fixed.on_packet_bytes(700);
        assert_eq!(fixed.pacing().burst, burst(2, 50));
    }
}
