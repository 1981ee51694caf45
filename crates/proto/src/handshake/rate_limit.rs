//! A rate limit of handshake computations: each token is one Noise computation, some 0.1 ms
//! (`docs/protocol §4.2, §4.6`).

use std::net::IpAddr;
use std::time::Duration;

use crate::time::Instant;

/// Refill interval of one token: at worst one hundredth of a processor.
const REFILL: Duration = Duration::from_millis(10);
/// Half of a listener's tokens are for addresses that used no more than this lately,
const OWN_AT_ONCE: u32 = 8;
/// and one more per this time: an attacker with a hundred addresses may drain it.
const OWN_REFILL: Duration = Duration::from_secs(1);
/// Counters for addresses; a keyed hash chooses the counter, so an attacker cannot predict it.
const PLACES: usize = 1024;

/// A token bucket.
#[derive(Clone, Debug)]
pub(super) struct TokenBucket {
    depth: u32,
    refill: Duration,
    tokens: u32,
    /// The time up to which refills are counted.
    at: Instant,
}

impl TokenBucket {
    /// A full bucket of `depth` tokens.
    pub(super) fn full(depth: u32) -> Self {
        Self { depth, refill: REFILL, tokens: depth, at: Instant::EPOCH }
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let any = self.left(now) > 0;
        self.tokens -= u32::from(any);
        any
    }

    /// How many tokens there are.
    fn left(&mut self, now: Instant) -> u32 {
        let new = (now.since(self.at).as_nanos() / self.refill.as_nanos()) as u64;
        if new >= u64::from(self.depth) {
            (self.tokens, self.at) = (self.depth, now);
        } else {
            self.tokens = (self.tokens + new as u32).min(self.depth);
            self.at += self.refill * new as u32;
        }
        self.tokens
    }
}

/// A bucket for all clients, half of it reserved for those that use little. Otherwise an attacker
/// with many OPENs, of his own or copied, could lock out all others.
#[derive(Debug)]
pub(super) struct PerSourceLimit {
    all: TokenBucket,
    /// The buckets of single addresses, of a listener.
    own: Vec<TokenBucket>,
}

impl PerSourceLimit {
    /// For an end with one peer.
    pub(super) fn of_one(depth: u32) -> Self {
        Self { all: TokenBucket::full(depth), own: Vec::new() }
    }

    /// A limit for a listener.
    pub(super) fn of_many(depth: u32) -> Self {
        let own = TokenBucket { refill: OWN_REFILL, ..TokenBucket::full(OWN_AT_ONCE) };
        Self { all: TokenBucket::full(depth), own: vec![own; PLACES] }
    }

    /// Takes a token for an address, if there is one. `place` chooses its counter by a keyed hash.
    pub(super) fn take(
        &mut self,
        now: Instant,
        address: IpAddr,
        place: impl FnOnce(&[u8]) -> u64,
    ) -> bool {
        let left = self.all.left(now);
        if left > 0 && !self.own.is_empty() {
            let at = (place(network(address).as_slice()) % PLACES as u64) as usize;
            let own = self.own.get_mut(at).is_some_and(|own| own.take(now));
            if !own && left <= self.all.depth / 2 {
                return false;
            }
        }
        self.all.take(now)
    }
}

/// The part of an address that most likely belongs to one owner: of IPv6 a site.
fn network(address: IpAddr) -> Vec<u8> {
    match address.to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets()[..6].to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_gets_the_full_bucket_and_then_one_token_per_refill() {
        let mut bucket = TokenBucket::full(64);
        let at = |micros: u64| Instant::from_nanos(1_000_000_000 + micros * 1000);
        let taken = (0..20_000).filter(|n| bucket.take(at(n * 50))).count();
        assert_eq!(taken, 64 + 99, "20,000 in a second");
        assert!(bucket.take(at(10_000_000)));
        assert!((0..63).all(|_| bucket.take(at(10_000_000))));
        assert!(!bucket.take(at(10_000_000)));
    }

    /// A counter of its own for each network, as long as there are few.
    fn place(bytes: &[u8]) -> u64 {
        bytes.iter().map(|byte| u64::from(*byte)).sum()
    }

    #[test]
    fn a_greedy_address_leaves_half_of_the_tokens_for_the_others() {
        let at = |micros: u64| Instant::from_nanos(1_000_000_000 + micros * 1000);
        let [greedy, modest]: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let mut shared = PerSourceLimit::of_many(512);
        let took = (0..20_000).filter(|n| shared.take(at(n * 50), greedy, place)).count();
        assert!((256 + 99..=256 + 99 + 1).contains(&took), "20,000 in a second: {took}");
        // At the worst moment it gets more than a client needs.
        assert!((0..8).all(|_| shared.take(at(1_000_000), modest, place)));
        // An attacker alone gets as much as on an end with one peer.
        let soon = |n: u64| at(1_000_000 + n * 50);
        let took = (0..200_000).filter(|n| shared.take(soon(*n), greedy, place)).count();
        assert!((990..=1001).contains(&took), "200,000 in ten seconds: {took}");
    }

    #[test]
    fn an_ipv6_site_and_a_mapped_address_count_as_one_network() {
        let network = |text: &str| network(text.parse().unwrap());
        assert_eq!(network("2001:db8:1:2::3"), network("2001:db8:1:ffff::"));
        assert_ne!(network("2001:db8:1::"), network("2001:db8:2::"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
    }

    #[test]
    fn an_end_with_one_peer_does_not_count_by_address() {
        let (mut shared, mut bucket) = (PerSourceLimit::of_one(64), TokenBucket::full(64));
        for n in 0..10_000 {
            let now = Instant::from_nanos(n * 100_000);
            let take = shared.take(now, [192, 0, 2, 1].into(), |_| unreachable!());
            assert_eq!(take, bucket.take(now), "at {now:?}");
        }
    }
}
