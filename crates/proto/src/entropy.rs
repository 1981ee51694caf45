//! Randomness as an input: everything random in a connection comes from 32 bytes handed in, so
//! that a seed replays a handshake to the bit.

use zeroize::Zeroizing;

/// A stream of random values from one seed.
#[derive(Clone)]
pub(crate) struct Entropy {
    seed: Zeroizing<[u8; 32]>,
    drawn: u64,
}

impl std::fmt::Debug for Entropy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entropy({} drawn)", self.drawn)
    }
}

impl Entropy {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self { seed: Zeroizing::new(seed), drawn: 0 }
    }

    /// 32 bytes never handed out before.
    pub(crate) fn draw(&mut self) -> [u8; 32] {
        self.drawn += 1;
        *blake3::keyed_hash(&self.seed, &self.drawn.to_le_bytes()).as_bytes()
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
