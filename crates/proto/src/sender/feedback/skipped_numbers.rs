//! Skipped packet numbers, which expose a receiver that reports packets it never got
//! (`docs/protocol §6.3`, RFC 9000 §21.4).
//!
//! Inputs: a seed and the packets that leave. Output: when the next number is skipped.

use crate::entropy::Entropy;

/// Mean number of data packets between two skipped numbers; all distances up to twice that are
/// equally likely.
const MEAN_PACKETS: u32 = 256;

/// When the next number is skipped.
#[derive(Debug)]
pub(super) struct SkippedNumbers {
    entropy: Entropy,
    /// Data packets until then.
    left: u32,
}

impl SkippedNumbers {
    /// Drawn from a seed that the peer cannot know.
    pub(super) fn new(seed: [u8; 32]) -> Self {
        let mut new = Self { entropy: Entropy::new(seed), left: 0 };
        new.set();
        new
    }

    /// Data packets that may leave before the next number is skipped.
    pub(super) fn left(&self) -> u32 {
        self.left
    }

    /// Counts sent packets.
    pub(super) fn on_sent(&mut self, packets: u32) {
        self.left = self.left.saturating_sub(packets);
    }

    /// A number was skipped; draws the next distance.
    pub(super) fn set(&mut self) {
        let most = u64::from(2 * MEAN_PACKETS - 1);
        self.left = 1 + (self.entropy.draw_u64() % most) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_bounded_and_follow_from_the_seed_alone() {
        let distances = |seed: u8| {
            let mut skipped_numbers = SkippedNumbers::new([seed; 32]);
            let next = |_| {
                let left = skipped_numbers.left();
                skipped_numbers.on_sent(left);
                assert_eq!(skipped_numbers.left(), 0);
                skipped_numbers.set();
                left
            };
            (0..1000).map(next).collect::<Vec<_>>()
        };
        let (one, other) = (distances(1), distances(2));
        assert!(one == distances(1) && one != other);
        assert!(one.iter().all(|left| (1..2 * MEAN_PACKETS).contains(left)));
        let mean = one.iter().sum::<u32>() / 1000;
        assert!((230..280).contains(&mean), "{mean}");
    }
}
