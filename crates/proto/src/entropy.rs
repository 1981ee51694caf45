//! Randomness as an input: everything random in a connection derives from a seed of 32 bytes, so
//! that a seed replays a handshake to the bit.

use zeroize::{Zeroize, Zeroizing};

/// A stream of random values from one seed. Each draw replaces the seed, so that an attacker
/// that reads it later does not learn what was drawn before.
#[derive(Clone)]
pub(crate) struct Entropy {
    seed: Zeroizing<[u8; 32]>,
    drawn: u64,
}

const DRAW: &[u8] = b"draw";

impl std::fmt::Debug for Entropy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entropy({} drawn)", self.drawn)
    }
}

impl Entropy {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self { seed: Zeroizing::new(seed), drawn: 0 }
    }

    /// 32 new bytes.
    pub(crate) fn draw(&mut self) -> [u8; 32] {
        self.drawn += 1;
        let mut hasher = blake3::Hasher::new_keyed(&self.seed);
        hasher.update(DRAW);
        let mut output = hasher.finalize_xof();
        let mut drawn = [0; 32];
        output.fill(&mut drawn);
        output.fill(&mut *self.seed);
        hasher.zeroize();
        output.zeroize();
        drawn
    }

    /// Any number.
    pub(crate) fn draw_u64(&mut self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.draw();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// A number that is not 0.
    pub(crate) fn draw_u32(&mut self) -> u32 {
        loop {
            let [a, b, c, d, ..] = self.draw();
            match u32::from_le_bytes([a, b, c, d]) {
                0 => {}
                number => return number,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_draws_do_not_follow_from_the_remaining_seed() {
        let mut entropy = Entropy::new([7; 32]);
        let mut seen = vec![[7; 32]];
        for _ in 0..100 {
            let drawn = entropy.draw();
            assert!(!seen.contains(&drawn) && !seen.contains(&entropy.seed));
            seen.extend([drawn, *entropy.seed]);
        }
        let (mut again, mut left) = (Entropy::new([7; 32]), Entropy::new(seen[2]));
        assert_eq!((again.draw(), again.draw()), (seen[1], left.draw()), "replayed by its seed");
    }
}
