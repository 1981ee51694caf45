//! Burst values as RFC 998 can say them, never looser than those agreed on: whole milliseconds, at
//! least as many as agreed, and packets, at most as many (RFC 998 §4: "only by making them more
//! restrictive").

use std::time::Duration;

use crate::units::{Burst, Rate};

/// A rate this near is good enough, in thousandths: then the smallest burst is taken.
const NEAR: u64 = 20;
/// A rate is exceeded by so many thousandths of it at most.
const ABOVE: u64 = 10;
/// Burst sizes that are tried.
const TRIED: u32 = 64;
/// The longest interval: the sender must not look dead.
const MAX_MILLIS: u64 = 10_000;

/// The values within `agreed` that come nearest to `rate` with IP packets of `packet_bytes`, at
/// least `least` of them in a burst if that may be: a little above it at most, never above `most`.
pub(super) fn within(
    agreed: Burst,
    (rate, most): (Rate, Rate),
    packet_bytes: u32,
    least: u32,
) -> Burst {
    let shortest = (agreed.interval.as_nanos().div_ceil(1_000_000) as u64).clamp(1, 65_535);
    let packets = u64::from(agreed.packets.max(1));
    // Packets in a second, a thousandfold.
    let in_a_second = |rate: Rate| {
        let packet = u128::from(packet_bytes.max(1));
        (u128::from(rate.bytes_per_second()) * 1000 / packet).min(u128::from(u64::MAX / 1000))
    };
    let (wanted, most) = (in_a_second(rate).max(1), in_a_second(most).max(1));
    let limit = (wanted + wanted * u128::from(ABOVE) / 1000).min(most);
    let made = |count: u64, millis: u64| u128::from(count) * 1_000_000 / u128::from(millis);
    let first = (wanted * u128::from(shortest) / 1_000_000).clamp(1, u128::from(packets)) as u64;
    let first = first.max(u64::from(least).min(packets));
    let mut best: Option<(u128, Burst)> = None;
    for count in first..=packets.min(first + u64::from(TRIED)) {
        let exact = (u128::from(count) * 1_000_000 / wanted) as u64;
        for millis in [exact, exact.saturating_add(1)] {
            let millis = millis.clamp(shortest, MAX_MILLIS.max(shortest));
            let rate = made(count, millis);
            if rate > limit {
                continue;
            }
            let error = rate.abs_diff(wanted);
            if best.is_none_or(|(least, _)| error < least) {
                let interval = Duration::from_millis(millis);
                best = Some((error, Burst { packets: count as u32, interval }));
            }
        }
        if best.is_some_and(|(error, _)| error * 1000 <= wanted * u128::from(NEAR)) {
            break;
        }
    }
    // So slow that not even one packet in the longest interval is.
    let slowest = Burst { packets: 1, interval: Duration::from_millis(MAX_MILLIS.max(shortest)) };
    best.map_or(slowest, |(_, burst)| burst)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burst(packets: u32, millis: u64) -> Burst {
        Burst { packets, interval: Duration::from_millis(millis) }
    }

    /// `packets` of 1,000 bytes in a second, within `agreed`.
    fn values(agreed: Burst, packets: u64) -> Burst {
        let rate = Rate::from_bytes_per_second(packets * 1000);
        let full = Rate::over(u64::from(agreed.packets) * 1000, agreed.interval);
        within(agreed, (rate.min(full), full), 1000, 1)
    }

    #[test]
    fn they_are_near_the_rate_and_never_looser() {
        for (agreed, packets, expected) in [
            (burst(8, 1), 8000, burst(8, 1)),
            (burst(8, 1), 90_000, burst(8, 1)),
            (burst(8, 1), 992, burst(1, 1)),
            (burst(8, 1), 100, burst(1, 10)),
            (burst(8, 1), 95, burst(2, 21)),
            (burst(8, 1), 5300, burst(5, 1)),
            (burst(5, 55), 70, burst(4, 57)),
            (burst(5, 55), 88, burst(5, 57)),
            (burst(1, 1), 900, burst(1, 2)),
            (burst(8, 1), 0, burst(1, 10_000)),
        ] {
            assert_eq!(values(agreed, packets), expected, "{packets}/s within {agreed:?}");
        }
    }

    #[test]
    fn a_ceiling_is_not_exceeded_and_a_train_stays_one() {
        let rate = |n: u64| Rate::from_bytes_per_second(n * 1000);
        assert_eq!(within(burst(8, 1), (rate(990), rate(990)), 1000, 1), burst(8, 9));
        assert_eq!(within(burst(8, 1), (rate(80), rate(9999)), 1000, 6), burst(6, 75));
        assert_eq!(within(burst(2, 1), (rate(80), rate(9999)), 1000, 6), burst(2, 25));
    }

    #[test]
    fn none_is_ever_looser() {
        for packets in [1, 2, 5, 8, 100, 65_535] {
            for millis in [0, 1, 2, 7, 55, 1000, 65_000] {
                let agreed = burst(packets, millis);
                for shift in 0..40 {
                    let rate = Rate::from_bytes_per_second(1 << shift);
                    let found =
                        within(agreed, (rate, Rate::from_bytes_per_second(u64::MAX)), 77, 1);
                    assert!(found.packets >= 1 && found.packets <= packets, "{found:?}");
                    assert!(found.interval >= agreed.interval, "{agreed:?} {found:?}");
                    assert_eq!(found.interval.subsec_nanos() % 1_000_000, 0);
                }
            }
        }
    }
}
