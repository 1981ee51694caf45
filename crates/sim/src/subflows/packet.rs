//! The packets on the path.

use std::net::SocketAddr;

use netblt_path::Payload;
use netblt_proto::api::Ecn;
use netblt_proto::time::Instant;

/// A packet on the path.
#[derive(Clone, Debug)]
pub(super) struct SubflowPacket {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) bytes: Vec<u8>,
}

impl Payload for SubflowPacket {
    fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn flip_bit(&mut self, bit: usize) {
        if let Some(byte) = self.bytes.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

/// A packet that leaves a host when its processor is through with it.
#[derive(Debug)]
pub(super) struct Leaves {
    pub(super) at: Instant,
    pub(super) number: u64,
    pub(super) back: bool,
    pub(super) ecn: Option<Ecn>,
    pub(super) packet: SubflowPacket,
}

impl PartialEq for Leaves {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Leaves {}
impl PartialOrd for Leaves {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Leaves {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
impl Leaves {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.number)
    }
}
