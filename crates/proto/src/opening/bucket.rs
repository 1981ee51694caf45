//! A limit on what is dear: each token is one Noise computation, some 0.1 ms
//! (`docs/protocol.md §4.2`).

use std::time::Duration;

use crate::time::Instant;

/// The time after which there may be one more: at worst one hundredth of a processor.
const REFILL: Duration = Duration::from_millis(10);

/// A bucket of tokens.
#[derive(Debug)]
pub(super) struct Bucket {
    depth: u32,
    tokens: u32,
    /// Until when refills are counted.
    at: Instant,
}

impl Bucket {
    /// A full one, for so many computations at once.
    pub(super) fn full(depth: u32) -> Self {
        Self { depth, tokens: depth, at: Instant::EPOCH }
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let new = (now.since(self.at).as_nanos() / REFILL.as_nanos()) as u64;
        if new >= u64::from(self.depth) {
            (self.tokens, self.at) = (self.depth, now);
        } else {
            self.tokens = (self.tokens + new as u32).min(self.depth);
            self.at += REFILL * new as u32;
        }
        let any = self.tokens > 0;
        self.tokens -= u32::from(any);
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_gets_what_is_in_it_and_then_a_drop_at_a_time() {
        let mut bucket = Bucket::full(64);
        let at = |micros: u64| Instant::from_nanos(1_000_000_000 + micros * 1000);
        let taken = (0..20_000).filter(|n| bucket.take(at(n * 50))).count();
        assert_eq!(taken, 64 + 99, "20,000 in a second");
        assert!(bucket.take(at(10_000_000)));
        assert!((0..63).all(|_| bucket.take(at(10_000_000))));
        assert!(!bucket.take(at(10_000_000)));
    }
}
