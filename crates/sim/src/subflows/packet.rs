//! The packets on the path.

use std::net::SocketAddr;

use netblt_path::Payload;
use netblt_proto::api::Ecn;

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
pub(super) struct SentPacket {
    /// It goes from the receiver to the sender.
    pub(super) back: bool,
    pub(super) ecn: Option<Ecn>,
    pub(super) packet: SubflowPacket,
}
