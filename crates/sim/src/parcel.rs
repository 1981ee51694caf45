//! What the virtual paths carry, and between which ends.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::{Index, IndexMut};

use netblt_path::Payload;

/// One of the two ends of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The end that opens the connection.
    Active,
    /// The end that waits to be opened.
    Passive,
}

impl Side {
    /// Both, in the order in which a world serves them.
    pub const BOTH: [Self; 2] = [Self::Active, Self::Passive];

    /// The opposite one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Active => Self::Passive,
            Self::Passive => Self::Active,
        }
    }

    /// Its address: each is alone in a documentation network of its own.
    pub const fn address(self) -> SocketAddr {
        let ip = match self {
            Self::Active => Ipv4Addr::new(192, 0, 2, 1),
            Self::Passive => Ipv4Addr::new(198, 51, 100, 1),
        };
        SocketAddr::new(IpAddr::V4(ip), 998)
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Active => "active",
            Self::Passive => "passive",
        })
    }
}

/// One thing for each end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair<T>(pub [T; 2]);

impl<T> Index<Side> for Pair<T> {
    type Output = T;
    fn index(&self, side: Side) -> &T {
        &self.0[side as usize]
    }
}

impl<T> IndexMut<Side> for Pair<T> {
    fn index_mut(&mut self, side: Side) -> &mut T {
        &mut self.0[side as usize]
    }
}

/// What is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parcel {
    pub(crate) kind: ParcelKind,
    /// The datagram.
    pub(crate) bytes: Vec<u8>,
    /// The only bits that may flip lie in this 16-bit word, once one did.
    flipped: Flips,
}

/// What a parcel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParcelKind {
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

impl Parcel {
    /// A datagram whose bits may flip anywhere.
    pub(crate) fn datagram(bytes: Vec<u8>) -> Self {
        Self { kind: ParcelKind::Datagram, bytes, flipped: Flips::Anywhere }
    }

    /// A datagram that only 16-bit checksums protect. They miss flips that cancel out between two
    /// words, which is no fault of the protocol's: only one word of it will flip, and any change
    /// within one is found.
    pub(crate) fn checksummed(bytes: Vec<u8>) -> Self {
        Self { flipped: Flips::OneWord(None), ..Self::datagram(bytes) }
    }

    pub(crate) fn unreachable() -> Self {
        Self { kind: ParcelKind::Unreachable, ..Self::datagram(Vec::new()) }
    }
}

impl Payload for Parcel {
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
        let mut parcel = Parcel::checksummed(vec![0; 8]);
        for bit in [17, 33, 30, 2] {
            parcel.flip_bit(bit);
        }
        assert_eq!(parcel.bytes, [0, 0, 2, 0x40, 0, 0, 0, 0]);
        let mut parcel = Parcel::datagram(vec![0; 2]);
        parcel.flip_bit(0);
        parcel.flip_bit(15);
        assert_eq!(parcel.bytes, [1, 0x80]);
    }
}
