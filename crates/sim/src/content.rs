//! The content of a virtual transfer: bytes that depend on the seed and their offset alone, so that
//! neither end keeps a copy and every delivered buffer can be compared at once.

use netblt_path::rng::{Rng, splitmix64};
use netblt_proto::buffer::Buffer;

/// Words in the block that every piece of content is made from.
const BLOCK_WORDS: usize = 1024;
/// Bytes in it.
const BLOCK_BYTES: usize = BLOCK_WORDS * 8;

/// The content of one transfer, cut into buffers.
#[derive(Clone, Debug)]
pub struct Content {
    /// Random words; each block of a buffer is these, xored with a key of its place.
    block: Vec<u64>,
    key: u64,
    shape: Shape,
}

/// How much content there is and how it lies in buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes in all.
    pub bytes: u64,
    /// Of these, how many are in each buffer but the last.
    pub buffer_bytes: u32,
    /// A buffer may be this much longer (`docs/protocol §8.1`: its table).
    pub table_bytes: u32,
    /// An empty transfer still has one buffer, of no bytes.
    pub at_least_one: bool,
}

impl Shape {
    /// How many buffers there are; the last has this number.
    pub fn buffers(&self) -> u64 {
        let full = self.bytes.div_ceil(u64::from(self.buffer_bytes.max(1)));
        full.max(u64::from(self.at_least_one))
    }

    /// Bytes of content in buffer `number`; none outside the transfer.
    pub fn data_len(&self, number: u64) -> usize {
        let size = u64::from(self.buffer_bytes);
        let start = number.saturating_sub(1).saturating_mul(size);
        self.bytes.saturating_sub(start).min(size) as usize
    }
}

impl Content {
    /// The content of `seed` in `shape`.
    pub fn new(seed: u64, shape: Shape) -> Self {
        let mut rng = Rng::named(seed, "content");
        let key = rng.next_u64();
        Self { block: (0..BLOCK_WORDS).map(|_| rng.next_u64()).collect(), key, shape }
    }

    /// Its shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Bytes in the image of buffer `number`: its content, and a table of a length of its own.
    pub fn image_len(&self, number: u64) -> usize {
        let table = match u64::from(self.shape.table_bytes) {
            0 => 0,
            most => self.place_key(number, u64::MAX) % (most + 1),
        };
        self.shape.data_len(number) + table as usize
    }

    /// Writes the image of buffer `number`, as far as it fits.
    pub fn fill(&self, number: u64, buffer: &mut Buffer) {
        let len = self.image_len(number);
        buffer.set_len(len);
        let len = len.min(buffer.capacity());
        for (n, bytes) in buffer.space()[..len].chunks_mut(BLOCK_BYTES).enumerate() {
            let key = self.place_key(number, n as u64);
            let mut words = bytes.chunks_exact_mut(8);
            for (word, random) in (&mut words).zip(&self.block) {
                word.copy_from_slice(&(random ^ key).to_le_bytes());
            }
            let rest = words.into_remainder();
            if let Some(random) = self.block.get((len % BLOCK_BYTES) / 8) {
                rest.copy_from_slice(&(random ^ key).to_le_bytes()[..rest.len()]);
            }
        }
    }

    /// The first place where `image` is not that of buffer `number`; its length if only that is
    /// wrong.
    pub fn differs(&self, number: u64, image: &[u8]) -> Option<usize> {
        for (n, bytes) in image.chunks(BLOCK_BYTES).enumerate() {
            let key = self.place_key(number, n as u64);
            let mut words = bytes.chunks_exact(8);
            let same = (&mut words)
                .zip(&self.block)
                .fold(true, |same, (word, random)| same & (word == (random ^ key).to_le_bytes()));
            let tail = self.block.get(bytes.len() / 8).map(|random| (random ^ key).to_le_bytes());
            let rest = words.remainder();
            if !same || tail.is_some_and(|tail| rest != &tail[..rest.len()]) {
                return Some(n * BLOCK_BYTES + self.first_difference(key, bytes));
            }
        }
        (image.len() != self.image_len(number)).then_some(image.len())
    }

    fn first_difference(&self, key: u64, bytes: &[u8]) -> usize {
        let expected = self.block.iter().flat_map(|random| (random ^ key).to_le_bytes());
        bytes.iter().zip(expected).position(|(got, want)| *got != want).unwrap_or(bytes.len())
    }

    fn place_key(&self, number: u64, block: u64) -> u64 {
        let mut state = self.key ^ number.rotate_left(32) ^ block;
        splitmix64(&mut state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(bytes: u64, buffer_bytes: u32, table_bytes: u32) -> Content {
        Content::new(7, Shape { bytes, buffer_bytes, table_bytes, at_least_one: false })
    }

    #[test]
    fn filled_content_compares_equal_and_any_flip_does_not() {
        for (bytes, buffer_bytes) in [(1, 16), (20_000, 20_000), (8192, 8192), (100_003, 65_536)] {
            let content = content(bytes, buffer_bytes, 100);
            for number in 1..=content.shape().buffers() {
                let mut buffer = Buffer::new(buffer_bytes as usize + 100);
                content.fill(number, &mut buffer);
                let mut image = buffer.filled().to_vec();
                assert_eq!(image.len(), content.image_len(number));
                assert_eq!(content.differs(number, &image), None);
                assert_eq!(content.differs(number + 1, &image).is_some(), !image.is_empty());
                for at in [0, image.len() / 2, image.len() - 1] {
                    image[at] ^= 4;
                    assert_eq!(content.differs(number, &image), Some(at));
                    image[at] ^= 4;
                }
                image.pop();
                assert_eq!(content.differs(number, &image), Some(image.len()));
            }
        }
    }

    #[test]
    fn buffers_tile_the_transfer() {
        let shape = Shape { bytes: 10, buffer_bytes: 4, table_bytes: 0, at_least_one: false };
        let lens: Vec<usize> = (0..=4).map(|number| shape.data_len(number)).collect();
        assert_eq!((shape.buffers(), &lens[1..]), (3, &[4, 4, 2, 0][..]));
        let empty = Shape { bytes: 0, ..shape };
        assert_eq!(empty.buffers(), 0);
        assert_eq!(Shape { at_least_one: true, ..empty }.buffers(), 1);
    }
}
