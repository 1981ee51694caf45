//! Receive buffer auto-tuning (`docs/protocol §6.2`): how many buffers a path can use, which is
//! twice its bandwidth-delay product, and some.
//!
//! The owner of the buffers asks here and allocates only then, so a short path never takes the
//! memory of a long one. This module does not know how many buffers exist or may exist.

use std::time::Duration;

use crate::time::Instant;

/// Bandwidth-delay products: one in flight, and one of lost packets on their way again, since a
/// hole is filled a round trip after it was seen.
const PRODUCTS: u64 = 2;
/// Buffers beyond that: those that the client reads or stores, and those that lost a retransmission
/// as well.
const SPARE: u64 = 32;

/// Measures the bytes delivered in a round trip.
#[derive(Clone, Copy, Debug)]
pub struct BufferAutotuner {
    buffer_bytes: u32,
    /// Start of the measurement under way, and the bytes delivered by then.
    since: Option<(Instant, u64)>,
    /// Bytes delivered in the round trip before.
    last: Option<u64>,
    /// Largest delivery per round trip, averaged over two successive ones: a late report moves
    /// bytes from one to the next.
    product: u64,
}

impl BufferAutotuner {
    /// For buffers of `buffer_bytes`, on an unknown path.
    pub fn new(buffer_bytes: u32) -> Self {
        Self { buffer_bytes, since: None, last: None, product: 0 }
    }

    /// How many buffers the path can use, as far as is known. `moved` bytes were delivered by now,
    /// and the smallest round trip is `rtt`. The answer never falls.
    pub fn buffers(&mut self, now: Instant, moved: u64, rtt: Option<Duration>) -> u32 {
        if let Some(rtt) = rtt {
            self.measure(now, moved, rtt);
        }
        if self.product == 0 {
            return 0;
        }
        let bytes = self.product.saturating_mul(PRODUCTS);
        let buffers = bytes.div_ceil(u64::from(self.buffer_bytes.max(1))).saturating_add(SPARE);
        u32::try_from(buffers).unwrap_or(u32::MAX)
    }

    fn measure(&mut self, now: Instant, moved: u64, rtt: Duration) {
        let (since, before) = *self.since.get_or_insert((now, moved));
        let spell = now.since(since);
        if spell < rtt || spell.is_zero() {
            return;
        }
        self.since = Some((now, moved));
        let moved = u128::from(moved.saturating_sub(before));
        let product = moved * rtt.as_nanos() / spell.as_nanos();
        let product = u64::try_from(product).unwrap_or(u64::MAX);
        let last = self.last.replace(product).unwrap_or(product);
        self.product = self.product.max(product.midpoint(last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::EPOCH + Duration::from_micros(micros)
    }

    #[test]
    fn buffers_are_twice_the_bandwidth_delay_product_and_some() {
        let rtt = Some(Duration::from_millis(100));
        let mut tuner = BufferAutotuner::new(1 << 20);
        assert_eq!(tuner.buffers(at(0), 0, rtt), 0, "nothing is known");
        assert_eq!(tuner.buffers(at(99_999), 50 << 20, rtt), 0, "no round trip yet");
        assert_eq!(tuner.buffers(at(100_000), 50 << 20, rtt), 132);
        assert_eq!(tuner.buffers(at(300_000), 250 << 20, rtt), 182, "100 MiB, and 50 before");
        assert_eq!(tuner.buffers(at(500_000), 450 << 20, rtt), 232, "twice as long: half of it");
        assert_eq!(tuner.buffers(at(1_100_000), 451 << 20, rtt), 232, "it never becomes less");
    }

    #[test]
    fn a_late_report_does_not_raise_the_number_of_buffers() {
        let rtt = Some(Duration::from_millis(100));
        let mut tuner = BufferAutotuner::new(1 << 20);
        tuner.buffers(at(0), 0, rtt);
        tuner.buffers(at(100_000), 50 << 20, rtt);
        assert_eq!(tuner.buffers(at(200_000), 80 << 20, rtt), 132, "20 MiB are reported later");
        assert_eq!(tuner.buffers(at(300_000), 150 << 20, rtt), 132, "70 MiB, and 30 before");
    }

    #[test]
    fn extreme_values_do_not_overflow() {
        let mut tuner = BufferAutotuner::new(0);
        assert_eq!(tuner.buffers(at(0), 0, None), 0);
        assert_eq!(tuner.buffers(at(5), 9, Some(Duration::ZERO)), 0);
        assert_eq!(tuner.buffers(at(5), 9, Some(Duration::ZERO)), 0);
        assert_eq!(tuner.buffers(at(6), u64::MAX, Some(Duration::MAX)), 0);
        let nano = Some(Duration::from_nanos(1));
        assert_eq!(tuner.buffers(at(7), u64::MAX, nano), u32::MAX);
        assert_eq!(tuner.buffers(at(8), 0, nano), u32::MAX, "it went back");
    }
}
