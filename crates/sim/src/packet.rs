//! The packets of the virtual paths.

use std::net::SocketAddr;

use netblt_path::Payload;

use crate::bottleneck::Foreign;

/// Spare datagram buffers kept.
const MAX_SPARE: usize = 4096;
/// The part of a refused datagram that a host returns.
const QUOTED_BYTES: usize = 64;

/// A packet in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) kind: PacketKind,
    /// Its source and its destination.
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    /// The datagram; or the beginning of the one that is refused.
    pub(crate) bytes: Vec<u8>,
    /// The only bits that may flip lie in this 16-bit word, once one did.
    flipped: Flips,
}

/// The content of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PacketKind {
    /// A datagram.
    Datagram,
    /// The host at the other end says that nothing listens there.
    Unreachable,
    /// A packet of another flow, for neither host.
    Foreign(Box<Foreign>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flips {
    Anywhere,
    OneWord(Option<usize>),
}

impl Packet {
    /// A datagram whose bits may flip anywhere.
    pub(crate) fn datagram(from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) -> Self {
        Self { kind: PacketKind::Datagram, from, to, bytes, flipped: Flips::Anywhere }
    }

    /// It, but only 16-bit checksums protect it. They miss flips that cancel out between two
    /// words, which is no fault of the protocol's: only one word of it will flip, and any change
    /// within one is found.
    pub(crate) fn checksummed(self) -> Self {
        Self { flipped: Flips::OneWord(None), ..self }
    }

    /// A packet of another flow.
    pub(crate) fn foreign(from: SocketAddr, to: SocketAddr, packet: Foreign) -> Self {
        let kind = PacketKind::Foreign(Box::new(packet));
        Self { kind, ..Self::datagram(from, to, Vec::new()) }
    }

    /// The ICMP message of the host at `to` about this datagram.
    pub(crate) fn unreachable(from: SocketAddr, to: SocketAddr, mut bytes: Vec<u8>) -> Self {
        bytes.truncate(QUOTED_BYTES);
        Self { kind: PacketKind::Unreachable, ..Self::datagram(from, to, bytes) }
    }
}

impl Payload for Packet {
    fn len_bytes(&self) -> usize {
        match &self.kind {
            PacketKind::Foreign(packet) => packet.bytes() as usize,
            PacketKind::Datagram | PacketKind::Unreachable => self.bytes.len(),
        }
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

/// Spare buffers for the bytes of datagrams.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    spare: Vec<Vec<u8>>,
}

impl Pool {
    /// A copy of `bytes`.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        copy
    }

    /// Keeps a buffer for a later copy.
    pub(crate) fn give(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unspecified() -> SocketAddr {
        ([0, 0, 0, 0], 0).into()
    }

    #[test]
    fn flips_of_a_checksummed_datagram_stay_in_one_word() {
        let mut packet = Packet::datagram(unspecified(), unspecified(), vec![0; 8]).checksummed();
        for bit in [17, 33, 30, 2] {
            packet.flip_bit(bit);
        }
        assert_eq!(packet.bytes, [0, 0, 2, 0x40, 0, 0, 0, 0]);
        let mut packet = Packet::datagram(unspecified(), unspecified(), vec![0; 2]);
        packet.flip_bit(0);
        packet.flip_bit(15);
        assert_eq!(packet.bytes, [1, 0x80]);
    }
}
