//! Random numbers that stay the same for ever: xoshiro256**, seeded by splitmix64.
//!
//! A seed found to break something must break it on every machine and in every later version, so
//! the generator is our own, every stream has a name (adding a component changes no other's
//! numbers), and nothing here computes with floats. Not for secrets.

use std::ops::RangeInclusive;

/// How often something happens, in parts per billion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probability(u32);

impl Probability {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Every time.
    pub const ALWAYS: Self = Self(Self::BILLION);

    const BILLION: u32 = 1_000_000_000;

    /// `n` in a billion; more than a billion is always.
    pub const fn from_ppb(n: u32) -> Self {
        Self(if n > Self::BILLION { Self::BILLION } else { n })
    }

    /// `n` in a million; more than a million is always.
    pub const fn from_ppm(n: u32) -> Self {
        Self::from_ppb(n.saturating_mul(1000))
    }

    /// `n` in a hundred; more than a hundred is always.
    pub const fn from_percent(n: u32) -> Self {
        Self::from_ppm(n.saturating_mul(10_000))
    }

    /// Parts per billion.
    pub const fn ppb(self) -> u32 {
        self.0
    }

    /// Whether it never happens.
    pub const fn is_never(self) -> bool {
        self.0 == 0
    }
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(std::array::from_fn(|_| splitmix64(&mut state)))
    }

    /// The stream of the component `name` under this seed, independent of every other name's.
    pub fn named(seed: u64, name: &str) -> Self {
        Self::new(key(seed, name))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `n`, each equally likely; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        // Lemire's method: the high half of a product, with the few products that would favour
        // small results drawn again.
        let threshold = n.wrapping_neg().checked_rem(n).unwrap_or(0);
        loop {
            let product = u128::from(self.next_u64()) * u128::from(n);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// A number within `range`, ends included; its start when it is empty.
    pub fn range(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (start, end) = (*range.start(), *range.end());
        match end.saturating_sub(start).checked_add(1) {
            Some(width) => start + self.below(width),
            None => self.next_u64(),
        }
    }

    /// Whether something of this probability happens now. Always uses one number of the stream,
    /// so that what follows does not depend on the probability.
    pub fn chance(&mut self, probability: Probability) -> bool {
        self.below_threshold(threshold(probability))
    }

    /// Whether the next number is below `threshold`, of 2^64.
    pub(crate) fn below_threshold(&mut self, threshold: u128) -> bool {
        u128::from(self.next_u64()) < threshold
    }

    /// Fills `bytes` with random ones. Eight bytes at a time: how a stream is cut into calls
    /// matters.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// How many tries until something happens that happens once in `mean` tries; at least 1.
    pub fn geometric(&mut self, mean: u32) -> u64 {
        if mean <= 1 {
            return 1;
        }
        // P(more than k tries) = (1 - 1/mean)^k, so k = log(uniform) / log(1 - 1/mean).
        let stay = u64::MAX - u64::MAX / u64::from(mean);
        1 + self.minus_log2() / minus_log2(stay).max(1)
    }

    /// An exponentially distributed number with this mean, such as the nanoseconds between events
    /// that know nothing of each other. At most 45 times the mean.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        // ln 2 in 64-bit fixed point.
        const LN_2: u128 = 0xb172_17f7_d1cf_79ab;
        let log_e = (u128::from(self.minus_log2()) * LN_2) >> 64;
        u64::try_from((u128::from(mean) * log_e) >> LOG_BITS).unwrap_or(u64::MAX)
    }

    /// `-log2` of a uniform number in (0, 1], in fixed point.
    fn minus_log2(&mut self) -> u64 {
        let uniform = self.next_u64();
        minus_log2(uniform.max(1))
    }
}

/// A hash of `name` under `seed`; seeds the stream of that name, or is used as a seed of its own.
pub fn key(seed: u64, name: &str) -> u64 {
    // FNV-1a spreads the name over 64 bits; splitmix64 then separates close seeds and names.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut state = seed;
    let mut state = splitmix64(&mut state) ^ hash;
    splitmix64(&mut state)
}

/// The next number of a splitmix64 stream.
pub fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The share of 2^64 that is this probability.
pub(crate) fn threshold(probability: Probability) -> u128 {
    (u128::from(probability.0) << 64) / u128::from(Probability::BILLION)
}

/// Bits behind the point in the logarithms below.
const LOG_BITS: u32 = 40;

/// `-log2(x / 2^64)` in fixed point, for `x` of at least 1, by repeated squaring.
fn minus_log2(x: u64) -> u64 {
    let zeros = x.leading_zeros();
    let mut mantissa = x << zeros;
    // x / 2^64 = (mantissa / 2^63) * 2^-(zeros + 1), with the first factor in [1, 2).
    let mut fraction = 0_u64;
    for bit in (0..LOG_BITS).rev() {
        let square = u128::from(mantissa) * u128::from(mantissa);
        if square >> 127 == 1 {
            fraction |= 1 << bit;
            mantissa = (square >> 64) as u64;
        } else {
            mantissa = (square >> 63) as u64;
        }
    }
    (u64::from(zeros + 1) << LOG_BITS) - fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix64_gives_its_published_numbers() {
        let mut state = 1_234_567;
        let drawn: [u64; 3] = std::array::from_fn(|_| splitmix64(&mut state));
        assert_eq!(
            drawn,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn xoshiro_gives_its_published_numbers() {
        let mut rng = Rng([1, 2, 3, 4]);
        let drawn: [u64; 5] = std::array::from_fn(|_| rng.next_u64());
        assert_eq!(
            drawn,
            [11_520, 0, 1_509_978_240, 1_215_971_899_390_074_240, 1_216_172_134_540_287_360]
        );
    }

    #[test]
    fn seeds_live_for_ever() {
        let mut a = Rng::named(42, "path/up");
        assert_eq!(a.next_u64(), 5_580_418_921_321_131_880);
        assert_eq!((a.below(1000), a.range(5..=9)), (828, 6));
        assert_eq!((a.exponential(1_000_000), a.geometric(10)), (1_112_562, 12));
        assert!(!a.chance(Probability::from_percent(50)));
        let mut bytes = [0; 11];
        a.fill(&mut bytes);
        assert_eq!(bytes, [91, 238, 122, 219, 100, 0, 150, 68, 173, 217, 96]);
        assert_eq!(Rng::new(7).next_u64(), 12_923_355_070_828_475_994);
    }

    #[test]
    fn names_are_streams_of_their_own() {
        let first = |seed, name: &str| Rng::named(seed, name).next_u64();
        let all = [first(1, "a"), first(1, "b"), first(2, "a"), first(1, ""), first(0, "a")];
        for (i, x) in all.iter().enumerate() {
            assert!(!all[i + 1..].contains(x));
        }
    }

    #[test]
    fn ends_of_ranges_are_safe() {
        let mut rng = Rng::new(1);
        assert_eq!((rng.below(0), rng.below(1)), (0, 0));
        assert_eq!(rng.range(9..=9), 9);
        assert_eq!(rng.range(RangeInclusive::new(9, 3)), 9);
        rng.range(0..=u64::MAX);
        assert!((0..100).all(|_| rng.chance(Probability::ALWAYS)));
        assert!((0..100).all(|_| !rng.chance(Probability::NEVER)));
        assert_eq!(Probability::from_ppm(u32::MAX), Probability::ALWAYS);
    }

    #[test]
    fn logarithms_are_right_to_nine_digits() {
        for x in [1, 2, 3, 1 << 63, u64::MAX, 0x1234_5678_9abc_def0] {
            let exact = 64.0 - (x as f64).log2();
            let ours = minus_log2(x) as f64 / f64::from(LOG_BITS).exp2();
            assert!((exact - ours).abs() < 1e-9, "{x}: {exact} {ours}");
        }
    }

    #[test]
    fn means_are_as_asked() {
        let mut rng = Rng::new(3);
        let n = 100_000;
        let near = |sum: u64, mean: u64| (sum / n).abs_diff(mean) <= mean / 50;
        assert!(near((0..n).map(|_| rng.exponential(1_000_000)).sum(), 1_000_000));
        assert!(near((0..n).map(|_| rng.geometric(50)).sum(), 50));
        assert!(near((0..n).map(|_| 1000 * rng.geometric(2)).sum(), 2000));
        assert!(near((0..n).map(|_| rng.below(2001)).sum(), 1000));
        let hits = (0..n).filter(|_| rng.chance(Probability::from_percent(10))).count() as u64;
        assert!(hits.abs_diff(n / 10) < n / 200);
    }
}
