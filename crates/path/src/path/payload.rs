//! The payload of a path.

/// A payload.
pub trait Payload: Clone {
    /// Bytes in the datagram.
    fn len_bytes(&self) -> usize;
    /// Flips one of its `8 * len_bytes()` bits.
    fn flip_bit(&mut self, bit: usize);
}

impl Payload for Vec<u8> {
    fn len_bytes(&self) -> usize {
        self.len()
    }

    fn flip_bit(&mut self, bit: usize) {
        if let Some(byte) = self.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}
