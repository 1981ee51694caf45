//! What chance does to the packets of one path.

use std::time::Duration;

use netblt_proto::time::{Instant, nanos};

use super::options::LinkOptions;
use super::payload::Payload;
use crate::rng::{Probability, Rng, key, splitmix64, threshold};

/// What will happen to one packet behind the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fate {
    pub(super) lost: bool,
    pub(super) duplicate: bool,
    pub(super) reorder: bool,
    /// Seeds the choice of bits to flip; 0 flips none.
    corrupt: u32,
}

impl Fate {
    /// Flips the bits; whether there were any to flip.
    pub(super) fn corrupt(self, payload: &mut impl Payload) -> bool {
        let bits = 8 * payload.len_bytes() as u64;
        if self.corrupt == 0 || bits == 0 {
            return false;
        }
        let mut rng = Rng::new(u64::from(self.corrupt));
        // A bit flipped twice would be whole again: each flip but the first lies behind the last.
        let mut bit = rng.below(bits);
        for _ in 0..rng.range(1..=8) {
            if bit >= bits {
                break;
            }
            payload.flip_bit(bit as usize);
            bit += rng.range(1..=64);
        }
        true
    }
}

/// Draws fates. Every kind of fault has a stream of its own, and every packet takes the same count
/// of numbers from each, so that the fate of the n-th packet does not depend on when it comes.
#[derive(Clone, Debug)]
pub(super) struct Fates {
    loss: Rng,
    duplicate: Rng,
    reorder: Rng,
    corrupt: Rng,
    gilbert: Gilbert,
    jitter: Wander,
}

impl Fates {
    pub(super) fn new(options: &LinkOptions, seed: u64, name: &str) -> Self {
        let seed = key(seed, name);
        Self {
            loss: Rng::named(seed, "loss"),
            duplicate: Rng::named(seed, "duplicate"),
            reorder: Rng::named(seed, "reorder"),
            corrupt: Rng::named(seed, "corrupt"),
            gilbert: Gilbert::new(options),
            jitter: Wander { key: key(seed, "jitter") },
        }
    }

    /// Takes note of changed options.
    pub(super) fn change(&mut self, options: &LinkOptions) {
        let inside_burst = self.gilbert.bad;
        self.gilbert = Gilbert { bad: inside_burst, ..Gilbert::new(options) };
    }

    pub(super) fn draw(&mut self, options: &LinkOptions) -> Fate {
        let corrupt = self.corrupt.chance(options.corrupt);
        let bits = self.corrupt.next_u64() as u32 | 1;
        Fate {
            lost: self.gilbert.loses(&mut self.loss),
            duplicate: self.duplicate.chance(options.duplicate),
            reorder: self.reorder.chance(options.reorder),
            corrupt: if corrupt { bits } else { 0 },
        }
    }

    /// The extra delay of a packet that leaves the link at `at`.
    pub(super) fn jitter(&self, options: &LinkOptions, at: Instant) -> Duration {
        self.jitter.at(at, options.jitter)
    }
}

/// Gilbert's model of loss in bursts: everything is lost in the bad state, nothing in the good one.
#[derive(Clone, Debug)]
struct Gilbert {
    bad: bool,
    /// Of 2^64: how likely a packet is lost when the one before was not.
    begin: u128,
    /// Of 2^64: how likely a packet is lost when the one before was.
    stay: u128,
}

impl Gilbert {
    /// From the two numbers that can be measured: the share lost and the mean run of losses. Runs
    /// cannot be shorter than independent losses make them, 1 / (1 - share); asked for shorter
    /// ones, losses are independent.
    fn new(options: &LinkOptions) -> Self {
        let share = threshold(options.loss);
        let one = threshold(Probability::ALWAYS);
        let kept = one - share;
        match options.loss_burst.map(u128::from) {
            Some(mean) if mean.saturating_mul(kept) > one => {
                let stay = one - one / mean;
                // In balance as many runs begin as end: begin * kept = (1 - stay) * share.
                Self { bad: false, begin: share / mean * one / kept, stay }
            }
            _ => Self { bad: false, begin: share, stay: share },
        }
    }

    fn loses(&mut self, rng: &mut Rng) -> bool {
        self.bad = rng.below_threshold(if self.bad { self.stay } else { self.begin });
        self.bad
    }
}

/// A delay that wanders between zero and a limit: straight lines between random points, one point
/// every twice the limit. So steep a line cannot make a packet overtake the one before, whatever
/// the rate; points drawn for every packet and held in order would stick to the limit instead.
#[derive(Clone, Debug)]
struct Wander {
    key: u64,
}

impl Wander {
    fn at(&self, at: Instant, limit: Duration) -> Duration {
        let limit = nanos(limit);
        if limit == 0 {
            return Duration::ZERO;
        }
        let step = limit.saturating_mul(2);
        let (index, into) = (at.as_nanos() / step, at.as_nanos() % step);
        let (from, to) = (self.point(index, limit), self.point(index + 1, limit));
        let sum = u128::from(from) * u128::from(step - into) + u128::from(to) * u128::from(into);
        Duration::from_nanos((sum / u128::from(step)) as u64)
    }

    fn point(&self, index: u64, limit: u64) -> u64 {
        let random = splitmix64(&mut self.key.wrapping_add(index.wrapping_mul(SPREAD)));
        ((u128::from(random) * (u128::from(limit) + 1)) >> 64) as u64
    }
}

/// Odd, and not splitmix64's own step, so that the points are no stretch of one of its streams.
const SPREAD: u64 = 0xd134_2543_de82_ef95;
