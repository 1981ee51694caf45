//! What the virtual paths carry.

use netblt_path::Payload;

/// A packet under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) kind: PacketKind,
    /// The datagram.
    pub(crate) bytes: Vec<u8>,
    /// The only bits that may flip lie in this 16-bit word, once one did.
    flipped: Flips,
}

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketKind {
    /// A datagram.
    Datagram,
    /// The host at the other end says that nobody listens there.
    Unreachable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flips {
    Anywhere,
    OneWord(Option<usize>),
}

impl Packet {
    /// A datagram whose bits may flip anywhere.
    pub(crate) fn datagram(bytes: Vec<u8>) -> Self {
        Self { kind: PacketKind::Datagram, bytes, flipped: Flips::Anywhere }
    }

    /// A datagram that only 16-bit checksums protect. They miss flips that cancel out between two
    /// words, which is no fault of the protocol's: only one word of it will flip, and any change
    /// within one is found.
    pub(crate) fn checksummed(bytes: Vec<u8>) -> Self {
        Self { flipped: Flips::OneWord(None), ..Self::datagram(bytes) }
    }

    pub(crate) fn unreachable() -> Self {
        Self { kind: PacketKind::Unreachable, ..Self::datagram(Vec::new()) }
    }
}

impl Payload for Packet {
    fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn flip_bit(&mut self, bit: usize) {
        if let Flips::OneWord(word) = &mut self.flipped
            && *word.get_or_insert(bit / 16) != bit / 16
        {
            return;
        }
        if let Some(byte) = self.bytes.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flips_of_a_checksummed_datagram_stay_in_one_word() {
        let mut packet = Packet::checksummed(vec![0; 8]);
        for bit in [17, 33, 30, 2] {
            packet.flip_bit(bit);
        }
        assert_eq!(packet.bytes, [0, 0, 2, 0x40, 0, 0, 0, 0]);
        let mut packet = Packet::datagram(vec![0; 2]);
        packet.flip_bit(0);
        packet.flip_bit(15);
        assert_eq!(packet.bytes, [1, 0x80]);
    }
}
