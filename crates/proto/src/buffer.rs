//! The buffer: RFC 998's unit of data, and here also the permission to send it.
//!
//! A [`Buffer`] is an owned allocation that moves: empty into the receiving machine (GO) and full
//! out of it; full into the sending machine, and out again after OK. Buffers are neither copied nor
//! shared, so their number bounds the memory of a transfer.

use std::fmt;
use std::ops::Range;

use thiserror::Error;
use zerocopy::FromZeros;

use crate::units::PacketIndex;

/// An owned piece of memory of fixed capacity, of which the first `len` bytes are in use.
pub struct Buffer {
    bytes: Box<[u8]>,
    len: usize,
}

impl Buffer {
    /// An empty buffer that can hold `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        Self { bytes: vec![0; capacity].into_boxed_slice(), len: 0 }
    }

    /// The same, where memory may be limited.
    pub fn try_new(capacity: usize) -> Result<Self, OutOfMemory> {
        let bytes = <[u8]>::new_box_zeroed_with_elems(capacity).map_err(|_| OutOfMemory)?;
        Ok(Self { bytes, len: 0 })
    }

    /// How many bytes it can hold.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes in use.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// All of the memory, used or not.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Declares the first `len` bytes to be in use; clamped to the capacity.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.bytes.len());
    }
}

/// There is no memory for a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("there is no memory for a buffer")]
pub struct OutOfMemory;

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({}/{})", self.len, self.bytes.len())
    }
}

/// How a buffer is cut into packets: `packet_bytes` of data in each but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Largest number of bytes in a buffer.
    pub buffer_bytes: u32,
    /// Data bytes in every packet of a buffer but its last; never 0.
    pub packet_bytes: u32,
}

impl Geometry {
    /// How many packets `len` bytes need: at least one, since even an empty buffer is announced.
    pub fn packets(&self, len: usize) -> u32 {
        let packets = len.div_ceil(self.packet_bytes.max(1) as usize).max(1);
        u32::try_from(packets).unwrap_or(u32::MAX)
    }

    /// The largest number of packets any buffer has.
    pub fn max_packets(&self) -> u32 {
        self.packets(self.buffer_bytes as usize)
    }

    /// The bytes that packet `index` carries of a buffer `len` bytes long; empty past its end.
    pub fn range(&self, index: PacketIndex, len: usize) -> Range<usize> {
        let start = (index.0 as usize).saturating_mul(self.packet_bytes as usize).min(len);
        start..start.saturating_add(self.packet_bytes as usize).min(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packets_tile_the_buffer(len in 0usize..100_000, packet_bytes in 1u32..2000) {
            let geometry = Geometry { buffer_bytes: 100_000, packet_bytes };
            let mut at = 0;
            for i in 0..geometry.packets(len) {
                let range = geometry.range(PacketIndex(i), len);
                prop_assert_eq!(range.start, at);
                at = range.end;
            }
            prop_assert_eq!(at, len);
            prop_assert!(geometry.range(PacketIndex(geometry.packets(len)), len).is_empty());
        }
    }
}
